/* SPDX-License-Identifier: Apache-2.0 */
/* fuse.c: products that quantize their A: the host does this in two steps, with
   the bytes of a quantization and a product apart. */
#include "host.h"

#include <stdio.h>

enum { GROUPS = 4, ROWS = 150, N = 40, K = 264, BUFFERS = 8 };

static const int64_t sizes[GROUPS] = {0, 129, 1, 17};

/* Buffers of one strategy. */
struct strategy {
    void *row, *row_sf, *row_global, *column, *column_sf, *column_global, *d;
    void *workspace;
};

static void *zeros(size_t bytes)
{
    void *memory = aligned_alloc(256, (bytes + 511) / 256 * 256);

    assert_non_null(memory);
    memset(memory, 0, (bytes + 511) / 256 * 256);
    return memory;
}

static struct strategy make_way(const struct qn_description *need)
{
    const struct qn_args *args = &need->args;
    const struct strategy w = {
        zeros(args->a.bytes),         zeros(args->a.sf_bytes),
        zeros(args->a.global_bytes),  zeros(args->column.bytes),
        zeros(args->column.sf_bytes), zeros(args->column.global_bytes),
        zeros(args->d.bytes),         zeros(1 << 20)};

    assert_true(need->workspace_bytes <= 1 << 20);
    return w;
}

static void free_way(struct strategy *w)
{
    void *all[BUFFERS] = {w->row,    w->row_sf,    w->row_global,
                          w->column, w->column_sf, w->column_global,
                          w->d,      w->workspace};

    for (int i = 0; i < BUFFERS; i++)
        free(all[i]);
}

/* A and the columnwise tensor, as arguments have them. */
static void point(const struct strategy *w, int global, struct qn_tensor *row,
                  struct qn_tensor *column)
{
    row->data = w->row;
    row->sf = w->row_sf;
    row->global = global ? w->row_global : NULL;
    column->data = w->column;
    column->sf = w->column_sf;
    column->global = global ? w->column_global : NULL;
}

/* Both copies by a quantization of their own. */
static void quantize(struct quern_context *ctx, const char *recipe, int of,
                     void *in, int global, const struct strategy *w)
{
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct qn_quantization q;
    char line[128];

    snprintf(line, sizeof line, "quantize %s of=%s g=%d m=%d k=%d", recipe,
             of == QN_X ? "x" : "dy", GROUPS, ROWS, K);
    assert_int_equal(qn_quantize_parse(ctx, line, &q), QUERN_OK);
    assert_int_equal(qn_quantize_needs(ctx, &q, &need), QUERN_OK);
    assert_int_equal(qn_quantize_plan(ctx, &q, &host, &plan), QUERN_OK);
    point(w, global, &need.args.row, &need.args.column);
    need.args.in.data = in;
    need.args.first_dims = sizes;
    need.args.sizes_type = QUERN_I64;
    need.args.workspace = w->workspace;
    assert_int_equal(qn_quantize_run(plan, &need.args, NULL), QUERN_OK);
    qn_quantize_plan_free(plan);
    memset(w->workspace, 0, 1 << 20);
}

/* One product, of values or of a copy. */
static void multiply(struct quern_context *ctx, const char *line, void *in,
                     void *b, void *b_sf, int global, const struct strategy *w)
{
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct qn_description need;
    struct qn_problem p;
    struct qn_plan *plan;
    struct qn_tensor none;

    assert_int_equal(qn_problem_parse(ctx, line, &p), QUERN_OK);
    assert_int_equal(qn_problem_describe(ctx, &p, &need), QUERN_OK);
    assert_int_equal(qn_plan(ctx, &p, &host, &plan), QUERN_OK);
    point(w, global, &need.args.a, p.quantize ? &need.args.column : &none);
    need.args.in.data = in;
    need.args.b.data = b;
    need.args.b.sf = b_sf;
    need.args.b.global = global ? (char *)b_sf + (1 << 18) : NULL;
    need.args.d.data = w->d;
    need.args.a.first_dims = sizes;
    need.args.a.sizes_type = QUERN_I64;
    need.args.workspace = w->workspace;
    assert_int_equal(qn_run(plan, &need.args, NULL), QUERN_OK);
    assert_int_equal(qn_check(plan, &need.args, NULL), QUERN_OK);
    qn_plan_free(plan);
}

/* Values around 1, with a few zeros. */
static void *draw_numbers(size_t count)
{
    uint16_t *in = zeros(count * 2);
    uint64_t state = 11;

    for (size_t i = 0; i < count; i++)
        in[i] = (uint16_t)(qt_random_below(&state, 20)
                               ? 0x3d00 + qt_random_below(&state, 0x400) +
                                     (qt_random_below(&state, 2) << 15)
                               : 0);
    return in;
}

static void compare(const char *op, const char *recipe, const char *strategy)
{
    const int of = strcmp(op, "fprop") ? QN_DY : QN_X;
    struct quern_context *ctx;
    struct qn_description need;
    struct qn_problem p;
    struct strategy one, two;
    char apart[160], fused[200];
    void *in = draw_numbers(ROWS * K), *b, *b_sf = zeros(1 << 19);
    int global;

    assert_int_equal(qn_open(NULL, &ctx), QUERN_OK);
    snprintf(apart, sizeof apart, "%s %s g=%d m=%d n=%d k=%d", op, recipe,
             GROUPS, ROWS, N, K);
    snprintf(fused, sizeof fused, "%s quantize=%s", apart, strategy);
    assert_int_equal(qn_problem_parse(ctx, fused, &p), QUERN_OK);
    assert_int_equal(qn_problem_describe(ctx, &p, &need), QUERN_OK);
    global = need.args.a.global_bytes > 0;
    one = make_way(&need);
    two = make_way(&need);
    b = zeros(need.args.b.bytes);
    memset(b, 0x2a, need.args.b.bytes);
    memset(b_sf, 0x38, 1 << 19);
    quantize(ctx, recipe, of, in, global, &one);
    multiply(ctx, apart, NULL, b, b_sf, global, &one);
    multiply(ctx, fused, in, b, b_sf, global, &two);
    assert_memory_equal(one.row, two.row, need.args.a.bytes);
    assert_memory_equal(one.row_sf, two.row_sf, need.args.a.sf_bytes);
    assert_memory_equal(one.column, two.column, need.args.column.bytes);
    assert_memory_equal(one.column_sf, two.column_sf,
                        need.args.column.sf_bytes);
    assert_memory_equal(one.d, two.d, need.args.d.bytes);
    free_way(&one);
    free_way(&two);
    free(in);
    free(b);
    free(b_sf);
    qn_close(ctx);
}

TEST(test_fuse)
{
    compare("fprop", "fp8_block", "mainloop");
    compare("dgrad", "fp8_block", "auto");
    compare("fprop", "fp8_row", "auto");
    compare("fprop", "fp8_tensor", "mainloop");
    compare("fprop", "mxfp8", "auto");
    compare("dgrad", "mxfp4", "mainloop");
    compare("fprop", "nvfp4", "auto");
}
