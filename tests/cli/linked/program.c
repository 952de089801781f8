/* SPDX-License-Identifier: Apache-2.0 */
/*
** program.c: a program with kernels linked ahead of time.
**
**   quern build -o kernels
**   cc -Ibuild/include -Ikernels program.c kernels/libquern_kernels.a
**      -Lbuild/lib -lquern
**
** Plans one problem with the linked kernels only. Status 0 if that works, or if
** all that is missing is a GPU.
*/
#include <quern.h>
#include <stdio.h>
#include <string.h>

#include "quern_kernels.h"

static int fail(const struct quern_context *ctx, const char *what, int code)
{
    fprintf(stderr, "%s: %s: %s\n", what, quern_strerror(code),
            quern_errmsg(ctx));
    return 1;
}

/* The linked kernel must be known as such before a GPU is looked for. */
static int explain(struct quern_context *ctx,
                   const struct quern_problem *problem,
                   const struct quern_plan_options *options)
{
    char *text = NULL;
    const int code = quern_why(ctx, problem, options, &text);
    const int found = !code && strstr(text, "quern_bf16_fprop_tn_m_bf16_sm90a");

    if (code)
        return fail(ctx, "quern_why", code);
    if (!found)
        fprintf(stderr, "quern_why names no linked kernel:\n%s\n", text);
    quern_free(text);
    return !found;
}

int main(void)
{
    const struct quern_open_options open = {.registry = &quern_kernels};
    const struct quern_plan_options options = {.backend = QUERN_BACKEND_AOT};
    struct quern_context *ctx;
    struct quern_problem problem;
    struct quern_plan *plan = NULL;
    int code = quern_open(&open, &ctx), failed = 0;

    if (!code)
        code = quern_problem_parse(ctx, "fprop bf16 g=8 m=4096 n=2048 k=7168",
                                   &problem);
    if (code)
        failed = fail(ctx, "quern_problem_parse", code);
    else
        failed = explain(ctx, &problem, &options);
    if (!failed) {
        code = quern_plan(ctx, &problem, &options, &plan);
        if (code && code != QUERN_ENODEVICE)
            failed = fail(ctx, "quern_plan", code);
    }
    quern_plan_free(plan);
    quern_close(ctx);
    return failed;
}
