/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer_command.c: commands on a grouped MLP.
*/
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "base/types.h"
#include "problem/problem.h"
#include "problem/sizes.h"

/* Tokens that are compared: a few seconds of one core. */
enum { CHECKED = 128 };

/* The text as an MLP; an exit status, after printing. */
static int parse(const struct qn_options *opt, struct quern_context *ctx,
                 const char *text, struct qn_mlp *mlp)
{
    char line[2048];
    int code, status = qn_source_expand(opt, &text, line, sizeof line);

    if (status)
        return status;
    code = qn_mlp_parse(ctx, text, mlp);
    return code ? qn_message_code(opt, code, qn_errmsg(ctx)) : QN_EXIT_OK;
}

/* --------------------------------------------------------------------- run */

static void add_verdict(cJSON *row, const struct qn_layer_verdict *v)
{
    cJSON *errors = cJSON_AddObjectToObject(row, "errors");

    for (int i = 0; v->results[i].name; i++)
        cJSON_AddNumberToObject(errors, v->results[i].name,
                                v->results[i].error);
    cJSON_AddStringToObject(row, "oracle", "float64");
    cJSON_AddNumberToObject(row, "error", v->error);
    cJSON_AddNumberToObject(row, "tolerance", v->tolerance);
    cJSON_AddNumberToObject(row, "rows_compared", (double)v->results[0].rows);
    cJSON_AddBoolToObject(row, "passed", v->passed);
}

static const char *phases_of(const struct qn_layer *l)
{
    return l->mlp.forward_only ? "forward" : "forward and backward";
}

cJSON *qn_layer_row(const struct qn_layer *l, const struct qn_job_time *time,
                    const struct qn_layer_verdict *v)
{
    const struct qn_sizes_range range = qn_sizes_range(l->sizes, l->mlp.groups);
    cJSON *row = cJSON_CreateObject();
    char text[512];

    qn_mlp_print(&l->mlp, text, sizeof text);
    cJSON_AddStringToObject(row, "problem", text);
    cJSON_AddStringToObject(row, "kernel", phases_of(l));
    cJSON_AddStringToObject(row, "recipe", l->mlp.recipe);
    cJSON_AddStringToObject(row, "backend", l->gpu ? "gpu" : "host");
    cJSON_AddStringToObject(row, "device",
                            l->gpu ? l->gpu->device.name : "host");
    cJSON_AddNumberToObject(row, "rows_min", (double)range.min);
    cJSON_AddNumberToObject(row, "rows_median", (double)range.median);
    cJSON_AddNumberToObject(row, "rows_max", (double)range.max);
    cJSON_AddNumberToObject(row, "ms", time->seconds * 1e3);
    cJSON_AddNumberToObject(row, "ms_least", time->least * 1e3);
    cJSON_AddNumberToObject(row, "runs", time->runs);
    cJSON_AddNumberToObject(row, "tflops",
                            qn_layer_flops(l) / time->seconds * 1e-12);
    qn_report_load(row, "", &time->load);
    if (v)
        add_verdict(row, v);
    return row;
}

static void print_verdict(const struct qn_layer_verdict *v)
{
    printf("check    %s against float64: distance at most %.0e of many "
           "values%s%s\n",
           v->passed ? "passed" : "FAILED", v->tolerance,
           v->guards ? "" : "; bytes around a buffer were written",
           v->untouched ? ""
                        : "; what belongs to no group was written, or with "
                          "outside=zero is not zero");
    for (int i = 0; v->results[i].name; i++)
        printf("  %-6s %.2e of at most %.1e on %lld rows\n", v->results[i].name,
               v->results[i].error, v->results[i].tolerance,
               (long long)v->results[i].rows);
}

static void print(const struct qn_options *opt, const struct qn_layer *l,
                  const struct qn_job_time *time,
                  const struct qn_layer_verdict *v)
{
    const struct qn_sizes_range range = qn_sizes_range(l->sizes, l->mlp.groups);
    char text[512];

    if (opt->json) {
        qn_table_json(qn_layer_row(l, time, v));
        return;
    }
    qn_mlp_print(&l->mlp, text, sizeof text);
    printf("problem  %s\n"
           "tokens   %lld in %d groups, %lld to %lld, median %lld\n"
           "device   %s\n"
           "time     %.3f ms %s, median of %d, %.3g "
           "TFLOP/s\n",
           text, (long long)l->rows, l->mlp.groups, (long long)range.min,
           (long long)range.max, (long long)range.median,
           l->gpu ? l->gpu->device.name : "host", time->seconds * 1e3,
           phases_of(l), time->runs, qn_layer_flops(l) / time->seconds * 1e-12);
    if (v)
        print_verdict(v);
}

/* The first run is checked: later ones may add to the gradients. */
static int run_layer(const struct qn_options *opt, struct qn_layer *l)
{
    struct qn_job_time time;
    struct qn_layer_verdict verdict;
    int code = qn_layer_run(l);

    if (!code && opt->check)
        code = qn_layer_judge(l, CHECKED, &verdict);
    if (!code)
        code = qn_layer_measure(l, 0, &time);
    if (code)
        return qn_message_code(opt, code, qn_errmsg(l->ctx));
    print(opt, l, &time, opt->check ? &verdict : NULL);
    return opt->check && !verdict.passed ? QN_EXIT_FAILED : QN_EXIT_OK;
}

/* --routes: rows of the file, whose sum becomes m. */
static int read_routes(const struct qn_options *opt, struct qn_mlp *mlp,
                       int64_t *sizes)
{
    char why[512];

    if (!opt->routes)
        return QN_EXIT_OK;
    if (qn_sizes_routes(opt->routes, mlp->groups, sizes, &mlp->m, why,
                        sizeof why))
        return qn_message_fail(opt, QN_EXIT_USAGE, "%s", why);
    return QN_EXIT_OK;
}

int qn_layer_command_run(const struct qn_options *opt,
                         struct quern_context *ctx, const char *text)
{
    int64_t sizes[QUERN_MAX_GROUPS];
    struct qn_mlp mlp;
    struct qn_layer layer = {0};
    int status = parse(opt, ctx, text, &mlp);

    if (!status)
        status = read_routes(opt, &mlp, sizes);
    if (!status)
        status = qn_layer_begin(&layer, opt, ctx, &mlp, opt->backend,
                                opt->routes ? sizes : NULL, 0);
    if (!status)
        status = run_layer(opt, &layer);
    qn_layer_free(&layer);
    return status;
}

int qn_layer_command_bench(const struct qn_options *opt,
                           struct quern_context *ctx, const char *text,
                           cJSON *rows)
{
    struct qn_mlp mlp;
    struct qn_layer layer = {0};
    struct qn_job_time time;
    int code, status = parse(opt, ctx, text, &mlp);

    if (!status)
        status = qn_layer_begin(&layer, opt, ctx, &mlp, opt->backend, NULL, 0);
    if (!status) {
        code = qn_layer_measure(&layer, opt->repeat, &time);
        if (code)
            status = qn_message_code(opt, code, qn_errmsg(ctx));
        else
            cJSON_AddItemToArray(rows, qn_layer_row(&layer, &time, NULL));
    }
    qn_layer_free(&layer);
    return status;
}

static int run_line(const struct qn_options *opt, struct quern_context *ctx,
                    const struct qn_line_commands *commands, const char *text)
{
    switch (qn_line_of(text)) {
    case QN_LINE_CAST:
        return commands->cast(opt, ctx, text);
    case QN_LINE_MLP:
        return commands->layer(opt, ctx, text);
    default:
        return commands->product(opt, ctx);
    }
}

int qn_layer_line(const struct qn_options *opt,
                  const struct qn_line_commands *commands)
{
    struct quern_context *ctx;
    char text[1024];
    int status = qn_source_context(opt, &ctx);

    if (status)
        return status;
    status = qn_source_join(opt, text, sizeof text);
    if (!status)
        status = run_line(opt, ctx, commands, text);
    qn_close(ctx);
    return status;
}
