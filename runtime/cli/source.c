/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: where commands get kernels and problems from. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "gen.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/sizes.h"

int qn_source_open(const struct qn_options *options, struct qg **generator)
{
    if (qg_open(options->specs, options->nspecs, generator) == 0)
        return QN_EXIT_OK;
    if (!*generator)
        return qn_message_code(options, QUERN_ENOMEM, NULL);
    qn_message_text(options, QN_EXIT_USAGE, "", qg_diagnostics(*generator));
    qg_close(*generator);
    *generator = NULL;
    return QN_EXIT_USAGE;
}

static void print_log(void *user, int level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "quern: %s\n", line);
}

/* -v, else the value of QUERN_LOG (0: the library reads it), else errors
   only. */
static int log_level(const struct qn_options *options)
{
    const char *wanted = getenv("QUERN_LOG");

    if (options->verbose)
        return QUERN_LOG_DEBUG;
    return wanted && *wanted ? 0 : QUERN_LOG_ERROR;
}

int qn_source_context(const struct qn_options *options,
                      struct quern_context **ctx)
{
    const struct quern_open_options open = {
        .size = sizeof open,
        .specs = options->specs,
        .specs_count = options->nspecs,
        .tune = options->store,
        .log = print_log,
        .log_level = log_level(options),
    };
    const int code = quern_open(&open, ctx);
    int status;

    if (code == QUERN_OK)
        return QN_EXIT_OK;
    status = qn_message_code(options, code, quern_errmsg());
    quern_close(*ctx);
    *ctx = NULL;
    return status;
}

/* --arch and the FILTERs as the generator takes them, these with commas in
   `filters`. */
static int select_kernels(const struct qn_options *options,
                          struct qg_selection *selection, char *filters,
                          size_t size)
{
    size_t used = 0;

    filters[0] = '\0';
    for (int i = 0; i < options->nwords; i++) {
        used += (size_t)snprintf(filters + used, size - used, "%s%s",
                                 i ? "," : "", options->words[i]);
        if (used >= size)
            return qn_message_fail(options, QN_EXIT_USAGE,
                                   "the filters have over %zu characters",
                                   size);
    }
    *selection = (struct qg_selection){
        .arch = options->arch,
        .filter = used ? filters : NULL,
    };
    return QN_EXIT_OK;
}

int qn_source_filter(const struct qn_options *options,
                     const struct quern_registry *registry, const char *filter)
{
    const struct qg_selection one = {.filter = filter};

    for (int i = 0; i < registry->nkernels; i++)
        if (qg_selects(&one, &registry->kernels[i]))
            return QN_EXIT_OK;
    return qn_message_fail(options, QN_EXIT_USAGE,
                           "no kernel matches '%s'; quern list -k shows all",
                           filter);
}

/* Each by itself selects something. */
static int check_filters(const struct qn_options *options,
                         const struct quern_registry *registry)
{
    int status = QN_EXIT_OK;

    for (int i = 0; i < options->nwords && !status; i++)
        status = qn_source_filter(options, registry, options->words[i]);
    return status;
}

int qn_source_kernels(const struct qn_options *options,
                      int (*work)(const struct qn_options *, struct qg *,
                                  const struct qg_selection *))
{
    struct qg_selection selection;
    struct qg *generator;
    char filters[4096], archs[512];
    int status = select_kernels(options, &selection, filters, sizeof filters);

    if (!status)
        status = qn_source_open(options, &generator);
    if (status)
        return status;
    status = check_filters(options, qg_registry(generator));
    if (!status && options->arch) {
        qn_arch_serving(qg_registry(generator), options->arch, archs,
                        sizeof archs);
        selection.arch = archs;
    }
    if (!status)
        status = work(options, generator, &selection);
    qg_close(generator);
    return status;
}

int qn_source_join(const struct qn_options *options, char *text, size_t size)
{
    size_t used = 0;

    if (options->nwords == 0)
        return qn_message_fail(options, QN_EXIT_USAGE,
                               "a problem is missing, for example: fprop bf16 "
                               "g=8 m=4096 n=2048 k=7168");
    text[0] = '\0';
    for (int i = 0; i < options->nwords; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "",
                                 options->words[i]);
        if (used >= size)
            return qn_message_fail(options, QN_EXIT_USAGE,
                                   "the problem has over %zu characters", size);
    }
    return QN_EXIT_OK;
}

int qn_source_texts(const struct qn_options *options, struct qn_texts *texts)
{
    texts->joined = texts->line;
    texts->all = &texts->joined;
    texts->count = 1;
    if (!options->nwords ||
        !options->words[0][strcspn(options->words[0], " \t\r\n")])
        return qn_source_join(options, texts->line, sizeof texts->line);
    texts->all = (const char *const *)options->words;
    texts->count = options->nwords;
    return QN_EXIT_OK;
}

int qn_source_emit(const struct qn_options *options, struct qg *generator,
                   const char *folder, const struct qg_selection *selection,
                   int *count)
{
    const struct quern_registry *registry = qg_registry(generator);
    char begin[64];
    const char *text;
    sigset_t before;
    size_t length;
    int failed = 0;

    /* the long part, which may be interrupted */
    for (int i = 0; i < registry->nkernels && !failed; i++)
        if (qg_selects(selection, &registry->kernels[i]))
            failed =
                qg_source(generator, registry->kernels[i].name, &text, &length);
    qn_signal_hold(&before);
    if (!failed)
        failed = qg_emit(generator, folder, selection, count);
    qn_signal_release(&before);
    if (!failed)
        return QN_EXIT_OK;
    if (failed != 2)
        return qn_message_text(options, QN_EXIT_USAGE, "",
                               qg_diagnostics(generator));
    snprintf(begin, sizeof begin, "quern %s: ", options->command);
    return qn_message_text(options, QN_EXIT_UNABLE, begin,
                           qg_diagnostics(generator));
}

/* The word of a line that begins with `begin`, or NULL. */
static const char *find_word(const char *text, const char *begin)
{
    const char *at = text;

    while ((at = strstr(at, begin)) && at > text &&
           !isspace((unsigned char)at[-1]))
        at++;
    return at;
}

/* The word with m=@, n=@ or k=@ in a problem's text, or NULL. */
static const char *find_file(const char *text)
{
    const char *m = find_word(text, "m=@"), *n = find_word(text, "n=@");

    return m ? m : n ? n : find_word(text, "k=@");
}

/* The axis that is split among the groups, by the words of a line; 0: none. */
static char split_axis(const char *text)
{
    struct qn_problem p = {.ragged = QUERN_AXIS_M};
    char word[QN_LONGEST_WORD];

    while (qn_field_next(&text, word) > 0)
        if (qn_product_find(word, &p.op))
            qn_problem_defaults(&p, NULL);
        else if (strncmp(word, "ragged=", 7) == 0)
            qn_axis_find(word + 7, &p.ragged);
        else if (strcmp(word, "of=w") == 0 || strcmp(word, "rescale") == 0)
            p.ragged = QUERN_AXIS_NONE;
    return p.ragged == QUERN_AXIS_NONE ? 0 : *qn_axis_name(p.ragged);
}

/* "k=@FILE" becomes "k=SUM split=@FILE". */
static int expand_file(const struct qn_options *options, const char *text,
                       char *out, size_t size)
{
    const char *word = find_file(text);
    const char *end = word + strcspn(word, " \t\r\n");
    char file[512], why[512];
    struct stat st;
    int64_t sum;
    size_t need;

    snprintf(file, sizeof file, "%.*s", (int)(end - word - 3), word + 3);
    if (*word != split_axis(text))
        return qn_message_fail(options, QN_EXIT_USAGE,
                               "%c=@%s: %c is not split among the groups",
                               *word, file, *word);
    if (!stat(file, &st) && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
        return qn_message_fail(options, QN_EXIT_USAGE,
                               "%c=@%s: it is read twice, and a pipe only "
                               "once; write: %c=SUM split=@%s",
                               *word, file, *word, file);
    if (qn_sizes_sum(file, &sum, why, sizeof why))
        return qn_message_fail(options, QN_EXIT_USAGE, "%c=@%s: %s", *word,
                               file, why);
    need = (size_t)snprintf(out, size, "%.*s%c=%lld split=@%s%s",
                            (int)(word - text), text, *word, (long long)sum,
                            file, end);
    return need < size ? QN_EXIT_OK
                       : qn_message_fail(options, QN_EXIT_USAGE,
                                         "the problem is too long");
}

/* Is the axis left out that is split among the groups? */
static int lacks_axis(const char *text)
{
    const char key[] = {split_axis(text), '=', '\0'};

    return *key && !find_word(text, key);
}

int qn_source_expand(const struct qn_options *options, const char **text,
                     char *buffer, size_t size)
{
    int status = QN_EXIT_OK;

    if (find_file(*text))
        status = expand_file(options, *text, buffer, size);
    else if (options->routes && lacks_axis(*text)) /* 0 until they are read */
        snprintf(buffer, size, "%s %c=0", *text, split_axis(*text));
    else
        return QN_EXIT_OK;
    *text = buffer;
    return status;
}

/* Of a product? Its parser knows no other first words. */
static int check_line(const struct qn_options *options, const char *text)
{
    char words[128];

    switch (qn_line_of(text)) {
    case QN_LINE_PRODUCT:
        return QN_EXIT_OK;
    case QN_LINE_UNKNOWN:
        return qn_message_fail(
            options, QN_EXIT_USAGE, "'%.*s' begins no problem; known: %s",
            (int)strcspn(text, " "), text, qn_line_words(words, sizeof words));
    default:
        return qn_message_fail(options, QN_EXIT_USAGE,
                               "'%s': a product is expected here (fprop, "
                               "dgrad, wgrad)",
                               text);
    }
}

int qn_source_line(const struct qn_options *options, char *text, size_t size)
{
    char joined[1024];
    const char *line = joined;
    int status = qn_source_join(options, joined, sizeof joined);

    if (!status && qn_line_of(joined) == QN_LINE_UNKNOWN)
        status = check_line(options, joined);
    if (!status)
        status = qn_source_expand(options, &line, text, size);
    if (!status && line == joined)
        snprintf(text, size, "%s", joined);
    return status;
}

int64_t qn_source_rows(const char *text)
{
    const char key[] = {split_axis(text), '=', '\0'};
    const char *word = *key ? find_word(text, key) : NULL;

    return word ? strtoll(word + 2, NULL, 10) : 0;
}

int qn_source_product(const struct qn_options *options, const char **text,
                      char *buffer, size_t size)
{
    const int status = check_line(options, *text);

    return status ? status : qn_source_expand(options, text, buffer, size);
}

int qn_source_parse(const struct qn_options *options, struct quern_context *ctx,
                    const char *text, struct qn_problem *problem)
{
    char expanded[2048];
    int code,
        status = qn_source_product(options, &text, expanded, sizeof expanded);

    if (status)
        return status;
    code = qn_problem_parse(ctx, text, problem);
    return code ? qn_message_code(options, code, quern_errmsg()) : QN_EXIT_OK;
}

int qn_source_problem(const struct qn_options *options,
                      struct quern_context *ctx, struct qn_problem *problem)
{
    char text[1024];
    int status = qn_source_join(options, text, sizeof text);

    return status ? status : qn_source_parse(options, ctx, text, problem);
}
