/* SPDX-License-Identifier: Apache-2.0 */
/* result_why.c: say how copies of a product's result are made, and why. */
#include "product/frame.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/model.h"
#include "choose/session.h"
#include "problem/quantize.h"
#include "problem/result_rules.h"

struct cost {
    double bytes, cycles;
};

static struct cost cost_of(const struct qn_device *device,
                           const struct qn_problem *p,
                           const struct qn_recipe *recipe)
{
    struct qn_quantization q;
    struct qn_tensor copy = {0};
    struct cost cost;
    double read;
    int twice;

    qn_result_cast(p, recipe, &q);
    twice = qn_quantize_needs_amax(&q, qn_quantize_scaling(&q, recipe));
    read = qn_quantize_values(&q) * qn_type_bits(q.type) / 8;
    cost.bytes = twice ? 2 * read : read;
    for (int which = QUERN_ROWWISE; which <= QUERN_COLUMNWISE; which++) {
        if (!(q.copies & which))
            continue;
        qn_quantize_copy(&q, recipe, which, &copy);
        cost.bytes += (double)copy.bytes + (double)copy.sf_bytes;
    }
    cost.cycles = qn_model_cast(device, cost.bytes, 1 + twice);
    return cost;
}

void qn_result_why(struct qn_session *s, int apart, struct qn_text *text)
{
    const struct qn_recipe *recipe = s->demand.recipe;
    const struct cost cost = cost_of(&s->device, s->problem, recipe);
    const char *reason = qn_result_apart(s->problem, recipe);

    if (!apart)
        qn_text_add(text,
                    "copies of the result leave the product's own launch; a "
                    "cast after it would take %.0f cycles to move %.0f MB\n\n",
                    cost.cycles, cost.bytes / 1e6);
    else
        qn_text_add(text,
                    "copies of the result are made by a cast after the "
                    "product, %.0f cycles to move %.0f MB: %s\n\n",
                    cost.cycles, cost.bytes / 1e6,
                    reason ? reason
                           : "no kernel makes them in the product's launch");
}
