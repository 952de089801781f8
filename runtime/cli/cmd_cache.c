/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_cache.c: `quern cache`: the compiled kernels on disk. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "base/error.h"
#include "base/guess.h"
#include "code/cache.h"
#include "code/cache_folder.h"

static const struct argp_option options[] = {
    QN_OPTION_JSON,
    QN_OPTION_VERBOSE,
    {0},
};

/* An entry as a row of `user`, an array. */
static int add_entry(void *user, const struct qn_cache_entry *entry)
{
    cJSON *row = cJSON_CreateObject();
    const time_t used = (time_t)entry->used;
    struct tm tm;
    char text[32] = "";

    if (localtime_r(&used, &tm))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", &tm);
    cJSON_AddStringToObject(row, "kernel", entry->kernel);
    cJSON_AddStringToObject(row, "arch", entry->arch);
    cJSON_AddStringToObject(row, "compiler", entry->compiler);
    cJSON_AddNumberToObject(row, "bytes", (double)entry->bytes);
    if (!entry->damaged) /* else the time is unknown */
        cJSON_AddStringToObject(row, "used", text);
    cJSON_AddStringToObject(row, "state",
                            entry->damaged ? "damaged"
                            : entry->other ? "another version's"
                                           : "good");
    if (entry->fault)
        cJSON_AddStringToObject(row, "fault", entry->fault);
    cJSON_AddStringToObject(row, "folder", entry->folder);
    cJSON_AddStringToObject(row, "key", entry->key);
    cJSON_AddItemToArray(user, row);
    return 0;
}

static const struct qn_column columns[] = {
    {"key", "key", "s"},        {"kernel", "kernel", "s"},
    {"arch", "arch", "s"},      {"compiler", "compiler", "s"},
    {"bytes", "bytes", "%.0f"}, {"used", "last used", "s"},
    {"state", "state", "s"},    {"fault", "fault", "s"},
    {"folder", "folder", "s"},  {0},
};

static int list(const struct qn_options *opt, struct qn_cache *cache)
{
    cJSON *rows = cJSON_CreateArray();

    qn_cache_each(cache, 0, add_entry, rows);
    qn_table_print(opt, rows, columns);
    return QN_EXIT_OK;
}

/* Lists damaged entries, and nothing if there are none. */
static int verify(const struct qn_options *opt, struct qn_cache *cache)
{
    cJSON *rows = cJSON_CreateArray();
    int bad, all;

    qn_cache_each(cache, 1, add_entry, rows);
    all = cJSON_GetArraySize(rows);
    for (int i = all - 1; i >= 0; i--) {
        const cJSON *state =
            cJSON_GetObjectItem(cJSON_GetArrayItem(rows, i), "state");
        if (strcmp(state->valuestring, "damaged") != 0)
            cJSON_DeleteItemFromArray(rows, i);
    }
    bad = cJSON_GetArraySize(rows);
    if (opt->json || bad)
        qn_table_print(opt, rows, columns);
    else
        cJSON_Delete(rows);
    if (!opt->json)
        printf("%d entries, %d damaged\n", all, bad);
    return bad ? QN_EXIT_FAILED : QN_EXIT_OK;
}

static int print_removed(const struct qn_options *opt, int code,
                         const struct qn_cache_gc *gc)
{
    cJSON *object;

    if (code)
        return qn_message_code(opt, code, qn_error_text());
    if (!opt->json) {
        printf("%d entries removed, %lld bytes; %d kept, %lld bytes\n",
               gc->removed, (long long)gc->removed_bytes, gc->kept,
               (long long)gc->kept_bytes);
        return QN_EXIT_OK;
    }
    object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "removed", gc->removed);
    cJSON_AddNumberToObject(object, "removed_bytes", (double)gc->removed_bytes);
    cJSON_AddNumberToObject(object, "kept", gc->kept);
    cJSON_AddNumberToObject(object, "kept_bytes", (double)gc->kept_bytes);
    qn_table_json(object);
    return QN_EXIT_OK;
}

/* gc */
static int collect(const struct qn_options *opt, struct qn_cache *cache)
{
    struct qn_cache_gc gc = {0};
    const int code = qn_cache_gc(cache, 1, cache->limit, &gc);

    return print_removed(opt, code, &gc);
}

/* rm's words. */
struct filters {
    char **words;
    int count;
    unsigned long long used; /* bit for each of the first */
};

/* A part of the kernel's name, a pattern of it, or the key's beginning. */
static int is_named(const char *word, const struct qn_cache_entry *entry)
{
    return (strlen(word) >= 8 && !strncmp(entry->key, word, strlen(word))) ||
           (strpbrk(word, "*?") ? !fnmatch(word, entry->kernel, 0)
                                : strstr(entry->kernel, word) != NULL);
}

static int is_unwanted(void *user, const struct qn_cache_entry *entry)
{
    struct filters *filters = user;
    int unwanted = !filters->count; /* all */

    for (int i = 0; i < filters->count; i++)
        if (is_named(filters->words[i], entry)) {
            unwanted = 1;
            filters->used |= 1ULL << (i % 64);
        }
    return unwanted;
}

/* rm: those that are named, or all. */
static int discard(const struct qn_options *opt, struct qn_cache *cache)
{
    struct filters filters = {opt->words + 1, opt->nwords - 1, 0};
    struct qn_cache_gc gc = {0};
    const int code = qn_cache_remove(cache, is_unwanted, &filters, &gc);

    for (int i = 0; !code && i < filters.count; i++)
        if (!(filters.used >> (i % 64) & 1))
            return qn_message_fail(opt, QN_EXIT_USAGE,
                                   "no entry matches '%s'; quern cache ls "
                                   "shows all",
                                   filters.words[i]);
    return print_removed(opt, code, &gc);
}

/* The folders in the order in which they are searched. */
static int where(const struct qn_options *opt, struct qn_cache *cache)
{
    static const struct qn_column folders[] = {
        {"folder", "folder", "s"},
        {"writable", "takes new entries", "s"},
        {"fault", "fault", "s"},
        {0}};
    cJSON *rows = cJSON_CreateArray();
    const char *folder;

    for (int i = 0; (folder = qn_cache_folder(cache, i)) != NULL; i++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "folder", folder);
        cJSON_AddBoolToObject(row, "writable", i == qn_cache_writable(cache));
        if (qn_cache_fault(cache, i))
            cJSON_AddStringToObject(row, "fault", qn_cache_fault(cache, i));
        cJSON_AddItemToArray(rows, row);
    }
    qn_table_print(opt, rows, folders);
    if (!opt->json && qn_cache_writable(cache) < 0)
        puts("no folder takes new entries: kernels are compiled again by each "
             "process");
    return QN_EXIT_OK;
}

static const struct {
    const char *name;
    int (*run)(const struct qn_options *, struct qn_cache *);
} actions[] = {{"ls", list},
               {"verify", verify},
               {"gc", collect},
               {"rm", discard},
               {"where", where}};
enum { NACTIONS = sizeof actions / sizeof actions[0] };

static int run(const struct qn_options *opt)
{
    const char *name = opt->nwords ? opt->words[0] : "ls";
    struct qn_guess guess = {.word = name};
    struct quern_context *ctx;
    struct qn_cache *cache;
    char nearest[64];
    int found = -1, code, status;

    for (int i = 0; i < NACTIONS; i++) {
        if (strcmp(actions[i].name, name) == 0)
            found = i;
        qn_guess_try(&guess, actions[i].name);
    }
    if (found < 0)
        return qn_message_fail(
            opt, QN_EXIT_USAGE,
            "'%s': it must be one of ls, verify, gc, rm and where%s", name,
            qn_guess_text(&guess, nearest, sizeof nearest));
    if (opt->nwords > 1 && actions[found].run != discard)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "'%s' is not expected after %s", opt->words[1],
                               name);
    status = qn_source_context(opt, &ctx);
    if (status)
        return status;
    code = actions[found].run == where /* which only names them */
               ? qn_cache_look(ctx->cache_list, &ctx->disk)
               : QUERN_OK;
    if (!code)
        code = qn_cache_of(ctx, &cache);
    status = code ? qn_message_code(opt, code, quern_errmsg())
                  : actions[found].run(opt, cache);
    quern_close(ctx);
    return status;
}

const struct qn_command qn_cmd_cache = {
    .name = "cache",
    .arguments = "[ls|verify|gc|rm [FILTER...]|where]",
    .summary = "List, verify, clean or empty the cache of compiled kernels",
    .help = "ls lists the entries, verify reads all of them again, gc removes "
            "damaged ones, and the least recently used beyond "
            "$QUERN_CACHE_SIZE. rm removes those that a FILTER names, else "
            "all: a part of a kernel's name, a pattern with * and ?, or the "
            "beginning of a key. where names the folders ($QUERN_CACHE, else "
            "quern in $XDG_CACHE_HOME or ~/.cache). Only the folder that takes "
            "new entries is changed. Example:\n"
            "  quern cache rm '*_sm80_*'",
    .options = options,
    .run = run,
};
