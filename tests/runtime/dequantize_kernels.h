/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize_kernels.h: recipes and kernels of test_dequantize.c,
   test_requantize.c and test_range.c. Those without scales are of the recipe
   "bf16", which the tests' registry has. */
#pragma once

#include "kernels.h"

#define P(name) QN_PARAM_##name

#define BLOCKS(type_, k_, global_)                                             \
    {                                                                          \
        .type = type_, .span = QN_SPAN_BLOCK, .rows = 1, .k = k_,              \
        .pad_rows = 1, .pad_columns = 1, .global = global_                     \
    }
#define LINES                                                                  \
    {                                                                          \
        .type = QUERN_F32, .span = QN_SPAN_BLOCK, .rows = 1, .k = 128,         \
        .order = QN_ORDER_COLUMNS, .pad_rows = 4, .pad_columns = 1, .apart = 1 \
    }
#define SQUARES                                                                \
    {                                                                          \
        .type = QUERN_F32, .span = QN_SPAN_BLOCK, .rows = 128, .k = 128,       \
        .pad_rows = 1, .pad_columns = 4                                        \
    }
#define ROWS                                                                   \
    {                                                                          \
        .type = QUERN_F32, .span = QN_SPAN_ROW, .rows = 1, .pad_rows = 1,      \
        .pad_columns = 1                                                       \
    }
#define NEAR                                                                   \
    {                                                                          \
        .type = QUERN_E8M0, .span = QN_SPAN_BLOCK, .rows = 1, .k = 32,         \
        .pad_rows = 1, .pad_columns = 1, .packed = 1, .as = QUERN_E4M3         \
    }
enum {
    HALVES = 1u << QUERN_BF16 | 1u << QUERN_F16,
    WIDE = 1u << QUERN_BF16 | 1u << QUERN_F32
};

static const struct qn_recipe recipes[] = {
    {TEST_SCALED("blocks", QUERN_E4M3, QUERN_E4M3, QUERN_E4M3, WIDE | HALVES,
                 QUERN_BF16),
     .scaling = {BLOCKS(QUERN_E8M0, 32, 0), BLOCKS(QUERN_E8M0, 32, 0),
                 BLOCKS(QUERN_E8M0, 32, 0)}},
    {TEST_SCALED("levels", QUERN_E2M1, QUERN_E2M1, QUERN_E2M1, WIDE,
                 QUERN_BF16),
     .scaling = {BLOCKS(QUERN_E4M3, 16, 1), BLOCKS(QUERN_E4M3, 16, 1),
                 BLOCKS(QUERN_E4M3, 16, 1)}},
    {TEST_SCALED("weights", QUERN_BF16, QUERN_E4M3, QUERN_BF16, WIDE,
                 QUERN_BF16),
     .scaling = {{0}, BLOCKS(QUERN_E8M0, 32, 0), {0}}},
    {TEST_SCALED("halves", QUERN_F16, QUERN_E4M3, QUERN_F16, WIDE, QUERN_BF16),
     .scaling = {{0}, BLOCKS(QUERN_E8M0, 32, 0), {0}}},
    {TEST_SCALED("sums", QUERN_E4M3, QUERN_E4M3, QUERN_E4M3, WIDE, QUERN_BF16),
     .scaling = {BLOCKS(QUERN_F32, 128, 0), BLOCKS(QUERN_F32, 128, 0),
                 BLOCKS(QUERN_F32, 128, 0)}},
    {TEST_SCALED("powers", QUERN_E2M1, QUERN_E2M1, QUERN_E2M1, WIDE,
                 QUERN_BF16),
     .scaling = {BLOCKS(QUERN_E8M0, 32, 0), BLOCKS(QUERN_E8M0, 32, 0),
                 BLOCKS(QUERN_E8M0, 32, 0)}},
    {TEST_SCALED("squares", QUERN_E4M3, QUERN_E4M3, QUERN_E4M3, WIDE,
                 QUERN_BF16),
     .promote = 128, .scaling = {LINES, SQUARES, LINES}},
    {TEST_SCALED("mixed8", QUERN_E4M3, QUERN_E2M1, QUERN_E4M3, WIDE,
                 QUERN_BF16),
     .promote = 128, .scaling = {LINES, BLOCKS(QUERN_E8M0, 32, 0), LINES}},
    {TEST_SCALED("close", QUERN_E4M3, QUERN_E4M3, QUERN_E4M3, WIDE, QUERN_BF16),
     .scaling = {BLOCKS(QUERN_E8M0, 32, 0), BLOCKS(QUERN_E8M0, 32, 0),
                 BLOCKS(QUERN_E8M0, 32, 0)}},
    {TEST_SCALED("coarse", QUERN_E4M3, QUERN_E4M3, QUERN_E4M3, WIDE,
                 QUERN_BF16),
     .scaling = {BLOCKS(QUERN_E8M0, 64, 0), BLOCKS(QUERN_E8M0, 64, 0),
                 BLOCKS(QUERN_E8M0, 64, 0)}},
    {TEST_SCALED("near8", QUERN_E4M3, QUERN_E2M1, 0, WIDE, QUERN_BF16),
     .promote = 128, .scaling = {ROWS, NEAR, {0}}},
    {TEST_SCALED("rows8", QUERN_E4M3, QUERN_E4M3, QUERN_E4M3, WIDE, QUERN_BF16),
     .promote = 128, .scaling = {ROWS, ROWS, ROWS}}, /* the last one */
};

/* The trail's record of a launch. */
enum { ROW, COLUMN, ROW_SF, OUT, ALIGN, FIRST_DIMS, NOOP, ERROR };
enum { A, B, D, ALPHA, BETA, LENGTHS, OFFSETS, RECORD };
enum { BEHIND = ALPHA }; /* noop */
enum { CODED_ROW, CODED_COLUMN, CODED_SF, CODES, SCALES, FLAGS, TOKENS, SKIP };
enum { NARROW_A, NARROW_B, A_SF, B_SF, NARROW_D, OFF, SIZED };
enum { SEEN_A, SEEN_A_SF, SEEN_B, SEEN_B_SF, SAID, SEEN_SIZES, SEEN_NOOP };
enum { TRIED_A, TRIED_B, TRIED_D, TRIED_OFF, BASES, TRIED_SIZES };
enum { A_GLOBAL, B_GLOBAL, GIVEN, GIVEN_BETA, FACTORS, SIZES, STARTS, PLACE };
enum { BEGUN = FACTORS, BEGUN_NOOP = STARTS }; /* of two strategies */

static const unsigned char trail_cast[] = {P(row),  P(column), P(row_sf),
                                           P(out),  P(align),  P(first_dims),
                                           P(noop), P(error)};
static const unsigned char trail_product[] = {
    P(a), P(b), P(d), P(alpha), P(beta), P(first_dims), P(offsets), P(error)};
static const unsigned char trail_coded[] = {P(row),        P(column), P(row_sf),
                                            P(out),        P(out_sf), P(flags),
                                            P(first_dims), P(noop)};
static const unsigned char trail_narrow[] = {
    P(a), P(b), P(a_sf), P(b_sf), P(d), P(noop), P(first_dims), P(d_map)};
static const unsigned char trail_range[] = {
    P(a), P(a_sf), P(b), P(b_sf), P(flags), P(first_dims), P(noop), P(error)};
static const unsigned char trail_tried[] = {
    P(a), P(b), P(d), P(noop), P(bases), P(first_dims), P(offsets), P(d_map)};
static const unsigned char trail_behind[] = {
    P(a), P(b), P(d), P(noop), P(beta), P(first_dims), P(offsets), P(d_map)};
static const unsigned char trail_begun[] = {
    P(a_global), P(b_global),   P(alpha), P(beta),
    P(flags),    P(first_dims), P(noop),  P(device_sizes)};
static const unsigned char trail_factors[] = {
    P(a_global), P(b_global),   P(alpha),   P(beta),
    P(factors),  P(first_dims), P(offsets), P(device_sizes)};

#define COMMON(name_, recipe_)                                                 \
    .name = name_, .spec = "kernels/test.lua:1", .template_path = "test.cu",   \
    .key = "key", .recipe = recipe_, .arch = "sm_90a", .schedule = "",         \
    .addend = "none", .threads = 128, .nparams = 8, .cubin = "\177ELF",        \
    .cubin_bytes = 4, .cluster = {1, 1}
#define CAST(name_, recipe_, of_)                                              \
    {                                                                          \
        COMMON(name_, recipe_), .op = QN_DEQUANTIZE, .of = of_,                \
                                .input = QUERN_BF16, .ctas = 1,                \
                                .params = trail_cast                           \
    }
#define CASTS(recipe_)                                                         \
    CAST(recipe_ "_x", recipe_, QN_X), CAST(recipe_ "_w", recipe_, QN_W),      \
        CAST(recipe_ "_dy", recipe_, QN_DY)
#define PRODUCT(name_, recipe_, op_, ragged_, epilogue_, a_, b_)               \
    {                                                                          \
        COMMON(name_, recipe_),                                                \
            .op = op_, .ragged = ragged_, .epilogue = epilogue_,               \
            .a = {.type = QUERN_BF16, .major = QUERN_MAJOR_##a_},              \
            .b = {.type = QUERN_BF16, .major = QUERN_MAJOR_##b_},              \
            .d = {.type = QUERN_BF16}, .tile = {128, 128, 64},                 \
            .params = trail_product                                            \
    }
#define FACTORS(recipe_)                                                       \
    {                                                                          \
        COMMON(recipe_ "_factors", recipe_),                                   \
            .op = QN_FACTORS, .input = QUERN_F32, .params = trail_factors      \
    }
#define BEGINS(recipe_)                                                        \
    {                                                                          \
        COMMON(recipe_ "_begin", recipe_),                                     \
            .op = QN_FACTORS, .input = QUERN_F32, .params = trail_begun        \
    }
#define ENCODE(name_, recipe_, of_)                                            \
    {                                                                          \
        COMMON(name_, recipe_), .op = QN_REQUANTIZE, .of = of_, .ctas = 4,     \
                                .params = trail_coded                          \
    }
#define RANGE(name_)                                                           \
    {                                                                          \
        COMMON(name_, "close"), .op = QN_RANGE, .input = QUERN_F32, .ctas = 3, \
                                .params = trail_range                          \
    }
#define TRIED(name_, op_, ragged_, epilogue_, params_)                         \
    {                                                                          \
        COMMON(name_, "close"),                                                \
            .op = op_, .ragged = ragged_, .epilogue = epilogue_,               \
            .a = {.type = QUERN_E4M3}, .b = {.type = QUERN_E4M3},              \
            .d = {.type = QUERN_BF16, .box = {64, 64}},                        \
            .tile = {128, 128, 64}, .dequantize = "registers",                 \
            .params = params_                                                  \
    }
#define NARROW(name_, recipe_, op_, ragged_)                                   \
    {                                                                          \
        COMMON(name_, recipe_),                                                \
            .op = op_, .ragged = ragged_, .epilogue = QN_STORE,                \
            .a = {.type = QUERN_E4M3}, .b = {.type = QUERN_E4M3},              \
            .d = {.type = QUERN_BF16, .box = {64, 64}},                        \
            .tile = {128, 128, 128}, .params = trail_narrow                    \
    }
#define BRINGS(recipe_)           TEST_SIZES("k_sizes_" recipe_, recipe_)
#define INSIDE_OF(recipe_, type_) INSIDE(recipe_, type_, type_, "registers")
#define INSIDE(recipe_, a_, b_, dequantize_)                                   \
    {                                                                          \
        COMMON(recipe_ "_mainloop", recipe_),                                  \
            .op = QUERN_FPROP, .ragged = QUERN_AXIS_M, .epilogue = QN_STORE,   \
            .a = {.type = a_}, .b = {.type = b_}, .d = {.type = QUERN_BF16},   \
            .tile = {128, 128, 64}, .dequantize = dequantize_,                 \
            .params = trail_product                                            \
    }

static const struct qn_kernel kernels[] = {
    CASTS("blocks"),
    CASTS("levels"),
    CASTS("weights"),
    FACTORS("blocks"),
    FACTORS("levels"),
    BRINGS("blocks"),
    INSIDE_OF("blocks", QUERN_E4M3),
    PRODUCT("fprop", "bf16", QUERN_FPROP, QUERN_AXIS_M, QN_STORE, K, K),
    PRODUCT("fprop_scale", "bf16", QUERN_FPROP, QUERN_AXIS_M, QN_SCALE, K, K),
    PRODUCT("dgrad", "bf16", QUERN_DGRAD, QUERN_AXIS_M, QN_STORE, K, MN),
    PRODUCT("dgrad_tn", "bf16", QUERN_DGRAD, QUERN_AXIS_M, QN_STORE, K, K),
    PRODUCT("wgrad", "bf16", QUERN_WGRAD, QUERN_AXIS_K, QN_STORE, MN, MN),
    PRODUCT("wgrad_scale", "bf16", QUERN_WGRAD, QUERN_AXIS_K, QN_SCALE, MN, MN),
    CASTS("powers"),
    BEGINS("powers"),
    BRINGS("powers"),
    ENCODE("powers_x_again", "powers", QN_X),
    ENCODE("powers_w_again", "powers", QN_W),
    ENCODE("powers_dy_again", "powers", QN_DY),
    INSIDE_OF("powers", QUERN_E2M1),
    BEGINS("mixed8"),
    ENCODE("mixed8_w_again", "mixed8", QN_W),
    INSIDE_OF("mixed8", QUERN_E4M3),
    BRINGS("close"),
    RANGE("close_range"),
    TRIED("f16_fprop", QUERN_FPROP, QUERN_AXIS_M, QN_STORE, trail_tried),
    TRIED("f16_dgrad", QUERN_DGRAD, QUERN_AXIS_M, QN_STORE, trail_tried),
    TRIED("close_fprop", QUERN_FPROP, QUERN_AXIS_M, QN_STORE, trail_behind),
    TRIED("close_dgrad", QUERN_DGRAD, QUERN_AXIS_M, QN_STORE, trail_behind),
    NARROW("narrow_fprop", "squares", QUERN_FPROP, QUERN_AXIS_M),
    NARROW("narrow_dgrad", "squares", QUERN_DGRAD, QUERN_AXIS_M),
    NARROW("narrow_wgrad", "squares", QUERN_WGRAD, QUERN_AXIS_K),
    BEGINS("near8"),
    ENCODE("near8_w_rows", "near8", QN_W),
    INSIDE("near8", QUERN_E4M3, QUERN_E2M1, "rebased"),
    NARROW("rows_fprop", "rows8", QUERN_FPROP, QUERN_AXIS_M)};
static const struct quern_registry registry = {
    .hash = "dequantize",
    .recipes = recipes,
    .nrecipes = sizeof recipes / sizeof *recipes,
    .kernels = kernels,
    .nkernels = sizeof kernels / sizeof *kernels};
