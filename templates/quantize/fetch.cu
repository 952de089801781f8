//$ -- SPDX-License-Identifier: Apache-2.0
//$ local bytes = input.bits // 8
/*
** A tile's values into a stage, for all threads: 16 bytes at a time and without waiting, or where
** rows do not begin at multiples of that, one by one. Rows outside of the group are never read.
*/
enum {
    CHUNK = $(16 // bytes),       /* values in 16 bytes */
    ACROSS_TILE = TILE_N / CHUNK, /* chunks of a row */
    STEP = THREADS / ACROSS_TILE  /* rows that all threads copy at once */
};

/* Copy `bytes` and fill up to 16 with zeros; both ends at multiples of 16. */
FN void copy_async(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 : : "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes)
                 : "memory");
}

/* Wait until all of this thread's copies have landed. */
FN void copies_wait(void)
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}

/* All 16, which costs a third of the instructions. */
FN void copy_async(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
                 : : "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

/* A row of tokens. The threads of a row read all their rows' indices at once, one each. */
FN void fetch_tokens(packed *stage, const struct source *s, const struct group *g,
                     const struct tile *t)
{
    const int line = threadIdx.x / ACROSS_TILE, f = threadIdx.x % ACROSS_TILE * CHUNK;
    const int columns = s->all.k - t->column - f, rows = g->length - t->row - line;
    const int count = columns < 0 ? 0 : columns < CHUNK ? columns : CHUNK;
    const int own = threadIdx.x % ACROSS_TILE % (TILE_M / STEP) * STEP;
    const int token = own < rows ? s->gather[g->start + t->row + line + own] / s->topk : 0;
    in_element *to = (in_element *)stage + line * TILE_N + f;

#pragma unroll
    for (int i = 0; i < TILE_M / STEP; i++) {
        const int there = i * STEP < rows ? count : 0;
        const in_element *from = (const in_element *)s->in + t->column + f +
                                 __shfl_sync(~0u, token, i, ACROSS_TILE) * s->in_stride;

        if (s->paired) {
            copy_async(to + i * STEP * TILE_N, from, there * $(bytes));
            continue;
        }
#pragma unroll 1
        for (int j = 0; j < CHUNK; j++)
            to[i * STEP * TILE_N + j] = j < there ? from[j] : (in_element)0;
    }
}

FN void fetch(packed *stage, const struct source *s, const struct group *g, const struct tile *t)
{
//$ if params.gather then
    if (s->gather) {
        fetch_tokens(stage, s, g, t);
        return;
    }
//$ end
    const int whole = t->row + TILE_M <= g->length && t->column + TILE_N <= s->all.k;
    const int line = threadIdx.x / ACROSS_TILE, f = threadIdx.x % ACROSS_TILE * CHUNK;
    const int columns = s->all.k - t->column - f; /* from the thread's first one on */
    const int count = columns < 0 ? 0 : columns < CHUNK ? columns : CHUNK;
    const int rows = g->length - t->row - line;
//$ if of == "w" then
    const in_element *matrix = s->pointers ? (const in_element *)s->pointers[g->number]
                                           : (const in_element *)s->in +
                                                 (long long)g->number * s->all.m * s->in_stride;
    const in_element *from = matrix + (long long)(t->row + line) * s->in_stride + t->column + f;
    const int paired = s->paired && (unsigned long long)matrix % 16 == 0;
//$ else
    const in_element *from = (const in_element *)s->in +
                             ((long long)g->start + t->row + line) * s->in_stride + t->column + f;
    const int paired = s->paired;
//$ end
    in_element *to = (in_element *)stage + line * TILE_N + f;

    if (paired && whole) {
#pragma unroll
        for (int i = 0; i < TILE_M / STEP; i++) {
            copy_async(to + i * STEP * TILE_N, from);
            from += STEP * s->in_stride;
        }
        return;
    }
    if (paired) {
#pragma unroll 1
        for (int i = 0; i < TILE_M / STEP; i++) {
            copy_async(to + i * STEP * TILE_N, from, i * STEP < rows ? count * $(bytes) : 0);
            from += STEP * s->in_stride;
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < TILE_M / STEP; i++) {
#pragma unroll
        for (int j = 0; j < CHUNK; j++)
            to[i * STEP * TILE_N + j] = i * STEP < rows && j < count ? from[j] : (in_element)0;
        from += STEP * s->in_stride;
    }
}
