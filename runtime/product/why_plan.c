/* SPDX-License-Identifier: Apache-2.0 */
/*
** why_plan.c: explain what would run of a problem of any kind.
*/
#include "product/why.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "choose/ahead_choose.h"
#include "choose/session.h"
#include "product/ahead.h"
#include "product/backend.h"
#include "product/result.h"

#include <stdlib.h>

/* Of a problem that wants copies of its result. */
static int explain(struct qn_session *s, struct qn_why_choice *choice,
                   struct qn_text *text)
{
    struct qn_ahead_choice way;
    struct qn_choice *list;
    int count, code = qn_ahead_choose(s, &way);

    *choice = (struct qn_why_choice){.served = 1, .expand = way.way};
    if (!code && s->demand.backend == QUERN_BACKEND_CUBLASLT) {
        qn_why_title(text, s);
        return s->ctx->cublaslt->explain(s, &choice->served, text);
    }
    if (!code)
        code = qn_why_list(s, &list, &count);
    if (code)
        return code;
    qn_why_title(text, s);
    choice->apart = !qn_result_named(s) && (!count || !list[0].fits);
    code = qn_result_why(s, choice->apart, &choice->served, text);
    qn_tuned_why(s, way.tuned, text);
    if (!choice->apart)
        qn_why_best(s, list, count, &choice->served, text);
    qn_why_kernels(s, list, count, way.way != QUERN_EXPAND_INSIDE, text);
    free(list);
    return code;
}

int qn_why_explain(struct quern_context *ctx,
                   const struct quern_problem *problem,
                   const struct quern_plan_options *options,
                   struct qn_why_choice *choice, char **out)
{
    struct qn_session session;
    struct qn_text text = {0};
    int code;

    if (!ctx || !problem || !out)
        return qn_error_null("ctx", ctx, "problem", problem, "text");
    if (!problem->copies)
        return qn_ahead_explain(ctx, problem, options, choice, out);
    code = qn_why_begin(&session, ctx, problem, options, &text);
    if (!code)
        code = explain(&session, choice, &text);
    return qn_why_end(&session, &text, code, out);
}

int quern_why(struct quern_context *ctx, const struct quern_problem *problem,
              const struct quern_plan_options *options, char **out)
{
    struct qn_why_choice choice;

    return qn_error_done(qn_why_explain(ctx, problem, options, &choice, out));
}
