/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c: the list of a plan's launches. */
#include "product/launch.h"
#include "base/context.h"
#include "product/backend.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

#include <stdlib.h>

const struct qn_launch *qn_launch_find(const struct qn_plan *plan, int work)
{
    for (int i = 0; i < plan->nlaunches; i++)
        if (plan->launches[i].work == work)
            return &plan->launches[i];
    return NULL;
}

struct qn_launch *qn_launch_add(struct qn_plan *plan, int work)
{
    struct qn_launch *launch = &plan->launches[plan->nlaunches++];

    *launch = (struct qn_launch){.work = work};
    return launch;
}

/* A plan's facts about its kernel. */
static void speak_for(struct qn_plan *plan, const struct qn_plan *product)
{
    plan->kernel = product->kernel;
    plan->backend = product->backend;
    plan->tuned = product->tuned;
    plan->workers = product->workers;
    plan->driver = product->driver;
    plan->context = product->context;
    plan->microbatches = 1;
    if (!plan->sums)
        plan->sums = product->sums;
}

/* Rules of the kernel on operands that it gets from the caller: not dequantized
   ones, nor a result that later launches make. Operands obey the rules of both
   products if there are two. */
static void take_operands(struct qn_plan *plan, const struct qn_plan *product)
{
    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        if (plan->operands[role].sf.scaling !=
                product->operands[role].sf.scaling ||
            (plan->sums && role > QN_ROLE_B))
            continue;
        plan->mapped[role] |= product->mapped[role];
    }
}

/* Does the launch read or write an array of one product? Others follow the
   plan of the whole run. */
static int is_of_product(const struct qn_launch *launch)
{
    return launch->work == QN_WORK_PRODUCT || launch->work == QN_WORK_SUM ||
           launch->work == QN_WORK_QUANTIZE_A ||
           launch->work == QN_WORK_SUM_A || launch->work == QN_WORK_EPILOGUE;
}

void qn_launch_absorb(struct qn_plan *plan, struct qn_plan *other, int operands,
                      int flag)
{
    int kept = 0; /* `other` is a product of its own */

    take_operands(plan, other);
    if (!plan->kernel) /* of several the first is meant to run */
        speak_for(plan, other);
    for (int i = 0; i < other->nlaunches; i++) {
        struct qn_launch *launch = &plan->launches[plan->nlaunches++];

        *launch = other->launches[i];
        if (launch->product || !is_of_product(launch))
            continue;
        launch->product = other;
        launch->operands = operands;
        launch->flag = flag;
        kept = 1;
    }
    other->nlaunches = 0;
    if (!kept)
        free(other);
}

/* Is the launch the first one of its product, or of its cast? */
static int is_first(const struct qn_plan *plan, int i, int cast)
{
    const struct qn_launch *at = plan->launches;

    for (int j = 0; j < i; j++)
        if (cast ? at[j].cast == at[i].cast : at[j].product == at[i].product)
            return 0;
    return 1;
}

/* Its launches are not known. */
static int is_foreign(const struct qn_plan *plan)
{
    int found = plan->products != NULL;

    for (int i = 0; i < plan->nlaunches; i++)
        found |=
            plan->launches[i].product && plan->launches[i].product->products;
    return found;
}

/* Products after products lose, as do those that make copies. bench/notes:
   dependent */
static void depend_product(struct qn_plan *product, enum qn_before before)
{
    product->dependent = before == QN_BEFORE_CAST &&
                         !product->problem.activation &&
                         !product->problem.copies;
}

/* Its cast comes after the number of tokens, which is no kernel. */
static int counts_first(const struct qn_plan *plan,
                        const struct qn_launch *launch)
{
    return plan->problem.gather && launch->work == QN_WORK_DEQUANTIZE &&
           launch->role == QN_ROLE_A;
}

enum qn_before qn_launch_depend(struct qn_plan *plan, enum qn_before before)
{
    if (is_foreign(plan))
        return QN_BEFORE_NOTHING;
    for (int i = 0; i < plan->nlaunches; i++) {
        struct qn_launch *launch = &plan->launches[i];
        const int is_product = qn_launch_multiplies(launch);
        const int follows =
            before != QN_BEFORE_NOTHING && !counts_first(plan, launch);

        if (is_product)
            depend_product(launch->product ? launch->product : plan, before);
        else if (follows && launch->cast)
            qn_quantize_depend(launch->cast, launch->index);
        else if (follows)
            launch->step.dependent = 1;
        before = is_product ? QN_BEFORE_PRODUCT : QN_BEFORE_CAST;
    }
    return before;
}

/* The products of a list have empty lists. */
static void free_product(struct qn_plan *plan)
{
    if (plan && plan->products)
        plan->ctx->cublaslt->free(plan);
    free(plan);
}

static void clear(struct qn_plan *plan)
{
    for (int i = 0; i < plan->nlaunches; i++) {
        if (is_first(plan, i, 1))
            qn_quantize_plan_free(plan->launches[i].cast);
        if (is_first(plan, i, 0))
            free_product(plan->launches[i].product);
    }
    plan->nlaunches = 0;
}

void qn_plan_free(struct qn_plan *plan)
{
    if (plan)
        clear(plan);
    free_product(plan);
}
