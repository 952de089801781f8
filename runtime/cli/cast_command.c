/* SPDX-License-Identifier: Apache-2.0 */
/* cast_command.c: `quern run`, `bench`, `describe` and `why` of a
   quantization. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "oracle/cast.h"
#include "base/element.h"
#include "base/types.h"
#include "problem/quantize.h"
#include "oracle/fidelity.h"
#include "oracle/tolerance.h"

/* The text as a quantization; an exit status, after printing. */
static int parse(const struct qn_options *opt, struct quern_context *ctx,
                 const char *text, struct qn_quantization *q)
{
    char line[2048];
    int code, status = qn_source_expand(opt, &text, line, sizeof line);

    if (status)
        return status;
    code = qn_quantize_parse(ctx, text, q);
    return code ? qn_message_code(opt, code, qn_errmsg(ctx)) : QN_EXIT_OK;
}

/* ------------------------------------------------------------------- check */

struct verdict {
    const char *oracle;
    double error; /* of values, or bytes that differ */
    double tolerance;
    char where[96];
    int guards, passed;
};

/* A GPU's bytes are the host's, also where poison was before. */
static int compare_host(struct qn_cast *c, const struct qn_options *opt,
                        struct verdict *v)
{
    struct qn_cast host = {0};
    int code = QUERN_OK;
    int status = qn_cast_begin_host(&host, opt, c->ctx, &c->q);

    v->oracle = "host backend";
    if (!status)
        code = qn_cast_run(&host);
    if (!status && !code)
        code = qn_cast_compare(c, &host, &v->error, v->where, sizeof v->where);
    qn_cast_free(&host);
    if (code)
        return qn_message_code(opt, code, qn_errmsg(c->ctx));
    return status;
}

/* Values without scales are compared directly: 1 - 2xy / (xx + yy). */
static double distance(const struct qn_cast *c)
{
    const struct qn_tensor *row = &c->need.args.row;
    const int64_t stride = row->stride ? row->stride : c->q.k;
    double gap = 0, sum = 0;

    for (int64_t i = 0; i < c->rows; i++)
        for (int64_t k = 0; k < c->q.k; k++) {
            const double x =
                (double)qn_element_load(c->memory[QN_CAST_IN].data, c->q.type,
                                        (size_t)(i * c->q.k + k));
            const double y =
                (double)qn_element_load(c->memory[QN_CAST_ROW].data, row->type,
                                        (size_t)(i * stride + k));

            gap += (x - y) * (x - y);
            sum += x * x + y * y;
        }
    return sum > 0 ? gap / sum : 0;
}

/* One copy, read where it is said to be, next to the values that went in. */
static int compare_copy(const struct qn_cast *c, int copy, struct verdict *v)
{
    enum { LINES = 4096 };
    const struct qn_recipe *recipe = qn_context_recipe(c->ctx, c->q.recipe);
    struct qn_fidelity f = {.q = c->q,
                            .recipe = recipe,
                            .numbers = c->memory[QN_CAST_IN].data,
                            .copy = copy == QUERN_ROWWISE ? &c->args.row
                                                          : &c->args.column,
                            .sizes = c->sizes};
    int64_t starts[QUERN_MAX_GROUPS], first = 0;
    double tolerance, error;
    int code, held = 1;

    for (int i = 0; i < c->q.groups; first += c->sizes[i++])
        starts[i] = first;
    f.starts = starts;
    f.q.copies = copy;
    code = qn_fidelity_tolerance(c->ctx, &f, 1, &tolerance);
    if (!code)
        code = qn_fidelity_judge(&f, tolerance, LINES, &error, &held);
    if (code)
        return code;
    v->tolerance = fmax(v->tolerance, tolerance);
    if (!(error <= v->error))
        v->error = error;
    if (!held && !v->where[0])
        snprintf(v->where, sizeof v->where, "; the %s copy does not hold them",
                 copy == QUERN_ROWWISE ? "row" : "column");
    return code;
}

/* The copies next to the values that went in. */
static int compare_numbers(const struct qn_cast *c,
                           const struct qn_options *opt, struct verdict *v)
{
    int code = QUERN_OK;

    v->oracle = "the values before";
    if (!c->need.args.row.sf_bytes && !c->need.args.column.sf_bytes) {
        v->tolerance = qn_tolerance_format(c->need.args.row.type);
        v->error = distance(c);
    }
    for (int copy = QUERN_ROWWISE; copy <= QUERN_COLUMNWISE && !code; copy *= 2)
        if (c->q.copies & copy &&
            (copy == QUERN_ROWWISE ? c->need.args.row : c->need.args.column)
                .sf_bytes)
            code = compare_copy(c, copy, v);
    return code ? qn_message_code(opt, code, qn_errmsg(c->ctx)) : QN_EXIT_OK;
}

int qn_cast_error(const struct qn_options *opt, struct quern_context *ctx,
                  const char *recipe, int of, double *error)
{
    struct qn_quantization q;
    struct qn_cast cast = {0};
    struct verdict verdict = {0};
    char text[128];
    int status;

    snprintf(text, sizeof text,
             "quantize %s of=%s g=1 m=256 k=1024 copies=rowwise", recipe,
             qn_of_name(of));
    status = parse(opt, ctx, text, &q);
    if (!status)
        status = qn_cast_begin_host(&cast, opt, ctx, &q);
    if (!status && qn_cast_run(&cast))
        status = QN_EXIT_UNABLE;
    if (!status)
        status = compare_numbers(&cast, opt, &verdict);
    *error = verdict.error;
    qn_cast_free(&cast);
    return status != QN_EXIT_OK;
}

/* One sum of a group's rows, from row `first` on, next to float64's. */
static int is_sum(const struct qn_cast *c, int64_t first, int64_t rows,
                  int64_t feature, int64_t at)
{
    const float *before = c->host[QN_CAST_DBIAS];
    const double got =
        ((const float *)(void *)c->memory[QN_CAST_DBIAS].data)[at];
    double sum = before && c->q.dbias == QUERN_DBIAS_ADD ? before[at] : 0;
    double size = fabs(sum);

    for (int64_t row = first; row < first + rows; row++) {
        const double x = qn_element_load(c->memory[QN_CAST_IN].data, c->q.type,
                                         (size_t)(row * c->q.k + feature));

        sum += x;
        size += fabs(x);
    }
    return fabs(got - sum) <= (double)(rows + 1) * ldexp(size, -24);
}

/* Says in v->where which sum is wrong, if one is. */
static void compare_sums(const struct qn_cast *c, struct verdict *v)
{
    int64_t first = 0;

    for (int g = 0; g < c->q.groups; first += c->sizes[g++])
        for (int64_t j = 0; j < c->q.k && !v->where[0]; j++)
            if (!is_sum(c, first, c->sizes[g], j, g * c->q.k + j))
                snprintf(v->where, sizeof v->where,
                         "; dbias is wrong from group %d, feature %lld on", g,
                         (long long)j);
}

/* On a GPU the host is the oracle; on the host its tensors and sums are
   checked directly. */
static int judge(struct qn_cast *c, const struct qn_options *opt,
                 struct verdict *v)
{
    int code, status;

    memset(v, 0, sizeof *v);
    code = qn_cast_guards(c, &v->guards);
    if (code)
        return qn_message_code(opt, code, qn_errmsg(c->ctx));
    if (c->gpu)
        status = compare_host(c, opt, v);
    else if (c->q.work == QUERN_QUANTIZE && !c->q.activation) {
        status = compare_numbers(c, opt, v);
        if (!status && c->q.dbias)
            compare_sums(c, v);
    } else
        status = qn_message_fail(opt, QN_EXIT_USAGE,
                                 "--check: on the host copies are compared "
                                 "with the original values, so 'quantize' "
                                 "without an activation is needed; on a GPU "
                                 "every result is compared with the host's");
    v->passed =
        !status && v->guards && v->error <= v->tolerance && !v->where[0];
    return status;
}

/* --------------------------------------------------------------------- run */

static cJSON *make_row(const struct qn_cast *c, const struct qn_job_time *time,
                       const struct verdict *v)
{
    cJSON *row = cJSON_CreateObject();
    char text[512];

    qn_quantize_print(&c->q, text, sizeof text);
    cJSON_AddStringToObject(row, "problem", text);
    cJSON_AddStringToObject(row, "kernel", c->info.kernel);
    cJSON_AddStringToObject(row, "backend", qn_backend_name(c->info.backend));
    cJSON_AddStringToObject(row, "device",
                            c->gpu ? c->gpu->device.name : "host");
    cJSON_AddNumberToObject(row, "ms", time->seconds * 1e3);
    cJSON_AddNumberToObject(row, "ms_least", time->least * 1e3);
    cJSON_AddNumberToObject(row, "runs", time->runs);
    cJSON_AddNumberToObject(row, "gbps",
                            qn_cast_bytes(c) / time->seconds * 1e-9);
    if (c->gpu && c->gpu->peak_bytes > 0)
        cJSON_AddNumberToObject(row, "roofline",
                                qn_cast_bytes(c) / c->gpu->peak_bytes /
                                    time->seconds);
    qn_report_load(row, "", &time->load);
    if (v) {
        cJSON_AddStringToObject(row, "oracle", v->oracle);
        cJSON_AddNumberToObject(row, "error", v->error);
        cJSON_AddBoolToObject(row, "passed", v->passed);
    }
    return row;
}

static void print_verdict(const struct verdict *v)
{
    if (v->tolerance > 0)
        printf("check    %s: distance %.2e (at most %.0e) from %s%s%s\n",
               v->passed ? "passed" : "FAILED", v->error, v->tolerance,
               v->oracle, v->where, v->guards ? "" : "; a guard was written");
    else
        printf("check    %s: %.0f bytes differ from %s%s%s\n",
               v->passed ? "passed" : "FAILED", v->error, v->oracle, v->where,
               v->guards ? "" : "; a guard was written");
}

static void print(const struct qn_options *opt, const struct qn_cast *c,
                  const struct qn_job_time *time, const struct verdict *v)
{
    char text[512];

    if (opt->json) {
        qn_table_json(make_row(c, time, v));
        return;
    }
    qn_quantize_print(&c->q, text, sizeof text);
    printf("problem  %s\nkernel   %s\nbackend  %s, %d %s%s%s\n"
           "time     %.3f ms, median of %d, %.4g GB/s\n",
           text, c->info.kernel, qn_backend_name(c->info.backend), c->info.sms,
           c->gpu ? "multiprocessors" : "threads", c->gpu ? " of " : "",
           c->gpu ? c->gpu->device.name : "", time->seconds * 1e3, time->runs,
           qn_cast_bytes(c) / time->seconds * 1e-9);
    if (v)
        print_verdict(v);
}

/* The first run is checked: later ones of delayed scaling find a history. */
static int run_cast(const struct qn_options *opt, struct qn_cast *c)
{
    struct qn_job_time time;
    struct verdict verdict = {0};
    int status = QN_EXIT_OK, code = qn_cast_run(c);

    if (!code && opt->check)
        status = judge(c, opt, &verdict);
    if (!code && !status)
        code = qn_cast_measure(c, 0, &time);
    if (code)
        return qn_message_code(opt, code, qn_errmsg(c->ctx));
    if (status)
        return status;
    print(opt, c, &time, opt->check ? &verdict : NULL);
    return opt->check && !verdict.passed ? QN_EXIT_FAILED : QN_EXIT_OK;
}

int qn_cast_command_run(const struct qn_options *opt, struct quern_context *ctx,
                        const char *text)
{
    struct qn_quantization q;
    struct qn_cast cast = {0};
    int status = parse(opt, ctx, text, &q);

    if (!status)
        status = qn_cast_begin(&cast, opt, ctx, &q, opt->backend);
    if (!status)
        status = run_cast(opt, &cast);
    qn_cast_free(&cast);
    return status;
}

int qn_cast_command_bench(const struct qn_options *opt,
                          struct quern_context *ctx, const char *text,
                          cJSON *rows)
{
    struct qn_quantization q;
    struct qn_cast cast = {0};
    struct qn_job_time time;
    int code, status = parse(opt, ctx, text, &q);

    if (!status)
        status = qn_cast_begin(&cast, opt, ctx, &q, opt->backend);
    if (!status) {
        code = qn_cast_measure(&cast, opt->repeat, &time);
        if (code)
            status = qn_message_code(opt, code, qn_errmsg(ctx));
        else
            cJSON_AddItemToArray(rows, make_row(&cast, &time, NULL));
    }
    qn_cast_free(&cast);
    return status;
}
