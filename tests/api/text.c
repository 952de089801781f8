/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: lines that quern_infer and quern_format write. */
#include "api.h"

#include "launches/lines.h"

enum { GROUPS = 4 };

/* A line means its text, which has one spelling. */
static void round_trip(struct quern_context *ctx, const char *line)
{
    char once[512], twice[512], cut[9];
    size_t length = 0, again = 0;
    struct qn_line a, b;

    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    test_expect(quern_format(ctx, line, once, sizeof once, &length), QUERN_OK,
                "");
    assert_int_equal(length, strlen(once));
    test_expect(quern_format(ctx, once, twice, sizeof twice, &again), QUERN_OK,
                "");
    assert_string_equal(once, twice);
    assert_int_equal(length, again);
    test_expect(qn_api_line(ctx, line, &a), QUERN_OK, "");
    test_expect(qn_api_line(ctx, once, &b), QUERN_OK, "");
    if (memcmp(&a, &b, sizeof a) && strncmp(line, "rescale", 7))
        fail_msg("'%s' and '%s' differ", line, once);
    test_expect(quern_format(ctx, line, cut, sizeof cut, &again), QUERN_OK, "");
    assert_int_equal(again, length);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_memory_equal(cut, once, sizeof cut - 1);
    test_expect(quern_format(ctx, line, NULL, 0, &again), QUERN_OK, "");
    assert_int_equal(again, length);
    test_expect(quern_format(ctx, line, cut, sizeof cut, NULL), QUERN_OK, "");
}

TEST(formats_lines)
{
    struct quern_context *ctx = api_open();
    struct api_line line = {.index = 0};
    char text[512];

    (void)state;
    while (api_line_next(ctx, GROUPS, 72, 64, &line))
        round_trip(ctx, line.text);
    api_line_enough(&line);
    for (int i = 0; launch_lines[i]; i++) {
        snprintf(text, sizeof text, "%.*s", (int)strcspn(launch_lines[i], "|"),
                 launch_lines[i]);
        if (!quern_format(ctx, text, NULL, 0, NULL)) /* some are refused */
            round_trip(ctx, text);
    }
    quern_close(ctx);
}

/* A word that is near none gets all of them, of lines of any kind. */
TEST(lists_first_words)
{
    struct quern_context *ctx = api_open();

    (void)state;
    test_expect(quern_format(ctx, "mpl bf16 g=1", NULL, 0, NULL), QUERN_EINVAL,
                "'mpl' begins no problem; known: fprop, dgrad, wgrad, "
                "quantize, transpose, dequantize, rescale, bias, mlp, route");
    test_expect(quern_format(ctx, "fporp bf16 g=1", NULL, 0, NULL),
                QUERN_EINVAL, "did you mean 'fprop'?");
    quern_close(ctx);
}

/* ------------------------------------------------------------------- infer */

#define FPROP                                                                  \
    {QUERN_BF16, 2, {40, 16}, 1, 0, 0, 1, 2},                                  \
    {                                                                          \
        QUERN_BF16, 3, {3, 32, 16}, 0, 0, 0, 2, 3                              \
    }
#define WGRAD                                                                  \
    {QUERN_BF16, 2, {40, 16}, 1, 0, 0, 0, 1},                                  \
    {                                                                          \
        QUERN_BF16, 2, {40, 32}, 1, 0, 0, 0, 1                                 \
    }
#define NONE                                                                   \
    {                                                                          \
        0, 0, {0}, 0, 0, 0, 0, 0                                               \
    }

static const struct {
    struct quern_contraction c;
    const char *line; /* NULL: it is refused, */
    const char *part; /* and this is why */
} inferred[] = {
    {{"bf16", 3, FPROP, NONE, NULL}, "fprop bf16 g=3 m=40 n=32 k=16", NULL},
    {{"bf16", 3, FPROP, NONE, ""}, "fprop bf16 g=3 m=40 n=32 k=16", NULL},
    {{"bf16", 3, FPROP, NONE, "beta=1"},
     "fprop bf16 g=3 m=40 n=32 k=16 beta=1",
     NULL},
    {{"bf16", 3, FPROP, NONE, "bias=1 activation=swiglu"},
     "fprop bf16 g=3 m=40 n=32 k=16 activation=swiglu bias=1",
     NULL},
    {{"bf16", 3, FPROP, {QUERN_F32, 2, {40, 32}, 1, 0, 0, 0, 0}, NULL},
     "fprop bf16 g=3 m=40 n=32 k=16 d=f32",
     NULL},
    {{"bf16", 3, WGRAD, {QUERN_F32, 0, {0}, 0, 0, 0, 0, 0}, "beta=1"},
     "wgrad bf16 g=3 m=16 n=32 k=40 d=f32 beta=1",
     NULL},
    {{"bf16", 3, FPROP, {0, 2, {41, 32}, 1, 0, 0, 0, 0}, NULL}, NULL, "m=40"},
    {{"bf16", 3, FPROP, {0, 2, {40, 33}, 1, 0, 0, 0, 0}, NULL}, NULL, "n=32"},
    {{"bf16", 3, FPROP, NONE, "betta=1"}, NULL, "betta"},
    {{"bf16", 3, WGRAD, NONE, "d=f32"}, NULL, "d= is given twice"},
    {{"bf16", 3, FPROP, NONE, "m=40"}, NULL, "m"},
    {{"bf16", 3, FPROP, NONE, "m=41"}, NULL, "m"},
    {{"bf16", 3, FPROP, NONE, "copies=both"}, NULL, "copies"},
    {{"bf61", 3, FPROP, NONE, NULL}, NULL, "bf61"},
    {{"bf16", 0, FPROP, NONE, NULL}, NULL, "groups"},
    {{"bf16", 4, FPROP, NONE, NULL}, NULL, "b.shape[0]"},
    {{"bf16", 3, FPROP, {0, 9, {40, 32}, 1, 0, 0, 0, 0}, NULL}, NULL, "ndim"},
};

TEST(infers_lines)
{
    struct quern_context *ctx = api_open();

    (void)state;
    for (size_t i = 0; i < sizeof inferred / sizeof inferred[0]; i++) {
        const struct quern_contraction *c = &inferred[i].c;
        char line[256] = "?", expected[256];
        size_t length = 0;

        if (!inferred[i].line) {
            test_expect(quern_infer(ctx, c, line, sizeof line, &length),
                        QUERN_EINVAL, inferred[i].part);
            assert_string_equal(line, "?");
            continue;
        }
        test_expect(quern_infer(ctx, c, line, sizeof line, &length), QUERN_OK,
                    "");
        test_expect(quern_format(ctx, inferred[i].line, expected,
                                 sizeof expected, NULL),
                    QUERN_OK, "");
        assert_string_equal(line, expected);
        assert_int_equal(length, strlen(line));
        test_expect(quern_infer(ctx, c, line, 6, NULL), QUERN_OK, "");
        assert_int_equal(strlen(line), 5);
        test_expect(quern_infer(ctx, c, NULL, 0, &length), QUERN_OK, "");
        assert_int_equal(length, strlen(expected));
    }
    quern_close(ctx);
}

/* --------------------------------------------------------------------- rest */

TEST(tells_codes)
{
    struct quern_context *ctx = api_open();
    char *why = NULL;

    (void)state;
#define MEANS(name, value, meaning)                                            \
    assert_string_equal(quern_strerror(value), meaning);
    QUERN_ERRORS(MEANS)
#undef MEANS
    assert_string_equal(quern_strerror(-1), "unknown code");
    assert_string_equal(quern_strerror(QUERN_STATUS_COUNT), "unknown code");
    assert_string_equal(quern_version(), QUERN_VERSION);
    for (int i = 0; i < QUERN_ARGS_COUNT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(qn_api_name(i), qn_api_name(j));
    for (const char *const *line =
             (const char *const[]){"fprop bf16 g=4 m=40 n=64 k=64",
                                   "quantize mxfp8 of=x g=4 m=40 k=64",
                                   "mlp bf16 g=4 m=40 hidden=64 ffn=64", NULL};
         *line; line++) {
        struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;

        o.backend = QUERN_BACKEND_HOST;
        test_expect(quern_why(ctx, *line, &o, &why), QUERN_OK, "");
        assert_non_null(strstr(why, "host"));
        quern_free(why);
    }
    quern_close(ctx);
}
