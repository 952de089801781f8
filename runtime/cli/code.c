/* SPDX-License-Identifier: Apache-2.0 */
/*
** code.c: a kernel's PTX, machine code and resources.
**
** The kernel is compiled here, even where the cache has it: only the compiler
** reports spills. Without one, a linked or cached kernel is enough for all
** but the PTX.
*/
#define _GNU_SOURCE /* mkostemp */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "choose/session.h"
#include "code/cache.h"
#include "code/generator.h"
#include "code/jit.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"
#include "oracle/cubin.h"

/* Prints the requested parts. */
struct code {
    const struct qn_candidate *candidate;
    struct qn_compiled made; /* its log may be missing */
    char *ptx, *sass;
};

/* -------------------------------------------------------------- which one */

/* By the registry's name; QUERN_EINVAL with the nearest one. */
static int find(struct quern_context *ctx, const char *name,
                const struct qn_candidate **out)
{
    struct qn_session session = {.ctx = ctx, .options = {.kernel = name}};

    for (int i = 0; i < ctx->nkernels; i++)
        if (strcmp(ctx->kernels[i].kernel->name, name) == 0) {
            *out = &ctx->kernels[i];
            return QUERN_OK;
        }
    return qn_session_name(&session);
}

/* The kernel of the plan's product on an H200, where there is no GPU. */
static int assume(struct quern_context *ctx, const struct qn_problem *problem,
                  const struct qn_candidate **out)
{
    struct qn_plan *plan = NULL;
    struct qn_session s;
    int code = qn_session_open(&s, ctx, problem, NULL);

    if (!code) {
        qn_session_assume_gpu(&s, QUERN_BACKEND_JIT);
        s.outline = 1;
        code = qn_plan_session(&s, &plan);
    }
    for (int i = 0; !code && i < ctx->nkernels; i++)
        if (ctx->kernels[i].kernel == plan->kernel)
            *out = &ctx->kernels[i];
    qn_plan_free(plan);
    qn_session_close(&s);
    return code;
}

static int assume_cast(struct quern_context *ctx,
                       const struct qn_quantization *q,
                       const struct qn_candidate **out)
{
    struct qn_session s;
    int code = qn_session_open(&s, ctx, NULL, NULL);

    if (!code) {
        qn_session_assume_gpu(&s, QUERN_BACKEND_JIT);
        code = qn_quantize_find(&s, q, out);
    }
    qn_session_close(&s);
    return code;
}

/* Would the host compute without being asked for? */
static int is_assumed(const struct qn_options *opt,
                      const struct quern_plan_info *info)
{
    return info->backend == QUERN_BACKEND_HOST &&
           opt->backend == QUERN_BACKEND_AUTO;
}

static int choose_product(const struct qn_options *opt,
                          struct quern_context *ctx,
                          const struct qn_candidate **out)
{
    const struct qn_plan_options options = {.backend = opt->backend};
    struct qn_problem problem;
    struct quern_plan_info info;
    struct qn_plan *plan = NULL;
    int status = qn_source_problem(opt, ctx, &problem);
    int code;

    if (status)
        return status;
    code = qn_plan(ctx, &problem, &options, &plan);
    if (!code) {
        qn_plan_info(plan, &info);
        code = is_assumed(opt, &info) ? assume(ctx, &problem, out)
                                      : find(ctx, info.kernel, out);
    }
    if (code)
        status = qn_message_code(opt, code, quern_errmsg());
    qn_plan_free(plan);
    return status;
}

static int choose_cast(const struct qn_options *opt, struct quern_context *ctx,
                       const char *text, const struct qn_candidate **out)
{
    const struct qn_plan_options options = {.backend = opt->backend};
    struct qn_quantization q;
    struct quern_plan_info info;
    struct qn_quantize_plan *plan = NULL;
    char line[2048];
    int code, status = qn_source_expand(opt, &text, line, sizeof line);

    if (status)
        return status;
    code = qn_quantize_parse(ctx, text, &q);
    if (!code)
        code = qn_quantize_plan(ctx, &q, &options, &plan);
    if (!code) {
        qn_quantize_plan_info(plan, &info);
        code = is_assumed(opt, &info) ? assume_cast(ctx, &q, out)
                                      : find(ctx, info.kernel, out);
    }
    qn_quantize_plan_free(plan);
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

static int choose_of(const struct qn_options *opt, struct quern_context *ctx,
                     const char *text, const struct qn_candidate **out)
{
    switch (qn_line_of(text)) {
    case QN_LINE_CAST:
        return choose_cast(opt, ctx, text, out);
    case QN_LINE_ROUTE:
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "'%s': quern why names its kernels; give one "
                               "with --kernel",
                               text);
    case QN_LINE_MLP:
    case QN_LINE_MOE:
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "an MLP runs many kernels, which quern why "
                               "lists; name one with --kernel");
    default:
        return choose_product(opt, ctx, out);
    }
}

/* An exit status, after printing. */
static int choose(const struct qn_options *opt, struct quern_context *ctx,
                  const struct qn_candidate **out)
{
    char text[1024];
    int status = QN_EXIT_OK;
    int code;

    if (opt->kernel) {
        code = find(ctx, opt->kernel, out);
        if (code)
            return qn_message_code(opt, code, quern_errmsg());
    } else {
        status = qn_source_join(opt, text, sizeof text);
        if (!status)
            status = choose_of(opt, ctx, text, out);
    }
    if (!status && strcmp((*out)->kernel->arch, "host") == 0)
        return qn_message_fail(opt, QN_EXIT_UNABLE,
                               "%s is made for the host, which has no PTX and "
                               "no SASS; --kernel names one for a GPU",
                               (*out)->kernel->name);
    return status;
}

/* --------------------------------------------------------------- compiling */

/* A kernel that spills is shown, too: users want to see exactly that. */
static int compile(struct quern_context *ctx, int show, struct code *code)
{
    const struct qn_kernel *kernel = code->candidate->kernel;
    struct qn_nvrtc *nvrtc;
    char *source = NULL;
    int error = qn_nvrtc_of(ctx, &nvrtc);

    if (!error)
        error = qn_generator_source(ctx, kernel, &source);
    if (!error)
        error = qn_nvrtc_compile(nvrtc, kernel->name, source, kernel->arch,
                                 &code->made);
    if (error && code->made.rejected)
        error = QUERN_OK;
    if (!error && (show & QN_SHOW_PTX))
        error =
            qn_nvrtc_ptx(nvrtc, kernel->name, source, kernel->arch, &code->ptx);
    free(source);
    return error;
}

/* Code that was compiled before: linked, or in the cache. */
static int take(struct quern_context *ctx, struct code *code)
{
    const struct qn_kernel *kernel = code->candidate->kernel;
    struct qn_cache_object object;
    int error;

    if (!kernel->cubin) {
        error = qn_jit_object(ctx, code->candidate, &object);
        code->made.object = object.data;
        code->made.bytes = object.bytes;
        return error;
    }
    code->made.object = malloc(kernel->cubin_bytes);
    if (!code->made.object)
        return qn_error_memory();
    memcpy(code->made.object, kernel->cubin, kernel->cubin_bytes);
    code->made.bytes = kernel->cubin_bytes;
    return QUERN_OK;
}

static int get(struct quern_context *ctx, int show, struct code *code)
{
    int error = compile(ctx, show, code);

    if (error == QUERN_EMISSING && !(show & QN_SHOW_PTX))
        error = take(ctx, code);
    return error;
}

/* -------------------------------------------------------------------- SASS */

/* All that a program prints; NULL if it is not there or fails. */
static char *run(const char *program, const char *path)
{
    struct qn_text text = {0};
    char command[512], buffer[4096];
    size_t length;
    FILE *pipe;
    int status;

    snprintf(command, sizeof command,
             "PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:"
             "/usr/local/cuda/bin; exec %s %s 2>/dev/null",
             program, path);
    pipe = popen(command, "r");
    if (!pipe)
        return NULL;
    while ((length = fread(buffer, 1, sizeof buffer - 1, pipe)) > 0) {
        buffer[length] = '\0';
        qn_text_add(&text, "%s", buffer);
    }
    status = pclose(pipe);
    if (status == 0 && text.length && !text.failed)
        return text.data;
    qn_text_free(&text);
    return NULL;
}

/* The first disassembler that there is; an exit status, after printing. */
static int disassemble(const struct qn_options *opt, struct code *code)
{
    static const char *const programs[] = {"cuobjdump -sass", "nvdisasm -c"};
    char path[] = "/tmp/quern-XXXXXX";
    int file = mkostemp(path, O_CLOEXEC);
    FILE *stream = file < 0 ? NULL : fdopen(file, "wb");
    int failed = !stream, error;

    if (stream) {
        failed |= fwrite(code->made.object, 1, code->made.bytes, stream) !=
                  code->made.bytes;
        failed |= fclose(stream) != 0;
    }
    error = errno;
    for (int i = 0; i < 2 && !failed && !code->sass; i++)
        code->sass = run(programs[i], path);
    if (file >= 0)
        unlink(path);
    if (failed)
        return qn_message_fail(opt, QN_EXIT_UNABLE, "%s: %s", path,
                               strerror(error));
    return code->sass
               ? QN_EXIT_OK
               : qn_message_fail(opt, QN_EXIT_UNABLE,
                                 "--sass needs cuobjdump or nvdisasm of a CUDA "
                                 "toolkit: neither works from $PATH, "
                                 "$CUDA_HOME/bin or /usr/local/cuda/bin");
}

/* --------------------------------------------------------------- resources */

/* The number before `what` in the compiler's report; -1 if it says nothing. */
static double reported(const char *log, const char *what)
{
    const char *at = log ? strstr(log, what) : NULL;
    double value;

    while (at && at > log && strchr("0123456789 ", at[-1]))
        at--;
    return at && sscanf(at, "%lf", &value) == 1 ? value : -1;
}

static void add_known(cJSON *row, const char *key, double value)
{
    if (value >= 0)
        cJSON_AddNumberToObject(row, key, value);
}

static cJSON *list_resources(const struct code *code)
{
    const struct qn_kernel *kernel = code->candidate->kernel;
    struct qn_occupancy occupancy;
    struct qn_cubin cubin;
    cJSON *row = cJSON_CreateObject();
    int version = 0;

    sscanf(kernel->arch, "sm_%d", &version);
    cJSON_AddStringToObject(row, "arch", kernel->arch);
    cJSON_AddNumberToObject(row, "threads", kernel->threads);
    cJSON_AddNumberToObject(row, "stages", kernel->stages);
    cJSON_AddNumberToObject(row, "dynamic_shared_bytes", kernel->smem);
    cJSON_AddNumberToObject(row, "cubin_bytes", (double)code->made.bytes);
    add_known(row, "spill_store_bytes",
              reported(code->made.log, "bytes spill stores"));
    add_known(row, "spill_load_bytes",
              reported(code->made.log, "bytes spill loads"));
    if (qn_cubin_read(code->made.object, code->made.bytes, &cubin))
        return row;
    cJSON_AddStringToObject(row, "symbol", cubin.name);
    cJSON_AddNumberToObject(row, "registers", cubin.registers);
    cJSON_AddNumberToObject(row, "stack_bytes", cubin.stack);
    cJSON_AddNumberToObject(row, "static_shared_bytes", cubin.shared);
    qn_cubin_occupancy(version, kernel->threads, cubin.registers,
                       cubin.shared + kernel->smem, &occupancy);
    if (occupancy.ctas) {
        cJSON_AddNumberToObject(row, "ctas", occupancy.ctas);
        cJSON_AddNumberToObject(row, "warps", occupancy.warps);
        cJSON_AddNumberToObject(row, "occupancy",
                                (double)occupancy.warps / occupancy.most);
        cJSON_AddStringToObject(row, "bound_by", occupancy.by);
    }
    return row;
}

/* One line for each figure; "-" for unknown ones. */
static void print_resources(const cJSON *row)
{
    static const struct {
        const char *key, *title, *unit;
    } lines[] = {
        {"symbol", "symbol", ""},
        {"arch", "architecture", ""},
        {"threads", "threads", " in a CTA"},
        {"registers", "registers", " of a thread, at its start"},
        {"stack_bytes", "stack", " bytes of a thread"},
        {"spill_store_bytes", "spills", " bytes stored"},
        {"spill_load_bytes", "", " bytes loaded"},
        {"dynamic_shared_bytes", "shared memory", " bytes, dynamic"},
        {"static_shared_bytes", "", " bytes, static"},
        {"stages", "stages", ""},
        {"ctas", "CTAs", " on a multiprocessor"},
        {"bound_by", "bounded by", ""},
        {"warps", "warps", " of them"},
        {"occupancy", "occupancy", ""},
        {"cubin_bytes", "cubin", " bytes"},
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const cJSON *value =
            cJSON_GetObjectItemCaseSensitive(row, lines[i].key);

        printf("%-14s", lines[i].title);
        if (cJSON_IsString(value))
            printf("%s%s\n", value->valuestring, lines[i].unit);
        else if (value)
            printf("%.6g%s\n", value->valuedouble, lines[i].unit);
        else
            printf("-\n");
    }
}

/* ------------------------------------------------------------------ output */

static void print(const struct qn_options *opt, const struct code *code)
{
    const struct {
        int bit;
        const char *key, *text;
    } texts[] = {{QN_SHOW_PTX, "ptx", code->ptx},
                 {QN_SHOW_SASS, "sass", code->sass}};
    cJSON *object = cJSON_CreateObject(), *row;

    cJSON_AddStringToObject(object, "kernel", code->candidate->kernel->name);
    for (int i = 0; i < 2; i++) {
        if (opt->show & texts[i].bit && opt->json)
            cJSON_AddStringToObject(object, texts[i].key, texts[i].text);
        else if (opt->show & texts[i].bit)
            fputs(texts[i].text, stdout);
    }
    if (opt->show & QN_SHOW_RESOURCES) {
        row = list_resources(code);
        if (!opt->json)
            print_resources(row);
        cJSON_AddItemToObject(object, "resources", row);
    }
    if (opt->json)
        qn_table_json(object);
    else
        cJSON_Delete(object);
}

int qn_code_show(const struct qn_options *opt, struct quern_context *ctx)
{
    struct code code = {NULL, {0}, NULL, NULL};
    int status = choose(opt, ctx, &code.candidate);
    int error;

    if (!status) {
        error = get(ctx, opt->show, &code);
        if (error)
            status = qn_message_code(opt, error, quern_errmsg());
    }
    if (!status && (opt->show & QN_SHOW_SASS))
        status = disassemble(opt, &code);
    if (!status)
        print(opt, &code);
    qn_nvrtc_free(&code.made);
    free(code.ptx);
    free(code.sass);
    return status;
}
