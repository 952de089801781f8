/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.c: quern_run gives the bytes of the internal functions. */
#include "api.h"

#include "base/types.h"
#include "layer/moe_plan.h"

enum { ROWS = 72, FEATURES = 64 };

static const int64_t shapes[][API_GROUPS] = {
    {0, 1, 7, 40}, {0, 0, 48, 0}, {0, 0, 0, 0}, {17, 0, 1, 30}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* The same line run by internal functions. */
struct twin {
    struct api_run run;
    union qn_given given;
    union {
        struct qn_plan *product;
        struct qn_quantize_plan *cast;
        struct qn_mlp_plan *mlp;
        struct qn_moe_plan *moe;
    } plan;
};

/* All arguments of a run of so many rows; -1: of the line's. */
static void give(struct twin *t, struct qn_line line, int64_t rows)
{
    int64_t *length = qn_api_rows(&line);
    union qn_needs needs;
    enum qn_slot_form form;

    if (length && rows >= 0)
        *length = rows;
    test_expect(qn_api_needs(t->run.ctx, &line, &needs), QUERN_OK, "");
    if (qn_api_has_mlp(line.kind))
        t->given.mlp = needs.mlp.args;
    else if (line.kind == QN_LINE_CAST)
        t->given.cast = needs.cast.args;
    else
        t->given.product = needs.product.args;
    for (int arg = QUERN_ARG_ENDS + 1; arg < QUERN_ARGS_COUNT; arg++) {
        void *at = api_expected_place(&t->given, line.kind, arg, &form);
        const struct quern_buffer *b = &t->run.args.of[arg];

        if (!at || !t->run.memory[arg])
            continue;
        if (form == QN_SLOT_TENSOR) {
            ((struct qn_tensor *)at)->data = b->data;
            ((struct qn_tensor *)at)->pointers = b->pointers;
        } else if (form == QN_SLOT_ARRAY) {
            memcpy(at, &b->data, sizeof b->data);
        } else {
            *(form == QN_SLOT_SF ? &((struct qn_tensor *)at)->sf
                                 : &((struct qn_tensor *)at)->global) = b->data;
        }
    }
}

/* Sizes are those of A in a product ragged in m, else of another. */
static void give_sizes(struct twin *t, const struct qn_line *line)
{
    const struct quern_args *args = &t->run.args;
    const void *lengths = args->of[QUERN_ARG_LENGTHS].data,
               *ends = args->of[QUERN_ARG_ENDS].data,
               *starts = ends ? ends : args->of[QUERN_ARG_STARTS].data;
    const int type =
        (ends ? QN_SIZES_ENDS : 0) | args->of[ends      ? QUERN_ARG_ENDS
                                              : lengths ? QUERN_ARG_LENGTHS
                                                        : QUERN_ARG_STARTS]
                                         .type;
    const struct qn_problem *p = &line->of.product;
    struct qn_tensor *ragged;

    if (line->kind == QN_LINE_MLP) {
        t->given.mlp.first_dims = lengths;
        t->given.mlp.offsets = starts;
        t->given.mlp.sizes_type = type;
        t->given.mlp.host_sizes = args->host_sizes;
    } else if (line->kind == QN_LINE_CAST) {
        t->given.cast.first_dims = lengths;
        t->given.cast.offsets = starts;
        t->given.cast.sizes_type = type;
        t->given.cast.host_sizes = args->host_sizes;
    } else {
        const int inner = p->ragged == QUERN_AXIS_M ? p->a_major != 0
                          : p->ragged == QUERN_AXIS_N
                              ? p->b_major != QUERN_MAJOR_K
                              : p->a_major == QUERN_MAJOR_K;

        ragged = p->ragged == QUERN_AXIS_N ? &t->given.product.b
                                           : &t->given.product.a;
        ragged->first_dims = inner ? NULL : lengths;
        ragged->last_dims = inner ? lengths : NULL;
        ragged->offsets = starts;
        ragged->sizes_type = type;
        t->given.product.host_sizes = args->host_sizes;
    }
}

/* For a cast of fewer rows, a plan for these. */
static int make(struct twin *t, const struct qn_line *line, int64_t rows)
{
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct qn_quantization q = line->of.cast;

    if (rows >= 0)
        q.m = rows;

    return line->kind == QN_LINE_MOE
               ? qn_moe_plan(t->run.ctx, &line->of.moe, &host, &t->plan.moe)
           : line->kind == QN_LINE_MLP
               ? qn_mlp_plan(t->run.ctx, &line->of.mlp, &host, &t->plan.mlp)
           : line->kind == QN_LINE_CAST
               ? qn_quantize_plan(t->run.ctx, &q, &host, &t->plan.cast)
               : qn_plan(t->run.ctx, &line->of.product, &host,
                         &t->plan.product);
}

/* Its weight gradients come later, as those of an MLP below. */
static int run_moe(struct twin *t)
{
    int code = QUERN_OK;

    for (int i = 0; i < QUERN_PHASES && !code; i++) {
        const int phase = qn_mlp_phase_order[i];

        if (qn_mlp_has(&t->run.plan->line.of.mlp, phase))
            code = qn_moe_run(t->plan.moe, &t->given.mlp, phase, NULL);
    }
    return code;
}

static int run(struct twin *t, int kind)
{
    int code;

    if (kind == QN_LINE_PRODUCT)
        return qn_run(t->plan.product, &t->given.product, NULL);
    if (kind == QN_LINE_CAST)
        return qn_quantize_run(t->plan.cast, &t->given.cast, NULL);
    if (kind == QN_LINE_MOE)
        return run_moe(t);
    code = qn_mlp_run(t->plan.mlp, &t->given.mlp, QUERN_PHASE_WEIGHTS, NULL);
    if (!code)
        code =
            qn_mlp_run(t->plan.mlp, &t->given.mlp, QUERN_PHASE_FORWARD, NULL);
    if (code || t->run.plan->line.of.mlp.forward_only)
        return code;
    code = qn_mlp_run(t->plan.mlp, &t->given.mlp, QUERN_PHASE_BACKWARD, NULL);
    return code ? code
                : qn_mlp_run(t->plan.mlp, &t->given.mlp, QUERN_PHASE_WGRAD,
                             NULL);
}

static void discard(struct twin *t, int kind)
{
    if (kind == QN_LINE_MOE)
        qn_moe_plan_free(t->plan.moe);
    else if (kind == QN_LINE_MLP)
        qn_mlp_plan_free(t->plan.mlp);
    else if (kind == QN_LINE_CAST)
        qn_quantize_plan_free(t->plan.cast);
    else
        qn_plan_free(t->plan.product);
    api_run_close(&t->run);
}

static void same_bytes(const struct api_run *a, const struct api_run *b,
                       const char *line, int form)
{
    for (int i = 0; i < QUERN_ARGS_COUNT; i++)
        if (a->memory[i] && i != QUERN_ARG_WORKSPACE &&
            memcmp(a->memory[i], b->memory[i], a->bytes[i]))
            fail_msg("%s: form %d: %s differs", line, form, qn_api_name(i));
    api_run_guarded(a);
    api_run_guarded(b);
}

/* Lines have one shape and form each, in turn. */
static void compare(struct quern_context *ctx, const struct api_line *line,
                    int turn)
{
    struct qn_line other = line->line;
    const int64_t *all = qn_api_rows(&other);
    const int form = turn % API_FORMS, kind = line->line.kind;
    const int type = turn / API_FORMS % 2 ? QUERN_I64 : QUERN_I32;
    const int64_t *lengths = shapes[turn / 2 % SHAPES];
    struct api_run mine;
    struct twin twin;

    api_run_open(&mine, ctx, line->text);
    api_run_open(&twin.run, ctx, line->text);
    memset(twin.run.memory[QUERN_ARG_WORKSPACE], 0,
           twin.run.bytes[QUERN_ARG_WORKSPACE]);
    api_run_sizes(&mine, lengths, form, type);
    api_run_sizes(&twin.run, lengths, form, type);
    if (!qn_api_has_mlp(kind) && all && turn % 5 < 2)
        mine.args.rows = turn % 5 ? 56 : 67;
    if (mine.args.host_sizes || (all && mine.args.rows > *all))
        mine.args.rows = -1; /* all rows are theirs, or there are fewer */
    give(&twin, line->line, mine.args.rows);
    if (qn_api_rows(&other) && kind != QN_LINE_MOE)
        give_sizes(&twin, &line->line);
    test_expect(make(&twin, &line->line, mine.args.rows), QUERN_OK, "");
    if (api_run_phases(&mine))
        fail_msg("%s: form %d, rows %lld: %s", line->text, form,
                 (long long)mine.args.rows, quern_errmsg());
    if (run(&twin, kind))
        fail_msg("%s: internal: %s", line->text, quern_errmsg());
    if (quern_check(mine.plan, &mine.args, NULL))
        fail_msg("%s: form %d: %s", line->text, form, quern_errmsg());
    same_bytes(&mine, &twin.run, line->text, form);
    discard(&twin, kind);
    api_run_close(&mine);
}

TEST(gives_the_bytes)
{
    struct quern_context *ctx = api_open();
    struct api_line line = {.index = 0};

    (void)state;
    while (api_line_next(ctx, API_GROUPS, ROWS, FEATURES, &line))
        compare(ctx, &line, line.valid - 1);
    api_line_enough(&line);
    quern_close(ctx);
}

/* ----------------------------------------------------------------- strides */

/* Rows of a packed operand and those of one with gaps, one way or the other. */
static void copy_rows(const struct quern_operand *o, unsigned char *apart,
                      int64_t stride, unsigned char *packed, int64_t rows,
                      int spread)
{
    const int axis = o->ndim - 1;
    const int64_t width = qn_type_bits(o->type) / 8,
                  columns = quern_extent(&o->shape[axis], rows) * width,
                  lines = quern_extent(&o->shape[axis - 1], rows) *
                          (axis == 2 ? o->shape[0].base : 1);

    for (int64_t i = 0; i < lines; i++) {
        unsigned char *a = apart + i * stride * width,
                      *p = packed + i * quern_extent(&o->pitch, rows) * width;

        memcpy(spread ? a : p, spread ? p : a, (size_t)columns);
    }
}

/* Give it rows that are further apart; outputs are packed again afterwards. */
static unsigned char *spread(struct api_run *run, const struct quern_operand *o,
                             int64_t rows)
{
    const int64_t stride = quern_extent(&o->pitch, rows) + 16;
    const size_t bytes =
        (size_t)(stride * quern_extent(&o->shape[o->ndim - 2], rows) *
                 (o->ndim == 3 ? o->shape[0].base : 1) * qn_type_bits(o->type) /
                 8);
    unsigned char *apart = aligned_alloc(256, (bytes + 255) / 256 * 256);

    assert_non_null(apart);
    memset(apart, 0xFF, bytes);
    copy_rows(o, apart, stride, run->memory[o->arg], rows, 1);
    run->args.of[o->arg].data = apart;
    run->args.of[o->arg].stride = stride;
    return apart;
}

/* All that may have strides have them. */
static void strides(struct quern_context *ctx, const struct api_line *line)
{
    unsigned char *apart[QUERN_ARGS_COUNT] = {NULL};
    struct api_run packed, run;

    api_run_open(&packed, ctx, line->text);
    api_run_open(&run, ctx, line->text);
    api_run_usual(&packed);
    api_run_usual(&run);
    for (int i = 0; i < run.count; i++)
        if (run.table[i].strided && !run.table[i].pointers)
            apart[run.table[i].arg] =
                spread(&run, &run.table[i], run.plan->rows);
    test_expect(api_run_phases(&packed), QUERN_OK, "");
    if (api_run_phases(&run))
        fail_msg("%s: with strides: %s", line->text, quern_errmsg());
    for (int i = 0; i < run.count; i++) {
        const int arg = run.table[i].arg;

        if (apart[arg])
            copy_rows(&run.table[i], apart[arg], run.args.of[arg].stride,
                      run.memory[arg], run.plan->rows, 0);
        free(apart[arg]);
    }
    same_bytes(&packed, &run, line->text, -1);
    api_run_close(&packed);
    api_run_close(&run);
}

TEST(takes_strides)
{
    struct quern_context *ctx = api_open();
    struct api_line line = {.index = 0};

    (void)state;
    while (api_line_next(ctx, API_GROUPS, ROWS, FEATURES, &line))
        strides(ctx, &line);
    api_line_enough(&line);
    quern_close(ctx);
}
