/* SPDX-License-Identifier: Apache-2.0 */
/* api_kernels.c: the kernels that plans of a line take, without a GPU. */
#include "api/api_kernels.h"
#include "base/context.h"
#include "base/error.h"
#include "choose/session.h"
#include "layer/moe_plan.h"
#include "mlp/mlp_plan.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"
#include "route/route_plan.h"

struct marks {
    const struct quern_registry *registry;
    unsigned char *of; /* one for each of its kernels */
};

/* Kernels that the program linked are not among them. */
static void mark(const struct marks *marks, const struct qn_kernel *kernel)
{
    const struct quern_registry *all = marks->registry;

    if (kernel && kernel >= all->kernels &&
        kernel < all->kernels + all->nkernels)
        marks->of[kernel - all->kernels] = 1;
}

static void mark_cast(const struct marks *marks,
                      const struct qn_quantize_plan *plan)
{
    for (int i = 0; i < plan->nsteps; i++)
        mark(marks, plan->steps[i].kernel);
    mark(marks, plan->size_step.kernel);
}

static void mark_product(const struct marks *marks, const struct qn_plan *plan);

static void mark_launch(const struct marks *marks,
                        const struct qn_launch *launch)
{
    if (launch->product)
        mark_product(marks, launch->product);
    if (launch->cast)
        mark_cast(marks, launch->cast);
    mark(marks, launch->step.kernel);
}

static void mark_product(const struct marks *marks, const struct qn_plan *plan)
{
    mark(marks, plan->kernel);
    for (int i = 0; i < plan->nlaunches; i++)
        mark_launch(marks, &plan->launches[i]);
}

static void mark_mlp(const struct marks *marks, const struct qn_mlp_plan *plan)
{
    for (int i = 0; i < QN_MLP_LAUNCHES; i++)
        mark_launch(marks, &plan->launches[i]);
}

static int mark_moe(struct qn_session *s, const struct qn_moe *moe,
                    const struct marks *marks)
{
    struct qn_moe_plan *plan;
    const int code = qn_moe_plan_inner(s, moe, &plan);

    if (code)
        return code;
    mark_cast(marks, plan->maps->launches);
    mark_cast(marks, plan->permute->launches);
    mark_cast(marks, plan->combine->launches);
    mark_mlp(marks, plan->mlp);
    qn_moe_plan_free(plan);
    return code;
}

static int mark_line(struct qn_session *s, const struct qn_line *line,
                     const struct marks *marks)
{
    struct qn_quantize_plan *cast;
    struct qn_route_plan *route;
    struct qn_mlp_plan *mlp;
    struct qn_plan *product;
    int code;

    switch (line->kind) {
    case QN_LINE_MLP:
        code = qn_mlp_plan_inner(s, &line->of.mlp, &mlp);
        if (code)
            return code;
        mark_mlp(marks, mlp);
        qn_mlp_plan_free(mlp);
        return code;
    case QN_LINE_MOE:
        return mark_moe(s, &line->of.moe, marks);
    case QN_LINE_CAST:
        code = qn_quantize_plan_inner(s, &line->of.cast, &s->options, &cast);
        if (!code)
            mark_cast(marks, cast);
        qn_quantize_plan_free(cast);
        return code;
    case QN_LINE_ROUTE:
        code =
            qn_route_plan_inner(s, &line->of.route, QUERN_BACKEND_JIT, &route);
        if (!code) {
            mark_cast(marks, route->launches);
            qn_route_plan_free(route);
        }
        return code;
    default:
        code = qn_plan_session(s, &product);
        if (!code)
            mark_product(marks, product);
        qn_plan_free(product);
        return code;
    }
}

int qn_api_kernels(struct quern_context *ctx, const struct qn_line *line,
                   const struct qn_device *device, unsigned char *of)
{
    const struct marks marks = {ctx->base, of};
    struct qn_session session;
    int code = qn_session_assume(
        &session, ctx, line->kind == QN_LINE_PRODUCT ? &line->of.product : NULL,
        device);

    return code ? code : mark_line(&session, line, &marks);
}
