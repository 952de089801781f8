/* SPDX-License-Identifier: Apache-2.0 */
/* test_nvrtc.c: the real run-time compiler, where there is one, and which one
   is opened. */
#define _GNU_SOURCE
#include "test.h"

#include "device/nvrtc.h"

#include <dlfcn.h>
#include <sys/stat.h>

static const char plain[] =
    "extern \"C\" __global__ void plain(float *p) { *p = 1; }\n";

static const char spills[] =
    "extern \"C\" __global__ void __launch_bounds__(1024) spills(float *p)\n"
    "{\n"
    "    float v[96];\n"
    "    for (int i = 0; i < 96; i++)\n"
    "        v[i] = p[i * 32 + threadIdx.x];\n"
    "    for (int j = 0; j < 100; j++)\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < 96; i++)\n"
    "            v[i] = v[i] * v[(i * 7 + 1) % 96] + p[j];\n"
    "    for (int i = 0; i < 96; i++)\n"
    "        p[i * 32 + threadIdx.x] = v[i];\n"
    "}\n";

/* NULL, after telling why the test is skipped. */
static struct qn_nvrtc *open_real(void)
{
    struct qn_nvrtc *nvrtc;

    return qn_nvrtc_open(NULL, getenv("CUDA_HOME"), 0, &nvrtc) ? NULL : nvrtc;
}

TEST(compiles)
{
    struct qn_nvrtc *nvrtc = open_real();
    struct qn_compiled made;

    if (!nvrtc)
        TEST_SKIP("libnvrtc.so.12 or .13");
    assert_memory_equal(qn_nvrtc_version(nvrtc), "nvrtc 1", 7);
    test_expect(qn_nvrtc_compile(nvrtc, "plain", plain, "sm_90a", &made),
                QUERN_OK, "");
    assert_memory_equal(made.object, "\177ELF", 4);
    assert_non_null(strstr(made.log, "bytes spill stores"));
    assert_int_equal(made.rejected, 0);
    qn_nvrtc_free(&made);
    test_expect(qn_nvrtc_compile(nvrtc, "broken", "int x = ;", "sm_90a", &made),
                QUERN_ECOMPILE, "broken.cu(1): error");
    assert_int_equal(made.rejected, 0);
    qn_nvrtc_free(&made);
    test_expect(qn_nvrtc_compile(nvrtc, "plain", plain, "sm_9", &made),
                QUERN_ECOMPILE, "plain does not compile");
    qn_nvrtc_free(&made);
    qn_nvrtc_close(nvrtc);
}

TEST(rejects_spills)
{
    struct qn_nvrtc *nvrtc = open_real();
    struct qn_compiled made;

    if (!nvrtc)
        TEST_SKIP("libnvrtc.so.12 or .13");
    test_expect(qn_nvrtc_compile(nvrtc, "spills", spills, "sm_90a", &made),
                QUERN_ECOMPILE, "spills is not used: it spills registers");
    assert_int_equal(made.rejected, 1);
    qn_nvrtc_free(&made);
    qn_nvrtc_close(nvrtc);
}

/* The toolkit in $CUDA_HOME has a libnvrtc.so.12, the fake, and a
   libnvrtc.so.13 that cannot be used; make may have put a real one next to the
   library. */
TEST(drivers_of_cuda_12_get_nvrtc_12)
{
    const char *home = getenv("CUDA_HOME");
    char *before = home ? strdup(home) : NULL;
    char folder[300], path[330];

    if (dlopen("libnvrtc.so.12", RTLD_NOW | RTLD_LOCAL))
        TEST_SKIP("a loader's path without libnvrtc.so.12");
    snprintf(folder, sizeof folder, "%s/lib64", test_folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/libnvrtc.so.12", folder);
    assert_int_equal(symlink(getenv("QUERN_NVRTC"), path), 0);
    snprintf(path, sizeof path, "%s/libnvrtc.so.13", folder);
    assert_int_equal(symlink(getenv("QUERN_GEN"), path), 0);
    unsetenv("QUERN_NVRTC");
    setenv("CUDA_HOME", test_folder, 1);
    test_cuda->version = 12090;
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_int_equal(test_count("nvrtc compile"), 1);
    test_cuda->version = 13000;
    unsetenv("CUDA_HOME");
    if (before)
        setenv("CUDA_HOME", before, 1);
    free(before);
}
