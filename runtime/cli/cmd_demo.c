/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_demo.c: `quern demo`: layers of two real models, forward and back.
**
** A mixture-of-experts layer of each model, from tokens to tokens, with the
** loads that its router gave the experts for a real text: the route, both
** products, the gated activation with probabilities, the sums of each token,
** and all gradients, in a recipe of choice. Which tokens an expert gets is
** drawn. On a GPU all experts and tokens run; on the host 512 tokens, and a
** rank with the first experts.
*/
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "gen.h"
#include "problem/sizes.h"
#include "product/plan.h"

enum { HOST_TOKENS = 512, HOST_EXPERTS = 8, CHECKED = 32 };

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
    QN_OPTION_BACKEND, QN_OPTION_SEED,    QN_OPTION_SPECS,
    QN_OPTION_JSON,    QN_OPTION_VERBOSE, {0},
};

/* All kernels that ship, from the specs to cubins, to show that it works. */
static int compile_shipped(const struct qn_options *opt,
                           struct quern_context *ctx)
{
    const struct qg_selection shipped = {.arch = "sm_90a", .shipped = 1};
    const struct quern_registry *all = ctx->base;
    unsigned char *marks = calloc((size_t)all->nkernels + 1, 1);
    struct qn_compile work = {0};
    int status;

    if (!marks)
        return qn_message_code(opt, QUERN_ENOMEM, NULL);
    for (int i = 0; i < all->nkernels; i++)
        marks[i] = qg_selects(&shipped, &all->kernels[i]) != 0;
    status = qn_compile_find(opt, ctx, marks, &work);
    if (!status)
        status = qn_compile_run(opt, &work, 0);
    if (!status && !opt->json)
        printf("%d shipped CUDA kernel%s for sm_90a: %d generated and compiled "
               "in %.2f s, %d from the cache.\n\n",
               work.count, work.count == 1 ? "" : "s", work.count - work.cached,
               work.seconds, work.cached);
    qn_compile_free(&work);
    free(marks);
    return status;
}

/* The layer of a rank, and how many rows each of its experts gets. */
static int lay_out(const struct layer *layer, const char *recipe, int host,
                   struct quern_context *ctx, struct qn_moe *moe,
                   int64_t *sizes)
{
    int64_t pairs = 0;
    char text[256];

    memcpy(sizes, layer->loads, (size_t)layer->experts * sizeof *sizes);
    for (int i = 0; i < layer->experts; i++)
        pairs += sizes[i];
    if (host) {
        pairs = (int64_t)HOST_TOKENS * layer->top;
        qn_sizes_scale(sizes, layer->experts, pairs);
    }
    snprintf(text, sizeof text,
             "moe %s g=%d m=%lld topk=%d hidden=%d ffn=%d experts=%d", recipe,
             host ? HOST_EXPERTS : layer->experts,
             (long long)(pairs / layer->top), layer->top, layer->hidden,
             layer->width, layer->experts);
    return qn_moe_parse(ctx, text, moe);
}

/* Once on the host, which takes seconds. */
static int measure(struct qn_moe_job *j, struct qn_job_time *time)
{
    return j->call.gpu ? qn_call_measure(&j->call, 0, time)
                       : qn_call_once(&j->call, time);
}

/* A status; QN_EXIT_FAILED if the result is wrong. */
static int run_layer(const struct qn_options *opt, struct quern_context *ctx,
                     const struct layer *layer, const char *recipe, int host,
                     cJSON *rows)
{
    struct qn_layer_verdict verdict = {0};
    struct qn_moe moe;
    struct qn_job_time time;
    struct qn_subject s = {.kind = QN_LINE_MOE, .ctx = ctx};
    struct qn_moe_job *j = &s.of.moe;
    struct qn_subject_verdict told;
    int64_t sizes[QUERN_MAX_GROUPS];
    int status = QN_EXIT_OK;
    int code = lay_out(layer, recipe, host, ctx, &moe, sizes);
    cJSON *row;

    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    status = qn_moe_job_begin(j, opt, ctx, &moe, opt->backend, sizes);
    if (!status) {
        code = measure(j, &time);
        if (!code)
            code = qn_moe_job_judge(j, CHECKED, &verdict);
        if (code)
            status = qn_message_code(opt, code, quern_errmsg());
    }
    if (!status) {
        qn_subject_told(&verdict, &told);
        row = qn_subject_row(&s, &time, &told);
        cJSON_AddStringToObject(row, "layer", layer->name);
        cJSON_AddNumberToObject(row, "tokens", (double)moe.mlp.m);
        cJSON_AddNumberToObject(row, "experts", moe.mlp.groups);
        cJSON_AddNumberToObject(row, "rows",
                                (double)qn_moe_job_sizes(j, sizes));
        cJSON_AddItemToArray(rows, row);
    }
    qn_subject_free(&s);
    if (!status && !verdict.passed)
        status = QN_EXIT_FAILED;
    return status;
}

/* Which backend a plan would choose: 1 for the host. */
static int on_host(const struct qn_options *opt, struct quern_context *ctx,
                   const char *recipe, int *host)
{
    struct quern_plan_options wish = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan_info info;
    struct quern_plan *plan;
    char text[128];
    int code;

    wish.backend = opt->backend;
    snprintf(text, sizeof text, "fprop %s g=1 m=128 n=128 k=128", recipe);
    code = quern_plan_create(ctx, text, &wish, &plan);
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    quern_plan_info(plan, &info);
    quern_plan_destroy(plan);
    *host = info.backend == QUERN_BACKEND_HOST;
    return QN_EXIT_OK;
}

static void print(const struct qn_options *opt, cJSON *rows, int status)
{
    static const struct qn_column columns[] = {
        {"layer", "layer", "s"},
        {"recipe", "recipe", "s"},
        {"tokens", "tokens", "%.0f"},
        {"experts", "experts", "%.0f"},
        {"rows", "rows", "%.0f"},
        {"rows_min", "rows/expert min", "%.0f"},
        {"rows_median", "median", "%.0f"},
        {"rows_max", "max", "%.0f"},
        {"ms", "ms", "%.3f"},
        {"tflops", "TFLOP/s", "%.3g"},
        {"error", "error", "%.1e"},
        {"rows_compared", "compared", "%.0f"},
        {"passed", "passed", "s"},
        {"device", "device", "s"},
        {0},
    };
    const cJSON *tolerance =
        cJSON_GetObjectItem(cJSON_GetArrayItem(rows, 0), "tolerance");
    double most = tolerance ? tolerance->valuedouble : 0;

    qn_table_print(opt, rows, columns);
    if (!opt->json)
        printf("\nForward and backward. Error: the largest 1 - 2xy / (xx + yy) "
               "of y, dx, dprob, dw1 and dw2\nagainst float64 without "
               "quantization, at most %.0e. %s\n",
               most, status ? "FAILED." : "All passed.");
}

static int run(const struct qn_options *opt)
{
    struct quern_context *ctx;
    cJSON *rows;
    const char *recipe = opt->nwords ? opt->words[0] : "fp8_block";
    int host = 1, status;

    if (opt->nwords > 1)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "'%s': the demo takes a recipe and no problem; "
                               "quern run does",
                               opt->words[1]);
    status = qn_source_context(opt, &ctx);
    if (status)
        return status;
    status = on_host(opt, ctx, recipe, &host);
    if (!status && compile_shipped(opt, ctx))
        fprintf(stderr, "quern demo: no CUDA kernels compiled, going on\n");
    rows = cJSON_CreateArray();
    for (int i = 0; i < NLAYERS && !status; i++) {
        if (!opt->json)
            fprintf(stderr, "Computing a layer of %s in %s\n", layers[i].name,
                    recipe);
        status = run_layer(opt, ctx, &layers[i], recipe, host, rows);
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
    .arguments = "[RECIPE]",
    .summary = "Compute and check two real layers, forward and backward",
    .help = "A mixture-of-experts layer each of Qwen1.5-MoE-A2.7B and "
            "OLMoE-1B-7B, from tokens to tokens, forward and backward, with "
            "the loads that their routers gave the experts: all of it on a "
            "GPU; on the host 512 tokens and a rank with the first 8 experts. "
            "RECIPE is fp8_block unless given. Example:\n"
            "  quern demo nvfp4 --backend host",
    .options = options,
    .run = run,
};
