/* SPDX-License-Identifier: Apache-2.0 */
/*
** c_aot.c: a program with kernels linked ahead of time.
**
**   quern build --arch sm_80,sm_90a,sm_120a -o kernels
**   cc -Ikernels c_aot.c kernels/libquern_kernels.a
**      $(pkg-config --cflags --libs quern)
**
** Plans a product with the linked kernels only and prints the one that the GPU
** gets; without a GPU "none", and how an assumed one would be served.
*/
#include <quern.h>
#include <stdio.h>

#include "quern_kernels.h"

static const char line[] = "fprop bf16 g=8 m=4096 n=2048 k=7168";

static int fail(const char *what, int code)
{
    fprintf(stderr, "%s: %s: %s\n", what, quern_strerror(code), quern_errmsg());
    return 1;
}

static int explain(struct quern_context *ctx,
                   const struct quern_plan_options *options)
{
    char *text = NULL;
    const int code = quern_why(ctx, line, options, &text);

    if (code)
        return fail("quern_why", code);
    printf("none\n%s", text);
    quern_free(text);
    return 0;
}

static int plan_linked(struct quern_context *ctx)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan_info info;
    struct quern_plan *plan;
    int code;

    options.backend = QUERN_BACKEND_AOT;
    code = quern_plan_create(ctx, line, &options, &plan);
    if (code == QUERN_ENODEVICE)
        return explain(ctx, &options);
    if (code)
        return fail("quern_plan_create", code);
    code = quern_plan_info(plan, &info);
    if (!code)
        puts(info.kernel);
    quern_plan_destroy(plan);
    return code ? fail("quern_plan_info", code) : 0;
}

int main(void)
{
    struct quern_open_options options = QUERN_OPEN_OPTIONS_INIT;
    struct quern_context *ctx;
    int code, failed;

    options.registry = &quern_kernels;
    code = quern_open(&options, &ctx);
    if (code)
        return fail("quern_open", code);
    failed = plan_linked(ctx);
    quern_close(ctx);
    return failed;
}
