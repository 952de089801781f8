/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_infer.c: problems from tensors and the axes to be summed.
**
** A tensor is written as TYPE SHAPE SUMMED ARRAYS, e.g. "bf16 100x30 1:2 f":
** axes 1 up to 2 are summed, and it has first_dims (f), last_dims (l) or
** offsets (o). The recipe bf16 has one type; mixed has f16 for x, bf16 for w
** and f32 for dy. There are 5 groups.
*/
#include "test.h"

#include "base/context.h"
#include "base/types.h"

#include <stdio.h>

static struct quern_shape parse(const char *text)
{
    struct quern_shape s = {.ndim = 0};
    char type[16] = "", shape[128] = "", sum[16] = "", arrays[8] = "";
    char *at = shape;

    if (!*text)
        return s;
    assert_true(sscanf(text, "%15s %127s %15s %7s", type, shape, sum, arrays) >=
                2);
    assert_true(qn_type_find(type, &s.type) || !strcmp(type, "none"));
    for (; *at; at += *at == 'x') {
        if (s.ndim < QUERN_MAX_RANK)
            s.shape[s.ndim] = strtoll(at, &at, 10);
        else
            strtoll(at, &at, 10);
        s.ndim++;
    }
    sscanf(sum, "%d:%d", &s.sum_begin, &s.sum_end);
    s.first_dims = strchr(arrays, 'f') != NULL;
    s.last_dims = strchr(arrays, 'l') != NULL;
    s.offsets = strchr(arrays, 'o') != NULL;
    return s;
}

static int infer(struct quern_context *ctx, const char *recipe, const char *a,
                 const char *b, const char *d, struct qn_problem *p)
{
    const struct qn_contraction c = {.recipe = recipe,
                                     .groups = 5,
                                     .a = parse(a),
                                     .b = parse(b),
                                     .d = parse(d)};

    return qn_infer(ctx, &c, p);
}

TEST(finds_the_problem)
{
    static const struct {
        const char *recipe, *a, *b, *d, *problem;
    } rows[] = {
        /* a layer's three products, as they are stored */
        {"bf16", "bf16 100x30 1:2 f", "bf16 5x20x30 2:3", "",
         "fprop bf16 g=5 m=100 n=20 k=30 d=bf16"},
        {"bf16", "bf16 100x20 1:2 f", "bf16 5x20x30 1:2", "",
         "dgrad bf16 g=5 m=100 n=30 k=20 d=bf16"},
        {"bf16", "bf16 100x20 0:1 f", "bf16 100x30 0:1 f", "",
         "wgrad bf16 g=5 m=20 n=30 k=100 d=bf16"},
        /* the types tell the op, for any layout */
        {"mixed", "f16 100x30 1:2 f", "bf16 5x30x20 1:2", "",
         "fprop mixed g=5 m=100 n=20 k=30 d=f32 layout=nn"},
        {"mixed", "f32 100x30 1:2 f", "bf16 5x20x30 2:3", "",
         "dgrad mixed g=5 m=100 n=20 k=30 d=f32 layout=tn"},
        {"mixed", "f32 100x30 1:2 f", "f16 5x20x30 2:3", "",
         "wgrad mixed g=5 m=100 n=20 k=30 d=f32 layout=tn ragged=m"},
        {"mixed", "f32 5x30x100 1:2", "f16 5x20x30 2:3", "",
         "wgrad mixed g=5 m=100 n=20 k=30 d=f32 layout=tt ragged=none"},
        /* lengths of the last axis, of either operand */
        {"bf16", "bf16 30x100 0:1 l", "bf16 5x20x30 2:3", "",
         "fprop bf16 g=5 m=100 n=20 k=30 d=bf16 layout=tt"},
        {"bf16", "bf16 5x20x30 2:3", "bf16 100x30 1:2 f", "",
         "fprop bf16 g=5 m=20 n=100 k=30 d=bf16 ragged=n"},
        {"bf16", "bf16 5x20x30 2:3", "bf16 30x100 0:1 l", "",
         "dgrad bf16 g=5 m=20 n=100 k=30 d=bf16 ragged=n"},
        {"bf16", "bf16 20x100 1:2 l", "bf16 30x100 1:2 l", "",
         "wgrad bf16 g=5 m=20 n=30 k=100 d=bf16 layout=tn"},
        {"bf16", "bf16 20x100 1:2 l", "bf16 100x30 0:1 f", "",
         "wgrad bf16 g=5 m=20 n=30 k=100 d=bf16 layout=nn"},
        /* without lengths offsets are of the first axis */
        {"bf16", "bf16 100x30 1:2 o", "bf16 5x20x30 2:3", "",
         "fprop bf16 g=5 m=100 n=20 k=30 d=bf16"},
        {"bf16", "bf16 20x100 1:2 lo", "bf16 100x30 0:1 o", "",
         "wgrad bf16 g=5 m=20 n=30 k=100 d=bf16 layout=nn"},
        /* no sizes: a uniform batch */
        {"bf16", "bf16 5x100x30 2:3", "bf16 5x20x30 2:3", "",
         "fprop bf16 g=5 m=100 n=20 k=30 d=bf16 ragged=none"},
        {"bf16", "bf16 5x30x100 1:2", "bf16 5x30x20 1:2", "",
         "wgrad bf16 g=5 m=100 n=20 k=30 d=bf16 ragged=none"},
        /* more axes collapse at the boundary */
        {"bf16", "bf16 10x10x3x10 2:4 f", "bf16 5x4x5x3x10 3:5", "",
         "fprop bf16 g=5 m=100 n=20 k=30 d=bf16"},
        {"bf16", "bf16 10x10x4x5 0:2 f", "bf16 10x10x30 0:2 f", "",
         "wgrad bf16 g=5 m=20 n=30 k=100 d=bf16"},
        {"bf16", "bf16 2x2x25x1x1x1x30x1 6:8 f", "bf16 5x30x1x20 1:3", "",
         "dgrad bf16 g=5 m=100 n=20 k=30 d=bf16"},
        /* no axes but the summed ones */
        {"bf16", "bf16 5x30 1:2", "bf16 5x20x30 2:3", "",
         "fprop bf16 g=5 m=1 n=20 k=30 d=bf16 ragged=none"},
        {"bf16", "bf16 100 0:1 f", "bf16 100x30 0:1 f", "",
         "wgrad bf16 g=5 m=1 n=30 k=100 d=bf16"},
        {"bf16", "bf16 100 0:1 l", "bf16 100 0:1 l", "",
         "wgrad bf16 g=5 m=1 n=1 k=100 d=bf16 layout=tn"},
        /* what is said of D agrees */
        {"bf16", "bf16 100x30 1:2 f", "bf16 5x20x30 2:3", "f32 100x20 0:0 f",
         "fprop bf16 g=5 m=100 n=20 k=30 d=f32"},
        {"bf16", "bf16 10x10x30 2:3 f", "bf16 5x4x5x30 3:4",
         "none 10x10x4x5 0:0 o", "fprop bf16 g=5 m=100 n=20 k=30 d=bf16"},
        {"bf16", "bf16 5x20x30 2:3", "bf16 100x30 1:2 f", "bf16 20x100 0:0 l",
         "fprop bf16 g=5 m=20 n=100 k=30 d=bf16 ragged=n"},
        {"bf16", "bf16 100x20 0:1 f", "bf16 100x30 0:1 f", "f32 5x2x10x3x10",
         "wgrad bf16 g=5 m=20 n=30 k=100 d=f32"},
        {"bf16", "bf16 100 0:1 f", "bf16 100 0:1 f", "f32 5",
         "wgrad bf16 g=5 m=1 n=1 k=100 d=f32"},
        {"bf16", "bf16 0x30 1:2 f", "bf16 5x20x30 2:3", "bf16 0x20",
         "fprop bf16 g=5 m=0 n=20 k=30 d=bf16"},
    };
    struct quern_context *ctx = test_open();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct qn_problem p, again;
        char text[512];

        test_expect(
            infer(ctx, rows[i].recipe, rows[i].a, rows[i].b, rows[i].d, &p),
            QUERN_OK, "");
        qn_problem_print(&p, text, sizeof text);
        assert_string_equal(text, rows[i].problem);
        again = test_problem(ctx, text);
        assert_memory_equal(&p, &again, sizeof p);
    }
    qn_close(ctx);
}

TEST(names_contradictions)
{
    static const char good_a[] = "bf16 100x30 1:2 f",
                      good_b[] = "bf16 5x20x30 2:3";
    static const struct {
        const char *a, *b, *d, *part;
    } rows[] = {
        /* shapes */
        {"", good_b, "", "a.ndim is 0: 1 to 8 are possible"},
        {"bf16 1x1x1x1x1x1x1x1x30 8:9 f", good_b, "", "a.ndim is 9"},
        {good_a, "", "", "b.ndim is 0: 1 to 8"},
        {"bf16 -1x30 1:2 f", good_b, "", "a.shape[0] is -1: lengths are 0"},
        {"bf16 4294967296x4294967296x30 2:3 f", good_b, "",
         "a.shape[1] is 4294967296: lengths are 0 or more, and their product"},
        {"bf16 4294967296x30 1:2 f", good_b, "", "m=4294967296: 0 to"},
        {"bf16 100x0 1:2 f", "bf16 5x20x0 2:3", "", "k=0: 1 to"},
        {good_a, "bf16 5x0x30 2:3", "", "n=0: 1 to"},
        /* sizes */
        {"bf16 100x30 1:2 fl", good_b, "",
         "a has first_dims and last_dims: one axis"},
        {"bf16 100x30 1:2", good_b, "",
         "a.shape[0] is 100: without first_dims, last_dims and offsets, a's "
         "first axis counts the groups, 5"},
        {good_a, "bf16 4x20x30 2:3", "", "b.shape[0] is 4: without first_dims"},
        {good_a, "bf16 100x30 1:2 f", "",
         "a and b are both ragged along axes that are not summed"},
        {good_a, "bf16 20x30 1:2 l", "",
         "b is ragged along the summed axes and a is not"},
        {"bf16 100x20 0:1 f", "bf16 5x100x30 1:2", "",
         "a is ragged along the summed axes and b is not"},
        {"bf16 20x100 1:2 l", "bf16 5x30x100 2:3", "",
         "a is ragged along the summed axes and b is not"},
        /* summed axes */
        {"bf16 100x30 1:1 f", good_b, "",
         "a.sum_begin is 1 and a.sum_end 1: one or more axes from 0 to 1"},
        {"bf16 100x30 1:3 f", good_b, "", "a.sum_end 3"},
        {"bf16 100x30 -1:2 f", good_b, "", "a.sum_begin is -1"},
        {"bf16 100x30 2:1 f", good_b, "", "a.sum_begin is 2 and a.sum_end 1"},
        {good_a, "bf16 5x20x30 0:1", "",
         "b.sum_begin is 0 and b.sum_end 1: one or more axes from 1 to 2 must "
         "be summed; axis 0 counts the groups"},
        {"bf16 10x30x10 1:2 f", good_b, "",
         "a's summed axes 1 to 1 have others on both sides"},
        {good_a, "bf16 5x4x30x5 2:3", "",
         "b's summed axes 2 to 2 have others on both sides"},
        {"bf16 100x3x10 1:3 f", good_b, "",
         "a sums 2 axes and b 1: the same ones"},
        {"bf16 100x31 1:2 f", good_b, "",
         "a.shape[1] is 31 and b.shape[2] 30: summed axes have the same"},
        {"bf16 100x3x10 1:3 f", "bf16 5x20x10x3 2:4", "",
         "a.shape[1] is 3 and b.shape[2] 10"},
        /* types */
        {"f16 100x30 1:2 f", good_b, "",
         "a.type is f16 and b.type bf16: recipe bf16 has bf16 for x"},
        {good_a, "f32 5x20x30 2:3", "", "b.type f32: recipe bf16 has"},
        {good_a, good_b, "f16 100x20", "d=f16: recipe bf16 writes bf16, f32"},
        /* D */
        {good_a, good_b, "bf16 100x20 1:2", "d.sum_begin is 1 and d.sum_end 2"},
        {good_a, good_b, "bf16 100x21",
         "d.shape has no boundary between m=100 "
         "rows and n=20 columns"},
        {good_a, good_b, "bf16 20x100", "d.shape has no boundary"},
        {good_a, good_b, "bf16 5x20x100", "d.shape has no boundary"},
        {good_a, good_b, "bf16 1x1x1x1x1x1x1x100x20", "d.ndim is 9"},
        {good_a, good_b, "bf16 100x20 0:0 l",
         "d.last_dims is given: the product is ragged along m, so D is split "
         "by rows"},
        {"bf16 5x20x30 2:3", "bf16 100x30 1:2 f", "bf16 20x100 0:0 f",
         "d.first_dims is given: the product is ragged along n, so D is split "
         "by columns"},
        {"bf16 100x20 0:1 f", "bf16 100x30 0:1 f", "bf16 5x20x30 0:0 f",
         "d.first_dims is given: the product is ragged along k, so D is a "
         "matrix for each group"},
        {"bf16 100x20 0:1 f", "bf16 100x30 0:1 f", "bf16 5x20x30 0:0 o",
         "d.offsets is given: the product is ragged along k"},
        {"bf16 100x20 0:1 f", "bf16 100x30 0:1 f", "bf16 20x30",
         "d.shape[0] is 20: D is a matrix for each group, so its first axis "
         "counts the groups, 5"},
    };
    struct quern_context *ctx = test_open();
    struct qn_problem p = {.m = 77};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        test_expect(infer(ctx, "bf16", rows[i].a, rows[i].b, rows[i].d, &p),
                    QUERN_EINVAL, rows[i].part);
    assert_int_equal(p.m, 77);
    qn_close(ctx);
}

/* Invalid shapes. */
TEST(checks_the_rest)
{
    struct quern_context *ctx = test_open();
    struct qn_contraction good = {.recipe = "bf16",
                                  .groups = 5,
                                  .a = parse("bf16 100x30 1:2 f"),
                                  .b = parse("bf16 5x20x30 2:3")};
    struct qn_contraction c = good;
    struct qn_problem p;

    c.alpha = 1;
    c.beta = QUERN_BETA_ANY;
    c.alignment = 4;
    test_expect(qn_infer(ctx, &c, &p), QUERN_OK, "");
    assert_int_equal(p.alpha, 1);
    assert_int_equal(p.beta, QUERN_BETA_ANY);
    assert_int_equal(p.alignment, 4);
#define BREAK(change, part)                                                    \
    TEST_BROKEN(c, good, change, qn_infer(ctx, &c, &p), part)
    BREAK(c.groups = 0, "g=0: 1 to 1024 groups");
    BREAK(c.groups = 1025, "g=1025: 1 to 1024 groups");
    BREAK(c.alpha = 2, "alpha is 2");
    BREAK(c.beta = -1, "beta is -1");
    BREAK(c.alignment = 3, "align=3");
    BREAK(c.recipe = NULL, "contraction.recipe is NULL");
    BREAK(c.recipe = "bf61", "recipe 'bf61' is unknown; did you mean 'bf16'?");
#undef BREAK
    test_expect(qn_infer(NULL, &c, &p), QUERN_EINVAL, "ctx is NULL");
    test_expect(qn_infer(ctx, NULL, &p), QUERN_EINVAL, "contraction is NULL");
    test_expect(qn_infer(ctx, &c, NULL), QUERN_EINVAL, "problem is NULL");
    qn_close(ctx);
}
