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
