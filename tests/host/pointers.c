/* SPDX-License-Identifier: Apache-2.0 */
/*
** pointers.c: the host backend checks the addresses of matrices before it
** follows them.
*/
#include "host.h"

#include "oracle/job.h"
#include "oracle/oracle.h"

enum { GROUPS = 3, MATRIX = 16 * 16 }; /* elements, of at most 4 bytes */

/* Buffers of any of these runs, and its matrices; group 1 has no rows. */
static struct {
    _Alignas(64) float matrix[4][GROUPS][MATRIX], rows[2][24 * 16];
    _Alignas(64) char workspace[1 << 16];
    int lengths[GROUPS];
    void *at[4][GROUPS];
} m = {.lengths = {8, 0, 16}};

static struct quern_args args;

/* A plan, and arguments with nothing wrong; matrices of operand `i` are
   m.at[i]. */
static struct quern_plan *begin(const char *line, const int operands[4])
{
    static const struct quern_args fresh = QUERN_ARGS_INIT;
    struct quern_plan_options host = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;

    host.backend = QUERN_BACKEND_HOST;
    if (quern_plan_create(host_ctx, line, &host, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    args = fresh;
    args.of[QUERN_ARG_WORKSPACE].data = m.workspace;
    args.of[QUERN_ARG_LENGTHS].data = m.lengths;
    for (int i = 0; i < 4 && operands[i]; i++) {
        for (int g = 0; g < GROUPS; g++)
            m.at[i][g] = m.matrix[i][g];
        args.of[operands[i]].pointers = m.at[i];
    }
    return plan;
}

/* The run with one entry changed; "": it is not refused. */
static void try(const struct quern_plan *plan, int i, int g, void *entry,
                const char *says)
{
    void *const before = m.at[i][g];
    int code;

    m.at[i][g] = entry;
    code = quern_run(plan, &args, NULL);
    m.at[i][g] = before;
    assert_int_equal(code, *says ? QUERN_EINVAL : QUERN_OK);
    if (!strstr(quern_errmsg(), says))
        fail_msg("'%s' lacks '%s'", quern_errmsg(), says);
}

TEST(test_pointers_of_weights)
{
    static const int b[4] = {QUERN_ARG_B};
    struct quern_plan *plan =
        begin("fprop bf16 g=3 m=24 n=16 k=16 pointers=b", b);

    args.of[QUERN_ARG_A].data = m.rows[0];
    args.of[QUERN_ARG_D].data = m.rows[1];
    try(plan, 0, 0, m.at[0][0], "");
    try(plan, 0, 1, NULL, ""); /* no rows */
    try(plan, 0, 1, m.rows[1], "");
    try(plan, 0, 1, (char *)m.at[0][1] + 1, "");
    try(plan, 0, 2, m.at[0][0], ""); /* two experts with the same weights */
    try(plan, 0, 2, NULL, "b.pointers[2] is NULL: group 2 needs its matrix");
    try(plan, 0, 2, (char *)m.at[0][2] + 8, "the matrix of group 2 must be at");
    try(plan, 0, 0, m.rows[1] + 4, "b.pointers[0] overlaps d");
    try(plan, 0, 0, m.workspace, "b.pointers[0] overlaps workspace");
    quern_plan_destroy(plan);
}

TEST(test_pointers_of_gradients)
{
    static const int d[4] = {QUERN_ARG_D};
    struct quern_plan *plan =
        begin("wgrad bf16 g=3 m=16 n=16 k=24 d=f32 beta=1 pointers=d", d);

    args.of[QUERN_ARG_A].data = m.rows[0];
    args.of[QUERN_ARG_B].data = m.rows[1];
    try(plan, 0, 0, m.at[0][0], "");
    try(plan, 0, 1, NULL, "d.pointers[1] is NULL");
    try(plan, 0, 2, m.at[0][0], "d.pointers[0] overlaps d.pointers[2]");
    try(plan, 0, 2, m.matrix[0][1] + 64, "d.pointers[1] overlaps d.pointers");
    try(plan, 0, 2, m.rows[0] + 4, "d.pointers[2] overlaps a");
    quern_plan_destroy(plan);
}

/* All four, C and D the same or not. */
TEST(test_pointers_of_all)
{
    static const int all[4] = {QUERN_ARG_A, QUERN_ARG_B, QUERN_ARG_C,
                               QUERN_ARG_D};
    static float beta = 1;
    struct quern_plan *plan = begin("fprop bf16 g=3 m=16 n=16 k=16 ragged=none "
                                    "beta=any pointers=abcd",
                                    all);

    args.of[QUERN_ARG_BETA].data = &beta;
    args.of[QUERN_ARG_LENGTHS].data = NULL;
    try(plan, 3, 0, m.at[3][0], "");
    try(plan, 3, 0, m.at[2][0], ""); /* C is D */
    try(plan, 3, 0, m.at[2][1], "d.pointers[0] overlaps c.pointers[1]");
    try(plan, 3, 1, m.at[1][2], "d.pointers[1] overlaps b.pointers[2]");
    try(plan, 3, 1, m.at[0][1], "d.pointers[1] overlaps a.pointers[1]");
    try(plan, 2, 1, NULL, "c.pointers[1] is NULL");
    quern_plan_destroy(plan);
}

TEST(test_pointers_of_casts)
{
    static const int input[4] = {QUERN_ARG_INPUT};
    struct quern_plan *plan =
        begin("quantize mxfp8 of=w g=3 m=16 k=16 copies=rowwise", input);

    args.of[QUERN_ARG_LENGTHS].data = NULL;
    args.of[QUERN_ARG_ROWWISE].data = m.matrix[1];
    args.of[QUERN_ARG_ROWWISE_SF].data = m.matrix[2];
    try(plan, 0, 1, m.at[0][1], "");
    try(plan, 0, 1, NULL, "input.pointers[1] is NULL");
    try(plan, 0, 1, (char *)m.at[0][1] + 1, "the matrix of group 1 must be at");
    try(plan, 0, 1, m.matrix[1], "input.pointers[1] overlaps rowwise");
    quern_plan_destroy(plan);
}

TEST(test_pointers_of_mlps)
{
    static const int all[4] = {QUERN_ARG_W1, QUERN_ARG_W2, QUERN_ARG_DW1,
                               QUERN_ARG_DW2};
    static _Alignas(64) char saved[1 << 16], pending[1 << 16];
    struct quern_plan *plan =
        begin("mlp bf16 g=3 m=24 hidden=16 ffn=8 pointers=both", all);

    args.of[QUERN_ARG_X].data = m.rows[0];
    args.of[QUERN_ARG_Y].data = m.rows[1];
    args.of[QUERN_ARG_SAVED].data = saved;
    args.of[QUERN_ARG_PENDING].data = pending;
    try(plan, 0, 0, m.at[0][0], "");
    try(plan, 0, 1, NULL, "");
    try(plan, 0, 2, NULL, "w1.pointers[2] is NULL: group 2 needs its matrix");
    try(plan, 1, 0, m.rows[1], "w2.pointers[0] overlaps y");
    args.phase = QUERN_PHASE_WGRAD;
    args.of[QUERN_ARG_DY].data = m.rows[1];
    try(plan, 2, 0, m.at[2][0], "");
    try(plan, 2, 1, NULL, "dw1.pointers[1] is NULL");
    try(plan, 2, 1, m.at[2][2], "dw1.pointers[1] overlaps dw1.pointers[2]");
    try(plan, 3, 1, m.at[2][2], "overlaps dw");
    try(plan, 3, 1, (char *)m.at[3][1] + 8, "must be at a multiple of 16");
    quern_plan_destroy(plan);
}

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
    assert_int_equal(qn_call_queue(&job.call), 0);
    assert_int_equal(qn_oracle_judge(&job, QN_ORACLE_FLOAT64, 60, &verdict), 0);
    assert_true(verdict.passed);
    matrices = (void **)(void *)job.call.pointers[QUERN_ARG_B].data;
    matrices[2] = matrices[3];
    assert_int_equal(qn_call_queue(&job.call), 0);
    assert_int_equal(qn_oracle_judge(&job, QN_ORACLE_FLOAT64, 60, &verdict), 0);
    assert_false(verdict.passed);
    qn_oracle_print(&verdict, text, sizeof text);
    assert_non_null(strstr(text, ", the largest in group 2"));
    qn_call_free(&job.call);
}
