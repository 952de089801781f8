/* SPDX-License-Identifier: Apache-2.0 */
/*
** queue.c: the wgrad queue in random schedules, against gradients computed at
** once.
**
** A schedule puts weight and bias gradients of microbatches of a few layers,
** flushes some, one layer or all, and drops some, in any order. A model of the
** queue, a plain list, says which of them each call must launch or which error
** it must return; the model's are computed by qn_run and qn_quantize_run,
** one by one. Operands are small integers, so that sums are exact in any order:
** every bit of every D must agree. Bias gradients begin with values that round
** at each sum, so that their order shows.
*/
#include "host.h"

#include <stdio.h>

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
    struct qn_tensor a, b;
    void *memory[6]; /* to be freed */
    int32_t sizes[MOST_GROUPS];
    int64_t host_sizes[MOST_GROUPS]; /* the same */
    /* dbias of dy: overwritten, and added to */
    struct qn_quantize_plan *sums[2];
    struct qn_quantize_args cast;
    void *scratch; /* the casts' workspace */
};

/* Shared by the schedules of one recipe. */
struct shop {
    int groups, d_type, microbatches;
    struct qn_plan *overwrite, *accumulate;
    struct qn_args args; /* all but addresses */
    struct batch batches[BATCHES];
    size_t d_bytes;
    void *d[LAYERS], *model[LAYERS];
    size_t bias_bytes;
    float *bias[LAYERS], *bias_model[LAYERS];
    _Alignas(16) uint32_t workspace[128];
    uint64_t state;
};

struct waiting {
    int layer, batch, overwrite, host_sizes, is_bias;
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

/* Lengths: nothing, everything in one group, or any. */
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

/* [tokens, columns] of small integers; NaN after the last group. */
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

static struct qn_quantize_plan *cast_plan(const char *line,
                                          struct qn_quantize_description *need)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST,
                                            .sms = 1};
    struct qn_quantize_plan *plan = NULL;
    struct qn_quantization q;

    if (qn_quantize_parse(host_ctx, line, &q) ||
        qn_quantize_needs(host_ctx, &q, need) ||
        qn_quantize_plan(host_ctx, &q, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    return plan;
}

/* The columnwise tensor of a recipe with scales. */
static void quantize(struct shop *s, const char *recipe, const char *of,
                     struct batch *b, int64_t tokens, int64_t columns,
                     void *numbers, struct qn_tensor *out, void **memory)
{
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    char line[128];

    snprintf(line, sizeof line,
             "quantize %s of=%s g=%d m=%lld k=%lld copies=columnwise", recipe,
             of, s->groups, (long long)tokens, (long long)columns);
    plan = cast_plan(line, &need);
    need.args.in.data = numbers;
    need.args.first_dims = b->sizes;
    need.args.column.data = memory[0] = zeros(need.args.column.bytes);
    need.args.column.sf = memory[1] = zeros(need.args.column.sf_bytes);
    need.args.workspace = zeros(need.workspace_bytes);
    qn_memory_begin(need.args.workspace, need.workspace_bytes);
    if (qn_quantize_run(plan, &need.args, NULL))
        fail_msg("%s: %s", line, quern_errmsg());
    *out = need.args.column;
    free(need.args.workspace);
    qn_quantize_plan_free(plan);
}

/* dbias of dy, for any recipe of the product. */
static void make_sums(const struct shop *s, struct batch *b, int64_t tokens,
                      uint16_t *dy)
{
    static const char *const kinds[] = {"1", "add"};
    struct qn_quantize_description need;
    char line[128];

    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "quantize bf16 of=dy g=%d m=%lld k=%d copies=rowwise dbias=%s",
                 s->groups, (long long)tokens, M, kinds[i]);
        b->sums[i] = cast_plan(line, &need);
    }
    b->cast = need.args;
    b->cast.in.data = dy;
    b->cast.first_dims = b->sizes;
    b->cast.workspace = b->scratch = zeros(need.workspace_bytes);
    qn_memory_begin(b->scratch, need.workspace_bytes);
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
    make_sums(s, b, tokens, dy);
    b->a.sizes_type = QUERN_I32;
    *(scaled ? &b->a.last_dims : &b->a.first_dims) = b->sizes;
}

/* -------------------------------------------------------------------- shop */

static struct qn_plan *make_plan(const struct shop *s, const char *recipe,
                                 const char *more, struct qn_args *args)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST,
                                            .sms = 1};
    struct qn_description need;
    struct qn_problem p;
    struct qn_plan *plan = NULL;
    char line[128];

    snprintf(line, sizeof line,
             "wgrad %s g=%d m=%d n=%d k=%d d=%s microbatches=%d sizes=host%s",
             recipe, s->groups, M, N, TOKENS,
             s->d_type == QUERN_F32 ? "f32" : "bf16", s->microbatches, more);
    if (qn_problem_parse(host_ctx, line, &p) ||
        qn_problem_describe(host_ctx, &p, &need) ||
        qn_plan(host_ctx, &p, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    *args = need.args;
    return plan;
}

static struct shop *open_shop(const char *recipe, int d_type, int microbatches,
                              uint64_t seed)
{
    struct shop *s = zeros(sizeof *s);

    s->state = seed;
    s->d_type = d_type;
    s->microbatches =
        microbatches
            ? microbatches
            : 1 + (int)qt_random_below(&s->state, QUERN_MAX_MICROBATCHES);
    s->groups = 1 + (int)qt_random_below(&s->state, MOST_GROUPS);
    s->overwrite = make_plan(s, recipe, "", &s->args);
    s->accumulate = make_plan(s, recipe, " beta=1", &s->args);
    s->args.workspace = s->workspace;
    s->d_bytes = s->args.d.bytes;
    s->bias_bytes = (size_t)s->groups * M * sizeof(float);
    s->bias[0] = zeros(LAYERS * s->bias_bytes);
    s->bias_model[0] = zeros(LAYERS * s->bias_bytes);
    for (int i = 0; i < LAYERS; i++) {
        s->d[i] = zeros(s->d_bytes);
        s->model[i] = zeros(s->d_bytes);
        s->bias[i] = s->bias[0] + i * s->groups * M;
        s->bias_model[i] = s->bias_model[0] + i * s->groups * M;
    }
    for (int i = 0; i < BATCHES; i++) {
        int64_t tokens = i ? qt_random_below(&s->state, TOKENS + 1) : TOKENS;

        make_batch(s, recipe, &s->batches[i], tokens);
    }
    return s;
}

static void close_shop(struct shop *s)
{
    qn_plan_free(s->overwrite);
    qn_plan_free(s->accumulate);
    for (int i = 0; i < LAYERS; i++) {
        free(s->d[i]);
        free(s->model[i]);
    }
    free(s->bias[0]);
    free(s->bias_model[0]);
    for (int i = 0; i < BATCHES; i++) {
        for (int j = 0; j < 6; j++)
            free(s->batches[i].memory[j]);
        for (int j = 0; j < 2; j++)
            qn_quantize_plan_free(s->batches[i].sums[j]);
        free(s->batches[i].scratch);
    }
    free(s);
}

/* --------------------------------------------------------------- schedules */

static const struct qn_plan *arguments(const struct shop *s,
                                       const struct waiting *w, void *d,
                                       struct qn_args *args)
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

/* The same of a bias gradient. */
static const struct qn_quantize_plan *
bias_arguments(const struct shop *s, const struct waiting *w, float *bias,
               struct qn_quantize_args *args)
{
    const struct batch *b = &s->batches[w->batch];

    *args = b->cast;
    args->dbias = bias;
    return b->sums[!w->overwrite];
}

/* Put off what the model has. */
static int put_it(struct shop *s, struct quern_queue *queue,
                  const struct waiting *w)
{
    struct qn_quantize_args cast;
    struct qn_args args;

    if (w->is_bias)
        return qn_queue_put_dbias(
            queue, bias_arguments(s, w, s->bias[w->layer], &cast), &cast,
            w->layer);
    return qn_queue_put(queue, arguments(s, w, s->d[w->layer], &args), &args,
                        w->layer);
}

/* Compute it, into the model's memory. */
static int run_it(struct shop *s, const struct waiting *w)
{
    struct qn_quantize_args cast;
    struct qn_args args;

    if (w->is_bias)
        return qn_quantize_run(
            bias_arguments(s, w, s->bias_model[w->layer], &cast), &cast, NULL);
    return qn_run(arguments(s, w, s->model[w->layer], &args), &args, NULL);
}

static void put(struct shop *s, struct quern_queue *queue, struct list *list)
{
    struct waiting w = {
        .layer = (int)qt_random_below(&s->state, LAYERS),
        .batch = (int)qt_random_below(&s->state, BATCHES),
        .overwrite = qt_random_below(&s->state, 4) == 0,
        .host_sizes = qt_random_below(&s->state, 3) == 0,
        .is_bias = qt_random_below(&s->state, 3) == 0,
    };
    int expected = list->count == CAPACITY ? QUERN_EFULL : QUERN_OK;

    for (int i = 0; !expected && i < list->count; i++)
        if (w.overwrite && list->items[i].layer == w.layer &&
            list->items[i].is_bias == w.is_bias)
            expected = QUERN_EINVAL;
    if (put_it(s, queue, &w) != expected)
        fail_msg("put: %d is expected: %s", expected, quern_errmsg());
    if (!expected)
        list->items[list->count++] = w;
}

/* Take `most` of a layer's out of the model; with `run`, compute them. */
static int leave(struct shop *s, struct list *list, int layer, int most,
                 int run)
{
    struct list rest = {.count = 0};
    int left = 0;

    for (int i = 0; i < list->count; i++) {
        const struct waiting *w = &list->items[i];

        if ((layer != QUERN_ALL_LAYERS && w->layer != layer) ||
            (most && left == most)) {
            rest.items[rest.count++] = *w;
            continue;
        }
        left++;
        if (run && run_it(s, w))
            fail_msg("%s", quern_errmsg());
    }
    *list = rest;
    return left || layer == QUERN_ALL_LAYERS ? QUERN_OK : QUERN_EINVAL;
}

static void compare(const struct shop *s, int schedule)
{
    for (int i = 0; i < LAYERS; i++)
        if (memcmp(s->d[i], s->model[i], s->d_bytes))
            fail_msg("schedule %d: layer %d differs", schedule, i);
    for (int i = 0; i < LAYERS; i++)
        if (memcmp(s->bias[i], s->bias_model[i], s->bias_bytes))
            fail_msg("schedule %d: dbias of layer %d differs", schedule, i);
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

    assert_int_equal(quern_queue_create(host_ctx, CAPACITY, &queue), QUERN_OK);
    for (int i = 0; i < LAYERS; i++)
        memset(s->d[i], 0, s->d_bytes);
    for (int i = 0; i < LAYERS; i++)
        memset(s->model[i], 0, s->d_bytes);
    for (size_t i = 0; i < LAYERS * s->bias_bytes / sizeof(float); i++)
        s->bias[0][i] = s->bias_model[0][i] = 3e7f + 0.37f * (float)i;
    for (int i = 0; i < STEPS; i++)
        step(s, queue, &list);
    leave(s, &list, QUERN_ALL_LAYERS, 0, 1);
    assert_int_equal(quern_queue_flush(queue, QUERN_ALL_LAYERS, 0, NULL),
                     QUERN_OK);
    compare(s, schedule);
    quern_queue_destroy(queue);
}

TEST(test_queue_schedules)
{
    static const struct {
        const char *recipe;
        int d_type;
    } kinds[] = {{"bf16", QUERN_F32},
                 {"fp8_block", QUERN_F32},
                 {"bf16", QUERN_BF16},
                 {"mxfp8", QUERN_F32}};
    const int count = sizeof kinds / sizeof kinds[0], each = 25;

    for (int i = 0; i < SCHEDULES / each; i++) {
        struct shop *s = open_shop(kinds[i % count].recipe,
                                   kinds[i % count].d_type, 0, (uint64_t)i + 1);

        for (int j = 0; j < each; j++)
            run_schedule(s, i * each + j);
        close_shop(s);
    }
}

/* -------------------------------------------------------------- own factors */

/* A product with its own factors is computed apart and then added to those
   before it, as single launches do, the first overwriting. */
TEST(test_queue_own_factors)
{
    static const char *const recipes[] = {"fp8_row", "fp8_tensor"};

    for (int i = 0; i < 8; i++) {
        struct shop *s = open_shop(recipes[i % 2], QUERN_F32,
                                   QUERN_MAX_MICROBATCHES, (uint64_t)i + 50);
        struct list list = {.count = 0};
        struct quern_queue *queue;
        struct qn_args args;

        assert_int_equal(quern_queue_create(host_ctx, CAPACITY, &queue),
                         QUERN_OK);
        for (int j = 0; j < BATCHES; j++) {
            const struct waiting w = {.batch = j, .overwrite = j == 0};
            const struct qn_plan *plan = arguments(s, &w, s->d[0], &args);

            assert_int_equal(qn_queue_put(queue, plan, &args, 0), QUERN_OK);
            list.items[list.count++] = w;
        }
        leave(s, &list, 0, 0, 1);
        assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK);
        compare(s, i);
        quern_queue_destroy(queue);
        close_shop(s);
    }
}

/* ----------------------------------------------------------- bias gradients */

#define REFUSED(change, says)                                                  \
    do {                                                                       \
        args = good;                                                           \
        change;                                                                \
        assert_int_equal(qn_queue_put_dbias(queue, plan, &args, layer),        \
                         QUERN_EINVAL);                                        \
        if (!strstr(quern_errmsg(), says))                                     \
            fail_msg("'%s' lacks '%s'", quern_errmsg(), says);                 \
        plan = s->batches[0].sums[1];                                          \
        layer = 0;                                                             \
    } while (0)

/* Invalid queued bias gradients. */
TEST(test_queue_refuses_dbias)
{
    struct shop *s = open_shop("bf16", QUERN_F32, 2, 5);
    const struct waiting first = {.overwrite = 1};
    float *dbias = s->d[0]; /* with room for all of a product's D */
    struct qn_quantize_description need;
    struct qn_quantize_plan *scaled, *none, *narrow;
    const struct qn_quantize_plan *plan = s->batches[0].sums[1];
    struct qn_quantize_args good, args;
    struct qn_args product;
    struct quern_queue *queue;
    char line[128];
    int layer = 0;

#define PLAN(recipe, k, more)                                                  \
    (snprintf(line, sizeof line, "quantize %s of=dy g=%d m=%d k=%d " more,     \
              recipe, s->groups, TOKENS, k),                                   \
     cast_plan(line, &need))
    scaled = PLAN("fp8_block", M, "dbias=1");
    none = PLAN("fp8_block", M, "");
    narrow = PLAN("bf16", M - 8, "copies=rowwise dbias=add");
#undef PLAN
    assert_int_equal(quern_queue_create(host_ctx, 3, &queue), QUERN_OK);
    bias_arguments(s, &first, dbias, &good);
    REFUSED(layer = -1, "layer is -1: 0 or more");
    REFUSED(plan = none, "a quantization with dbias=1 or dbias=add");
    REFUSED(plan = scaled, "recipe fp8_block makes dbias with its copies");
    REFUSED(args.row.data = s->d[0],
            "rowwise is not NULL: a queue takes only dbias");
    REFUSED(args.dbias = NULL, "there is nothing to make");
    assert_int_equal(qn_queue_put_dbias(queue, plan, &good, 0), QUERN_OK);
    REFUSED(plan = s->batches[0].sums[0], "dbias=1 and would overwrite");
    REFUSED((plan = narrow, args.in.shape[1] = M - 8, args.in.bytes -= 16,
             args.row = need.args.row),
            "dbias has shape [");
    REFUSED(args.dbias = dbias + 1, "dbias overlaps dbias of a bias "
                                    "gradient that waits for layer 0");
    REFUSED(args.dbias = (float *)args.in.data, "dbias overlaps input");
    arguments(s, &first, dbias, &product);
    assert_int_equal(qn_queue_put(queue, s->accumulate, &product, 0),
                     QUERN_EINVAL);
    assert_non_null(
        strstr(quern_errmsg(), "d overlaps dbias of a bias gradient"));
    for (int i = 0; i < 2; i++)
        assert_int_equal(qn_queue_put_dbias(queue, plan, &good, 1), 0);
    assert_int_equal(qn_queue_put_dbias(queue, plan, &good, 1), QUERN_EFULL);
    quern_queue_destroy(queue);
    qn_quantize_plan_free(scaled);
    qn_quantize_plan_free(none);
    qn_quantize_plan_free(narrow);
    close_shop(s);
}

/* ------------------------------------------------------------------ skipped */

/* A run or a cast whose flag is set leaves every byte as it was; one whose flag
   is 0 does its work. */
TEST(test_noop_flag)
{
    static const char *const recipes[] = {"bf16", "fp8_block"};

    for (int i = 0; i < 4; i++) {
        struct shop *s = open_shop(recipes[i % 2], QUERN_F32, 1 + i / 2 * 4,
                                   (uint64_t)i + 90);
        const struct waiting w = {.overwrite = 1};
        struct qn_args args;
        const struct qn_plan *plan = arguments(s, &w, s->d[0], &args);
        int flag = 7;

        memset(s->d[0], QT_POISON, s->d_bytes);
        memset(s->d[1], QT_POISON, s->d_bytes);
        args.noop = &flag;
        s->batches[0].sizes[0] = -5; /* which nothing reads */
        assert_int_equal(qn_run(plan, &args, NULL), QUERN_OK);
        assert_memory_equal(s->d[0], s->d[1], s->d_bytes);
        assert_int_equal(s->workspace[0], 0);
        s->batches[0].sizes[0] = 0;
        flag = 0;
        assert_int_equal(qn_run(plan, &args, NULL), QUERN_OK);
        assert_memory_not_equal(s->d[0], s->d[1], s->d_bytes);
        args.noop = args.d.data;
        assert_int_equal(qn_run(plan, &args, NULL), QUERN_EINVAL);
        assert_non_null(strstr(quern_errmsg(), "overlaps noop"));
        close_shop(s);
    }
}
