/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_tokens.c: do products of a layer read tokens through indices?
**
** Then their rows are not made: casts and dequantize passes have each token
** once. The kernels lose some time to rows from anywhere, LOSES of bf16
** (bench/notes: layer-gather). Codes of dy keep rows: to read tokens gained
** nothing (bench/notes: layer-mxfp8). For x of codes or without
** scales the number of columns decides, as was measured. Else:
**
**     rows    = product of rows, with its pass if that is taken
**     tokens  = product * LOSES and a pass of tokens
**     written = the codes that a cast writes less, by the rate of casts; of dy
**               less one more launch, which reads dy again
**
** tokens are taken if they cost less than rows + written.
*/
#include "mlp/mlp_tokens.h"
#include "base/context.h"
#include "base/types.h"
#include "choose/dequantize_choose.h"
#include "choose/model.h"
#include "choose/session.h"
#include "problem/problem.h"
#include "problem/quantize.h"

enum { WIDEST = 512, WIDEST_SCALED = 4096 }; /* columns */
#define LOSES 1.08

static int is_back(const struct qn_problem *p)
{
    return p->op == QUERN_DGRAD;
}

/* Cycles of the product with its launches before, without tokens; 0: nothing
   serves, or memory ran out. *plain: the order of sums is that of plain
   products, for any count of rows. */
static double rows_cycles(const struct qn_session *s,
                          const struct qn_problem *p, int *plain)
{
    struct qn_dequantize_choice choice;
    struct qn_session inner;
    struct qn_choice best;
    double cycles = 0;

    *plain = 0;
    if (qn_session_inner(&inner, s, p, &s->options) ||
        qn_dequantize_choose(&inner, &choice))
        return 0;
    *plain = choice.strategy == QUERN_DEQUANTIZE_PASS;
    if (choice.judged)
        cycles = choice.cost[choice.strategy].cycles;
    if (*plain || qn_select_best(s->ctx, &inner.demand, &best) <= 0)
        return cycles;
    *plain = !qn_select_sums(best.candidate->kernel);
    return cycles > 0 ? cycles : best.figures.cycles;
}

static double tokens_cycles(const struct qn_session *s,
                            const struct qn_recipe *recipe,
                            const struct qn_problem *p)
{
    struct qn_problem product;
    struct qn_session inner;
    double cycles = 0;
    int served;

    qn_dequantize_first(s->ctx, p, recipe, (int)p->dequantize, &product);
    if (qn_session_inner(&inner, s, p, &s->options) ||
        qn_select_cycles(s->ctx, &inner.demand, &product, &served, &cycles) ||
        !served)
        return 0;
    return cycles * LOSES +
           qn_dequantize_cost_of(p, recipe, QUERN_DEQUANTIZE_PASS,
                                 qn_model_memory_share(&s->device))
               .moving;
}

/* Cycles that the cast of rows takes more than that of tokens. */
static double written_cycles(const struct qn_session *s,
                             const struct qn_recipe *recipe,
                             const struct qn_problem *p)
{
    const int of = is_back(p) ? QN_DY : QN_X;
    const struct qn_quantization q = {.of = of};
    const double bytes =
        qn_type_bits(qn_quantize_element(&q, recipe)) / 8.0 +
        (recipe->scaling[of].k > 0 ? qn_type_bits(recipe->scaling[of].type) /
                                         8.0 / recipe->scaling[of].k
                                   : 0);
    const double k = (double)p->k, tokens = (double)p->tokens;
    const double rows =
        qn_model_cast(&s->device, ((double)p->m - tokens) * k * bytes, 0);

    return is_back(p) ? rows - qn_model_cast(&s->device, tokens * k * 2, 1)
                      : rows;
}

/* By the rule for products of codes, or of values as they are, which was
   measured on 9.0. GPUs of 10.0 and 10.3 follow it for codes, since they do
   about as many products for each byte of memory; none was measured. */
static int fits(const struct qn_session *s, const struct qn_recipe *recipe,
                const struct qn_problem *rows)
{
    const int capability = qn_session_capability(s);

    return !is_back(rows) &&
           rows->n <= (recipe->scaled ? WIDEST_SCALED : WIDEST) &&
           (!qn_session_gpu(s) || capability == 90 ||
            (recipe->scaled && capability / 10 == 10));
}

/* By the model, for products of bf16 after a pass. */
static int pays(const struct qn_session *s, const struct qn_recipe *recipe,
                double of_rows, const struct qn_problem *tokens)
{
    const double of_tokens =
        qn_session_capability(s) == 90 ? tokens_cycles(s, recipe, tokens) : 0;

    return of_rows > 0 && of_tokens > 0 &&
           of_tokens < of_rows + written_cycles(s, recipe, tokens);
}

int qn_mlp_tokens_wanted(const struct qn_session *s, const struct qn_mlp *mlp,
                         const struct qn_recipe *recipe,
                         const struct qn_problem *rows,
                         struct qn_problem *tokens)
{
    const int forced = mlp->tokens == QUERN_TOKENS_ALL ||
                       (mlp->tokens == QUERN_TOKENS_X && !is_back(rows));
    double of_rows;
    int plain;

    *tokens = *rows;
    if (!qn_mlp_gather(mlp, recipe, tokens))
        return 0;
    if (tokens->dequantize != QUERN_DEQUANTIZE_PASS)
        return forced || fits(s, recipe, rows);
    if (!qn_session_gpu(s))
        return forced; /* no weights become bf16 there */
    of_rows = rows_cycles(s, rows, &plain);
    return plain && /* the bits would be others */
           (forced || pays(s, recipe, of_rows, tokens));
}
