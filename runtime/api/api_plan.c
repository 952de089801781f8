/* SPDX-License-Identifier: Apache-2.0 */
/*
** api_plan.c: plans of lines, and their runs.
*/
#include "api/api.h"
#include "api/api_device.h"
#include "api/api_use.h"
#include "base/context.h"
#include "base/error.h"
#include "base/sizes_type.h"
#include "base/types.h"
#include "device/check.h"
#include "layer/moe_plan.h"
#include "mlp/mlp_plan.h"
#include "product/plan.h"
#include "product/why.h"
#include "quantize/quantize_plan.h"
#include "route/route_plan.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- make, free */

static int check_kind(const struct qn_line *line,
                      const struct quern_plan_options *o)
{
    if (line->kind == QN_LINE_PRODUCT)
        return QUERN_OK;
    if (o->kernel)
        return qn_error_set(QUERN_EINVAL,
                            "options.kernel is '%s': only "
                            "products take one",
                            o->kernel);
    if (o->tune_ms)
        return qn_error_set(QUERN_EINVAL,
                            "options.tune_ms is %d: only products are tuned",
                            o->tune_ms);
    return QUERN_OK;
}

/* Those of the library's parts. */
static struct qn_plan_options options_of(const struct quern_plan_options *o)
{
    return (struct qn_plan_options){.backend = o->backend,
                                    .sms = o->sms,
                                    .kernel = o->kernel,
                                    .tune_ms = o->tune_ms,
                                    .streams = o->streams};
}

static int make(struct quern_plan *plan, const struct quern_plan_options *o)
{
    const struct qn_plan_options options = options_of(o);
    const struct qn_line *line = &plan->line;

    switch (line->kind) {
    case QN_LINE_MLP:
        return qn_mlp_plan(plan->ctx, &line->of.mlp, &options, &plan->of.mlp);
    case QN_LINE_MOE:
        return qn_moe_plan(plan->ctx, &line->of.moe, &options, &plan->of.moe);
    case QN_LINE_ROUTE:
        return qn_route_plan(plan->ctx, &line->of.route, &options,
                             &plan->of.route);
    case QN_LINE_CAST:
        return qn_quantize_plan(plan->ctx, &line->of.cast, &options,
                                &plan->of.cast);
    default:
        return qn_plan(plan->ctx, &line->of.product, &options,
                       &plan->of.product);
    }
}

/* The tensor of A that a kernel makes in its mainloop: written only if the
   caller gives the operand. */
static int is_made_inside(const struct quern_plan *plan, int arg)
{
    return plan->line.kind == QN_LINE_PRODUCT &&
           plan->of.product->has[QN_ROLE_A] == QN_HAS_IF_GIVEN &&
           (arg == QUERN_ARG_A || arg == QUERN_ARG_A_SF ||
            arg == QUERN_ARG_A_GLOBAL);
}

/* The plan's own workspace takes the place of the upper bound. */
static int finish(struct quern_plan *plan)
{
    struct quern_plan_info info;
    int code = qn_api_needs(plan->ctx, &plan->line, &plan->needs);

    if (!code)
        code =
            qn_api_table(plan->ctx, &plan->line, plan->operands, &plan->count);
    if (!code)
        code = quern_plan_info(plan, &info);
    memset(plan->unknown, 0xff, sizeof plan->unknown);
    for (int i = 0; i < plan->count && !code; i++) {
        struct quern_operand *o = &plan->operands[i];

        plan->unknown[o->arg] = (qn_pair){0, 0};
        plan->slots[i] = qn_api_slot(o->arg, plan->line.kind);
        if (o->arg == QUERN_ARG_WORKSPACE)
            o->bytes =
                (struct quern_extent){(int64_t)info.workspace_bytes, 0, 0, 1};
        if (is_made_inside(plan, o->arg))
            o->optional = o->written;
        plan->places[i] = qn_api_place(o, plan->slots[i], plan->line.kind);
    }
    return code;
}

int qn_api_make(struct quern_context *ctx, const struct qn_line *line,
                const struct quern_plan_options *options,
                struct quern_plan **out)
{
    struct quern_plan *plan = calloc(1, sizeof *plan);
    struct qn_driver_scope scope;
    int64_t *rows;
    int code;

    if (!plan)
        return qn_error_memory();
    plan->ctx = ctx;
    plan->line = *line;
    rows = qn_api_rows(&plan->line);
    plan->rows = rows ? *rows : -1;
    code = check_kind(line, options);
    if (!code)
        code = qn_api_enter(ctx, options->device, options->backend, &scope);
    if (!code) {
        code = make(plan, options);
        if (!code)
            code = finish(plan);
        qn_api_leave(ctx, &scope);
    }
    if (code) {
        quern_plan_destroy(plan);
        return code;
    }
    *out = plan;
    return QUERN_OK;
}

int qn_api_options(const struct quern_plan_options *given,
                   struct quern_plan_options *options)
{
    const struct quern_plan_options usual = QUERN_PLAN_OPTIONS_INIT;

    *options = given ? *given : usual;
    if (qn_api_size("options", options->size, sizeof usual,
                    "QUERN_PLAN_OPTIONS_INIT"))
        return QUERN_EINVAL;
    if (options->device < -1)
        return qn_error_set(QUERN_EINVAL,
                            "options.device is %d: -1 or an ordinal is "
                            "expected",
                            options->device);
    return QUERN_OK;
}

int quern_plan_create(struct quern_context *ctx, const char *text,
                      const struct quern_plan_options *given,
                      struct quern_plan **plan)
{
    struct quern_plan_options options;
    struct qn_line line;
    int code = qn_api_line(ctx, text, &line);

    if (plan)
        *plan = NULL;
    else if (!code)
        code = qn_error_set(QUERN_EINVAL, "plan is NULL");
    if (!code)
        code = qn_api_options(given, &options);
    return code ? code : qn_api_make(ctx, &line, &options, plan);
}

void qn_api_free(struct quern_plan *plan)
{
    if (plan->line.kind == QN_LINE_MLP)
        qn_mlp_plan_free(plan->of.mlp);
    else if (plan->line.kind == QN_LINE_MOE)
        qn_moe_plan_free(plan->of.moe);
    else if (plan->line.kind == QN_LINE_ROUTE)
        qn_route_plan_free(plan->of.route);
    else if (plan->line.kind == QN_LINE_CAST)
        qn_quantize_plan_free(plan->of.cast);
    else
        qn_plan_free(plan->of.product);
    free(plan->key);
    free(plan);
}

void quern_plan_destroy(struct quern_plan *plan)
{
    if (plan && !plan->key)
        qn_api_free(plan);
}

/* -------------------------------------------------------------------- tell */

const struct quern_operand *quern_plan_operands(const struct quern_plan *plan,
                                                int *count)
{
    if (count)
        *count = plan ? plan->count : 0;
    return plan ? plan->operands : NULL;
}

int quern_plan_info(const struct quern_plan *plan, struct quern_plan_info *info)
{
    if (!plan || !info)
        return qn_error_set(QUERN_EINVAL, "%s is NULL", plan ? "info" : "plan");
    if (plan->line.kind == QN_LINE_PRODUCT)
        qn_plan_info(plan->of.product, info);
    else if (plan->line.kind == QN_LINE_CAST)
        qn_quantize_plan_info(plan->of.cast, info);
    else if (plan->line.kind == QN_LINE_ROUTE)
        qn_route_plan_info(plan->of.route, info);
    else if (plan->line.kind == QN_LINE_MOE)
        qn_moe_plan_info(plan->of.moe, info);
    else
        qn_mlp_plan_info(plan->of.mlp, info);
    return QUERN_OK;
}

int qn_api_why(struct quern_context *ctx, const char *text_line,
               const struct quern_plan_options *given,
               struct qn_why_facts *facts, char **text)
{
    struct quern_plan_options o;
    struct qn_plan_options options;
    struct qn_driver_scope scope;
    struct qn_line line;
    int code = qn_api_line(ctx, text_line, &line);

    if (text)
        *text = NULL;
    if (!code)
        code = qn_api_options(given, &o);
    if (!code)
        code = check_kind(&line, &o);
    if (!code && !text)
        code = qn_error_set(QUERN_EINVAL, "text is NULL");
    if (!code)
        code = qn_api_enter(ctx, o.device, o.backend, &scope);
    if (code)
        return code;
    options = options_of(&o);
    if (line.kind == QN_LINE_MLP)
        code = qn_mlp_why(ctx, &line.of.mlp, &options, text);
    else if (line.kind == QN_LINE_MOE)
        code = qn_moe_why(ctx, &line.of.moe, &options, text);
    else if (line.kind == QN_LINE_ROUTE)
        code = qn_route_why(ctx, &line.of.route, &options, text);
    else if (line.kind == QN_LINE_CAST)
        code = qn_quantize_why(ctx, &line.of.cast, &options, text);
    else
        code = qn_why(ctx, &line.of.product, &options, facts, text);
    qn_api_leave(ctx, &scope);
    return code;
}

int quern_why(struct quern_context *ctx, const char *line,
              const struct quern_plan_options *options, char **text)
{
    return qn_api_why(ctx, line, options, NULL, text);
}

/* --------------------------------------------------------------------- run */

/* The CUDA context of a plan; NULL: it runs on the host. */
static struct cu_context *context_of(const struct quern_plan *plan)
{
    const struct qn_mlp_plan *mlp =
        plan->line.kind == QN_LINE_MLP   ? plan->of.mlp
        : plan->line.kind == QN_LINE_MOE ? plan->of.moe->mlp
                                         : NULL;

    return mlp ? mlp->launches[QN_MLP_Y].product->context
           : plan->line.kind == QN_LINE_ROUTE ? plan->of.route->context
           : plan->line.kind == QN_LINE_CAST  ? plan->of.cast->context
                                              : plan->of.product->context;
}

static int admit(const struct quern_plan *plan, const struct quern_args *args,
                 struct CUstream_st *stream, union qn_given *given)
{
    int code;

    if (!plan || !args)
        return qn_error_set(QUERN_EINVAL, "%s is NULL", plan ? "args" : "plan");
    code = qn_api_stream(plan->ctx, context_of(plan), stream);
    return code ? code : qn_api_given(plan, args, given);
}

int quern_run(const struct quern_plan *plan, const struct quern_args *args,
              struct CUstream_st *stream)
{
    union qn_given given;
    int code = admit(plan, args, stream, &given);

    if (code)
        return code;
    if (plan->line.kind == QN_LINE_MLP)
        return qn_mlp_run(plan->of.mlp, &given.mlp, args->phase, stream);
    if (plan->line.kind == QN_LINE_MOE)
        return qn_moe_run(plan->of.moe, &given.mlp, args->phase, stream);
    if (plan->line.kind == QN_LINE_ROUTE)
        return qn_route_run(plan->of.route, &given.route, stream);
    if (plan->line.kind == QN_LINE_CAST)
        return qn_quantize_run(plan->of.cast, &given.cast, stream);
    return qn_run(plan->of.product, &given.product, stream);
}

/* The sizes as a message names them; their memory is not read. */
static struct qn_tensor named_sizes(const struct quern_args *args)
{
    struct qn_tensor t = {.type = QUERN_TYPE_NONE};

    t.first_dims = args->of[QUERN_ARG_LENGTHS].data;
    t.offsets = args->of[QUERN_ARG_STARTS].data;
    if (args->of[QUERN_ARG_ENDS].data) {
        t.offsets = args->of[QUERN_ARG_ENDS].data;
        t.sizes_type = QN_SIZES_ENDS;
    }
    return t;
}

/* The memory that runs with these arguments note errors in. */
static void *errors_of(const struct quern_plan *plan,
                       const struct quern_args *args)
{
    void *apart = args->of[QUERN_ARG_ERRORS].data;

    return apart && !plan->unknown[QUERN_ARG_ERRORS][0]
               ? apart
               : args->of[QUERN_ARG_WORKSPACE].data;
}

int quern_check(const struct quern_plan *plan, const struct quern_args *args,
                struct CUstream_st *stream)
{
    struct cu_context *context;
    struct qn_tensor sizes;
    void *errors;
    int code;

    if (plan && plan->unknown[QUERN_ARG_WORKSPACE][0])
        return qn_error_set(QUERN_EINVAL,
                            "plan is of a '%s' line: it has no workspace, and "
                            "finds no errors on the device",
                            qn_routing_name(plan->line.of.route.work));
    errors = plan && args ? errors_of(plan, args) : NULL;
    if (!errors)
        return qn_error_null("plan", plan, "args", args, "workspace");
    code = qn_api_size("args", args->size, sizeof *args, "QUERN_ARGS_INIT");
    if (!code)
        code = qn_context_process(plan->ctx, "plan");
    context = context_of(plan);
    if (!code)
        code = qn_api_stream(plan->ctx, context, stream);
    if (code)
        return code;
    if (plan->line.kind == QN_LINE_ROUTE)
        return qn_route_run_check(plan->of.route, errors, stream);
    if (plan->line.kind == QN_LINE_MOE)
        return qn_moe_run_check(plan->of.moe, errors, stream);
    sizes = named_sizes(args);
    return qn_check_record(context ? plan->ctx->driver : NULL, context, errors,
                           &sizes, "quern_check", stream);
}
