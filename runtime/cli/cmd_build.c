/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_build.c: `quern build`: kernels compiled ahead of time, as an archive
** that a C program links and a library that any program loads.
*/
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "gen.h"
#include "base/file.h"
#include "base/text.h"
#include "oracle/config.h"

static const struct argp_option options[] = {
    QN_OPTION_OUTPUT("Write into DIR (default quern-kernels)"),
    {"arch", QN_KEY_ARCH, "ARCH", 0,
     "For this architecture, or for several: sm_80,sm_90a (repeatable; default "
     "sm_90a)",
     0},
    {"recipe", QN_KEY_RECIPES, "LIST", 0,
     "For CONFIG: recipes, e.g. bf16,mxfp8 (default bf16)", 0},
    {"tokens", QN_KEY_TOKENS, "N", 0,
     "For CONFIG: tokens of a call, at most (default 16384)", 0},
    {"ranks", QN_KEY_RANKS, "N", 0,
     "For CONFIG: GPUs that share the experts (default 1)", 0},
    {"forward", QN_KEY_FORWARD, NULL, 0, "For CONFIG: no gradients", 0},
    {"dry-run", 'n', NULL, 0, "List the kernels, compile and write nothing", 0},
    {"jobs", 'j', "N", 0, "Compile N kernels at a time (default: all cores)",
     0},
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    {0},
};

/* The kernels of a command line. */
struct wanted {
    const struct qn_options *opt;
    struct quern_context *ctx;
    struct qn_archs archs;
    unsigned char *marks; /* one for each kernel of ctx->base */
    cJSON *lines;         /* of all problems and configurations */
};

/* ---------------------------------------------------------------- selecting */

/* Those of the architectures that match, or ship. */
static void mark_selected(struct wanted *w, const char *filter)
{
    const struct qg_selection selection = {
        .arch = w->archs.list, .filter = filter, .shipped = !filter};
    const struct quern_registry *all = w->ctx->base;

    for (int i = 0; i < all->nkernels; i++)
        w->marks[i] |= qg_selects(&selection, &all->kernels[i]) != 0;
}

static int mark_filter(struct wanted *w, const char *filter)
{
    const int status = qn_source_filter(w->opt, w->ctx->base, filter);

    if (!status)
        mark_selected(w, filter);
    return status;
}

static int mark_line(struct wanted *w, const char *line)
{
    cJSON_AddItemToArray(w->lines, cJSON_CreateString(line));
    return qn_need_mark(w->opt, w->ctx, &w->archs, line, w->marks);
}

/* The layer's lines in one recipe. */
static int mark_recipe(struct wanted *w, const struct qn_config *config,
                       const char *name)
{
    const int ranks = w->opt->ranks ? w->opt->ranks : 1;
    const int64_t tokens = w->opt->tokens ? w->opt->tokens : 16384;
    const struct qn_config_use use = {
        .recipe = qn_context_recipe(w->ctx, name),
        .groups = (config->experts + ranks - 1) / ranks,
        .rows = tokens * config->choices,
        .forward = w->opt->forward,
    };
    char line[512];
    int status = QN_EXIT_OK;

    if (!use.recipe) {
        qn_problem_no_recipe(w->ctx, name);
        return qn_message_code(w->opt, QUERN_EINVAL, quern_errmsg());
    }
    for (int i = 0;
         !status && qn_config_line(config, &use, i, line, sizeof line); i++)
        status = mark_line(w, line);
    return status;
}

static int mark_recipes(struct wanted *w, const struct qn_config *config)
{
    const char *list = w->opt->recipes ? w->opt->recipes : "bf16";
    int status = QN_EXIT_OK;

    for (size_t length; *list && !status;
         list += length + (list[length] == ',')) {
        char name[64];

        length = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, list);
        status = mark_recipe(w, config, name);
    }
    return status;
}

static int mark_config(struct wanted *w, const char *path)
{
    struct qn_file_text text = {0};
    struct qn_config config;
    char why[256], full[PATH_MAX];
    int parsed;

    if (!realpath(path, full)) /* Hugging Face's folders have links */
        return qn_message_fail(w->opt, QN_EXIT_USAGE, "%s: %s", path,
                               strerror(errno));
    if (qn_file_read(AT_FDCWD, full, QN_CONFIG_MOST, QN_TRUST_ALL, &text) !=
        QN_FILE_OK)
        return qn_message_fail(w->opt, QN_EXIT_USAGE,
                               "%s: a plain file of at most 1 MiB is expected, "
                               "which may be read",
                               path);
    parsed = qn_config_parse(text.data, text.bytes, &config, why, sizeof why);
    free(text.data);
    if (!parsed)
        return qn_message_fail(w->opt, QN_EXIT_USAGE, "%s: %s", path, why);
    return mark_recipes(w, &config);
}

static int is_config(const char *word)
{
    const char *ending = strrchr(word, '.');

    return ending && strcmp(ending, ".json") == 0;
}

static int has_blank(const char *word)
{
    return word[strcspn(word, " \t\r\n")] != '\0';
}

/* Is the command line one problem, word by word? No kernel's name has '='. */
static int is_one_line(const struct qn_options *opt)
{
    int values = 0;

    for (int i = 0; i < opt->nwords; i++) {
        if (has_blank(opt->words[i]) || is_config(opt->words[i]))
            return 0;
        values |= strchr(opt->words[i], '=') != NULL;
    }
    return values;
}

/* The options of a CONFIG, which is missing. */
static int check_options(const struct qn_options *opt)
{
    const char *name = opt->recipes   ? "recipe"
                       : opt->tokens  ? "tokens"
                       : opt->ranks   ? "ranks"
                       : opt->forward ? "forward"
                                      : NULL;

    for (int i = 0; i < opt->nwords; i++)
        if (is_config(opt->words[i]))
            return QN_EXIT_OK;
    return name ? qn_message_fail(opt, QN_EXIT_USAGE,
                                  "--%s is for a model's CONFIG.json, and none "
                                  "is given",
                                  name)
                : QN_EXIT_OK;
}

static int mark_words(struct wanted *w)
{
    const struct qn_options *opt = w->opt;
    char text[2048];
    int status = check_options(opt);

    if (!status && opt->nwords == 0)
        mark_selected(w, NULL);
    if (!status && is_one_line(opt)) {
        status = qn_source_line(opt, text, sizeof text);
        return status ? status : mark_line(w, text);
    }
    for (int i = 0; i < opt->nwords && !status; i++)
        status = is_config(opt->words[i])   ? mark_config(w, opt->words[i])
                 : has_blank(opt->words[i]) ? mark_line(w, opt->words[i])
                                            : mark_filter(w, opt->words[i]);
    return status;
}

/* ------------------------------------------------------------------ report */

/* The size of each kernel in a program that links it. */
static cJSON *list_kernels(const struct qn_compile *work)
{
    cJSON *rows = cJSON_CreateArray();

    for (int i = 0; i < work->count; i++) {
        const struct qn_compile_item *item = &work->items[i];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "kernel", item->kernel->name);
        cJSON_AddStringToObject(row, "arch", item->kernel->arch);
        if (item->object.data)
            cJSON_AddNumberToObject(row, "cubin_bytes",
                                    (double)item->object.bytes);
        cJSON_AddBoolToObject(row, "cached", item->cached);
        cJSON_AddItemToArray(rows, row);
    }
    return rows;
}

/* The architectures asked for, and the results of each. */
static cJSON *list_archs(const struct qn_archs *archs,
                         const struct qn_compile *work)
{
    cJSON *rows = cJSON_CreateArray();

    for (int i = 0; i < archs->count; i++) {
        const struct qn_arch *arch = &archs->at[i];
        cJSON *row = cJSON_CreateObject();
        double bytes = 0;
        int kernels = 0;
        for (int j = 0; arch->code && j < work->count; j++)
            if (strcmp(work->items[j].kernel->arch, arch->code) == 0) {
                bytes += (double)work->items[j].object.bytes;
                kernels++;
            }
        cJSON_AddStringToObject(row, "arch", arch->asked);
        if (arch->code)
            cJSON_AddStringToObject(row, "code", arch->code);
        else
            cJSON_AddNullToObject(row, "code");
        cJSON_AddNumberToObject(row, "kernels", kernels);
        cJSON_AddNumberToObject(row, "cubin_bytes", bytes);
        cJSON_AddItemToArray(rows, row);
    }
    return rows;
}

/* Told before the work begins, too. */
static void print_count(FILE *file, const struct qn_compile *work)
{
    fprintf(file, "%d kernel%s: %d to compile, %d in the cache\n", work->count,
            work->count == 1 ? "" : "s", work->count - work->cached,
            work->cached);
}

static void print_lines(const struct wanted *w)
{
    const cJSON *line;

    cJSON_ArrayForEach(line, w->lines) printf("%s\n", line->valuestring);
    if (cJSON_GetArraySize(w->lines))
        putchar('\n');
}

static void print_tables(const struct wanted *w, const char *folder,
                         const struct qn_compile *work, int current)
{
    static const struct qn_column kernels[] = {{"cubin_bytes", "bytes", "%.0f"},
                                               {"cached", "cached", "s"},
                                               {"kernel", "kernel", "s"},
                                               {0}};
    static const struct qn_column architectures[] = {
        {"arch", "arch", "s"},
        {"code", "code of", "s"},
        {"kernels", "kernels", "%.0f"},
        {"cubin_bytes", "bytes", "%.0f"},
        {0}};

    if (w->opt->dry_run)
        print_lines(w);
    qn_table_print(w->opt, list_kernels(work), kernels);
    putchar('\n');
    qn_table_print(w->opt, list_archs(&w->archs, work), architectures);
    putchar('\n');
    if (w->opt->dry_run) {
        print_count(stdout, work);
        return;
    }
    printf("%d kernel%s, %s in %.2f s: %s/" QN_ARCHIVE ", %.0f bytes\n",
           work->count, work->count == 1 ? "" : "s",
           current ? "all as they were," : "compiled and linked", work->seconds,
           folder, qn_archive_bytes(folder, QN_ARCHIVE));
}

static int print_summary(const struct wanted *w, const char *folder,
                         const struct qn_compile *work, int current)
{
    cJSON *object;

    if (!w->opt->json) {
        print_tables(w, folder, work, current);
        return QN_EXIT_OK;
    }
    object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "folder", folder);
    cJSON_AddNumberToObject(object, "seconds", work->seconds);
    cJSON_AddNumberToObject(object, "to_compile", work->count - work->cached);
    if (!w->opt->dry_run)
        cJSON_AddNumberToObject(object, "archive_bytes",
                                qn_archive_bytes(folder, QN_ARCHIVE));
    cJSON_AddItemToObject(object, "problems", cJSON_Duplicate(w->lines, 1));
    cJSON_AddItemToObject(object, "archs", list_archs(&w->archs, work));
    cJSON_AddItemToObject(object, "kernels", list_kernels(work));
    qn_table_json(object);
    return QN_EXIT_OK;
}

/* ---------------------------------------------------------------- compiling */

/* Told before minutes of compiling: may DIR, or the nearest folder around it
   that is there, be written? */
static int check_folder(const struct qn_options *opt, const char *folder)
{
    char *copy = qn_text_copy(folder), *at = copy;
    int error = ENOMEM;
    struct stat st;

    while (at && (error = access(at, W_OK | X_OK) ? errno : 0) == ENOENT &&
           strcmp(at, ".") != 0)
        at = dirname(at);
    if (at && !stat(at, &st) && !S_ISDIR(st.st_mode))
        error = ENOTDIR;
    free(copy);
    return error ? qn_message_fail(opt, QN_EXIT_UNABLE,
                                   "%s cannot be written: %s", folder,
                                   strerror(error))
                 : QN_EXIT_OK;
}

/* Nothing is written before every kernel has compiled; then all is, unless the
   folder has just these kernels. */
static int compile(const struct wanted *w, struct qn_compile *work)
{
    const struct qn_options *opt = w->opt;
    const char *folder = opt->output ? opt->output : "quern-kernels";
    int current = 0, status = qn_compile_find(opt, w->ctx, w->marks, work);

    if (status || opt->dry_run)
        return status ? status : print_summary(w, folder, work, 0);
    status = check_folder(opt, folder);
    if (!status) {
        print_count(stderr, work);
        status = qn_compile_run(opt, work, opt->jobs);
    }
    if (!status) {
        current = qn_archive_current(folder, work);
        status = current ? QN_EXIT_OK : qn_archive_write(opt, folder, work);
    }
    return status ? status : print_summary(w, folder, work, current);
}

static int build(struct wanted *w)
{
    const struct qn_options *opt = w->opt;
    struct qn_compile work = {0};
    int status = qn_arch_choose(opt, w->ctx->base,
                                opt->arch ? opt->arch : "sm_90a", &w->archs);

    w->marks = calloc((size_t)w->ctx->base->nkernels + 1, 1);
    w->lines = cJSON_CreateArray();
    if (!status && (!w->marks || !w->lines))
        status = qn_message_code(opt, QUERN_ENOMEM, NULL);
    if (!status)
        status = mark_words(w);
    if (!status)
        status = compile(w, &work);
    qn_compile_free(&work);
    cJSON_Delete(w->lines);
    free(w->marks);
    return status;
}

/* Kernels that this program loads would hide those to be built. */
static int run(const struct qn_options *opt)
{
    struct wanted w = {.opt = opt};
    int status;

    unsetenv("QUERN_KERNELS");
    status = qn_source_context(opt, &w.ctx);
    if (!status)
        status = build(&w);
    quern_close(w.ctx);
    return status;
}

const struct qn_command qn_cmd_build = {
    .name = "build",
    .arguments = "[FILTER|PROBLEM|CONFIG.json]...",
    .summary = "Compile kernels ahead of time into an archive to link",
    .help =
        "FILTER takes the kernels whose names match. PROBLEM, quoted if there "
        "are other arguments, takes every kernel that plans of the line can "
        "need, for any number of rows up to the line's. CONFIG.json, as "
        "Hugging Face keeps a model's, stands for the lines of its MoE layer, "
        "forward and backward. Both include measured winners. Without "
        "arguments, the kernels that specs/kernels/shipped.lua names.\n"
        "Compiled kernels stay in the cache, so that the next build compiles "
        "only others. DIR gets an archive to link, libquern_kernels.a, and a "
        "library that programs load, in C and Python, if QUERN_KERNELS is DIR. "
        "Kernels of several architectures fit into one; sm_80's also serve "
        "GPUs of 8.6 and 8.9, and those of sm_100a and sm_103a are one, "
        "sm_100f. A kernel that spills registers or whose tensor-core work is "
        "serialized is an error. Example:\n"
        "  quern build --arch sm_80,sm_90a -o out\n"
        "  quern build -o out fprop bf16 g=8 m=65536 n=2048 k=7168\n"
        "  quern build -o out --recipe bf16,mxfp8 config.json\n"
        "  cc -Iout $(pkg-config --cflags quern) program.c "
        "out/libquern_kernels.a \\\n    $(pkg-config --libs quern)",
    .options = options,
    .run = run,
};
