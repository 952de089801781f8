/*
** cmd_demo.c: `quern demo`: two layers of real models.
**
** The up-projections, gate and up together, of one mixture-of-experts layer
** of each model, with the loads that their routers gave the experts for a
** real text. On a GPU all tokens run; on the host at most 512, so that each
** expert keeps its share.
*/
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "compile.h"
#include "gen.h"
#include "job.h"
#include "oracle.h"
#include "report.h"
#include "sizes.h"

enum { HOST_TOKENS = 512, HOST_ROWS = 64, GPU_ROWS = 256 };

/* Tokens that each expert of layer 0 received. */
static const int64_t qwen15_moe_a27b[60] = {
    113, 161, 174, 212, 145, 119, 203, 181, 218, 161, 158, 162, 118, 150, 139,
    171, 162, 110, 163, 167, 229, 166, 168, 202, 171, 157, 176, 134, 132, 107,
    174, 133, 132, 136, 166, 208, 123, 167, 215, 218, 139, 192, 240, 169, 155,
    181, 222, 150, 109, 186, 172, 110, 109, 126, 140, 161, 203, 192, 160, 119,
};
static const int64_t olmoe_1b_7b[64] = {
    196,  257, 213,  403,  337, 472, 2841, 464, 612, 1180, 529, 428, 197,
    509,  404, 618,  352,  349, 485, 590,  777, 346, 459,  507, 658, 1116,
    386,  306, 584,  1027, 390, 628, 658,  561, 285, 344,  545, 370, 458,
    595,  799, 1163, 522,  556, 350, 574,  478, 262, 389,  510, 181, 256,
    1170, 644, 448,  542,  316, 224, 1247, 346, 455, 597,  320, 983,
};

static const struct layer {
    const char *name;
    int experts, top; /* each token goes to `top` experts */
    int hidden, width;
    const int64_t *loads;
} layers[] = {
    {"Qwen1.5-MoE-A2.7B", 60, 4, 2048, 1408, qwen15_moe_a27b},
    {"OLMoE-1B-7B", 64, 8, 2048, 1024, olmoe_1b_7b},
};
enum { NLAYERS = sizeof layers / sizeof layers[0] };

static const struct argp_option options[] = {
    QN_OPTION_BACKEND, QN_OPTION_SEED, QN_OPTION_JSON, QN_OPTION_VERBOSE, {0},
};

/* All kernels that ship, from the specs to cubins, to show that it works. */
static int compile_shipped(const struct qn_options *opt,
                           struct quern_context *ctx)
{
    const struct qg_selection shipped = {.arch = "sm_90a", .shipped = 1};
    struct qn_compile work = {0};
    struct qg *generator;
    int status = qn_source_open(opt, &generator);

    if (status)
        return status;
    status = qn_compile_run(opt, generator, ctx, &shipped, 0, &work);
    if (!status && !opt->json)
        printf("Generated and compiled %d shipped CUDA kernel%s for sm_90a in "
               "%.2f s.\n\n",
               work.count, work.count == 1 ? "" : "s", work.seconds);
    qn_compile_free(&work);
    qg_close(generator);
    return status;
}

/* The layer as a problem, and how many rows each expert gets. */
static int lay_out(const struct layer *layer, int host,
                   struct quern_context *ctx, struct quern_problem *problem,
                   int64_t *sizes)
{
    int64_t rows = 0;
    char text[256];

    memcpy(sizes, layer->loads, (size_t)layer->experts * sizeof *sizes);
    for (int i = 0; i < layer->experts; i++)
        rows += sizes[i];
    if (host && rows > (int64_t)HOST_TOKENS * layer->top) {
        rows = (int64_t)HOST_TOKENS * layer->top;
        qn_sizes_scale(sizes, layer->experts, rows);
    }
    snprintf(text, sizeof text, "fprop bf16 g=%d m=%lld n=%d k=%d",
             layer->experts, (long long)rows, 2 * layer->width, layer->hidden);
    return quern_problem_parse(ctx, text, problem);
}

/* What any job shows, and what the layer is. */
static void add_row(cJSON *rows, const struct layer *layer,
                    const struct qn_job *job, const struct qn_job_time *time,
                    const struct qn_verdict *verdict)
{
    cJSON *row = qn_report_row(job, time, verdict);

    cJSON_AddStringToObject(row, "layer", layer->name);
    cJSON_AddNumberToObject(row, "experts", layer->experts);
    cJSON_AddNumberToObject(row, "tokens", (double)job->rows / layer->top);
    cJSON_AddItemToArray(rows, row);
}

/* A status; QN_EXIT_FAILED if the result is wrong. */
static int run_layer(const struct qn_options *opt, struct quern_context *ctx,
                     const struct layer *layer, int host, cJSON *rows)
{
    struct qn_verdict verdict = {0};
    struct quern_problem problem;
    struct qn_job_time time;
    struct qn_job job = {0};
    int64_t sizes[QUERN_MAX_GROUPS];
    int status, code = lay_out(layer, host, ctx, &problem, sizes);

    if (code)
        return qn_message_code(opt, code, quern_errmsg(ctx));
    status = qn_job_begin(&job, opt, ctx, &problem, sizes);
    if (!status) {
        code = qn_job_measure(&job, 0, &time);
        if (!code)
            code = qn_oracle_judge(&job,
                                   job.gpu ? QN_ORACLE_HOST : QN_ORACLE_FLOAT64,
                                   job.gpu ? GPU_ROWS : HOST_ROWS, &verdict);
        if (code)
            status = qn_message_code(opt, code, quern_errmsg(ctx));
        else
            add_row(rows, layer, &job, &time, &verdict);
    }
    qn_job_free(&job);
    if (!status && !verdict.passed)
        status = QN_EXIT_FAILED;
    return status;
}

/* Which backend a plan of the first layer chooses: 1 for the host. */
static int on_host(const struct qn_options *opt, struct quern_context *ctx,
                   int *host)
{
    const struct quern_plan_options wish = {.backend = opt->backend};
    struct quern_problem problem;
    struct quern_plan_info info;
    struct quern_plan *plan;
    int64_t sizes[QUERN_MAX_GROUPS];
    int code = lay_out(&layers[0], 1, ctx, &problem, sizes);

    if (!code)
        code = quern_plan(ctx, &problem, &wish, &plan);
    if (code)
        return qn_message_code(opt, code, quern_errmsg(ctx));
    quern_plan_info(plan, &info);
    quern_plan_free(plan);
    *host = info.backend == QUERN_BACKEND_HOST;
    return QN_EXIT_OK;
}

static void print(const struct qn_options *opt, cJSON *rows, int status)
{
    static const struct qn_column columns[] = {
        {"layer", "layer", "s"},
        {"experts", "experts", "%.0f"},
        {"tokens", "tokens", "%.0f"},
        {"rows_min", "rows/expert min", "%.0f"},
        {"rows_median", "median", "%.0f"},
        {"rows_max", "max", "%.0f"},
        {"ms", "ms", "%.3f"},
        {"tflops", "TFLOP/s", "%.3g"},
        {"error", "error", "%.1e"},
        {"rows_compared", "rows compared", "%.0f"},
        {"passed", "passed", "s"},
        {"backend", "backend", "s"},
        {"device", "device", "s"},
        {0},
    };
    const cJSON *first = cJSON_GetArrayItem(rows, 0);
    const cJSON *oracle = cJSON_GetObjectItem(first, "oracle");
    char name[32] = "";

    if (oracle)
        snprintf(name, sizeof name, "%s", oracle->valuestring);
    qn_table_print(opt, rows, columns);
    if (!opt->json && *name)
        printf("\nError: |d - reference| / |reference| against %s, at most "
               "4e-3 for bf16 results. %s\n",
               name, status ? "FAILED." : "All passed.");
}

static int run(const struct qn_options *opt)
{
    struct quern_context *ctx;
    cJSON *rows;
    int host = 1, status;

    if (opt->nwords)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "'%s': the demo takes no problem; quern run "
                               "does",
                               opt->words[0]);
    status = qn_source_context(opt, &ctx);
    if (status)
        return status;
    status = compile_shipped(opt, ctx);
    if (status == QN_EXIT_UNABLE)
        fprintf(stderr, "quern demo: no CUDA kernels compiled, going on\n");
    if (!status || status == QN_EXIT_UNABLE)
        status = on_host(opt, ctx, &host);
    rows = cJSON_CreateArray();
    for (int i = 0; i < NLAYERS && !status; i++) {
        if (!opt->json)
            fprintf(stderr, "Computing a layer of %s\n", layers[i].name);
        status = run_layer(opt, ctx, &layers[i], host, rows);
    }
    if (cJSON_GetArraySize(rows) > 0)
        print(opt, rows, status);
    else
        cJSON_Delete(rows);
    quern_close(ctx);
    return status;
}

const struct qn_command qn_cmd_demo = {
    .name = "demo",
    .arguments = "",
    .summary = "Compute and check two real layers on this machine",
    .help = "The up-projections of Qwen1.5-MoE-A2.7B and OLMoE-1B-7B with the "
            "loads that their routers gave the experts: all tokens on a GPU, "
            "512 on the host. Example:\n"
            "  quern demo --backend host",
    .options = options,
    .run = run,
};
