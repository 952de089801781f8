/* SPDX-License-Identifier: Apache-2.0 */
/* result_space.c: the parts of a product whose copies a cast makes. */
#include "problem/result_rules.h"
#include "base/context.h"
#include "problem/geometry.h"
#include "problem/quantize.h"
#include "problem/problem.h"

void qn_result_lay_out(const struct qn_problem *p,
                       const struct qn_recipe *recipe, size_t begin,
                       struct qn_result_space *space)
{
    struct qn_quantize_space cast;
    struct qn_quantization q;
    struct qn_problem product;
    struct qn_geometry numbers;

    qn_result_product(p, &product);
    qn_result_cast(p, recipe, &q);
    qn_quantize_lay_out(&q, recipe, &cast);
    qn_geometry_of(&product, recipe, QN_ROLE_D, &numbers);
    space->end = begin;
    space->cast = qn_space_add(&space->end, cast.end);
    space->numbers =
        qn_space_add(&space->end, (size_t)qn_geometry_bytes(&numbers, 0, 0));
}
