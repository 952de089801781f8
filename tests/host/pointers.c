/* SPDX-License-Identifier: Apache-2.0 */
/*
** pointers.c: matrices given by their addresses.
*/
#include "host.h"

#include "oracle/job.h"
#include "oracle/oracle.h"

/* A wrong matrix: the oracle says whose. */
TEST(test_pointers_judged)
{
    static const struct qn_options options = {
        .command = "test_host", .seed = 1, .backend = QUERN_BACKEND_HOST};
    const int64_t sizes[] = {20, 0, 30, 10};
    struct qn_job job = {0};
    struct qn_verdict verdict;
    struct qn_problem problem;
    char text[512];
    void **matrices;

    assert_int_equal(
        qn_problem_parse(host_ctx, "fprop bf16 g=4 m=60 n=48 k=64 pointers=b",
                         &problem),
        0);
    assert_int_equal(qn_job_begin(&job, &options, host_ctx, &problem, sizes),
                     0);
    assert_int_equal(qn_job_run(&job), 0);
    assert_int_equal(qn_oracle_judge(&job, QN_ORACLE_FLOAT64, 60, &verdict), 0);
    assert_true(verdict.passed);
    matrices = (void **)(void *)job.pointers[QN_ROLE_B].data;
    matrices[2] = matrices[3];
    assert_int_equal(qn_job_run(&job), 0);
    assert_int_equal(qn_oracle_judge(&job, QN_ORACLE_FLOAT64, 60, &verdict), 0);
    assert_false(verdict.passed);
    qn_oracle_print(&verdict, text, sizeof text);
    assert_non_null(strstr(text, ", the largest in group 2"));
    qn_job_free(&job);
}
