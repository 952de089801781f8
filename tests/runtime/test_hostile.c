/* SPDX-License-Identifier: Apache-2.0 */
/* test_hostile.c: callers who get everything wrong: structs of random bytes and
   of extreme values, strings without an end, arguments that changed since they
   were described. Each gets an error that names argument and
   rule; nothing crashes, nothing overflows (the asan build sees it), nothing
   runs. */
#include "test.h"

#include <limits.h>

#define PROBLEM "fprop bf16 g=8 m=1000 n=512 k=256"
#define CAST    "quantize group of=dy g=3 m=200 k=96 dbias=1"

/* The same values on every machine. */
static uint64_t seed;

static uint64_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed ^ seed >> 29;
}

/* Arguments of functions. */
struct all {
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;
    struct qn_args args;
    struct qn_quantization q;
    struct qn_quantize_description cast_need;
    struct qn_quantize_plan *cast;
    struct qn_quantize_args cast_args;
};

static void make_all(struct all *a)
{
    memset(a, 0, sizeof *a);
    a->ctx = test_open();
    a->p = test_problem(a->ctx, PROBLEM);
    a->plan = test_plan(a->ctx, PROBLEM, NULL);
    a->args = test_args(a->ctx, PROBLEM);
    test_expect(qn_quantize_parse(a->ctx, CAST, &a->q), QUERN_OK, "");
    test_expect(qn_quantize_needs(a->ctx, &a->q, &a->cast_need), QUERN_OK, "");
    test_expect(qn_quantize_plan(a->ctx, &a->q, NULL, &a->cast), QUERN_OK, "");
    a->cast_args = a->cast_need.args;
    a->cast_args.workspace = a->args.workspace;
}

static void free_all(struct all *a)
{
    qn_plan_free(a->plan);
    qn_quantize_plan_free(a->cast);
    test_args_free(&a->args);
    qn_close(a->ctx);
}

/* ------------------------------------------------------------- printing */

TEST(prints_anything)
{
    struct quern_context *ctx = test_open();
    struct qn_problem p = test_problem(ctx, PROBLEM " split=even");
    struct qn_quantization q;
    struct qn_mlp mlp;
    char whole[512], part[512];
    int length = qn_problem_print(&p, whole, sizeof whole);

    assert_int_equal(qn_problem_print(&p, NULL, 0), length);
    assert_int_equal(qn_problem_print(&p, NULL, 100), length);
    for (size_t size = 1; size < sizeof part; size++) {
        memset(part, '#', sizeof part);
        assert_int_equal(qn_problem_print(&p, part, size), length);
        assert_int_equal(strlen(part),
                         size <= (size_t)length ? size - 1 : (size_t)length);
        assert_int_equal(part[size], '#');
        assert_memory_equal(part, whole, strlen(part));
    }
    /* strings without an end, and no enum's value */
    memset(&p, 'x', sizeof p);
    memset(&q, 'x', sizeof q);
    memset(&mlp, 'x', sizeof mlp);
    assert_true(qn_problem_print(&p, part, sizeof part) > 0);
    assert_true(qn_quantize_print(&q, part, sizeof part) > 0);
    assert_true(qn_mlp_print(&mlp, part, sizeof part) > 0);
    assert_true(qn_mlp_print(&mlp, NULL, sizeof part) > 0);
    memset(&p, 0xFF, sizeof p);
    memset(&q, 0xFF, sizeof q);
    memset(&mlp, 0xFF, sizeof mlp);
    assert_true(qn_problem_print(&p, part, sizeof part) > 0);
    assert_true(qn_quantize_print(&q, part, sizeof part) > 0);
    assert_true(qn_mlp_print(&mlp, part, sizeof part) > 0);
    qn_close(ctx);
}

/* ----------------------------------------------------- structs as they come */

/* Values at which something could overflow. */
static const int64_t extremes[] = {0,
                                   1,
                                   -1,
                                   2,
                                   3,
                                   16,
                                   127,
                                   128,
                                   1024,
                                   1025,
                                   65536,
                                   1 << 30,
                                   (1 << 30) + 1,
                                   INT32_MAX,
                                   INT32_MIN,
                                   UINT32_MAX,
                                   INT64_C(1) << 40,
                                   INT64_C(1) << 60,
                                   INT64_MAX,
                                   INT64_MIN};

/* Overwrite some word of a struct, of 4 or of 8 bytes. */
static void damage(void *structure, size_t bytes)
{
    const size_t size = draw() % 2 ? 4 : 8;
    int64_t value = extremes[draw() % (sizeof extremes / sizeof extremes[0])];

    if (draw() % 16 == 0)
        value = (int64_t)draw();
    memcpy((char *)structure + draw() % (bytes / size) * size, &value, size);
}

/* An error has a sentence that is about something. */
static int judged(int code)
{
    assert_in_range(code, 0, QUERN_STATUS_COUNT - 1);
    if (code)
        assert_non_null(strstr(quern_errmsg(), " "));
    return code;
}

enum { ROUNDS = 8000 };

static const char *const problems[] = {
    PROBLEM,
    "dgrad mixed g=5 m=0 n=20 k=30 alpha=any",
    "wgrad bf16 g=1024 m=64 n=64 k=1073741824 d=f32 beta=any pointers=bd",
    "fprop group g=7 m=100 n=32 k=48",
    "wgrad group g=7 m=100 n=32 k=48",
    "fprop fp16 g=1 m=2147483647 n=1 k=2147483647 ragged=none"};

TEST(survives_damaged_problems)
{
    struct quern_context *ctx = test_open();
    int good = 0, bad = 0;

    for (int i = 0; i < ROUNDS; i++) {
        const char *text =
            problems[draw() % (sizeof problems / sizeof problems[0])];
        struct qn_description need;
        struct qn_plan *plan;
        struct qn_problem p;
        char line[512], *why;
        int code = qn_problem_parse(ctx, text, &p);

        for (uint64_t n = code ? 0 : draw() % 3 + 1; n--;)
            damage(&p, sizeof p - sizeof p.split);
        if (i % 8 == 0)
            memset(p.split, (int)draw(), sizeof p.split);
        qn_problem_print(&p, line, sizeof line);
        code = judged(qn_problem_describe(ctx, &p, &need));
        if (code == QUERN_OK)
            assert_true(need.args.a.bytes <= INT64_MAX / 8);
        assert_true(judged(qn_plan(ctx, &p, NULL, &plan)) || !code);
        assert_true(judged(qn_why(ctx, &p, NULL, NULL, &why)) || !code);
        good += plan != NULL;
        bad += plan == NULL;
        qn_plan_free(plan);
        quern_free(why);
    }
    assert_true(good > ROUNDS / 100 && bad > ROUNDS / 4);
    qn_close(ctx);
}

TEST(survives_damaged_casts)
{
    static const char *const texts[] = {
        CAST, "quantize group of=x g=1024 m=1073741824 k=64 activation=swiglu",
        "quantize group of=w g=1024 m=65536 k=65536",
        "dequantize group of=w g=3 m=20 k=30", "transpose group g=1 m=5 k=7"};
    struct quern_context *ctx = test_open();
    int good = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct qn_quantize_description need;
        struct qn_quantize_plan *plan;
        struct qn_quantization q;
        char line[512], *why;
        int code = qn_quantize_parse(
            ctx, texts[draw() % (sizeof texts / sizeof texts[0])], &q);

        for (uint64_t n = code ? 0 : draw() % 3 + 1; n--;)
            damage(&q, sizeof q - sizeof q.split);
        qn_quantize_print(&q, line, sizeof line);
        code = judged(qn_quantize_needs(ctx, &q, &need));
        good += !code;
        assert_true(judged(qn_quantize_plan(ctx, &q, NULL, &plan)) || !code);
        assert_true(judged(qn_quantize_why(ctx, &q, NULL, &why)) || !code);
        qn_quantize_plan_free(plan);
        quern_free(why);
    }
    assert_true(good > ROUNDS / 100);
    qn_close(ctx);
}

TEST(survives_damaged_contractions)
{
    const struct qn_contraction right = {
        .recipe = "bf16",
        .groups = 3,
        .a = {QUERN_BF16, 2, {40, 16}, 1, 0, 0, 1, 2},
        .b = {QUERN_BF16, 3, {3, 32, 16}, 0, 0, 0, 2, 3}};
    struct quern_context *ctx = test_open();
    int good = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct qn_contraction c = right;
        struct qn_problem p;

        for (uint64_t n = draw() % 3 + 1; n--;)
            damage(&c.groups,
                   sizeof c - offsetof(struct qn_contraction, groups));
        good += !judged(qn_infer(ctx, &c, &p));
    }
    assert_true(good > ROUNDS / 100 && good < ROUNDS);
    qn_close(ctx);
}

/* A plan, and memory for all that its table has. */
static struct quern_plan *plan_of(struct quern_context *ctx, const char *line,
                                  struct quern_args *args)
{
    static _Alignas(256) char memory[24][1 << 21];
    const struct quern_operand *table;
    struct quern_plan *plan;
    int count;

    test_expect(quern_plan_create(ctx, line, NULL, &plan), QUERN_OK, "");
    table = quern_plan_operands(plan, &count);
    assert_in_range(count, 1, 24);
    for (int i = 0; i < count; i++)
        if (table[i].arg != QUERN_ARG_ENDS) /* lengths or ends, not both */
            args->of[table[i].arg].data = memory[i];
    return plan;
}

/* The driver of this machine reads no address, so all may be damaged. */
TEST(survives_damaged_arguments)
{
    struct quern_context *ctx = test_open();
    struct quern_args right = QUERN_ARGS_INIT;
    struct quern_plan *plan = plan_of(ctx, PROBLEM, &right);
    int good = 0;

    test_expect(quern_run(plan, &right, NULL), QUERN_OK, "");
    for (int i = 0; i < ROUNDS; i++) {
        struct quern_args args = right;
        int launches = test_cuda->launches, code;

        for (uint64_t n = draw() % 3 + 1; n--;)
            damage(&args, sizeof args);
        code = judged(quern_run(plan, &args, NULL));
        assert_int_equal(test_cuda->launches, launches + !code);
        good += !code;
    }
    assert_true(good > ROUNDS / 100 && good < ROUNDS);
    quern_plan_destroy(plan);
    quern_close(ctx);
}

TEST(survives_damaged_options)
{
    struct all a;

    make_all(&a);
    for (int i = 0; i < ROUNDS / 8; i++) {
        struct qn_plan_options options = {.backend = QUERN_BACKEND_AUTO};
        struct qn_plan *plan;
        struct qn_quantize_plan *cast;

        damage(&options, offsetof(struct qn_plan_options, kernel));
        judged(qn_plan(a.ctx, &a.p, &options, &plan));
        judged(qn_quantize_plan(a.ctx, &a.q, &options, &cast));
        qn_plan_free(plan);
        qn_quantize_plan_free(cast);
    }
    free_all(&a);
}

/* ------------------------------------------------- each rule by itself */

/* Sizes just beyond 64 bits, and just within. */
TEST(counts_bytes)
{
    static const struct {
        const char *text;
        const char *says; /* NULL: it is described */
    } sizes[] = {
        {"fprop bf16 g=1024 m=1073741824 n=2147483647 k=2147483647",
         "A has more bytes than 64 bits count"},
        {"fprop bf16 g=1 m=1073741824 n=1 k=134217728", NULL},
        {"wgrad bf16 g=1024 m=2147483647 n=2147483647 k=5", "D has more bytes"},
        {"fprop group g=1024 m=5 n=2147483647 k=2147483647",
         "B has more bytes"},
        {"wgrad group g=1024 m=2147483647 n=1 k=1073741824",
         "A has more bytes"},
        {"wgrad group g=1024 m=2147483647 n=1 k=1048576", NULL},
        {"quantize group of=x g=1 m=1073741824 k=1073741824",
         "more bytes than 64 bits count"},
        {"quantize group of=w g=1024 m=1073741824 k=1073741824",
         "more bytes than 64 bits count"},
        {"quantize group of=w g=1024 m=16777216 k=4194304", NULL},
        {"quantize group of=x g=1024 m=1073741824 k=65536", NULL},
    };
    struct quern_context *ctx = test_open();

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *text = sizes[i].text, *says = sizes[i].says;
        struct qn_quantization q;
        struct qn_problem p;
        int code = *text == 'q' ? qn_quantize_parse(ctx, text, &q)
                                : qn_problem_parse(ctx, text, &p);

        test_expect(code, says ? QUERN_EINVAL : QUERN_OK, says ? says : "");
    }
    qn_close(ctx);
}

#define REFUSED(change, says)                                                  \
    do {                                                                       \
        struct qn_args args = a.args;                                          \
        change;                                                                \
        test_expect(qn_run(a.plan, &args, NULL), QUERN_EINVAL, says);          \
    } while (0)

/* D and the workspace, over what the device reads or what tells it sizes. */
TEST(refuses_shared_memory)
{
    struct all a;
    float *inside;

    make_all(&a);
    inside = (float *)((char *)a.args.d.data + a.args.d.bytes) - 1;
    REFUSED(args.a.first_dims = args.d.data, "d overlaps lengths");
    REFUSED(args.a.first_dims = inside, "d overlaps lengths");
    REFUSED(args.a.offsets = inside, "d overlaps starts");
    REFUSED(args.a.offsets = args.workspace, "workspace overlaps starts");
    REFUSED(args.a.first_dims = (char *)args.workspace + 252,
            "workspace overlaps lengths");
    REFUSED(args.workspace = args.d.data, "workspace overlaps d");
    free_all(&a);
}

#define CAST_REFUSED(change, says)                                             \
    do {                                                                       \
        struct qn_quantize_args args = full;                                   \
        change;                                                                \
        test_expect(qn_quantize_run(a.cast, &args, NULL), QUERN_EINVAL, says); \
    } while (0)

/* Arguments of a cast in one block of memory, far apart. */
static struct qn_quantize_args lay_out(const struct all *a, char *memory)
{
    struct qn_quantize_args args = a->cast_need.args;

    args.in.data = memory;
    args.row.data = memory + (1 << 18);
    args.row.sf = memory + (2 << 18);
    args.column.data = memory + (3 << 18);
    args.column.sf = memory + (4 << 18);
    args.dbias = (float *)(void *)(memory + (5 << 18));
    args.first_dims = memory + (6 << 18);
    args.workspace = memory + (7 << 18);
    return args;
}

TEST(refuses_shared_casts)
{
    static _Alignas(256) char memory[8 << 18];
    struct qn_quantize_args full;
    struct all a;

    make_all(&a);
    full = lay_out(&a, memory);
    test_expect(qn_quantize_run(a.cast, &full, NULL), QUERN_OK, "");
    full.column.sf = full.row.sf; /* both are of groups: the same */
    test_expect(qn_quantize_run(a.cast, &full, NULL), QUERN_OK, "");
    CAST_REFUSED(args.row.data = args.in.data, "rowwise overlaps input");
    CAST_REFUSED(args.row.sf = args.column.data,
                 "rowwise.sf overlaps columnwise");
    CAST_REFUSED(args.first_dims = args.row.sf, "rowwise.sf overlaps lengths");
    CAST_REFUSED(args.dbias = args.in.data, "dbias overlaps input");
    CAST_REFUSED(args.offsets = args.dbias, "dbias overlaps starts");
    CAST_REFUSED(args.workspace = args.row.sf, "workspace overlaps rowwise.sf");
    free_all(&a);
}

/* With one group, the distance to the next one does not matter. */
TEST(ignores_the_step_of_one_group)
{
    const char *text = "fprop bf16 g=1 m=100 n=64 k=64";
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, text, NULL);
    struct qn_args args = test_args(ctx, text);

    args.b.group_stride = INT64_C(1) << 60;
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}
