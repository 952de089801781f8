/* SPDX-License-Identifier: Apache-2.0 */
/* open.c: programs of other headers, options of other sizes, NULL
   everywhere. */
#include "api.h"

#undef quern_open
int quern_open(const void *options, struct quern_context **ctx);

#define LINE "fprop bf16 g=4 m=40 n=64 k=64"

TEST(refuses_other_headers)
{
    const size_t args = sizeof(struct quern_args),
                 operand = sizeof(struct quern_operand);
    const struct {
        int abi;
        size_t args, operand;
    } others[] = {{QUERN_ABI - 1, args, operand},
                  {QUERN_ABI + 1, args, operand},
                  {0, args, operand},
                  {-1, args, operand},
                  {QUERN_ABI, args - 8, operand},
                  {QUERN_ABI, args + 8, operand},
                  {QUERN_ABI, 0, 0},
                  {QUERN_ABI, args, operand + 1}};
    struct quern_context *ctx;

    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ctx = (struct quern_context *)&ctx;
        test_expect(quern_open_abi(NULL, &ctx, others[i].abi, others[i].args,
                                   others[i].operand),
                    QUERN_EINVAL, "compile it again");
        assert_null(ctx);
    }
    ctx = (struct quern_context *)&ctx;
    test_expect(quern_open(NULL, &ctx), QUERN_EINVAL,
                "this program was compiled with quern.h 0.1, the library is "
                "0.2.0: compile it again");
    assert_null(ctx);
    test_expect(quern_open(NULL, NULL), QUERN_EINVAL, "0.1");
    test_expect(quern_open_abi(NULL, NULL, QUERN_ABI, args, operand),
                QUERN_EINVAL, "ctx is NULL");
}

/* One sentence with the folder, in which no line ends. */
TEST(reports_missing_folders)
{
    static const char *const folders[] = {"/nowhere", "/dev/null"};

    (void)state;
    unsetenv("QUERN_GEN");
    for (int i = 0; i < 2; i++) {
        struct quern_open_options options = QUERN_OPEN_OPTIONS_INIT;
        struct quern_context *ctx = (struct quern_context *)&ctx;

        options.specs = &folders[i];
        options.specs_count = 1;
        test_expect(quern_open_abi(&options, &ctx, QUERN_ABI,
                                   sizeof(struct quern_args),
                                   sizeof(struct quern_operand)),
                    QUERN_ECOMPILE, folders[i]);
        assert_null(ctx);
        assert_null(strchr(quern_errmsg(), '\n'));
    }
}

/* ------------------------------------------------------------------- sizes */

static int with_open(struct quern_context *ctx, size_t size)
{
    struct quern_open_options o = QUERN_OPEN_OPTIONS_INIT;
    struct quern_context *other;

    (void)ctx;
    o.size = size ? o.size + size : 0;
    return quern_open_abi(&o, &other, QUERN_ABI, sizeof(struct quern_args),
                          sizeof(struct quern_operand));
}

static int with_plan(struct quern_context *ctx, size_t size)
{
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;

    o.size = size ? o.size + size : 0;
    return quern_plan_create(ctx, LINE, &o, &plan);
}

static int with_get(struct quern_context *ctx, size_t size)
{
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;

    o.size = size ? o.size + size : 0;
    return quern_plan_get(ctx, LINE, &o, NULL, &plan);
}

static int with_why(struct quern_context *ctx, size_t size)
{
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    char *text;

    o.size = size ? o.size + size : 0;
    return quern_why(ctx, LINE, &o, &text);
}

static int with_tune(struct quern_context *ctx, size_t size)
{
    struct quern_tune_options o = QUERN_TUNE_OPTIONS_INIT;
    struct quern_tune_result result;

    o.size = size ? o.size + size : 0;
    return quern_tune(ctx, LINE, &o, &result);
}

TEST(refuses_sizes)
{
    static const struct {
        int (*call)(struct quern_context *, size_t);
        const char *macro;
    } calls[] = {{with_open, "options.size is %s: begin with "
                             "QUERN_OPEN_OPTIONS_INIT"},
                 {with_plan, "QUERN_PLAN_OPTIONS_INIT"},
                 {with_get, "QUERN_PLAN_OPTIONS_INIT"},
                 {with_why, "QUERN_PLAN_OPTIONS_INIT"},
                 {with_tune, "QUERN_TUNE_OPTIONS_INIT"}};
    struct quern_context *ctx = api_open();

    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const char *macro = strstr(calls[i].macro, "QUERN");

        test_expect(calls[i].call(ctx, 0), QUERN_EINVAL, "options.size is 0");
        test_expect(calls[i].call(ctx, 8), QUERN_EINVAL, macro);
        test_expect(calls[i].call(ctx, (size_t)-8), QUERN_EINVAL, macro);
    }
    quern_close(ctx);
}

/* After an error there is no plan, text or table to be freed. */
TEST(makes_nothing_of_bad_lines)
{
    struct quern_context *ctx = api_open();
    struct quern_plan *plan = (void *)ctx;
    struct quern_operand *table = (void *)ctx;
    char *text = (void *)ctx;
    int count = 7;

    (void)state;
    test_expect(quern_plan_create(ctx, "no line", NULL, &plan), QUERN_EINVAL,
                "");
    assert_null(plan);
    plan = (void *)ctx;
    test_expect(quern_plan_get(ctx, "no line", NULL, NULL, &plan), QUERN_EINVAL,
                "");
    assert_null(plan);
    test_expect(quern_why(ctx, "no line", NULL, &text), QUERN_EINVAL, "");
    assert_null(text);
    test_expect(quern_describe(ctx, "no line", &table, &count), QUERN_EINVAL,
                "");
    assert_null(table);
    assert_int_equal(count, 0);
    quern_close(ctx);
}

/* -------------------------------------------------------------------- NULL */

TEST(takes_null)
{
    struct quern_args args = QUERN_ARGS_INIT;
    struct quern_contraction contraction = {.recipe = "bf16"};
    struct quern_context *ctx = api_open();
    struct quern_operand *table = NULL;
    struct quern_tune_result result;
    struct quern_queue *queue = NULL;
    struct quern_plan *plan = NULL;
    struct quern_plan_info info;
    struct api_run run;
    int count = 7;
    size_t length = 0;
    char line[64], *text = NULL;

    (void)state;
    quern_close(NULL);
    quern_free(NULL);
    quern_plan_destroy(NULL);
    quern_queue_destroy(NULL);
    assert_null(quern_plan_operands(NULL, &count));
    assert_int_equal(count, 0);
    assert_null(quern_plan_operands(NULL, NULL));
    api_run_open(&run, ctx, LINE);
    assert_non_null(quern_plan_operands(run.plan, NULL));
#define REFUSED(call, name) test_expect(call, QUERN_EINVAL, name " is NULL")
    REFUSED(quern_plan_create(NULL, LINE, NULL, &plan), "ctx");
    REFUSED(quern_plan_create(ctx, NULL, NULL, &plan), "line");
    REFUSED(quern_plan_create(ctx, LINE, NULL, NULL), "plan");
    REFUSED(quern_plan_get(NULL, LINE, NULL, NULL, &plan), "ctx");
    REFUSED(quern_plan_get(ctx, NULL, NULL, NULL, &plan), "line");
    REFUSED(quern_plan_get(ctx, LINE, NULL, NULL, NULL), "plan");
    REFUSED(quern_describe(NULL, LINE, &table, &count), "ctx");
    REFUSED(quern_describe(ctx, NULL, &table, &count), "line");
    REFUSED(quern_describe(ctx, LINE, NULL, &count), "table");
    REFUSED(quern_describe(ctx, LINE, &table, NULL), "count");
    REFUSED(quern_plan_info(NULL, &info), "plan");
    REFUSED(quern_plan_info(run.plan, NULL), "info");
    REFUSED(quern_format(NULL, LINE, line, sizeof line, &length), "ctx");
    REFUSED(quern_format(ctx, NULL, line, sizeof line, &length), "line");
    REFUSED(quern_format(ctx, LINE, NULL, 8, &length), "buffer");
    REFUSED(quern_why(NULL, LINE, NULL, &text), "ctx");
    REFUSED(quern_why(ctx, NULL, NULL, &text), "line");
    REFUSED(quern_why(ctx, LINE, NULL, NULL), "text");
    REFUSED(quern_run(NULL, &args, NULL), "plan");
    REFUSED(quern_run(run.plan, NULL, NULL), "args");
    REFUSED(quern_check(NULL, &args, NULL), "plan");
    REFUSED(quern_check(run.plan, NULL, NULL), "args");
    args.of[QUERN_ARG_ERRORS].data = line; /* no operand of a product */
    REFUSED(quern_check(run.plan, &args, NULL), "workspace");
    args.of[QUERN_ARG_ERRORS].data = NULL;
    REFUSED(quern_queue_create(NULL, 4, &queue), "ctx");
    REFUSED(quern_queue_create(ctx, 4, NULL), "queue");
    REFUSED(quern_queue_put(NULL, run.plan, &args, 0), "queue");
    REFUSED(quern_queue_flush(NULL, 0, 0, NULL), "queue");
    REFUSED(quern_queue_drop(NULL, 0), "queue");
    REFUSED(quern_infer(NULL, &contraction, line, sizeof line, &length), "ctx");
    REFUSED(quern_infer(ctx, NULL, line, sizeof line, &length), "contraction");
    REFUSED(quern_tune(NULL, LINE, NULL, &result), "ctx");
    REFUSED(quern_tune(ctx, NULL, NULL, &result), "line");
    REFUSED(quern_tune(ctx, LINE, NULL, NULL), "result");
#undef REFUSED
    test_expect(quern_infer(ctx, &contraction, line, sizeof line, &length),
                QUERN_EINVAL, "");
    contraction.recipe = NULL;
    test_expect(quern_infer(ctx, &contraction, line, sizeof line, &length),
                QUERN_EINVAL, "recipe");
    assert_int_equal(quern_queue_count(NULL, 0), 0);
    assert_true(!plan && !table && !queue && !text);
    test_expect(quern_queue_create(ctx, 4, &queue), QUERN_OK, "");
    test_expect(quern_queue_put(queue, NULL, &args, 0), QUERN_EINVAL,
                "plan is NULL");
    test_expect(quern_queue_put(queue, run.plan, NULL, 0), QUERN_EINVAL,
                "args is NULL");
    quern_queue_destroy(queue);
    api_run_close(&run);
    quern_close(ctx);
}

/* ----------------------------------------------------------------- devices */

TEST(refuses_options)
{
    static const struct {
        const char *line, *part;
        int device, backend, sms, tune_ms, streams;
        const char *kernel;
    } wrong[] = {
        {LINE, "options.device is 1", 1, QUERN_BACKEND_JIT, 0, 0, 0, NULL},
        {LINE, "options.device is 99", 99, 0, 0, 0, 0, NULL},
        {LINE, "options.device is -2", -2, QUERN_BACKEND_JIT, 0, 0, 0, NULL},
        {LINE, "options.device is -2", -2, QUERN_BACKEND_HOST, 0, 0, 0, NULL},
        {LINE, "options.backend is 9", -1, 9, 0, 0, 0, NULL},
        {LINE, "options.backend is -1", -1, -1, 0, 0, 0, NULL},
        {LINE, "options.sms is -1", -1, QUERN_BACKEND_HOST, -1, 0, 0, NULL},
        {LINE, "options.tune_ms is -1", -1, 0, 0, -1, 0, NULL},
        {LINE, "options.streams is 9", -1, QUERN_BACKEND_CUBLASLT, 0, 0, 9,
         NULL},
        {"mlp bf16 g=4 m=40 hidden=64 ffn=64", "options.kernel is 'k'", -1,
         QUERN_BACKEND_HOST, 0, 0, 0, "k"},
        {"quantize mxfp8 of=x g=4 m=40 k=64", "options.tune_ms is 5", -1,
         QUERN_BACKEND_HOST, 0, 5, 0, NULL},
        {"quantize mxfp8 of=x g=4 m=40 k=64", "options.kernel is 'k'", -1,
         QUERN_BACKEND_HOST, 0, 0, 0, "k"},
    };
    struct quern_context *ctx = api_open();

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
        struct quern_plan *plan = NULL;

        o.device = wrong[i].device;
        o.backend = wrong[i].backend;
        o.sms = wrong[i].sms;
        o.tune_ms = wrong[i].tune_ms;
        o.streams = wrong[i].streams;
        o.kernel = wrong[i].kernel;
        if (!quern_plan_create(ctx, wrong[i].line, &o, &plan))
            fail_msg("not refused: %s", wrong[i].part);
        test_expect(quern_plan_create(ctx, wrong[i].line, &o, &plan),
                    QUERN_EINVAL, wrong[i].part);
        test_expect(quern_plan_get(ctx, wrong[i].line, &o, NULL, &plan),
                    QUERN_EINVAL, wrong[i].part);
        assert_null(plan);
    }
    quern_close(ctx);
}

/* A line is refused by its word, the code that reads it. */
TEST(refuses_lines)
{
    static const char *const wrong[][2] = {
        {"", ""},
        {"fprop", ""},
        {"frpop bf16 g=4 m=40 n=64 k=64", "frpop"},
        {"fprop bf61 g=4 m=40 n=64 k=64", "bf61"},
        {"fprop bf16 g=4 m=40 n=64 k=64 betta=1", "betta"},
        {"fprop bf16 g=0 m=40 n=64 k=64", "g"},
        {"mlp bf16 g=4 m=40 hidden=64", "ffn"},
        {"quantize mxfp8 of=z g=4 m=40 k=64", "z"},
        {"fprop bf16 g=4 m=99999999999 n=64 k=64", "m"}};
    struct quern_context *ctx = api_open();
    struct quern_plan *plan = NULL;
    struct quern_operand *table;
    char line[64];
    int count;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *text = wrong[i][0], *part = wrong[i][1];

        test_expect(quern_plan_create(ctx, text, NULL, &plan), QUERN_EINVAL,
                    part);
        test_expect(quern_plan_get(ctx, text, NULL, NULL, &plan), QUERN_EINVAL,
                    part);
        test_expect(quern_describe(ctx, text, &table, &count), QUERN_EINVAL,
                    part);
        test_expect(quern_format(ctx, text, line, sizeof line, NULL),
                    QUERN_EINVAL, part);
    }
    quern_close(ctx);
}
