/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: the operands of every line, for any number of rows. */
#include "api.h"

#include "base/types.h"

static const int64_t numbers[] = {0, 1, 7, 63, 64, 65, 127, 128, 129, 1000};
enum { NUMBERS = sizeof numbers / sizeof numbers[0], ROWS = 1000 };

/* An upper bound: within 2 %, 16 KiB of padding, and a tile of 128 rows. */
static int bounds(struct quern_context *ctx, const struct api_line *line,
                  int64_t rows, int arg, int64_t bound, int64_t bytes)
{
    struct qn_line more = line->line;
    union qn_needs need;
    int64_t later;

    *qn_api_rows(&more) = rows + 128;
    assert_int_equal(qn_api_needs(ctx, &more, &need), QUERN_OK);
    later = (int64_t)(arg == QUERN_ARG_SAVED ? need.mlp.saved_bytes
                                             : need.mlp.pending_bytes);
    return bound >= bytes && bound <= later + bytes / 50 + (16 << 10);
}

static void is_right(struct quern_context *ctx, const struct api_line *line,
                     const struct quern_operand *o,
                     const struct api_expected *e, int64_t rows)
{
    const int64_t n = quern_extent(&o->bytes, rows);
    const int upper = o->arg == QUERN_ARG_SAVED || o->arg == QUERN_ARG_PENDING;
    int bad =
        upper ? !bounds(ctx, line, rows, o->arg, n, e->bytes) : n != e->bytes;

    if (o->arg == QUERN_ARG_WORKSPACE)
        bad = n < e->bytes;
    if (o->type && e->type)
        bad |= o->type != e->type;
    bad |= o->alignment != e->alignment;
    if (e->ndim >= 0)
        bad |= o->ndim != e->ndim || quern_extent(&o->pitch, rows) != e->pitch;
    for (int i = 0; i < QUERN_MAX_DIMS; i++)
        if (e->type || !e->ndim)
            bad |= quern_extent(&o->shape[i], rows) != e->shape[i];
    if (bad)
        fail_msg("%s, %lld rows: %s has %lld bytes, [%lld, %lld, %lld], pitch "
                 "%lld, type %d, alignment %zu; expected %lld, [%lld, %lld, "
                 "%lld], %lld, %d, %zu",
                 line->text, (long long)rows, o->name, (long long)n,
                 (long long)quern_extent(&o->shape[0], rows),
                 (long long)quern_extent(&o->shape[1], rows),
                 (long long)quern_extent(&o->shape[2], rows),
                 (long long)quern_extent(&o->pitch, rows), o->type,
                 o->alignment, (long long)e->bytes, (long long)e->shape[0],
                 (long long)e->shape[1], (long long)e->shape[2],
                 (long long)e->pitch, e->type, e->alignment);
}

/* Every operand that the line has is in the table, and no other. */
static void compare(struct quern_context *ctx, const struct api_line *line,
                    const struct quern_operand *table, int count, int64_t rows)
{
    const struct quern_operand *by[QUERN_ARGS_COUNT] = {NULL};
    struct qn_line other = line->line;
    int64_t *length = qn_api_rows(&other);
    union qn_needs needs;
    struct api_expected e;

    if (length)
        *length = rows;
    test_expect(qn_api_needs(ctx, &other, &needs), QUERN_OK, "");
    for (int i = 0; i < count; i++) {
        if (by[table[i].arg])
            fail_msg("%s: %s is there twice", line->text, table[i].name);
        by[table[i].arg] = &table[i];
    }
    for (int arg = 0; arg < QUERN_ARGS_COUNT; arg++) {
        const int there = api_expected_find(&other, &needs, arg, &e) != 0;

        /* of no rows there may be no scales */
        if (!by[arg] != !there && (e.bytes || by[arg]) && rows)
            fail_msg("%s: operand %s: there is %s", line->text,
                     qn_api_name(arg), there ? "one" : "none");
        if (by[arg] && there)
            is_right(ctx, line, by[arg], &e, rows);
    }
}

static int is_power(size_t n)
{
    return n && !(n & (n - 1));
}

static int is_scales(const struct quern_operand *o)
{
    return strstr(o->name, ".sf") != NULL;
}

/* Values that do not depend on the rows. */
static void is_sound(const struct api_line *line, const struct quern_operand *o)
{
    const int used = o->read | o->written;
    const size_t element = (size_t)qn_type_bits(o->type) / 8;
    const char *wrong =
        o->arg < 0 || o->arg >= QUERN_ARGS_COUNT        ? "arg"
        : strcmp(o->name, qn_api_name(o->arg))          ? "name"
        : !used || used >> QUERN_PHASES                 ? "phases"
        : o->optional & ~used                           ? "optional"
        : !is_power(o->alignment) || o->alignment > 256 ? "alignment"
        : element && o->alignment % element             ? "element"
        : o->ndim < 0 || o->ndim > QUERN_MAX_DIMS       ? "ndim"
        : !o->ndim != !o->type                          ? "type"
        : o->zero_bytes && o->arg != QUERN_ARG_WORKSPACE &&
                o->arg != QUERN_ARG_ERRORS
            ? "zero_bytes"
        : o->strided && o->ndim < 2                     ? "strided"
        : o->pointers && o->ndim != 3                   ? "pointers"
        : !qn_api_has_mlp(line->line.kind) && used != 1 ? "phase"
                                                        : NULL;

    if (wrong)
        fail_msg("%s: %s: %s", line->text, o->name, wrong);
    for (int i = 0; i < NUMBERS && (o->ndim == 1 || is_scales(o)); i++) {
        int64_t bytes = (int64_t)element;

        for (int j = 0; j < o->ndim; j++)
            bytes *= quern_extent(&o->shape[j], numbers[i]);
        if (bytes != quern_extent(&o->bytes, numbers[i]))
            fail_msg("%s: %s: bytes", line->text, o->name);
    }
}

/* The same table with a plan, whose workspace is not larger. */
static void of_plan(struct quern_context *ctx, const struct api_line *line,
                    const struct quern_operand *table, int count)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    const struct quern_operand *own;
    struct quern_plan *plan;
    int n;

    options.backend = QUERN_BACKEND_HOST;
    test_expect(quern_plan_create(ctx, line->text, &options, &plan), QUERN_OK,
                "");
    own = quern_plan_operands(plan, &n);
    assert_int_equal(n, count);
    for (int i = 0; i < n; i++) {
        struct quern_operand o = own[i];

        if (o.arg == QUERN_ARG_WORKSPACE) {
            assert_true(o.bytes.base <= quern_extent(&table[i].bytes, ROWS));
            assert_true(o.zero_bytes <= (size_t)o.bytes.base);
            o.bytes = table[i].bytes;
        }
        assert_memory_equal(&o, &table[i], sizeof o);
    }
    quern_plan_destroy(plan);
}

static void describes(int groups, int every)
{
    struct quern_context *ctx = api_open();
    struct api_line line = {.index = 0};

    while (api_line_next(ctx, groups, ROWS, 128, &line)) {
        struct quern_operand *table;
        int count;

        if (line.valid % every)
            continue;
        test_expect(quern_describe(ctx, line.text, &table, &count), QUERN_OK,
                    "");
        for (int i = 0; i < count; i++)
            is_sound(&line, &table[i]);
        for (int i = 0; i < NUMBERS; i++)
            compare(ctx, &line, table, count, numbers[i]);
        if (groups == 3)
            of_plan(ctx, &line, table, count);
        quern_free(table);
    }
    api_line_enough(&line);
    quern_close(ctx);
}

TEST(describes_lines)
{
    (void)state;
    describes(3, 1);
}

TEST(describes_one_group)
{
    (void)state;
    describes(1, 2);
}

TEST(describes_many_groups)
{
    (void)state;
    describes(65, 2);
}

/* Lengths that tools draw say nothing about other row counts. */
TEST(describes_lists)
{
    static const char *const lines[] = {
        "mlp bf16 g=2 m=300 hidden=64 ffn=64 split=10,290",
        "quantize mxfp8 of=x g=2 m=300 k=64 split=10,290",
        "fprop mxfp8 g=2 m=300 n=64 k=64 split=10,290"};
    struct quern_context *ctx = api_open();

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct quern_operand *table;
        int count;

        test_expect(quern_describe(ctx, lines[i], &table, &count), QUERN_OK,
                    "");
        quern_free(table);
    }
    quern_close(ctx);
}
