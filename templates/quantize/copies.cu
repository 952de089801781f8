//$ local bits = element.bits == 4 and 4 or 8 -- in memory
//$ local wide = scale.k
//$ local by_row = scale.span == "row" or (scale.span == "block" and scale.rows == 1)
//$ local lanes = scale.span == "block" and wide // 2 < 32 and wide // 2 or 32
/* One copy, and what its scales need. */
struct copy {
    unsigned char *data; /* null: not wanted */
    long long stride;    /* values from one line to the next */
    sf_element *sf;
    float *global;
    const unsigned int *amax; /* the largest magnitudes of what spans more than a tile */
//$ if scale.stochastic then
    const unsigned long long *random; /* seed and offset */
//$ elseif scale.delayed then
    const float *given; /* factor, and what is stored with it */
//$ end
};

/* A thread's place: rows 32 * part .. and features 64 * half + 2 * lane, + 1 of the tile. */
struct place {
    int warp, lane, part, half;
};

/*
** The calling thread's. What follows from it is worked out anew for each tile: kept from tile to
** tile, it would take registers that the values need.
*/
FN struct place place_here(void)
{
    int thread;

    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    const struct place p = { thread / 32, thread % 32, thread / 32 % 4, thread / 32 / 4 };
    return p;
}

enum {
    PARTS = ACROSS < ROWS ? ROWS / ACROSS : 1, /* blocks of rows that a thread has a part in */
    LANES = $(lanes),                          /* that share a row's block */
    LEFT = ROWS / LANES,                       /* rows whose factor a lane finds */
    PITCH = ROWS + 4                           /* spreads the blocks of a warp over the banks */
};

struct shared {
    /* The column copy's tile: a line of 128 values for each feature. */
    uint4 stage[TILE_N * TILE_M * $(bits) / 128];
//$ if by_row then
    float row_factor[8][32 / LANES][PITCH]; /* of each warp's blocks */
//$ end
//$ if scale.stochastic then
    uint4 random[8][ROWS][4]; /* of each warp's rows: a byte for each value */
//$ end
    float row_most[2][TILE_M];    /* of 64 features each */
    float column_most[4][TILE_N]; /* of 32 rows each */
    int is_last;
};

//$ if scale.span == "block" then
//$ include "quantize/store_sf.c"

//$ end
/* Where a thread's first value lies in the row copy, in values. */
FN long long row_at(const struct copy *copy, const struct place *p, const struct group *g,
                    const struct tile *t, const struct shape *all)
{
//$ local first = of == "w" and "(long long)g->number * all->m" or "(long long)g->start"
    return ($(first) + t->row + ROWS * p->part) * copy->stride + t->column + 64 * p->half +
           2 * p->lane;
}

/* Where the tile's first value lies in the column copy, in values. */
FN long long column_at(const struct copy *copy, const struct group *g, const struct tile *t,
                       const struct shape *all)
{
//$ if of == "w" then
    return ((long long)g->number * all->k + t->column) * copy->stride + t->row;
//$ else
    return t->column * copy->stride + (long long)g->first * TILE_M + t->row;
//$ end
}

enum { WORDS = 16 * $(bits) / 32 }; /* of 16 values */

/* Two values of a column copy's line into the words that a thread gathers of 16. */
FN void gather(unsigned words[WORDS], int r, unsigned codes)
{
    const int at = r % $(32 // bits) * $(bits), word = r % 16 / $(32 // bits);

    words[word] = at ? words[word] | codes << at : codes;
}

/*
** 16 rows of one feature, from row r of the thread's on, into the stage. Lines of neighbouring
** lanes lie two apart, so chunks of 16 bytes are spread over the banks.
*/
FN void stage_rows(struct shared *shared, const struct place *p, int second, int r,
                   const unsigned words[WORDS])
{
    const int line = 64 * p->half + 2 * p->lane + second;

//$ if bits == 4 then
    const int chunk = (line % 2 * 4 + p->part) ^ (line / 2 % 8);
    ((uint2 *)&shared->stage[line / 2 * 8 + chunk])[r / 16] = make_uint2(words[0], words[1]);
//$ else
    const int chunk = (p->part * 2 + r / 16) ^ (line / 2 % 8);
    shared->stage[line * 8 + chunk] = make_uint4(words[0], words[1], words[2], words[3]);
//$ end
}

/* The stage into the column copy, lines of $(16 * bits) bytes at a time. */
FN void store_stage(const struct shared *shared, const struct copy *copy, const struct group *g,
                    const struct tile *t, const struct shape *all)
{
    enum { CHUNKS = TILE_M * $(bits) / 128, LINES = THREADS / CHUNKS }; /* of a line; at a time */
    const int first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const long long step = LINES * copy->stride * $(bits) / 8;
    const long long begin = column_at(copy, g, t, all) + first * copy->stride; /* in values */
    unsigned char *at = copy->data + begin * $(bits) / 8 + chunk * 16;
    int left = all->k - t->column - first; /* features from this one on */

//$ if of == "w" then
    if (t->row + chunk * $(128 // bits) >= copy->stride)
        left = 0;
//$ end
#pragma unroll
    for (int i = 0; i < TILE_N / LINES; i++) {
        const int line = i * LINES + first;
//$ if bits == 4 then
        const uint4 value = shared->stage[line / 2 * 8 + ((line % 2 * 4 + chunk) ^ (line / 2 % 8))];
//$ else
        const uint4 value = shared->stage[line * 8 + (chunk ^ (line / 2 % 8))];
//$ end
        if (i * LINES < left)
            *(uint4 *)at = value;
        at += step;
    }
}
