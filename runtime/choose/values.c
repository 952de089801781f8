/* SPDX-License-Identifier: Apache-2.0 */
/* values.c: where each parameter of kernels is in their values. */
#include "choose/values.h"

/* In step with QN_PARAMS by construction.          COUPLED: params */
const size_t qn_value_offsets[QN_PARAM_COUNT] = {
#define OFFSET(name, type, meaning)                                            \
    [QN_PARAM_##name] = offsetof(struct qn_values, name),
    QN_PARAMS(OFFSET)
#undef OFFSET
};

void qn_value_list(const struct qn_kernel *kernel, struct qn_values *values,
                   void *params[QN_PARAM_COUNT])
{
    for (int i = 0; i < kernel->nparams; i++)
        params[i] = (char *)values + qn_value_offsets[kernel->params[i]];
}
