/*
** result.h: a product's result as copies of an x, quantized at once.
*/
#ifndef QUERN_RESULT_H
#define QUERN_RESULT_H

#include "geometry.h"

/*
** The quantization of the result that operand `role` is a copy of, and its
** scaling; NULL unless that is D or T and the problem wants copies.
*/
const struct qn_scaling *qn_result_source(const struct quern_problem *problem,
                                          const struct qn_recipe *recipe,
                                          int role,
                                          struct quern_quantization *q);

/* Why the problem, which wants copies, cannot have them; or NULL. */
const char *qn_result_wrong(const struct quern_problem *problem,
                            const struct qn_recipe *recipe);

#endif
