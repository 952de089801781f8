/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_problem.c: problems as text, their rules, and what describe says.
*/
#include "test.h"
#include "old_spellings.h"
#include "problem/problem.h"

TEST(parses_defaults)
{
    struct quern_context *ctx = test_open();
    struct qn_problem p =
        test_problem(ctx, "fprop bf16 g=8 m=4096 n=2048 k=7168");

    assert_string_equal(p.recipe, "bf16");
    assert_int_equal(p.op, QUERN_FPROP);
    assert_int_equal(p.ragged, QUERN_AXIS_M);
    assert_int_equal(p.a_major, QUERN_MAJOR_K);
    assert_int_equal(p.b_major, QUERN_MAJOR_K);
    assert_int_equal(p.d_type, QUERN_BF16);
    assert_int_equal(p.groups, 8);
    assert_int_equal(p.m, 4096);
    assert_int_equal(p.n, 2048);
    assert_int_equal(p.k, 7168);
    p = test_problem(ctx, "dgrad bf16 g=1 m=0 n=8 k=8");
    assert_int_equal(p.ragged, QUERN_AXIS_M);
    assert_int_equal(p.a_major, QUERN_MAJOR_K);
    assert_int_equal(p.b_major, QUERN_MAJOR_MN);
    p = test_problem(ctx, "wgrad mixed g=1 m=8 n=8 k=0");
    assert_int_equal(p.ragged, QUERN_AXIS_K);
    assert_int_equal(p.a_major, QUERN_MAJOR_MN);
    assert_int_equal(p.b_major, QUERN_MAJOR_MN);
    assert_int_equal(p.d_type, QUERN_F32);
    qn_close(ctx);
}

TEST(prints_what_it_parses)
{
    static const struct {
        const char *given, *printed;
    } rows[] = {
        {"fprop bf16 g=8 m=4096 n=2048 k=7168",
         "fprop bf16 g=8 m=4096 n=2048 k=7168 d=bf16"},
        {"  fprop\tbf16 k=7168 n=1 m=0\n g=1 d=f32 ",
         "fprop bf16 g=1 m=0 n=1 k=7168 d=f32"},
        {"wgrad bf16 g=3 m=8 n=8 k=10 layout=tt ragged=none split=even",
         "wgrad bf16 g=3 m=8 n=8 k=10 d=bf16 layout=tt ragged=none split=even"},
        {"dgrad bf16 g=2 m=8 n=8 k=9 layout=nn ragged=m split=8,0",
         "dgrad bf16 g=2 m=8 n=8 k=9 d=bf16 split=8,0"},
        {"wgrad bf16 g=2 m=8 n=8 k=8 beta=1 alpha=any align=2",
         "wgrad bf16 g=2 m=8 n=8 k=8 d=bf16 alpha=any beta=1 align=2"},
        {"fprop bf16 g=2 m=8 n=8 k=8 pointers=b",
         "fprop bf16 g=2 m=8 n=8 k=8 d=bf16 pointers=b"},
        {"wgrad bf16 g=2 m=8 n=8 k=8 pointers=dc beta=any",
         "wgrad bf16 g=2 m=8 n=8 k=8 d=bf16 beta=any pointers=cd"},
        {"fprop bf16 beta=any alpha=1 align=16 g=2 m=8 n=8 k=8",
         "fprop bf16 g=2 m=8 n=8 k=8 d=bf16 beta=any"},
        {"fprop bf16 g=2 m=8 n=8 k=8 ragged=n layout=tt beta=0 align=8",
         "fprop bf16 g=2 m=8 n=8 k=8 d=bf16 layout=tt ragged=n align=8"},
        {"fprop bf16 g=2 m=8 n=32 k=8 saved=1 prob=1 interleave=8 bias=1 "
         "activation=clamped_swiglu alpha=any split=even",
         "fprop bf16 g=2 m=8 n=32 k=8 d=bf16 alpha=any bias=1 "
         "activation=clamped_swiglu interleave=8 prob=1 saved=1 split=even"},
        {"fprop bf16 g=2 m=8 n=9 k=8 activation=squared_relu prob=0 bias=0",
         "fprop bf16 g=2 m=8 n=9 k=8 d=bf16 activation=squared_relu"},
        {"dgrad bf16 g=2 m=8 n=8 k=8 dbias=add dprob=1 prob=1 interleave=4 "
         "activation=geglu",
         "dgrad bf16 g=2 m=8 n=8 k=8 d=bf16 activation=geglu interleave=4 "
         "prob=1 dbias=add dprob=1"},
        {"dgrad bf16 g=2 m=8 n=7 k=8 dbias=1 dprob=0 activation=reglu",
         "dgrad bf16 g=2 m=8 n=7 k=8 d=bf16 activation=reglu dbias=1"},
        {"fprop bf16 g=2 m=8 n=8 k=8 split=@loads.txt",
         "fprop bf16 g=2 m=8 n=8 k=8 d=bf16 split=@loads.txt"},
    };
    struct quern_context *ctx = test_open();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct qn_problem p = test_problem(ctx, rows[i].given), again;
        char text[512], small[10];
        int need = qn_problem_print(&p, text, sizeof text);

        assert_string_equal(text, rows[i].printed);
        assert_int_equal(need, strlen(text));
        assert_int_equal(qn_problem_print(&p, small, sizeof small), need);
        assert_int_equal(strlen(small), sizeof small - 1);
        again = test_problem(ctx, text);
        assert_memory_equal(&p, &again, sizeof p);
    }
    qn_close(ctx);
}

TEST(names_what_is_wrong)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "the problem is empty; for example: fprop"},
        {"   ", "the problem is empty"},
        {"fporp bf16", "op 'fporp' is unknown; did you mean 'fprop'?"},
        {"fprop", "a recipe is expected after 'fprop'"},
        {"fprop g=8", "a recipe is expected after 'fprop'"},
        {"fprop bf61 g=1", "recipe 'bf61' is unknown; did you mean 'bf16'?; "
                           "known: bf16, fp16, mixed, group"},
        {"fprop xyzzyx g=1",
         "recipe 'xyzzyx' is unknown; known: bf16, fp16, mixed, group"},
        {"fprop bf16 m=1 n=1 k=1", "g= is missing"},
        {"fprop bf16 g=1 n=1 k=1", "m= is missing"},
        {"fprop bf16 g=1 m=1 k=1", "n= is missing"},
        {"fprop bf16 g=1 m=1 n=1", "k= is missing"},
        {"fprop bf16 g=1 g=1", "g= is given twice"},
        {"fprop bf16 g=", "'g=' has no value"},
        {"fprop bf16 g", "'g' has no value"},
        {"fprop bf16 layuot=tn",
         "'layuot' is unknown; did you mean 'layout'?; known: g= m="},
        {"fprop bf16 g=0 m=1 n=1 k=1", "g=0: 1 to 1024 groups are possible"},
        {"fprop bf16 g=1025 m=1 n=1 k=1", "g=1025: 1 to 1024"},
        {"fprop bf16 g=4294967297 m=1 n=1 k=1",
         "g=4294967297: at most 2147483647"},
        {"fprop bf16 g=1 m=x n=1 k=1", "m=x: a whole number"},
        {"fprop bf16 g=1 m=-1 n=1 k=1", "m=-1: a whole number"},
        {"fprop bf16 g=1 m=1e6 n=1 k=1", "m=1e6: a whole number"},
        {"fprop bf16 g=1 m=9999999999999999999 n=1 k=1", "at most 18 digits"},
        {"fprop bf16 g=1 m=1 n=0 k=1", "n=0: 1 to 2147483647"},
        {"fprop bf16 g=1 m=1 n=1 k=0", "k=0: 1 to 2147483647"},
        {"fprop bf16 g=1 m=1 n=1 k=2147483648", "k=2147483648: 1 to"},
        {"fprop bf16 g=1 m=1073741825 n=1 k=1",
         "m=1073741825: 0 to 1073741824 over all groups"},
        {"wgrad bf16 g=1 m=0 n=1 k=1", "m=0: 1 to 2147483647"},
        {"fprop bf16 g=1024 m=1 n=2147483647 k=2147483647",
         "B has more bytes than 64 bits count"},
        {"fprop bf16 g=1 m=1 n=1 k=1 d=bf61",
         "d=bf61: not a type; did you mean 'bf16'?"},
        {"fprop bf16 g=1 m=1 n=1 k=1 d=f16",
         "d=f16: recipe bf16 writes bf16, f32"},
        {"fprop bf16 g=1 m=1 n=1 k=1 layout=tx", "tn, nn, nt or tt"},
        {"fprop bf16 g=1 m=1 n=1 k=1 ragged=g", "m, n, k or none"},
        {"fprop bf16 g=2 m=3 n=7 k=32 ragged=none split=1,1",
         "split=1,1: no axis is ragged"},
        {"fprop bf16 g=2 m=3 n=7 k=32 ragged=none split=skew",
         "split=skew: no axis is ragged"},
        {"fprop bf16 g=2 m=3 n=7 k=32 ragged=none split=@file",
         "split=@file: no axis is ragged"},
        {"fprop bf16 g=1 m=1 n=1 k=1 alpha=2", "alpha=2: 1 or any is expected"},
        {"fprop bf16 g=1 m=1 n=1 k=1 beta=2", "beta=2: 0, 1 or any"},
        {"fprop bf16 g=1 m=1 n=1 k=1 bta=1", "did you mean 'beta'?"},
        {"fprop bf16 g=1 m=1 n=1 k=1 align=3", "align=3: 2, 4, 8 or 16"},
        {"fprop bf16 g=1 m=1 n=1 k=1 align=32", "align=32: 2, 4, 8 or 16"},
        {"fprop bf16 g=1 m=1 n=1 k=1 align=x", "align=x: 2, 4, 8 or 16"},
        {"fprop bf16 g=1 m=1 n=1 k=1 pointers=x", "letters of operands"},
        {"fprop bf16 g=1 m=1 n=1 k=1 pointers=a",
         "pointers=a: with ragged=m a has no group axis"},
        {"wgrad bf16 g=1 m=1 n=1 k=1 pointers=db", "with ragged=k b has no"},
        {"wgrad bf16 g=1 m=1 n=1 k=1 pointers=c beta=1",
         "pointers=c: beta=1 has no C of its own"},
        {"wgrad bf16 g=1 m=1 n=1 k=@sizes", "k=@sizes: a whole number"},
        {"fprop bf16 g=1 m=1 n=2 k=1 activation=swigul",
         "activation=swigul: none, swiglu, clamped_swiglu, situ, geglu, reglu, "
         "squared_relu, relu, silu, gelu, gelu_tanh is expected; did you mean "
         "'swiglu'?"},
        {"fprop bf16 g=1 m=1 n=2 k=1 bias=2", "bias=2: 0 or 1 is expected"},
        {"fprop bf16 g=1 m=1 n=2 k=1 prob=1", "prob=1 needs an activation"},
        {"fprop bf16 g=1 m=1 n=2 k=1 saved=1 bias=1",
         "saved=1 needs an activation"},
        {"dgrad bf16 g=1 m=1 n=2 k=1 activation=swiglu saved=1",
         "saved=1: dgrad always reads pre"},
        {"dgrad bf16 g=1 m=1 n=8 k=1 activation=geglu interleave=3",
         "interleave=3 does not divide 8 results of a row"},
        {"dgrad bf16 g=1 m=1 n=1073741824 k=1 activation=geglu",
         "n=1073741824: D has 2*n columns"},
        {"wgrad bf16 g=1 m=1 n=2 k=1 activation=swiglu",
         "bias needs fprop, an activation fprop or dgrad"},
        {"fprop bf16 g=1 m=1 n=2 k=1 interleave=1",
         "interleave needs an activation"},
        {"fprop bf16 g=1 m=1 n=3 k=1 activation=geglu",
         "n=3: the two operands of an activation need an even number"},
        {"fprop bf16 g=1 m=1 n=8 k=1 activation=geglu interleave=3",
         "interleave=3 does not divide 4 results of a row"},
        {"fprop bf16 g=1 m=1 n=8 k=1 activation=geglu interleave=65537",
         "interleave=65537: 0 to 65536 is expected"},
        {"dgrad bf16 g=1 m=1 n=2 k=1 bias=1",
         "bias needs fprop, an activation fprop or dgrad, with ragged=m"},
        {"fprop bf16 g=1 m=1 n=2 k=1 ragged=none bias=1",
         "bias needs fprop, an activation fprop or dgrad, with ragged=m"},
        {"fprop bf16 g=1 m=1 n=2 k=1 beta=1 activation=swiglu",
         "a bias or an activation needs beta=0"},
        {"fprop bf16 g=1 m=1 n=1 k=1 pointers=p", "letters of operands"},
        {"fprop bf16 g=1 m=1 n=1 k=1 outside=0", "keep or zero is expected"},
        {"wgrad bf16 g=1 m=1 n=1 k=1 outside=zero",
         "outside=zero, ragged=k: all of D belongs to groups"},
        {"fprop bf16 g=1 m=1 n=1 k=1 ragged=none outside=zero",
         "outside=zero, ragged=none: all of D belongs to groups"},
        {"fprop bf16 g=2 m=9 n=1 k=1 split=zpif",
         "split=zpif is unknown; did you mean 'zipf'?"},
        {"fprop bf16 g=2 m=9 n=1 k=1 split=5,5", "more than m=9 together"},
        {"fprop bf16 g=2 m=9 n=1 k=1 split=5", "1 lengths for g=2 groups"},
        {"fprop bf16 g=2 m=9 n=1 k=1 split=5,", "whole numbers with commas"},
        {"fprop bf16 g=2 m=9 n=1 k=1 split=5;4", "whole numbers with commas"},
        {"fprop bf16 g=2 m=9 n=1 k=1 split=@", "split=@ is unknown"},
    };
    struct quern_context *ctx = test_open();
    struct qn_problem p = {.m = 77};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        test_expect(qn_problem_parse(ctx, rows[i].text, &p), QUERN_EINVAL,
                    rows[i].part);
    assert_int_equal(p.m, 77);
    qn_close(ctx);
}

TEST(refuses_long_words)
{
    struct quern_context *ctx = test_open();
    struct qn_problem p;
    char text[2000] = "fprop bf16 g=1 m=1 n=1 k=1 split=@";
    size_t length = strlen(text);

    memset(text + length, 'x', 280);
    test_expect(qn_problem_parse(ctx, text, &p), QUERN_EINVAL,
                "split: at most 255 characters");
    memset(text + length, 'x', 1000);
    test_expect(qn_problem_parse(ctx, text, &p), QUERN_EINVAL, "is too long");
    memset(text + 6, 'x', 50);
    text[56] = 0;
    test_expect(qn_problem_parse(ctx, text, &p), QUERN_EINVAL, "unknown");
    qn_close(ctx);
}

/* A problem need not come from text. */
TEST(checks_each_field)
{
    struct quern_context *ctx = test_open();
    struct qn_problem good =
        test_problem(ctx, "fprop bf16 g=8 m=4096 n=2048 k=7168");
    struct qn_problem p;
    struct qn_description need;

#define BREAK(change, part)                                                    \
    TEST_BROKEN(p, good, change, qn_problem_describe(ctx, &p, &need), part)
    BREAK(p.op = 3, "op is 3");
    BREAK(p.op = -1, "op is -1");
    BREAK(p.ragged = 4, "ragged is 4");
    BREAK(p.a_major = 2, "a_major is 2");
    BREAK(p.b_major = -1, "b_major is -1");
    BREAK(p.alpha = 2, "alpha is 2");
    BREAK(p.beta = 3, "beta is 3");
    BREAK(p.beta = -1, "beta is -1");
    BREAK(p.bias = 2, "bias is 2");
    BREAK(p.activation = QUERN_ACTIVATION_COUNT, "activation is 11");
    BREAK((p.activation = 1, p.interleave = -1), "interleave=-1: 0 to 65536");
    BREAK(p.pointers = 16, "pointers is 16");
    BREAK(p.pointers = -1, "pointers is -1");
    BREAK(p.alignment = 1, "align=1: 2, 4, 8 or 16");
    BREAK(p.d_type = 99, "d=?");
    BREAK(p.d_type = -1, "d=?");
    BREAK(p.groups = -1, "g=-1");
    BREAK(p.m = -1, "m=-1");
    BREAK(p.n = INT64_MAX, "n=9223372036854775807");
    BREAK(memset(p.recipe, 'x', sizeof p.recipe),
          "recipe is not NUL-terminated");
    BREAK(memset(p.split, 'x', sizeof p.split), "split is not NUL-terminated");
#undef BREAK
    qn_close(ctx);
}

static void check_tensor(const struct qn_tensor *t, int type, int ndim,
                         int64_t s0, int64_t s1, int64_t s2, size_t bytes)
{
    assert_int_equal(t->type, type);
    assert_int_equal(t->ndim, ndim);
    assert_int_equal(t->shape[0], s0);
    assert_int_equal(t->shape[1], s1);
    assert_int_equal(t->shape[2], s2);
    assert_int_equal(t->bytes, bytes);
    assert_int_equal(t->alignment, 16);
    assert_int_equal(t->stride, 0);
    assert_null(t->data);
}

TEST(describes_operands)
{
    struct quern_context *ctx = test_open();
    struct qn_problem p;
    struct qn_description need;

    p = test_problem(ctx, "fprop mixed g=5 m=100 n=20 k=30");
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    check_tensor(&need.args.a, QUERN_F16, 2, 100, 30, 0, 6000);
    check_tensor(&need.args.b, QUERN_BF16, 3, 5, 20, 30, 6000);
    check_tensor(&need.args.d, QUERN_F32, 2, 100, 20, 0, 8000);
    assert_int_equal(need.workspace_bytes, 256);
    p = test_problem(ctx, "dgrad mixed g=5 m=0 n=20 k=30");
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    check_tensor(&need.args.a, QUERN_F32, 2, 0, 30, 0, 0);
    check_tensor(&need.args.b, QUERN_BF16, 3, 5, 30, 20, 6000);
    check_tensor(&need.args.d, QUERN_F32, 2, 0, 20, 0, 0);
    p = test_problem(ctx, "wgrad mixed g=5 m=10 n=20 k=100");
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    check_tensor(&need.args.a, QUERN_F32, 2, 100, 10, 0, 4000);
    check_tensor(&need.args.b, QUERN_F16, 2, 100, 20, 0, 4000);
    check_tensor(&need.args.d, QUERN_F32, 3, 5, 10, 20, 4000);
    assert_int_equal(need.args.c.ndim, 0);
    p = test_problem(ctx, "wgrad mixed g=5 m=10 n=20 k=100 beta=any");
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    check_tensor(&need.args.c, QUERN_F32, 3, 5, 10, 20, 4000);
    p = test_problem(ctx, "fprop mixed g=5 m=10 n=100 k=30 ragged=n layout=nn");
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    check_tensor(&need.args.a, QUERN_F16, 3, 5, 10, 30, 3000);
    check_tensor(&need.args.b, QUERN_BF16, 2, 30, 100, 0, 6000);
    check_tensor(&need.args.d, QUERN_F32, 2, 10, 100, 0, 4000);
    p.alignment = 2;
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    assert_int_equal(need.args.a.alignment, 2);
    assert_int_equal(need.args.d.alignment, 4);
    p = test_problem(ctx, "fprop mixed g=5 m=10 n=20 k=30 ragged=none");
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    check_tensor(&need.args.a, QUERN_F16, 3, 5, 10, 30, 3000);
    qn_close(ctx);
}

/* A workspace that is too large to count stays too large. */
TEST(slices_are_aligned)
{
    size_t used = 256;

    (void)state;
    assert_int_equal(qn_space_add(&used, 0), 256);
    assert_int_equal(qn_space_add(&used, 1), 256);
    assert_int_equal(qn_space_add(&used, 256), 512);
    assert_int_equal(used, 768);
    qn_space_add(&used, SIZE_MAX - 768 - 255);
    assert_true(used == SIZE_MAX - 255);
    qn_space_add(&used, 1);
    assert_true(used == SIZE_MAX);
    qn_space_add(&used, 256);
    assert_true(used == SIZE_MAX);
}

TEST(opens_with_care)
{
    const struct quern_open_options negative = {.specs_count = -1};
    const char *folders[] = {NULL};
    const struct quern_open_options null = {.specs = folders, .specs_count = 1};
    struct quern_context *ctx = (void *)1;

    test_expect(qn_open(NULL, NULL), QUERN_EINVAL, "ctx is NULL");
    test_expect(qn_open(&negative, &ctx), QUERN_EINVAL, "specs_count");
    assert_null(ctx);
    test_expect(qn_open(&null, &ctx), QUERN_EINVAL, "specs[0] is NULL");
    qn_close(NULL);
    qn_plan_free(NULL);
    quern_free(NULL);
    assert_string_equal(quern_strerror(QUERN_OK), "success");
    for (int i = 0; i < QUERN_STATUS_COUNT; i++)
        assert_non_null(quern_strerror(i));
    assert_string_equal(quern_strerror(-1), "unknown code");
    assert_string_equal(quern_strerror(QUERN_STATUS_COUNT), "unknown code");
    assert_string_equal(quern_version(), QUERN_VERSION);
    assert_int_equal(test_count("gen open"), 0);
    assert_int_equal(test_count("nvrtc open"), 0);
}
