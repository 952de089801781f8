/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_why.c: `quern why`: which kernel would run, and why no other one. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "gen.h"
#include "base/guess.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/evidence.h"

static const struct argp_option options[] = {
    QN_OPTION_BACKEND, QN_OPTION_KERNEL, QN_OPTION_STREAMS,
    QN_OPTION_SPECS,   QN_OPTION_JSON,   {0},
};

/* The text, or with --json an object that has both. */
static void print(const struct qn_options *opt, const char *key,
                  const char *subject, const char *text)
{
    cJSON *object;

    if (!opt->json) {
        fputs(text, stdout);
        if (*text && text[strlen(text) - 1] != '\n')
            putchar('\n');
        return;
    }
    object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, key, subject);
    cJSON_AddStringToObject(object, "why", text);
    qn_table_json(object);
}

static int why_line(const struct qn_options *opt, struct quern_context *ctx)
{
    struct quern_plan_options plan = QUERN_PLAN_OPTIONS_INIT;
    char line[2048], usual[2048], *text = NULL;
    int code, status = qn_source_line(opt, line, sizeof line);

    if (status)
        return status;
    plan.backend = opt->backend;
    plan.kernel = opt->kernel;
    plan.streams = opt->streams;
    code = quern_format(ctx, line, usual, sizeof usual, NULL);
    if (!code)
        code = quern_why(ctx, line, &plan, &text);
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    print(opt, "problem", usual, text);
    quern_free(text);
    return QN_EXIT_OK;
}

/* A kernel's requirements on the problem. */
static void explain_kernel(const struct qn_kernel *kernel, struct qn_text *text)
{
    char evidence[256];

    qn_evidence_print(kernel, evidence, sizeof evidence);
    qn_text_add(
        text,
        "%s exists.\n  spec      %s\n  template  %s\n  runs      "
        "%s %s %s ragged %s, d=%s, %s, on %s\n  shape     tile %dx%dx%d, "
        "cluster %dx%d, %d stages, %d threads, %d bytes of shared "
        "memory\n  shipped   %s\n  evidence  %s\n",
        kernel->name, kernel->spec, kernel->template_path,
        qn_op_name(kernel->op), kernel->recipe,
        qn_layout_name(kernel->a.major, kernel->b.major),
        qn_axis_name(kernel->ragged), qn_type_name(kernel->d.type),
        qn_epilogue_name(kernel->epilogue), kernel->arch, kernel->tile[0],
        kernel->tile[1], kernel->tile[2], kernel->cluster[0],
        kernel->cluster[1], kernel->stages, kernel->threads, kernel->smem,
        strcmp(kernel->arch, "host") == 0 ? "linked into the library"
        : kernel->shipped                 ? "yes"
                                          : "no, compiled on first use",
        evidence);
    for (int i = 0; i < kernel->nrules; i++)
        qn_text_add(text, "  requires  %s: %s\n", kernel->rules[i].text,
                    kernel->rules[i].reason);
}

/* A kernel, a point that was rejected, or neither: then the nearest name. */
static int explain_name(const struct qn_options *opt, const char *name,
                        const struct quern_registry *registry,
                        struct qn_text *text)
{
    struct qn_guess guess = {.word = name};
    char nearest[512];

    for (int i = 0; i < registry->nkernels; i++) {
        if (strcmp(registry->kernels[i].name, name) == 0) {
            explain_kernel(&registry->kernels[i], text);
            return QN_EXIT_OK;
        }
        qn_guess_try(&guess, registry->kernels[i].name);
    }
    for (int i = 0; i < registry->nrejected; i++) {
        const struct qn_rejected *point = &registry->rejected[i];
        if (strcmp(point->name, name) == 0) {
            qn_text_add(text,
                        "%s does not exist.\n  spec      %s\n  rejected  "
                        "%s\n",
                        point->name, point->spec, point->reason);
            return QN_EXIT_OK;
        }
        qn_guess_try(&guess, point->name);
    }
    return qn_message_fail(opt, QN_EXIT_USAGE,
                           "the specs express no kernel '%s'%s\nquern list -k "
                           "shows all.",
                           name,
                           qn_guess_text(&guess, nearest, sizeof nearest));
}

static int why_kernel(const struct qn_options *opt)
{
    struct qn_text text = {0};
    struct qg *generator;
    int status = qn_source_open(opt, &generator);

    if (status)
        return status;
    status = explain_name(opt, opt->words[0], qg_registry(generator), &text);
    if (status == QN_EXIT_OK && text.data)
        print(opt, "kernel", opt->words[0], text.data);
    qn_text_free(&text);
    qg_close(generator);
    return status;
}

static int run(const struct qn_options *opt)
{
    struct quern_context *ctx;
    int status;

    if (opt->nwords == 1 && strncmp(opt->words[0], "quern_", 6) == 0)
        return why_kernel(opt);
    status = qn_source_context(opt, &ctx);
    if (status)
        return status;
    status = why_line(opt, ctx);
    quern_close(ctx);
    return status;
}

const struct qn_command qn_cmd_why = {
    .name = "why",
    .arguments = "PROBLEM-or-KERNEL",
    .summary = "Explain which kernel would run and why no other one",
    .help = "Example:\n"
            "  quern why fprop bf16 g=8 m=4096 n=2048 k=7168\n"
            "  quern why quern_bf16_fprop_tn_m_f32_scale_host",
    .options = options,
    .run = run,
};
