//$ -- SPDX-License-Identifier: Apache-2.0
/*
** What the product reads is quantized in the same launch: warps that it does not need make the row
** copy of `in` ahead of the tiles, and the column copy if it is wanted.
**
** Work comes in pieces of a strip of TILE_M rows and CHUNK steps of k: PIECES of them, of 16 rows,
** make a strip's chunk of the row copy, and as many, of 64 features, its part of the column copy.
** A warp draws a ticket t and makes piece t of the row copy, in the order in which tiles want them
** (struct walk, with pieces in place of columns of tiles), then piece t - lead of the column copy,
** which nobody here waits for. A flag counts the pieces that are done of each chunk of the row
** copy; the warp that copies for the product waits for PIECES.
**
** No launch can hang, whatever CTAs run at a time: who draws a ticket waits for nothing until its
** pieces are done, tickets are drawn in order by any CTA that runs, and each CTA draws until there
** are none. So every flag that a copying warp waits for is raised by warps that run already, or by
** its own CTA's. Both walks cut sizes by the same rules, so what is waited for is what is made,
** however sizes lie.
**
** The last CTA to leave has nobody left who looks at flags or tickets and sets them to zero.
*/
/* COUPLED: flags -> runtime/streamed.c */
enum {
    CHUNK = 512,                 /* steps of k that a flag stands for */
    PIECES = 8,                  /* of a strip's chunk, in either copy */
    PIECE_ROWS = TILE_M / PIECES,
    PIECE_FEATURES = CHUNK / PIECES,
    BLOCK = 128,                 /* values that share a scale */
    LINE_BYTES = 128,            /* that are brought from memory at once */
    WALK_BYTES = 32,             /* of a lane's walk, see walk_keep */
    TICKET = 0, LEFT = 32,       /* words before the flags: tickets drawn, CTAs that are done */
    FLAGS = 64
};

/* What is read, and what is made: the caller's. */
struct stream {
    const unsigned char *in;
    unsigned char *row, *column;                             /* no column copy: null */
    unsigned int in_stride, row_stride, column_stride;       /* values from one line to the next */
    float *row_sf, *column_sf;
    unsigned int row_sf_stride;                              /* from one block to the next */
    unsigned int *words;                                     /* tickets and flags */
    int k;
};

DEVICE unsigned int chunks_of(int k)
{
    return ((unsigned int)k + CHUNK - 1) / CHUNK;
}

/* Runs of BLOCK rows that all groups together have at most. */
DEVICE unsigned int stream_runs(const struct walk *w)
{
    return (w->total + (BLOCK - 1) * (unsigned int)w->groups) / BLOCK;
}

//$ include "sm90/stream_cast.cu"

/* Where a warp has come to waits in shared memory until its next piece, not in registers. */
DEVICE void walk_keep(const struct walk *w, unsigned int to)
{
    store_shared_x4(to, (unsigned int)w->base, w->tiles_before, w->end_before, w->runs_before);
    store_shared_x4(to + 16, w->start, w->length, w->runs, w->tiles_end);
}

DEVICE void walk_recall(struct walk *w, unsigned int from)
{
    unsigned int word[8];

    load_shared_x4(from, word);
    load_shared_x4(from + 16, word + 4);
    w->base = (int)word[0];
    w->tiles_before = word[1];
    w->end_before = word[2];
    w->runs_before = word[3];
    w->start = word[4];
    w->length = word[5];
    w->runs = word[6];
    w->tiles_end = word[7];
}

/* The place of piece `number` of a copy; 0: there is none. By all lanes of a warp. */
DEVICE int stream_find(struct walk *w, unsigned int kept, struct tile *t, unsigned int number,
                       int lane)
{
    int found;

    kept += (threadIdx.x - 32) * WALK_BYTES;
    walk_recall(w, kept);
    if (w->base >= w->groups || number < w->tiles_before)
        walk_begin(w, 0, 0, lane);
    w->next = number;
    found = uniformly(walk_next(w, t, lane));
    walk_keep(w, kept);
    if (!found) /* and nothing is known of it */
        return 0;
    t->start = (unsigned int)uniform((int)t->start);
    t->length = (unsigned int)uniform((int)t->length);
    t->runs = (unsigned int)uniform((int)t->runs);
    t->row = uniform(t->row);
    t->column = uniform(t->column);
    return 1;
}

/*
** Pieces of the row copy that come before the first one of the column copy: those of two bands of
** strips, so that the tiles of the next band never wait for columns. Worked out when it is asked
** for, which is cheaper than to keep it.
*/
DEVICE unsigned int stream_lead(const struct stream *s, const struct walk *w)
{
    const unsigned int all = stream_runs(w), about = 2 * (unsigned int)afresh((int)w->band);

    return (about < all ? about : all) * chunks_of(s->k) * PIECES;
}

/* Draw tickets until there is nothing left to do. By all lanes of warps 1 to 3. */
DEVICE void stream_work(const struct stream *s, struct walk *w, unsigned int kept, int lane)
{
    struct tile t;
    int more = 1;

    w->tile_columns = chunks_of(s->k) * PIECES;
    walk_begin(w, 0, 0, lane);
    walk_keep(w, kept + (threadIdx.x - 32) * WALK_BYTES);
    for (;;) {
        const unsigned int ticket = ticket_draw(s->words + TICKET, afresh(lane));

        more = more && stream_find(w, kept, &t, ticket, afresh(lane));
        if (more)
            stream_rows(s, &t, afresh(lane));
        if (!s->column && !more)
            return;
        if (!s->column || ticket < stream_lead(s, w))
            continue;
        if (!stream_find(w, kept, &t, ticket - stream_lead(s, w), afresh(lane)))
            return;
        stream_lines(s, &t, afresh(lane));
    }
}

/* The CTA draws no more and copies no more: the last one to say so tidies up. By all lanes. */
DEVICE void stream_leave(const struct stream *s, const struct walk *w, int lane)
{
    const unsigned int count = FLAGS + stream_runs(w) * chunks_of(s->k);

    gpu_fence(); /* between looks at flags and the count */
    if (ticket_draw(s->words + LEFT, lane) + 1 < gridDim.x)
        return;
    gpu_fence();
    for (unsigned int i = (unsigned int)lane; i < count; i += 32)
        s->words[i] = 0;
}
