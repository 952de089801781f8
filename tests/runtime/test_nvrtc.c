/* SPDX-License-Identifier: Apache-2.0 */
/* test_nvrtc.c: the real run-time compiler, where there is one. */
#include "test.h"

#include "device/nvrtc.h"

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

    return qn_nvrtc_open(NULL, getenv("CUDA_HOME"), &nvrtc) ? NULL : nvrtc;
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
