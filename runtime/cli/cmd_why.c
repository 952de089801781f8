/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_why.c: `quern why`: which kernel would run, and why no other one. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "gen.h"
#include "base/context.h"
#include "base/guess.h"
#include "base/types.h"
#include "api/api.h"
#include "choose/evidence.h"
#include "device/chip.h"
#include "device/driver.h"
#include "product/why.h"

static const struct argp_option options[] = {
    QN_OPTION_BACKEND,
    QN_OPTION_KERNEL,
    QN_OPTION_STREAMS,
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    {"gpu", QN_KEY_GPU, "NAME", 0,
     "As on this GPU, there or not: H100, H200, A100, \"RTX 4090\", ..", 0},
    {0},
};

static void print_text(const char *text)
{
    fputs(text, stdout);
    if (*text && text[strlen(text) - 1] != '\n')
        putchar('\n');
}

/* ----------------------------------------------------------------- problems */

static void add_figures(cJSON *row, const struct qn_figures *f)
{
    cJSON_AddNumberToObject(row, "cycles", f->cycles);
    cJSON_AddNumberToObject(row, "memory_cycles", f->memory_cycles);
    cJSON_AddNumberToObject(row, "bytes_again", f->again);
    cJSON_AddNumberToObject(row, "tiles", f->tiles);
    cJSON_AddNumberToObject(row, "waves", f->waves);
    cJSON_AddNumberToObject(row, "tile_cycles", f->tile_cycles);
    cJSON_AddNumberToObject(row, "tile_math", f->math);
    cJSON_AddNumberToObject(row, "tile_copies", f->copy);
    cJSON_AddNumberToObject(row, "tile_store", f->store);
    cJSON_AddNumberToObject(row, "tile_real", f->real);
}

/* A row of `user`, an array. */
static void add_kernel(void *user, const struct qn_why_kernel *kernel)
{
    static const char *const states[] = {"serves", "excluded", "not made"};
    cJSON *row = cJSON_CreateObject();

    cJSON_AddStringToObject(row, "kernel", kernel->name);
    cJSON_AddStringToObject(row, "state", states[kernel->state]);
    if (kernel->reason)
        cJSON_AddStringToObject(row, "reason", kernel->reason);
    cJSON_AddStringToObject(row, "spec", kernel->spec);
    if (kernel->figures) {
        cJSON_AddBoolToObject(row, "linked", kernel->linked);
        cJSON_AddBoolToObject(row, "tuned", kernel->tuned);
        add_figures(row, kernel->figures);
    }
    cJSON_AddItemToArray(user, row);
}

/* The kernels that would run, which have a line "> NAME" each, and the lines of
   the text, which may be cut up. */
static void add_lines(cJSON *object, char *text)
{
    cJSON *runs = cJSON_AddArrayToObject(object, "runs");
    cJSON *lines = cJSON_AddArrayToObject(object, "lines");

    for (char *line; (line = strsep(&text, "\n"));) {
        char *mark = line + strspn(line, " ");

        if (text || *line)
            cJSON_AddItemToArray(lines, cJSON_CreateString(line));
        if (strncmp(mark, "> ", 2))
            continue;
        mark[2 + strcspn(mark + 2, " ")] = '\0';
        cJSON_AddItemToArray(runs, cJSON_CreateString(mark + 2));
    }
}

static void print_facts(const char *line, const struct qn_why_facts *facts,
                        cJSON *kernels, char *text)
{
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "problem", line);
    if (facts->units) { /* of a product */
        cJSON_AddStringToObject(object, "backend",
                                qn_backend_name(facts->backend));
        cJSON_AddNumberToObject(object,
                                facts->backend == QUERN_BACKEND_HOST
                                    ? "threads"
                                    : "multiprocessors",
                                facts->units);
    }
    add_lines(object, text);
    cJSON_AddItemToObject(object, "kernels", kernels);
    qn_table_json(object);
}

static int why_line(const struct qn_options *opt, struct quern_context *ctx)
{
    struct quern_plan_options plan = QUERN_PLAN_OPTIONS_INIT;
    struct qn_why_facts facts = {.visit = add_kernel};
    char line[2048], usual[2048], *text = NULL;
    int code, status = qn_source_line(opt, line, sizeof line);

    if (status)
        return status;
    plan.backend = opt->backend;
    plan.kernel = opt->kernel;
    plan.streams = opt->streams;
    facts.user = cJSON_CreateArray();
    code = quern_format(ctx, line, usual, sizeof usual, NULL);
    if (!code)
        code = qn_api_why(ctx, line, &plan, &facts, &text);
    if (!code && opt->json)
        print_facts(usual, &facts, facts.user, text);
    else
        cJSON_Delete(facts.user);
    if (!code && !opt->json)
        print_text(text);
    quern_free(text);
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

/* ------------------------------------------------------------------ kernels */

static void add_size(cJSON *row, const char *key, const int *size, int count)
{
    cJSON_AddItemToObject(row, key, cJSON_CreateIntArray(size, count));
}

static const char *availability(const struct qn_kernel *kernel)
{
    return strcmp(kernel->arch, "host") == 0 ? "linked into the library"
           : kernel->shipped                 ? "yes"
                                             : "no, compiled on first use";
}

static void print_kernel_json(const struct qn_kernel *kernel)
{
    cJSON *row = cJSON_CreateObject(), *rules;
    char evidence[256];

    cJSON_AddStringToObject(row, "kernel", kernel->name);
    cJSON_AddBoolToObject(row, "exists", 1);
    cJSON_AddStringToObject(row, "spec", kernel->spec);
    cJSON_AddStringToObject(row, "template", kernel->template_path);
    qn_table_variant(row, kernel);
    add_size(row, "tile", kernel->tile, 3);
    add_size(row, "cluster", kernel->cluster, 2);
    cJSON_AddNumberToObject(row, "stages", kernel->stages);
    cJSON_AddNumberToObject(row, "threads", kernel->threads);
    cJSON_AddNumberToObject(row, "smem", kernel->smem);
    cJSON_AddStringToObject(row, "shipped", availability(kernel));
    qn_evidence_print(kernel, evidence, sizeof evidence);
    cJSON_AddStringToObject(row, "evidence", evidence);
    rules = cJSON_AddArrayToObject(row, "requires");
    for (int i = 0; i < kernel->nrules; i++) {
        cJSON *rule = cJSON_CreateObject();

        cJSON_AddStringToObject(rule, "rule", kernel->rules[i].text);
        cJSON_AddStringToObject(rule, "reason", kernel->rules[i].reason);
        cJSON_AddItemToArray(rules, rule);
    }
    qn_table_json(row);
}

/* A kernel's requirements on the problem. */
static void print_kernel(const struct qn_kernel *kernel)
{
    char evidence[256];

    qn_evidence_print(kernel, evidence, sizeof evidence);
    printf("%s exists.\n  spec      %s\n  template  %s\n  runs      "
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
           availability(kernel), evidence);
    for (int i = 0; i < kernel->nrules; i++)
        printf("  requires  %s: %s\n", kernel->rules[i].text,
               kernel->rules[i].reason);
}

static void print_rejected(const struct qn_options *opt,
                           const struct qn_rejected *point)
{
    cJSON *row;

    if (!opt->json) {
        printf("%s does not exist.\n  spec      %s\n  rejected  %s\n",
               point->name, point->spec, point->reason);
        return;
    }
    row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "kernel", point->name);
    cJSON_AddBoolToObject(row, "exists", 0);
    cJSON_AddStringToObject(row, "spec", point->spec);
    cJSON_AddStringToObject(row, "reason", point->reason);
    qn_table_json(row);
}

/* A kernel, a point that was rejected, or neither: then the nearest name. */
static int explain_name(const struct qn_options *opt, const char *name,
                        const struct quern_registry *registry)
{
    struct qn_guess guess = {.word = name};
    char nearest[512];

    for (int i = 0; i < registry->nkernels; i++) {
        if (strcmp(registry->kernels[i].name, name) == 0) {
            (opt->json ? print_kernel_json
                       : print_kernel)(&registry->kernels[i]);
            return QN_EXIT_OK;
        }
        qn_guess_try(&guess, registry->kernels[i].name);
    }
    for (int i = 0; i < registry->nrejected; i++) {
        const struct qn_rejected *point = &registry->rejected[i];
        if (strcmp(point->name, name) == 0) {
            print_rejected(opt, point);
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
    struct qg *generator;
    int status = qn_source_open(opt, &generator);

    if (status)
        return status;
    status = explain_name(opt, opt->words[0], qg_registry(generator));
    qg_close(generator);
    return status;
}

/* --gpu */
static int assume(const struct qn_options *opt, struct qn_device *device)
{
    struct qn_device other;
    char names[512] = "";

    if (qn_chip_find(opt->gpu, device))
        return QN_EXIT_OK;
    for (int i = 0; qn_chip(i, &other); i++) {
        size_t used = strlen(names);

        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                 strchr(other.name, ' ') + 1);
    }
    return qn_message_fail(opt, QN_EXIT_USAGE,
                           "--gpu %s: no figures of it are known; known: %s",
                           opt->gpu, names);
}

static int run(const struct qn_options *opt)
{
    struct quern_context *ctx;
    struct qn_device device;
    int status;

    if (opt->nwords == 1 && strncmp(opt->words[0], "quern_", 6) == 0)
        return why_kernel(opt);
    status = qn_source_context(opt, &ctx);
    if (status)
        return status;
    if (opt->gpu) {
        status = assume(opt, &device);
        ctx->assumed = &device;
    }
    if (!status)
        status = why_line(opt, ctx);
    quern_close(ctx);
    return status;
}

const struct qn_command qn_cmd_why = {
    .name = "why",
    .arguments = "PROBLEM-or-KERNEL",
    .summary = "Explain which kernel would run and why no other one",
    .help =
        "With --json, runs has the kernels that would run, kernels each one "
        "of the variant with its state and the model's figures. Example:\n"
        "  quern why fprop bf16 g=8 m=4096 n=2048 k=7168\n"
        "  quern why quern_bf16_fprop_tn_m_f32_scale_host",
    .options = options,
    .run = run,
};
