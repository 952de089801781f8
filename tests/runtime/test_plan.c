/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c: which kernel is chosen, what a plan prepares, and what why
   says. */
#include "test.h"

#define PROBLEM "fprop bf16 g=8 m=32768 n=4096 k=7168"

static const char cubin[] = "\177ELF of linked";
static struct qn_kernel linked_kernels[] = {
    GPU_KERNEL("k_linked", "sm_90a", 128, 64, 1, 1, 1000)};
static const struct quern_registry linked = {
    .hash = "linked", .kernels = linked_kernels, .nkernels = 1};

static struct quern_context *open_linked(const void *code)
{
    const struct quern_open_options options = {
        .registry = &linked, .log = test_collect, .log_level = QUERN_LOG_DEBUG};
    struct quern_context *ctx;

    linked_kernels[0].cubin = code;
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    return ctx;
}

/* Only these are linked. */
static struct quern_context *open_kernels(const char *hash,
                                          struct qn_kernel *kernels, int count)
{
    static struct quern_registry registry;

    registry = (struct quern_registry){
        .hash = hash, .kernels = kernels, .nkernels = count};
    for (int i = 0; i < count; i++)
        kernels[i].cubin = cubin;
    return test_open_with(&registry);
}

/* k_hungry is too big, k_next is for another chip, k_spills spills. */
TEST(takes_the_best_that_fits)
{
    struct quern_context *ctx = test_open();

    test_expect_choice(ctx, PROBLEM, NULL, "k_large", QUERN_BACKEND_JIT, 132);
    assert_int_equal(test_count("nvrtc compile k_spills"), 1);
    assert_int_equal(test_count("nvrtc compile"), 2);
    assert_non_null(strstr(test_messages, "k_spills is not used: it spills"));
    assert_int_equal(test_cuda->smem, 200000);
    assert_int_equal(test_cuda->loaded, 1);
    assert_int_equal(test_cuda->depth, 0);
    /* neither is compiled or loaded again */
    test_expect_choice(ctx, PROBLEM, NULL, "k_large", QUERN_BACKEND_JIT, 132);
    assert_int_equal(test_count("nvrtc compile"), 2);
    assert_int_equal(test_cuda->libraries, 1);
    qn_close(ctx);
    assert_int_equal(test_cuda->libraries, 0);
    assert_int_equal(test_cuda->primaries, 0);
    /* nor by another process: what is not fit for use is remembered too */
    unlink(test_log);
    test_messages[0] = 0;
    ctx = test_open();
    test_expect_choice(ctx, PROBLEM, NULL, "k_large", QUERN_BACKEND_JIT, 132);
    assert_int_equal(test_count(""), 0);
    assert_non_null(strstr(test_messages, "k_spills is not used: it spills"));
    qn_close(ctx);
}

TEST(obeys_options)
{
    struct quern_context *ctx = test_open();
    struct qn_plan_options options = {.kernel = "k_small"};
    struct qn_problem p = test_problem(ctx, PROBLEM);
    struct qn_plan *plan;

    test_expect_choice(ctx, PROBLEM, &options, "k_small", QUERN_BACKEND_JIT,
                       132);
    options = (struct qn_plan_options){.kernel = "k_cluster", .sms = 101};
    test_expect_choice(ctx, PROBLEM, &options, "k_cluster", QUERN_BACKEND_JIT,
                       100);
    options.sms = 1; /* a cluster needs two */
    test_expect_choice(ctx, PROBLEM, &options, "k_cluster", QUERN_BACKEND_JIT,
                       2);
    options.sms = 100000;
    test_expect_choice(ctx, PROBLEM, &options, "k_cluster", QUERN_BACKEND_JIT,
                       132);
    options = (struct qn_plan_options){.kernel = "k_clutser"};
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_EINVAL,
                "there is no kernel 'k_clutser'; did you mean 'k_cluster'?");
    assert_null(plan);
    options = (struct qn_plan_options){.kernel = "k_next"};
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_ENOKERNEL,
                "made for sm_100a, not for sm_90");
    options = (struct qn_plan_options){.kernel = "k_spills"};
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_ECOMPILE,
                "k_spills is not used: it spills registers");
    options = (struct qn_plan_options){.sms = -1};
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_EINVAL,
                "options.sms is -1");
    options = (struct qn_plan_options){.tune_ms = -1};
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_EINVAL,
                "options.tune_ms is -1");
    options = (struct qn_plan_options){.backend = QUERN_BACKEND_CUBLASLT + 1};
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_EINVAL,
                "options.backend is 5");
    qn_close(ctx);
}

TEST(says_why_nothing_serves)
{
    struct quern_context *ctx = test_open();
    struct qn_problem p;
    struct qn_plan *plan;

    p = test_problem(ctx, "fprop bf16 g=8 m=32768 n=4096 k=7164");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "k_small: rows of A and B must start at multiples of 16 "
                "bytes: k % 8 == 0 is false");
    test_expect(QUERN_ENOKERNEL, QUERN_ENOKERNEL,
                "k_hungry: takes 300000 "
                "bytes of shared memory");
    p = test_problem(ctx, "fprop bf16 g=8 m=32768 n=4090 k=7168");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "D has no tensor map: its rows are 4090 elements of bf16");
    p = test_problem(ctx, "fprop bf16 g=8 m=32768 n=4096 k=7168 layout=nn");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "there are kernels for layout=tn ragged=m");
    p = test_problem(ctx, "dgrad bf16 g=8 m=32768 n=4096 k=7168");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "there is none for dgrad bf16 at all");
    p = test_problem(ctx, "wgrad mixed g=8 m=4096 n=4096 k=32768 d=f32");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "only the host has wgrad of mixed");
    p = test_problem(ctx, "dgrad mixed g=8 m=32768 n=4096 k=7168 d=f32");
    test_expect(
        qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
        "it keeps dy as f32, and operands without a scale are bf16 or f16");
    test_expect(
        QUERN_ENOKERNEL, QUERN_ENOKERNEL,
        "it keeps dy as f32 and w as bf16, and operands without a scale are of "
        "one type on both sides");
    qn_close(ctx);
    test_cuda->major = 8;
    ctx = test_open();
    p = test_problem(ctx, PROBLEM);
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "made for sm_90a, not for sm_80");
    qn_close(ctx);
}

TEST(prefers_linked_kernels)
{
    const struct qn_plan_options jit = {.backend = QUERN_BACKEND_JIT};
    struct quern_context *ctx = open_linked(cubin);
    struct qn_problem p;
    struct qn_plan *plan;

    test_expect_choice(ctx, PROBLEM, NULL, "k_linked", QUERN_BACKEND_AOT, 132);
    assert_ptr_equal(test_cuda->code, cubin);
    assert_string_equal(test_cuda->kernel, "k_linked");
    test_expect_choice(ctx, PROBLEM, &test_aot, "k_linked", QUERN_BACKEND_AOT,
                       132);
    assert_int_equal(test_count("nvrtc"), 0);
    assert_int_equal(test_count("gen"), 0);
    test_expect_choice(ctx, PROBLEM, &jit, "k_large", QUERN_BACKEND_JIT, 132);
    qn_close(ctx);
    ctx = open_linked(NULL);
    p = test_problem(ctx, PROBLEM);
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                "k_linked: not linked into this program");
    qn_close(ctx);
}

/* The output of another version's `quern build` would be misread. */
TEST(refuses_other_versions)
{
    struct quern_registry built = linked;
    const struct quern_open_options options = {.registry = &built};
    struct quern_context *ctx;

    built.layout = QN_REGISTRY_LAYOUT;
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    qn_close(ctx);
    built.layout++;
    test_expect(qn_open(&options, &ctx), QUERN_EINVAL,
                "options.registry, made by quern build, is of another version");
    assert_null(ctx);
    /* one without this field began with an address */
    memcpy(&built, &built.hash, sizeof built.hash);
    test_expect(qn_open(&options, &ctx), QUERN_EINVAL, "of another version");
}

/* Kernels are found by the recipe's name, so it must mean the same. */
TEST(refuses_other_recipes)
{
    struct qn_recipe recipe = qn_registry_builtin.recipes[0];
    struct quern_registry built = linked;
    const struct quern_open_options options = {.registry = &built};
    struct quern_context *ctx;

    assert_string_equal(recipe.name, linked_kernels[0].recipe);
    built.recipes = &recipe;
    built.nrecipes = 1;
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    qn_close(ctx);
    recipe.scaling[QN_W].k = 64;
    test_expect(qn_open(&options, &ctx), QUERN_EINVAL,
                "options.registry, made by quern build, has the recipe 'bf16'");
    assert_null(ctx);
    recipe = qn_registry_builtin.recipes[0];
    recipe.rule = "function (amax) return amax end";
    test_expect(qn_open(&options, &ctx), QUERN_EINVAL,
                "both must come from the same specs");
    built.kernels = NULL; /* none of that recipe is linked */
    built.nkernels = 0;
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    qn_close(ctx);
}

/* The same kernel for several architectures, linked together: a GPU gets its
   own, else the closest of its major version, else none. */
TEST(takes_the_closest_architecture)
{
    static struct qn_kernel fat[] = {
        GPU_KERNEL("k_80", "sm_80", 128, 128, 1, 1, 1000),
        GPU_KERNEL("k_86", "sm_86", 128, 128, 1, 1, 1000),
        GPU_KERNEL("k_90", "sm_90a", 128, 128, 1, 1, 1000),
        GPU_KERNEL("k_120", "sm_120a", 128, 128, 1, 1, 1000)};
    static const struct {
        int major, minor;
        const char *kernel; /* NULL: none serves */
    } devices[] = {{8, 0, "k_80"}, {8, 6, "k_86"},   {8, 9, "k_86"},
                   {9, 0, "k_90"}, {12, 0, "k_120"}, {12, 1, NULL},
                   {10, 0, NULL},  {7, 5, NULL}};
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        test_cuda->major = devices[i].major;
        test_cuda->minor = devices[i].minor;
        ctx = open_kernels("fat", fat, 4);
        p = test_problem(ctx, PROBLEM);
        if (devices[i].kernel)
            test_expect_choice(ctx, PROBLEM, &test_aot, devices[i].kernel,
                               QUERN_BACKEND_AOT, 132);
        else
            test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                        "k_120: made for sm_120a, not for sm_");
        qn_close(ctx);
    }
}

/* The GPU's figures are asked for once: its clocks take the driver long. */
TEST(asks_once_for_the_device)
{
    struct quern_context *ctx = test_open();
    int calls[2];

    for (int i = 0; i < 2; i++) {
        test_cuda->attributes = 0;
        qn_plan_free(test_plan(ctx, PROBLEM, NULL));
        calls[i] = test_cuda->attributes;
    }
    assert_true(calls[0] > 0);
    assert_int_equal(calls[1], 0);
    qn_close(ctx);
}

/* Alike but for how C arrives: what memory limits is fetched. */
TEST(weighs_how_c_arrives)
{
    static const char *const addends[] = {"fetch", "read", "reduce"};
    static struct qn_kernel kernels[] = {
        GPU_KERNEL("k_fetch", "sm_90a", 128, 128, 1, 1, 1000),
        GPU_KERNEL("k_read", "sm_90a", 128, 128, 1, 1, 1000),
        GPU_KERNEL("k_reduce", "sm_90a", 256, 128, 1, 2, 1000)};
    struct quern_context *ctx;

    for (int i = 0; i < 3; i++) {
        kernels[i].epilogue = QN_ADD;
        kernels[i].d.type = QUERN_F32;
        kernels[i].d.box[0] = 32;
        kernels[i].addend = addends[i];
    }
    ctx = open_kernels("addends", kernels, 3);
    test_expect_choice(ctx, "fprop bf16 g=8 m=32768 n=4096 k=64 d=f32 beta=1",
                       NULL, "k_fetch", QUERN_BACKEND_AOT, 132);
    test_expect_choice(ctx, "fprop bf16 g=8 m=32768 n=4096 k=7168 d=f32 beta=1",
                       NULL, "k_reduce", QUERN_BACKEND_AOT, 132);
    qn_close(ctx);
}

/* Narrow tiles hide their stores, which shows where k is short; wide ones ask
   L2 for less. Lone CTAs whose neighbours read the same bytes do not meet. */
TEST(weighs_what_ctas_share)
{
    static struct qn_kernel kernels[] = {
        GPU_KERNEL("k_lone", "sm_90a", 128, 256, 1, 1, 1000),
        GPU_KERNEL("k_narrow", "sm_90a", 128, 128, 1, 2, 1000),
        GPU_KERNEL("k_pair", "sm_90a", 128, 256, 2, 1, 1000)};
    struct quern_context *ctx;

    kernels[1].schedule = "pingpong";
    ctx = open_kernels("clusters", kernels, 3);
    test_expect_choice(ctx, "fprop bf16 g=8 m=32768 n=4096 k=512", NULL,
                       "k_narrow", QUERN_BACKEND_AOT, 132);
    test_expect_choice(ctx, "fprop bf16 g=8 m=32768 n=4096 k=7168", NULL,
                       "k_lone", QUERN_BACKEND_AOT, 132);
    test_expect_choice(ctx, "fprop bf16 g=8 m=16384 n=4096 k=28672", NULL,
                       "k_lone", QUERN_BACKEND_AOT, 132);
    test_expect_choice(ctx, "fprop bf16 g=32 m=2048 n=4096 k=7168", NULL,
                       "k_lone", QUERN_BACKEND_AOT, 132);
    qn_close(ctx);
}

/* Rows that are no multiples of a line of L2 long are copied at less than half
   the rate: tiles that copy fewer for each product lead. */
TEST(weighs_where_rows_begin)
{
    static struct qn_kernel kernels[] = {
        GPU_KERNEL("k_narrow", "sm_90a", 128, 192, 1, 1, 1000),
        GPU_KERNEL("k_wide", "sm_90a", 256, 128, 1, 1, 1000)};
    struct quern_context *ctx;

    kernels[0].schedule = "pingpong";
    ctx = open_kernels("rows", kernels, 2);
    test_expect_choice(ctx, "fprop bf16 g=8 m=32768 n=1536 k=1024", NULL,
                       "k_narrow", QUERN_BACKEND_AOT, 132);
    test_expect_choice(ctx, "fprop bf16 g=8 m=32768 n=1536 k=1016", NULL,
                       "k_wide", QUERN_BACKEND_AOT, 132);
    qn_close(ctx);
}

/* A broken cubin is the driver's error, not a crash. */
TEST(reports_a_bad_cubin)
{
    struct quern_context *ctx = open_linked("nothing like a cubin");
    struct qn_problem p = test_problem(ctx, PROBLEM);
    struct qn_plan *plan;

    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ECUDA,
                "cuLibraryLoadData");
    qn_close(ctx);
    assert_int_equal(test_cuda->libraries, 0);
}

TEST(falls_back_to_the_host)
{
    const struct qn_plan_options jit = {.backend = QUERN_BACKEND_JIT};
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    setenv("QUERN_THREADS", "3", 1);
    test_cuda->devices = 0;
    ctx = test_open();
    test_expect_choice(ctx, PROBLEM, NULL, "k_host", QUERN_BACKEND_HOST, 3);
    assert_non_null(strstr(test_messages, "the host computes"));
    assert_string_equal(quern_errmsg(), ""); /* it succeeded */
    p = test_problem(ctx, PROBLEM);
    test_expect(qn_plan(ctx, &p, &jit, &plan), QUERN_ENODEVICE, "cuInit");
    qn_close(ctx);
    setenv("QUERN_CUDA", "/nonexistent/libcuda.so", 1);
    ctx = test_open();
    test_expect_choice(ctx, PROBLEM, NULL, "k_host", QUERN_BACKEND_HOST, 3);
    test_expect(qn_plan(ctx, &p, &jit, &plan), QUERN_ENODEVICE,
                "no CUDA driver: /nonexistent/libcuda.so");
    qn_close(ctx);
    /* a library without the symbols is no driver either */
    setenv("QUERN_CUDA", getenv("QUERN_NVRTC"), 1);
    ctx = test_open();
    test_expect(qn_plan(ctx, &p, &jit, &plan), QUERN_ENODEVICE,
                "libcuda has no cuInit");
    qn_close(ctx);
}

TEST(refuses_captures)
{
    struct quern_context *ctx = test_open();
    struct qn_problem p = test_problem(ctx, PROBLEM);
    struct qn_plan *plan;

    test_cuda->capture_result = 906; /* the legacy stream would join one */
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ECAPTURE,
                "making a plan is not allowed while a stream captures");
    test_cuda->capture_result = 0;
    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ECAPTURE, "making a plan");
    test_cuda->capture_status = QN_CU_CAPTURE_NONE;
    /* a capture that only shows when the library is loaded */
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_OK, "");
    qn_plan_free(plan);
    qn_close(ctx);
    test_cuda->fail_code = 900;
    for (int at = 1;; at++) {
        int code;

        test_cuda->fail_at = 0;
        ctx = test_open();
        test_cuda->fail_at = at;
        test_cuda->calls = 0;
        test_cuda->failed = NULL;
        code = qn_plan(ctx, &p, NULL, &plan);
        qn_close(ctx);
        assert_int_not_equal(code, QUERN_OK);
        if (!strcmp(test_cuda->failed, "cuLibraryLoadData")) {
            assert_int_equal(code, QUERN_ECAPTURE);
            break;
        }
    }
    test_cuda->fail_at = 0;
}

/* The thread's own context is used, and stays current. */
TEST(respects_the_current_context)
{
    struct quern_context *ctx = test_open();
    int mine;

    test_cuda->current = &mine;
    test_expect_choice(ctx, PROBLEM, NULL, "k_large", QUERN_BACKEND_JIT, 132);
    assert_int_equal(test_cuda->primaries, 0);
    assert_ptr_equal(test_cuda->current, &mine);
    assert_int_equal(test_cuda->depth, 0);
    test_cuda->current = NULL;
    test_expect_choice(ctx, PROBLEM, NULL, "k_large", QUERN_BACKEND_JIT, 132);
    assert_int_equal(test_cuda->primaries, 1);
    assert_int_equal(test_cuda->depth, 0);
    qn_close(ctx);
    assert_int_equal(test_cuda->primaries, 0);
}

/* The messages to a callback at a level of the options and one of QUERN_LOG. */
static void hear(int level, const char *wanted)
{
    const struct quern_open_options options = {.log = test_collect,
                                               .log_level = level};
    struct quern_context *ctx;

    test_messages[0] = 0;
    setenv("QUERN_LOG", wanted, 1);
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    qn_plan_free(test_plan(ctx, PROBLEM, NULL));
    qn_close(ctx);
}

/* QUERN_LOG decides where the options do not. */
TEST(logs_what_is_wanted)
{
    const struct quern_open_options louder = {.log = test_collect,
                                              .log_level = QUERN_LOG_DEBUG + 1};
    struct quern_context *ctx;

    test_expect(qn_open(&louder, &ctx), QUERN_EINVAL,
                "options.log_level is 4: not a value");
    hear(0, "");
    assert_non_null(strstr(test_messages, "compiled k_"));
    assert_null(strstr(test_messages, "plan: "));
    hear(0, "debug");
    assert_non_null(strstr(test_messages, "kernels, 0 of them linked"));
    assert_non_null(strstr(test_messages, "GPU 0: Fake, sm_90"));
    assert_non_null(strstr(test_messages, "plan: "));
    hear(0, "error");
    assert_string_equal(test_messages, "");
    hear(QUERN_LOG_DEBUG, "error");
    assert_non_null(strstr(test_messages, "plan: "));
    setenv("QUERN_LOG", "debgu", 1);
    test_expect(qn_open(NULL, &ctx), QUERN_EINVAL,
                "QUERN_LOG=debgu: error, info or debug is expected; did you "
                "mean 'debug'?");
    setenv("QUERN_LOG", "debug", 1);
    test_expect(qn_open(NULL, &ctx), QUERN_OK, "");
    qn_close(ctx);
}

/* k_next is of one chip, k_family of all like it. */
static const struct {
    const char *version, *kernel, *says;
} compilers[] = {
    {"13.0", "k_next", ""},
    {"12.9", "k_next", ""},
    {"12.8", "k_family",
     "k_next is not used: it needs NVRTC 12.9 or later, and this is nvrtc "
     "12.8; k_family serves instead\n"},
    {"12.6", NULL,
     "k_family is not used: it needs NVRTC 12.8 or later, and this is nvrtc "
     "12.6"},
};

TEST(compiler_is_too_old)
{
    for (size_t i = 0; i < sizeof compilers / sizeof compilers[0]; i++) {
        struct quern_context *ctx;
        struct qn_problem p;
        struct qn_plan *plan;

        *test_messages = 0;
        setenv("FAKE_NVRTC_VERSION", compilers[i].version, 1);
        test_cuda->major = 10;
        ctx = test_open();
        p = test_problem(ctx, PROBLEM);
        if (compilers[i].kernel) {
            test_expect_choice(ctx, PROBLEM, NULL, compilers[i].kernel,
                               QUERN_BACKEND_JIT, 132);
            assert_non_null(strstr(test_messages, compilers[i].says));
        } else {
            test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ECOMPILE,
                        compilers[i].says);
        }
        qn_close(ctx);
        test_wipe();
    }
    assert_int_equal(test_count("nvrtc compile"), 3);
}

/* The cache has nothing of a compiler that was too old. */
TEST(compiler_becomes_newer)
{
    struct quern_context *ctx;

    setenv("FAKE_NVRTC_VERSION", "12.8", 1);
    test_cuda->major = 10;
    ctx = test_open();
    test_expect_choice(ctx, PROBLEM, NULL, "k_family", QUERN_BACKEND_JIT, 132);
    test_expect_choice(ctx, PROBLEM, NULL, "k_family", QUERN_BACKEND_JIT, 132);
    qn_close(ctx);
    setenv("FAKE_NVRTC_VERSION", "12.9", 1);
    ctx = test_open();
    test_expect_choice(ctx, PROBLEM, NULL, "k_next", QUERN_BACKEND_JIT, 132);
    qn_close(ctx);
}

TEST(explains)
{
    static const char *const parts[] = {
        "fprop bf16 g=8 m=32768 n=4096 k=7168 d=bf16",
        "backend jit, 132 multiprocessors",
        "products would",
        "> k_spills",
        "  k_cluster",
        "tiles in",
        "excluded",
        "  k_host\n    made for host",
        "  k_hungry\n    takes 300000 bytes",
        "  k_next\n    made for sm_100a",
        "not made, for this variant",
        "  k_none\n    fewer than 3 stages",
    };
    struct quern_context *ctx = test_open();
    struct qn_problem p = test_problem(ctx, PROBLEM);
    const char *at;
    char *text;

    test_expect(qn_why(ctx, &p, NULL, NULL, &text), QUERN_OK, "");
    at = text;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *next = strstr(at, parts[i]);

        if (!next)
            print_error("lacks '%s':\n%s\n", parts[i], text);
        assert_non_null(next);
        at = next;
    }
    quern_free(text);
    assert_int_equal(test_count("nvrtc"), 0);
    qn_close(ctx);
}

TEST(explains_without_a_gpu)
{
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct quern_context *ctx;
    struct qn_problem p;
    char *text;

    test_cuda->devices = 0;
    ctx = test_open();
    p = test_problem(ctx, PROBLEM);
    test_expect(qn_why(ctx, &p, NULL, NULL, &text), QUERN_OK, "");
    assert_non_null(strstr(text, "figures are for an H200; on this machine "
                                 "the host computes"));
    assert_non_null(strstr(text, "> k_spills"));
    quern_free(text);
    test_expect(qn_why(ctx, &p, &host, NULL, &text), QUERN_OK, "");
    assert_non_null(strstr(text, "> k_host (linked)"));
    quern_free(text);
    p = test_problem(ctx, "dgrad bf16 g=8 m=32768 n=4096 k=7168");
    test_expect(qn_why(ctx, &p, NULL, NULL, &text), QUERN_OK, "");
    assert_non_null(strstr(text, "there is none for dgrad bf16 at all"));
    quern_free(text);
    qn_close(ctx);
}
