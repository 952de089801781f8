/* SPDX-License-Identifier: Apache-2.0 */
/*
** subject.c: a line of any kind with data, which `quern run`, `bench` and
** `demo` make, check, time and report.
*/
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/types.h"
#include "problem/geometry.h"
#include "problem/quantize.h"
#include "problem/sizes.h"

/* Tokens of an MLP that are compared: a few seconds of one core. */
enum { CHECKED = 128 };

/* ------------------------------------------------------------------- begin */

/* --routes: rows of the file, whose sum becomes the ragged axis. */
static int read_routes(const struct qn_options *opt, int groups, int64_t *rows,
                       int64_t *sizes)
{
    char why[512];

    if (!opt->routes)
        return QN_EXIT_OK;
    if (!rows)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--routes: tokens are the rows of a ragged m "
                               "or k, and this problem has neither");
    if (qn_sizes_routes(opt->routes, groups, sizes, rows, why, sizeof why))
        return qn_message_fail(opt, QN_EXIT_USAGE, "%s", why);
    return QN_EXIT_OK;
}

static int begin_product(struct qn_subject *s, const struct qn_options *opt,
                         const char *text)
{
    int64_t sizes[QUERN_MAX_GROUPS];
    struct qn_problem p;
    int status = qn_source_parse(opt, s->ctx, text, &p);

    if (!status)
        status = read_routes(opt, p.groups,
                             p.ragged == QUERN_AXIS_M   ? &p.m
                             : p.ragged == QUERN_AXIS_K ? &p.k
                                                        : NULL,
                             sizes);
    return status ? status
                  : qn_job_begin(&s->of.job, opt, s->ctx, &p,
                                 opt->routes ? sizes : NULL);
}

static int begin_cast(struct qn_subject *s, const struct qn_options *opt,
                      const char *text)
{
    struct qn_quantization q;
    const int code = qn_quantize_parse(s->ctx, text, &q);

    return code ? qn_message_code(opt, code, quern_errmsg())
                : qn_cast_begin(&s->of.cast, opt, s->ctx, &q, opt->backend);
}

static int begin_layer(struct qn_subject *s, const struct qn_options *opt,
                       const char *text)
{
    int64_t sizes[QUERN_MAX_GROUPS];
    struct qn_mlp mlp;
    const int code = qn_mlp_parse(s->ctx, text, &mlp);
    int status = code ? qn_message_code(opt, code, quern_errmsg())
                      : read_routes(opt, mlp.groups, &mlp.m, sizes);

    return status ? status
                  : qn_layer_begin(&s->of.layer, opt, s->ctx, &mlp,
                                   opt->backend, opt->routes ? sizes : NULL, 0);
}

static int begin_moe(struct qn_subject *s, const struct qn_options *opt,
                     const char *text)
{
    int64_t sizes[QUERN_MAX_GROUPS], rows;
    struct qn_moe moe;
    const int code = qn_moe_parse(s->ctx, text, &moe);
    int status = code ? qn_message_code(opt, code, quern_errmsg())
                      : read_routes(opt, moe.mlp.groups, &rows, sizes);

    if (!status && opt->routes) /* the last tokens may have fewer experts */
        moe.mlp.m = (rows + moe.topk - 1) / moe.topk;
    return status ? status
                  : qn_moe_job_begin(&s->of.moe, opt, s->ctx, &moe,
                                     opt->backend, opt->routes ? sizes : NULL);
}

static int begin_route(struct qn_subject *s, const struct qn_options *opt,
                       const char *text)
{
    struct qn_route route;
    int code;

    if (opt->routes)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--routes has rows of experts, and '%s' draws "
                               "experts of pairs",
                               text);
    code = qn_route_parse(text, &route);
    return code ? qn_message_code(opt, code, quern_errmsg())
                : qn_route_job_begin(&s->of.route, opt, s->ctx, &route,
                                     opt->backend);
}

int qn_subject_begin(struct qn_subject *s, const struct qn_options *opt,
                     struct quern_context *ctx, const char *text)
{
    const enum qn_line_kind kind = qn_line_of(text);
    char line[2048];
    int status = QN_EXIT_OK;

    memset(s, 0, sizeof *s);
    s->ctx = ctx;
    s->kind = kind == QN_LINE_UNKNOWN ? QN_LINE_PRODUCT : kind;
    if (s->kind == QN_LINE_PRODUCT)
        return begin_product(s, opt, text);
    if (s->kind == QN_LINE_ROUTE)
        return begin_route(s, opt, text);
    status = qn_source_expand(opt, &text, line, sizeof line);
    if (status)
        return status;
    return s->kind == QN_LINE_CAST  ? begin_cast(s, opt, text)
           : s->kind == QN_LINE_MOE ? begin_moe(s, opt, text)
                                    : begin_layer(s, opt, text);
}

/* The line's plan, memory and arguments. */
static struct qn_call *call_of(struct qn_subject *s)
{
    switch (s->kind) {
    case QN_LINE_CAST:
        return &s->of.cast.call;
    case QN_LINE_MLP:
        return &s->of.layer.call;
    case QN_LINE_MOE:
        return &s->of.moe.call;
    case QN_LINE_ROUTE:
        return &s->of.route.call;
    default:
        return &s->of.job.call;
    }
}

void qn_subject_free(struct qn_subject *s)
{
    if (s->kind == QN_LINE_MOE)
        qn_moe_job_free(&s->of.moe);
    else
        qn_call_free(call_of(s));
}

/* --------------------------------------------------------------------- run */

int qn_subject_measure(struct qn_subject *s, int runs, struct qn_job_time *time)
{
    return qn_call_measure(call_of(s), runs, time);
}

/* The oracle of a GPU is the host backend, whose own is arithmetic here. */
static int judge_product(struct qn_job *job, struct qn_subject_verdict *v)
{
    struct qn_verdict verdict;
    const int code = qn_oracle_judge(
        job, job->call.gpu ? QN_ORACLE_HOST : QN_ORACLE_FLOAT64, 0, &verdict);

    if (code)
        return code;
    v->oracle = verdict.oracle;
    v->error = verdict.error;
    v->tolerance = verdict.tolerance;
    v->rows = verdict.rows;
    v->passed = verdict.passed;
    qn_oracle_print(&verdict, v->text, sizeof v->text);
    return code;
}

void qn_subject_told(const struct qn_layer_verdict *verdict,
                     struct qn_subject_verdict *v)
{
    int used;

    *v = (struct qn_subject_verdict){.oracle = "float64",
                                     .error = verdict->error,
                                     .tolerance = verdict->tolerance,
                                     .rows = verdict->results[0].rows,
                                     .passed = verdict->passed,
                                     .layer = verdict};
    used = snprintf(
        v->text, sizeof v->text,
        "%s against float64: distance at most %.0e of many "
        "values%s%s",
        v->passed ? "passed" : "FAILED", v->tolerance,
        verdict->guards ? "" : "; bytes around a buffer were written",
        verdict->untouched ? ""
                           : "; memory that belongs to no group was written, "
                             "or with outside=zero is not zero");
    for (int i = 0; verdict->results[i].name; i++)
        used += snprintf(v->text + used, sizeof v->text - (size_t)used,
                         "\n  %-6s %.2e of at most %.1e on %lld rows",
                         verdict->results[i].name, verdict->results[i].error,
                         verdict->results[i].tolerance,
                         (long long)verdict->results[i].rows);
}

static int judge_route(struct qn_route_job *j, const struct qn_options *opt,
                       struct qn_subject_verdict *v)
{
    struct qn_route_verdict verdict;
    const int code = qn_route_job_judge(j, opt, &verdict);

    *v = (struct qn_subject_verdict){.oracle = verdict.oracle,
                                     .error = verdict.differ,
                                     .passed =
                                         !verdict.differ && verdict.guards};
    snprintf(v->text, sizeof v->text, "%s: %.0f %s differ from %s%s%s",
             v->passed ? "passed" : "FAILED", v->error,
             j->call.gpu ? "bytes" : "values", v->oracle, verdict.where,
             verdict.guards ? "" : "; bytes around a buffer were written");
    return code;
}

/* The first run of casts and MLPs: later ones find a history, or add to the
   gradients. An exit status. */
static int check_first(struct qn_subject *s, const struct qn_options *opt,
                       struct qn_layer_verdict *layer,
                       struct qn_subject_verdict *v)
{
    int code = s->kind == QN_LINE_PRODUCT ? QUERN_OK : qn_call_run(call_of(s));

    if (!code && opt->check && s->kind == QN_LINE_ROUTE)
        code = judge_route(&s->of.route, opt, v);
    if (!code && opt->check && qn_api_has_mlp(s->kind)) {
        code = s->kind == QN_LINE_MOE
                   ? qn_moe_job_judge(&s->of.moe, CHECKED, layer)
                   : qn_layer_judge(&s->of.layer, CHECKED, layer);
        qn_subject_told(layer, v);
    }
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    return opt->check && s->kind == QN_LINE_CAST
               ? qn_cast_judge(&s->of.cast, opt, v)
               : QN_EXIT_OK;
}

/* ------------------------------------------------------------------ report */

/* Values that rows and lines print. */
struct facts {
    char line[512];
    const struct qn_gpu *gpu;
    struct quern_plan_info info;
    const char *axis, *recipe; /* NULL: no groups of rows are told */
    const int64_t *sizes;
    int64_t counted[QUERN_MAX_GROUPS];
    int groups;
    int64_t rows;
    double flops, bytes; /* 0: not told */
    double least;        /* seconds, of the chip at its highest clocks; 0 */
};

static void find_product(const struct qn_job *job, struct facts *f)
{
    const int bits = qn_type_bits(job->operands[QN_ROLE_A].type);

    qn_problem_print(&job->problem, f->line, sizeof f->line);
    f->gpu = job->call.gpu;
    f->info = job->call.info;
    f->axis = job->problem.ragged == QUERN_AXIS_NONE
                  ? "m"
                  : qn_axis_name(job->problem.ragged);
    f->sizes = job->sizes;
    f->groups = job->problem.groups;
    f->rows = job->rows;
    f->flops = qn_job_flops(job);
    f->bytes = qn_job_bytes(job);
    if (f->gpu && f->gpu->peak_flops > 0 && f->gpu->peak_bytes > 0)
        f->least = fmax(f->flops / qn_gpu_peak(f->gpu, bits),
                        f->bytes / f->gpu->peak_bytes);
}

static void find_cast(const struct qn_cast *c, struct facts *f)
{
    qn_quantize_print(&c->q, f->line, sizeof f->line);
    f->gpu = c->call.gpu;
    f->info = c->call.info;
    f->bytes = qn_cast_bytes(c);
    if (f->gpu && f->gpu->peak_bytes > 0)
        f->least = f->bytes / f->gpu->peak_bytes;
}

static void find_layer(const struct qn_layer *l, struct facts *f)
{
    qn_mlp_print(&l->mlp, f->line, sizeof f->line);
    f->gpu = l->call.gpu;
    f->info = l->call.info;
    f->info.kernel = l->mlp.forward_only ? "forward" : "forward and backward";
    f->axis = "tokens";
    f->recipe = l->mlp.recipe;
    f->sizes = l->sizes;
    f->groups = l->mlp.groups;
    f->rows = l->rows;
    f->flops = qn_layer_flops(&l->mlp, l->rows);
}

/* Rows of each expert are counted. */
static void find_moe(const struct qn_moe_job *j, struct facts *f)
{
    qn_moe_print(&j->moe, f->line, sizeof f->line);
    f->gpu = j->call.gpu;
    f->info = j->call.info;
    f->info.kernel =
        j->moe.mlp.forward_only ? "forward" : "forward and backward";
    f->axis = "rows";
    f->recipe = j->moe.mlp.recipe;
    f->rows = qn_moe_job_sizes(j, f->counted);
    f->sizes = f->counted;
    f->groups = j->moe.mlp.groups;
    f->flops = qn_moe_job_flops(j);
}

static void find_route(const struct qn_route_job *j, struct facts *f)
{
    qn_route_print(&j->route, f->line, sizeof f->line);
    f->gpu = j->call.gpu;
    f->info = j->call.info;
    f->bytes = qn_route_job_bytes(j);
    if (f->gpu && f->gpu->peak_bytes > 0)
        f->least = f->bytes / f->gpu->peak_bytes;
}

static void find(const struct qn_subject *s, struct facts *f)
{
    memset(f, 0, sizeof *f);
    if (s->kind == QN_LINE_CAST)
        find_cast(&s->of.cast, f);
    else if (s->kind == QN_LINE_MLP)
        find_layer(&s->of.layer, f);
    else if (s->kind == QN_LINE_MOE)
        find_moe(&s->of.moe, f);
    else if (s->kind == QN_LINE_ROUTE)
        find_route(&s->of.route, f);
    else
        find_product(&s->of.job, f);
}

static void add_verdict(cJSON *row, const struct qn_subject_verdict *v)
{
    cJSON *errors = NULL;

    cJSON_AddNumberToObject(row, "error", v->error);
    cJSON_AddNumberToObject(row, "tolerance", v->tolerance);
    if (v->rows)
        cJSON_AddNumberToObject(row, "rows_compared", (double)v->rows);
    cJSON_AddStringToObject(row, "oracle", v->oracle);
    cJSON_AddBoolToObject(row, "passed", v->passed);
    if (v->layer)
        errors = cJSON_AddObjectToObject(row, "errors");
    for (int i = 0; errors && v->layer->results[i].name; i++)
        cJSON_AddNumberToObject(errors, v->layer->results[i].name,
                                v->layer->results[i].error);
}

/* Rates that follow from the time. */
static void add_time(cJSON *row, const struct facts *f,
                     const struct qn_job_time *time)
{
    cJSON_AddNumberToObject(row, "ms", time->seconds * 1e3);
    cJSON_AddNumberToObject(row, "ms_least", time->least * 1e3);
    cJSON_AddNumberToObject(row, "runs", time->runs);
    if (time->seconds > 0 && f->flops > 0)
        cJSON_AddNumberToObject(row, "tflops",
                                f->flops / time->seconds * 1e-12);
    if (time->seconds > 0 && f->bytes > 0)
        cJSON_AddNumberToObject(row, "gbps", f->bytes / time->seconds * 1e-9);
    if (time->seconds > 0 && f->least > 0)
        cJSON_AddNumberToObject(row, "roofline", f->least / time->seconds);
    qn_report_load(row, "", &time->load);
}

cJSON *qn_subject_row(const struct qn_subject *s,
                      const struct qn_job_time *time,
                      const struct qn_subject_verdict *v)
{
    cJSON *row = cJSON_CreateObject();
    struct facts f;

    find(s, &f);
    cJSON_AddStringToObject(row, "problem", f.line);
    cJSON_AddStringToObject(row, "kernel", f.info.kernel);
    if (f.recipe)
        cJSON_AddStringToObject(row, "recipe", f.recipe);
    cJSON_AddStringToObject(row, "backend", qn_backend_name(f.info.backend));
    cJSON_AddStringToObject(row, "device", f.gpu ? f.gpu->device.name : "host");
    if (f.axis) {
        const struct qn_sizes_range range = qn_sizes_range(f.sizes, f.groups);

        cJSON_AddNumberToObject(row, "rows_min", (double)range.min);
        cJSON_AddNumberToObject(row, "rows_median", (double)range.median);
        cJSON_AddNumberToObject(row, "rows_max", (double)range.max);
    }
    add_time(row, &f, time);
    if (v)
        add_verdict(row, v);
    return row;
}

static void print(const struct qn_subject *s, const struct qn_job_time *time,
                  const struct qn_subject_verdict *v)
{
    struct facts f;

    find(s, &f);
    printf("problem  %s\n", f.line);
    if (f.axis) {
        const struct qn_sizes_range range = qn_sizes_range(f.sizes, f.groups);

        printf("%-8s %lld in %d groups, %lld to %lld, median %lld\n", f.axis,
               (long long)f.rows, f.groups, (long long)range.min,
               (long long)range.max, (long long)range.median);
    }
    printf("kernel   %s\nbackend  %s, %d %s%s%s\n"
           "time     %.3f ms, median of %d",
           f.info.kernel, qn_backend_name(f.info.backend), f.info.sms,
           f.gpu ? "multiprocessors" : "threads", f.gpu ? " of " : "",
           f.gpu ? f.gpu->device.name : "", time->seconds * 1e3, time->runs);
    if (f.flops > 0)
        printf(", %.3g TFLOP/s", f.flops / time->seconds * 1e-12);
    if (f.bytes > 0)
        printf(", %.4g GB/s", f.bytes / time->seconds * 1e-9);
    printf("\n");
    if (v)
        printf("check    %s\n", v->text);
}

/* ----------------------------------------------------------------- commands */

static int run(struct qn_subject *s, const struct qn_options *opt)
{
    struct qn_subject_verdict verdict = {.passed = 1};
    struct qn_layer_verdict layer;
    struct qn_job_time time;
    int code, status = check_first(s, opt, &layer, &verdict);

    if (status)
        return status;
    code = qn_subject_measure(s, 0, &time);
    if (!code && opt->check && s->kind == QN_LINE_PRODUCT)
        code = judge_product(&s->of.job, &verdict);
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    if (opt->json)
        qn_table_json(qn_subject_row(s, &time, opt->check ? &verdict : NULL));
    else
        print(s, &time, opt->check ? &verdict : NULL);
    return verdict.passed ? QN_EXIT_OK : QN_EXIT_FAILED;
}

int qn_subject_run(const struct qn_options *opt)
{
    struct quern_context *ctx;
    struct qn_subject s = {.kind = QN_LINE_PRODUCT};
    char text[1024];
    int status = qn_source_context(opt, &ctx);

    if (status)
        return status;
    status = qn_source_join(opt, text, sizeof text);
    if (!status)
        status = qn_subject_begin(&s, opt, ctx, text);
    if (!status)
        status = run(&s, opt);
    qn_subject_free(&s);
    quern_close(ctx);
    return status;
}
