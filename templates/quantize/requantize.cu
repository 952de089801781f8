//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A copy of $(of) in $(recipe) as one of FP8 in blocks: e4m3 codes, and in fp32 a power of two for
//$ if of == "w" then
** each 128 x 128 of them.
//$ else
** 128 of each line.
//$ end
**
**   out     the codes, as the copy is, lines of out_stride bytes
//$ if of == "w" then
**   out_sf  [groups][ceil(lines / 128)][ceil(length / 128), to a multiple of 4]
//$ else
**   out_sf  [ceil(length / 128)][lines, to a multiple of 4]
//$ end
**   flags   [0] becomes 1 and [1] 0 where some value is no such number: of a block that is within
**           its group and has NaN as its scale, or values that are not 0 and the power of two of
**           which is too far from the others'                    COUPLED: requantize -> factors.cu
**
** All values are the same, to the bit. The source is the rowwise tensor, or if that is null the
** columnwise tensor, and so is the result; rows outside every group are neither read nor written,
** but for the columnwise tensor's zeros up to multiples of 128 tokens.
*/
//$ include "quantize/head.cu"

//$ include "quantize/advance.cu"

//$ include "quantize/requantize_part.cu"

enum {
    PIECES = 128 / PIECE,    /* threads that have a line */
    STEP = THREADS / PIECES, /* lines of all threads at once */
    TIMES = 128 / STEP
};

/* The position of a tile's lines. */
struct coord {
    const unsigned char *codes; /* of the first line, at the tile's first value */
    long long pitch;            /* bytes from one line to the next */
    struct scales scales;       /* of the group */
    int line, value;            /* the tile's first, counted inside the group */
    int lines, values;          /* that there are from these on */
};

/* And where they go. */
struct goal {
    unsigned char *out;
    float *sf;                  /* of the first line */
    int lines, values;          /* to be written */
};

/* A thread's share of a tile: codes past a line's end are 0, and lines past the last one. */
FN void read_parts(struct part part[TIMES], const struct coord *p, const sf_element *sf)
{
    const int first = threadIdx.x / PIECES, value = threadIdx.x % PIECES * PIECE;
    const int count = p->values - value;

#pragma unroll
    for (int i = 0; i < TIMES; i++) {
        const int line = first + i * STEP;

        part[i].codes = make_uint2(0, 0);
        part[i].scale = 0;
        if (line >= p->lines || count <= 0)
            continue;
        part[i].codes = *(const uint2 *)(p->codes + line * p->pitch + value / 2);
        part[i].scale =
            sf[scale_at(&p->scales, (p->line + line) / SF_LINES, (p->value + value) / ACROSS)];
        cut_codes(&part[i].codes, count);
    }
}

/* The code of the scale, as far as it counts: zeros fit under any. */
FN int weight_of(const struct part *p)
{
    return (p->codes.x | p->codes.y) & 0x77777777 ? p->scale : 0;
}

//$ if of == "w" then
/* The largest value of all threads. Called by all; `most` holds a word for each warp. */
FN int largest_of_all(int value, int *most)
{
    __syncthreads(); /* the tile before has been read */
    value = __reduce_max_sync(~0u, value);
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = value;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++)
        value = most[i] > value ? most[i] : value;
    return value;
}
//$ else
/* The largest value of a line's threads. */
FN int largest_of_line(int value)
{
#pragma unroll
    for (int distance = 1; distance < PIECES; distance *= 2) {
        const int other = __shfl_xor_sync(~0u, value, distance);

        value = other > value ? other : value;
    }
    return value;
}
//$ end

/* Write them. Returns 1 if some value of the thread's does not fit. */
FN int write_parts(const struct part part[TIMES], const struct goal *g,
                   long long pitch$(of == "w" and ", int *most" or ""))
{
    const int first = threadIdx.x / PIECES, value = threadIdx.x % PIECES * PIECE;
    int bad = 0;

//$ if of == "w" then
    int largest = 0;

#pragma unroll
    for (int i = 0; i < TIMES; i++)
        largest = max(largest, weight_of(&part[i]));
    const int exponent = requantize_exponent(largest_of_all(largest, most));
    if (threadIdx.x == 0)
        *g->sf = requantize_scale(exponent);
//$ end
#pragma unroll
    for (int i = 0; i < TIMES; i++) {
        const int line = first + i * STEP;
//$ if of ~= "w" then
        const int exponent = requantize_exponent(largest_of_line(weight_of(&part[i])));
//$ end
        uint4 codes;

        bad |= convert(&codes, &part[i], exponent);
        if (line < g->lines && value < g->values)
            *(uint4 *)(g->out + line * pitch + value) = codes;
//$ if of ~= "w" then
        if (line < g->lines && value == 0)
            g->sf[line] = requantize_scale(exponent);
//$ end
    }
    return bad;
}

//$ local tokens = of ~= "w"
/* For the rowwise tensor: lines are rows. */
FN struct coord place_rows(const struct group *g, const struct tile *t, const struct shape *all)
{
    struct coord p;

    p.scales = row_scales(g, all);
    p.line = t->row;
    p.value = t->column;
    p.lines = g->length - t->row;
    p.values = all->k - t->column;
    return p;
}

/* For the columnwise tensor: lines are features, and the last block of tokens has all of its
   values. */
FN struct coord place_columns(const struct group *g, const struct tile *t, const struct shape *all)
{
    struct coord p;

    p.scales = column_scales(g, all);
    p.line = t->column;
    p.value = t->row;
    p.lines = all->k - t->column;
//$ if tokens then
    p.values = ceil_div(g->length - t->row, ACROSS) * ACROSS;
//$ else
    p.values = g->length - t->row;
//$ end
    return p;
}

/* The source tensor, and the result. */
struct job {
    const unsigned char *data;
    const sf_element *sf;
    long long stride;           /* values from one line to the next */
    unsigned char *out;
    long long pitch;
    float *out_sf;
    int turned;                 /* it is the columnwise tensor */
    struct shape all;
};

/* Begin a tile: issue its loads. */
FN struct goal begin_tile(struct part part[TIMES], const struct job *j, const struct work *e)
{
    const struct group g = group_of(e$(of == "w" and ", &j->all" or ""));
    const struct tile *t = &e->tile;
    struct coord p = j->turned ? place_columns(&g, t, &j->all) : place_rows(&g, t, &j->all);
    struct goal goal;
//$ if tokens then
    const long long line = j->turned ? p.line : (long long)g.start + p.line;
    const long long value = j->turned ? (long long)g.first * TILE_M + p.value : p.value;

    if ((unsigned int)(g.first + t->row / TILE_M) >= (unsigned int)most_tiles(&j->all))
        p.lines = 0; /* groups that overlap would not fit into the columnwise tensor */
    goal.sf = j->out_sf + value / 128 * padded(j->turned ? j->all.k : j->all.m, 4) + line;
    goal.values = j->turned ? TILE_M : p.values; /* zeros follow up to 128 tokens */
//$ else
    const int lines = j->turned ? j->all.k : j->all.m, length = j->turned ? j->all.m : j->all.k;
    const long long line = g.number * (long long)lines + p.line, value = p.value;
    const long long block = g.number * (long long)ceil_div(lines, 128) + p.line / 128;

    goal.sf = j->out_sf + block * padded(ceil_div(length, 128), 4) + value / 128;
    goal.values = p.values;
//$ end
    p.codes = j->data + (line * j->stride + value) / 2;
    p.pitch = j->stride / 2;
    goal.out = j->out + line * j->pitch + value;
    goal.lines = p.lines;
    read_parts(part, &p, j->sf);
    return goal;
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    __shared__ struct schedule schedule;
//$ if of == "w" then
    __shared__ int most[THREADS / 32];
//$ end
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
    const struct job job = { row ? row : column, (const sf_element *)(row ? row_sf : column_sf),
                             row ? row_stride : column_stride, (unsigned char *)out, out_stride,
                             out_sf, !row, all };
    struct part part[TIMES];
    struct goal goal;
    int bad = 0;

    //$ include "common/enter.body.cu"
    //$ include "quantize/schedule.body.cu"
    if (schedule.work[0].tile.group >= 0)
        goal = begin_tile(part, &job, &schedule.work[0]);
    for (int slot = 0; schedule.work[slot].tile.group >= 0;) {
        const int next = (slot + 1) % 64;
        struct part ahead[TIMES];
        struct goal further = goal;

        if (slot % 16 == 0)
            __syncthreads(); /* half of the schedule is free */
        if (slot % 32 == 0 && warp == 0)
            look_ahead(&schedule, 1 - slot / 32, lane);
        if (schedule.work[next].tile.group >= 0)
            further = begin_tile(ahead, &job, &schedule.work[next]);
        bad |= write_parts(part, &goal, job.pitch$(tokens and "" or ", most"));
#pragma unroll
        for (int i = 0; i < TIMES; i++)
            part[i] = ahead[i];
        goal = further;
        slot = next;
    }
    if (bad) {
        flags[0] = 1;
        flags[1] = 0;
    }
    //$ include "quantize/end.body.cu"
}
