//$ -- SPDX-License-Identifier: Apache-2.0
//$ local follows = epilogue == "activate" or epilogue == "copies"
//$ local halves = follows and operands == "halves" -- two parts of B in a tile
//$ local column = halves and "t->column / 2" or "t->column"
//$ local two = arch == "sm_100f" -- warps that do nothing else
//$ local blocks = factors == "squares" -- a scale for each row and TILE_K steps of k
//$ local step, all = two and 8 or 16, two and "8 * 128" or "16 * 128"
/*
//$ if two then
** A's rows, each from anywhere: row r of all groups is row gather[r] / topk of a [tokens, k]. Two
** warps' threads copy 16 bytes of every eighth row of a tile, to where the copy engine would have
** put them. Addresses are found once a tile. Rows past the group's end are zeros, as are those
** whose index is out of range.
//$ else
** A's rows, each from anywhere: row r of all groups is row gather[r] / topk of a [tokens, k]. All
** threads of the first warpgroup copy 16 bytes of every sixteenth row of a tile, to where the copy
** engine would have put them (one row to a box takes it twice the time of the products,
** bench/notes: gather). Addresses are found once a tile. Rows past the group's end are zeros, as
** are those whose index is out of range.
//$ end
*/
enum {
//$ if not two then
    GATHER_THREADS = 128,
//$ end
    ROWS_EACH = TILE_M / $(step), /* of a tile, that a thread has a part of */
    CHUNK = 16 / $(a.bytes) /* elements that it copies of each */
};

struct gather {
    const char *a;
    unsigned int pitch; /* bytes from one row of A to the next */
    int k;
    const int *pairs; /* of the groups' rows */
    int topk, tokens;
    unsigned int *error;
    unsigned int row[ROWS_EACH]; /* of A, for the tile's */
    unsigned int found;          /* bit i: there is a row[i] */
//$ if blocks then
    const float *sf;             /* A's scales of the first block */
    unsigned int sf_stride;      /* from one block's to the next's */
//$ end
};

/* The row of A for row `row` of all groups; -1 and a record if there is none. */
FN int gather_row(const struct gather *g, unsigned int row)
{
    const int pair = __ldg(g->pairs + row);
    const int token = pair / g->topk;

    if (pair >= 0 && token < g->tokens)
        return token;
    /* One of those: in one store, which is never 0.                      COUPLED: errors */
    *(u64 *)(g->error + 6) = (u64)~row << 32 | (unsigned int)pair;
    return -1;
}

/* Find this thread's rows of a tile: eight threads have parts of the same. */
FN void gather_find(struct gather *g, const struct tile *t, int warp, int lane)
{
    g->found = 0;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        const int y = t->row + i * $(step) + warp * 4 + lane / 8;
        const int row = y < (int)t->length ? gather_row(g, t->start + y) : -1;

        g->row[i] = row < 0 ? 0 : row;
        g->found |= (row >= 0) << i;
    }
}

/*
** Copy this thread's parts of a stage, TILE_K steps of k from `x`: chunk c of row r becomes chunk
** c ^ r % 8. The barrier counts an arrival once all have landed. Columns past k become zeros.
//$ if blocks then
** Each row's scale of these steps goes to `sf`: the threads that share rows have one each.
//$ end
*/
//$ if blocks then
FN void gather_load(const struct gather *g, unsigned int stage, unsigned int sf,
                    unsigned int full, int x, int warp, int lane)
//$ else
FN void gather_load(const struct gather *g, unsigned int stage, unsigned int full, int x,
                    int warp, int lane)
//$ end
{
    const int line = warp * 4 + lane / 8, column = x + lane % 8 * CHUNK;
    const unsigned int to = stage + line * 128 + (lane % 8 ^ line % 8) * 16;
    const unsigned int wanted = column < g->k ? g->found : 0;
    const char *from = g->a + column * $(a.bytes);

#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++)
//$ if blocks then
        copy_chunk(to + i * $(all), from + (u64)g->row[i] * g->pitch, wanted >> i << 4 & 16);
//$ else
        copy_chunk(to + i * $(all), wanted >> i & 1 ? from + (u64)g->row[i] * g->pitch : g->a,
                   wanted >> i << 4 & 16);
//$ end
//$ if blocks then
    const int own = lane % 8;
    unsigned int row = g->row[0];

#pragma unroll
    for (int i = 1; i < ROWS_EACH; i++)
        row = own == i ? g->row[i] : row;
    if (own < ROWS_EACH)
        copy_word(sf + (own * $(step) + line) * 4, g->sf + (u64)(x / TILE_K) * g->sf_stride + row,
                  (int)(g->found >> own & 1) * 4);
//$ end
    barrier_arrive_copied(full);
}

//$ if two then
/* Fill stages with one tile's rows of A, of which this warp copies a part. By all lanes. */
FN void gather_tile(struct gather *g, const struct memory *s, struct pipeline *p,
                    const struct tile *t, int warp, int lane)
{
    gather_find(g, t, warp, lane);
#pragma unroll 1
    for (int x = 0; x < g->k; x += TILE_K) {
        barrier_wait(s->empty + p->stage * 8, p->parity ^ 1);
        gather_load(g, s->ring + p->stage * STAGE_BYTES, s->full + p->stage * 8, x, warp, lane);
        pipeline_next(p, STAGES);
    }
}
//$ else
/* Fill stages with one tile's rows of A, of which this warp copies a part; the warp that `leads`
   also loads B. By all lanes. */
FN void gather_tile(struct gather *g, const struct memory *s, struct pipeline *p,
                    const struct tile *t, const struct maps *maps, int leads, int warp, int lane)
{
    gather_find(g, t, warp, lane);
#pragma unroll 1
    for (int x = 0; x < g->k; x += TILE_K) {
        const unsigned int full = s->full + p->stage * 8;
        const unsigned int stage = s->ring + p->stage * STAGE_BYTES;

        barrier_wait(s->empty + p->stage * 8, p->parity ^ 1);
        if (leads && elect_lane()) {
            barrier_expect(full, B_BYTES);
//$ if cluster.m > 1 then
            if (t->beside)
                load_b(maps, stage + A_BYTES, full, t, x, $(column));
            else
                load_b_half(maps, stage + A_BYTES, full, t, x, $(column));
//$ else
            load_b(maps, stage + A_BYTES, full, t, x, $(column));
//$ end
        }
        __syncwarp();
//$ local sf = blocks and " s->sf + p->stage * SF_BYTES," or ""
        gather_load(g, stage,$(sf) full, x, warp, lane);
        pipeline_next(p, STAGES);
    }
}
//$ end
