/* SPDX-License-Identifier: Apache-2.0 */
/* test_cublaslt_use.c: what a user of the backend cublaslt is told, what it
   keeps, and what happens when a call below it fails. */
#include "test_cublaslt.h"

#include "base/context.h"
#include "base/types.h"
#include "cublaslt/cublaslt.h"
#include "device/cuda_api.h"
#include "product/plan.h"

/* A plan and the arguments of a run. */
static struct qn_plan *make_plan(struct quern_context *ctx,
                                 const struct form *f, struct run *r)
{
    struct qn_plan *plan;

    test_prepare(ctx, f, r);
    test_expect(qn_plan(ctx, &r->p, &test_options, &plan), QUERN_OK, "");
    return plan;
}

TEST(describes_itself)
{
    struct quern_context *ctx = test_open();
    struct form f = test_plain;
    struct quern_plan_info info;
    struct qn_plan *plan;
    struct run r;

    plan = make_plan(ctx, &f, &r);
    qn_plan_info(plan, &info);
    assert_string_equal(info.kernel, "cublasLt 13.1.2");
    assert_int_equal(info.backend, QUERN_BACKEND_CUBLASLT);
    assert_int_equal(info.sms, 132);
    assert_int_equal(info.workspace_bytes, (32 << 20) + 256 + 256 + 256);
    assert_string_equal(qn_backend_name(info.backend), "cublaslt");
    assert_non_null(strstr(test_messages, "plan: cublasLt 13.1.2 on 132"));
    qn_plan_free(plan);
    f.ragged = QUERN_AXIS_K;
    f.beta = QUERN_BETA_ANY;
    plan = make_plan(ctx, &f, &r);
    qn_plan_info(plan, &info); /* 18 rows of 8 zeros, in whole 256 bytes */
    assert_int_equal(info.workspace_bytes, (32 << 20) + 4 * 256 + 256);
    qn_plan_free(plan);
    plan = test_plan(ctx, "fprop bf16 g=8 m=1000 n=512 k=256", NULL);
    qn_plan_info(plan, &info);
    assert_int_equal(info.workspace_bytes, 256);
    assert_int_not_equal(info.backend, QUERN_BACKEND_CUBLASLT);
    qn_plan_free(plan);
    qn_close(ctx);
}

/* One size for all: a single call. */
TEST(batches_uniform_groups)
{
    struct quern_context *ctx = test_open();
    struct form f = test_plain;
    struct qn_plan *plan;
    struct run r;

    f.ragged = QUERN_AXIS_NONE;
    plan = make_plan(ctx, &f, &r);
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cublaslt->products, 1);
    assert_int_equal(test_cublaslt->batch, GROUPS);
    assert_int_equal(test_cublaslt->device_scalars, 0);
    qn_plan_free(plan);
    f.alpha = 1;
    f.scalars = GROUPS;
    plan = make_plan(ctx, &f, &r);
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cublaslt->products, 1 + GROUPS);
    assert_int_equal(test_cublaslt->batch, 1);
    assert_int_equal(test_cublaslt->device_scalars, 1);
    assert_ptr_equal(test_cublaslt->alpha, &exact_alphas[GROUPS - 1]);
    assert_ptr_equal(test_cublaslt->beta,
                     test_workspace + 16 + 256 + sizeof(float));
    qn_plan_free(plan);
    qn_close(ctx);
}

/* Rows that start anywhere are said to, so that no algorithm trips. */
TEST(states_alignments)
{
    struct quern_context *ctx = test_open();
    struct form f = test_plain;
    struct qn_plan *plan;
    int stream;
    struct run r;

    plan = make_plan(ctx, &f, &r); /* the last group: row 11 of 7 and of 5 */
    test_expect(qn_run(plan, &r.args, &stream), QUERN_OK, "");
    assert_ptr_equal(test_cublaslt->stream, &stream);
    assert_int_equal(test_cublaslt->products, 4);
    assert_int_equal(test_cublaslt->alignments[0], 8); /* b: matrix 4 of 35 */
    assert_int_equal(test_cublaslt->alignments[1], 2); /* a: 77 elements */
    assert_int_equal(test_cublaslt->alignments[3], 2); /* d: 55 elements */
    qn_plan_free(plan);
    qn_close(ctx);
}

/* Nothing is looked for twice, nothing is allocated. */
TEST(remembers_algorithms)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct run r;
    int found;

    plan = make_plan(ctx, &test_plain, &r);
    test_cublaslt->heuristics = 0;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    found = test_cublaslt->heuristics;
    assert_int_equal(found, 4);
    test_fail_allocation(0);
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_int_equal(test_fail_allocation(0), 0);
    assert_int_equal(test_cublaslt->heuristics, found);
    r.args.a.stride = 8; /* other strides are another product */
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cublaslt->heuristics, 2 * found);
    assert_null(test_cublaslt->broken);
    qn_plan_free(plan);
    qn_close(ctx);
}

/* The table is bounded: more sizes than it holds are still right. */
TEST(forgets_algorithms)
{
    static const char text[] = "fprop bf16 g=3 m=2000 n=5 k=1";
    struct quern_context *ctx = test_open();
    struct qn_args args = test_args(ctx, text);
    struct qn_plan *plan = test_plan(ctx, text, &test_options);
    int64_t changing[3];

    free((void *)(uintptr_t)args.a.first_dims);
    args.a.first_dims = NULL;
    free(args.workspace);
    args.workspace = test_workspace;
    args.host_sizes = changing;
    for (int round = 0; round < 2; round++)
        for (int64_t i = 1; i <= 300; i++) {
            changing[0] = i;
            changing[1] = 600 - i;
            changing[2] = i % 7;
            test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
        }
    assert_null(test_cublaslt->broken);
    assert_true(test_cublaslt->heuristics > 600);
    args.workspace = NULL;
    test_args_free(&args);
    qn_plan_free(plan);
    qn_close(ctx);
}

TEST(targets_fewer_multiprocessors)
{
    const struct qn_plan_options some = {.backend = QUERN_BACKEND_CUBLASLT,
                                         .sms = 100};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct run r;

    plan = make_plan(ctx, &test_plain, &r);
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cublaslt->sms, 0);
    qn_plan_free(plan);
    test_expect(qn_plan(ctx, &r.p, &some, &plan), QUERN_OK, "");
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cublaslt->sms, 100);
    qn_plan_free(plan);
    qn_close(ctx);
}

/* A group past the end would write outside: nothing is queued at all. */
TEST(refuses_bad_sizes)
{
    int64_t bad[GROUPS];
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct run r;

    plan = make_plan(ctx, &test_plain, &r);
    r.args.host_sizes = bad;
#define SIZES(part, ...)                                                       \
    memcpy(bad, ((const int64_t[GROUPS]){__VA_ARGS__}), sizeof bad);           \
    test_expect(qn_run(plan, &r.args, NULL), QUERN_EINVAL, part)
    SIZES("host_sizes[1] is -1: a group's size must not be negative", 3, -1);
    SIZES("host_sizes[2] is 12: the groups pass m=17", 3, 3, 12);
    SIZES("host_sizes[0] is 9223372036854775807: the groups", INT64_MAX, 1);
    SIZES("host_sizes[4] is 1: the groups pass m=17", 17, 0, 0, 0, 1);
#undef SIZES
    assert_int_equal(test_cublaslt->products, 0);
    r.args.host_sizes = NULL;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_EINVAL,
                "host_sizes is NULL: the cublaslt backend needs the 5 groups' "
                "sizes on the host");
    qn_plan_free(plan);
    qn_close(ctx);
}

TEST(refuses_sizes_on_the_device)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct run r;
    struct qn_args good;

    plan = make_plan(ctx, &test_plain, &r);
    good = r.args;
#define BREAK(change, part)                                                    \
    TEST_BROKEN(r.args, good, change, qn_run(plan, &r.args, NULL), part)
    BREAK(r.args.a.first_dims = exact_sizes,
          "lengths is not NULL: the cublaslt backend reads nothing on "
          "the device; it takes host_sizes");
    BREAK(r.args.d.offsets = exact_sizes, "starts is not NULL");
    BREAK(r.args.b.pointers = (void *const *)test_workspace,
          "b.pointers is not NULL: the cublaslt backend reads nothing on the "
          "device; it takes b");
    BREAK(r.args.workspace = r.args.a.data, "workspace overlaps a");
    BREAK(r.args.b.stride = 6, "b.stride is 6");
#undef BREAK
    qn_plan_free(plan);
    qn_close(ctx);
}

/* Kernels take sizes on the host only where the problem says so, and are the
   other backends'. */
TEST(refuses_to_be_mixed)
{
    static const char text[] = "fprop bf16 g=8 m=1000 n=512 k=256";
    const struct qn_plan_options named = {.backend = QUERN_BACKEND_CUBLASLT,
                                          .kernel = "k_large"};
    struct quern_context *ctx = test_open();
    struct qn_problem p = test_problem(ctx, text);
    struct qn_args args = test_args(ctx, text);
    struct qn_plan *plan = test_plan(ctx, text, NULL);

    args.host_sizes = exact_sizes;
    test_expect(qn_run(plan, &args, NULL), QUERN_EINVAL,
                "host_sizes is not NULL: the problem says sizes=device; "
                "sizes=host takes them");
    test_args_free(&args);
    qn_plan_free(plan);
    test_expect(qn_plan(ctx, &p, &named, &plan), QUERN_EINVAL,
                "options.kernel is 'k_large': the cublaslt backend runs none");
    p = test_problem(ctx, "wgrad mixed g=2 m=8 n=8 k=8");
    test_expect(qn_plan(ctx, &p, &test_options, &plan), QUERN_ENOKERNEL,
                "backend cublaslt has no product f32 x f16 -> f32");
    p = test_problem(ctx, "fprop bf16 g=8 m=8 n=8 k=8 lora=8");
    test_expect(qn_plan(ctx, &p, &test_options, &plan), QUERN_ENOKERNEL,
                "backend cublaslt multiplies no adapters");
    p = test_problem(ctx, "fprop bf16 g=8 m=8 n=8 k=8 outside=zero");
    test_expect(qn_plan(ctx, &p, &test_options, &plan), QUERN_ENOKERNEL,
                "backend cublaslt writes no zeros outside the groups");
    assert_null(plan);
    qn_close(ctx);
}

TEST(refuses_to_freeze_sizes)
{
    struct quern_context *ctx = test_open();
    struct form uniform = test_plain;
    struct qn_plan *plan;
    struct run r;

    plan = make_plan(ctx, &test_plain, &r);
    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_ECAPTURE,
                "the stream captures a graph: host_sizes would be frozen into "
                "the graph");
    assert_int_equal(test_cublaslt->products, 0);
    test_cuda->capture_status = QN_CU_CAPTURE_NONE;
    qn_plan_free(plan);
    uniform.sizes = QUERN_SIZES_FIXED;
    plan = make_plan(ctx, &uniform, &r);
    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_true(test_cublaslt->products > 0);
    test_cuda->capture_status = QN_CU_CAPTURE_NONE;
    qn_plan_free(plan);
    uniform.sizes = QUERN_SIZES_DEVICE;
    uniform.ragged = QUERN_AXIS_NONE;
    plan = make_plan(ctx, &uniform, &r);
    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    test_cuda->capture_status = QN_CU_CAPTURE_NONE;
    qn_plan_free(plan);
    qn_close(ctx);
}

static void expect_missing(const char *part)
{
    struct quern_context *ctx = test_open();
    struct run r;
    struct qn_plan *plan;

    test_prepare(ctx, &test_plain, &r);
    test_expect(qn_plan(ctx, &r.p, &test_options, &plan), QUERN_EMISSING, part);
    assert_null(plan);
    qn_close(ctx);
}

TEST(reports_a_missing_library)
{
    setenv("QUERN_CUBLASLT", "/nonexistent/libcublasLt.so", 1);
    expect_missing("QUERN_CUBLASLT: /nonexistent/libcublasLt.so");
    setenv("QUERN_CUBLASLT", getenv("QUERN_CUDA"), 1);
    expect_missing("libcublasLt has no cublasLtGetVersion: CUDA 12 or later");
}

/* A machine has the library, or the message says where it was looked for. */
TEST(finds_it_or_says_where)
{
    struct qn_cublaslt *lt;

    unsetenv("QUERN_CUBLASLT");
    if (qn_cublaslt_open(NULL, getenv("CUDA_HOME"), &lt) == QUERN_OK) {
        assert_memory_equal(lt->version, "cublasLt 1", 10);
        qn_cublaslt_close(lt);
        return;
    }
    expect_missing("no libcublasLt.so.13, .12 or plain .so in ../cublas next "
                   "to libquern, in nvidia/ next to the package quern, on the "
                   "loader's path, in $CUDA_HOME/lib64 or "
                   "/usr/local/cuda/lib64; set QUERN_CUBLASLT");
}

TEST(reports_no_algorithm)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct run r;

    plan = make_plan(ctx, &test_plain, &r);
    test_cublaslt->no_algorithm = 1;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_ENOKERNEL,
                "cublasLtMatmulAlgoGetHeuristic: some error (cuBLAS status "
                "15)\n  in the product m=3 n=5 k=7\n  of group 0");
    qn_plan_free(plan);
    qn_close(ctx);
}

TEST(explains_itself)
{
    struct quern_context *ctx = test_open();
    struct run r;
    char *text;

    test_prepare(ctx, &test_plain, &r);
    test_expect(qn_why(ctx, &r.p, &test_options, NULL, &text), QUERN_OK, "");
    assert_non_null(strstr(text, "backend cublaslt, 132 multiprocessors"));
    assert_non_null(strstr(text, "> cublasLt 13.1.2\n    one product for each "
                                 "group, in a loop on the host; sizes are "
                                 "host_sizes; 33555200 bytes of workspace"));
    quern_free(text);
    r.p = test_problem(ctx, "wgrad mixed g=2 m=8 n=8 k=8");
    test_expect(qn_why(ctx, &r.p, &test_options, NULL, &text), QUERN_OK, "");
    assert_non_null(strstr(text, "nothing runs\n    backend cublaslt has no "
                                 "product f32 x f16 -> f32"));
    quern_free(text);
    qn_close(ctx);
}

/* The thread's own context comes back, in runs and when a plan is freed. */
TEST(stays_in_the_plans_context)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct run r;
    int mine;

    test_cuda->current = &mine;
    plan = make_plan(ctx, &test_plain, &r);
    test_cuda->current = NULL;
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->depth, 0);
    qn_plan_free(plan);
    assert_int_equal(test_cuda->depth, 0);
    assert_int_equal(test_cublaslt->contexts, 0);
    qn_close(ctx);
}

/* One plan, several threads, each with a D and a workspace of its own. */
TEST(serves_threads)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    struct test_thread threads[3];
    struct run r;

    plan = make_plan(ctx, &test_plain, &r);
    for (int i = 0; i < 3; i++) {
        struct test_thread *t = &threads[i];

        *t = (struct test_thread){.plan = plan, .args = r.args, .times = 50};
        t->args.d.data = calloc(1, sizeof test_memory[2]);
        t->args.workspace = calloc(1, WORKSPACE);
        assert_non_null(t->args.workspace);
    }
    test_run_threads(threads, 3);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(threads[i].args.d.data, threads[0].args.d.data,
                            sizeof test_memory[2]);
    }
    for (int i = 0; i < 3; i++) {
        free(threads[i].args.d.data);
        free(threads[i].args.workspace);
    }
    assert_null(test_cublaslt->broken);
    qn_plan_free(plan);
    qn_close(ctx);
}

/* All that a program does, with every kind of call below. */
static int use_all(void)
{
    static const struct form accumulating = {.recipe = "bf16",
                                             .ragged = QUERN_AXIS_K,
                                             .d_type = QUERN_F32,
                                             .beta = QUERN_BETA_ANY,
                                             .wide = 1};
    static const struct form clearing = {.recipe = "bf16",
                                         .ragged = QUERN_AXIS_K,
                                         .d_type = QUERN_F32,
                                         .wide = 1};
    static const struct form uniform = {.recipe = "bf16", .d_type = QUERN_BF16};
    const struct qn_plan_options spread = {.backend = QUERN_BACKEND_CUBLASLT,
                                           .streams = 2};
    const struct form *forms[] = {&accumulating, &clearing, &uniform};
    struct quern_context *ctx;
    int code = qn_open(NULL, &ctx);

    for (int i = 0; !code && i < 3; i++) {
        struct qn_plan *plan;
        struct run r;

        test_prepare(ctx, forms[i], &r);
        code = qn_plan(ctx, &r.p, i ? &spread : &test_options, &plan);
        if (!code)
            code = qn_run(plan, &r.args, NULL);
        qn_plan_free(plan);
    }
    qn_close(ctx);
    return code;
}

TEST(fails_each_call)
{
    int last = 0;

    test_cublaslt->fail_status = 999;
    for (int n = 1;; n++) {
        int code;

        test_cublaslt->calls = 0;
        test_cublaslt->fail_at = n;
        test_cublaslt->failed = NULL;
        code = use_all();
        assert_int_equal(test_cublaslt->contexts, 0);
        assert_int_equal(test_cuda->depth, 0);
        if (!test_cublaslt->failed) {
            assert_int_equal(code, QUERN_OK);
            break;
        }
        last = n;
        if (!strcmp(test_cublaslt->failed, "cublasLtDestroy"))
            continue; /* without a message */
        test_expect(code, QUERN_ECUDA, test_cublaslt->failed);
        test_expect(code, QUERN_ECUDA, "the test's error (cuBLAS status 999)");
    }
    assert_true(last > 100);
}

TEST(fails_each_driver_call)
{
    int last = 0;

    test_cuda->fail_code = 999;
    for (int n = 1;; n++) {
        int code;

        test_cuda->calls = 0;
        test_cuda->fail_at = n;
        test_cuda->failed = NULL;
        code = use_all();
        assert_int_equal(test_cublaslt->contexts, 0);
        assert_int_equal(test_cuda->depth, 0);
        assert_int_equal(test_cuda->streams, 0);
        assert_int_equal(test_cuda->events, 0);
        if (!test_cuda->failed) {
            assert_int_equal(code, QUERN_OK);
            break;
        }
        last = n;
        if (code) /* freeing and closing have no result */
            test_expect(code, QUERN_ECUDA, test_cuda->failed);
    }
    assert_true(last > 20);
}

TEST(fails_each_allocation)
{
    int last = 0;

    for (int n = 1;; n++) {
        struct quern_context *ctx;
        struct qn_problem p;
        struct qn_plan *plan = NULL;
        int code, made;

        test_fail_allocation(n);
        code = qn_open(NULL, &ctx);
        if (!code)
            code = qn_problem_parse(ctx, "fprop bf16 g=2 m=8 n=8 k=8", &p);
        if (!code)
            code = qn_plan(ctx, &p, &test_options, &plan);
        qn_plan_free(plan);
        qn_close(ctx);
        made = test_fail_allocation(0);
        assert_int_equal(test_cublaslt->contexts, 0);
        assert_int_equal(test_cuda->depth, 0);
        if (made < n) {
            assert_int_equal(code, QUERN_OK);
            break;
        }
        last = n;
        test_expect(code, QUERN_ENOMEM, "host memory ran out");
    }
    assert_true(last > 5);
}
