/* SPDX-License-Identifier: Apache-2.0 */
/*
** result.h: plans, runs and explanations of a product whose copies a cast
** makes.
*/
#ifndef QUERN_PRODUCT_RESULT_H
#define QUERN_PRODUCT_RESULT_H

#include "problem/result_rules.h"

struct qn_session;
struct qn_text;
struct quern_plan;
struct quern_quantize_plan;

struct qn_result_plan {
    struct quern_plan *product;
    struct quern_quantize_plan *cast;
    struct qn_result_space space;
};

/* Do the options name a kernel that would make the copies? */
int qn_result_named(const struct qn_session *session);

/* A plan in a session of a problem that wants copies. Errors of quern_plan. */
int qn_result_make(struct qn_session *session, struct quern_plan **plan);

/* Free a plan of any kind; NULL is none. */
void qn_result_drop(struct quern_plan *plan);

/* The rules of quern_run on what the cast gets besides copies; where there is
   none, none of it is taken. QUERN_EINVAL. */
int qn_result_check(const struct quern_plan *plan,
                    const struct quern_args *args);

/* quern_run of arguments that were checked against a plan that fits them. */
int qn_result_run(const struct quern_plan *plan, const struct quern_args *args,
                  void *stream);

/* Which way the session's problem goes and what is counted for it: `apart`, or
   by a kernel. *served becomes 0 where the product has none. */
int qn_result_why(struct qn_session *session, int apart, int *served,
                  struct qn_text *text);

/* The result as numbers in the workspace, of as many rows as the run has, and
   the arguments of the cast that reads it. */
void qn_result_numbers(const struct quern_plan *plan,
                       const struct quern_args *args,
                       struct quern_tensor *numbers);
void qn_result_args(const struct quern_plan *plan,
                    const struct quern_quantize_plan *cast,
                    const struct quern_args *args,
                    struct quern_quantize_args *out);

#endif
