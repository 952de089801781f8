/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c: how many rows each group has. */
#include "problem/sizes.h"
#include "base/guess.h"
#include "base/random.h"
#include "base/text.h"
#include "problem/problem.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS          " \t\r\n"
#define BYTE_ORDER_MARK "\357\273\277" /* as some editors begin UTF-8 */
#define MARK_BYTES      (sizeof BYTE_ORDER_MARK - 1)

/* From 0 to below 1, the same on every machine. */
static double uniform(uint64_t *state)
{
    return (double)(qn_random_next(state) >> 11) * 0x1p-53;
}

/* Rows by weight, rounded down; the largest group takes the rest. */
static void share_out(const double *weights, int groups, int64_t total,
                      int64_t *sizes)
{
    double sum = 0;
    int64_t left = total;
    int largest = 0;

    for (int i = 0; i < groups; i++)
        sum += weights[i];
    for (int i = 0; i < groups; i++) {
        sizes[i] = sum > 0 ? (int64_t)((double)total * (weights[i] / sum)) : 0;
        left -= sizes[i];
        if (weights[i] > weights[largest])
            largest = i;
    }
    sizes[largest] += left;
}

static void draw_even(double *weights, int groups, uint64_t *state)
{
    (void)state;
    for (int i = 0; i < groups; i++)
        weights[i] = 1;
}

static void draw_mild(double *weights, int groups, uint64_t *state)
{
    for (int i = 0; i < groups; i++)
        weights[i] = 0.7 + 0.6 * uniform(state);
}

static void draw_zipf(double *weights, int groups, uint64_t *state)
{
    (void)state;
    for (int i = 0; i < groups; i++)
        weights[i] = 1.0 / (i + 1);
}

static void draw_skew(double *weights, int groups, uint64_t *state)
{
    draw_zipf(weights, groups, state);
    for (int i = groups - 1; i > 0; i--) {
        const int j = (int)(qn_random_next(state) % (uint64_t)(i + 1));
        const double weight = weights[i];
        weights[i] = weights[j];
        weights[j] = weight;
    }
    if (groups >= 8)
        weights[qn_random_next(state) % (uint64_t)groups] = 0;
}

static void draw_one(double *weights, int groups, uint64_t *state)
{
    memset(weights, 0, (size_t)groups * sizeof *weights);
    weights[qn_random_next(state) % (uint64_t)groups] = 1;
}

static const struct {
    const char *name;
    void (*draw)(double *weights, int groups, uint64_t *state);
} kinds[] = {
#define KIND(name) {#name, draw_##name},
    QN_SPLITS(KIND)};
enum { NKINDS = sizeof kinds / sizeof kinds[0] };

/* Even sizes differ by at most one row, which weights cannot promise. */
static void spread(int groups, int64_t total, int64_t *sizes)
{
    for (int i = 0; i < groups; i++)
        sizes[i] = total / groups + (i < total % groups);
}

static int draw_kind(const char *name, int groups, int64_t total, uint64_t seed,
                     int64_t *sizes)
{
    double weights[QUERN_MAX_GROUPS];

    for (int i = 0; i < NKINDS; i++) {
        if (strcmp(kinds[i].name, name) != 0)
            continue;
        kinds[i].draw(weights, groups, &seed);
        if (kinds[i].draw == draw_even)
            spread(groups, total, sizes);
        else
            share_out(weights, groups, total, sizes);
        return 1;
    }
    return 0;
}

/* The sentence for a name that is none. */
static int unknown(const char *name, char *why, size_t size)
{
    struct qn_guess guess = {.word = name};
    char nearest[64];

    for (int i = 0; i < NKINDS; i++)
        qn_guess_try(&guess, kinds[i].name);
    qn_guess_text(&guess, nearest, sizeof nearest);
    snprintf(why, size,
             "split=%s: it must be even, mild, skew, zipf, one, @FILE or a "
             "list like 3,0,5%s",
             name, nearest);
    return 1;
}

/* "#" to the end of its line does not count, nor do commas and blanks. */
static const char *skip_blanks(const char *text)
{
    while (*text == ',' || *text == '#' || isspace((unsigned char)*text))
        text += *text == '#' ? strcspn(text, "\n") : 1;
    return text;
}

/* A word of a list, and where it is: of a file its path and line. */
struct word {
    const char *path, *text;
    int line, length;
};

/* The next number from `at` on, which moves after it. 1: `size`; 0: there is
   none; -1: with a sentence. */
static int next_number(struct word *w, const char **at, int64_t *size,
                       char *why, size_t why_size)
{
    const char *begin = *at, *end;

    *at = skip_blanks(begin);
    for (; begin < *at; begin++)
        w->line += *begin == '\n';
    if (!**at)
        return 0;
    w->text = *at;
    w->length = (int)strcspn(*at, ", \t\r\n\v\f#");
    end = qn_text_number(*at, size);
    *at += w->length;
    if (end == *at)
        return 1;
    if (w->path)
        snprintf(why, why_size, "%s:%d: '%.*s' is no number of rows", w->path,
                 w->line, w->length > 20 ? 20 : w->length, w->text);
    else
        snprintf(why, why_size, "split: '%.*s' is no number of rows",
                 w->length > 20 ? 20 : w->length, w->text);
    return -1;
}

/* Integers with commas or blanks between them, one for each group; from a file,
   if `path` is not NULL. */
static int parse_list(const char *path, const char *text, int groups,
                      int64_t total, int64_t *sizes, char *why, size_t why_size)
{
    const char *name = path ? path : "split";
    struct word w = {.path = path, .line = 1};
    int64_t sum = 0, size;
    int count = 0, found;

    while ((found = next_number(&w, &text, &size, why, why_size)) > 0) {
        if (size > total - sum) {
            snprintf(why, why_size,
                     "%s: the groups have over %lld rows, more than the "
                     "problem",
                     name, (long long)total);
            return 1;
        }
        if (count < groups)
            sizes[count] = size;
        count++;
        sum += size;
    }
    if (found < 0)
        return 1;
    if (count == groups)
        return 0;
    snprintf(why, why_size, "%s lists %d groups; the problem has g=%d", name,
             count, groups);
    return 1;
}

/* The whole file as text, at most `most` bytes; NULL with a sentence. */
static char *read_text(const char *path, size_t most, char *why, size_t size)
{
    FILE *file = fopen(path, "r");
    char *text = malloc(most + 1);
    size_t length;

    if (!file || !text) {
        snprintf(why, size, "%s: %s", path, strerror(errno));
        goto fail;
    }
    length = fread(text, 1, most, file);
    if (ferror(file)) {
        snprintf(why, size, "%s: %s", path, strerror(errno));
        goto fail;
    }
    text[length < most ? length : 0] = '\0';
    if (length == most || strlen(text) < length) {
        snprintf(why, size,
                 length == most ? "%s: it has over %zu bytes"
                                : "%s: it is no text: it holds a zero byte",
                 path, most);
        goto fail;
    }
    fclose(file);
    if (!strncmp(text, BYTE_ORDER_MARK, MARK_BYTES))
        memmove(text, text + MARK_BYTES, length - MARK_BYTES + 1);
    return text;
fail:
    free(text);
    if (file)
        fclose(file);
    return NULL;
}

int qn_sizes_draw(const char *split, int groups, int64_t total, uint64_t seed,
                  int64_t *sizes, char *why, size_t why_size)
{
    char *text;
    int failed;

    if (!*split)
        split = "even";
    if (isdigit((unsigned char)*split))
        return parse_list(NULL, split, groups, total, sizes, why, why_size);
    if (*split != '@')
        return draw_kind(split, groups, total, seed, sizes)
                   ? 0
                   : unknown(split, why, why_size);
    text = read_text(split + 1, 1 << 20, why, why_size);
    if (!text)
        return 1;
    failed = parse_list(split + 1, text, groups, total, sizes, why, why_size);
    free(text);
    return failed;
}

/* Up to the range of 64 bits: the problem's own rules come later. */
int qn_sizes_sum(const char *path, int64_t *sum, char *why, size_t why_size)
{
    char *text = read_text(path, 1 << 20, why, why_size);
    struct word w = {.path = path, .line = 1};
    const char *at = text;
    int64_t size;
    int found = text ? 1 : -1;

    *sum = 0;
    while (found > 0 &&
           (found = next_number(&w, &at, &size, why, why_size)) > 0) {
        if (size > INT32_MAX) {
            snprintf(why, why_size, "%s:%d: %lld rows are too many", path,
                     w.line, (long long)size);
            found = -1;
        }
        *sum += size;
    }
    free(text);
    return found < 0;
}

/* The next field, which may be empty, without the blanks and the line's end
   around it; NULL after the last. */
static char *next_field(char **rest)
{
    char *field = strsep(rest, ",");
    size_t length;

    if (!field)
        return NULL;
    field += strspn(field, BLANKS);
    for (length = strlen(field); length && strchr(BLANKS, field[length - 1]);)
        field[--length] = '\0';
    return field;
}

/* "expert" and a number: expert0_weight is none. */
static int names_expert(const char *field)
{
    if (strncmp(field, "expert", 6) != 0)
        return 0;
    field += 6;
    return *field && !field[strspn(field, "0123456789")];
}

/* Bit i says that column i of the header is an expert; none, if there are more
   columns than bits. */
static uint64_t expert_columns(char *header)
{
    uint64_t columns = 0;
    char *field;

    if (!strncmp(header, BYTE_ORDER_MARK, MARK_BYTES))
        header += MARK_BYTES;
    field = next_field(&header);
    for (int i = 0; field && i < 64; i++) {
        if (names_expert(field))
            columns |= UINT64_C(1) << i;
        field = next_field(&header);
    }
    return field ? 0 : columns;
}

/* The next line; 0 at the end. One that does not fit is cut, and its rest is no
   line of its own. */
static int next_line(FILE *file, char *line, size_t size)
{
    int c = 0;

    if (!fgets(line, (int)size, file))
        return 0;
    if (strlen(line) + 1 == size && line[size - 2] != '\n') {
        line[0] = '?'; /* no number: the line is refused */
        while (c != '\n' && c != EOF)
            c = getc(file);
    }
    return 1;
}

/* Count one token's experts; 0 if a column holds none below `groups`. */
static int count_line(char *line, uint64_t columns, int groups, int64_t *sizes,
                      int64_t *total)
{
    for (int i = 0; i < 64 && columns >> i; i++) {
        const char *field = next_field(&line);
        char *end = NULL;
        long expert;

        if (!(columns >> i & 1))
            continue;
        expert = field ? strtol(field, &end, 10) : -1;
        if (end == field || *end || expert < 0 || expert >= groups)
            return 0;
        sizes[expert]++;
        ++*total;
    }
    return 1;
}

/* Header and tokens; 1 with a sentence that has the line. */
static int count_lines(FILE *file, const char *path, int groups, int64_t *sizes,
                       int64_t *total, char *why, size_t why_size)
{
    char line[4096];
    uint64_t columns;

    if (!next_line(file, line, sizeof line) ||
        (columns = expert_columns(line)) == 0) {
        snprintf(why, why_size,
                 "%s:1: the header must name columns expert0, expert1, ..., "
                 "of at most 64",
                 path);
        return 1;
    }
    for (int number = 2; next_line(file, line, sizeof line); number++) {
        if (!line[strspn(line, BLANKS)] ||
            count_line(line, columns, groups, sizes, total))
            continue;
        snprintf(why, why_size, "%s:%d: each expert must be from 0 to %d", path,
                 number, groups - 1);
        return 1;
    }
    return 0;
}

int qn_sizes_routes(const char *path, int groups, int64_t *sizes,
                    int64_t *total, char *why, size_t why_size)
{
    FILE *file = fopen(path, "r");
    int failed;

    if (!file) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        return 1;
    }
    memset(sizes, 0, (size_t)groups * sizeof *sizes);
    *total = 0;
    failed = count_lines(file, path, groups, sizes, total, why, why_size);
    if (ferror(file)) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        failed = 1;
    }
    fclose(file);
    return failed;
}

void qn_sizes_scale(int64_t *sizes, int groups, int64_t total)
{
    double weights[QUERN_MAX_GROUPS];

    for (int i = 0; i < groups; i++)
        weights[i] = (double)sizes[i];
    share_out(weights, groups, total, sizes);
}

static int compare_sizes(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

struct qn_sizes_range qn_sizes_range(const int64_t *sizes, int groups)
{
    int64_t sorted[QUERN_MAX_GROUPS];

    memcpy(sorted, sizes, (size_t)groups * sizeof *sizes);
    qsort(sorted, (size_t)groups, sizeof *sorted, compare_sizes);
    return (struct qn_sizes_range){sorted[0], sorted[groups / 2],
                                   sorted[groups - 1]};
}
