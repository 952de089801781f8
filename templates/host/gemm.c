//$ -- SPDX-License-Identifier: Apache-2.0
//$ local follows = epilogue == "activate"
//$ local back = epilogue == "gradient"
/*
//$ if follows then
** p = alpha * a * b^T + bias, d = activation(p) * probability for each group, on the host.
**
**   a  $(a.type) [m, k], b $(b.type) [n, k], contiguous along either axis
**   d  $(d.type) [m, n], or [m, n / 2] where an activation takes two operands; p [m, n], or null
**
//$ elseif back then
** d = alpha * a * b^T * probability * activation'(p) for each group, on the host.
**
**   a  $(a.type) [m, k], b $(b.type) [n, k], contiguous along either axis
**   d  $(d.type) [m, 2 n], or [m, n] where the activation takes one operand; p the same
**
//$ else
** d = alpha * a * b^T + beta * c for each group, on the host.
**
**   a  $(a.type) [m, k], b $(b.type) [n, k], contiguous along either axis
**   d  $(d.type) [m, n], contiguous along n; c the same, or null for none
**
//$ end
** Groups split one of the axes, and with it the operands that have it; an operand without it has a
** matrix for each group. Each element is one fp32 sum over k in ascending order, each product
** rounded before it is added; where products are merged, over the k of the first, then of the
//$ if back then
** second and so on; then alpha * sum, then the steps below in fp32, and at the end one rounding to
** the
//$ elseif follows then
** second and so on; then alpha * sum, then + bias, then the steps below in fp32, and at the end one
** rounding to the
//$ else
** second and so on; then alpha * sum, then + beta * c, and at the end one rounding to the
//$ end
** type of d. So the result depends neither on the number of workers nor on the width of the
** vectors. Compile with -ffp-contract=off.
*/
//$ local storage = { bf16 = "unsigned short", f16 = "unsigned short", f32 = "float" }
#define FN static inline __attribute__((unused))
enum {
    TILE_M = $(tile.m),            /* rows summed side by side */
    TILE_N = $(tile.n),           /* columns, as wide as the widest vector */
    TILE_K = $(tile.k),          /* length of a packed run */
    MICROBATCHES = $(microbatches),             /* products that a call may merge */
    BLOCK_M = 16 * TILE_M, /* one worker's block */
    BLOCK_N = 4 * TILE_N
};
enum { NONE, M, N, K }; /* axes */
typedef float term;     /* of a sum */
typedef $(storage[a.type]) a_element;
typedef $(storage[b.type]) b_element;
typedef $(storage[d.type]) d_element;

//$ include "common/sizes.c"

//$ include "common/check_sizes.c"

//$ include "common/merged.c"

//$ include "host/gather.c"

//$ once("cast/from_" .. a.type .. ".c")
//$ once("cast/from_" .. b.type .. ".c")
//$ once("cast/from_" .. d.type .. ".c")
//$ once("cast/to_" .. d.type .. ".c")

//$ include "host/gemm_run.c"

//$ if follows then
//$ include "host/gemm_activate.c"

//$ elseif back then
//$ include "host/gemm_gradient.c"

//$ end

/* The operands of one group's sums. The strides of a's elements are a_row along m and a_step along
   k; one is 1. */
struct stretch {
    int k;
    const a_element *a;
    const b_element *b;
    long long a_row, a_step, b_row, b_step;
    struct rows rows; /* of a */
};

/* One group's product. */
struct product {
    int m, n;
    long long k; /* of all stretches */
    struct stretch stretch[MICROBATCHES];
    int stretches;
//$ if follows then
    struct follow follow;
//$ elseif back then
    struct back back;
//$ else
    const d_element *c; /* or null */
    d_element *d;
    long long c_row, d_row;
    const float *alpha, *beta; /* null for 1 */
    const int *scatter; /* the row of all of D that has each, or null: in order */
    const unsigned long long *addresses; /* of rows of D, 0: none; or null */
    d_element *first; /* of all of D */
    int all_rows;
//$ end
    run_function *run;
};

/* Rows of a from m[k] on, a run of k each, one after the other; rows that are missing are zero. */
static void pack_a(float packed[BLOCK_M][TILE_K], const struct stretch *p, int m, long long k,
                   int rows, int steps)
{
    const a_element *const a = p->a + m * p->a_row + k * p->a_step;

    if (p->rows.pairs)
        for (int r = 0; r < rows; r++) {
            const int row = row_at(&p->rows, m + r);

            for (int i = 0; i < steps; i++)
                packed[r][i] = row < 0 ? 0 : from_$(a.type)(p->a[row * p->a_row + k + i]);
        }
    else if (p->a_step == 1)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < steps; i++)
                packed[r][i] = from_$(a.type)(a[r * p->a_row + i]);
    else
        for (int i = 0; i < steps; i++)
            for (int r = 0; r < rows; r++)
                packed[r][i] = from_$(a.type)(a[i * p->a_step + r]);
    for (int r = rows; r % TILE_M; r++)
        for (int i = 0; i < steps; i++)
            packed[r][i] = 0;
}

//$ if follows then
/* Rows of b, a run of k each, side by side, from a position on; rows that are missing are zero. */
static void pack_places(float packed[TILE_K][TILE_N], const struct stretch *p,
                        const struct follow *follow, int place, long long k, int rows, int steps)
{
    for (int r = 0; r < TILE_N; r++) {
        const int column = r < rows ? column_at(follow, place + r) : -1;
        const b_element *b = p->b + column * p->b_row + k * p->b_step;

        for (int i = 0; i < steps; i++)
            packed[i][r] = column < 0 ? 0 : from_$(b.type)(b[i * p->b_step]);
    }
}
//$ else
/* Rows of b, a run of k each, side by side; rows that are missing are zero. */
static void pack_b(float packed[TILE_K][TILE_N], const struct stretch *p, const b_element *b,
                   int rows, int steps)
{
    if (p->b_step == 1)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < steps; i++)
                packed[i][r] = from_$(b.type)(b[r * p->b_row + i]);
    else
        for (int i = 0; i < steps; i++)
            for (int r = 0; r < rows; r++)
                packed[i][r] = from_$(b.type)(b[i * p->b_step + r]);
    for (int i = 0; i < steps; i++)
        for (int r = rows; r < TILE_N; r++)
            packed[i][r] = 0;
}

//$ if not back then
//$ include "host/gemm_finish.c"
//$ end
//$ end

/* Sums of up to BLOCK_M x BLOCK_N elements of d, from d[m,n] on. */
typedef float block_sums[BLOCK_N / TILE_N][BLOCK_M][TILE_N];

/* Add one stretch of k. */
static void add_stretch(block_sums sum, const struct product *product, const struct stretch *p,
                        int m, int n, int rows, int columns)
{
    float a[BLOCK_M][TILE_K], b[TILE_K][TILE_N];

    for (long long k = 0; k < p->k; k += TILE_K) {
        const int steps = p->k - k < TILE_K ? (int)(p->k - k) : TILE_K;
        pack_a(a, p, m, k, rows, steps);
        for (int j = 0; j < columns; j += TILE_N) {
            const int width = columns - j < TILE_N ? columns - j : TILE_N;
//$ if follows then
            pack_places(b, p, &product->follow, n + j, k, width, steps);
//$ else
            pack_b(b, p, p->b + (n + j) * p->b_row + k * p->b_step, width, steps);
//$ end
            for (int r = 0; r < rows; r += TILE_M)
                product->run(sum[j / TILE_N] + r, a + r, b, steps);
        }
    }
}

static void multiply_block(const struct product *p, int m, int n)
{
    const int rows = p->m - m < BLOCK_M ? p->m - m : BLOCK_M;
    const int columns = p->n - n < BLOCK_N ? p->n - n : BLOCK_N;
    block_sums sum;

    __builtin_memset(sum, 0, sizeof sum);
    for (int i = 0; i < p->stretches; i++)
        add_stretch(sum, p, &p->stretch[i], m, n, rows, columns);
//$ if follows then
    for (int r = 0; r < rows; r++) {
        float row[BLOCK_N];

        for (int j = 0; j < columns; j++)
            row[j] = sum[j / TILE_N][r][j % TILE_N];
        follow_row(&p->follow, row, m + r, n, columns);
    }
//$ elseif back then
    float row[BLOCK_M][BLOCK_N];

    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++)
            row[r][j] = sum[j / TILE_N][r][j % TILE_N];
    follow_block(&p->back, row[0], BLOCK_N, m, n, rows, columns);
//$ else
    for (int r = 0; r < rows; r++) {
        d_element *const d = row_of_d(p, m + r);

        for (int j = 0; d && j < columns; j++)
            d[n + j] = finish(p, sum[j / TILE_N][r][j % TILE_N],
                              p->c ? p->c + (m + r) * p->c_row + n + j : 0);
    }
//$ end
}

//$ include "host/gemm_group.c"

/* The starts of one product's groups along the ragged axis, in sequence. */
struct place {
    unsigned int start, length, end;
};

static void next_group(struct place *p, const struct microbatch *part, int group,
                       unsigned int total)
{
    p->start = part->offsets ? cut_to_rows(size_at(part->offsets, part->sizes_bytes, group), total)
                             : p->end;
    p->length = cut_to_rows(
        group_length(part->first_dims, part->offsets, part->sizes_bytes, group), total - p->start);
    p->end = p->start + p->length;
}

/* Worker `worker` of `workers`. */
void $(name)(void *const *params, int worker, int workers)
{
    //$ include "host/params.c"
    /* Without merging there is one part, as the other parameters say. */
    const struct microbatch whole = { .a = a, .b = b, .first_dims = first_dims, .offsets = offsets,
                                .a_stride = a_stride, .b_stride = b_stride,
                                .sizes_bytes = sizes_bytes,
                                .k = ragged == M ? m : ragged == N ? n : k };
    const struct microbatch *const part = microbatch_count ? microbatches->part : &whole;
    const int count = microbatch_count ? microbatch_count : 1;
//$ if not follows and not back then
    const long long c_pitch = ragged == M ? c_stride : ragged == N;
    const long long d_pitch = ragged == M ? d_stride : ragged == N;
//$ end
    struct place places[MICROBATCHES] = { { 0, 0, 0 } };
    long long next = 0;
//$ if back then
    long long runs = 0; /* of 128 rows, in the groups before */
//$ end

    //$ include "common/noop.c"
    for (int i = 0; i < count && worker == 0 && ragged != NONE; i++)
        if (check_sizes(part[i].first_dims, part[i].offsets, part[i].sizes_bytes, groups,
                        (unsigned int)part[i].k, error)) {
            error[4] = (unsigned int)i;
            break;
        }
    for (int i = 0; i < groups; i++) {
        for (int j = 0; j < count && ragged != NONE; j++)
            next_group(&places[j], &part[j], i, (unsigned int)part[j].k);
//$ if follows or back then
        const long long start = places[0].start;
//$ end
        struct product p = {
            .m = ragged == M ? (int)places[0].length : m,
//$ if follows then
            //$ include "host/gemm_follow.c"
//$ elseif back then
            .n = n,
            //$ include "host/gemm_back.c"
//$ else
            .n = ragged == N ? (int)places[0].length : n,
//$ for _, x in ipairs { "c", "d" } do
            .$(x) = place($(x), (const void *const *)$(x)_pointers, i,
                       i * $(x)_group_stride + places[0].start * $(x)_pitch, sizeof(d_element)),
//$ end
            .c_row = c_stride,
            .d_row = d_stride,
            .alpha = alpha ? alpha + i * scalar_step : 0,
            .beta = beta ? beta + i * scalar_step : 0,
            .scatter = scatter ? scatter + places[0].start : 0,
            .addresses = addresses,
            .first = d,
            .all_rows = m,
//$ end
            .stretches = count,
            .run = choose_run(),
        };
//$ if follows then
        p.n = count_places(&p.follow);
//$ elseif back then
        runs += (p.m + 127) / 128;
//$ end
        for (int j = 0; j < count; j++) {
            struct stretch *const s = &p.stretch[j];
            const struct microbatch *const of = &part[j];

            s->k = ragged == K ? (int)places[j].length : k;
            s->rows = (struct rows){ gather ? gather + places[0].start : 0, topk, tokens };
            p.k += s->k;
//$ for _, x in ipairs { "a", "b" } do
//$   local axis = x == "a" and "M" or "N"
            s->$(x)_row = $(x)_major ? 1 : of->$(x)_stride;
            s->$(x)_step = $(x)_major ? of->$(x)_stride : 1;
            s->$(x) = place(of->$(x), (const void *const *)$(x)_pointers, i,
                         i * $(x)_group_stride +
//$   if x == "a" then
                             places[j].start * (gather ? 0 : ragged == $(axis) ? s->$(x)_row
                                                : ragged == K ? s->$(x)_step : 0),
//$   else
                             places[j].start * (ragged == $(axis) ? s->$(x)_row
                                                : ragged == K ? s->$(x)_step : 0),
//$   end
                         sizeof($(x)_element));
//$ end
        }
        if (worker == 0 && gather)
            check_rows(&p.stretch[0].rows, places[0].start, p.m, error);
        multiply_group(&p, &next, worker, workers);
    }
}
