/*
** d[i,:] = a[i,:] * b[g]^T for the rows i of group g, on the host.
**
** Each element is one fp32 sum over k in ascending order, each product rounded before it is added,
** rounded once to the type of d; so the result depends neither on the number of workers nor on the
** width of the vectors. Compile with -ffp-contract=off.
*/
enum {
    TILE_M = $(tile.m), /* rows summed side by side */
    TILE_N = $(tile.n), /* columns, one vector */
    TILE_K = $(tile.k), /* length of a packed run */
    BLOCK_M = 64        /* rows that share a packed run of b */
};

//$ include "common/sizes.c"

//$ include("host/load_" .. a.type .. ".c")

//$ include("host/store_" .. d.type .. ".c")

/* A block of b, k-major to columns side by side; missing columns and steps are zero. */
static void pack_columns(float packed[TILE_K][TILE_N], const element *b, long long stride,
                         int columns, int steps)
{
    for (int j = 0; j < TILE_N; j++)
        for (int i = 0; i < steps; i++)
            packed[i][j] = j < columns ? load(b[j * stride + i]) : 0;
}

/*
** sum[r][j] += a[r][i] * b[i][j] over a run of k, in order. Its name is the kernel's, because clang
** lets the linker see what chooses among the clones.
*/
__attribute__((target_clones("avx512f", "avx2", "default"))) static void
$(name)_run(float sum[TILE_M][TILE_N], float a[TILE_M][TILE_K], float b[TILE_K][TILE_N], int steps)
{
    float kept[TILE_M][TILE_N]; /* in registers: nothing else can point here */

    __builtin_memcpy(kept, sum, sizeof kept);
    for (int i = 0; i < steps; i++)
        for (int r = 0; r < TILE_M; r++)
            for (int j = 0; j < TILE_N; j++)
                kept[r][j] += a[r][i] * b[i][j];
    __builtin_memcpy(sum, kept, sizeof kept);
}

struct block {
    const element *a;
    const element *b;
    output *d;
    long long a_stride, b_stride, d_stride;
    int rows, columns;
};

/* Up to BLOCK_M x TILE_N elements of d. */
static void multiply_block(const struct block *p, int k)
{
    static _Thread_local float packed_a[TILE_M][TILE_K], packed_b[TILE_K][TILE_N];
    float sum[BLOCK_M][TILE_N] = { { 0 } };

    for (int k0 = 0; k0 < k; k0 += TILE_K) {
        const int steps = k - k0 < TILE_K ? k - k0 : TILE_K;
        pack_columns(packed_b, p->b + k0, p->b_stride, p->columns, steps);
        for (int r0 = 0; r0 < p->rows; r0 += TILE_M) {
            for (int r = 0; r < TILE_M; r++)
                for (int i = 0; i < steps; i++)
                    packed_a[r][i] =
                        r0 + r < p->rows ? load(p->a[(r0 + r) * p->a_stride + k0 + i]) : 0;
            $(name)_run(sum + r0, packed_a, packed_b, steps);
        }
    }
    for (int r = 0; r < p->rows; r++)
        for (int j = 0; j < p->columns; j++)
            p->d[r * p->d_stride + j] = store(sum[r][j]);
}

/* Worker `worker` of `workers` computes every workers-th block of columns. */
void $(name)(void *const *params, int worker, int workers)
{
//$ for _, p in ipairs(params) do
    $(p.type) const $(p.name) = *($(p.type) const *)params[$(p.index)];
//$ end
    const int column_blocks = (n + TILE_N - 1) / TILE_N;
    unsigned int end = 0;

    if (worker == 0)
        check_sizes(first_dims, offsets, sizes_bytes, groups, m, error);
    for (int group = 0; group < groups; group++) {
        const unsigned int start =
            offsets ? cut_to_rows(size_at(offsets, sizes_bytes, group), m) : end;
        const unsigned int length =
            cut_to_rows(group_length(first_dims, offsets, sizes_bytes, group), m - start);

        end = start + length;
        for (unsigned int row = 0; row < length; row += BLOCK_M)
            for (int j = worker; j < column_blocks; j += workers) {
                const int column = j * TILE_N;
                struct block p = {
                    .a = (const element *)a + (start + (long long)row) * a_stride,
                    .b = (const element *)b + ((long long)group * n + column) * b_stride,
                    .d = (output *)d + (start + (long long)row) * d_stride + column,
                    .a_stride = a_stride,
                    .b_stride = b_stride,
                    .d_stride = d_stride,
                    .rows = length - row < BLOCK_M ? (int)(length - row) : BLOCK_M,
                    .columns = n - column < TILE_N ? n - column : TILE_N,
                };
                multiply_block(&p, k);
            }
    }
}
