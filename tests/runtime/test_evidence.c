/* SPDX-License-Identifier: Apache-2.0 */
/* test_evidence.c: the label of a kernel on a GPU. */
#include "test.h"

#include "choose/evidence.h"

static void expect(const struct qn_kernel *kernel, const char *text)
{
    char printed[256], cut[8];

    qn_evidence_print(kernel, printed, sizeof printed);
    assert_string_equal(printed, text);
    qn_evidence_print(kernel, cut, sizeof cut);
    assert_int_equal(strlen(cut), strlen(text) < 7 ? strlen(text) : 7);
}

TEST(evidence_of_each_gpu)
{
    struct qn_kernel kernel = {.arch = "sm_80"};

    expect(&kernel, "compiled for sm_80 sm_86 sm_89");
    kernel.ran = 1 << QN_SM_86 | 1 << QN_SM_90; /* the last is not its GPU */
    expect(&kernel, "run on sm_86, compiled for sm_80 sm_89");
    assert_int_equal(qn_evidence(&kernel, 86), QUERN_EVIDENCE_RUN);
    assert_int_equal(qn_evidence(&kernel, 80), QUERN_EVIDENCE_COMPILED);
    kernel.interpreted = 1;
    expect(&kernel, "run on sm_86, interpreted for sm_80 sm_89");
    assert_int_equal(qn_evidence(&kernel, 86), QUERN_EVIDENCE_RUN);
    assert_int_equal(qn_evidence(&kernel, 87), QUERN_EVIDENCE_INTERPRETED);
    kernel.arch = "sm_100f";
    expect(&kernel, "interpreted for sm_100 sm_103");
    kernel.arch = "host";
    expect(&kernel, "run");
}

TEST(evidence_is_the_least)
{
    const struct qn_kernel ran = {.arch = "sm_90a", .ran = 1 << QN_SM_90};
    const struct qn_kernel other = {.arch = "sm_90a"};
    int least = qn_evidence_least(QUERN_EVIDENCE_RUN, NULL, 90);

    assert_int_equal(least, QUERN_EVIDENCE_RUN);
    least = qn_evidence_least(least, &ran, 90);
    assert_int_equal(least, QUERN_EVIDENCE_RUN);
    least = qn_evidence_least(least, &other, 90);
    assert_int_equal(least, QUERN_EVIDENCE_COMPILED);
    assert_int_equal(qn_evidence_least(least, &ran, 90), least);
}
