/* SPDX-License-Identifier: Apache-2.0 */
/* test_protocol_forms.h: which kernels have twins that are launched many
   times. */
#pragma once

#include "test_protocol.h"

#include "choose/tensormap.h"
#include "support/form.h"

#include <string.h>

/* A kernel's form, without op, recipe and the rest of its tile. */
struct form {
    int ragged, epilogue;
    const char *schedule;
    int tile_n, cluster_m, cluster_n, d_type, b_major;
    const char *addend;
    int tile_m;         /* 0: any */
    const char *recipe; /* NULL: one without scales */
    const char *codes; /* NULL: any */
    int merges;         /* several products at once */
    const char *activation; /* NULL: there is none */
    int interleave;
    const char *quantize; /* NULL: A is there */
    int f16;              /* codes become that, not bf16 */
    int either;           /* or either, by tiles */
};

/* One of them, with the rest by name: missing fields are NULL or 0. */
#define FORM(name, ragged_, epilogue_, schedule_, n, cluster_m_, cluster_n_, d,\
             b, ...)                                                          \
    static const struct form name = {.ragged = QUERN_AXIS_##ragged_,          \
                                     .epilogue = QN_##epilogue_,              \
                                     .schedule = #schedule_,                  \
                                     .tile_n = n,                             \
                                     .cluster_m = cluster_m_,                 \
                                     .cluster_n = cluster_n_,                 \
                                     .d_type = QUERN_##d,                     \
                                     .b_major = QUERN_MAJOR_##b,              \
                                     __VA_ARGS__}

/* M and K say which axis is ragged. TURNS: a warpgroup has tiles of its own.
   PAIRS: two CTAs share rows of A. STACKS: they share columns of B, but in a
   group's odd last row of tiles, rows of A. */
FORM(M_STORE, M, STORE, cooperative, 128, 1, 1, BF16, K, .addend = "none");
FORM(M_TURNS, M, STORE, pingpong, 128, 1, 1, BF16, MN, .addend = "none");
FORM(M_PAIRS, M, STORE, cooperative, 128, 1, 2, F32, K, .addend = "none");
FORM(M_STACKS, M, STORE, cooperative, 128, 2, 1, BF16, K, .addend = "none");
FORM(M_STACKS_TURNS, M, STORE, pingpong, 128, 2, 1, F32, MN, .addend = "none");
/* A tile of five slabs, each of half the columns: examples/own_tile. */
FORM(M_NARROW, M, STORE, cooperative, 160, 2, 1, BF16, K, .addend = "none");
FORM(M_NARROW_TURNS, M, STORE, pingpong, 160, 1, 2, F32, K,
     .addend = "none");
FORM(M_ALPHA, M, ALPHA, pingpong, 192, 1, 1, BF16, K, .addend = "none");
FORM(M_SCALE, M, SCALE, cooperative, 128, 1, 1, BF16, K, .addend = "read");
/* An activation of two halves or of runs, or of one operand, or only a bias;
   TURNS without a choice. */
FORM(M_HALVES, M, ACTIVATE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .activation = "clamped_swiglu");
FORM(M_HALVES_TURNS, M, ACTIVATE, pingpong, 256, 1, 1, F32, K,
     .addend = "none", .activation = "swiglu");
FORM(M_RUNS, M, ACTIVATE, cooperative, 128, 1, 1, F32, K,
     .addend = "none", .activation = "geglu", .interleave = 32);
FORM(M_RUNS_SHORT, M, ACTIVATE, pingpong, 128, 1, 1, BF16, K,
     .addend = "none", .activation = "swiglu", .interleave = 8);
FORM(M_ALTERNATING, M, ACTIVATE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .activation = "reglu", .interleave = 1);
FORM(M_SINGLE, M, ACTIVATE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .activation = "squared_relu");
FORM(M_BIAS, M, ACTIVATE, pingpong, 128, 1, 1, BF16, K,
     .addend = "none", .activation = "none");
FORM(K_STORE, K, STORE, cooperative, 128, 1, 1, BF16, MN, .addend = "none");
FORM(K_TURNS, K, STORE, pingpong, 128, 1, 1, F32, MN, .addend = "none");
FORM(K_PAIRS, K, STORE, cooperative, 128, 1, 2, BF16, MN, .addend = "none");
/* The copy engine adds, or the registers do; or C is fetched, and added to. */
FORM(K_ADD, K, ADD, cooperative, 128, 1, 2, F32, MN, .addend = "reduce");
FORM(K_READ, K, ADD, pingpong, 128, 1, 1, BF16, MN, .addend = "read");
FORM(K_FETCH, K, ADD, pingpong, 128, 1, 1, F32, MN, .addend = "fetch");
/* 6 slabs in 4 slots: each tile begins at another. */
FORM(K_FETCH_SIX, K, ADD, cooperative, 192, 1, 1, F32, MN, .addend = "fetch");
FORM(K_SCALE, K, SCALE, cooperative, 128, 1, 1, F32, MN, .addend = "read");
FORM(UNIFORM, NONE, SCALE, cooperative, 128, 1, 1, BF16, K, .addend = "read");
FORM(UNIFORM_TURNS, NONE, SCALE, pingpong, 128, 1, 1, F32, MN,
     .addend = "read");

/* Scaled: TENSOR, ROW and BLOCK name the values that share a scale. HALVES: a
   tile's columns are shared out, not its rows. TALL: its rows' scales come in
   two boxes. */
FORM(TENSOR_M, M, STORE, cooperative, 192, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_tensor");
FORM(TENSOR_M_TURNS, M, STORE, pingpong, 128, 1, 1, F32, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_tensor");
FORM(ROW_M, M, STORE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 256, .recipe = "fp8_row");
FORM(ROW_M_SCALE, M, SCALE, cooperative, 128, 1, 1, BF16, K,
     .addend = "read", .tile_m = 128, .recipe = "fp8_row");
FORM(BLOCK_M, M, STORE, cooperative, 128, 1, 1, F32, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_block");
FORM(BLOCK_M_TALL, M, STORE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 256, .recipe = "fp8_block");
FORM(BLOCK_M_HALVES, M, STORE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .tile_m = 64, .recipe = "fp8_block");
FORM(BLOCK_M_WHOLE, M, STORE, cooperative, 192, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_block");
FORM(ROW_M_WHOLE, M, STORE, cooperative, 192, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_row");
/* A is quantized in the mainloop, and nothing of it is seen outside. */
FORM(BLOCK_M_MAINLOOP, M, STORE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_block",
     .quantize = "mainloop");
FORM(BLOCK_M_MAINLOOP_HALVES, M, STORE, cooperative, 256, 1, 1, F32, K,
     .addend = "none", .tile_m = 64, .recipe = "fp8_block",
     .quantize = "mainloop");
/* Each of two CTAs makes a half for both. */
FORM(BLOCK_M_MAINLOOP_PAIRS, M, STORE, cooperative, 256, 1, 2, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_block",
     .quantize = "mainloop");
FORM(TENSOR_K, K, STORE, pingpong, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_tensor");
FORM(TENSOR_K_FETCH, K, ADD, pingpong, 128, 1, 1, F32, K,
     .addend = "fetch", .tile_m = 128, .recipe = "fp8_tensor");
FORM(ROW_K, K, STORE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_row");
FORM(BLOCK_K, K, STORE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_block");
FORM(BLOCK_K_ADD, K, ADD, cooperative, 256, 1, 1, F32, K,
     .addend = "reduce", .tile_m = 128, .recipe = "fp8_block");
FORM(BLOCK_K_SCALE, K, SCALE, cooperative, 128, 1, 1, F32, K,
     .addend = "read", .tile_m = 128, .recipe = "fp8_block");

/* Dequantized: values of blocks times their scales, in shared memory or in
   registers. GLOBAL: a second level of scales. SHORT: half of the threads have
   a row of A. */
FORM(CODES_M, M, STORE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "mxfp8", .codes = "shared");
FORM(CODES_M_GLOBAL, M, STORE, cooperative, 256, 1, 1, F32, K,
     .addend = "none", .tile_m = 128, .recipe = "nvfp4", .codes = "shared");
FORM(CODES_M_SHORT, M, STORE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .tile_m = 64, .recipe = "mxfp4", .codes = "shared");
FORM(CODES_K, K, STORE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "nvfp4", .codes = "shared");
FORM(CODES_K_ADD, K, ADD, cooperative, 256, 1, 1, F32, K,
     .addend = "reduce", .tile_m = 128, .recipe = "mxfp8", .codes = "shared");
FORM(CODES_K_SCALE, K, SCALE, cooperative, 128, 1, 1, F32, K,
     .addend = "read", .tile_m = 128, .recipe = "nvfp4", .codes = "shared");

/* Six bits and scales in tiles; 4-bit weights next to A as it is. */
FORM(CODES_M_TILES, M, STORE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "test_mx6", .codes = "shared");
FORM(CODES_K_TILES, K, STORE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "test_mx6",
     .codes = "registers");
FORM(CODES_M_MIXED, M, STORE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .tile_m = 64, .recipe = "test_w4", .codes = "shared");
/* A in registers. */
FORM(CODES_M_REGISTERS, M, STORE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "nvfp4", .codes = "registers");
FORM(CODES_K_REGISTERS, K, STORE, cooperative, 128, 1, 1, F32, K,
     .addend = "none", .tile_m = 128, .recipe = "mxfp8", .codes = "registers");
/* Rows of B as the tensor cores' rows, in registers; A as it is. */
FORM(CODES_M_SWAPPED, M, STORE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 64, .recipe = "mxfp8", .codes = "swapped");
FORM(CODES_M_SWAPPED_GLOBAL, M, STORE, cooperative, 256, 1, 1, F32, K,
     .addend = "none", .tile_m = 32, .recipe = "nvfp4", .codes = "swapped");
FORM(CODES_M_SWAPPED_TILES, M, STORE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .tile_m = 64, .recipe = "test_mx6", .codes = "swapped");
FORM(CODES_M_SWAPPED_MIXED, M, STORE, cooperative, 256, 1, 1, F32, K,
     .addend = "none", .tile_m = 64, .recipe = "test_w4", .codes = "swapped");
/* As f16. */
FORM(CODES_M_REGISTERS_F16, M, STORE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "mxfp8", .codes = "registers",
     .f16 = 1);
/* As f16 by tiles, and those that do not fit once more as bf16. MORE: some
   tiles have few rows. */
FORM(CODES_M_SWAPPED_EITHER, M, STORE, cooperative, 256, 1, 1, F32, K,
     .addend = "none", .tile_m = 64, .recipe = "mxfp8", .codes = "swapped",
     .either = 1);
FORM(CODES_M_SWAPPED_EITHER_MORE, M, STORE, cooperative, 256, 1, 1, BF16, K,
     .addend = "none", .tile_m = 96, .recipe = "mxfp8", .codes = "swapped",
     .either = 1);
FORM(CODES_M_SWAPPED_MORE, M, STORE, cooperative, 256, 1, 1, F32, K,
     .addend = "none", .tile_m = 96, .recipe = "nvfp4", .codes = "swapped");

/* Merged products. */
FORM(MERGED, K, STORE, cooperative, 128, 1, 1, BF16, MN,
     .addend = "none", .merges = 1);
FORM(MERGED_FETCH, K, ADD, pingpong, 128, 1, 1, F32, MN,
     .addend = "fetch", .merges = 1);
FORM(MERGED_BLOCK, K, STORE, cooperative, 128, 1, 1, BF16, K,
     .addend = "none", .tile_m = 128, .recipe = "fp8_block", .merges = 1);

static const struct qn_recipe *recipe_of(const struct quern_registry *r,
                                         const struct qn_kernel *kernel)
{
    const struct qn_recipe *recipe = qt_form_recipe(r, kernel);

    if (!recipe)
        fail_msg("no recipe %s", kernel->recipe);
    return recipe;
}

static int is_form(const struct quern_registry *r, const struct qn_kernel *k,
                   const struct form *f)
{
    if (f->recipe ? strcmp(k->recipe, f->recipe) : recipe_of(r, k)->scaled)
        return 0;
    return strncmp(k->template_path, "sm90/gemm", 9) == 0 && k->ragged == f->ragged &&
           (!f->tile_m || k->tile[0] == f->tile_m) &&
           (!f->codes || strcmp(k->dequantize, f->codes) == 0) &&
           k->epilogue == f->epilogue &&
           strcmp(k->schedule, f->schedule) == 0 && k->tile[1] == f->tile_n &&
           k->cluster[0] == f->cluster_m && k->cluster[1] == f->cluster_n &&
           k->d.type == f->d_type && k->b.major == f->b_major &&
           (k->microbatches > 1) == f->merges &&
           strcmp(k->addend, f->addend) == 0 &&
           strcmp(k->activation, f->activation ? f->activation : "") == 0 &&
           k->interleave == f->interleave &&
           qn_tensormap_takes(k, QN_PARAM_bases) == f->f16 &&
           (strcmp(k->becomes, "either") == 0) == f->either &&
           strcmp(k->quantize, f->quantize ? f->quantize : "pass") == 0;
}

static const struct qn_kernel *find_kernel(struct qg *gen, struct form form)
{
    const struct quern_registry *r = qg_registry(gen);

    for (int i = 0; i < r->nkernels; i++)
        if (is_form(r, &r->kernels[i], &form))
            return &r->kernels[i];
    fail_msg("no %s kernel with tile n %d, cluster n %d", form.schedule,
             form.tile_n, form.cluster_n);
    return NULL;
}
