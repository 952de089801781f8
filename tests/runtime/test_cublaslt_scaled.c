/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_cublaslt_scaled.c: FP8 copies with their scales through the backend
** cublaslt, over a fake that computes from the descriptors only. Expected
** results follow quern.h on copies: rows padded with zeros, groups of a
** columnwise tensor at multiples of 128, scales by rows or by groups.
**
** Values are small and scales powers of two, so all sums are exact.
*/
#include "test.h"

#include "base/context.h"
#include "cublaslt/cublaslt_api.h"
#include "product/plan.h"

#include <math.h>

enum {
    GROUPS = 5,
    TOKENS = 17, /* two are left over */
    M = 48,      /* features of dy */
    N = 16,
    K = 18, /* features of x: rows of 32 bytes */
    PITCH = 32,
    ROOM = 1 << 17,
    WIDE_K = 150, /* two blocks of 128; rows of 160 bytes */
    WIDE_PITCH = 160,
    WIDE_N = 144,
    SCALES = 4096
};
static const int64_t sizes[GROUPS] = {3, 0, 1, 7, 4};
static const int64_t long_sizes[GROUPS] = {130, 0, 1, 7, 260};

#define FP32(span_)                                                            \
    {                                                                          \
        .type = QUERN_F32, .span = span_, .order = QN_ORDER_ROWS,              \
        .pad_rows = 1, .pad_columns = 1                                        \
    }

/* As Blackwell reads them. */
#define TILES                                                                  \
    {                                                                          \
        .type = QUERN_E8M0, .span = QN_SPAN_BLOCK, .rows = 1, .k = 32,         \
        .order = QN_ORDER_TILES, .pad_rows = 128, .pad_columns = 4, .apart = 1 \
    }

#define OF(span) FP32(span), FP32(span), FP32(span)
/* As they are without tiles. */
#define PLAIN                                                                  \
    {                                                                          \
        .type = QUERN_E8M0, .span = QN_SPAN_BLOCK, .rows = 1, .k = 32,         \
        .pad_rows = 1, .pad_columns = 1                                        \
    }

static const struct qn_recipe recipes[] = {
    {TEST_SCALED("of_groups", QUERN_E4M3, QUERN_E4M3, QUERN_E5M2,
                 1u << QUERN_F32, QUERN_F32),
     .scaling = {OF(QN_SPAN_GROUP)}},
    {TEST_SCALED("of_rows", QUERN_E4M3, QUERN_E4M3, QUERN_E5M2, 1u << QUERN_F32,
                 QUERN_F32),
     .promote = 128, .scaling = {OF(QN_SPAN_ROW)}},
    {TEST_SCALED("of_tensors", QUERN_E4M3, QUERN_E4M3, QUERN_E5M2,
                 1u << QUERN_F32, QUERN_F32),
     .scaling = {OF(QN_SPAN_TENSOR)}},
    {TEST_E4M3("of_blocks", QUERN_F32),
     .scaling = {PLAIN, PLAIN, {.type = QUERN_TYPE_NONE}}},
    {TEST_E4M3("in_blocks", QUERN_F32), .promote = 128,
     .scaling = {TEST_LINES, TEST_SQUARES, TEST_LINES}},
    {TEST_E4M3("in_tiles", QUERN_F32), .scaling = {TILES, TILES, TILES}},
};
static const struct quern_registry registry = {
    .hash = "scaled", .recipes = recipes, .nrecipes = 6};

_Alignas(256) static unsigned char a[ROOM], b[ROOM];
_Alignas(256) static float d[ROOM], c[ROOM], a_sf[SCALES], b_sf[SCALES];
_Alignas(256) static char workspace[100 << 20];

/* 0, 1/2, 1 or 2, and their negatives, with so many bits of mantissa. */
static unsigned char draw(unsigned *seed, int mantissa)
{
    const int bias = mantissa == 3 ? 7 : 15;
    int value;

    *seed = *seed * 1664525 + 1013904223;
    value = (int)(*seed >> 16) % 7 - 3;
    if (!value)
        return 0;
    return (unsigned char)((abs(value) + bias - 2) << mantissa |
                           (value < 0 ? 128 : 0));
}

static float value_of(unsigned char byte, int mantissa)
{
    const int exponent = (byte & 127) >> mantissa;

    if (!exponent)
        return 0;
    return (byte & 128 ? -1.0f : 1.0f) *
           (float)(1 << (exponent - (mantissa == 3 ? 7 : 15) + 1)) / 2;
}

/* Rows of `columns` values and zeros up to `pitch`; NaN after them all. */
static void fill_rows(unsigned char *at, int rows, int columns, int pitch,
                      int mantissa, unsigned seed)
{
    memset(at, 0x7F, ROOM);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < pitch; j++)
            at[i * pitch + j] = j < columns ? draw(&seed, mantissa) : 0;
}

/* Columns of a columnwise tensor: groups at multiples of 128, zeros after
   each. */
static void fill_columns(unsigned char *at, const int64_t *lengths, int rows,
                         int pitch, int mantissa, unsigned seed)
{
    memset(at, 0x7F, ROOM);
    for (int i = 0; i < rows; i++) {
        int start = 0;
        for (int g = 0; g < GROUPS; g++) {
            const int whole = ((int)lengths[g] + 127) / 128 * 128;
            for (int j = 0; j < whole; j++)
                at[i * pitch + start + j] =
                    j < lengths[g] ? draw(&seed, mantissa) : 0;
            start += whole;
        }
    }
}

/* Powers of two without a period. */
static void fill_scales(void)
{
    unsigned seed = 5;

    for (int i = 0; i < SCALES; i++) {
        seed = seed * 1664525 + 1013904223;
        a_sf[i] = ldexpf(0.5f, (int)(seed >> 16) % 3);
        b_sf[i] = ldexpf(1, (int)(seed >> 24) % 3);
    }
}

/* A plan with the arguments for the buffers above. */
static struct qn_plan *prepare_on(struct quern_context *ctx, const char *text,
                                  int streams, struct qn_args *args)
{
    struct qn_problem p = test_problem(ctx, text);
    struct qn_description need;

    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    *args = need.args;
    args->a.data = a;
    args->b.data = b;
    args->d.data = d;
    args->a.sf = a_sf;
    args->b.sf = b_sf;
    args->host_sizes = sizes;
    args->workspace = workspace;
    for (int i = 0; i < ROOM; i++)
        d[i] = c[i] = (float)(i % 5);
    fill_scales();
    return test_plan(
        ctx, text,
        &(struct qn_plan_options){.backend = QUERN_BACKEND_CUBLASLT,
                                  .streams = streams});
}

static struct qn_plan *prepare(struct quern_context *ctx, const char *text,
                               struct qn_args *args)
{
    return prepare_on(ctx, text, 0, args);
}

static void run(struct qn_plan *plan, struct qn_args *args)
{
    test_expect(qn_run(plan, args, NULL), QUERN_OK, "");
    assert_null(test_cublaslt->broken);
    qn_plan_free(plan);
}

/* Which scale a row has, of `rows` in a group or of all tokens. */
static int scale_index(const char *recipe, int group, int row, int rows)
{
    if (!strcmp(recipe, "of_tensors"))
        return 0;
    return strcmp(recipe, "of_rows") ? group : group * rows + row;
}

/* d[i,:] = x[i,:] * w[g]^T over rowwise tensors. */
static void check_fprop(const char *recipe)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_args args;
    struct qn_plan *plan;
    char text[128];
    int token = 0;

    snprintf(text, sizeof text, "fprop %s g=%d m=%d n=%d k=%d", recipe, GROUPS,
             TOKENS, N, K);
    plan = prepare(ctx, text, &args);
    fill_rows(a, TOKENS, K, PITCH, 3, 1);
    fill_rows(b, GROUPS * N, K, PITCH, 3, 2);
    run(plan, &args);
    assert_int_equal(test_cublaslt->fast, strcmp(recipe, "of_rows") != 0);
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < sizes[g]; i++, token++)
            for (int j = 0; j < N; j++) {
                const int of_x = strcmp(recipe, "of_rows")
                                     ? scale_index(recipe, g, 0, 0)
                                     : token;
                float sum = 0;
                for (int k = 0; k < K; k++)
                    sum += value_of(a[token * PITCH + k], 3) *
                           value_of(b[(g * N + j) * PITCH + k], 3);
                sum *= a_sf[of_x] * b_sf[scale_index(recipe, g, j, N)];
                assert_true(d[token * N + j] == sum);
            }
    for (int i = token * N; i < TOKENS * N; i++)
        assert_true(d[i] == c[i]); /* no token of a group */
    qn_close(ctx);
}

/* dw[g] = dy^T x over columnwise tensors, onto beta * C; a group may be
   empty. */
static void check_wgrad(const char *recipe)
{
    static const float beta = 2;
    const int pitch = (TOKENS + 127 * GROUPS) / 128 * 128;
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_args args;
    struct qn_plan *plan;
    char text[128];
    int start = 0;

    snprintf(text, sizeof text, "wgrad %s g=%d m=%d n=%d k=%d beta=any", recipe,
             GROUPS, M, N, TOKENS);
    plan = prepare(ctx, text, &args);
    args.c = args.d;
    args.c.data = c;
    args.beta = &beta;
    if (strcmp(recipe, "of_tensors")) /* of an empty group they are nothing */
        for (int i = 0; i < (strcmp(recipe, "of_rows") ? 1 : M); i++)
            a_sf[scale_index(recipe, 1, i, M)] = NAN;
    fill_columns(a, sizes, M, pitch, 2, 3);
    fill_columns(b, sizes, N, pitch, 3, 4);
    run(plan, &args);
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                const int at = (g * M + i) * N + j;
                float sum = 0;
                for (int t = 0; t < sizes[g]; t++)
                    sum += value_of(a[i * pitch + start + t], 2) *
                           value_of(b[j * pitch + start + t], 3);
                if (sizes[g])
                    sum *= a_sf[scale_index(recipe, g, i, M)] *
                           b_sf[scale_index(recipe, g, j, N)];
                assert_true(d[at] == sum + beta * c[at]);
            }
        start += ((int)sizes[g] + 127) / 128 * 128;
    }
    qn_close(ctx);
}

/* The position of a scale, from the definition: of `row` of a group's matrix
   of `columns` scales a row, or of `rows` in all. */
static int in_line(int row, int k, int rows)
{
    return k / 128 * rows + row;
}

static int in_square(int row, int k, int columns)
{
    return row / 128 * ((columns + 3) / 4 * 4) + k / 128;
}

static int in_tile(int row, int k, int columns)
{
    const int j = k / 32;

    return (row / 128 * ((columns + 3) / 4) + j / 4) * 512 + row % 32 * 16 +
           row % 128 / 32 * 4 + j % 4;
}

/* Bytes that stand for 1/2, 1 and 2. */
static void fill_tiles(float *scales, unsigned seed)
{
    unsigned char *bytes = (unsigned char *)scales;

    for (size_t i = 0; i < SCALES * sizeof *scales; i++) {
        seed = seed * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(126 + (seed >> 16) % 3);
    }
}

static float from_tile(const float *scales, int i)
{
    return ldexpf(1, ((const unsigned char *)scales)[i] - 127);
}

/* d[i,:] += x[i,:] * w[g]^T: whole fours of rows, and what is left of each. */
static void check_wide_fprop(const char *recipe, int beta, int streams)
{
    const int tiles = !strcmp(recipe, "in_tiles");
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_args args;
    struct qn_plan *plan;
    char text[128];
    int token = 0, base = 0;

    snprintf(text, sizeof text, "fprop %s g=%d m=%d n=%d k=%d beta=%d", recipe,
             GROUPS, TOKENS, WIDE_N, WIDE_K, beta);
    plan = prepare_on(ctx, text, streams, &args);
    fill_rows(a, TOKENS, WIDE_K, WIDE_PITCH, 3, 1);
    fill_rows(b, GROUPS * WIDE_N, WIDE_K, WIDE_PITCH, 3, 2);
    if (tiles) {
        fill_tiles(a_sf, 6);
        fill_tiles(b_sf, 7);
    }
    run(plan, &args);
    assert_int_equal(test_cublaslt->fast, 0);
    for (int g = 0; g < GROUPS; base += sizes[g++] ? 128 * 8 : 0)
        for (int i = 0; i < sizes[g]; i++, token++)
            for (int j = 0; j < WIDE_N; j++) {
                float sum = 0;
                for (int k = 0; k < WIDE_K; k++)
                    sum += value_of(a[token * WIDE_PITCH + k], 3) *
                           value_of(b[(g * WIDE_N + j) * WIDE_PITCH + k], 3) *
                           (tiles ? from_tile(a_sf, base + in_tile(i, k, 5)) *
                                        from_tile(b_sf, g * 256 * 8 +
                                                            in_tile(j, k, 5))
                                  : a_sf[in_line(token, k, TOKENS + 3)] *
                                        b_sf[g * 2 * 4 + in_square(j, k, 2)]);
                sum += beta ? c[token * WIDE_N + j] : 0;
                assert_true(d[token * WIDE_N + j] == sum);
            }
    for (int i = token * WIDE_N; i < TOKENS * WIDE_N; i++)
        assert_true(d[i] == c[i]); /* no token of a group */
    qn_close(ctx);
}

/* dw[g] = dy^T x over columnwise tensors of groups with several blocks. */
static void check_wide_wgrad(const char *recipe)
{
    const int tiles = !strcmp(recipe, "in_tiles"), tokens = 400;
    const int pitch = (tokens + 127 * GROUPS) / 128 * 128;
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_args args;
    struct qn_plan *plan;
    char text[128];
    int start = 0;

    snprintf(text, sizeof text, "wgrad %s g=%d m=%d n=%d k=%d", recipe, GROUPS,
             M, N, tokens);
    plan = prepare_on(ctx, text, 1, &args);
    args.host_sizes = long_sizes;
    fill_columns(a, long_sizes, M, pitch, 3, 3);
    fill_columns(b, long_sizes, N, pitch, 3, 4);
    if (tiles) {
        fill_tiles(a_sf, 6);
        fill_tiles(b_sf, 7);
    }
    run(plan, &args);
    for (int g = 0; g < GROUPS; g++) {
        const int blocks = ((int)long_sizes[g] + 127) / 128, at = start / 128;
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float sum = 0;
                for (int t = 0; t < long_sizes[g]; t++)
                    sum +=
                        value_of(a[i * pitch + start + t], 3) *
                        value_of(b[j * pitch + start + t], 3) *
                        (tiles
                             ? from_tile(a_sf,
                                         at * 512 + in_tile(i, t, 4 * blocks)) *
                                   from_tile(b_sf,
                                             at * 512 +
                                                 in_tile(j, t, 4 * blocks))
                             : a_sf[at * M + in_line(i, t, M)] *
                                   b_sf[at * N + in_line(j, t, N)]);
                assert_true(d[(g * M + i) * N + j] == sum);
            }
        start += blocks * 128;
    }
    qn_close(ctx);
}

TEST(scales_by_blocks)
{
    check_wide_fprop("in_blocks", 0, 1);
    assert_int_equal(test_cublaslt->modes[0], LT_SCALE_BLOCK_128);
    assert_int_equal(test_cublaslt->modes[1], LT_SCALE_VECTOR_128);
    check_wide_fprop("in_blocks", 1, 1);
    check_wide_fprop("in_blocks", 1, 3);
    check_wide_wgrad("in_blocks");
    assert_int_equal(test_cublaslt->modes[0], LT_SCALE_VECTOR_128);
}

/* No GPU of ours has them; the fake does as NVIDIA's manual says. */
TEST(scales_by_tiles)
{
    test_cuda->major = 10;
    check_wide_fprop("in_tiles", 1, 1);
    assert_int_equal(test_cublaslt->modes[0], LT_SCALE_VECTOR_32);
    check_wide_wgrad("in_tiles");
    test_cuda->major = 9;
}

TEST(scales_by_groups)
{
    check_fprop("of_groups");
    check_wgrad("of_groups");
}

TEST(scales_by_rows)
{
    check_fprop("of_rows");
    check_wgrad("of_rows");
}

TEST(scales_by_tensors)
{
    check_fprop("of_tensors");
    check_wgrad("of_tensors");
}

static void expect_refusal(struct quern_context *ctx, const char *text,
                           const char *part)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_CUBLASLT};
    struct qn_problem p = test_problem(ctx, text);
    struct qn_plan *plan;
    char *why;

    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_ENOKERNEL, part);
    test_expect(qn_why(ctx, &p, &options, NULL, &why), QUERN_OK, "");
    assert_non_null(strstr(why, part));
    quern_free(why);
}

/* A plan that runs names its scales; one that does not says why. */
TEST(says_what_scales)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_CUBLASLT};
    struct quern_context *ctx = test_open_with(&registry);
    struct quern_plan_info info;
    struct qn_plan *plan;

    plan = test_plan(ctx, "fprop of_rows g=2 m=8 n=16 k=16", &options);
    qn_plan_info(plan, &info);
    assert_string_equal(info.kernel, "cublasLt 13.1.2, FP8 scaled by rows");
    qn_plan_free(plan);
    plan = test_plan(ctx, "fprop in_blocks g=2 m=8 n=16 k=16", &options);
    qn_plan_info(plan, &info);
    assert_string_equal(info.kernel, "cublasLt 13.1.2, FP8 scaled by blocks");
    qn_plan_free(plan);
    expect_refusal(ctx, "fprop of_groups g=2 m=8 n=12 k=16",
                   "n is a multiple of 16, here it is 12");
    expect_refusal(ctx, "fprop of_blocks g=2 m=8 n=16 k=32",
                   "recipe of_blocks has others");
    qn_close(ctx);
    test_cublaslt->version = 120805;
    ctx = test_open_with(&registry);
    plan = test_plan(ctx, "fprop of_groups g=2 m=8 n=16 k=16", &options);
    qn_plan_free(plan);
    expect_refusal(ctx, "fprop of_rows g=2 m=8 n=16 k=16",
                   "scales of rows from cublasLt 12.9 on, this is cublasLt "
                   "12.8.5");
    expect_refusal(ctx, "fprop in_blocks g=2 m=8 n=16 k=16",
                   "scales of blocks, fp32, from cublasLt 12.9 on, this is");
    qn_close(ctx);
    test_cublaslt->version = 0;
    test_cuda->major = 10;
    ctx = test_open_with(&registry);
    expect_refusal(ctx, "fprop in_blocks g=2 m=8 n=16 k=16",
                   "of blocks, fp32, only on Hopper, this GPU is sm_100");
    qn_close(ctx);
    test_cuda->major = 9;
    ctx = test_open_with(&registry);
    expect_refusal(ctx, "fprop in_tiles g=2 m=8 n=16 k=32",
                   "of blocks, e8m0, only on Blackwell and later GPUs, this "
                   "GPU is sm_90");
    expect_refusal(ctx, "wgrad in_blocks g=2 m=18 n=16 k=128",
                   "scales of blocks where m is a multiple of 4, here it is "
                   "18");
    qn_close(ctx);
}
