//$ -- SPDX-License-Identifier: Apache-2.0
//$ local four, s, activates = b.bits == 4, b.scale, epilogue == "activate"
//$ local from_b = activates and "s->b + (size_t)s->place[i] * 16" or "s->b + s->place[i]"
/*
//$ if activates then
** p = alpha * a * b^T + bias for each group, and d = activation(p) times the row's probability; of
** no activation d = alpha * a * b^T + bias * probability. Few tokens times packed weights.
//$ else
** d = alpha * a * b^T + beta * c for each group: few tokens times packed weights.
//$ end
**
**   a     [m, k]  $(a.type)
**   b     [groups, n, k]  $(b.type), the stored codes: a code times the scale of its block,
**         rounded to $(a.type), is multiplied
//$ if activates then
**   p     [m, n]  $(d.type); null: it is not written
**   d     [m, n / 2], or with one operand [m, n]  $(d.type)
//$ else
**   d, c  [m, n]  $(d.type); c may be d, and is not read where beta is 0
//$ end
**
** The groups divide the rows of d among them. Those of no group are not written. For every GPU
** since sm_90: the rows of b are the tensor cores' rows, tokens their columns.
**
** Persistent CTAs take the tiles of d. All threads copy a, b and the scales into a ring of STAGES
** stages, ahead of the products. A warp has WARP_N rows of b and all tokens of the tile, so that
** each code is turned into a value once.
*/
enum {
    THREADS = $(threads),
    TILE_M = $(tile.m),
    TILE_N = $(tile.n),
    TILE_K = $(tile.k),
    WARP_M = TILE_M,
    WARP_N = $(warp[2]), /* rows of b, columns of d */
    STAGES = $(stages),
    A_ROW = TILE_K * 2, /* bytes in a stage */
    B_ROW = TILE_K * $(b.bits) / 8,
    A_BYTES = TILE_M * A_ROW,
    STAGE_BYTES = A_BYTES + TILE_N * B_ROW
};

//$ include "sm80/ptx.cu"

//$ include "common/sizes.c"

//$ include("common/check_sizes.cu", { rolled = false })

//$ include "common/scheduler.cu"

//$ include "common/scale_place.c"

//$ if activates then
//$ include "sm80/activate.cu"

//$ else
//$ include(d.bytes == 4 and "sm80/words_f32.cu" or "sm80/words_16bit.cu")

//$ include "sm80/store.cu"

//$ end
/* The ring, and between two tiles the warps' slabs; then the scales, as the caller gave them and
   prepared for a stage. Rows of a stage begin at multiples of their size. */
FN unsigned char *shared_memory(void)
{
    extern __shared__ __align__(512) unsigned char dynamic[];
    return dynamic;
}

struct memory {
    unsigned int ring, words, factors; /* addresses */
};

typedef unsigned long long u64;

//$ include "sm80/shared.cu"

#define copy_word copy_async_4

/* The same as copy_async, of weights: L2 reads 256 bytes of a row at once, for later stages. */
FN void copy_weights(unsigned int to, const element *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;"
                 : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

//$ include "sm90/scale_words.cu"

/* A value that the compiler keeps in place of computing it again, in every stage. */
FN unsigned int kept(unsigned int x)
{
    asm("" : "+r"(x));
    return x;
}

/* A thread copies 16 bytes of every so many rows of both operands for each stage. Rows of tokens
   that are not there keep earlier bytes: their sums are columns that nothing stores. */
enum {
    A_CHUNKS = A_ROW / 16,
    B_CHUNKS = B_ROW / 16,
    A_PASS = THREADS / A_CHUNKS, /* rows that all threads copy together */
    B_PASS = THREADS / B_CHUNKS,
    B_PASSES = TILE_N / B_PASS
};

/* The bits that a row's chunks have turned over in their addresses, so that rows of a column are in
   different banks: 8 of b, $(four and "8" or "4") of a. */
FN unsigned int digits_of(int row)
{
    return row / (128 / B_ROW) % B_CHUNKS * 16;
}

FN unsigned int digits_of_token(int row)
{
    return $(four and "row % 8 * 16" or "row % 4 * 32");
}

struct source {
    unsigned int to_a, to_b;      /* in a stage: where its first bytes of both go */
    const element *a, *b;         /* in the next stage: its bytes of a's first row, all of b's */
    long long step;               /* from there to its bytes of its next row of a */
    unsigned int place[B_PASSES]; /* of its bytes of b$(activates and ", in units of 16" or "") */
    int tokens;                   /* of the tile, from its first row of a on */
    int k;                        /* steps left, from the next stage on */
    int aligned;                  /* tokens start at multiples of 16 bytes */
};

//$ if activates then
/* `a`: the tile's first element, `b`: the group's; strides in bytes. */
FN void source_begin(struct source *s, const element *a, long long a_stride, int tokens,
                     const element *b, long long b_stride, const struct order *o, int k)
{
//$ else
/* `a`, `b`: the tile's first elements; strides in bytes. Rows of b that are not there are the last
   one again: nothing stores their sums. */
FN void source_begin(struct source *s, const element *a, long long a_stride, int tokens,
                     const element *b, long long b_stride, int columns, int k)
{
//$ end
    const int line = threadIdx.x / A_CHUNKS, line_b = threadIdx.x / B_CHUNKS;

    s->to_a = kept(line * A_ROW + (threadIdx.x % A_CHUNKS * 16 ^ digits_of_token(line)));
    s->to_b =
        kept(A_BYTES + line_b * B_ROW + (threadIdx.x % B_CHUNKS * 16 ^ digits_of(line_b)));
    s->aligned = ((size_t)a | (size_t)a_stride) % 16 == 0;
    s->a = a + line * a_stride + threadIdx.x % A_CHUNKS * 16;
    s->step = A_PASS * a_stride;
    s->tokens = kept(tokens - line);
    s->b = b;
#pragma unroll
    for (int i = 0; i < B_PASSES; i++) {
        const int row = i * B_PASS + line_b;

//$ if activates then
        s->place[i] = (unsigned int)(column_of_row(o, row) * (b_stride / 16)) +
                      threadIdx.x % B_CHUNKS;
//$ else
        s->place[i] = (unsigned int)((row < columns ? row : columns - 1) * b_stride) +
                      threadIdx.x % B_CHUNKS * 16;
//$ end
    }
    s->k = k;
}

FN int bytes_there(int bytes, int byte)
{
    const int left = bytes - byte;

    return left < 0 ? 0 : left < 16 ? left : 16;
}

/* A stage with fewer than TILE_K steps, the others zeros, or tokens that start anywhere. */
FN void copy_any(const struct source *s, unsigned int a, unsigned int b)
{
    const int steps = s->k < TILE_K ? s->k : TILE_K;
    const int left_a = bytes_there(2 * steps, threadIdx.x % A_CHUNKS * 16);
    const int left_b =
        bytes_there($(four and "(steps + 1) / 2" or "steps"), threadIdx.x % B_CHUNKS * 16);
    const element *from = s->a;

#pragma unroll
    for (int i = 0; i < B_PASSES; i++)
        copy_weights(b + i * B_PASS * B_ROW, $(from_b), left_b);
#pragma unroll 1
    for (int i = 0; i < TILE_M && i < s->tokens; i += A_PASS, from += s->step) {
        const unsigned int to = (a ^ digits_of_token(i)) + i * A_ROW;
        unsigned int word[4] = { 0 };

        if (s->aligned) {
            copy_async(to, from, left_a);
            continue;
        }
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (2 * j < left_a)
                word[j / 2] |= (unsigned int)((const unsigned short *)from)[j] << j % 2 * 16;
        store_shared_x4(to, word);
    }
}

/* This thread's part of the stage at `stage`. */
FN void copy_stage(struct source *s, unsigned int stage)
{
    const unsigned int a = stage + s->to_a, b = stage + s->to_b;

    if (s->k >= TILE_K && s->aligned) {
#pragma unroll
        for (int i = 0; i < B_PASSES; i++)
            copy_weights(b + i * B_PASS * B_ROW, $(from_b), 16);
#pragma unroll
        for (int i = 0; i < TILE_M; i += A_PASS)
            if (i < s->tokens)
                copy_async((a ^ digits_of_token(i)) + i * A_ROW, s->a + i / A_PASS * s->step, 16);
    } else
        copy_any(s, a, b);
    s->a += A_ROW;
    s->b += B_ROW;
    s->k -= TILE_K;
}

//$ if half_words then
//$ once "dequantize/permute.c"
/* Put this thread's part of the tokens in the stage at `stage` into the order of codes: the even
   ones of 16 steps of k, then the odd ones. Two lanes have copied the 16. `tokens`: of the tile. */
FN void order_tokens(const struct source *s, unsigned int stage, int tokens)
{
    const unsigned int own = stage + s->to_a, odd = threadIdx.x % 2;

#pragma unroll
    for (int i = 0; i < TILE_M; i += A_PASS) {
        const unsigned int at = (own ^ digits_of_token(i)) + i * A_ROW;
        const unsigned int even = (at ^ odd * 16) + odd * 8;
        unsigned int word[4];

        if (i >= tokens)
            break;
        if (i < s->tokens)
            load_shared_x4(at, word);
        __syncwarp();
        if (i < s->tokens) {
            store_shared_x2(even, permute(word[0], word[1], 0x5410),
                            permute(word[2], word[3], 0x5410));
            store_shared_x2(even ^ 16, permute(word[0], word[1], 0x7632),
                            permute(word[2], word[3], 0x7632));
        }
    }
}

//$ end
/* A lane's rows of b, and the row whose scales it copies and prepares. */
struct rows {
    int row;                    /* the first one, of the tile's */
    unsigned int codes, tokens; /* of its first ones in a stage, from the stage's first byte on */
    struct line line;
    int line_row;
//$ if four and b.integer then
    unsigned int nibbles; /* the lowest one of both halves of a word */
//$ end
};

//$ if activates then
FN void rows_begin(struct rows *r, const struct scales *scales, const struct tile *t,
                   const struct order *o, int columns)
{
//$ else
FN void rows_begin(struct rows *r, const struct scales *scales, const struct tile *t, int columns)
{
//$ end
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * WARP_N;

    r->row = kept(first + lane / 4);
//$ local own = half_words and 2 or four and 1 or 4 -- bytes of a lane's codes
    r->codes = kept(A_BYTES + (r->row * B_ROW ^ digits_of(r->row)) + lane % 4 * $(own));
//$ if four then
    r->tokens = kept(lane % 8 * A_ROW + (lane / 8 * 16 ^ digits_of_token(lane)));
//$ if b.integer then
    r->nibbles = 0x000f000f | scales->k >> 31;
//$ end
//$ else
    r->tokens = kept(lane / 4 * A_ROW + (lane % 4 * 8 ^ digits_of_token(lane / 4)));
//$ end
    r->line_row = kept(first + lane % WARP_N);
//$ local of_row = activates and "column_of_row(o, r->line_row)" or "t->column + r->line_row"
    r->line = line_b(scales, t, $(of_row), columns);
}

/* Ask for stage `i`, its scales too. */
FN void ask(const struct memory *s, struct source *source, const struct rows *r, int i)
{
    copy_stage(source, s->ring + i % STAGES * STAGE_BYTES);
    if (threadIdx.x % 32 < WARP_N)
        fetch_next_b(s, &r->line, i * TILE_K, r->line_row);
}

//$ include "sm80/dequantize_few.cu"

/* Tokens 8 j .. 8 j + 7, as the tensor cores' columns, for the 32 steps of k that begin at `y`;
   `tokens`: of the lane's first ones. */
FN void load_tokens(unsigned int word[4], unsigned int tokens, int j, int y)
{
    const unsigned int from = (tokens ^ 2 * y) + 8 * j * A_ROW;

//$ if four then
    load_matrix_x4(word, from);
//$ else
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1]) : "r"(from) : "memory");
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(word[2]), "=r"(word[3]) : "r"(from ^ 32) : "memory");
//$ end
}

//$ local exact = b.type == "e2m1" and b.scale.type == "e8m0"
//$ local forms = exact and { "_near", "_any" } or { "" }
//$ local counts = { tile.m // 2, tile.m }
//$ for _, form in ipairs(forms) do
//$ for _, count in ipairs(form == "_any" and { tile.m } or counts) do
//$ local which = count < tile.m and ", of the tile's first " .. count .. " tokens" or ""
//$ local rolled = form == "_any" and " 1" or ""
/* The products of a stage's first `steps` of k, at least one$(which). */
FN void multiply_$(count)$(form)(float sum[WARP_N / 16][TILE_M / 8][4], const struct memory *s,
                          unsigned int stage, const struct rows *r, int steps)
{
#pragma unroll$(rolled)
    for (int vector = 0; vector < VECTORS; vector++) {
        struct factors factors;

        if (vector > 0 && vector * VECTOR_K >= steps)
            break;
        load_factors(&factors, s, r->row, vector);
#pragma unroll
        for (int y = vector * VECTOR_K; y < (vector + 1) * VECTOR_K; y += 32) {
            unsigned int weights[2][WARP_N / 16][4];

#pragma unroll
            for (int i = 0; i < HELD; i++)
                dequantize_row$(form)(weights, &factors, stage + r->codes, r, i, y);
#pragma unroll
            for (int j = 0; j < $(count // 8); j++) {
                unsigned int tokens[4];

                load_tokens(tokens, stage + r->tokens, j, y);
#pragma unroll
                for (int i = 0; i < WARP_N / 8; i++)
                    mma(sum[i % (WARP_N / 16)][j], weights[i / (WARP_N / 16)][i % (WARP_N / 16)],
                        tokens + i / (WARP_N / 16) * 2);
            }
        }
    }
}

//$ end
//$ end
/* One stage, whose first step of k is `x` of `k`, for so many tokens. */
FN void multiply_stage(float sum[WARP_N / 16][TILE_M / 8][4], const struct memory *s,
                       unsigned int stage, const struct rows *r, int x, int k, int tokens)
{
//$ if exact then
    if (prepare_factors(s, r, x))
        multiply_$(tile.m)_any(sum, s, stage, r, k - x);
    else
//$ else
    prepare_factors(s, r, x);
//$ end
    if (tokens <= $(counts[1]))
        multiply_$(counts[1])$(forms[1])(sum, s, stage, r, k - x);
    else
        multiply_$(tile.m)$(forms[1])(sum, s, stage, r, k - x);
}

/* sum += (a * b) turned, over k steps of k, at least one. */
FN void multiply_tile(float sum[WARP_N / 16][TILE_M / 8][4], const struct memory *s,
                      struct source *source, const struct rows *r, int k, int tokens)
{
    const int stages = k / TILE_K + (k % TILE_K > 0);

    if (threadIdx.x % 32 < WARP_N)
        fetch_b(s, &r->line, 0, r->line_row);
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < stages)
            ask(s, source, r, i);
        copy_commit();
    }
#pragma unroll 1
    for (int i = 0; i < stages; i++) {
        copy_wait(STAGES - 2);
//$ if half_words then
        order_tokens(source, s->ring + i % STAGES * STAGE_BYTES, tokens);
//$ end
        __syncthreads(); /* all have it, and nothing reads the one before any more */
        if (i + STAGES - 1 < stages)
            ask(s, source, r, i + STAGES - 1);
        copy_commit();
        multiply_stage(sum, s, s->ring + i % STAGES * STAGE_BYTES, r, i * TILE_K, k, tokens);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned int ring = kept(shared_address(shared_memory()));
    const unsigned int words = ring + STAGES * STAGE_BYTES;
    const struct memory s = { ring, words, words + TILE_N * B_SLOTS * 4 };
    const struct scales scales = { (const unsigned char *)b_sf, b_sf_stride, b_sf_group_stride, k };
    float *slab = (float *)shared_memory() + warp * $(activates and "TILE_M" or "16") * SLAB_PITCH;
    struct scheduler w;
    struct tile t;

    /* The GPU fills its small clusters of multiprocessors with the first CTAs: the last ones are
       spread evenly, so these have the tiles that are left over. */
    const unsigned int first = gridDim.x - 1 - blockIdx.x;

    //$ include("sm80/schedule.body.cu", { total = "(unsigned int)m", first = "first" })
    while (scheduler_next(&w, &t, lane)) {
        const int tokens = (int)t.length - t.row < TILE_M ? (int)t.length - t.row : TILE_M;
        const long long row = t.start + (long long)t.row; /* the tile's first one in the buffers */
        const element *weights =
            b_pointers ? (const element *)b_pointers[t.group]
                       : (const element *)b + t.group * b_group_stride * $(b.bits) / 8;
        float sum[WARP_N / 16][TILE_M / 8][4] = { { { 0 } } };
//$ if activates then
        const struct order rows_of_b = order_of(activation, interleave, t.column, n);
        struct source source;
        struct rows rows;

        source_begin(&source, (const element *)a + 2 * row * a_stride, 2 * a_stride, tokens,
                     weights, b_stride * $(b.bits) / 8, &rows_of_b, k);
        rows_begin(&rows, &scales, &t, &rows_of_b, n);
//$ else
        struct source source;
        struct target target;
        struct rows rows;

        source_begin(&source, (const element *)a + 2 * row * a_stride, 2 * a_stride, tokens,
                     weights + t.column * b_stride * $(b.bits) / 8, b_stride * $(b.bits) / 8,
                     n - t.column, k);
        rows_begin(&rows, &scales, &t, n);
//$ end
        if (k > 0)
            multiply_tile(sum, &s, &source, &rows, k, tokens);
//$ if s.global or lowered > 0 then
        finish_sums(sum, $(s.global and "b_global[t.group]" or "1"));
//$ end
//$ if activates then
        const struct order order = order_of(activation, interleave, t.column, n);
        struct work work;

        //$ include "sm80/activate_work.body.cu"
        __syncthreads(); /* nothing reads the ring any more: it becomes slabs */
        store_results(&work, &order, slab, sum, row, tokens);
        __syncthreads(); /* and a ring again */
//$ else
        target.d = (output *)d + row * d_stride + t.column;
        target.d_stride = d_stride;
        target.c = (output *)c + row * c_stride + t.column;
        target.c_stride = c_stride;
        target.rows = tokens;
        target.columns = n - t.column;
        target.alpha = alpha ? alpha[t.group * scalar_step] : 1;
        target.beta = !c ? 0 : beta ? beta[t.group * scalar_step] : 1;
        target.whole = runs_aligned(&target);
        __syncthreads(); /* nothing reads the ring any more: it becomes slabs */
        store_sums(&target, slab, sum, 0, warp * WARP_N);
        __syncthreads(); /* and a ring again */
//$ end
    }
    if (blockIdx.x == 0 && warp == 0) /* it has the fewest tiles */
        check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)m, error, lane);
}
