/* SPDX-License-Identifier: Apache-2.0 */
/*
** outside.c: the launches that zero D and P outside the groups. They come last,
** and read the sizes as the product does.
*/
#include "product/outside.h"
#include "base/error.h"
#include "base/types.h"
#include "choose/session.h"
#include "problem/dequantize_rules.h"
#include "product/args.h"
#include "product/frame.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

#include <string.h>

/* One kernel serves all recipes and types: it is that of values without
   scales. */
static int add(struct qn_plan *plan, struct qn_session *s)
{
    static const int op = QN_OUTSIDE;
    const struct qn_problem *p = &plan->problem;
    const struct qn_recipe *plain = qn_dequantize_plain(s->ctx);
    struct qn_quantization q = {.work = QUERN_QUANTIZE,
                                .of = QN_X,
                                .type = p->d_type,
                                .copies = QUERN_ROWWISE,
                                .groups = p->groups,
                                .m = p->m,
                                .k = p->n};
    struct qn_quantize_plan *cast;
    int code;

    if (!plain)
        return qn_error_set(QUERN_ENOKERNEL,
                            "outside=zero: no recipe has bf16 for x, w and dy, "
                            "whose kernel would write the zeros");
    strncpy(q.recipe, plain->name, sizeof q.recipe - 1);
    code = qn_quantize_steps(s, &q, plan->backend, &op, 1, &cast);
    if (code) {
        qn_error_add("  in the zeros outside the groups");
        return code;
    }
    for (int role = QN_ROLE_D; role <= QN_ROLE_P; role++) {
        struct qn_launch *launch;

        if (role == QN_ROLE_P && !p->saved)
            continue;
        launch = qn_launch_add(plan, QN_WORK_OUTSIDE);
        launch->role = role;
        launch->cast = cast;
    }
    return QUERN_OK;
}

/* No other choice depends on them, nor does a measurement. */
int qn_outside_make(struct qn_session *s,
                    int (*make)(struct qn_session *, struct qn_plan **),
                    struct qn_plan **plan)
{
    const struct qn_problem *whole = s->problem;
    struct qn_problem inside = *whole;
    int code;

    inside.outside = QUERN_OUTSIDE_KEEP;
    s->problem = s->demand.problem = &inside;
    code = make(s, plan);
    s->problem = s->demand.problem = whole;
    if (!code)
        code = add(*plan, s);
    if (!code)
        return code;
    qn_plan_free(*plan);
    *plan = NULL;
    return code;
}

int qn_outside_run(struct qn_frame *f, const struct qn_launch *launch)
{
    const struct qn_tensor *tensor = qn_args_tensor(f->args, launch->role);
    const struct qn_geometry *g = &f->plan->operands[launch->role];
    struct qn_values *v = &f->values;

    if (!tensor->data)
        return QUERN_OK; /* P is not wanted, or there are no rows */
    qn_value_copy(v, &f->plan->values);
    v->d = tensor->data;
    v->d_stride = qn_args_stride(tensor, g);
    v->d_bytes = qn_type_bits(g->type) / 8;
    v->m = (int)g->rows;
    v->n = (int)g->columns;
    v->noop = f->args->noop;
    v->first_dims = f->lengths;
    v->offsets = f->offsets;
    v->sizes_bytes = qn_frame_sizes(f);
    return qn_quantize_step_run(launch->cast, launch->index, v, f->stream);
}

double qn_outside_bytes(const struct qn_problem *p,
                        const struct qn_recipe *recipe)
{
    double bytes = 0;
    struct qn_geometry g;

    for (int role = QN_ROLE_D; role <= QN_ROLE_P; role++) {
        if (role == QN_ROLE_P && !p->saved)
            continue;
        qn_geometry_of(p, recipe, role, &g);
        bytes += (double)qn_geometry_bytes(&g, 0, 0);
    }
    return bytes;
}
