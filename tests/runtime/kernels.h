/* SPDX-License-Identifier: Apache-2.0 */
/*
** kernels.h: a registry written by hand, in the test program
** and in the fake generator, so that both agree.
**
** FUNCTION is the function of the linked host kernel, NULL in the generator,
** which also has SPEC, a host kernel that only a user's specs have.
*/
#pragma once

#include "internal.h"

#define GPU_PARAMS                                                             \
    QN_PARAM_a_map, QN_PARAM_b_map, QN_PARAM_d_map, QN_PARAM_d_ragged_map,     \
        QN_PARAM_first_dims, QN_PARAM_offsets, QN_PARAM_sizes_bytes,           \
        QN_PARAM_groups, QN_PARAM_m, QN_PARAM_n, QN_PARAM_k, QN_PARAM_error

#define HOST_PARAMS                                                            \
    QN_PARAM_a, QN_PARAM_b, QN_PARAM_d, QN_PARAM_a_stride, QN_PARAM_b_stride,  \
        QN_PARAM_d_stride, QN_PARAM_first_dims, QN_PARAM_offsets,              \
        QN_PARAM_sizes_bytes, QN_PARAM_groups, QN_PARAM_m, QN_PARAM_n,         \
        QN_PARAM_k, QN_PARAM_error

static const unsigned char gpu_params[] = {GPU_PARAMS};
static const unsigned char host_params[] = {HOST_PARAMS};

#define CAST_PARAMS                                                            \
    QN_PARAM_in, QN_PARAM_row, QN_PARAM_column, QN_PARAM_row_sf,               \
        QN_PARAM_column_sf, QN_PARAM_row_amax, QN_PARAM_column_amax,           \
        QN_PARAM_dbias, QN_PARAM_partials, QN_PARAM_first_dims,                \
        QN_PARAM_groups, QN_PARAM_m, QN_PARAM_k, QN_PARAM_error

static const unsigned char cast_params[] = {CAST_PARAMS};

static const unsigned char size_params[] = {QN_PARAM_host_sizes,
                                            QN_PARAM_device_sizes};

/* Brings a recipe's sizes that the host knows; linked. */
#define TEST_SIZES(name_, recipe_)                                             \
    {                                                                          \
        .name = name_, .spec = "kernels/test.lua:2",                           \
        .template_path = "sizes.cu", .key = "key", .recipe = recipe_,          \
        .arch = "sm_90a", .op = QN_SIZES, .input = QUERN_F32, .schedule = "",  \
        .addend = "", .threads = 256, .params = size_params,                   \
        .nparams = sizeof size_params, .cubin = "\177ELF", .cubin_bytes = 4    \
    }

static const struct qn_requires gpu_requires[] = {
    {"k % 8 == 0", "rows of A and B must start at multiples of 16 bytes"},
};

#define GROUP_SCALE                                                            \
    {                                                                          \
        .type = QUERN_F32, .span = QN_SPAN_GROUP, .pad_rows = 1,               \
        .pad_columns = 1                                                       \
    }

static const struct qn_recipe test_recipes[] = {
    {.name = "bf16",
     .doc = "values as they are",
     .spec = "recipes/bf16.lua:3",
     .x = QUERN_BF16,
     .w = QUERN_BF16,
     .dy = QUERN_BF16,
     .d_types = 1u << QUERN_BF16 | 1u << QUERN_F32,
     .default_d = QUERN_BF16,
     .scale = "none"},
    {.name = "fp16",
     .doc = "values as they are",
     .spec = "recipes/fp16.lua:3",
     .x = QUERN_F16,
     .w = QUERN_F16,
     .dy = QUERN_F16,
     .d_types = 1u << QUERN_F16 | 1u << QUERN_F32,
     .default_d = QUERN_F16,
     .scale = "none"},
    {.name = "mixed",
     .doc = "three types, to tell operands apart",
     .spec = "recipes/mixed.lua:3",
     .x = QUERN_F16,
     .w = QUERN_BF16,
     .dy = QUERN_F32,
     .d_types = 1u << QUERN_F32,
     .default_d = QUERN_F32,
     .scale = "none"},
    {.name = "group",
     .doc = "a scale for each group",
     .spec = "recipes/group.lua:3",
     .x = QUERN_E4M3,
     .w = QUERN_E4M3,
     .dy = QUERN_E4M3,
     .d_types = 1u << QUERN_BF16,
     .default_d = QUERN_BF16,
     .scaled = 1,
     .scale = "f32 per group",
     .scaling = {GROUP_SCALE, GROUP_SCALE, GROUP_SCALE}},
};

/* Fields of all recipes, with any scales; of one type and D in bf16; and
   those that have scales, of any types, and of e4m3 with one type of D. */
#define TEST_RECIPE_OF(name_, line, x_, w_, dy_, types, d_)                    \
    .name = name_, .doc = "", .spec = "recipes/test.lua:" line, .x = x_,       \
    .w = w_, .dy = dy_, .d_types = types, .default_d = d_, .rule = ""
#define TEST_RECIPE(name_, line, type)                                         \
    TEST_RECIPE_OF(name_, line, type, type, type, 1u << QUERN_BF16, QUERN_BF16)
#define TEST_SCALED(name_, x_, w_, dy_, types, d_)                             \
    TEST_RECIPE_OF(name_, "1", x_, w_, dy_, types, d_), .scaled = 1, .scale = ""
#define TEST_E4M3(name, d)                                                     \
    TEST_SCALED(name, QUERN_E4M3, QUERN_E4M3, QUERN_E4M3, 1u << (d), d)

/* Scales as fp8_block has them: of tokens, and of weights. */
#define TEST_LINES                                                             \
    {                                                                          \
        .type = QUERN_F32, .span = QN_SPAN_BLOCK, .rows = 1, .k = 128,         \
        .order = QN_ORDER_COLUMNS, .pad_rows = 4, .pad_columns = 1             \
    }
#define TEST_SQUARES                                                           \
    {                                                                          \
        .type = QUERN_F32, .span = QN_SPAN_BLOCK, .rows = 128, .k = 128,       \
        .order = QN_ORDER_ROWS, .pad_rows = 1, .pad_columns = 4                \
    }

/* The casts of dy in the recipe "group"; a sum reads fp32. */
#define CAST_KERNEL(symbol, architecture, op_, input_, params_, function)      \
    {                                                                          \
        .name = symbol, .spec = "kernels/cast.lua:1",                          \
        .template_path = "cast.cu", .key = "key_of_" symbol,                   \
        .recipe = "group", .arch = architecture, .op = op_, .of = QN_DY,       \
        .input = input_, .form = QN_PLAIN, .tile = {1, 1, 1},                  \
        .cluster = {1, 1}, .schedule = "", .addend = "", .threads = 128,       \
        .ctas = 1, .smem = 1024, .params = params_, .nparams = sizeof params_, \
        .host = function                                                       \
    }

/* The one that the fake driver executes. */
#define SIZE_KERNEL(symbol, recipe_)                                           \
    {                                                                          \
        .name = symbol, .spec = "kernels/sizes.lua:1",                         \
        .template_path = "sizes.cu", .key = "key_of_" symbol,                  \
        .recipe = recipe_, .arch = "sm_90a", .op = QN_SIZES, .of = QN_X,       \
        .input = QUERN_F32, .form = QN_PLAIN, .tile = {1, 1, 1},               \
        .cluster = {1, 1}, .schedule = "", .addend = "", .threads = 256,       \
        .ctas = 1, .params = size_params, .nparams = sizeof size_params        \
    }

/* One of the variant "fprop bf16", by its tile. */
#define GPU_KERNEL(symbol, architecture, m_, n_, cm, cn, shared)               \
    {                                                                          \
        .name = symbol, .spec = "kernels/test.lua:1",                          \
        .template_path = "test.cu", .key = "key_of_" symbol, .recipe = "bf16", \
        .arch = architecture, .op = QUERN_FPROP,                               \
        .ragged = QUERN_AXIS_M, .a = {QUERN_BF16,   QUERN_MAJOR_K,             \
                                      QUERN_AXIS_M, {64, m_ / cn},             \
                                      128,          {0}},                      \
        .b = {QUERN_BF16,    QUERN_MAJOR_K, QUERN_AXIS_NONE,                   \
              {64, n_ / cm}, 128,           {0}},                              \
        .d = {QUERN_BF16, QUERN_MAJOR_K, QUERN_AXIS_M, {64, 16}, 128, {0}},    \
        .tile = {m_, n_, 64}, .cluster = {cm, cn}, .stages = 4,                \
        .schedule = "cooperative", .addend = "none", .threads = 384,           \
        .smem = shared, .params = gpu_params, .nparams = sizeof gpu_params,    \
        .rules = gpu_requires, .nrules = 1                                     \
    }

#define HOST_KERNEL(symbol, recipe_, op_, ragged_, a_, b_, d_, function)       \
    {                                                                          \
        .name = symbol, .spec = "kernels/host.lua:1",                          \
        .template_path = "host.c", .key = "key_of_" symbol, .recipe = recipe_, \
        .arch = "host", .op = op_,                                             \
        .epilogue = op_ == QUERN_WGRAD ? QN_SCALE : QN_STORE,                  \
        .ragged = ragged_, .a = {.major = a_}, .b = {.major = b_},             \
        .d = {.type = d_}, .tile = {1, 1, 1}, .cluster = {1, 1},               \
        .schedule = "", .addend = "", .threads = 1, .params = host_params,     \
        .nparams = sizeof host_params, .host = function                        \
    }

#define TEST_KERNELS(function)                                                 \
    GPU_KERNEL("k_small", "sm_90a", 128, 128, 1, 1, 100000),                   \
        GPU_KERNEL("k_large", "sm_90a", 128, 256, 1, 1, 200000),               \
        GPU_KERNEL("k_cluster", "sm_90a", 128, 256, 2, 1, 200000),             \
        GPU_KERNEL("k_spills", "sm_90a", 256, 256, 1, 1, 200000),              \
        GPU_KERNEL("k_hungry", "sm_90a", 256, 512, 1, 1, 300000),              \
        GPU_KERNEL("k_next", "sm_100a", 128, 256, 1, 1, 200000),               \
        GPU_KERNEL("k_family", "sm_100f", 128, 128, 1, 1, 100000),             \
        HOST_KERNEL("k_host", "bf16", QUERN_FPROP, QUERN_AXIS_M,               \
                    QUERN_MAJOR_K, QUERN_MAJOR_K, QUERN_BF16, function),       \
        HOST_KERNEL("k_host_wgrad", "mixed", QUERN_WGRAD, QUERN_AXIS_K,        \
                    QUERN_MAJOR_MN, QUERN_MAJOR_MN, QUERN_F32, function),      \
        CAST_KERNEL("k_amax", "sm_90a", QN_AMAX, QUERN_BF16, cast_params,      \
                    NULL),                                                     \
        CAST_KERNEL("k_cast", "sm_90a", QN_QUANTIZE, QUERN_BF16, cast_params,  \
                    NULL),                                                     \
        CAST_KERNEL("k_sum", "sm_90a", QN_SUM, QUERN_F32, cast_params, NULL),  \
        SIZE_KERNEL("k_sizes", "bf16"), SIZE_KERNEL("k_sizes_group", "group"), \
        CAST_KERNEL("k_amax_host", "host", QN_AMAX, QUERN_BF16, host_params,   \
                    function),                                                 \
        CAST_KERNEL("k_cast_host", "host", QN_QUANTIZE, QUERN_BF16,            \
                    host_params, function)

static const struct qn_rejected test_rejected[] = {
    {.name = "k_none",
     .spec = "kernels/test.lua:9",
     .recipe = "bf16",
     .op = QUERN_FPROP,
     .ragged = QUERN_AXIS_M,
     .d_type = QUERN_BF16,
     .reason = "fewer than 3 stages cannot hide the latency of TMA"},
};

/* Fields of all kernels of a test's own registry, linked. */
#define TEST_KERNEL(symbol, recipe_, params_)                                  \
    .name = symbol, .spec = "kernels/test.lua:1", .template_path = "test.cu",  \
    .key = "key_of_" symbol, .recipe = recipe_, .arch = "sm_90a",              \
    .schedule = "", .addend = "none", .threads = 128, .ctas = 1,               \
    .params = params_, .nparams = sizeof params_, .cubin = "\177ELF",          \
    .cubin_bytes = 4, .cluster = {1, 1}
