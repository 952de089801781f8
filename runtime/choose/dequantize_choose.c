/* SPDX-License-Identifier: Apache-2.0 */
/*
** dequantize_choose.c: are the operands of a product dequantized before it?
**
** A kernel that dequantizes in its mainloop is held up by the warps that do it;
** the model of kernels knows by how much (model_dequantize.c). Launches before
** it read all codes and scales, write two bytes for each value, and leave a
** plain product:
**
**     pass   = product + bytes / MOVED + LAUNCHES     (MOVED, CHECKED: of an
**              H200's memory; others' rates are in proportion)
**     inside = max(waves * tile, memory)    (model_dequantize.c)
**              SIXTEENS as many cycles where tokens are summed
**     f16    = inside, as f16 + bytes / CHECKED + LAUNCHES_F16
**
** FP8, a pass that writes one byte for each value, is chosen here only where
** the mainloop's kernel has FP8 tensor cores, too: they sum about 13 bits, and
** accuracy is the problem's choice, not that of a model or a file.
**
** So it is worth its while where many rows meet each weight, or where mma.sync
** is all that dequantizes. A description, which knows no GPU, has the largest
** workspace of all that could be.
*/
#include "choose/dequantize_choose.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "choose/model.h"
#include "choose/session.h"
#include "choose/tensormap.h"

#include <string.h>

#define SIXTEENS 1.1 /* scales of 16 tokens, to who dequantizes next to */

/* The strategy with its product. 0: no kernel serves that; -1: an error. */
static int judge_strategy(const struct qn_session *s, int strategy,
                          struct qn_dequantize_cost *cost)
{
    const struct qn_recipe *recipe = s->demand.recipe;
    struct qn_problem product;
    double cycles = 0;
    int served;

    if (!qn_dequantize_may(s->ctx, s->problem, recipe, strategy))
        return 0;
    qn_dequantize_first(s->ctx, s->problem, recipe, strategy, &product);
    if (qn_select_cycles(s->ctx, &s->demand, &product, &served, &cycles))
        return -1;
    if (!served)
        return 0;
    *cost = qn_dequantize_cost_of(s->problem, recipe, strategy,
                                  qn_model_memory_share(s->demand.device));
    cost->cycles = cycles + cost->moving;
    return 1;
}

/* Is a pass the order of sums for all counts of rows, in place of kernels with
   another? It must pay for the fewest that all groups have. -1: an error. */
static int pays_always(const struct qn_session *s,
                       const struct qn_choice *inside)
{
    struct qn_problem few = *s->problem;
    struct qn_session other = *s;
    struct qn_dequantize_cost cost;
    struct qn_choice best;
    int found;

    if (!s->demand.same_sums || !qn_select_sums(inside->candidate->kernel) ||
        few.ragged != QUERN_AXIS_M)
        return 0;
    few.m = few.groups;
    other.problem = other.demand.problem = &few;
    found = qn_select_best(s->ctx, &other.demand, &best);
    if (found > 0)
        found = judge_strategy(&other, QUERN_DEQUANTIZE_PASS, &cost);
    return found > 0 ? cost.cycles < best.figures.cycles : found;
}

/* May it take the place of a kernel which dequantizes? With one order of sums
   only a pass, if that is the order of plain products, or if no kernel's is
   taken; and FP8, whose results have the same bits. */
static int may_replace(const struct qn_session *s,
                       const struct qn_choice *inside, int strategy, int always)
{
    if (strategy == QUERN_DEQUANTIZE_FP8)
        return qn_model_rebases(inside->candidate->kernel);
    if (!s->demand.same_sums)
        return 1;
    return strategy == QUERN_DEQUANTIZE_PASS &&
           (always || !qn_select_sums(inside->candidate->kernel));
}

/* Does it make 16 bits of codes: next to its products, or, as mma.sync needs
   it, before each? */
static int converts(const struct qn_kernel *kernel)
{
    return qn_model_dequantizes(kernel) ||
           (!qn_tensormap_any(kernel) && !qn_select_takes_codes(kernel));
}

/* Compare the kernel that would dequantize with those that would not have
   to. */
static int judge(struct qn_session *s, struct qn_dequantize_choice *choice)
{
    struct qn_dequantize_cost *cost = choice->cost;
    struct qn_choice inside;
    double least;
    int found = qn_select_best(s->ctx, &s->demand, &inside);
    int always;

    if (found <= 0 || (!converts(inside.candidate->kernel) &&
                       qn_dequantize_dequantizes(s->problem, s->demand.recipe)))
        return found < 0 ? QUERN_ENOMEM : QUERN_OK;
    least = inside.figures.waves * inside.figures.tile_cycles;
    if (s->problem->ragged == QUERN_AXIS_K &&
        s->demand.recipe->scaling[QN_X].k <= 16)
        least *= SIXTEENS;
    if (least < inside.figures.memory_cycles)
        least = inside.figures.memory_cycles;
    cost[QUERN_DEQUANTIZE_MAINLOOP].cycles = least;
    always = pays_always(s, &inside);
    if (always < 0)
        return QUERN_ENOMEM;
    choice->fixed = always;
    for (int strategy = QUERN_DEQUANTIZE_PASS; strategy <= QUERN_DEQUANTIZE_F16;
         strategy++) {
        if (!may_replace(s, &inside, strategy, always))
            continue;
        found = judge_strategy(s, strategy, &cost[strategy]);
        if (found < 0)
            return QUERN_ENOMEM;
        choice->judged |= found;
        if (!found || (!always && cost[strategy].cycles >= least))
            continue;
        choice->strategy = strategy;
        least = cost[strategy].cycles;
    }
    return QUERN_OK;
}

/* A measured choice takes precedence over the model's. */
static int prefer(struct qn_session *s, struct qn_dequantize_choice *choice)
{
    int code = qn_tuned_look(s);
    int strategy = s->tuned.known ? (int)s->tuned.found.line.dequantize : 0;

    choice->tuned = !choice->fixed && choice->cost[strategy].cycles > 0;
    if (choice->tuned)
        choice->strategy = strategy;
    return code;
}

int qn_dequantize_choose(struct qn_session *s,
                         struct qn_dequantize_choice *choice)
{
    const struct qn_problem *p = s->problem;
    int code;

    memset(choice, 0, sizeof *choice);
    choice->asked = p->dequantize > QUERN_DEQUANTIZE_MAINLOOP;
    choice->strategy =
        choice->asked ? p->dequantize : QUERN_DEQUANTIZE_MAINLOOP;
    choice->model = choice->strategy;
    if (choice->asked && s->demand.backend == QUERN_BACKEND_CUBLASLT)
        return qn_error_set(QUERN_EINVAL,
                            "dequantize=%s: the cublaslt backend multiplies "
                            "copies as they are",
                            qn_dequantize_name(p->dequantize));
    if (p->dequantize != QUERN_DEQUANTIZE_AUTO || s->demand.kernel ||
        s->demand.backend == QUERN_BACKEND_CUBLASLT ||
        s->demand.backend == QUERN_BACKEND_HOST ||
        !qn_dequantize_end(s->ctx, p, s->demand.recipe))
        return QUERN_OK;
    code = judge(s, choice);
    choice->model = choice->strategy;
    return code ? code : prefer(s, choice);
}

int qn_dequantize_next(const struct qn_dequantize_choice *choice)
{
    return choice->tuned && choice->strategy != choice->model
               ? choice->model
               : QUERN_DEQUANTIZE_MAINLOOP;
}
