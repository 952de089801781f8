//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A quantized tensor of $(of) in $(recipe) back to values, as $(input.type).
**
**   out  [m, k]  from the rowwise tensor, or where that is null from the columnwise tensor
//$ if of ~= "w" then
**   align        0, or of the columnwise tensor: groups begin at multiples of 128 there, as in the
**                quantized tensor, and their last rows reach to a multiple of so many:
**                transformed values go on past a group's end
//$ end
**
** One rounding for each factor, to fp32, and one to $(input.type). Transformed values stay
** transformed. Neighbouring threads read and store neighbouring values, eight codes of a line each:
** those of the columnwise tensor are along the rows, and are transposed on their way through shared
** memory.
*/
//$ include "quantize/head.cu"

//$ include "quantize/advance.cu"

//$ include "quantize/eight.cu"

/* The copy that is read. */
struct copy {
    const unsigned char *data;
    long long stride; /* values from one line to the next */
    const sf_element *sf;
//$ if scale.global then
    const float *global; /* null: values dequantized in a pass are not multiplied by them */
//$ end
};

/* A tile's result. */
struct result {
    out_element *at; /* of the tile's first value */
    long long stride;
    int rows, columns; /* that there are from it on, of its own or not */
    int whole;         /* rows begin at multiples of 16 bytes */
};

/* The calling thread. The code below from it is worked out anew for each tile: see coord_here. */
FN int thread_here(void)
{
    int thread;

    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

//$ local global = scale.global and ", global" or ""
//$ -- Scales of lines at equal distances: 16 rows, or pairs of features at a distance of 32.
//$ local blocks = scale.span == "block"
//$ local stepped = blocks and scale.order == "rows" and (scale.rows == 1 or scale.rows == 16)
//$ local shape = blocks and "const struct shape *all, " or ""
//$ if of == "w" then
/* A place among all values: of eight features of a row of a group's matrix, from `feature` on. */
struct place {
    int group, row, feature;
};

/* The place with so many others before it. */
FN struct place place_of(unsigned int number, const struct shape *all)
{
    const unsigned int eights = (unsigned int)ceil_div(all->k, 8);
    const unsigned int row = number / eights;
    const struct place p = { (int)(row / (unsigned int)all->m), (int)(row % (unsigned int)all->m),
                             (int)(number % eights * 8) };
    return p;
}

/* As many places on as come before `by`. */
FN void place_move(struct place *p, const struct place *by, const struct shape *all)
{
    p->group += by->group;
    p->row += by->row;
    p->feature += by->feature;
    if (p->feature >= all->k) {
        p->feature -= ceil_div(all->k, 8) * 8;
        p->row++;
    }
    if (p->row >= all->m) {
        p->row -= all->m;
        p->group++;
    }
}

FN sf_element scale_of(const struct copy *copy, const struct place *p, const struct shape *all)
{
//$ if blocks then
    const struct group g = { p->group, 0, all->m, 0 };
    const struct scales s = row_scales(&g, all);

    return copy->sf[scale_at(&s, p->row / SF_LINES, p->feature / ACROSS)];
//$ elseif scale.span == "row" then
    return copy->sf[(long long)p->group * all->m + p->row];
//$ else
    return copy->sf[$(scale.span == "group" and "p->group" or "0")];
//$ end
}

/*
** From the rowwise tensor: all threads together have values that follow each other, and each thread
** AT_ONCE times eight in flight, as memory is fastest then. `whole`: rows of values begin at
** multiples of 16 bytes.
*/
FN void do_lines(const struct copy *copy, out_element *out, long long out_stride, int whole,
                 const struct shape *all)
{
    enum { AT_ONCE = 4 };
    const struct place by = place_of(gridDim.x * THREADS, all);
    struct place p = place_of(blockIdx.x * THREADS + threadIdx.x, all);

#pragma unroll 1
    while (p.group < all->groups) {
        struct place at = p;
        struct codes codes[AT_ONCE];
        sf_element sf[AT_ONCE];

#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const long long line = (long long)p.group * all->m + p.row;

            if (p.group < all->groups) {
                codes[i] = read_codes(codes_at(copy->data, line * copy->stride + p.feature));
                sf[i] = scale_of(copy, &p, all);
            }
            place_move(&p, &by, all);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const long long line = (long long)at.group * all->m + at.row;

            if (at.group < all->groups) {
//$ if scale.global then
                const struct level global = level_of(copy->global, at.group);

//$ end
                store_eight(out + line * out_stride + at.feature, scaled(&codes[i], sf[i]$(global)),
                            all->k - at.feature, whole);
            }
            place_move(&at, &by, all);
        }
    }
}

//$ else
/*
** From the rowwise tensor: each thread has eight features of every STEP-th row, AT_ONCE in flight.
** All rows and columns of a `complete` tile exist, and begin at multiples of 16 bytes.
*/
FN void do_rows(const struct copy *copy, const struct result *out, const struct group *g,
                const struct tile *t, $(shape)const int complete)
{
    enum { STEP = THREADS / (TILE_N / 8), AT_ONCE = 4 };
    const int thread = thread_here(), line = thread / (TILE_N / 8), f = thread % (TILE_N / 8) * 8;
    const int columns = complete ? TILE_N : out->columns - f; /* from the thread's first one on */
    const int there = out->rows < TILE_M ? out->rows : TILE_M;
    const int rows = complete ? TILE_M : columns <= 0 ? 0 : there;
    const int at_once = complete ? AT_ONCE : 2; /* more would not fit the registers */
    const unsigned char *at =
        codes_at(copy->data, ((long long)g->start + t->row + line) * copy->stride +
                             t->column + f);
    const long long step = STEP / 2 * CODE_WORDS * copy->stride; /* bytes */
    out_element *to = out->at + line * out->stride + f;
//$ if blocks then
    const struct scales s = row_scales(g, all);
//$ end
//$ if stepped then
    const sf_element *sf_at =
        copy->sf + scale_at(&s, (t->row + line) / SF_LINES, (t->column + f) / ACROSS);
    const long long sf_step = STEP / SF_LINES * padded(s.columns, PAD_COLUMNS);
//$ end
//$ if scale.global then
    const struct level global = level_of(copy->global, g->number);
//$ end

#pragma unroll 1
    for (int row = line; row < rows; row += at_once * STEP) {
        struct codes codes[AT_ONCE];
        sf_element sf[AT_ONCE];

#pragma unroll
        for (int i = 0; i < at_once; i++) {
            if (complete || row + i * STEP < rows) {
                codes[i] = read_codes(at);
//$ if stepped then
                sf[i] = *sf_at;
//$ elseif blocks then
                sf[i] = copy->sf[scale_at(&s, (t->row + row + i * STEP) / SF_LINES,
                                          (t->column + f) / ACROSS)];
//$ elseif scale.span == "row" then
                sf[i] = copy->sf[(long long)g->start + t->row + row + i * STEP];
//$ else
                sf[i] = copy->sf[$(scale.span == "group" and "g->number" or "0")];
//$ end
            }
            at += step;
//$ if stepped then
            sf_at += sf_step;
//$ end
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            if (complete || row + i * STEP < rows)
                store_eight(to, scaled(&codes[i], sf[i]$(global)), columns,
                            complete || out->whole);
            to += STEP * out->stride;
        }
    }
}

//$ end
//$ include "quantize/transpose.cu"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    __shared__ uint4 stage[TILE_M * PIECES];
    __shared__ struct schedule schedule;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
//$ local of_row, of_column = "", ""
//$ if scale.global then of_row, of_column = ", row_global", ", column_global" end
    const struct copy lines = { row, row_stride, (const sf_element *)row_sf$(of_row) };
    const struct copy turned = { column, column_stride, (const sf_element *)column_sf$(of_column) };
    struct result result;

    //$ include "common/enter.body.cu"
//$ if of == "w" then
    if (row) {
        const int whole = (unsigned long long)out % 16 == 0 && out_stride % PIECE == 0;

        if (m > 0 && k > 0)
            do_lines(&lines, (out_element *)out, out_stride, whole, &all);
        return;
    }
//$ end
    result.stride = out_stride;
    result.whole = (unsigned long long)out % 16 == 0 && out_stride % PIECE == 0;
    //$ include "quantize/schedule.body.cu"
    for (int slot = 0; schedule.work[slot].tile.group >= 0; slot = (slot + 1) % 64) {
        const struct tile t = schedule.work[slot].tile;
        const struct group g = group_of(&schedule.work[slot]$(of == "w" and ", &all" or ""));

//$ if of == "w" then
        __syncthreads(); /* the stage is free */
//$ else
        if (!row || slot % 16 == 0)
            __syncthreads(); /* the stage is free, or half of the schedule */
//$ end
        if (slot % 32 == 0 && warp == 0)
            look_ahead(&schedule, 1 - slot / 32, lane);
//$ if of ~= "w" then
        if ((unsigned int)(g.first + t.row / TILE_M) >= (unsigned int)most_tiles(&all))
            continue; /* groups that overlap would not fit into the columnwise tensor */
//$ end
//$ local start = "(align ? (long long)g.first * TILE_M : g.start)"
//$ local first = of == "w" and "(long long)g.number * m" or start
        result.at =
            (out_element *)out + ($(first) + t.row) * out_stride + t.column;
        result.rows = g.length - t.row;
//$ if of ~= "w" then
        if (align)
            result.rows = ceil_div(result.rows, align) * align;
//$ end
        result.columns = k - t.column;
        const int complete = result.whole && result.rows >= TILE_M && result.columns >= TILE_N;
//$ if of ~= "w" then
        if (row && complete)
            do_rows(&lines, &result, &g, &t, $(shape ~= "" and "&all, " or "")1);
        else if (row)
            do_rows(&lines, &result, &g, &t, $(shape ~= "" and "&all, " or "")0);
        else if (complete)
            do_columns(stage, &turned, &result, &g, &t, &all, 1);
//$ else
        if (complete)
            do_columns(stage, &turned, &result, &g, &t, &all, 1);
//$ end
        else
            do_columns(stage, &turned, &result, &g, &t, &all, 0);
    }
    //$ include "quantize/end.body.cu"
}
