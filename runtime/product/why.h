/* SPDX-License-Identifier: Apache-2.0 */
/*
** why.h: what would run of a problem, in words and for code.
*/
#ifndef QUERN_PRODUCT_WHY_H
#define QUERN_PRODUCT_WHY_H

#include "quern.h"

struct qn_choice;
struct qn_session;
struct qn_text;
struct quern_context;

struct qn_why_choice {
    int served; /* a kernel computes it, or the product of what was expanded */
    int apart;  /* a cast behind the product makes copies of its result */
    int expand; /* enum quern_expand, but for AUTO: what operands become */
};

/* quern_why, and what it says. */
int qn_why_explain(struct quern_context *ctx,
                   const struct quern_problem *problem,
                   const struct quern_plan_options *options,
                   struct qn_why_choice *choice, char **text);

/* The same of a kernel that reads the operands as the problem has them. */
int qn_why_one(struct quern_context *ctx, const struct quern_problem *problem,
               const struct quern_plan_options *options,
               struct qn_why_choice *choice, char **text);

/* A session, on an imagined GPU where there is none; qn_why_end is due after
   errors too, and turns the text into the caller's. */
int qn_why_begin(struct qn_session *session, struct quern_context *ctx,
                 const struct quern_problem *problem,
                 const struct quern_plan_options *options,
                 struct qn_text *text);
int qn_why_end(struct qn_session *session, struct qn_text *text, int code,
               char **out);

/* The problem, and where it would run. */
void qn_why_title(struct qn_text *text, const struct qn_session *session);

/* The choices in the order in which quern_plan tries the backends; freed with
   free. */
int qn_why_list(struct qn_session *session, struct qn_choice **list,
                int *count);

/* What the best of them cannot beat; or that none fits: *served becomes 0. */
void qn_why_best(struct qn_session *session, const struct qn_choice *list,
                 int count, int *served, struct qn_text *text);

/* What fits, what does not, what does not exist; none of it runs where operands
   are expanded `ahead`. */
void qn_why_kernels(struct qn_session *session, const struct qn_choice *list,
                    int count, int ahead, struct qn_text *text);

#endif
