/* SPDX-License-Identifier: Apache-2.0 */
/*
** cast_command.h: what the commands do with a quantization.
*/
#ifndef QN_CAST_COMMAND_H
#define QN_CAST_COMMAND_H

#include "cli.h"

/* 1 - 2xy / (xx + yy) of normal bf16 values x and what the host makes of
   them in the rowwise tensor of the recipe's tensor. 0; or 1, after
   printing. */
int qn_cast_error(const struct qn_options *, struct quern_context *,
                  const char *recipe, int of, double *error);

/* `quern run`, `bench`, `describe` and `why` of a quantization. Exit
   statuses. */
int qn_cast_command_run(const struct qn_options *, struct quern_context *,
                        const char *text);
int qn_cast_command_bench(const struct qn_options *, struct quern_context *,
                          const char *text, cJSON *rows);
int qn_cast_command_describe(const struct qn_options *, struct quern_context *,
                             const char *text);
int qn_cast_command_why(const struct qn_options *, struct quern_context *,
                        const char *text);

#endif
