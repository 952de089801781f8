/*
** test_protocol_forms.h: which kernels have twins that are launched many times.
*/
#ifndef QUERN_TEST_PROTOCOL_FORMS_H
#define QUERN_TEST_PROTOCOL_FORMS_H

#include "test_protocol.h"

#include <string.h>

/* What a kernel is but for op, recipe and the rest of its tile. */
struct form {
    int ragged, epilogue;
    const char *schedule;
    int tile_n, cluster_n, d_type, b_major;
    const char *addend;
    int cluster_m;
    const char *recipe; /* NULL: one without scales */
    int tile_m;         /* 0: any */
    const char *expand; /* NULL: any */
    int merges;         /* several products at once */
};

/*
** M and K say which axis is ragged. TURNS: a warpgroup has tiles of its own.
** PAIRS: two CTAs share rows of A. STACKS: they share columns of B, but in a
** group's odd last row of tiles, rows of A.
*/
static const struct form M_STORE = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        NULL,          0, NULL, 0};
static const struct form M_TURNS = {
    QUERN_AXIS_M,   QN_STORE, "pingpong", 128,  1, QUERN_BF16,
    QUERN_MAJOR_MN, "none",   1,          NULL, 0, NULL, 0};
static const struct form M_PAIRS = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 128, 2, QUERN_F32, QUERN_MAJOR_K,
    "none",       1,        NULL,          0, NULL, 0};
static const struct form M_STACKS = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       2,        NULL,          0, NULL, 0};
static const struct form M_STACKS_TURNS = {
    QUERN_AXIS_M,   QN_STORE, "pingpong", 128,  1, QUERN_F32,
    QUERN_MAJOR_MN, "none",   2,          NULL, 0, NULL, 0};
static const struct form M_SCALE = {
    QUERN_AXIS_M, QN_SCALE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "read",       1,        NULL,          0, NULL, 0};
static const struct form K_STORE = {
    QUERN_AXIS_K, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_MN,
    "none",       1,        NULL,          0, NULL, 0};
static const struct form K_TURNS = {
    QUERN_AXIS_K,   QN_STORE, "pingpong", 128,  1, QUERN_F32,
    QUERN_MAJOR_MN, "none",   1,          NULL, 0, NULL, 0};
static const struct form K_PAIRS = {
    QUERN_AXIS_K, QN_STORE, "cooperative", 128, 2, QUERN_BF16, QUERN_MAJOR_MN,
    "none",       1,        NULL,          0, NULL, 0};
/* The copy engine adds, or the registers do; or C is fetched, and added to. */
static const struct form K_ADD = {
    QUERN_AXIS_K, QN_ADD, "cooperative", 128, 2, QUERN_F32, QUERN_MAJOR_MN,
    "reduce",     1,      NULL,          0, NULL, 0};
static const struct form K_READ = {
    QUERN_AXIS_K,   QN_ADD, "pingpong", 128,  1, QUERN_BF16,
    QUERN_MAJOR_MN, "read", 1,          NULL, 0, NULL, 0};
static const struct form K_FETCH = {
    QUERN_AXIS_K,   QN_ADD,  "pingpong", 128,  1, QUERN_F32,
    QUERN_MAJOR_MN, "fetch", 1,          NULL, 0, NULL, 0};
/* 6 slabs in 4 places: each tile begins at another. */
static const struct form K_FETCH_SIX = {
    QUERN_AXIS_K, QN_ADD, "cooperative", 192, 1, QUERN_F32, QUERN_MAJOR_MN,
    "fetch",      1,      NULL,          0, NULL, 0};
static const struct form K_SCALE = {
    QUERN_AXIS_K, QN_SCALE, "cooperative", 128, 1, QUERN_F32, QUERN_MAJOR_MN,
    "read",       1,        NULL,          0, NULL, 0};
static const struct form UNIFORM = {
    QUERN_AXIS_NONE, QN_SCALE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "read",          1,        NULL,          0, NULL, 0};
static const struct form UNIFORM_TURNS = {
    QUERN_AXIS_NONE, QN_SCALE, "pingpong", 128,  1, QUERN_F32,
    QUERN_MAJOR_MN,  "read",   1,          NULL, 0, NULL, 0};

/*
** Scaled: TENSOR, ROW and BLOCK say what shares a scale. HALVES: a tile's
** columns are shared out, not its rows. TALL: its rows' scales come in two
** boxes.
*/
static const struct form TENSOR_M = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 192, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "fp8_tensor",  128, NULL, 0};
static const struct form TENSOR_M_TURNS = {
    QUERN_AXIS_M,  QN_STORE, "pingpong", 128,          1,  QUERN_F32,
    QUERN_MAJOR_K, "none",   1,          "fp8_tensor", 128, NULL, 0};
static const struct form ROW_M = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "fp8_row",     256, NULL, 0};
static const struct form ROW_M_SCALE = {
    QUERN_AXIS_M, QN_SCALE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "read",       1,        "fp8_row",     128, NULL, 0};
static const struct form BLOCK_M = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 128, 1, QUERN_F32, QUERN_MAJOR_K,
    "none",       1,        "fp8_block",   128, NULL, 0};
static const struct form BLOCK_M_TALL = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "fp8_block",   256, NULL, 0};
static const struct form BLOCK_M_HALVES = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 256, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "fp8_block",   64, NULL, 0};
static const struct form TENSOR_K = {
    QUERN_AXIS_K,  QN_STORE, "pingpong", 128,          1,  QUERN_BF16,
    QUERN_MAJOR_K, "none",   1,          "fp8_tensor", 128, NULL, 0};
static const struct form TENSOR_K_FETCH = {
    QUERN_AXIS_K,  QN_ADD,  "pingpong", 128,          1,  QUERN_F32,
    QUERN_MAJOR_K, "fetch", 1,          "fp8_tensor", 128, NULL, 0};
static const struct form ROW_K = {
    QUERN_AXIS_K, QN_STORE, "cooperative", 256, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "fp8_row",     128, NULL, 0};
static const struct form BLOCK_K = {
    QUERN_AXIS_K, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "fp8_block",   128, NULL, 0};
static const struct form BLOCK_K_ADD = {
    QUERN_AXIS_K, QN_ADD, "cooperative", 256, 1, QUERN_F32, QUERN_MAJOR_K,
    "reduce",     1,      "fp8_block",   128, NULL, 0};
static const struct form BLOCK_K_SCALE = {
    QUERN_AXIS_K, QN_SCALE, "cooperative", 128, 1, QUERN_F32, QUERN_MAJOR_K,
    "read",       1,        "fp8_block",   128, NULL, 0};

/*
** Expanded: values of blocks times their scales, in shared memory or in
** registers. GLOBAL: a second level of scales. SHORT: half of the threads have
** a row of A.
*/
static const struct form EXPAND_M = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "mxfp8",       128, "shared", 0};
static const struct form EXPAND_M_GLOBAL = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 256, 1, QUERN_F32, QUERN_MAJOR_K,
    "none",       1,        "nvfp4",       128, "shared", 0};
static const struct form EXPAND_M_SHORT = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 256, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "mxfp4",       64, "shared", 0};
static const struct form EXPAND_K = {
    QUERN_AXIS_K, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "nvfp4",       128, "shared", 0};
static const struct form EXPAND_K_ADD = {
    QUERN_AXIS_K, QN_ADD, "cooperative", 256, 1, QUERN_F32, QUERN_MAJOR_K,
    "reduce",     1,      "mxfp8",       128, "shared", 0};
static const struct form EXPAND_K_SCALE = {
    QUERN_AXIS_K, QN_SCALE, "cooperative", 128, 1, QUERN_F32, QUERN_MAJOR_K,
    "read",       1,        "nvfp4",       128, "shared", 0};

/* Six bits and scales in tiles; 4-bit weights beside A as it is. */
static const struct form EXPAND_M_TILES = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 256, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "test_mx6",    128, "shared", 0};
static const struct form EXPAND_K_TILES = {
    QUERN_AXIS_K, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "test_mx6",    128, "registers", 0};
static const struct form EXPAND_M_MIXED = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 256, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "test_w4",     64,  "shared", 0};
/* A in registers. */
static const struct form EXPAND_M_REGISTERS = {
    QUERN_AXIS_M, QN_STORE, "cooperative", 256, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "nvfp4",       128, "registers", 0};
static const struct form EXPAND_K_REGISTERS = {
    QUERN_AXIS_K, QN_STORE, "cooperative", 128, 1, QUERN_F32, QUERN_MAJOR_K,
    "none",       1,        "mxfp8",       128, "registers", 0};

/* Merged products. */
static const struct form PARTS = {
    QUERN_AXIS_K, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_MN,
    "none",       1,        NULL,          0, NULL, 1};
static const struct form PARTS_FETCH = {
    QUERN_AXIS_K,   QN_ADD,  "pingpong", 128,  1, QUERN_F32,
    QUERN_MAJOR_MN, "fetch", 1,          NULL, 0, NULL, 1};
static const struct form PARTS_BLOCK = {
    QUERN_AXIS_K, QN_STORE, "cooperative", 128, 1, QUERN_BF16, QUERN_MAJOR_K,
    "none",       1,        "fp8_block",   128, NULL, 1};

static const struct qn_recipe *recipe_of(const struct quern_registry *r,
                                         const struct qn_kernel *kernel)
{
    for (int i = 0; i < r->nrecipes; i++)
        if (!strcmp(r->recipes[i].name, kernel->recipe))
            return &r->recipes[i];
    fail_msg("no recipe %s", kernel->recipe);
    return NULL;
}

static int is_form(const struct quern_registry *r, const struct qn_kernel *k,
                   const struct form *f)
{
    if (f->recipe ? strcmp(k->recipe, f->recipe) : recipe_of(r, k)->scaled)
        return 0;
    return strcmp(k->template, "sm90/gemm.cu") == 0 && k->ragged == f->ragged &&
           (!f->tile_m || k->tile[0] == f->tile_m) &&
           (!f->expand || strcmp(k->expand, f->expand) == 0) &&
           k->epilogue == f->epilogue &&
           strcmp(k->schedule, f->schedule) == 0 && k->tile[1] == f->tile_n &&
           k->cluster[0] == f->cluster_m && k->cluster[1] == f->cluster_n &&
           k->d.type == f->d_type && k->b.major == f->b_major &&
           (k->parts > 1) == f->merges && strcmp(k->addend, f->addend) == 0;
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

#endif
