/* SPDX-License-Identifier: Apache-2.0 */
/*
** tune_file.c: files of measured winners, as text.
**
** The text may come from anywhere: each line is copied into a buffer of fixed
** size and checked byte by byte before a word of it is parsed.
*/
#include "tuned/tune_file.h"
#include "base/context.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/text.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_LINE 1000
#define FORMAT       2
#define SEPARATOR    " | "

/* ----------------------------------------------------------------- buckets */

int64_t qn_tune_file_bucket(int64_t rows)
{
    int64_t edge = 1;

    if (rows < 1)
        return 0;
    while (edge <= rows / 2)
        edge *= 2;
    return edge > 1 && edge / 2 <= rows - edge ? edge + edge / 2 : edge;
}

int64_t qn_tune_file_next(int64_t edge)
{
    if (edge < 2)
        return edge + 1;
    return edge & (edge - 1) ? edge + edge / 3 : edge + edge / 2;
}

void qn_tune_file_canonical(const struct qn_problem *problem,
                            struct qn_problem *bucket)
{
    int64_t *axes[] = {&bucket->m, &bucket->n, &bucket->k};

    *bucket = *problem;
    bucket->split[0] = 0;
    /* launches next to the kernel that is measured */
    bucket->sizes = QUERN_SIZES_DEVICE;
    bucket->dbias = bucket->dprob = bucket->outside = 0;
    if (problem->dequantize != QUERN_DEQUANTIZE_MAINLOOP) /* which compares no
                                                             strategies */
        bucket->dequantize = QUERN_DEQUANTIZE_AUTO;
    if (problem->ragged != QUERN_AXIS_NONE) {
        int64_t *ragged = axes[problem->ragged - QUERN_AXIS_M];

        *ragged =
            problem->groups * qn_tune_file_bucket(*ragged / problem->groups);
    }
}

/* ----------------------------------------------------------------- reading */

struct reader {
    struct quern_context *ctx;
    const char *name;
    const char *at, *end;
    int number; /* of the line that was read last */
    char line[LONGEST_LINE + 1];
};

/* Put the source location before the message that is set. */
static int blame(const struct reader *r)
{
    char what[1024];

    snprintf(what, sizeof what, "%s", qn_error_text());
    return qn_error_set(QUERN_EINVAL, "%s:%d: error: %s", r->name, r->number,
                        what);
}

/* The byte that no line may have, or -1. */
static int find_odd(const char *line)
{
    for (; *line; line++)
        if (*line < ' ' || *line > '~')
            return (unsigned char)*line;
    return -1;
}

/* 1 and the next line without its end; 0 after the last; -1 with an error. */
static int next_line(struct reader *r)
{
    size_t left = (size_t)(r->end - r->at), length;
    const char *stop = left ? memchr(r->at, '\n', left) : NULL;
    int odd;

    if (!left)
        return 0;
    r->number++;
    if (!stop) {
        qn_error_set(QUERN_EINVAL, "the file ends in the middle of a line");
        return -1;
    }
    length = (size_t)(stop - r->at);
    if (length > LONGEST_LINE) {
        qn_error_set(QUERN_EINVAL, "a line has at most %d characters, not %zu",
                     LONGEST_LINE, length);
        return -1;
    }
    memcpy(r->line, r->at, length);
    r->line[length] = 0;
    r->at = stop + 1;
    odd = strlen(r->line) < length ? 0 : find_odd(r->line);
    if (odd >= 0)
        qn_error_set(QUERN_EINVAL,
                     "byte 0x%02x: only printable ASCII is expected", odd);
    return odd >= 0 ? -1 : 1;
}

/* "KEY VALUE", the value being the rest of the line; NULL with an error. */
static const char *header(struct reader *r, const char *key)
{
    size_t length = strlen(key);
    int found = next_line(r);

    if (found > 0 && !strncmp(r->line, key, length) && r->line[length] == ' ')
        return r->line + length + 1;
    if (found == 0) {
        r->number++;
        qn_error_set(QUERN_EINVAL, "the file ends; '%s ...' is expected", key);
    } else if (found > 0)
        qn_error_set(QUERN_EINVAL, "'%.40s': '%s ...' is expected", r->line,
                     key);
    return NULL;
}

/* Lines of format 1 do not say which kernels they are for. */
static int read_header(struct reader *r, struct qn_tune_file *file)
{
    const char *value = header(r, "quern tune");

    if (!value)
        return QUERN_EINVAL;
    file->format = !strcmp(value, "1") ? 1 : FORMAT;
    if (file->format == 1)
        return qn_error_set(QUERN_EINVAL,
                            "format 1 has no keys of kernels: tune again");
    if (strcmp(value, "2"))
        return qn_error_set(QUERN_EINVAL,
                            "format %.20s: this library knows format %d", value,
                            FORMAT);
    value = header(r, "gpu");
    if (!value)
        return QUERN_EINVAL;
    if (!*value || strlen(value) >= sizeof file->gpu)
        return qn_error_set(QUERN_EINVAL,
                            "gpu: a name of 1 to %zu characters is expected",
                            sizeof file->gpu - 1);
    if (strcmp(value, file->gpu))
        return qn_error_set(QUERN_EINVAL, "measured on '%.90s', not on '%s'",
                            value, file->gpu);
    return QUERN_OK;
}

/* ------------------------------------------------------- values of one line */

/* Three digits after the point, in any locale. */
static int set_ratio(const struct qn_field *f, void *user, const char *value)
{
    struct qn_tune_line *line = user;
    const char *point = strchr(value, '.');
    char whole[24];
    int64_t units, rest;

    if (point && strlen(point) == 4 && point - value < 8) {
        snprintf(whole, sizeof whole, "%.*s", (int)(point - value), value);
        if (!qn_field_number(f->key, whole, &units) &&
            !qn_field_number(f->key, point + 1, &rest)) {
            line->permille = units * 1000 + rest;
            return QUERN_OK;
        }
    }
    return qn_error_set(QUERN_EINVAL, "%s=%s: a number like 1.083 is expected",
                        f->key, value);
}

static const struct qn_field_kind ratio = {.set = set_ratio};

#define AT(member)   QN_FIELD(struct qn_tune_line, member)
#define NUMBER(last) &qn_field_length, .most = last, .flags = QN_FIELD_REQUIRED
#define NAME(last)                                                             \
    &qn_field_text, .most = last, .flags = QN_FIELD_REQUIRED, .expected = ""
#define SECONDS ((int64_t)1 << 50) /* in ns */

static const struct qn_field fields[] = {
    {"sms", AT(sms), NUMBER(1 << 20)},
    {"kernel", AT(kernel), NAME(255)},
    {"key", AT(key), NAME(QN_TUNE_KEY)},
    {"band", AT(band), NUMBER(1 << 20)},
    {"ns", AT(ns), NUMBER(SECONDS)},
    {"model", AT(model), NAME(255)},
    {"model_ns", AT(model_ns), NUMBER(SECONDS)},
    {"ratio", AT(permille), &ratio, .flags = QN_FIELD_REQUIRED},
    {"mhz", AT(mhz), NUMBER(1 << 20)},
    {"certain", AT(certain), NUMBER(1)},
    {"dequantize", AT(dequantize), QN_FIELD_WORD(dequantize)},
};

static const struct qn_fields winner = QN_LINE(fields, NULL);

/* Only the spelling that a search will compare with is taken. */
static int read_problem(struct reader *r, const char *text,
                        struct qn_tune_line *line)
{
    struct qn_problem p;
    int code = qn_problem_parse(r->ctx, text, &p);

    if (code)
        return code;
    qn_tune_file_canonical(&p, &p);
    qn_problem_print(&p, line->problem, sizeof line->problem);
    if (!strcmp(line->problem, text))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "this bucket is written '%s'",
                        line->problem);
}

static int read_line(struct reader *r, struct qn_tune_line *line)
{
    char *bar = strstr(r->line, SEPARATOR);
    int code;

    if (!bar)
        return qn_error_set(QUERN_EINVAL,
                            "'PROBLEM | sms=... kernel=...' is expected");
    *bar = 0;
    memset(line, 0, sizeof *line);
    line->number = r->number;
    line->stale = -1;
    code = read_problem(r, r->line, line);
    if (!code)
        code = qn_field_parse(&winner, 0, bar + strlen(SEPARATOR), line);
    if (!code && (line->sms < 1 || line->ns < 1))
        code = qn_error_set(QUERN_EINVAL, "sms= and ns= are at least 1");
    return code;
}

/* ------------------------------------------------------------------- lines */

static int compare(const void *left, const void *right)
{
    const struct qn_tune_line *a = left, *b = right;
    int order = strcmp(a->problem, b->problem);

    if (order)
        return order;
    return (a->sms > b->sms) - (a->sms < b->sms);
}

/* As a sort wants it: the first of equal lines stays the first. */
static int compare_numbered(const void *left, const void *right)
{
    const struct qn_tune_line *a = left, *b = right;
    int order = compare(a, b);

    return order ? order : a->number - b->number;
}

/* Sort them; a bucket that is there twice is an error at its second line. */
static int sort_lines(struct reader *r, struct qn_tune_file *file)
{
    if (file->count)
        qsort(file->lines, (size_t)file->count, sizeof *file->lines,
              compare_numbered);
    for (int i = 1; i < file->count; i++)
        if (!compare(&file->lines[i - 1], &file->lines[i])) {
            r->number = file->lines[i].number;
            return qn_error_set(QUERN_EINVAL, "line %d has this bucket already",
                                file->lines[i - 1].number);
        }
    return QUERN_OK;
}

/* Room for one more. */
static int reserve(struct qn_tune_file *file)
{
    struct qn_tune_line *lines =
        qn_grow(file->lines, file->count, sizeof *lines);

    if (!lines)
        return qn_error_memory();
    file->lines = lines;
    return QUERN_OK;
}

static int read_lines(struct reader *r, struct qn_tune_file *file)
{
    int found, code = QUERN_OK;

    while (!code && (found = next_line(r)) != 0) {
        if (found < 0)
            return QUERN_EINVAL;
        code = reserve(file);
        if (!code)
            code = read_line(r, &file->lines[file->count]);
        if (!code)
            file->count++;
    }
    return code ? code : sort_lines(r, file);
}

int qn_tune_file_parse(struct quern_context *ctx, const char *name,
                       const char *data, size_t bytes,
                       struct qn_tune_file *file)
{
    struct reader r = {
        .ctx = ctx, .name = name, .at = data, .end = data + bytes};
    int code = QUERN_OK;

    file->lines = NULL;
    file->count = 0;
    if (bytes > QN_TUNE_MOST) {
        r.number = 1;
        code =
            qn_error_set(QUERN_EINVAL, "a file has at most %zu bytes, not %zu",
                         QN_TUNE_MOST, bytes);
    }
    if (!code)
        code = read_header(&r, file);
    if (!code)
        code = read_lines(&r, file);
    if (code)
        qn_tune_file_free(file);
    return code && code != QUERN_ENOMEM ? blame(&r) : code;
}

/* ----------------------------------------------------------------- writing */

void qn_tune_file_print(const struct qn_tune_file *file, struct qn_text *text)
{
    qn_text_add(text, "quern tune %d\ngpu %s\n", FORMAT, file->gpu);
    for (int i = 0; i < file->count; i++) {
        const struct qn_tune_line *l = &file->lines[i];

        qn_text_add(text,
                    "%s" SEPARATOR "sms=%lld kernel=%s key=%s band=%lld%s%s "
                    "ns=%lld model=%s model_ns=%lld ratio=%lld.%03lld "
                    "mhz=%lld certain=%lld\n",
                    l->problem, (long long)l->sms, l->kernel, l->key,
                    (long long)l->band, l->dequantize ? " dequantize=" : "",
                    l->dequantize ? qn_dequantize_name((int)l->dequantize) : "",
                    (long long)l->ns, l->model, (long long)l->model_ns,
                    (long long)l->permille / 1000,
                    (long long)l->permille % 1000, (long long)l->mhz,
                    (long long)l->certain);
    }
}

struct qn_tune_line *qn_tune_file_find(const struct qn_tune_file *file,
                                       const char *problem, int sms)
{
    struct qn_tune_line wanted = {.sms = sms};

    if (!file->count || strlen(problem) >= sizeof wanted.problem)
        return NULL;
    strcpy(wanted.problem, problem);
    return bsearch(&wanted, file->lines, (size_t)file->count,
                   sizeof *file->lines, compare);
}

/* A total order, so that of any lines of a bucket one is the best; after a
   string are zeros. */
static int is_better(const struct qn_tune_line *a, const struct qn_tune_line *b)
{
    if (a->ns != b->ns)
        return a->ns < b->ns;
    return memcmp(a, b, offsetof(struct qn_tune_line, number)) < 0;
}

int qn_tune_file_add(struct qn_tune_file *file, const struct qn_tune_line *line,
                     int newer)
{
    int at = 0, code;

    while (at < file->count && compare(&file->lines[at], line) < 0)
        at++;
    if (at < file->count && !compare(&file->lines[at], line)) {
        if (newer || is_better(line, &file->lines[at]))
            file->lines[at] = *line;
        return QUERN_OK;
    }
    code = reserve(file);
    if (code)
        return code;
    memmove(&file->lines[at + 1], &file->lines[at],
            (size_t)(file->count - at) * sizeof *file->lines);
    file->lines[at] = *line;
    file->count++;
    return QUERN_OK;
}

void qn_tune_file_free(struct qn_tune_file *file)
{
    free(file->lines);
    file->lines = NULL;
    file->count = 0;
}
