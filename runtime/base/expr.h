/* SPDX-License-Identifier: Apache-2.0 */
/* expr.h: the value of a `requires` text for a problem. */
#pragma once

#include "internal.h"

#include <stdint.h>

/* The names in an expression. */
struct qn_expr_values {
    int64_t m, n, k, groups;
};

/* Evaluate C's integer operators || && == != < <= > >= + - * / % ! and unary
   minus, parentheses, decimal constants and the names above, with C's
   precedence, in 64 bits. Operations that C leaves undefined (overflow,
   division by zero) are errors, unless && or || skips them. Returns NULL, or
   the text's error; static storage. */
const char *qn_expr_eval(const char *text, const struct qn_expr_values *values,
                         int64_t *result);
