/* SPDX-License-Identifier: Apache-2.0 */
/* test_cublaslt_groups.c: groups in one call of cuBLASLt, where it has that.
   Their values are compared in test_cublaslt.c. */
#include "test_cublaslt.h"

/* A plan over a library that multiplies groups in one call, and a run's
   arguments. */
static struct qn_plan *make_plan(struct quern_context *ctx,
                                 const struct form *f, int streams,
                                 struct run *r)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_CUBLASLT,
                                            .streams = streams};
    struct qn_plan *plan;

    test_cublaslt->groups = 1;
    test_prepare(ctx, f, r);
    test_expect(qn_plan(ctx, &r->p, &options, &plan), QUERN_OK, "");
    return plan;
}

static const char *name_of(const struct qn_plan *plan)
{
    struct quern_plan_info info;

    qn_plan_info(plan, &info);
    return info.kernel;
}

static size_t workspace_of(const struct qn_plan *plan)
{
    struct quern_plan_info info;

    qn_plan_info(plan, &info);
    return info.workspace_bytes;
}

/* One launch that brings the arrays, one product; nothing is allocated, and
   the second run knows the algorithm. */
TEST(multiplies_once)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct run r;
    int stream, found;

    plan = make_plan(ctx, &test_plain, 0, &r);
    assert_string_equal(name_of(plan), "cublasLt 13.1.2, grouped");
    assert_int_equal(workspace_of(plan), (32 << 20) + 256 + 256 + 512 + 256);
    test_cuda->launches = test_cublaslt->products = 0;
    test_fail_allocation(0);
    test_expect(qn_run(plan, &r.args, &stream), QUERN_OK, "");
    assert_int_equal(test_fail_allocation(0), 0);
    assert_int_equal(test_cuda->launches, 1);
    assert_string_equal(test_cuda->trail[0].kernel, "k_sizes");
    assert_ptr_equal(test_cuda->trail[0].stream, &stream);
    assert_int_equal(test_cublaslt->products, 1);
    assert_int_equal(test_cublaslt->batch, 4); /* of five one is empty */
    assert_ptr_equal(test_cublaslt->stream, &stream);
    assert_int_equal(test_cublaslt->averages[0], 7); /* k, n, m */
    assert_int_equal(test_cublaslt->averages[1], 5);
    assert_int_equal(test_cublaslt->averages[2], 4); /* 15 rows in 4 groups */
    assert_int_equal(test_cublaslt->alignments[0], 2);
    found = test_cublaslt->heuristics;
    test_expect(qn_run(plan, &r.args, &stream), QUERN_OK, "");
    assert_int_equal(test_cublaslt->heuristics, found);
    assert_null(test_cublaslt->broken);
    qn_plan_free(plan);
    qn_close(ctx);
}

/* All groups empty: nothing to write, nothing to multiply. */
TEST(multiplies_nothing)
{
    static const int64_t none[GROUPS];
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct run r;

    plan = make_plan(ctx, &test_plain, 0, &r);
    r.args.host_sizes = none;
    test_cuda->launches = test_cublaslt->products = 0;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 0);
    assert_int_equal(test_cublaslt->products, 0);
    qn_plan_free(plan);
    qn_close(ctx);
}

/* More words than one launch carries. */
TEST(many_groups_take_several_launches)
{
    static const char text[] = "fprop bf16 g=200 m=400 n=5 k=7";
    static int64_t sizes[200];
    struct quern_context *ctx = test_open();
    struct qn_args args = test_args(ctx, text);
    struct qn_plan *plan;

    test_cublaslt->groups = 1;
    plan = test_plan(ctx, text, &test_options);
    for (int i = 0; i < 200; i++)
        sizes[i] = i % 3;
    free((void *)(uintptr_t)args.a.first_dims);
    args.a.first_dims = NULL;
    free(args.workspace);
    args.workspace = test_workspace;
    args.host_sizes = sizes;
    test_cuda->launches = test_cublaslt->products = 0;
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_int_equal(test_cublaslt->batch, 133);
    assert_int_equal(test_cublaslt->products, 1);
    assert_int_equal(test_cuda->launches, (133 * 15 + 511) / 512);
    args.workspace = NULL;
    test_args_free(&args);
    qn_plan_free(plan);
    qn_close(ctx);
}

/* Who asks for streams gets them; one alpha for each group goes one by one. */
TEST(else_goes_one_by_one)
{
    struct quern_context *ctx = test_open();
    struct form f = test_plain;
    struct qn_plan *plan;
    struct run r;

    plan = make_plan(ctx, &f, 2, &r);
    assert_string_equal(name_of(plan), "cublasLt 13.1.2");
    qn_plan_free(plan);
    f.alpha = 1;
    f.scalars = GROUPS;
    plan = make_plan(ctx, &f, 0, &r);
    assert_string_equal(name_of(plan), "cublasLt 13.1.2, grouped");
    test_cublaslt->products = 0;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cublaslt->products, 4);
    qn_plan_free(plan);
    f = test_plain;
    f.ragged = QUERN_AXIS_NONE;
    plan = make_plan(ctx, &f, 0, &r);
    assert_string_equal(name_of(plan), "cublasLt 13.1.2");
    qn_plan_free(plan);
    qn_close(ctx);
}

/* Sizes, and so what they are written as, would be frozen. */
TEST(captures_only_fixed_sizes)
{
    struct quern_context *ctx = test_open();
    struct form f = test_plain;
    struct qn_plan *plan;
    struct run r;

    plan = make_plan(ctx, &f, 0, &r);
    test_cuda->capture_status = 1;
    test_cuda->launches = 0;
    test_expect(qn_run(plan, &r.args, &r), QUERN_ECAPTURE, "sizes=fixed");
    assert_int_equal(test_cuda->launches, 0);
    test_cuda->capture_status = 0;
    qn_plan_free(plan);
    f.sizes = QUERN_SIZES_FIXED;
    plan = make_plan(ctx, &f, 0, &r);
    test_cuda->capture_status = 1;
    test_expect(qn_run(plan, &r.args, &r), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 1);
    test_cuda->capture_status = 0;
    qn_plan_free(plan);
    qn_close(ctx);
}

TEST(says_so)
{
    struct quern_context *ctx = test_open();
    struct qn_problem p =
        test_problem(ctx, "fprop bf16 g=8 m=1000 n=512 k=256");
    char *text;

    test_cublaslt->groups = 1;
    test_expect(qn_why(ctx, &p, &test_options, NULL, &text), QUERN_OK, "");
    assert_non_null(strstr(text, "> cublasLt 13.1.2, grouped"));
    assert_non_null(strstr(text, "all groups in one call"));
    quern_free(text);
    test_cublaslt->groups = 0;
    test_expect(qn_why(ctx, &p, &test_options, NULL, &text), QUERN_OK, "");
    assert_null(strstr(text, "grouped"));
    assert_int_equal(test_cublaslt->contexts, 0);
    quern_free(text);
    qn_close(ctx);
}

/* If a call fails, the run says so or the plan does without. */
TEST(every_call_fails_once)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct run r;
    int calls;

    plan = make_plan(ctx, &test_plain, 0, &r);
    test_cublaslt->calls = 0;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    calls = test_cublaslt->calls;
    assert_true(calls > 4);
    test_cublaslt->fail_status = 999;
    for (int i = 1; i <= calls; i++) {
        test_cublaslt->calls = 0;
        test_cublaslt->fail_at = i;
        r.args.a.stride = 7 + i; /* an algorithm that is not known yet */
        test_expect(qn_run(plan, &r.args, NULL), QUERN_ECUDA,
                    "the test's error");
    }
    test_cublaslt->fail_at = 0;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    test_cuda->calls = 0;
    test_cuda->fail_code = 999;
    test_cuda->fail_at = 1;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_ECUDA, "");
    test_cuda->fail_at = 0;
    qn_plan_free(plan);
    qn_close(ctx);
}
