/* SPDX-License-Identifier: Apache-2.0 */
/* mlp_scene.h: recipes, kernels and a fixture of the tests of grouped MLPs. */
#pragma once

#include "test.h"

#include <stdlib.h>

#define P(name) QN_PARAM_##name

/* ------------------------------------------------------------ the registry */

#define BLOCKS(rows_, order_)                                                  \
    {                                                                          \
        .type = QUERN_F32, .span = QN_SPAN_BLOCK, .rows = rows_, .k = 128,     \
        .order = order_, .pad_rows = 4, .pad_columns = 4                       \
    }

#define EXPONENTS                                                              \
    {                                                                          \
        .type = QUERN_E8M0, .span = QN_SPAN_BLOCK, .rows = 1, .k = 32,         \
        .pad_rows = 1, .pad_columns = 1                                        \
    }

static const struct qn_recipe recipes[] = {
    {TEST_RECIPE("plain", "1", QUERN_BF16), .scale = "none"},
    {TEST_RECIPE("scaled", "2", QUERN_E4M3), .scaled = 1, .scale = "",
     .scaling = {BLOCKS(1, QN_ORDER_COLUMNS), BLOCKS(128, QN_ORDER_ROWS),
                 BLOCKS(1, QN_ORDER_COLUMNS)}},
    {TEST_RECIPE("mx", "3", QUERN_E4M3), .scaled = 1, .scale = "",
     .scaling = {EXPONENTS, EXPONENTS, EXPONENTS}},
};

/* The trail's record of a launch; the same for all casts, for all products. */
enum { IN, SAVED, ROW, COLUMN, PROBABILITY, DPROB, FIRST_DIMS, ERROR };
enum { FUSED_A, FUSED_SAVED, FUSED_D, FUSED_B, FUSED_PROBABILITY };
enum { FUSED_D_SF = FUSED_PROBABILITY + 1, FUSED_T };
enum { A, B, D, A_SF, B_SF, A_STRIDE };
enum { BIASED_A, BIASED_B, BIASED_D, BIASED_D_STRIDE, BIAS, FACTOR };
enum { ADDED_TO, ADDED_STRIDE, ADDED, ADDED_FACTOR };
enum { SUMMED, SUMMED_STRIDE, SUMMED_ROW, WEIGHT, DBIAS, ADDS, B2, OF_B2 };

static const unsigned char trail_cast[] = {
    P(in),          P(saved), P(row),        P(column),
    P(probability), P(dprob), P(first_dims), P(error)};
static const unsigned char trail_product[] = {
    P(a), P(b), P(d), P(a_sf), P(b_sf), P(a_stride), P(first_dims), P(error)};

static const unsigned char trail_biased[] = {
    P(a),    P(b),           P(d),          P(d_stride),
    P(bias), P(probability), P(first_dims), P(error)};
static const unsigned char trail_sums[] = {
    P(in),    P(in_stride), P(row),  P(probability),
    P(dbias), P(dbias_add), P(bias), P(dprob)};

static const unsigned char trail_added[] = {
    P(out),        P(out_stride), P(bias), P(probability),
    P(first_dims), P(offsets),    P(k),    P(error)};

static const unsigned char trail_fused[] = {
    P(a),           P(saved),  P(d),      P(b),
    P(probability), P(row_sf), P(column), P(column_sf)};

#define COMMON(name_, recipe_)                                                 \
    .name = name_, .spec = "kernels/test.lua:1", .template_path = "test.cu",   \
    .key = "key", .recipe = recipe_, .arch = "sm_90a", .schedule = "",         \
    .addend = "none", .threads = 128, .nparams = 8, .cubin = "\177ELF",        \
    .cubin_bytes = 4
#define CAST_OF(name_, recipe_, op_, of_, form_, input_, params_)              \
    {                                                                          \
        COMMON(name_, recipe_), .op = op_, .of = of_, .input = input_,         \
                                .form = form_, .ctas = 1, .params = params_    \
    }
#define CAST(name_, recipe_, op_, of_, form_)                                  \
    CAST_OF(name_, recipe_, op_, of_, form_, QUERN_BF16, trail_cast)
/* Sums over rows for a bias, and its factors' gradients. */
#define SUM(name_, recipe_)                                                    \
    CAST_OF(name_, recipe_, QN_SUM, QN_DY, QN_PLAIN, QUERN_F32, trail_sums)
#define SUMS(recipe_)                                                          \
    CAST_OF(recipe_ "_sums", recipe_, QN_QUANTIZE, QN_DY, QN_PLAIN,            \
            QUERN_BF16, trail_sums),                                           \
        CAST_OF(recipe_ "_dprob_b2", recipe_, QN_DPROB, QN_DY, QN_PLAIN,       \
                QUERN_BF16, trail_sums),                                       \
        SUM(recipe_ "_sum", recipe_)
#define BIASED(recipe_)                                                        \
    {                                                                          \
        COMMON(recipe_ "_biased", recipe_),                                    \
            .op = QUERN_FPROP, .ragged = QUERN_AXIS_M,                         \
            .epilogue = QN_ACTIVATE, .activation = "none",                     \
            .d = {.type = QUERN_BF16}, .tile = {128, 128, 64},                 \
            .cluster = {1, 1}, .params = trail_biased                          \
    }
#define PRODUCT(name_, recipe_, op_, ragged_, a_, b_)                          \
    {                                                                          \
        COMMON(name_, recipe_),                                                \
            .op = op_, .ragged = ragged_, .epilogue = QN_STORE,                \
            .a = {.major = QUERN_MAJOR_##a_},                                  \
            .b = {.major = QUERN_MAJOR_##b_}, .d = {.type = QUERN_BF16},       \
            .tile = {128, 128, 64}, .cluster = {1, 1}, .params = trail_product \
    }

static const struct qn_kernel kernels[] = {
    CAST("plain_h", "plain", QN_QUANTIZE, QN_X, QN_FORWARD),
    CAST("plain_dpre", "plain", QN_QUANTIZE, QN_DY, QN_BACKWARD),
    CAST("plain_dprob", "plain", QN_DPROB, QN_DY, QN_BACKWARD),
    PRODUCT("plain_fprop", "plain", QUERN_FPROP, QUERN_AXIS_M, K, K),
    PRODUCT("plain_dgrad", "plain", QUERN_DGRAD, QUERN_AXIS_M, K, MN),
    PRODUCT("plain_wgrad", "plain", QUERN_WGRAD, QUERN_AXIS_K, MN, MN),
    CAST("cast_x", "scaled", QN_QUANTIZE, QN_X, QN_PLAIN),
    CAST("cast_h", "scaled", QN_QUANTIZE, QN_X, QN_FORWARD),
    CAST("cast_w", "scaled", QN_QUANTIZE, QN_W, QN_PLAIN),
    CAST("cast_dy", "scaled", QN_QUANTIZE, QN_DY, QN_PLAIN),
    CAST("cast_dpre", "scaled", QN_QUANTIZE, QN_DY, QN_BACKWARD),
    CAST("dprob", "scaled", QN_DPROB, QN_DY, QN_BACKWARD),
    PRODUCT("fprop", "scaled", QUERN_FPROP, QUERN_AXIS_M, K, K),
    PRODUCT("dgrad", "scaled", QUERN_DGRAD, QUERN_AXIS_M, K, K),
    PRODUCT("wgrad", "scaled", QUERN_WGRAD, QUERN_AXIS_K, K, K),
    TEST_SIZES("k_sizes_plain", "plain"),
    TEST_SIZES("k_sizes_scaled", "scaled"),
    /* for tests of biases; "bf16" is a recipe of all tests */
    BIASED("plain"),
    SUMS("plain"),
    BIASED("bf16"),
    SUMS("bf16"),
    {COMMON("plain_wgrad_add", "plain"), .op = QUERN_WGRAD,
     .ragged = QUERN_AXIS_K, .epilogue = QN_ADD, .a = {.major = QUERN_MAJOR_MN},
     .b = {.major = QUERN_MAJOR_MN}, .d = {.type = QUERN_BF16},
     .tile = {128, 128, 64}, .cluster = {1, 1}, .params = trail_product},
    CAST("mx_x", "mx", QN_QUANTIZE, QN_X, QN_PLAIN),
    CAST("mx_h", "mx", QN_QUANTIZE, QN_X, QN_FORWARD),
    CAST("mx_w", "mx", QN_QUANTIZE, QN_W, QN_PLAIN),
    CAST("mx_dy", "mx", QN_QUANTIZE, QN_DY, QN_PLAIN),
    CAST("mx_dpre", "mx", QN_QUANTIZE, QN_DY, QN_BACKWARD),
    CAST("mx_dprob", "mx", QN_DPROB, QN_DY, QN_BACKWARD),
    SUM("mx_sum", "mx"),
    CAST_OF("plain_bias", "plain", QN_BIAS, QN_X, QN_PLAIN, QUERN_BF16,
            trail_added),
    CAST_OF("bf16_bias", "bf16", QN_BIAS, QN_X, QN_PLAIN, QUERN_BF16,
            trail_added),
    CAST("mx_dequantize_x", "mx", QN_DEQUANTIZE, QN_X, QN_PLAIN),
    CAST("mx_dequantize_w", "mx", QN_DEQUANTIZE, QN_W, QN_PLAIN),
    {COMMON("mx_fprop", "mx"), .op = QUERN_FPROP, .ragged = QUERN_AXIS_M,
     .a = {.type = QUERN_E4M3}, .b = {.type = QUERN_E4M3},
     .d = {.type = QUERN_BF16}, .tile = {128, 128, 64}, .cluster = {1, 1},
     .dequantize = "registers", .params = trail_product},
    {COMMON("bf16_fprop", "bf16"), .op = QUERN_FPROP, .ragged = QUERN_AXIS_M,
     .a = {.type = QUERN_BF16}, .b = {.type = QUERN_BF16},
     .d = {.type = QUERN_BF16}, .tile = {128, 128, 64}, .cluster = {1, 1},
     .params = trail_product},
    PRODUCT("mx_dgrad", "mx", QUERN_DGRAD, QUERN_AXIS_M, K, K),
    PRODUCT("mx_wgrad", "mx", QUERN_WGRAD, QUERN_AXIS_K, K, K),
    /* only for their tests: pre and h at once */
    {COMMON("scaled_fused", "scaled"), .op = QUERN_FPROP,
     .ragged = QUERN_AXIS_M, .epilogue = QN_COPIES, .activation = "swiglu",
     .d = {.type = QUERN_BF16}, .tile = {128, 128, 64}, .cluster = {1, 1},
     .params = trail_fused},
    {COMMON("plain_fused", "plain"), .op = QUERN_FPROP, .ragged = QUERN_AXIS_M,
     .epilogue = QN_ACTIVATE, .activation = "swiglu", .d = {.type = QUERN_BF16},
     .tile = {128, 128, 64}, .cluster = {1, 1}, .params = trail_fused},
};

/* The last of them are not in all registries. */
enum {
    ALL = sizeof kernels / sizeof *kernels,
    OF_FUSION = 2,
    OF_BIASES = 24 /* before those */
};
#define REGISTRY(hash_, count_)                                                \
    {                                                                          \
        .hash = hash_, .recipes = recipes, .nrecipes = 3, .kernels = kernels,  \
        .nkernels = count_                                                     \
    }
static const struct quern_registry registry =
    REGISTRY("mlp", ALL - OF_FUSION - OF_BIASES);
static const struct quern_registry with_biases =
    REGISTRY("mlp, biases", ALL - OF_FUSION);
static const struct quern_registry with_fused = REGISTRY("mlp, fused", ALL);

/* ---------------------------------------------------------------- a fixture */

enum { ROOM = 1 << 16, ROOMS = 40 };

struct fixture {
    struct quern_context *ctx;
    struct qn_mlp_plan *plan;
    struct qn_mlp_description need;
    struct qn_mlp_args args;
    char *memory;
    int used;
};

static inline void *room(struct fixture *f)
{
    assert_in_range(f->used, 0, ROOMS - 1);
    return f->memory + f->used++ * ROOM;
}

static inline void give(struct fixture *f, struct qn_tensor *t)
{
    if (!t->ndim)
        return;
    assert_in_range(t->bytes, 0, ROOM);
    t->data = room(f);
    t->sf = t->sf_bytes ? room(f) : NULL;
}

static inline struct fixture begin_with(const char *recipe, const char *more,
                                        const struct quern_registry *linked)
{
    struct fixture f = {.used = 0};
    struct qn_mlp_args *a = &f.args;
    struct quern_plan_info info;
    struct qn_mlp mlp;
    char text[128];

    snprintf(text, sizeof text, "mlp %s g=3 m=60 hidden=64 ffn=32%s%s", recipe,
             strstr(more, "prob=") ? "" : " prob=1", more);
    f.ctx = test_open_with(linked);
    test_expect(qn_mlp_parse(f.ctx, text, &mlp), QUERN_OK, "");
    test_expect(qn_mlp_needs(f.ctx, &mlp, &f.need), QUERN_OK, "");
    test_expect(qn_mlp_plan(f.ctx, &mlp, &test_aot, &f.plan), QUERN_OK, "");
    f.memory = aligned_alloc(256, ROOMS * ROOM + 8 * ROOM);
    assert_non_null(f.memory);
    memset(f.memory, 0, ROOMS * ROOM + 8 * ROOM);
    f.args = f.need.args;
    give(&f, &a->x), give(&f, &a->y), give(&f, &a->dy), give(&f, &a->dx);
    give(&f, &a->w1), give(&f, &a->w2), give(&f, &a->dw1), give(&f, &a->dw2);
    give(&f, &a->w1_row), give(&f, &a->w1_column);
    give(&f, &a->w2_row), give(&f, &a->w2_column);
    a->first_dims = room(&f);
    a->probability = room(&f);
    a->dprob = room(&f);
    a->b1 = mlp.bias ? room(&f) : NULL;
    a->b2 = mlp.bias ? room(&f) : NULL;
    a->db1 = mlp.bias ? room(&f) : NULL;
    a->db2 = mlp.bias ? room(&f) : NULL;
    a->workspace = room(&f);
    qn_mlp_plan_info(f.plan, &info);
    assert_in_range(info.workspace_bytes, 256, ROOM);
    assert_true(info.workspace_bytes <= f.need.workspace_bytes);
    a->saved = f.memory + ROOMS * ROOM;
    assert_in_range(f.need.saved_bytes, 1, 8 * ROOM);
    a->pending = room(&f);
    assert_in_range(f.need.pending_bytes, 1, ROOM);
    test_cuda->trailed = FAKE_TRAILED;
    return f;
}

static inline void end(struct fixture *f)
{
    qn_mlp_plan_free(f->plan);
    qn_close(f->ctx);
    free(f->memory);
}

/* The launches since the last call, by name. */
static inline void launched(const char *const *names)
{
    int i = 0;

    for (; names[i]; i++)
        assert_string_equal(test_cuda->trail[i].kernel, names[i]);
    assert_int_equal(test_cuda->launches, i);
    test_cuda->launches = 0;
}

#define LAUNCHED(...) launched((const char *const[]){__VA_ARGS__, NULL})

static inline const void *param(int launch, int which)
{
    return (const void *)(uintptr_t)test_cuda->trail[launch].params[which];
}

/* Is the address in the workspace? */
static inline int is_scratch(const struct fixture *f, const void *at)
{
    const char *workspace = f->args.workspace;

    return (const char *)at >= workspace + 256 &&
           (const char *)at < workspace + f->need.workspace_bytes;
}
