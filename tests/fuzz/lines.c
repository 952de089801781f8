/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c: lines and files that people write: problems, casts, rules, lengths
   of groups, routes of tokens, tuning. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/context.h"
#include "base/expr.h"
#include "base/text.h"
#include "oracle/config.h"
#include "problem/sizes.h"
#include "tuned/tune_file.h"
#include "internal.h"

/* One for all inputs, without a cache and with nothing to open. */
static struct quern_context *context(void)
{
    static const struct quern_open_options options = {.cache = ""};
    static struct quern_context *ctx;

    if (!ctx)
        FUZZ_HOLDS(qn_open(&options, &ctx) == QUERN_OK);
    return ctx;
}

static void has_sentence(int code)
{
    FUZZ_HOLDS(code > QUERN_OK && code < QUERN_STATUS_COUNT);
    FUZZ_HOLDS(strchr(quern_errmsg(), ' '));
}

static const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};

/* A parsed line is printed so that it parses to the same. */
void fuzz_problem(const char *text, size_t length)
{
    struct quern_context *ctx = context();
    struct qn_problem p, again;
    struct qn_description need;
    char line[1024], *why;
    int code = qn_problem_parse(ctx, text, &p);

    (void)length;
    if (code) {
        has_sentence(code);
        return;
    }
    FUZZ_HOLDS(qn_problem_print(&p, line, sizeof line) < 1000);
    FUZZ_HOLDS(qn_problem_parse(ctx, line, &again) == QUERN_OK);
    FUZZ_HOLDS(!memcmp(&p, &again, sizeof p));
    FUZZ_HOLDS(qn_problem_describe(ctx, &p, &need) == QUERN_OK);
    code = qn_why(ctx, &p, &host, NULL, &why);
    if (code)
        has_sentence(code);
    quern_free(why);
}

void fuzz_cast(const char *text, size_t length)
{
    struct quern_context *ctx = context();
    struct qn_quantize_description need;
    struct qn_quantization q, again;
    char line[1024], *why;
    int code = qn_quantize_parse(ctx, text, &q);

    (void)length;
    if (code) {
        has_sentence(code);
        return;
    }
    FUZZ_HOLDS(qn_quantize_print(&q, line, sizeof line) < 1000);
    FUZZ_HOLDS(qn_quantize_parse(ctx, line, &again) == QUERN_OK);
    FUZZ_HOLDS(q.work == QUERN_RESCALE || !memcmp(&q, &again, sizeof q));
    FUZZ_HOLDS(qn_quantize_needs(ctx, &q, &need) == QUERN_OK);
    code = qn_quantize_why(ctx, &q, &host, &why);
    if (code)
        has_sentence(code);
    quern_free(why);
}

/* One whose plans have only the kernels that are linked. */
static struct quern_context *without_compiler(void)
{
    static struct quern_context *ctx;
    struct quern_open_options options = QUERN_OPEN_OPTIONS_INIT;

    if (ctx)
        return ctx;
    options.cache = "";
    setenv("QUERN_GEN", "/nowhere", 1);
    setenv("QUERN_CC", "/nowhere", 1);
    FUZZ_HOLDS(quern_open(&options, &ctx) == QUERN_OK);
    unsetenv("QUERN_GEN");
    unsetenv("QUERN_CC");
    return ctx;
}

/* A line of any kind: its operands, and its plan on the host. */
void fuzz_line(const char *text, size_t length)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_context *ctx = without_compiler();
    struct quern_operand *table;
    struct quern_plan *plan;
    char line[1024], again[1024];
    int count, n, code = quern_describe(ctx, text, &table, &count);

    (void)length;
    options.backend = QUERN_BACKEND_HOST;
    if (code) {
        has_sentence(code);
        FUZZ_HOLDS(quern_plan_create(ctx, text, &options, &plan) == code);
        return;
    }
    for (int i = 0; i < count; i++)
        for (int64_t rows = 0; rows < 1 << 20; rows = 3 * rows + 1)
            FUZZ_HOLDS(quern_extent(&table[i].bytes, rows) >= 0);
    FUZZ_HOLDS(!quern_format(ctx, text, line, sizeof line, NULL));
    FUZZ_HOLDS(!quern_format(ctx, line, again, sizeof again, NULL));
    FUZZ_HOLDS(!strcmp(line, again));
    code = quern_plan_create(ctx, text, &options, &plan);
    if (code) {
        has_sentence(code);
    } else {
        FUZZ_HOLDS(quern_plan_operands(plan, &n) && n == count);
        quern_plan_destroy(plan);
    }
    quern_free(table);
}

/* The text of a `requires`. */
void fuzz_rule(const char *text, size_t length)
{
    static const struct qn_expr_values values[] = {
        {4096, 2048, 7168, 8}, {0, 1, 1, 1024}, {INT64_MIN, INT64_MAX, -1, 0}};
    int64_t result;

    (void)length;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const char *error = qn_expr_eval(text, &values[i], &result);

        FUZZ_HOLDS(!error || *error);
    }
}

/* A file of the tuner's winners: its lines are printed as read. */
void fuzz_tune(const char *text, size_t length)
{
    struct qn_tune_file file = {.gpu = "fuzz"}, again = file;
    struct qn_text printed = {0}, twice = {0};
    int code = qn_tune_file_parse(context(), "f", text, length, &file);

    if (code) {
        FUZZ_HOLDS(file.count == 0);
        has_sentence(code);
        return;
    }
    qn_tune_file_print(&file, &printed);
    FUZZ_HOLDS(qn_tune_file_parse(context(), "f", printed.data, printed.length,
                                  &again) == QUERN_OK);
    qn_tune_file_print(&again, &twice);
    FUZZ_HOLDS(!strcmp(printed.data, twice.data));
    qn_text_free(&printed);
    qn_text_free(&twice);
    qn_tune_file_free(&file);
    qn_tune_file_free(&again);
}

/* A model's config.json: its lines are those of valid problems, but for limits
   of recipes. */
void fuzz_config(const char *text, size_t length)
{
    const struct qn_config_use use = {
        .recipe = qn_context_recipe(context(), "bf16"),
        .groups = 4,
        .rows = 512,
    };
    struct qn_config config;
    struct qn_line read;
    char why[256] = "", line[512];

    if (!qn_config_parse(text, length, &config, why, sizeof why)) {
        FUZZ_HOLDS(strchr(why, ' '));
        return;
    }
    FUZZ_HOLDS(config.choices >= 1 && config.choices <= config.experts);
    for (int i = 0; qn_config_line(&config, &use, i, line, sizeof line); i++) {
        const int code = qn_api_line(context(), line, &read);

        if (code)
            has_sentence(code);
    }
}

enum { GROUPS = 8, ROWS = 4096 };

/* No length is negative, and their sum is as stated. */
static void check_sizes(const int64_t *sizes, int64_t total)
{
    int64_t sum = 0;

    for (int i = 0; i < GROUPS; i++) {
        FUZZ_HOLDS(sizes[i] >= 0 && sizes[i] <= total - sum);
        sum += sizes[i];
    }
}

/* A file of lengths: split=@FILE and k=@FILE. */
void fuzz_sizes(const char *text, size_t length)
{
    const char *path = fuzz_file("sizes", text, length);
    int64_t sizes[GROUPS], sum;
    char why[512] = "", split[600] = "@";

    strcat(split, path);
    if (qn_sizes_sum(path, &sum, why, sizeof why))
        FUZZ_HOLDS(strchr(why, ' '));
    else
        FUZZ_HOLDS(sum >= 0);
    if (qn_sizes_draw(split, GROUPS, ROWS, 1, sizes, why, sizeof why))
        FUZZ_HOLDS(strchr(why, ' '));
    else
        check_sizes(sizes, ROWS);
    if (length < 256 && !memchr(text, '@', length) &&
        !qn_sizes_draw(text, GROUPS, ROWS, 1, sizes, why, sizeof why))
        check_sizes(sizes, ROWS);
}

/* A CSV of routed tokens. */
void fuzz_routes(const char *text, size_t length)
{
    const char *path = fuzz_file("routes", text, length);
    int64_t sizes[GROUPS], total;
    char why[512] = "";

    if (qn_sizes_routes(path, GROUPS, sizes, &total, why, sizeof why))
        FUZZ_HOLDS(strchr(why, ' '));
    else
        check_sizes(sizes, total);
}
