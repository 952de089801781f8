/*
** d = alpha * a * b^T + beta * c for each group, on the host.
**
**   a  $(a.type) [m, k], b $(b.type) [n, k], contiguous along either axis
**   d  $(d.type) [m, n], contiguous along n; c the same, or null for none
**
** Groups split one of the axes, and with it the operands that have it; an operand without it has a
** matrix for each group. Each element is one fp32 sum over k in ascending order, each product
** rounded before it is added; then alpha * sum, then + beta * c, and at the end one rounding to the
** type of d. So the result depends neither on the number of workers nor on the width of the
** vectors. Compile with -ffp-contract=off.
*/
//$ local storage = { bf16 = "unsigned short", f16 = "unsigned short", f32 = "float" }
enum {
    TILE_M = $(tile.m),            /* rows summed side by side */
    TILE_N = $(tile.n),           /* columns, as wide as the widest vector */
    TILE_K = $(tile.k),          /* length of a packed run */
    BLOCK_M = 16 * TILE_M, /* what one worker computes at a time */
    BLOCK_N = 4 * TILE_N
};
enum { NONE, M, N, K }; /* axes */
typedef float term;     /* of a sum */
typedef $(storage[a.type]) a_element;
typedef $(storage[b.type]) b_element;
typedef $(storage[d.type]) d_element;

//$ include "common/sizes.c"

//$ include "common/check_sizes.c"

//$ include("host/load_" .. a.type .. ".c")

//$ if b.type ~= a.type then
//$ include("host/load_" .. b.type .. ".c")

//$ end
//$ if d.type ~= a.type and d.type ~= b.type then
//$ include("host/load_" .. d.type .. ".c")

//$ end
//$ include("host/store_" .. d.type .. ".c")

//$ include "host/gemm_run.c"

/* One group's product. Elements of a are a_row apart along m, a_step along k; one of them is 1. */
struct product {
    int m, n, k;
    const a_element *a;
    const b_element *b;
    const d_element *c; /* or null */
    d_element *d;
    long long a_row, a_step, b_row, b_step, c_row, d_row;
    const float *alpha, *beta; /* null for 1 */
    run_function *run;
};

/* Rows of a, a run of k each, one behind the other; rows that are missing are zero. */
static void pack_a(float packed[BLOCK_M][TILE_K], const struct product *p, const a_element *a,
                   int rows, int steps)
{
    if (p->a_step == 1)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < steps; i++)
                packed[r][i] = load_$(a.type)(a[r * p->a_row + i]);
    else
        for (int i = 0; i < steps; i++)
            for (int r = 0; r < rows; r++)
                packed[r][i] = load_$(a.type)(a[i * p->a_step + r]);
    for (int r = rows; r % TILE_M; r++)
        for (int i = 0; i < steps; i++)
            packed[r][i] = 0;
}

/* Rows of b, a run of k each, side by side; rows that are missing are zero. */
static void pack_b(float packed[TILE_K][TILE_N], const struct product *p, const b_element *b,
                   int rows, int steps)
{
    if (p->b_step == 1)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < steps; i++)
                packed[i][r] = load_$(b.type)(b[r * p->b_row + i]);
    else
        for (int i = 0; i < steps; i++)
            for (int r = 0; r < rows; r++)
                packed[i][r] = load_$(b.type)(b[i * p->b_step + r]);
    for (int i = 0; i < steps; i++)
        for (int r = rows; r < TILE_N; r++)
            packed[i][r] = 0;
}

//$ include "host/gemm_finish.c"

/* Up to BLOCK_M x BLOCK_N elements of d, from d[m,n] on. */
static void multiply_block(const struct product *p, int m, int n)
{
    float a[BLOCK_M][TILE_K], b[TILE_K][TILE_N], sum[BLOCK_N / TILE_N][BLOCK_M][TILE_N];
    const int rows = p->m - m < BLOCK_M ? p->m - m : BLOCK_M;
    const int columns = p->n - n < BLOCK_N ? p->n - n : BLOCK_N;

    __builtin_memset(sum, 0, sizeof sum);
    for (long long k = 0; k < p->k; k += TILE_K) {
        const int steps = p->k - k < TILE_K ? (int)(p->k - k) : TILE_K;
        pack_a(a, p, p->a + m * p->a_row + k * p->a_step, rows, steps);
        for (int j = 0; j < columns; j += TILE_N) {
            const int width = columns - j < TILE_N ? columns - j : TILE_N;
            pack_b(b, p, p->b + (n + j) * p->b_row + k * p->b_step, width, steps);
            for (int r = 0; r < rows; r += TILE_M)
                p->run(sum[j / TILE_N] + r, a + r, b, steps);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++)
            p->d[(m + r) * p->d_row + n + j] =
                finish(p, sum[j / TILE_N][r][j % TILE_N],
                       p->c ? p->c + (m + r) * p->c_row + n + j : 0);
}

//$ include "host/gemm_group.c"

/* Worker `worker` of `workers`. */
void $(name)(void *const *params, int worker, int workers)
{
//$ for _, p in ipairs(params) do
    $(p.type) const $(p.name) = *($(p.type) const *)params[$(p.index)];
//$ end
    const long long a_row = a_major ? 1 : a_stride, a_step = a_major ? a_stride : 1;
    const long long b_row = b_major ? 1 : b_stride, b_step = b_major ? b_stride : 1;
    /* Elements from one row of the ragged axis to the next, 0 where an operand has none. */
    const long long a_pitch = ragged == M ? a_row : ragged == K ? a_step : 0;
    const long long b_pitch = ragged == N ? b_row : ragged == K ? b_step : 0;
    const long long c_pitch = ragged == M ? c_stride : ragged == N;
    const long long d_pitch = ragged == M ? d_stride : ragged == N;
    const unsigned int total = (unsigned int)(ragged == M ? m : ragged == N ? n : k);
    unsigned int start = 0, length = 0, end = 0;
    long long next = 0;

    if (worker == 0 && ragged != NONE)
        check_sizes(first_dims, offsets, sizes_bytes, groups, total, error);
    for (int i = 0; i < groups; i++) {
        if (ragged != NONE) {
            start = offsets ? cut_to_rows(size_at(offsets, sizes_bytes, i), total) : end;
            length = cut_to_rows(group_length(first_dims, offsets, sizes_bytes, i), total - start);
            end = start + length;
        }
        const struct product p = {
            .m = ragged == M ? (int)length : m,
            .n = ragged == N ? (int)length : n,
            .k = ragged == K ? (int)length : k,
//$ for _, x in ipairs { "a", "b", "c", "d" } do
//$   local element = x == "c" and "d_element" or x .. "_element"
            .$(x) = place($(x), (const void *const *)$(x)_pointers, i,
                       i * $(x)_group_stride + start * $(x)_pitch, sizeof($(element))),
//$ end
            .a_row = a_row,
            .a_step = a_step,
            .b_row = b_row,
            .b_step = b_step,
            .c_row = c_stride,
            .d_row = d_stride,
            .alpha = alpha ? alpha + i * scalar_step : 0,
            .beta = beta ? beta + i * scalar_step : 0,
            .run = choose_run(),
        };
        multiply_group(&p, &next, worker, workers);
    }
}
