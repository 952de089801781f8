/* SPDX-License-Identifier: Apache-2.0 */
/*
** cublaslt_plan.c: which problems cuBLASLt has a product for, and a run's
** requirements for it.
**
** Scaled FP8 is a recipe's copies as they are, with the scales that the library
** has a mode for, and that are as it wants them:
**
**     of a tensor or a group   one fp32 for all of A and one for all of B
**     of rows                  fp32 [rows]; from version 12.9 on
**     of blocks, fp32          Hopper, 12.9: of 128 values [k / 128][rows], or
**                              of 128 x 128 [rows / 128][k / 128, in fours]
**     of blocks, e8m0          Blackwell, 12.8: of 32 values, in tiles
*/
#include "cublaslt/cublaslt_loop.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/host_sizes.h"
#include "choose/session.h"
#include "cublaslt/cublaslt.h"
#include "cublaslt/cublaslt_product.h"
#include "cublaslt/cublaslt_room.h"
#include "problem/quantize.h"
#include "product/plan.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- planning */

/* Scalars of the caller's are on the device; constants may be here. */
static int has_scalars(const struct qn_problem *p)
{
    return p->alpha || p->beta == QUERN_BETA_ANY;
}

/* Scales that the library takes: enum qn_cublaslt_scale, and its own mode.
   The padding is of the matrix; tokens are rows or columns of x and dy only. */
static const struct mode {
    int span, type, rows, k, order, pad_rows, pad_columns;
    int scale, mode;
} modes[] = {
    {QN_SPAN_ROW, QUERN_F32, 0, 0, 0, 0, 0, QN_CUBLASLT_ROW_SCALES,
     LT_SCALE_OUTER_VECTOR},
    {QN_SPAN_GROUP, QUERN_F32, 0, 0, 0, 0, 0, QN_CUBLASLT_GROUP_SCALES,
     LT_SCALE_SCALAR},
    {QN_SPAN_TENSOR, QUERN_F32, 0, 0, 0, 0, 0, QN_CUBLASLT_TENSOR_SCALES,
     LT_SCALE_SCALAR},
    {QN_SPAN_BLOCK, QUERN_F32, 1, 128, QN_ORDER_COLUMNS, 4, 1,
     QN_CUBLASLT_BLOCK_SCALES, LT_SCALE_VECTOR_128},
    {QN_SPAN_BLOCK, QUERN_F32, 128, 128, QN_ORDER_ROWS, 1, 4,
     QN_CUBLASLT_BLOCK_SCALES, LT_SCALE_BLOCK_128},
    {QN_SPAN_BLOCK, QUERN_E8M0, 1, 32, QN_ORDER_TILES, 128, 4,
     QN_CUBLASLT_TILE_SCALES, LT_SCALE_VECTOR_32},
};

/* A block's matrix must be as the mode says, one of tokens after the other
   only where tiles do so. */
static int lies_so(const struct mode *mode, const struct qn_scales *sf)
{
    const struct qn_scaling *s = sf->scaling;
    const int tokens = !sf->group_stride;

    if (s->span != QN_SPAN_BLOCK)
        return 1;
    return qn_quantize_lines(s) == mode->rows && s->k == mode->k &&
           s->order == mode->order && s->pad_rows == mode->pad_rows &&
           s->pad_columns == mode->pad_columns &&
           (!tokens || s->apart == (s->order == QN_ORDER_TILES)) &&
           (!tokens || mode->rows == 1);
}

/* NULL: none. */
static const struct mode *mode_of(const struct qn_geometry *g)
{
    const struct qn_scaling *s = g->sf.scaling;

    for (size_t i = 0; s && i < sizeof modes / sizeof modes[0]; i++)
        if (modes[i].span == s->span && modes[i].type == s->type &&
            !s->global && lies_so(&modes[i], &g->sf))
            return &modes[i];
    return NULL;
}

/* By the scales, which both operands share. */
static enum qn_cublaslt_scale scale_of(const struct qn_geometry *a)
{
    return a->sf.scaling ? (enum qn_cublaslt_scale)mode_of(a)->scale
                         : QN_CUBLASLT_UNSCALED;
}

/* A recipe's scales as the library takes them, both of one kind. */
static int check_scales(const struct qn_problem *p,
                        const struct qn_recipe *recipe,
                        const struct qn_geometry *a,
                        const struct qn_geometry *b)
{
    const struct mode *left = mode_of(a), *right = mode_of(b);

    if (!left || !right || left->scale != right->scale ||
        (left->mode == LT_SCALE_BLOCK_128 && right->mode == left->mode))
        return qn_error_set(
            QUERN_ENOKERNEL,
            "backend cublaslt takes fp32 scales of a row, a group or a tensor, "
            "fp32 scales of 1x128 (stored \"mn\") and of weights of 128x128 "
            "(\"rows4\"), and e8m0 scales of 1x32 (\"tiles\"): recipe %s has "
            "others",
            recipe->name);
    if (p->n % QN_CUBLASLT_ROW_BYTES)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt takes FP8 where n is a multiple "
                            "of %d, here it is %lld",
                            QN_CUBLASLT_ROW_BYTES, (long long)p->n);
    if (left->scale == QN_CUBLASLT_BLOCK_SCALES && p->ragged != QUERN_AXIS_M &&
        p->m % QN_CUBLASLT_ROWS)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt takes scales of blocks where m "
                            "is a multiple of %d, here it is %lld",
                            QN_CUBLASLT_ROWS, (long long)p->m);
    return QUERN_OK;
}

/* QUERN_ENOKERNEL if cuBLASLt has no product of the problem's types. */
static int check_problem(const struct qn_problem *p,
                         const struct qn_recipe *recipe,
                         const struct qn_geometry *a,
                         const struct qn_geometry *b)
{
    int code = recipe->scaled ? check_scales(p, recipe, a, b) : QUERN_OK;

    if (code)
        return code;
    if (p->pointers)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt takes operands in one buffer, "
                            "the problem says pointers=");
    if (p->gather)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt reads rows in order, the problem "
                            "says gather=%s",
                            qn_gather_name(p->gather));
    if (p->scatter)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt writes rows in order, the "
                            "problem says scatter=1");
    if (p->lora)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt multiplies no adapters, the "
                            "problem says lora=%d",
                            p->lora);
    if (p->outside)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt writes no zeros outside the "
                            "groups, the problem says outside=zero");
    if (p->quantize)
        return qn_error_set(QUERN_ENOKERNEL,
                            "the cublaslt backend quantizes nothing: make a's "
                            "copy before, with a plan of a quantize line");
    if (p->copies)
        return qn_error_set(QUERN_ENOKERNEL,
                            "the cublaslt backend quantizes nothing: make the "
                            "result's copies after it, with "
                            "a plan of a quantize line");
    if (p->bias || p->activation)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt multiplies and adds, the problem "
                            "says %s=",
                            p->bias ? "bias" : "activation");
    if (!qn_cublaslt_has(a->type, b->type, p->d_type))
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt has no product %s x %s -> %s: "
                            "bf16 -> bf16 or f32, f16 -> f16 or f32 and scaled "
                            "FP8, of both at most one e5m2, are possible",
                            qn_type_name(a->type), qn_type_name(b->type),
                            qn_type_name(p->d_type));
    return QUERN_OK;
}

/* The library's version and the GPU required for scales. */
static int check_machine(const struct qn_cublaslt *lt,
                         const struct qn_device *device,
                         enum qn_cublaslt_scale scale)
{
    static const struct {
        unsigned version;
        int least, most; /* compute capability's major number */
        const char *what, *where;
    } needs[QN_CUBLASLT_SCALES] = {
        [QN_CUBLASLT_ROW_SCALES] = {120900, 0, 99, "of rows", ""},
        [QN_CUBLASLT_BLOCK_SCALES] = {120900, 9, 9, "of blocks, fp32,",
                                      "Hopper"},
        [QN_CUBLASLT_TILE_SCALES] = {120800, 10, 99, "of blocks, e8m0,",
                                     "Blackwell and later GPUs"},
    };

    if (!needs[scale].version)
        return QUERN_OK;
    if (lt->number < needs[scale].version)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt takes scales %s from cublasLt "
                            "%u.%u on, this is %s",
                            needs[scale].what, needs[scale].version / 10000,
                            needs[scale].version / 100 % 100, lt->version);
    if (device->major < needs[scale].least || device->major > needs[scale].most)
        return qn_error_set(QUERN_ENOKERNEL,
                            "backend cublaslt takes scales %s only on %s, "
                            "this GPU is sm_%d%d",
                            needs[scale].what, needs[scale].where,
                            device->major, device->minor);
    return QUERN_OK;
}

/* All reasons against a plan. */
static int find(const struct qn_session *s, const struct qn_geometry *a,
                const struct qn_geometry *b, struct qn_cublaslt **lt)
{
    int code = check_problem(s->problem, s->demand.recipe, a, b);

    if (!code)
        code = qn_cublaslt_of(s->ctx, lt);
    return code ? code : check_machine(*lt, &s->device, scale_of(a));
}

static int open_engine(struct qn_cublaslt_engine *engine,
                       const struct qn_session *s, const struct qn_geometry *a,
                       const struct qn_geometry *b,
                       const struct qn_cublaslt *lt)
{
    const struct qn_problem *p = s->problem;
    const struct mode *left = mode_of(a), *right = mode_of(b);
    const struct qn_cublaslt_make make = {
        .a_type = a->type,
        .b_type = b->type,
        .scale = (int)scale_of(a),
        .modes = {left ? left->mode : LT_SCALE_SCALAR,
                  right ? right->mode : LT_SCALE_SCALAR},
        .fast = !s->demand.recipe->promote &&
                scale_of(a) < QN_CUBLASLT_BLOCK_SCALES,
        .d_type = p->d_type,
        .a_major = p->a_major,
        .b_major = p->b_major,
        .device_scalars = has_scalars(p),
        .sms = s->demand.sms == s->device.sms ? 0 : s->demand.sms,
        .groups = p->groups,
    };

    return qn_cublaslt_engine_open(engine, lt, &make);
}

/* Reasons against one call for all groups: they then run one by one. */
static int goes_without(int code)
{
    return code == QUERN_ENOKERNEL || code == QUERN_EMISSING ||
           code == QUERN_ECOMPILE;
}

/*
** Have the engine multiply groups in one call, if it is not to use several
** streams and the library has that for the problem on this GPU.
*/
static int open_groups(struct qn_cublaslt_engine *engine,
                       const struct qn_session *s, const struct qn_geometry *a)
{
    const struct qn_problem *p = s->problem;
    struct qn_cublaslt_product like = {
        .form = QN_CUBLASLT_PLAIN,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .arrays = {p->groups, (char *)QN_CUBLASLT_ALIGNMENT},
        .batch = 1,
    };
    int64_t *const axes[] = {[QUERN_AXIS_M] = &like.m,
                             [QUERN_AXIS_N] = &like.n,
                             [QUERN_AXIS_K] = &like.k};

    int code;

    if (p->ragged == QUERN_AXIS_NONE || a->sf.scaling || s->options.streams > 1)
        return QUERN_OK;
    *axes[p->ragged] = *axes[p->ragged] / p->groups + 1;
    for (int i = 0; i < QN_LT_MATRICES; i++)
        like.matrices[i].data = (void *)QN_CUBLASLT_ROW_BYTES;
    code = qn_cublaslt_group(engine, &like);
    return goes_without(code) ? QUERN_OK : code;
}

/* The kernel that describes the groups to the library. */
static int load_step(struct qn_plan *plan, struct qn_session *s)
{
    int backends[2], code = QUERN_ENOKERNEL;
    const int tries = qn_select_backends(s->ctx, QUERN_BACKEND_AUTO, backends);

    for (int i = 0; i < tries && goes_without(code); i++)
        code = qn_host_size_load(s, s->demand.recipe->name, backends[i],
                                 &plan->products->size_step);
    return code;
}

static int open_engines(struct qn_plan *plan, struct qn_session *s,
                        const struct qn_cublaslt *lt)
{
    struct qn_cublaslt_engine *engine = plan->products;
    const struct qn_geometry *a = &plan->operands[QN_ROLE_A];
    int code = open_engine(engine, s, a, &plan->operands[QN_ROLE_B], lt);

    if (code)
        return code;
    code = open_groups(engine, s, a);
    if (!code && engine->grouped) {
        code = load_step(plan, s);
        if (goes_without(code)) {
            qn_cublaslt_ungroup(engine);
            code = QUERN_OK;
        }
    }
    if (code)
        qn_cublaslt_engine_close(engine);
    return code;
}

static int open_products(struct qn_plan *plan, struct qn_session *s,
                         const struct qn_cublaslt *lt)
{
    struct qn_cublaslt_lanes *lanes = &plan->products->lanes;
    int code = qn_cublaslt_lanes_open(
        lanes, plan->driver, s->options.streams ? s->options.streams : 1);

    if (code)
        return code;
    code = open_engines(plan, s, lt);
    if (code)
        qn_cublaslt_lanes_close(lanes);
    return code;
}

int qn_cublaslt_plan(struct qn_plan *plan, struct qn_session *s)
{
    struct qn_cublaslt_room room;
    struct qn_cublaslt *lt;
    int code =
        find(s, &plan->operands[QN_ROLE_A], &plan->operands[QN_ROLE_B], &lt);

    if (code)
        return code;
    plan->products = calloc(1, sizeof *plan->products);
    if (!plan->products)
        return qn_error_memory();
    code = open_products(plan, s, lt);
    if (code) {
        free(plan->products);
        plan->products = NULL;
        return code;
    }
    qn_cublaslt_room(&plan->problem, &plan->operands[QN_ROLE_A],
                     plan->products->grouped, plan->products->lanes.count,
                     &room);
    plan->need.workspace_bytes = room.bytes;
    plan->name = plan->products->name;
    plan->streams = plan->products->lanes.count;
    return QUERN_OK;
}

/* In its own context if that can be entered; the memory is freed either way. */
void qn_cublaslt_plan_free(struct qn_plan *plan)
{
    struct qn_driver_scope scope;

    if (!plan->products || !qn_context_here(plan->ctx))
        return;
    qn_driver_enter(plan->driver, plan->context, &scope);
    qn_cublaslt_engine_close(plan->products);
    qn_cublaslt_lanes_close(&plan->products->lanes);
    qn_driver_leave(plan->driver, &scope);
    free(plan->products);
}

/* --------------------------------------------------------------- explaining */

static void add_manner(struct qn_text *text, const struct qn_session *s,
                       const struct qn_geometry *a, int grouped,
                       size_t workspace)
{
    const struct qn_problem *p = s->problem;
    const int streams = s->options.streams;

    if (p->ragged == QUERN_AXIS_NONE && !a->sf.scaling)
        qn_text_add(text, "    all groups as one batch");
    else if (grouped)
        qn_text_add(text, "    all groups in one call, by its grouped layouts "
                          "(experimental); one by one where\n    each has an "
                          "alpha or a beta of its own");
    else if (streams > 1)
        qn_text_add(text,
                    "    one product for each group, spread over %d streams, "
                    "in a loop on the host",
                    streams);
    else
        qn_text_add(text,
                    "    one product for each group, in a loop on the host");
    qn_text_add(text, "; sizes are host_sizes; %zu bytes of workspace\n",
                workspace);
    if (qn_cublaslt_gathers(a))
        qn_text_add(text,
                    "    before each, its group's scales are copied together; "
                    "rows beyond a multiple of %d\n    are copied, too, and a "
                    "product of their own\n",
                    QN_CUBLASLT_ROWS);
    qn_text_add(text, "    because it was asked for: no plan takes this "
                      "backend by itself\n");
}

/* Would a plan have groups multiplied in one call? */
static int would_group(const struct qn_session *s, const struct qn_geometry *a,
                       const struct qn_geometry *b,
                       const struct qn_cublaslt *lt, int *grouped)
{
    struct qn_cublaslt_engine engine = {0};
    int code = open_engine(&engine, s, a, b, lt);

    if (code)
        return code;
    code = open_groups(&engine, s, a);
    *grouped = engine.grouped;
    qn_cublaslt_engine_close(&engine);
    return code;
}

int qn_cublaslt_why(const struct qn_session *s, int *served,
                    struct qn_text *text)
{
    struct qn_cublaslt_room room;
    struct qn_cublaslt *lt;
    int grouped, code;
    struct qn_geometry a, b;

    qn_geometry_of(s->problem, s->demand.recipe, QN_ROLE_A, &a);
    qn_geometry_of(s->problem, s->demand.recipe, QN_ROLE_B, &b);
    if (find(s, &a, &b, &lt)) {
        *served = 0;
        qn_text_add(text, "nothing runs\n    %s\n", qn_error_text());
        return QUERN_OK;
    }
    code = would_group(s, &a, &b, lt, &grouped);
    if (code)
        return code;
    qn_cublaslt_room(s->problem, &a, grouped,
                     s->options.streams ? s->options.streams : 1, &room);
    qn_text_add(text, "> %s\n",
                grouped ? lt->grouped_name : lt->names[scale_of(&a)]);
    add_manner(text, s, &a, grouped, room.bytes);
    return QUERN_OK;
}
