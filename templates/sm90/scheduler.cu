//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The tile scheduler. One warp runs it for its CTA: the lanes hold 32 consecutive
** groups, and every cluster visits tiles `next`, `next + stride`, ... in the one order that all
** agree on. Nothing is shared between CTAs and nothing is written, so sizes may change between
** launches.
**
//$ if longest_first == 1 then
** Order: of each 32 groups the longest first, so that the last tiles are short; in a group, bands
** of row tiles, column by column inside a band, so that the clusters at work share rows of A and
** columns of B in L2.
//$ else
** Order: group by group; inside a group, bands of row tiles, column by column inside a band, so
** that the clusters at work share rows of A and columns of B in L2.
//$ end
*/
//$ if microbatches > 1 then
/*
** Each merged product has sizes of its own. A group is as long as its steps in all of them;
** its start in each one is looked up when the scheduler comes to it, and kept by as many lanes.
*/
//$ end
//$ local which = ragged == "m" and "B" or "D"
//$ -- where scales of a group are, or its copies
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local kept = epilogue == "copies" or back
//$ local runs = kept or a_runs
//$ -- clusters along m: their tiles may stand side by side, those of a pair cannot
//$ local turning = cluster.m > 1 and not pair
//$ local above = cluster.m > 1 and pair
struct scheduler {
//$ if microbatches > 1 then
    const struct microbatches *microbatches;
    int count; /* of them */
    /* In lane i, of part i: */
    unsigned int ends, ends_next; /* where the groups before the block end, and those of it */
//$ if a.major == "k" then
    unsigned int aligned_ends, aligned_ends_next; /* the same in the copies */
//$ end
    unsigned int part_start, part_length; /* of group `at` */
    int at;
    unsigned int steps; /* of group `at`, in all parts */
    /* The part that was looked at last. */
//$ end
//$ if ragged ~= "none" then
    const void *first_dims, *offsets;
    int sizes_bytes;
    unsigned int total;        /* of the ragged axis, over all groups */
//$ end
    int groups;
//$ if ragged ~= "none" then
    const void *const *pointers; /* [groups] each group's $(which), or null */
//$ end
//$ if ragged ~= "m" then
    unsigned int tile_rows;    /* of one group */
//$ end
    unsigned int tile_columns; /* of one group, counted in clusters */
    unsigned int band;         /* row tiles visited together, about */
    unsigned int next, stride; /* tiles, over all groups */
    int base;                  /* this block holds groups base .. base + 31 */
    unsigned int tiles_before; /* of all groups before the block */
    unsigned int end_before;   /* where the groups before the block end */
//$ if ragged == "k" and a.major == "k" then
    unsigned int aligned_before; /* the same in the copies */
//$ elseif runs then
    unsigned int runs_before; /* runs of 128 rows in the groups before */
//$ end
    /* This lane's group. */
//$ if longest_first == 1 then
    int group;
//$ end
    unsigned int start, length; /* on the ragged axis, cut to the buffer */
//$ if runs then
    unsigned int runs;          /* of 128 rows in the groups before */
//$ end
    unsigned int tiles_end;     /* from the block's first group to this one's end */
};

struct tile {
    int group;
//$ if dequantize ~= "none" and wide == "either" then
    int as;            /* the type that it is multiplied as */
    unsigned int sequence; /* that says so */
//$ end
    unsigned int start, length; /* of the group, on the ragged axis */
    int row, column;            /* of the tile's first element, inside the group */
//$ if runs then
    unsigned int runs; /* of 128 rows in the groups before */
//$ end
//$ if turning then
    int beside; /* the cluster's other tile is next to this one, not above or below it */
//$ end
//$ if ragged ~= "none" then
    const void *matrix; /* where the group's $(which) is; null: next to the others */
//$ end
};

//$ include("common/scheduler_sizes.cu", { rolled = scheduler_rolled })

//$ if above then
/* Pairs of tiles of TILE_M rows, one above the other, in a group of this length. */
FN unsigned int row_tiles(unsigned int length)
{
    return (length + CTAS * TILE_M - 1) / (CTAS * TILE_M);
}
//$ else
/* Tiles of TILE_M rows, one above the other, in a group of this length. */
FN unsigned int row_tiles(unsigned int length)
{
    return (length + TILE_M - 1) / TILE_M;
}
//$ end

/* Pairs of tiles in so many rows of them: one above the other, but in an odd last row abreast. */
FN unsigned int pairs_in(const struct scheduler *w, unsigned int rows)
{
    return rows / 2 * w->tile_columns + rows % 2 * ((w->tile_columns + 1) / 2);
}

//$ local aligned = ragged == "k" and a.major == "k"
enum { ALIGNED = 128 };

/*
** The quantizer's copies hold each group from a multiple of ALIGNED on, after the groups before.
** An empty group begins after the end of all, so that its one step reads zeros.
*/
FN void scheduler_align(struct scheduler *w, int lane)
{
    const unsigned int most = w->total + (ALIGNED - 1) * (unsigned int)w->groups;
    const unsigned int all = most / ALIGNED * ALIGNED;
    const unsigned int space = (w->length + ALIGNED - 1) / ALIGNED * ALIGNED;

    w->start = scheduler_start(space, all, &w->aligned_before, lane);
    if (w->length > all - w->start)
        w->length = all - w->start;
    if (w->length == 0)
        w->start = all + ALIGNED;
}

/* Copies of a group begin after those of the groups before it. Groups that overlap have none. */
FN void scheduler_runs(struct scheduler *w, int lane)
{
    const unsigned int all = (w->total + 127 * (unsigned int)w->groups) / 128;
    const unsigned int runs = (w->length + 127) / 128;

    w->runs = scheduler_start(runs, all, &w->runs_before, lane);
    if (runs > all - w->runs)
        w->length = 0;
}

/* Hand the lanes' groups round so that longer ones come first, and of equals the lower number. */
FN void scheduler_sort(struct scheduler *w, int lane)
{
    int rank = 0, from = 0;

#pragma unroll 1
    for (int i = 0; i < 32; i++) {
        const unsigned int length = __shfl_sync(~0u, w->length, i);
        rank += length > w->length || (length == w->length && i < lane);
    }
#pragma unroll 1
    for (int i = 0; i < 32; i++)
        if (__shfl_sync(~0u, rank, i) == lane)
            from = i;
    w->group = w->base + from;
    w->start = __shfl_sync(~0u, w->start, from);
    w->length = __shfl_sync(~0u, w->length, from);
//$ if runs then
    w->runs = __shfl_sync(~0u, w->runs, from);
//$ end
}

/* The sizes of one part's groups base .. base + 31, each lane's in `start` and `length`. */
FN void scheduler_read_part(struct scheduler *w, int part, int lane)
{
    const struct microbatch *of = &w->microbatches->part[part];

    w->first_dims = of->first_dims;
    w->offsets = of->offsets;
    w->sizes_bytes = of->sizes_bytes;
    w->total = (unsigned int)of->k;
    w->end_before = __shfl_sync(~0u, w->ends, part);
    scheduler_read_sizes(w, lane);
//$ if aligned then
    w->aligned_before = __shfl_sync(~0u, w->aligned_ends, part);
    scheduler_align(w, lane);
//$ end
}

/* The start of a group of the block in each microbatch: lane i keeps that of i. */
FN void scheduler_find(struct scheduler *w, int group, int lane)
{
    w->at = group;
    w->steps = 0;
    for (int i = 0; i < w->count; i++) {
        unsigned int start, length;

        scheduler_read_part(w, i, lane);
        start = __shfl_sync(~0u, w->start, group - w->base);
        length = __shfl_sync(~0u, w->length, group - w->base);
        w->steps += (length + TILE_K - 1) / TILE_K * TILE_K;
        if (lane == i) {
            w->part_start = start;
            w->part_length = length;
        }
    }
}

/* The tile's share of one part, whose number is less than the lanes'. By all lanes. */
FN struct tile scheduler_part(const struct scheduler *w, const struct tile *t, int part)
{
    struct tile share = *t;

    share.start = __shfl_sync(~0u, w->part_start, part);
    share.length = __shfl_sync(~0u, w->part_length, part);
    return share;
}

/* Read the sizes of groups base .. base + 31. */
FN void scheduler_read(struct scheduler *w, int lane)
{
//$ if microbatches > 1 then
    unsigned int steps = 0;

    w->ends = w->ends_next;
//$ if aligned then
    w->aligned_ends = w->aligned_ends_next;
//$ end
    for (int i = 0; i < w->count; i++) {
        scheduler_read_part(w, i, lane);
        steps += (w->length + TILE_K - 1) / TILE_K * TILE_K;
        if (lane == i) {
            w->ends_next = w->end_before;
//$ if aligned then
            w->aligned_ends_next = w->aligned_before;
//$ end
        }
    }
    w->length = steps;
//$ elseif ragged == "none" then
    w->start = w->length = 0;
//$ else
    scheduler_read_sizes(w, lane);
//$ if aligned then
    scheduler_align(w, lane);
//$ elseif runs then
    scheduler_runs(w, lane);
//$ end
//$ end
//$ if ragged == "m" then
//$ if longest_first == 1 then
    scheduler_sort(w, lane);
//$ end
//$ local tiles = turning and "pairs_in(w, row_tiles(w->length))"
//$ tiles = tiles or "row_tiles(w->length) * w->tile_columns"
    w->tiles_end = warp_prefix_sum($(tiles), 0x7fffffffu, lane);
//$ else
//$ local used = "w->base + lane < w->groups"
//$ if longest_first == 1 then
    scheduler_sort(w, lane);
//$ end
//$ if ragged == "k" then
//$ used = longest_first == 1 and "w->group < w->groups" or used
//$ used = epilogue == "add" and "w->length > 0" or used
//$ end
    w->tiles_end =
        warp_prefix_sum($(used) ? w->tile_rows * w->tile_columns : 0,
                        0x7fffffffu, lane);
//$ end
}

//$ local reader = scheduler_rolled and "" or ", int lane"
FN void scheduler_begin(struct scheduler *w, unsigned int first, unsigned int stride$(reader))
{
    w->next = first;
    w->stride = stride;
//$ if scheduler_rolled then
    w->base = -32; /* before the first block: one site reads */
    w->tiles_before = w->tiles_end = 0;
//$ else
    w->base = 0;
    w->tiles_before = 0;
//$ end
//$ if microbatches > 1 then
    w->ends_next = 0;
    w->at = -1;
//$ if aligned then
    w->aligned_ends_next = 0;
//$ end
//$ else
    w->end_before = 0;
//$ if aligned then
    w->aligned_before = 0;
//$ elseif runs then
    w->runs_before = 0;
//$ end
//$ end
//$ if not scheduler_rolled then
    scheduler_read(w, lane);
//$ end
}

//$ include "common/band.cu"

//$ if turning then
/*
** The place of a tile in its group, from its pair's number there: bands of strips two tiles high.
** An odd last row belongs to the last band, whose strips each give two columns, one after the
** other, before that row gives the same two at once.
*/
FN void scheduler_place(const struct scheduler *w, struct tile *t, unsigned int number)
{
    const unsigned int columns = w->tile_columns, rows = row_tiles(t->length);
    const unsigned int strips = rows > 1 ? rows / 2 : 1, last = strips * columns - 1;
    const struct band band = band_of(number < last ? number : last, strips, columns, w->band);
    const unsigned int high = rows > 1 ? band.strips : 0;
    const unsigned int odd = rows % 2 && band.first + band.strips == strips;
    const unsigned int step = odd ? 2 * high + 1 : high; /* pairs until the column is another */
    const unsigned int steps = (number - band.first * columns) / step;
    const unsigned int column = odd ? 2 * steps : steps;
    unsigned int strip = number - band.first * columns - steps * step, second = 0;

    t->beside = odd && strip >= (column + 1 < columns ? 2 * high : high);
    if (strip >= high && !t->beside) {
        strip -= high;
        second = 1;
    }
    if (t->beside) {
        t->row = (int)((rows - 1) * TILE_M);
        t->column = (int)((column + cluster_rank()) * TILE_N);
    } else {
        t->row = (int)((2 * (band.first + strip) + cluster_rank()) * TILE_M);
        t->column = (int)((column + second) * TILE_N);
    }
}
//$ else
/* The place of a tile in its group, from its number there. */
FN void scheduler_place(const struct scheduler *w, struct tile *t, unsigned int number)
{
//$ local tile_rows = ragged == "m" and "row_tiles(t->length)" or "w->tile_rows"
    const struct band band = band_of(number, $(tile_rows), w->tile_columns, w->band);
    const unsigned int column = band.number / band.strips;
    const unsigned int row = band.first + band.number - column * band.strips;

    t->row = (int)($(above and "(row * CTAS + cluster_rank())" or "row") * TILE_M);
//$ if cluster.n > 1 then
    t->column = (int)((column * CTAS + cluster_rank()) * TILE_N);
//$ else
    t->column = (int)(column * TILE_N);
//$ end
}
//$ end

/* The next tile of this cluster; 0 if there is none. Called by all lanes of a warp. */
FN int scheduler_next(struct scheduler *w, struct tile *t, int lane)
{
    unsigned int block_tiles = __shfl_sync(~0u, w->tiles_end, 31);
    unsigned int tiles_end_below, first;
    int owner;

//$ if scheduler_rolled then
#pragma unroll 1
//$ end
    while (uniformly(w->next - w->tiles_before >= block_tiles)) {
        w->base += 32;
        if (w->base >= w->groups)
            return 0;
        w->tiles_before += block_tiles;
        scheduler_read(w, lane);
        block_tiles = __shfl_sync(~0u, w->tiles_end, 31);
    }
    owner = __ffs(__ballot_sync(~0u, w->next - w->tiles_before < w->tiles_end)) - 1;
    tiles_end_below = __shfl_sync(~0u, w->tiles_end, owner > 0 ? owner - 1 : 0);
    first = w->tiles_before + (owner > 0 ? tiles_end_below : 0);
//$ if longest_first == 1 then
    t->group = __shfl_sync(~0u, w->group, owner);
//$ else
    t->group = w->base + owner;
//$ end
//$ if microbatches > 1 then
    if (uniformly(t->group != w->at))
        scheduler_find(w, t->group, lane);
    t->start = 0;
    t->length = w->steps;
//$ else
    t->start = __shfl_sync(~0u, w->start, owner);
    t->length = __shfl_sync(~0u, w->length, owner);
//$ if runs then
    t->runs = __shfl_sync(~0u, w->runs, owner);
//$ end
//$ end
//$ if ragged ~= "none" then
    t->matrix = w->pointers ? w->pointers[t->group] : 0;
//$ end
    scheduler_place(w, t, w->next - first);
    w->next += w->stride;
    return 1;
}
