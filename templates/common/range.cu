//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Do all values of A and B in $(recipe) fit f16, once the largest of each operand's scales is
** divided out?
**
**   a, b       [m, k], [groups, n, k]                  codes, rows of a_stride, b_stride
**   a_sf, b_sf [m, ceil(k / BLOCK)], [groups, n, ...]  their scales
**   flags      [4]  of the product as f16 and of that as bf16, each left out where its flag is not
**                   0: both where the caller wants none; then the largest code of A's scales and
**                   of B's                                    COUPLED: f16 -> dequantize/f16.c
**   error           the workspace, in the first page of which are the CTAs' records: zeros before
**                   and after
**
** Only scales are read, and codes under those so small that nothing but zeros may have them. Rows
** outside every group are not read.
*/
#define FN __device__ __forceinline__
enum {
    THREADS = $(threads),
    BLOCK = $(scale.k),          /* values that share a scale */
    CHUNK = 16,                  /* scales that a thread reads at a time */
    CHUNKS = 4,                  /* such reads under way */
    UNIT = THREADS * CHUNKS * CHUNK, /* scales of all threads together */
    NOTES = 16                   /* word of the workspace's first page */
};

//$ once "dequantize/f16.c"
//$ include "common/sizes.c"

/* A warp's lanes hold 32 groups. */
struct scheduler {
    const void *first_dims, *offsets;
    int sizes_bytes, groups;
    unsigned int total;      /* rows */
    int base;                /* the first lane's group */
    unsigned int end_before; /* where the groups before it end */
    unsigned int start, length;
};

//$ include("common/scheduler_sizes.cu", { rolled = false })

/* The CTAs' records: each word is 0 if nothing was found. */
struct notes {
    unsigned int most[2], least[2]; /* of A's scales and of B's; least: counted down from 255 */
    unsigned int bad, left;         /* CTAs that are done */
};

/* An operand. */
struct operand {
    const unsigned char *codes, *sf;
    long long stride; /* of codes */
    int k, blocks;    /* of a row */
};

/* A thread's largest codes of one operand: two in a word. */
struct seen {
    unsigned int most[2], least;
    int bad;
};

FN unsigned int larger_x2(unsigned int a, unsigned int b)
{
    unsigned int result;

    asm("max.u16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

FN unsigned int smaller_x2(unsigned int a, unsigned int b)
{
    unsigned int result;

    asm("min.u16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

/* Is a value under this scale not 0? */
FN int is_block(const struct operand *o, const unsigned char *scale)
{
    const long long at = scale - o->sf, row = at / o->blocks;
    const int value = (int)(at - row * o->blocks) * BLOCK;
    const unsigned char *codes = o->codes + row * o->stride + value;
    int any = 0;

    for (int i = 0; i < BLOCK && value + i < o->k; i++)
        any |= codes[i] & 0x7f;
    return any != 0;
}

/* One by one: a code that only zeros may have does not count if there are only zeros. */
FN void see_slowly(struct seen *s, const struct operand *o, const unsigned char *first,
                   const unsigned char *end)
{
    for (const unsigned char *p = first; p < end; p++) {
        const unsigned int code = *p;

        if (code <= F16_LEAST - F16_SCALES) {
            s->bad |= is_block(o, p);
            continue;
        }
        s->most[0] = larger_x2(s->most[0], code);
        s->least = smaller_x2(s->least, code | 0xff0000);
    }
}

/* CHUNK of them, which are at `from`. */
FN void see(struct seen *s, const struct operand *o, uint4 chunk, const unsigned char *from)
{
    const unsigned int word[4] = { chunk.x, chunk.y, chunk.z, chunk.w };
    const unsigned int border = (F16_LEAST - F16_SCALES + 1) * 0x10001;
    unsigned int least = 0xff00ff;

#pragma unroll
    for (int i = 0; i < 4; i++)
        least = smaller_x2(least, smaller_x2(word[i] & 0xff00ff, word[i] >> 8 & 0xff00ff));
    if ((((least | 0x80008000) - border) & 0x80008000) != 0x80008000) {
        see_slowly(s, o, from, from + CHUNK);
        return;
    }
    s->least = smaller_x2(s->least, least);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s->most[0] = larger_x2(s->most[0], word[i] & 0xff00ff);
        s->most[1] = larger_x2(s->most[1], word[i] >> 8 & 0xff00ff);
    }
}

/* UNIT scales from `from` on, a multiple of CHUNK, as far as they are `first` .. `end`. */
FN void see_unit(struct seen *s, const struct operand *o, const unsigned char *from,
                 const unsigned char *first, const unsigned char *end)
{
    uint4 chunk[CHUNKS];

    from += threadIdx.x * CHUNK;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const unsigned char *at = from + i * THREADS * CHUNK;

        if (at >= first && at + CHUNK <= end)
            chunk[i] = *(const uint4 *)at;
    }
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const unsigned char *at = from + i * THREADS * CHUNK;

        if (at >= first && at + CHUNK <= end)
            see(s, o, chunk[i], at);
        else
            see_slowly(s, o, at > first ? at : first, at + CHUNK < end ? at + CHUNK : end);
    }
}

/* The first address of each unit of rows' scales. */
FN const unsigned char *units_from(const unsigned char *first)
{
    return (const unsigned char *)((unsigned long long)first & ~(CHUNK - 1ull));
}

FN unsigned int units_of(const unsigned char *first, const unsigned char *end)
{
    return first < end ? (unsigned int)((end - units_from(first) + UNIT - 1) / UNIT) : 0;
}

/* `rows` rows from `row` on; the first of their units is number `before` of all CTAs'. */
FN void see_rows(struct seen *s, const struct operand *o, long long row, long long rows,
                 unsigned int before)
{
    const unsigned char *first = o->sf + row * o->blocks, *end = first + rows * o->blocks;
    const unsigned int count = units_of(first, end);
    const unsigned int mine = (gridDim.x + blockIdx.x - before % gridDim.x) % gridDim.x;

    for (unsigned int i = mine; i < count; i += gridDim.x)
        see_unit(s, o, units_from(first) + (long long)i * UNIT, first, end);
}

/* The rows of 32 groups. Each lane counts its group's units, so that a CTA visits only those in
   which it has some. */
FN void see_groups(struct seen *s, const struct operand *o, struct scheduler *w,
                   unsigned int *before, int lane)
{
    scheduler_read_sizes(w, lane);
    const unsigned char *first = o->sf + (long long)w->start * o->blocks;
    const unsigned int own = units_of(first, first + (long long)w->length * o->blocks);
    const unsigned int end = *before + warp_prefix_sum(own, 0x7fffffff, lane);
    const unsigned int mine = (gridDim.x + blockIdx.x - (end - own) % gridDim.x) % gridDim.x;

    *before = __shfl_sync(~0u, end, 31);
    for (unsigned int todo = __ballot_sync(~0u, mine < own); todo; todo &= todo - 1) {
        const int from = __ffs(todo) - 1;

        see_rows(s, o, __shfl_sync(~0u, w->start, from), __shfl_sync(~0u, w->length, from),
                 __shfl_sync(~0u, end - own, from));
    }
}

FN unsigned int larger_half(unsigned int x)
{
    return (x & 0xffff) > x >> 16 ? x & 0xffff : x >> 16;
}

/* Record the codes of operand `i` that the threads of a warp have found. */
FN void note(struct notes *n, const struct seen *s, int i, int lane)
{
    const unsigned int most = larger_half(larger_x2(s->most[0], s->most[1]));
    const unsigned int all = __reduce_max_sync(~0u, most);
    const unsigned int least = __reduce_max_sync(~0u, larger_half(0xff00ff - s->least));
    const int bad = __any_sync(~0u, s->bad);

    if (lane == 0) {
        atomicMax(n->most + i, all);
        atomicMax(n->least + i, least);
        if (bad)
            n->bad = 1;
    }
}

/* The last CTA writes the result of all and clears the records. By one thread. */
FN void conclude(struct notes *all, const struct notes *own, unsigned int *flags)
{
    unsigned int most[2], least[2], bad;

    for (int i = 0; i < 2; i++) {
        atomicMax(all->most + i, own->most[i]);
        atomicMax(all->least + i, own->least[i]);
    }
    if (own->bad)
        atomicOr(&all->bad, 1u);
    __threadfence();
    if (atomicAdd(&all->left, 1u) != gridDim.x - 1)
        return;
    __threadfence();
    for (int i = 0; i < 2; i++) {
        most[i] = atomicExch(all->most + i, 0u);
        least[i] = 255 - atomicExch(all->least + i, 0u);
    }
    bad = atomicExch(&all->bad, 0u);
    all->left = 0;
    bad |= !fits_f16(most[0], least[0]) || !fits_f16(most[1], least[1]);
    flags[0] = bad;
    flags[1] = !bad;
    flags[2] = most[0];
    flags[3] = most[1];
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int lane = threadIdx.x % 32, blocks = (k + BLOCK - 1) / BLOCK;
    const struct operand rows = { (const unsigned char *)a, (const unsigned char *)a_sf, a_stride,
                                  k, blocks };
    const struct operand matrices = { (const unsigned char *)b, (const unsigned char *)b_sf,
                                      b_stride, k, blocks };
    struct seen of_a = { { 0, 0 }, 0xff00ff, 0 }, of_b = { { 0, 0 }, 0xff00ff, 0 };
    struct scheduler w = { first_dims, offsets, sizes_bytes, groups, (unsigned int)m, 0, 0, 0, 0 };
    unsigned int before = 0;
    __shared__ struct notes own;

    //$ include "common/wait.body.cu"
    if (noop && *noop) {
        if (blockIdx.x == 0 && threadIdx.x == 0)
            flags[0] = flags[1] = 1;
        return;
    }
    if (threadIdx.x < sizeof own / 4)
        ((unsigned int *)&own)[threadIdx.x] = 0;
    __syncthreads();
    see_rows(&of_b, &matrices, 0, (long long)groups * n, 0);
    for (; w.base < groups; w.base += 32)
        see_groups(&of_a, &rows, &w, &before, lane);
    note(&own, &of_a, 0, lane);
    note(&own, &of_b, 1, lane);
    __syncthreads();
    if (threadIdx.x == 0)
        conclude((struct notes *)(error + NOTES), &own, flags);
}
