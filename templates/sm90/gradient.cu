//$ -- SPDX-License-Identifier: Apache-2.0
//$ local two, halves = operands ~= "one", operands == "halves"
//$ local pairs, run = two and interleave == 1, interleave // 8
//$ local slabs_of = two and "two slabs" or "a slab"
//$ -- Sums in the tensor cores' own memory: warps n and n + 4 of those that store have 32 rows
//$ local apart = arch ~= "sm_90a"
//$ local copies = epilogue == "gradient_copies"
//$ local kept = copies and not apart -- in registers
/*
** From dh = alpha * sum, the gradient of an activation's result, those of its input:
//$ if two then
** dh * probability * d$(activation)(a, b) in that order in fp32, of each operand, rounded once. dh
//$ else
** dh * probability * d$(activation)(a) in that order in fp32, rounded once. dh
//$ end
** itself is never rounded to $(d.type), as it is where a cast follows a product; all else is as the
** cast does it.
**
** The copy engine loads P for 16 rows and 64 columns of the sums, a chunk, in $(slabs_of),
** and the warp puts D there in place of P, which goes back. Slabs take turns, on and on from tile
** to tile, as do those of C in sm90/fetch.cu. Fetches and stores must agree: two warps whose 32
** rows share partial sums of dbias take the same chunks.
//$ if copies then
//$   if kept then
** Quantized tensors of D, made in registers, go back: see sm90/copies.cu. D itself is in the slabs
** only where its rows are summed.
//$   else
** Quantized tensors of D, as it is in the slabs, go back: see sm90/copies.cu.
//$   end
//$ end
*/
//$ once("activation/" .. activation .. ".c")
//$ once("cast/from_" .. d.type .. ".c")

enum {
    OPERANDS = $(two and 2 or 1),
    CHUNKS = ROWS / 64 * ROW_SLABS,
    CHUNKS_AHEAD = SLABS / OPERANDS,
    FRAGMENTS = SLAB_COLUMNS / 8, /* of a slab: 8 columns of 16 rows each */
//$ if copies and apart then
    PART = FRAGMENTS / 2, /* whose sums are loaded at a time: few registers are left */
//$ end
//$ if operands == "runs" and not pairs then
    RUN = $(run), /* fragments of one operand before those of the other */
//$ end
    PAIR_ROWS = 32
};

//$ if copies then
//$ include "sm90/copies_place.cu"

//$ end
/* As the caller gave it; each may be null. */
struct follow {
    const float *alpha, *probability;
    int step;    /* from one group's alpha to the next's: 0 or 1 */
    int columns; /* of the product */
    int rows, groups;
    float *row_partials; /* [columns / 64][rows]: of dprob, sums over 64 columns each */
    float *partials;     /* [strips of 32 rows][columns of D]: of dbias */
//$ if copies then
    struct copies copies;
//$ end
//$ if activation == "clamped_swiglu" then
    float limit, slope, shift;
//$ end
};

//$ include "sm90/finish.cu"

/* ------------------------------------------------------------------- slabs */

/*
** A chunk: its first row, and its first column of the product. Warps take those that have columns,
** block of 64 rows by block, and none of them whose rows and the other warp's are not in the group.
*/
struct chunk {
    int row, column;
};

FN int is_chunk(const struct chunk *c, int columns, int rows)
{
    return (c->row & -PAIR_ROWS) < rows && c->column < columns;
}

/* The first column of D in slab j of a chunk. */
FN int column_of(int column, int j$(halves and ", int columns" or ""))
{
//$ if operands == "runs" then
    column *= 2;
//$ end
    return column + j * $(halves and "columns" or "SLAB_COLUMNS");
}

/* P of the `number`-th chunk into the places of `slot`, free of stores. Called by one lane. */
FN void fetch_chunk(const struct slabs *slabs, unsigned int slot, const struct maps *maps,
                    const struct tile *t, int number, int columns, int row, int rows)
{
    const int left = (columns - t->column + SLAB_COLUMNS - 1) / SLAB_COLUMNS;
    const int across = left < ROW_SLABS ? left : ROW_SLABS;
    const struct chunk c = { row + number / across * 64,
                             t->column + number % across * SLAB_COLUMNS };

    if (number >= ROWS / 64 * across || !is_chunk(&c, columns, rows))
        return;
#pragma unroll
    for (int j = 0; j < OPERANDS; j++) {
        const unsigned int place = (slot + j) % SLABS;
        const unsigned int arrived = slabs->arrived + place * 8;

        barrier_expect(arrived, SLAB_BYTES); /* all of them, even where the box leaves the tensor */
        load_box_2d(slabs->first + place * SLAB_BYTES, maps->p, arrived,
                    column_of(c.column, j$(halves and ", columns" or "")), (int)t->start + c.row);
    }
}

/* The first chunks of P that the tile needs, loaded while the tile is multiplied. */
FN void fetch_ahead(const struct slabs *slabs, const struct maps *maps, const struct tile *t,
                    int columns, int row, int rows, int lane)
{
    if (lane != 0 || t->column >= columns)
        return;
    store_wait(0); /* those of the tile before */
#pragma unroll
    for (int i = 0; i < CHUNKS_AHEAD; i++)
        fetch_chunk(slabs, slabs->slot + i * OPERANDS, maps, t, i, columns, row, rows);
}

/* --------------------------------------------------------------- gradients */

//$ if copies then
//$ include "sm90/copies.cu"
//$ else
FN float lo_of(unsigned int pair)
{
    return from_$(d.type)(pair & 0xffff);
}

FN float hi_of(unsigned int pair)
{
    return from_$(d.type)(pair >> 16);
}
//$ end

//$ if pairs then
/* The address of a lane's pairs of both operands, of two neighbours of its row of a fragment. */
FN unsigned int pairs_at(unsigned int slab, unsigned int next, int fragment, int lane)
{
    const int chunk = fragment % (FRAGMENTS / 2) * 2 + lane % 4 / 2;

    return (fragment / (FRAGMENTS / 2) ? next : slab) + lane / 4 * 128 + (chunk ^ lane / 4) * 16 +
           lane % 2 * 8;
}

//$ else
/* The address of a lane's row of a fragment of operand j; `slab` is the chunk's first. */
FN unsigned int fragment_at(unsigned int slab, const unsigned int next, int fragment, int j,
                            int lane)
{
//$ if operands == "runs" then
    const int at = fragment / RUN * 2 * RUN + j * RUN + fragment % RUN;
    const int which = at / FRAGMENTS, chunk = at % FRAGMENTS;
//$ else
    const int which = j, chunk = fragment;
//$ end

    return (which ? next : slab) + lane % 16 * 128 + (chunk ^ lane % 8) * 16;
}

//$ end
//$ local constants = ", s->of->limit, s->of->slope, s->of->shift"
//$ local more = activation == "clamped_swiglu" and constants or ""
//$ local by = more == "" and { "", "" } or { ", s", ", const struct finish *s" }
/*
** One element of P becomes one of D, of each operand, and its part of the row's dprob is added to
** `total`: the result that the probability multiplied, times its gradient.
*/
FN void differentiate(float *a, float *b, float dh, float probability, float *total$(by[2]))
{
    const struct gradient d = $(activation)_gradient(*a, *b$(more));
    const float weighted = mul_rn(dh, probability);

    *total = add_rn(*total, mul_rn(dh, $(activation)(*a, *b$(more))));
    *a = mul_rn(weighted, d.a);
    *b = mul_rn(weighted, d.b);
}

//$ if copies and (apart or pairs) then
/* D of a warp's 16 rows, as it is in slabs, FRAGMENTS pairs of a row in each; zeros for others. */
FN void load_packed(struct packed *packed, const unsigned int *slab, const int is_row[2],
                    int lane)
{
#pragma unroll
    for (int i = 0; i < PAIRS; i += 2) {
        const int chunk = i % FRAGMENTS + lane / 16;
        unsigned int word[4];

        load_matrix_x4(slab[i / FRAGMENTS] + lane % 16 * 128 + (chunk ^ lane % 8) * 16, word);
#pragma unroll
        for (int j = 0; j < 4; j++)
            packed->row[j % 2][i + j / 2] = is_row[j % 2] ? word[j] : 0;
    }
}

//$ elseif kept then
/* Keep operand j of two neighbours of one row of a fragment, in which of the blocks they are. */
FN void keep_pair(struct packed packed[OPERANDS], int fragment, int j, int half,
                  unsigned int pair)
{
//$ if operands == "runs" then
    const int at = fragment / RUN * 2 * RUN + j * RUN + fragment % RUN;

    packed[at / PAIRS].row[half][at % PAIRS] = pair;
//$ else
    packed[j].row[half][fragment] = pair;
//$ end
}

//$ end
//$ if kept then
/* A chunk's P becomes D, from fragment `first` on, zeros after the group's last row. */
FN void fill_chunk(struct packed packed[OPERANDS], int before,
                   const unsigned int slab[OPERANDS], const float *sum,
                   const struct finish *s, const struct chunk *c, int rows, float total[2],
                   int lane)
{
    const int is_row[2] = { c->row + lane / 4 < rows, c->row + lane / 4 + 8 < rows };
    const float *const weight = s->probability;
//$ else
//$ if copies then
/* PART fragments of a chunk's P, from `from` on, become D; `total` are the thread's sums for dprob,
   of two rows. */
FN void fill_chunk(const unsigned int slab[OPERANDS], int from, const float *sum,
                   const struct finish *s,
//$ else
/* A chunk's P becomes D; `total` are the thread's sums for dprob, of two rows. */
FN void fill_chunk(const unsigned int slab[OPERANDS], const float *sum, const struct finish *s,
//$ end
                   $(halves and "" or "const struct chunk *c, ")const float weight[2],
                   float total[2], int lane)
{
//$ end
    const unsigned int first = slab[0], second = slab[OPERANDS - 1];
//$ local from, count = "", "FRAGMENTS"
//$ if copies and apart then
//$   from, count = "from + ", "PART"
//$ end

//$ if pairs then
#pragma unroll
    for (int j = 0; j < $(count); j += 2) {
        unsigned int at[4], one[4], two[4];

#pragma unroll
        for (int i = 0; i < 4; i++) { /* rows 0 and 8 of fragment j, then of the next one */
            at[i] = pairs_at(first, second, $(from)j + i / 2, lane) + i % 2 * 8 * 128;
            load_shared_words(at[i], &one[i], &two[i]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *dh = sum + 4 * j + 2 * i;
            const float probability = weight[i % 2];
            float a_lo = lo_of(one[i]), b_lo = hi_of(one[i]);
            float a_hi = lo_of(two[i]), b_hi = hi_of(two[i]);
            float of_row = total[i % 2];

            differentiate(&a_lo, &b_lo, __fmul_rn(s->alpha, dh[0]), probability, &of_row$(by[1]));
            differentiate(&a_hi, &b_hi, __fmul_rn(s->alpha, dh[1]), probability, &of_row$(by[1]));
            if (c->column + 8 * ($(from)j + i / 2) < s->of->columns)
                total[i % 2] = of_row;
            store_shared_words(at[i], pack(a_lo, b_lo), pack(a_hi, b_hi));
        }
    }
//$ if kept then
    __syncwarp();
    load_packed(&packed[before / FRAGMENTS], slab, is_row, lane);
//$ end
}
//$ else
#pragma unroll
    for (int j = 0; j < $(count); j += 2) {
        const unsigned int at = fragment_at(first, second, $(from)j + lane / 16, 0, lane);
        unsigned int a[4], b[4] = { 0 };
//$ if two then
        const unsigned int beside = fragment_at(first, second, $(from)j + lane / 16, 1, lane);

        load_matrix_x4(beside, b);
//$ end
        load_matrix_x4(at, a);
#pragma unroll
        for (int i = 0; i < 4; i++) { /* rows 0 and 8 of fragment j, then of the next one */
            const float *dh = sum + 4 * j + 2 * i;
            const float probability = weight[i % 2];
            float a_lo = lo_of(a[i]), a_hi = hi_of(a[i]), b_lo = lo_of(b[i]), b_hi = hi_of(b[i]);
            float of_row = total[i % 2];

            differentiate(&a_lo, &b_lo, __fmul_rn(s->alpha, dh[0]), probability, &of_row$(by[1]));
            differentiate(&a_hi, &b_hi, __fmul_rn(s->alpha, dh[1]), probability, &of_row$(by[1]));
//$ if operands == "halves" then
            total[i % 2] = of_row;
//$ else
            if (c->column + 8 * ($(from)j + i / 2) < s->of->columns)
                total[i % 2] = of_row;
//$ end
            a[i] = pack(a_lo, a_hi);
            b[i] = pack(b_lo, b_hi);
//$ if kept then
            keep_pair(packed, before + j + i / 2, 0, i % 2, is_row[i % 2] ? a[i] : 0);
//$ if two then
            keep_pair(packed, before + j + i / 2, 1, i % 2, is_row[i % 2] ? b[i] : 0);
//$ end
//$ end
        }
//$ if kept then
        if (!s->of->partials)
            continue;
//$ end
        store_matrix_x4(at, a[0], a[1], a[2], a[3]);
//$ if two then
        store_matrix_x4(beside, b[0], b[1], b[2], b[3]);
//$ end
    }
}
//$ end

/* -------------------------------------------------------------------- sums */

/*
** A chunk's part of dprob. A lane has columns 8 i + 2 l and the next one of each 8 in ascending
** order, with l = lane % 4; then come the sums of lanes 2 and 1 away.     COUPLED: row partials
*/
FN void keep_rows(float total[2], const struct finish *s, const struct tile *t,
                  const struct chunk *c, int rows, int lane)
{
    float *const to = s->of->row_partials + (long long)(c->column / SLAB_COLUMNS) * s->of->rows +
                      t->start + c->row + lane / 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        total[i] = add_rn(total[i], __shfl_xor_sync(~0u, total[i], 2));
        total[i] = add_rn(total[i], __shfl_xor_sync(~0u, total[i], 1));
        if (lane % 4 == 0 && c->row + lane / 4 + 8 * i < rows)
            to[8 * i] = total[i];
    }
}

/* One more row of a column of D, of each operand, into its sum. */
FN void add_row(float sum[OPERANDS], const unsigned int slab[OPERANDS], int i)
{
//$ if apart then
    const int odd = threadIdx.x / 128 - 1, column = odd * 32 + threadIdx.x % 32;
//$ else
    const int odd = threadIdx.x / 32 % 2, column = threadIdx.x % 64;
//$ end
    const int of_warp = (i / 16 - odd) * SLABS * SLAB_BYTES; /* the other one's, or this warp's */
    const int at = of_warp + i % 16 * 128 + (column / 8 ^ i % 8) * 16 + column % 8 * 2;

#pragma unroll
    for (int j = 0; j < OPERANDS; j++)
        sum[j] = add_rn(sum[j], from_$(d.type)(load_shared_half(slab[j] + at)));
}

/*
** A chunk's part of dbias: the sums of D's 32 rows in order, which are in the slabs of two warps.
** Each of these sums half of the columns. Groups that overlap would not fit.
*/
FN void keep_columns(const unsigned int slab[OPERANDS], const struct follow *f,
                     const struct tile *t, const struct chunk *c, int rows)
{
    const int row = c->row & -PAIR_ROWS, width = f->columns * OPERANDS;
    const unsigned int strip = t->runs * 4 + row / PAIR_ROWS;
    const unsigned int strips = (f->rows + 127u * f->groups) / 128 * 4;
    float sum[OPERANDS];

#pragma unroll
    for (int j = 0; j < OPERANDS; j++)
        sum[j] = -0.0f; /* to which -0 may be added */
    if (row + PAIR_ROWS <= rows) {
#pragma unroll
        for (int i = 0; i < PAIR_ROWS; i++)
            add_row(sum, slab, i);
    } else {
#pragma unroll 1
        for (int i = 0; i < rows - row; i++)
            add_row(sum, slab, i);
    }
#pragma unroll
    for (int j = 0; j < OPERANDS; j++) {
//$ local width = halves and ", f->columns" or ""
//$ local mine = apart and "(int)(threadIdx.x / 128 - 1) * 32 + (int)threadIdx.x % 32"
//$                     or "(int)threadIdx.x % 64"
        const int x = column_of(c->column, j$(width)) +
                      $(mine);

        if (x < width && strip < strips)
            f->partials[(long long)strip * width + x] = sum[j];
    }
}

/* ------------------------------------------------------------------- store */

/* The data that two warps read of each other's slabs is there, or no longer needed. */
FN void meet(void)
{
//$ if apart then
    named_wait(4 + (int)threadIdx.x / 32 % 4, 64);
//$ else
    named_wait(4 + (int)(threadIdx.x - 128) / 64, 64);
//$ end
}

//$ if copies and apart then
//$ include "sm100/store_gradient_copies.cu"
//$ elseif copies then
/* One warp's rows of a tile: those that are not in the group are zeros of the columnwise tensor. */
FN void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, const struct finish *s, int row, int rows, int lane)
{
    const struct follow *const f = s->of;
    const int is_pair = (row & -PAIR_ROWS) < rows;
    struct packed packed[OPERANDS] = { 0 };

#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const struct chunk c = { row, t->column + i * SLAB_COLUMNS };
        const unsigned int slot = slabs->slot;
        unsigned int slab[OPERANDS];
        float total[2] = { 0, 0 };

        if (!is_pair)
            continue;
        slabs->slot = (slot + OPERANDS) % (2 * SLABS);
#pragma unroll
        for (int j = 0; j < OPERANDS; j++) {
            slab[j] = slabs->first + (slot + j) % SLABS * SLAB_BYTES;
            barrier_wait(slabs->arrived + (slot + j) % SLABS * 8, (slot + j) / SLABS % 2);
        }
        fill_chunk(packed, i * FRAGMENTS, slab, sum + i * (SLAB_COLUMNS / 2), s, &c, rows, total,
                   lane);
        if (f->row_partials)
            keep_rows(total, s, t, &c, rows, lane);
        if (f->partials) {
            meet();
            keep_columns(slab, f, t, &c, rows);
        }
    }
//$ if pairs then
    copy_engine_fence();
    if (f->partials)
        meet();
    else
        __syncwarp();
//$ else
    if (f->partials) {
        copy_engine_fence();
        meet();
    }
//$ end
#pragma unroll
    for (int i = 0; i < OPERANDS; i++) /* a block of 128 columns of D for each */
        store_copies(&packed[i], slabs, t, maps, &f->copies,
//$ local next = halves and "i, f->columns" or "i * (BLOCK / SLAB_COLUMNS)"
                     column_of(t->column, $(next)), slabs->first + i * SLAB_BYTES, row, rows, lane);
}
//$ else
/* The sums of the next chunk come to the front. */
FN void next_sums(float sum[SUMS])
{
#pragma unroll
    for (int i = 0; i < SUMS - SLAB_COLUMNS / 2; i++)
        sum[i] = sum[i + SLAB_COLUMNS / 2];
}

/* One chunk, the `number`-th of the warp's, whose sums are the first ones. */
FN void store_chunk(const float *sum, struct slabs *slabs, const struct tile *t,
                    const struct maps *maps, const struct finish *s, const struct chunk *c,
                    const float weight[2], int number, int row, int rows, int lane)
{
    const struct follow *const f = s->of;
    const unsigned int slot = slabs->slot;
    unsigned int slab[OPERANDS];
    float total[2] = { 0, 0 };

    slabs->slot = (slot + OPERANDS) % (2 * SLABS);
#pragma unroll
    for (int j = 0; j < OPERANDS; j++) {
        slab[j] = slabs->first + (slot + j) % SLABS * SLAB_BYTES;
        barrier_wait(slabs->arrived + (slot + j) % SLABS * 8, (slot + j) / SLABS % 2);
    }
    fill_chunk(slab, sum, s, $(halves and "" or "c, ")weight, total, lane);
    copy_engine_fence();
    __syncwarp();
    if (lane == 0)
#pragma unroll
        for (int j = 0; j < OPERANDS; j++)
//$ local width = halves and ", f->columns" or ""
            store_slab(maps, slab[j], t, column_of(c->column, j$(width)), c->row, rows);
    if (f->row_partials)
        keep_rows(total, s, t, c, rows, lane);
    if (f->partials) {
        meet();
        keep_columns(slab, f, t, c, rows);
    }
    if (lane == 0 && number > 0 && number - 1 + CHUNKS_AHEAD < CHUNKS) {
        store_wait($(two and 2 or 1)); /* all but the stores of this chunk */
        fetch_chunk(slabs, slot + (CHUNKS_AHEAD - 1) * OPERANDS, maps, t,
                    number - 1 + CHUNKS_AHEAD, f->columns, row, rows);
    }
}

//$ if apart then
//$ local scaled = factors == "row" and "const struct factors *factors, "
//$                or factors ~= "none" and "const struct group_scale *scale, " or ""
/* One warp's rows of a tile, whose sums begin at `sums`: a chunk's are loaded at a time. A slab is
   fetched into again one chunk later than it could be: the wait is never for the newest stores. */
FN void store_tile(unsigned int sums, struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, const struct finish *s, $(scaled)int row,
                   int rows, int lane)
{
    int number = 0;

#pragma unroll 1
    for (int i = 0; i < CHUNKS; i++) {
        const struct chunk c = { row, t->column + i * SLAB_COLUMNS };
        float sum[SLAB_COLUMNS / 2];

        if (!is_chunk(&c, s->of->columns, rows))
            break;
        tensor_load(sum, sums + i * SLAB_COLUMNS);
        tensor_wait(sum, SLAB_COLUMNS / 2);
//$ if factors == "row" then
        scale_sums(sum, factors, t, c.column, row, rows, lane);
//$ elseif factors ~= "none" then
        scale_sums(sum, scale);
//$ end
        store_chunk(sum, slabs, t, maps, s, &c, s->probability, number++, row, rows, lane);
    }
    if (s->of->partials)
        meet();
}
//$ else
/*
** One warp's rows of a tile. A slab is fetched into again one chunk later than it could be, so
** that the wait is never for the newest stores. A loop, and the sums move: as many chunks in a row
** would be more code than the instruction caches hold.
*/
FN void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, const struct finish *s, int row, int rows, int lane)
{
    int number = 0;

#pragma unroll 1
    for (int i = 0; i < CHUNKS; i++) {
        const struct chunk c = { row + i / ROW_SLABS * 64,
                                 t->column + i % ROW_SLABS * SLAB_COLUMNS };
//$ if split == "m" and tile.m == 128 then
        const float weight[2] = { s->probability[0], s->probability[1] };
//$ else
        const int low = i >= ROW_SLABS; /* of two blocks of 64 rows the second one */
        const float weight[2] = { low ? s->probability[2] : s->probability[0],
                                  low ? s->probability[3] : s->probability[1] };
//$ end

        if (is_chunk(&c, s->of->columns, rows))
            store_chunk(sum, slabs, t, maps, s, &c, weight, number++, row, rows, lane);
        next_sums(sum);
    }
    if (s->of->partials)
        meet();
}
//$ end
//$ end
