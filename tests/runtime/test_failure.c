/* SPDX-License-Identifier: Apache-2.0 */
/* test_failure.c: every call of the driver, of cuBLASLt and of the compiler and
   every allocation fails, once or from then on, in every scene. Resources are
   freed (the leak checker of the asan build sees the memory), and after one
   failure the next try succeeds. */
#include "scene.h"

/* The code, and a part of the message. */
static void expect_said(int code, int expected, const char *part)
{
    if (code != expected || !strstr(test_said, part))
        print_error("code %d, not %d: '%s' lacks '%s'\n", code, expected,
                    test_said, part);
    assert_int_equal(code, expected);
    assert_non_null(strstr(test_said, part));
}

/* Threads that compile ahead tell of no failure: the plan meets it again. Here
   each failure is met once, so that the plan has to tell of it. */
static void begin_alone(void)
{
    test_system.no_threads = 1;
}

/* Calls that free something: their failures are not reported. */
static int is_silent(const char *call)
{
    return !strcmp(call, "cuDevicePrimaryCtxRelease_v2") ||
           !strcmp(call, "cuLibraryUnload") ||
           !strcmp(call, "cuCtxPopCurrent_v2") ||
           !strcmp(call, "cublasLtDestroy");
}

/* The driver's code, and the library's. */
struct failure {
    int code, status; /* CUDA's and ours */
    const char *text;
};

/* May it pass unnoticed? Without a device the host computes, and qn_why
   assumes one. A plan of cuBLAS's enters its context to be freed. */
static int may_pass(const struct scene *scene, const struct failure *failure,
                    const char *call)
{
    return is_silent(call) || failure->status == QUERN_ENODEVICE ||
           (scene->backend == QUERN_BACKEND_CUBLASLT &&
            (!strcmp(call, "cuCtxGetCurrent") ||
             !strcmp(call, "cuCtxPushCurrent_v2")));
}

static const struct failure unknown = {999, QUERN_ECUDA,
                                       "the test's error (CUDA error 999)"};

/* The n-th call fails. Returns 0 if there are fewer. */
static int fail_driver(const struct scene *scene, const struct failure *failure,
                       int lost, int n)
{
    int code;

    test_cuda->calls = 0;
    test_cuda->failed = NULL;
    test_cuda->fail_at = n;
    test_cuda->fail_code = failure->code;
    test_cuda->lost = lost;
    code = test_play(scene, !lost);
    test_cuda->fail_at = 0;
    if (!test_cuda->failed || (is_silent(test_cuda->failed) && !lost))
        assert_int_equal(code, QUERN_OK);
    else if (code == QUERN_OK || is_silent(test_cuda->failed))
        assert_true(may_pass(scene, failure, test_cuda->failed));
    else
        expect_said(code, failure->status, test_cuda->failed);
    if (code != QUERN_OK)
        expect_said(code, failure->status, failure->text);
    return test_cuda->failed != NULL;
}

/* Each call of each scene. */
static void fail_driver_calls(const struct failure *failure, int lost,
                              int scenes)
{
    for (int i = 0; i < scenes; i++) {
        const struct scene *scene = &test_scenes[i];
        int n = 1;

        while (fail_driver(scene, failure, lost, n))
            n++;
        assert_true(n > 20 || scene->backend == QUERN_BACKEND_HOST);
    }
}

TEST(fails_each_driver_call)
{
    begin_alone();
    fail_driver_calls(&unknown, 0, test_scenes_count);
}

/* A device that is lost answers nothing any more. */
TEST(survives_a_lost_device)
{
    begin_alone();
    fail_driver_calls(&unknown, 1, test_scenes_count);
}

TEST(reports_device_memory)
{
    static const struct failure memory = {2, QUERN_ECUDA,
                                          "out of memory (CUDA error 2)"};

    begin_alone();
    fail_driver_calls(&memory, 0, 1);
}

/* A device that goes away: the host computes only for who did not choose. */
TEST(loses_every_device)
{
    static const struct failure gone = {QN_CU_NO_DEVICE, QUERN_ENODEVICE,
                                        "no device (CUDA error 100)"};

    begin_alone();
    fail_driver_calls(&gone, 0, 4);
}

TEST(fails_each_cublaslt_call)
{
    test_cublaslt->fail_status = 999;
    for (int i = 0; i < test_scenes_count; i++)
        for (int n = 1;; n++) {
            int code;

            test_cublaslt->calls = 0;
            test_cublaslt->failed = NULL;
            test_cublaslt->fail_at = n;
            code = test_play(&test_scenes[i], 1);
            test_cublaslt->fail_at = 0;
            if (!test_cublaslt->failed || is_silent(test_cublaslt->failed))
                assert_int_equal(code, QUERN_OK);
            else
                expect_said(code, QUERN_ECUDA, test_cublaslt->failed);
            if (!test_cublaslt->failed)
                break;
        }
}

TEST(fails_each_allocation)
{
    begin_alone();
    for (int i = 0; i < test_scenes_count; i++) {
        const struct scene *scene = &test_scenes[i];

        for (int n = 1;; n++) {
            int code, made;

            test_fail_allocation(n);
            code = test_play(scene, 1);
            made = test_fail_allocation(0);
            if (made < n) {
                assert_int_equal(code, QUERN_OK);
                assert_true(n > 4);
                break;
            }
            /* the cache does without what it cannot read or keep */
            if (code != QUERN_OK || (scene->cache && !*scene->cache))
                expect_said(code, QUERN_ENOMEM, "host memory ran out");
        }
    }
}

/* The scene that generates and compiles each time. */
static int play_cold(void)
{
    return test_play(&test_scenes[1], 0);
}

TEST(fails_each_call_of_the_compiler)
{
    static const struct {
        const char *call;
        int code;
        const char *text;
    } calls[] = {
        {"nvrtcVersion", QUERN_EMISSING, "libnvrtc tells no version"},
        {"nvrtcCreateProgram", QUERN_ECOMPILE, "nvrtc takes no program"},
        {"nvrtcCompileProgram", QUERN_ECOMPILE, "does not compile"},
        {"nvrtcGetProgramLogSize", QUERN_OK, ""}, /* only its warnings */
        {"nvrtcGetProgramLog", QUERN_OK, ""},
        {"nvrtcGetCUBINSize", QUERN_ECOMPILE, "nvrtc gave no cubin"},
        {"nvrtcGetCUBIN", QUERN_ECOMPILE, "nvrtc gave no cubin"},
    };

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        setenv("FAKE_NVRTC_FAIL", calls[i].call, 1);
        expect_said(play_cold(), calls[i].code, calls[i].text);
        unsetenv("FAKE_NVRTC_FAIL");
        expect_said(play_cold(), QUERN_OK, "");
    }
}

TEST(fails_without_a_source)
{
    setenv("FAKE_GEN_FAIL", "1", 1);
    expect_said(play_cold(), QUERN_ECOMPILE, "test.cu:7: error: the test's");
    assert_int_equal(test_count("nvrtc compile"), 0);
}

TEST(fails_without_a_compiler)
{
    setenv("QUERN_NVRTC", "/nonexistent/libnvrtc.so", 1);
    expect_said(play_cold(), QUERN_EMISSING,
                "QUERN_NVRTC: /nonexistent/libnvrtc.so");
    setenv("QUERN_NVRTC", getenv("QUERN_CUDA"), 1);
    expect_said(play_cold(), QUERN_EMISSING, "libnvrtc has no nvrtcVersion");
}

TEST(fails_without_a_generator)
{
    setenv("QUERN_GEN", "/nonexistent/libquern_gen.so", 1);
    expect_said(play_cold(), QUERN_EMISSING, "/nonexistent/libquern_gen.so");
    setenv("QUERN_GEN", getenv("QUERN_CUDA"), 1);
    expect_said(play_cold(), QUERN_EMISSING, "libquern_gen has no qg_open");
}

TEST(refuses_another_generator)
{
    setenv("FAKE_GEN_KEY", "another", 1);
    expect_said(play_cold(), QUERN_ECOMPILE,
                "libquern_gen writes another kernel of this name");
    assert_int_equal(test_count("nvrtc compile"), 0);
}

TEST(reports_bad_specs)
{
    const char *folders[] = {"bad"};
    const struct quern_open_options options = {.specs = folders,
                                               .specs_count = 1};
    struct quern_context *ctx;

    test_expect(qn_open(&options, &ctx), QUERN_ECOMPILE, "");
    assert_string_equal(quern_errmsg(),
                        "bad/recipes/x.lua:3: error: the test's\n"
                        "bad/recipes/x.lua:4: error: another");
    assert_null(ctx);
}
