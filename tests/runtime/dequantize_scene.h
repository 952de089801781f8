/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize_scene.h: plans with dequantize passes, their arguments, and their
   launches. */
#pragma once

#include "dequantize_kernels.h"

enum { ROOM = 1 << 17, ROOMS = 12, WORKSPACE = 1 << 20 };

#include "plan_scene.h"

static struct fixture begin(const char *text)
{
    struct fixture f = plan_with(&registry, text, &test_aot);
    const int wgrad = test_problem(f.ctx, text).op == QUERN_WGRAD;

    assert_int_equal(f.info.workspace_bytes, f.need.workspace_bytes);
    f.args.a.first_dims = wgrad ? NULL : room(&f);
    f.args.a.last_dims = wgrad ? room(&f) : NULL;
    return f;
}

/* `bytes` at a multiple of 256 after the record, inside the workspace. */
static void in_scratch(const struct fixture *f, const void *at, size_t bytes)
{
    const char *const begin = at, *const first = f->workspace + 256;

    assert_true(begin >= first && (begin - f->workspace) % 256 == 0);
    assert_true(begin + bytes <= f->workspace + f->info.workspace_bytes);
}

/* A problem, the kernel that the options name, the one that runs, and a part
   of qn_why's text. */
struct decision {
    const char *text, *kernel, *runs, *why;
};

/* The problem runs by this kernel: *info is the plan's. */
static void expect_runs(struct quern_context *ctx, const struct qn_problem *p,
                        const struct qn_plan_options *options, const char *runs,
                        struct quern_plan_info *info)
{
    struct qn_plan *plan;

    test_expect(qn_plan(ctx, p, options, &plan), QUERN_OK, "");
    qn_plan_info(plan, info);
    assert_string_equal(info->kernel, runs);
    qn_plan_free(plan);
}

/* It is so, and qn_problem_describe's workspace is enough: *info is the plan's.
   Returns all that qn_why says, to be freed. */
static char *decide(struct quern_context *ctx, const struct decision *row,
                    struct quern_plan_info *info)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_AOT,
                                            .kernel = row->kernel};
    struct qn_problem p = test_problem(ctx, row->text);
    struct qn_description need;
    char *why;

    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    expect_runs(ctx, &p, &options, row->runs, info);
    assert_true(info->workspace_bytes <= need.workspace_bytes);
    test_expect(qn_why(ctx, &p, &options, NULL, &why), QUERN_OK, "");
    assert_non_null(strstr(why, row->why));
    return why;
}

/* Lines that are refused with a strategy, and a part of each message. */
struct refusal {
    const char *text, *says;
};
static void refuse_lines(struct quern_context *ctx, const struct refusal *rows,
                         size_t count, const char *strategy)
{
    struct qn_problem p;
    char text[160];

    for (size_t i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%s dequantize=%s", rows[i].text, strategy);
        test_expect(qn_problem_parse(ctx, text, &p), QUERN_EINVAL,
                    rows[i].says);
    }
}

/* Without kernel `lost` the problem runs by another one, unless it says
   `dequantize`: then it is refused, with `part`. Returns the workspace. */
static size_t fall_back(const char *lost, const char *text, const char *runs,
                        int dequantize, const char *part)
{
    struct qn_kernel left[sizeof kernels / sizeof *kernels];
    struct quern_registry fewer = test_without(&registry, lost, left);
    struct quern_context *ctx = test_open_with(&fewer);
    struct qn_problem p;
    struct quern_plan_info info;
    struct qn_plan *plan;

    p = test_problem(ctx, text);
    expect_runs(ctx, &p, &test_aot, runs, &info);
    p.dequantize = dequantize;
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL, part);
    assert_null(plan);
    qn_close(ctx);
    return info.workspace_bytes;
}

/* Every driver call of a run fails once: no launch follows the first that
   failed, and all is balanced. `launches`: of a run that succeeds. */
static void fail_driver_calls(const char *line, int launches)
{
    struct fixture f = begin(line);
    int n = 0, code;

    do {
        test_cuda->launches = test_cuda->calls = 0;
        test_cuda->fail_code = 999;
        test_cuda->failed = NULL;
        test_cuda->fail_at = ++n;
        code = qn_run(f.plan, &f.args, NULL);
        test_cuda->fail_at = 0;
        if (test_cuda->failed &&
            strcmp(test_cuda->failed, "cuCtxPopCurrent_v2"))
            assert_int_equal(code, QUERN_ECUDA);
        assert_true(!code || test_cuda->launches < launches);
        assert_int_equal(test_cuda->depth, 0);
    } while (test_cuda->failed);
    assert_true(n > launches); /* at least each launch */
    end(&f);
}

/* And every allocation of a plan, of which there are more than `least`. */
static void fail_allocations(const char *line, int least)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p = test_problem(ctx, line);
    struct qn_plan *plan;
    int code, n = 0;

    do {
        test_fail_allocation(++n);
        code = qn_plan(ctx, &p, &test_aot, &plan);
        test_fail_allocation(0);
        assert_true(code == QUERN_OK || code == QUERN_ENOMEM);
        assert_true(!plan == !!code);
    } while (code);
    assert_true(n > least);
    qn_plan_free(plan);
    qn_close(ctx);
}
