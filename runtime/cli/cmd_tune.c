/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_tune.c: `quern tune`: measure candidates on this GPU, store the
   winners. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "base/file.h"
#include "base/types.h"
#include "tuned/tune_file.h"
#include "tuned/tune_key.h"
#include "tuned/tune_store.h"

static const struct argp_option options[] = {
    {"budget", QN_KEY_BUDGET, "SECONDS", 0,
     "For each problem, compiling included (default 20)", 0},
    {"l2", QN_KEY_L2, "NAME", 0,
     "State of L2 before runs: cold, warm or both (default both)", 0},
    {"store", QN_KEY_STORE, "DIR", 0,
     "Folder of the files to read and write (default $QUERN_TUNE, else tune/ "
     "in the cache)",
     0},
    {"merge", QN_KEY_MERGE, NULL, 0,
     "The arguments are files of measured winners: add their lines", 0},
    {"missing", QN_KEY_MISSING, NULL, 0,
     "Only problems for which no file has a line that counts", 0},
    {"list", QN_KEY_LIST, NULL, 0,
     "List the winners of files, or of all that plans read, and those that "
     "are stale: their kernel has changed since",
     0},
    {"jobs", 'j', "N", 0, "Threads that compile", 0},
    {"candidates", 'k', NULL, 0, "Also list each kernel, and why it is out", 0},
    {"backend", QN_KEY_BACKEND, "NAME", 0,
     "auto, jit, aot or ptx (default auto)", 0},
    QN_OPTION_SEED,
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    QN_OPTION_VERBOSE,
    {0},
};

/* ----------------------------------------------------------------- progress */

struct watcher {
    int terminal;
    double next; /* seconds before which nothing is told again */
};

static int show(void *user, const struct quern_tune_progress *p)
{
    struct watcher *w = user;
    const char *best = p->best ? p->best->kernel : "none yet";

    if (p->elapsed < w->next)
        return 0;
    w->next = p->elapsed + (w->terminal ? 0.1 : 2);
    fprintf(stderr,
            "%sround %d, %.1f s: %d of %d left, %d to be compiled; best %.1f "
            "us, %s%s",
            w->terminal ? "\r" : "", p->rounds, p->elapsed, p->left,
            p->candidates, p->compiling, p->best ? p->best->seconds * 1e6 : 0,
            best, w->terminal ? "\033[K" : "\n");
    return 0;
}

/* ------------------------------------------------------------------ results */

static const struct qn_column columns[] = {
    {"problem", "problem", "s"},
    {"kernel", "kernel", "s"},
    {"dequantize", "dequantize", "s"},
    {"us", "us", "%.1f"},
    {"model_us", "model's us", "%.1f"},
    {"ratio", "ratio", "%.3f"},
    {"certain", "certain", "s"},
    {"rounds", "rounds", "%.0f"},
    {"mhz", "MHz", "%.0f"},
    {"file", "file", "s"},
    {0},
};

static const struct qn_column candidate_columns[] = {
    {"kernel", "kernel", "s"},
    {"dequantize", "dequantize", "s"},
    {"band", "band", "%.0f"},
    {"us", "us", "%.1f"},
    {"rounds", "rounds", "%.0f"},
    {"reason", "why it is out", "s"},
    {0},
};

/* Nothing if there is only one strategy, or no other was compared. */
static void add_strategy(cJSON *row, int dequantize)
{
    if (dequantize)
        cJSON_AddStringToObject(row, "dequantize",
                                qn_dequantize_name(dequantize));
}

/* The compiler's lines after its first one are for JSON. */
static cJSON *describe_candidates(const struct qn_options *opt,
                                  const struct quern_tune_result *result)
{
    cJSON *rows = cJSON_CreateArray();
    char reason[sizeof result->candidates->reason];

    for (int i = 0; i < result->count; i++) {
        const struct quern_tune_candidate *c = &result->candidates[i];
        cJSON *row = cJSON_CreateObject();

        cJSON_AddStringToObject(row, "kernel", c->kernel);
        add_strategy(row, c->dequantize);
        cJSON_AddNumberToObject(row, "band", c->band);
        cJSON_AddNumberToObject(row, "us", c->seconds * 1e6);
        cJSON_AddNumberToObject(row, "rounds", c->rounds);
        snprintf(reason, sizeof reason, "%s", c->reason);
        if (!opt->json)
            reason[strcspn(reason, "\n")] = '\0';
        cJSON_AddStringToObject(row, "reason", reason);
        cJSON_AddItemToArray(rows, row);
    }
    return rows;
}

static cJSON *describe(const char *text, const struct quern_tune_result *result)
{
    cJSON *row = cJSON_CreateObject();

    cJSON_AddStringToObject(row, "problem", text);
    cJSON_AddStringToObject(row, "kernel", result->kernel);
    add_strategy(row, result->dequantize);
    cJSON_AddNumberToObject(row, "band", result->band);
    cJSON_AddNumberToObject(row, "us", result->seconds * 1e6);
    cJSON_AddStringToObject(row, "model", result->model);
    cJSON_AddNumberToObject(row, "model_us", result->model_seconds * 1e6);
    cJSON_AddNumberToObject(row, "ratio", result->ratio);
    cJSON_AddBoolToObject(row, "certain", result->certain);
    cJSON_AddNumberToObject(row, "rounds", result->rounds);
    cJSON_AddNumberToObject(row, "mhz", result->clock_mhz);
    cJSON_AddNumberToObject(row, "bytes", (double)result->bytes);
    cJSON_AddStringToObject(row, "file", result->file);
    return row;
}

/* Also the row: each kernel, where that is asked for. */
static void add_candidates(const struct qn_options *opt, cJSON *row,
                           const struct quern_tune_result *result)
{
    cJSON *candidates = describe_candidates(opt, result);

    if (opt->json)
        cJSON_AddItemToObject(row, "candidates", candidates);
    else if (opt->kernels)
        qn_table_print(opt, candidates, candidate_columns);
    else
        cJSON_Delete(candidates);
}

/* Who names a folder wants that one: the library would go on to the cache's,
   and only once all was measured. */
static int check_store(const struct qn_options *opt)
{
    int folder, error = 0;

    if (!opt->store)
        return QN_EXIT_OK;
    if (strchr(opt->store, ':'))
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--store is '%s'; it must be one folder, whose "
                               "name has no ':'",
                               opt->store);
    qn_file_folders(opt->store);
    folder = open(opt->store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || faccessat(folder, ".", W_OK | X_OK, AT_EACCESS))
        error = errno;
    if (folder >= 0)
        close(folder);
    return error ? qn_message_fail(opt, QN_EXIT_UNABLE,
                                   "--store: %s cannot be written: %s",
                                   opt->store, strerror(error))
                 : QN_EXIT_OK;
}

static int tune_problem(const struct qn_options *opt, struct quern_context *ctx,
                        const char *text, cJSON *rows)
{
    struct watcher watcher = {.terminal = isatty(STDERR_FILENO)};
    struct quern_tune_options tune = QUERN_TUNE_OPTIONS_INIT;
    const enum qn_line_kind line = qn_line_of(text);
    struct quern_tune_result result = {.kernel = NULL};
    char expanded[2048], usual[2048];
    int code, status;
    cJSON *row;

    if (line == QN_LINE_MLP || line == QN_LINE_MOE)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "'%s': an MLP is tuned by its products, whose "
                               "lines quern why prints",
                               text);
    if (line == QN_LINE_ROUTE)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "'%s': a route or a move has one kernel on "
                               "each GPU, so there is nothing to tune",
                               text);
    if (line == QN_LINE_CAST)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "'%s': a cast has one kernel on each GPU, so "
                               "there is nothing to tune",
                               text);
    status = qn_source_product(opt, &text, expanded, sizeof expanded);
    if (!status)
        status = check_store(opt);
    if (status)
        return status;
    tune.seconds = opt->budget;
    tune.backend = opt->backend;
    tune.l2 = opt->l2;
    tune.keep = opt->missing ? 2 : 0;
    tune.threads = opt->jobs;
    tune.seed = opt->seed;
    tune.progress = show;
    tune.user = &watcher;
    code = quern_format(ctx, text, usual, sizeof usual, NULL);
    if (!code)
        code = quern_tune(ctx, text, &tune, &result);
    if (watcher.terminal && watcher.next > 0)
        fprintf(stderr, "\r\033[K");
    if (code)
        status = qn_message_code(opt, code, quern_errmsg());
    if (result.kernel) { /* even where the file could not be written */
        row = describe(usual, &result);
        add_candidates(opt, row, &result);
        cJSON_AddItemToArray(rows, row);
    }
    quern_free(result.candidates);
    return status;
}

/* -------------------------------------------------------------------- merge */

static int merge_file(const struct qn_options *opt, struct quern_context *ctx,
                      const char *path, cJSON *rows)
{
    struct qn_tune_file file;
    char target[512];
    cJSON *row;
    int code, stale;

    if (access(path, F_OK))
        return qn_message_fail(opt, QN_EXIT_USAGE, "%s: %s", path,
                               strerror(errno));
    code = qn_tune_store_read(ctx, path, &file);
    if (!code)
        code = qn_tune_key_count(ctx, &file, &stale);
    if (!code)
        code = qn_tune_store_add(ctx, &file, 0, target, sizeof target);
    if (!code && !opt->json)
        printf("%s: %d line%s, %d of them stale, merged into %s\n", path,
               file.count, file.count == 1 ? "" : "s", stale, target);
    if (!code && opt->json) {
        row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "merged", path);
        cJSON_AddNumberToObject(row, "lines", file.count);
        cJSON_AddNumberToObject(row, "stale", stale);
        cJSON_AddStringToObject(row, "file", target);
        cJSON_AddItemToArray(rows, row);
    }
    qn_tune_file_free(&file);
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

static int merge_all(const struct qn_options *opt, struct quern_context *ctx,
                     cJSON *rows)
{
    int status;

    if (opt->nwords == 0)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--merge takes the files to be merged");
    status = check_store(opt);
    for (int i = 0; i < opt->nwords && !status; i++)
        status = merge_file(opt, ctx, opt->words[i], rows);
    return status;
}

/* --------------------------------------------------------------------- list */

static const struct qn_column list_columns[] = {
    {"gpu", "GPU", "s"},
    {"problem", "problem", "s"},
    {"sms", "SMs", "%.0f"},
    {"kernel", "kernel", "s"},
    {"us", "us", "%.1f"},
    {"ratio", "ratio", "%.3f"},
    {"state", "state", "s"},
    {"file", "file", "s"},
    {0},
};

struct list {
    struct quern_context *ctx;
    cJSON *rows;
};

/* A visitor of files. */
static int list_file(void *user, const char *path, struct qn_tune_file *file)
{
    struct list *list = user;
    int stale, code = qn_tune_key_count(list->ctx, file, &stale);

    for (int i = 0; i < file->count && !code; i++) {
        const struct qn_tune_line *l = &file->lines[i];
        cJSON *row = cJSON_CreateObject();

        cJSON_AddStringToObject(row, "gpu", file->gpu);
        cJSON_AddStringToObject(row, "problem", l->problem);
        cJSON_AddNumberToObject(row, "sms", (double)l->sms);
        cJSON_AddStringToObject(row, "kernel", l->kernel);
        cJSON_AddStringToObject(row, "key", l->key);
        cJSON_AddNumberToObject(row, "us", (double)l->ns / 1e3);
        cJSON_AddNumberToObject(row, "ratio", (double)l->permille / 1e3);
        cJSON_AddStringToObject(row, "state", l->stale ? "stale" : "used");
        cJSON_AddStringToObject(row, "file", path);
        cJSON_AddNumberToObject(row, "line", l->number);
        cJSON_AddItemToArray(list->rows, row);
    }
    return code;
}

static int list_all(const struct qn_options *opt, struct quern_context *ctx,
                    cJSON *rows)
{
    struct list list = {ctx, rows};
    struct qn_tune_file file;
    int code = QUERN_OK;

    if (opt->nwords == 0)
        code = qn_tune_store_each(ctx, list_file, &list);
    for (int i = 0; i < opt->nwords && !code; i++) {
        code = qn_tune_store_read(ctx, opt->words[i], &file);
        if (!code)
            code = list_file(&list, opt->words[i], &file);
        qn_tune_file_free(&file);
    }
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

/* ---------------------------------------------------------------------- run */

static int tune_all(const struct qn_options *opt, struct quern_context *ctx,
                    cJSON *rows)
{
    struct qn_texts texts;
    int status = qn_source_texts(opt, &texts), one = status;

    if (status)
        return status;
    /* one that cannot be tuned does not lose the others, unless none can */
    for (int i = 0; i < texts.count && one != QN_EXIT_UNABLE; i++) {
        one = tune_problem(opt, ctx, texts.all[i], rows);
        status = status ? status : one;
    }
    return status;
}

static int run(const struct qn_options *opt)
{
    struct quern_context *ctx;
    cJSON *rows;
    int status = qn_source_context(opt, &ctx);

    if (status)
        return status;
    rows = cJSON_CreateArray();
    status = opt->list    ? list_all(opt, ctx, rows)
             : opt->merge ? merge_all(opt, ctx, rows)
                          : tune_all(opt, ctx, rows);
    qn_table_rows(opt, rows, opt->list ? list_columns : columns);
    quern_close(ctx);
    return status;
}

const struct qn_command qn_cmd_tune = {
    .name = "tune",
    .arguments = "PROBLEM...\n--merge FILE...\n--list [FILE...]",
    .summary = "Measure candidates on this GPU, store the winners",
    .help =
        "Several problems are quoted, one by one. Kernels that serve a problem "
        "are compiled on all cores while the GPU measures those that are "
        "there, in rounds of shuffled order, until it is certain that none is "
        "faster by 0.5 % than the best, or time is up. If dequantize=auto "
        "leaves open how scaled operands are dequantized, "
        "the strategies run against the fastest kernel. Groups are drawn as "
        "split= says. The winner then serves all plans of the same variant, "
        "groups and axes, but for the ragged one: the mean length of a group "
        "is rounded down to 1, 2, 3, 4, 6, 8, 12, 16, 24, .. `quern why` says "
        "by how much it won. One file for each GPU model, NAME.tune: text, "
        "sorted, to be committed or merged; a line counts until its kernel "
        "changes. Example:\n"
        "  quern tune 'fprop bf16 g=8 m=32768 n=4096 k=7168 split=mild' "
        "\\\n    'wgrad bf16 g=8 m=4096 n=7168 k=32768 split=mild'\n"
        "  quern tune --merge other/NVIDIA_H200.tune --store bench/tune",
    .options = options,
    .run = run,
};
