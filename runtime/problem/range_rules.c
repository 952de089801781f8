/* SPDX-License-Identifier: Apache-2.0 */
/* range_rules.c: which products may have their operands as f16. */
#include "problem/range_rules.h"
#include "problem/geometry.h"
#include "problem/quantize.h"

/* The reason that one operand cannot be f16; NULL: none. */
static const char *wrong_operand(const struct qn_problem *p,
                                 const struct qn_recipe *recipe, int role)
{
    struct qn_quantization q;
    const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

    if (!s)
        return "operands without scales are multiplied as they are";
    if (qn_quantize_element(&q, recipe) != QUERN_E4M3)
        return "codes of e4m3 become f16, no others: of four bits bf16 takes "
               "no longer, and e5m2 has too many exponents";
    if (s->type != QUERN_E8M0 || s->span != QN_SPAN_BLOCK || s->global)
        return "its scale type is no power of two; e8m0 is";
    if (s->k != 32 || s->order != QN_ORDER_ROWS || s->rows > 1 ||
        s->pad_rows > 1 || s->pad_columns > 1 || s->apart)
        return "scales of 32 values are looked at, line by line";
    return NULL;
}

const char *qn_range_wrong(const struct qn_problem *p,
                           const struct qn_recipe *recipe)
{
    const char *why = wrong_operand(p, recipe, QN_ROLE_A);

    if (p->op == QUERN_WGRAD)
        return "wgrad is as fast in bf16, after launches that dequantize";
    if (p->alpha || p->beta || p->bias || p->activation || p->probability)
        return "only a plain store is supported: no alpha, beta, bias or "
               "activation";
    return why ? why : wrong_operand(p, recipe, QN_ROLE_B);
}

void qn_range_product(const struct qn_problem *p, struct qn_problem *product)
{
    *product = *p;
    product->sizes = QUERN_SIZES_DEVICE;
    product->dequantize = QUERN_DEQUANTIZE_F16;
}

double qn_range_bytes(const struct qn_problem *p,
                      const struct qn_recipe *recipe)
{
    struct qn_quantization q;
    double bytes = 0;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

        bytes += qn_quantize_values(&q) / s->k;
    }
    return bytes;
}
