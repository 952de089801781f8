/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_backend.c: cuBLASLt as plans and runs call it. */
#include "cublaslt/cublaslt_loop.h"

const struct qn_backend qn_cublaslt_backend = {
    .plan = qn_cublaslt_plan,
    .check = qn_cublaslt_check,
    .run = qn_cublaslt_run,
    .explain = qn_cublaslt_why,
    .free = qn_cublaslt_plan_free,
};
