/*
** queue.c: the wgrad queue in random schedules, against products computed at
** once.
**
** A schedule puts microbatches of a few layers, flushes some, one layer or all,
** and drops some, in any order. A model of the queue, a plain list, says which
** products each call must launch or which error it must return; the model's
** products are computed by quern_run, one by one. Operands are small integers,
** so that sums are exact in any order: every bit of every D must agree. What
** merging does to the order of other sums, a run over all tokens at once tells.
*/
#include "host.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    LAYERS = 3,
    BATCHES = 6, /* different microbatches, for any layer */
    CAPACITY = 7,
    STEPS = 24,
    M = 24,
    N = 16,
    TOKENS = 96, /* the plans' */
    MOST_GROUPS = 5,
    SCHEDULES = 1200
};

/* A microbatch: what a put takes but D. */
struct batch {
    struct quern_tensor a, b;
    void *memory[6]; /* to be freed */
    int32_t sizes[MOST_GROUPS];
    int64_t host_sizes[MOST_GROUPS]; /* the same */
};

/* What the schedules of one recipe share. */
struct shop {
    int groups, d_type, parts;
    struct quern_plan *overwrite, *accumulate;
    struct quern_args args; /* all but addresses */
    struct batch batches[BATCHES];
    size_t d_bytes;
    void *d[LAYERS], *model[LAYERS];
    _Alignas(16) uint32_t workspace[128];
    uint64_t state;
};

struct waiting {
    int layer, batch, overwrite, host_sizes;
};

struct list {
    struct waiting items[CAPACITY];
    int count;
};

/* ---------------------------------------------------------------- operands */

static void *zeros(size_t bytes)
{
    void *memory = aligned_alloc(64, bytes / 64 * 64 + 64);

    assert_non_null(memory);
    memset(memory, 0, bytes / 64 * 64 + 64);
    return memory;
}

/* Lengths: nothing, everything in one group, or whatever comes. */
static void draw_sizes(struct shop *s, struct batch *b, int64_t tokens)
{
    int64_t left = tokens;
    int kind = (int)qt_random_below(&s->state, 4);

    memset(b->sizes, 0, sizeof b->sizes);
    if (kind == 0)
        return;
    if (kind == 1) {
        b->sizes[qt_random_below(&s->state, s->groups)] = (int32_t)tokens;
        return;
    }
    for (int g = 0; g < s->groups; g++) {
        b->sizes[g] = (int32_t)qt_random_below(&s->state, left + 1);
        left -= b->sizes[g];
    }
}

/* [tokens, columns] of small integers; NaN behind the last group. */
static uint16_t *draw_numbers(struct shop *s, const struct batch *b,
                              int64_t tokens, int64_t columns)
{
    uint16_t *numbers = zeros((size_t)(tokens * columns) * 2);
    int64_t used = 0;

    for (int g = 0; g < s->groups; g++)
        used += b->sizes[g];
    for (int64_t i = 0; i < tokens * columns; i++)
        numbers[i] = i < used * columns
                         ? qt_bf16((float)(qt_random_below(&s->state, 3) - 1))
                         : 0xFFFF;
    return numbers;
}

/* The column copy of a recipe with scales. */
static void quantize(struct shop *s, const char *recipe, const char *of,
                     struct batch *b, int64_t tokens, int64_t columns,
                     void *numbers, struct quern_tensor *out, void **memory)
{
    const struct quern_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct quern_quantize_description need;
    struct quern_quantize_plan *plan = NULL;
    struct quern_quantization q;
    char line[128];

    snprintf(line, sizeof line,
             "quantize %s of=%s g=%d m=%lld k=%lld copies=column", recipe, of,
             s->groups, (long long)tokens, (long long)columns);
    if (quern_quantize_parse(host_ctx, line, &q) ||
        quern_quantize_describe(host_ctx, &q, &need) ||
        quern_quantize_plan(host_ctx, &q, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg(host_ctx));
    need.args.in.data = numbers;
    need.args.first_dims = b->sizes;
    need.args.column.data = memory[0] = zeros(need.args.column.bytes);
    need.args.column.sf = memory[1] = zeros(need.args.column.sf_bytes);
    need.args.workspace = zeros(need.workspace_bytes);
    if (quern_quantize_run(plan, &need.args, NULL))
        fail_msg("%s: %s", line, quern_errmsg(host_ctx));
    *out = need.args.column;
    free(need.args.workspace);
    quern_quantize_plan_free(plan);
}

static void make_batch(struct shop *s, const char *recipe, struct batch *b,
                       int64_t tokens)
{
    int scaled = strcmp(recipe, "bf16") != 0;
    uint16_t *dy, *x;

    memset(b, 0, sizeof *b);
    draw_sizes(s, b, tokens);
    for (int g = 0; g < s->groups; g++)
        b->host_sizes[g] = b->sizes[g];
    b->memory[0] = dy = draw_numbers(s, b, tokens, M);
    b->memory[1] = x = draw_numbers(s, b, tokens, N);
    b->a = s->args.a;
    b->b = s->args.b;
    if (scaled) {
        quantize(s, recipe, "dy", b, tokens, M, dy, &b->a, &b->memory[2]);
        quantize(s, recipe, "x", b, tokens, N, x, &b->b, &b->memory[4]);
    } else {
        b->a.data = dy;
        b->b.data = x;
        b->a.shape[0] = b->b.shape[0] = tokens;
    }
    b->a.sizes_type = QUERN_I32;
    *(scaled ? &b->a.last_dims : &b->a.first_dims) = b->sizes;
}

/* -------------------------------------------------------------------- shop */

static struct quern_plan *make_plan(const struct shop *s, const char *recipe,
                                    const char *more, struct quern_args *args)
{
    const struct quern_plan_options options = {.backend = QUERN_BACKEND_HOST,
                                               .sms = 1};
    struct quern_description need;
    struct quern_problem p;
    struct quern_plan *plan = NULL;
    char line[128];

    snprintf(line, sizeof line,
             "wgrad %s g=%d m=%d n=%d k=%d d=%s parts=%d sizes=host%s", recipe,
             s->groups, M, N, TOKENS, s->d_type == QUERN_F32 ? "f32" : "bf16",
             s->parts, more);
    if (quern_problem_parse(host_ctx, line, &p) ||
        quern_describe(host_ctx, &p, &need) ||
        quern_plan(host_ctx, &p, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg(host_ctx));
    *args = need.args;
    return plan;
}

static struct shop *open_shop(const char *recipe, int d_type, int parts,
                              uint64_t seed)
{
    struct shop *s = zeros(sizeof *s);

    s->state = seed;
    s->d_type = d_type;
    s->parts =
        parts ? parts : 1 + (int)qt_random_below(&s->state, QUERN_MAX_PARTS);
    s->groups = 1 + (int)qt_random_below(&s->state, MOST_GROUPS);
    s->overwrite = make_plan(s, recipe, "", &s->args);
    s->accumulate = make_plan(s, recipe, " beta=1", &s->args);
    s->args.workspace = s->workspace;
    s->d_bytes = s->args.d.bytes;
    for (int i = 0; i < LAYERS; i++) {
        s->d[i] = zeros(s->d_bytes);
        s->model[i] = zeros(s->d_bytes);
    }
    for (int i = 0; i < BATCHES; i++) {
        int64_t tokens = i ? qt_random_below(&s->state, TOKENS + 1) : TOKENS;

        make_batch(s, recipe, &s->batches[i], tokens);
    }
    return s;
}

static void close_shop(struct shop *s)
{
    quern_plan_free(s->overwrite);
    quern_plan_free(s->accumulate);
    for (int i = 0; i < LAYERS; i++) {
        free(s->d[i]);
        free(s->model[i]);
    }
    for (int i = 0; i < BATCHES; i++)
        for (int j = 0; j < 6; j++)
            free(s->batches[i].memory[j]);
    free(s);
}

/* --------------------------------------------------------------- schedules */

static const struct quern_plan *arguments(const struct shop *s,
                                          const struct waiting *w, void *d,
                                          struct quern_args *args)
{
    *args = s->args;
    args->a = s->batches[w->batch].a;
    args->b = s->batches[w->batch].b;
    args->d.data = d;
    if (w->host_sizes) {
        args->a.first_dims = args->a.last_dims = NULL;
        args->host_sizes = s->batches[w->batch].host_sizes;
    }
    return w->overwrite ? s->overwrite : s->accumulate;
}

static void put(struct shop *s, struct quern_queue *queue, struct list *list)
{
    struct waiting w = {
        .layer = (int)qt_random_below(&s->state, LAYERS),
        .batch = (int)qt_random_below(&s->state, BATCHES),
        .overwrite = qt_random_below(&s->state, 4) == 0,
        .host_sizes = qt_random_below(&s->state, 3) == 0,
    };
    const struct quern_plan *plan;
    struct quern_args args;
    int expected = list->count == CAPACITY ? QUERN_EFULL : QUERN_OK;

    plan = arguments(s, &w, s->d[w.layer], &args);
    for (int i = 0; !expected && i < list->count; i++)
        if (w.overwrite && list->items[i].layer == w.layer)
            expected = QUERN_EINVAL;
    if (quern_queue_put(queue, plan, &args, w.layer) != expected)
        fail_msg("put: %d is expected: %s", expected, quern_errmsg(host_ctx));
    if (!expected)
        list->items[list->count++] = w;
}

/* Take `most` of a layer's out of the model; with `run`, compute them. */
static int leave(struct shop *s, struct list *list, int layer, int most,
                 int run)
{
    struct list rest = {.count = 0};
    struct quern_args args;
    int left = 0;

    for (int i = 0; i < list->count; i++) {
        const struct waiting *w = &list->items[i];

        if ((layer != QUERN_ALL_LAYERS && w->layer != layer) ||
            (most && left == most)) {
            rest.items[rest.count++] = *w;
            continue;
        }
        left++;
        if (run &&
            quern_run(arguments(s, w, s->model[w->layer], &args), &args, NULL))
            fail_msg("%s", quern_errmsg(host_ctx));
    }
    *list = rest;
    return left || layer == QUERN_ALL_LAYERS ? QUERN_OK : QUERN_EINVAL;
}

static void compare(const struct shop *s, int schedule)
{
    for (int i = 0; i < LAYERS; i++)
        if (memcmp(s->d[i], s->model[i], s->d_bytes))
            fail_msg("schedule %d: layer %d differs", schedule, i);
    if (s->workspace[0])
        fail_msg("schedule %d: sizes were refused", schedule);
}

static void step(struct shop *s, struct quern_queue *queue, struct list *list)
{
    int kind = (int)qt_random_below(&s->state, 16);
    int layer = (int)qt_random_below(&s->state, LAYERS + 1) - 1;
    int most = (int)qt_random_below(&s->state, 4), code;

    if (kind < 10) {
        put(s, queue, list);
    } else if (kind < 15) {
        code = leave(s, list, layer, most, 1);
        assert_int_equal(quern_queue_flush(queue, layer, most, NULL), code);
    } else {
        code = leave(s, list, layer, 0, 0);
        assert_int_equal(quern_queue_drop(queue, layer), code);
    }
    assert_int_equal(quern_queue_count(queue, QUERN_ALL_LAYERS), list->count);
}

static void run_schedule(struct shop *s, int schedule)
{
    struct quern_queue *queue;
    struct list list = {.count = 0};

    assert_int_equal(quern_queue(host_ctx, CAPACITY, &queue), QUERN_OK);
    for (int i = 0; i < LAYERS; i++)
        memset(s->d[i], 0, s->d_bytes);
    for (int i = 0; i < LAYERS; i++)
        memset(s->model[i], 0, s->d_bytes);
    for (int i = 0; i < STEPS; i++)
        step(s, queue, &list);
    leave(s, &list, QUERN_ALL_LAYERS, 0, 1);
    assert_int_equal(quern_queue_flush(queue, QUERN_ALL_LAYERS, 0, NULL),
                     QUERN_OK);
    compare(s, schedule);
    quern_queue_free(queue);
}

void test_queue_schedules(void **state)
{
    static const struct {
        const char *recipe;
        int d_type;
    } kinds[] = {{"bf16", QUERN_F32},
                 {"fp8_block", QUERN_F32},
                 {"bf16", QUERN_BF16},
                 {"mxfp8", QUERN_F32}};
    const int count = sizeof kinds / sizeof kinds[0], each = 25;

    (void)state;
    for (int i = 0; i < SCHEDULES / each; i++) {
        struct shop *s = open_shop(kinds[i % count].recipe,
                                   kinds[i % count].d_type, 0, (uint64_t)i + 1);

        for (int j = 0; j < each; j++)
            run_schedule(s, i * each + j);
        close_shop(s);
    }
}

/* ------------------------------------------------------------ order of sums */

/* Products of one weight, and the same tokens in one: group by group, those of
   the first product, then those of the second, and so on. */
struct stack {
    int count, groups;
    int32_t sizes[QUERN_MAX_PARTS][MOST_GROUPS], all[MOST_GROUPS];
    int64_t tokens[QUERN_MAX_PARTS], total;
    uint16_t *dy[QUERN_MAX_PARTS], *x[QUERN_MAX_PARTS], *all_dy, *all_x;
};

/* Rows of one product's group to where they are in the whole. */
static void copy_rows(uint16_t *to, const uint16_t *from, int64_t at,
                      int64_t row, int64_t rows, int64_t columns)
{
    memcpy(to + at * columns, from + row * columns,
           (size_t)(rows * columns) * 2);
}

static void stack_rows(struct stack *k)
{
    int64_t at = 0, row[QUERN_MAX_PARTS] = {0};

    for (int g = 0; g < k->groups; g++)
        for (int i = 0; i < k->count; i++) {
            const int32_t rows = k->sizes[i][g];

            copy_rows(k->all_dy, k->dy[i], at, row[i], rows, M);
            copy_rows(k->all_x, k->x[i], at, row[i], rows, N);
            at += rows;
            row[i] += rows;
            k->all[g] += rows;
        }
}

static struct stack make_stack(uint64_t *state, int count)
{
    struct stack k = {.count = count, .groups = MOST_GROUPS};

    for (int i = 0; i < count; i++) {
        for (int g = 0; g < k.groups; g++) {
            k.sizes[i][g] =
                (int32_t)(qt_random_below(state, 3) ? qt_random_below(state, 40)
                                                    : 0);
            k.tokens[i] += k.sizes[i][g];
        }
        k.total += k.tokens[i];
        k.dy[i] = zeros((size_t)k.tokens[i] * M * 2);
        k.x[i] = zeros((size_t)k.tokens[i] * N * 2);
        for (int64_t j = 0; j < k.tokens[i] * M; j++)
            k.dy[i][j] = qt_bf16(qt_draw(state, QT_NORMAL));
        for (int64_t j = 0; j < k.tokens[i] * N; j++)
            k.x[i][j] = qt_bf16(qt_draw(state, QT_NORMAL));
    }
    k.all_dy = zeros((size_t)k.total * M * 2);
    k.all_x = zeros((size_t)k.total * N * 2);
    stack_rows(&k);
    return k;
}

static void free_stack(struct stack *k)
{
    for (int i = 0; i < k->count; i++) {
        free(k->dy[i]);
        free(k->x[i]);
    }
    free(k->all_dy);
    free(k->all_x);
}

static struct quern_plan *stack_plan(const char *more, struct quern_args *args)
{
    const struct quern_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct quern_description need;
    struct quern_problem p;
    struct quern_plan *plan = NULL;
    char line[128];

    snprintf(line, sizeof line, "wgrad bf16 g=%d m=%d n=%d k=2000 d=f32%s",
             MOST_GROUPS, M, N, more);
    if (quern_problem_parse(host_ctx, line, &p) ||
        quern_describe(host_ctx, &p, &need) ||
        quern_plan(host_ctx, &p, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg(host_ctx));
    *args = need.args;
    return plan;
}

static void set_tokens(struct quern_args *args, void *dy, void *x,
                       const int32_t *sizes, int64_t tokens)
{
    args->a.data = dy;
    args->b.data = x;
    args->a.first_dims = sizes;
    args->a.shape[0] = args->b.shape[0] = tokens;
}

/* `first` of the merged products overwrites, or all are added to D. */
static void expect_order(struct stack *k, const char *more, int overwrite)
{
    _Alignas(16) uint32_t workspace[64] = {0};
    struct quern_args args;
    struct quern_plan *add = stack_plan(" beta=1 parts=8", &args);
    struct quern_plan *first = stack_plan(more, &args);
    struct quern_queue *queue;
    float *d[2];

    assert_int_equal(quern_queue(host_ctx, QUERN_MAX_PARTS, &queue), 0);
    args.workspace = workspace;
    for (int i = 0; i < 2; i++) {
        d[i] = zeros(args.d.bytes);
        for (size_t j = 0; j < args.d.bytes / 4; j++)
            d[i][j] = overwrite ? 1e30f : (float)j * 0.37f;
    }
    args.d.data = d[0];
    for (int i = 0; i < k->count; i++) {
        set_tokens(&args, k->dy[i], k->x[i], k->sizes[i], k->tokens[i]);
        if (quern_queue_put(queue, i ? add : first, &args, 0))
            fail_msg("%s", quern_errmsg(host_ctx));
    }
    assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK);
    args.d.data = d[1];
    set_tokens(&args, k->all_dy, k->all_x, k->all, k->total);
    assert_int_equal(quern_run(first, &args, NULL), QUERN_OK);
    assert_memory_equal(d[0], d[1], args.d.bytes);
    assert_int_equal(workspace[0], 0);
    quern_queue_free(queue);
    quern_plan_free(add);
    quern_plan_free(first);
    free(d[0]);
    free(d[1]);
}

/* Merged products are one sum over the tokens of all, in the order of the
   puts. */
void test_queue_order_of_sums(void **state)
{
    uint64_t seed = 7;

    (void)state;
    for (int count = 1; count <= QUERN_MAX_PARTS; count++) {
        struct stack k = make_stack(&seed, count);

        expect_order(&k, " beta=1 parts=8", 0);
        expect_order(&k, " parts=8", 1);
        free_stack(&k);
    }
}

/* Where each product has factors of its own, its sum is made alone and then
   added to those before it: what single launches do, the first overwriting. */
void test_queue_own_factors(void **state)
{
    static const char *const recipes[] = {"fp8_row", "fp8_tensor"};

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct shop *s = open_shop(recipes[i % 2], QUERN_F32, QUERN_MAX_PARTS,
                                   (uint64_t)i + 50);
        struct list list = {.count = 0};
        struct quern_queue *queue;
        struct quern_args args;

        assert_int_equal(quern_queue(host_ctx, CAPACITY, &queue), QUERN_OK);
        for (int j = 0; j < BATCHES; j++) {
            const struct waiting w = {.batch = j, .overwrite = j == 0};
            const struct quern_plan *plan = arguments(s, &w, s->d[0], &args);

            assert_int_equal(quern_queue_put(queue, plan, &args, 0), QUERN_OK);
            list.items[list.count++] = w;
        }
        leave(s, &list, 0, 0, 1);
        assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK);
        compare(s, i);
        quern_queue_free(queue);
        close_shop(s);
    }
}

/* ------------------------------------------------------------------ skipped */

/* A run or a cast whose flag is set leaves every byte as it was; one whose flag
   is 0 does its work. */
void test_noop_flag(void **state)
{
    static const char *const recipes[] = {"bf16", "fp8_block"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct shop *s = open_shop(recipes[i % 2], QUERN_F32, 1 + i / 2 * 4,
                                   (uint64_t)i + 90);
        const struct waiting w = {.overwrite = 1};
        struct quern_args args;
        const struct quern_plan *plan = arguments(s, &w, s->d[0], &args);
        int flag = 7;

        memset(s->d[0], QT_POISON, s->d_bytes);
        memset(s->d[1], QT_POISON, s->d_bytes);
        args.noop = &flag;
        s->batches[0].sizes[0] = -5; /* which nobody looks at */
        assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
        assert_memory_equal(s->d[0], s->d[1], s->d_bytes);
        assert_int_equal(s->workspace[0], 0);
        s->batches[0].sizes[0] = 0;
        flag = 0;
        assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
        assert_memory_not_equal(s->d[0], s->d[1], s->d_bytes);
        args.noop = (const int *)(const void *)((const char *)&flag + 2);
        assert_int_equal(quern_run(plan, &args, NULL), QUERN_EINVAL);
        assert_non_null(strstr(quern_errmsg(host_ctx), "noop is"));
        args.noop = args.d.data;
        assert_int_equal(quern_run(plan, &args, NULL), QUERN_EINVAL);
        assert_non_null(strstr(quern_errmsg(host_ctx), "overlaps noop"));
        close_shop(s);
    }
}
