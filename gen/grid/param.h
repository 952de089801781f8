/* SPDX-License-Identifier: Apache-2.0 */
/* param.h: the parameters of kernels, as templates see them. */
#pragma once

#include "statement/spec.h"

/* The bits of these parameters, which blanks separate, in left_out. */
uint64_t qg_param_bits(const struct qg_kernels *, const char *names);
/* The statement's parameters without some: each such list exists once. */
struct qg_params *qg_param_list(struct qg *, struct qg_kernels *,
                                uint64_t left_out);
