/* SPDX-License-Identifier: Apache-2.0 */
/* api_tune.c: quern_tune of a line. */
#include "api/api.h"
#include "api/api_device.h"
#include "base/error.h"

/* The arguments of a run, by a plan for the machine's best kernel. */
static int give(struct quern_context *ctx, const char *text,
                const struct quern_tune_options *o, union qn_given *given)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;
    int code;

    options.device = o->device;
    options.backend = o->backend;
    code = quern_plan_create(ctx, text, &options, &plan);
    if (code)
        return code;
    code = qn_api_given(plan, o->args, given);
    quern_plan_destroy(plan);
    return code;
}

static int tune(struct quern_context *ctx, const struct qn_line *line,
                const struct quern_tune_options *o, const struct qn_args *args,
                struct quern_tune_result *result)
{
    const struct qn_tune_options options = {.seconds = o->seconds,
                                            .backend = o->backend,
                                            .sms = o->sms,
                                            .l2 = o->l2,
                                            .threads = o->threads,
                                            .keep = o->keep,
                                            .seed = o->seed,
                                            .sizes = o->sizes,
                                            .args = args,
                                            .stream = o->stream,
                                            .progress = o->progress,
                                            .user = o->user};
    struct qn_driver_scope scope;
    int code = qn_api_enter(ctx, o->device, o->backend, &scope);

    if (code)
        return code;
    code = qn_tune(ctx, &line->of.product, &options, result);
    qn_api_leave(ctx, &scope);
    return code;
}

int quern_tune(struct quern_context *ctx, const char *text,
               const struct quern_tune_options *given,
               struct quern_tune_result *result)
{
    const struct quern_tune_options usual = QUERN_TUNE_OPTIONS_INIT;
    const struct quern_tune_options *o = given ? given : &usual;
    union qn_given args;
    struct qn_line line;
    int code = qn_api_line(ctx, text, &line);

    if (!code)
        code = qn_api_size("options", o->size, sizeof usual,
                           "QUERN_TUNE_OPTIONS_INIT");
    if (!code && line.kind != QN_LINE_PRODUCT)
        code =
            qn_error_set(QUERN_EINVAL, "'%s': only products are tuned", text);
    if (!code && o->args)
        code = give(ctx, text, o, &args);
    return code ? code
                : tune(ctx, &line, o, o->args ? &args.product : NULL, result);
}
