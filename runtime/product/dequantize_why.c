/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize_why.c: explain the dequantization of operands before they are
   multiplied. */
#include "product/frame.h"
#include "base/context.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/dequantize_choose.h"
#include "choose/session.h"
#include "problem/dequantize_rules.h"
#include "problem/geometry.h"
#include "problem/range_rules.h"
#include "problem/requantize_rules.h"

/* The candidates and their costs. */
static void add_figures(const struct qn_dequantize_choice *choice,
                        struct qn_text *text)
{
    static const int strategies[] = {QUERN_DEQUANTIZE_F16, QUERN_DEQUANTIZE_FP8,
                                     QUERN_DEQUANTIZE_PASS};
    enum { COUNT = sizeof strategies / sizeof strategies[0] };

    qn_text_add(text, "dequantize=%s%s: ", qn_dequantize_name(choice->strategy),
                choice->tuned ? ", as was measured; by the model" : "");
    for (int i = 0; i < COUNT; i++) {
        const struct qn_dequantize_cost *cost = &choice->cost[strategies[i]];

        if (cost->cycles > 0)
            qn_text_add(text, "%s %.0f cycles, %.0f of them to move %.0f MB; ",
                        qn_dequantize_name(strategies[i]), cost->cycles,
                        cost->moving, cost->bytes / 1e6);
    }
    qn_text_add(text, "mainloop %.0f, as products wait for dequantization\n",
                choice->cost[QUERN_DEQUANTIZE_MAINLOOP].cycles);
}

/* The launches for the operands, and their costs. */
static void add_strategy(struct qn_session *s, int strategy,
                         struct qn_text *text)
{
    const struct qn_recipe *recipe = s->demand.recipe;
    const struct qn_recipe *target = strategy == QUERN_DEQUANTIZE_FP8
                                         ? qn_requantize_target(s->ctx, recipe)
                                         : NULL;
    struct qn_quantization q;
    struct qn_dequantize_space space;

    if (strategy == QUERN_DEQUANTIZE_F16) {
        qn_text_add(text, "codes become f16 in the mainloop, relative to each "
                          "operand's largest scale: exact, where its scales "
                          "are within 2^21 of each other\n\n");
        return;
    }
    qn_dequantize_lay_out(s->problem, recipe, target, &space);
    if (target && qn_requantize_sums(recipe))
        qn_text_add(text,
                    "w becomes e4m3 with a power of two for each row, the same "
                    "values, in %zu bytes of workspace\n\n",
                    space.end);
    else if (target)
        qn_text_add(
            text,
            "operands become e4m3 with a power of two for 128 values of k, the "
            "same values, in %zu bytes of workspace\n"
            "sums are those of FP8 tensor cores, of about 13 bits for 128 "
            "values; dequantize=mainloop%s sums in fp32\n\n",
            space.end,
            qn_dequantize_cast(s->problem, recipe, QN_ROLE_A, &q)
                ? " or before them"
                : "");
    else
        qn_text_add(text, "operands become %s in %zu bytes of workspace\n\n",
                    qn_type_name(qn_dequantize_type(s->problem, recipe)),
                    space.end);
}

/* Why values that may be dequantized are not to be had in f16. */
static void add_wrong(struct qn_session *s, struct qn_text *text)
{
    const struct qn_problem *p = s->problem;
    const char *why = qn_range_wrong(p, s->demand.recipe);

    if (why && p->dequantize == QUERN_DEQUANTIZE_AUTO &&
        !qn_dequantize_check(s->ctx, p, s->demand.recipe))
        qn_text_add(text, "not as f16: %s\n", why);
}

void qn_dequantize_why(struct qn_session *s,
                       const struct qn_dequantize_choice *choice,
                       struct qn_text *text)
{
    add_wrong(s, text);
    if (choice->judged)
        add_figures(choice, text);
    else if (choice->asked)
        qn_text_add(text, "dequantize=%s, as the problem says\n",
                    qn_dequantize_name(choice->strategy));
    if (choice->strategy == QUERN_DEQUANTIZE_MAINLOOP)
        qn_text_add(text, choice->judged ? "\n" : "");
    else if (s->demand.backend == QUERN_BACKEND_HOST &&
             choice->strategy != QUERN_DEQUANTIZE_PASS)
        qn_text_add(text, "the host backend does not need this: it accumulates "
                          "in wide precision on the original values\n\n");
    else
        add_strategy(s, choice->strategy, text);
}
