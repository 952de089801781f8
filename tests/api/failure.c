/* SPDX-License-Identifier: Apache-2.0 */
/* failure.c: each allocation fails once: the call says so, leaves nothing, and
   succeeds when it is made again. */
#include "api.h"

static struct quern_plan *plan;

static int create(struct quern_context *ctx, const char *line, int backend)
{
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    int code;

    o.backend = backend;
    code = quern_plan_create(ctx, line, &o, &plan);
    assert_true(!code == !!plan);
    quern_plan_destroy(plan);
    return code;
}

static int get(struct quern_context *ctx, const char *line, int backend)
{
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    int code;

    o.backend = backend;
    code = quern_plan_get(ctx, line, &o, NULL, &plan);
    assert_true(!code == !!plan);
    return code;
}

static int describe(struct quern_context *ctx, const char *line, int backend)
{
    struct quern_operand *table = NULL;
    int count = 0, code = quern_describe(ctx, line, &table, &count);

    (void)backend;
    assert_true(!code == !!table && !code == !!count);
    quern_free(table);
    return code;
}

static int format(struct quern_context *ctx, const char *line, int backend)
{
    char text[256];

    (void)backend;
    return quern_format(ctx, line, text, sizeof text, NULL);
}

static int infer(struct quern_context *ctx, const char *line, int backend)
{
    const struct quern_contraction c = {
        .recipe = "bf16",
        .groups = 3,
        .a = {QUERN_BF16, 2, {40, 16}, 1, 0, 0, 1, 2},
        .b = {QUERN_BF16, 3, {3, 32, 16}, 0, 0, 0, 2, 3},
        .keys = "beta=1"};
    char text[256];

    (void)line, (void)backend;
    return quern_infer(ctx, &c, text, sizeof text, NULL);
}

static int why(struct quern_context *ctx, const char *line, int backend)
{
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    char *text = NULL;
    int code;

    o.backend = backend;
    code = quern_why(ctx, line, &o, &text);
    assert_true(!code == !!text);
    quern_free(text);
    return code;
}

static int queue(struct quern_context *ctx, const char *line, int backend)
{
    struct quern_queue *made = NULL;
    int code = quern_queue_create(ctx, 8, &made);

    (void)line, (void)backend;
    assert_true(!code == !!made);
    quern_queue_destroy(made);
    return code;
}

#define PRODUCT "fprop mxfp8 g=4 m=40 n=64 k=64 copies=both"
#define CAST    "quantize mxfp8 of=x g=4 m=40 k=64"
#define MLP     "mlp mxfp8 g=4 m=40 hidden=64 ffn=64"

static const struct {
    int (*call)(struct quern_context *ctx, const char *line, int backend);
    const char *line;
    int backend;
} calls[] = {
    {create, PRODUCT, QUERN_BACKEND_HOST},
    {create, CAST, QUERN_BACKEND_HOST},
    {create, MLP, QUERN_BACKEND_HOST},
    {create, PRODUCT, QUERN_BACKEND_JIT},
    {get, PRODUCT, QUERN_BACKEND_HOST},
    {get, PRODUCT, QUERN_BACKEND_JIT},
    {get, CAST, QUERN_BACKEND_HOST},
    {describe, PRODUCT, 0},
    {describe, CAST, 0},
    {describe, MLP, 0},
    {format, PRODUCT, 0},
    {infer, "", 0},
    {why, PRODUCT, QUERN_BACKEND_HOST},
    {why, MLP, QUERN_BACKEND_HOST},
    {queue, "", 0},
};

/* Returns 0 once no allocation was left to fail. */
static int fail_once(int call, int n)
{
    struct quern_context *ctx = api_open();
    int code, made;

    plan = NULL;
    test_fail_allocation(n);
    code = calls[call].call(ctx, calls[call].line, calls[call].backend);
    made = test_fail_allocation(0);
    if (code && code != QUERN_ENOMEM && code != QUERN_ECOMPILE &&
        code != QUERN_EMISSING)
        fail_msg("call %d, allocation %d: %d, %s", call, n, code,
                 quern_errmsg());
    if (code) {
        assert_non_null(strchr(quern_errmsg(), ' '));
        plan = NULL;
        test_expect(
            calls[call].call(ctx, calls[call].line, calls[call].backend),
            QUERN_OK, "");
    }
    quern_close(ctx);
    assert_int_equal(test_cuda->libraries, 0);
    return code || made >= n;
}

TEST(survives_failing_allocations)
{
    int seen = 0;

    (void)state;
    for (int i = 0; i < (int)(sizeof calls / sizeof calls[0]); i++)
        for (int n = 1; fail_once(i, n); n++)
            seen++;
    print_message("  %d allocations\n", seen);
    assert_true(seen > 50);
}
