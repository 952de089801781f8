/* SPDX-License-Identifier: Apache-2.0 */
/* epilogue.c: what is in D and C before a run, and rows that are far away. */
#define _GNU_SOURCE
#include "host.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>

/* A beta of 0 must not multiply a C of NaN: neither one beta, nor one of
   several, nor with C in place of D. */
TEST(test_zero_beta_leaves_c)
{
    for (int i = 0; i < qt_nepilogues; i++) {
        struct qt_case c = {.what = "beta of 0 on a C of NaN",
                            .type = QUERN_BF16,
                            .d_type = i % 2 ? QUERN_BF16 : QUERN_F32,
                            .n = 24,
                            .k = 40,
                            .sizes_type = QUERN_I32,
                            .form = QT_BOTH,
                            .fill = QT_INTEGER,
                            .epilogue = &qt_epilogues[i],
                            .seed = (uint64_t)i};
        struct host_output out = {0};
        struct qt_verdict verdict;
        struct qt_data data;

        if (qt_epilogues[i].beta != QUERN_BETA_ANY)
            continue;
        qt_case_op(&c, QUERN_FPROP);
        qt_case_layout(&c, &qt_patterns[4]);
        assert_int_equal(qt_data_make(&c, &data), 0);
        memset(data.beta, 0, sizeof data.beta);
        assert_int_equal(qt_data_reference(&c, &data, 1), 0);
        memset(data.operand[qt_epilogues[i].apart ? QT_C : QT_D], QT_POISON,
               data.bytes[QT_D]);
        host_multiply(&c, &data, 0, &out);
        if (!qt_compare(&c, &data, out.d, &verdict))
            fail_msg("%s: %s", qt_epilogues[i].name, verdict.text);
        host_output_free(&out);
        qt_data_free(&data);
    }
}

/* wgrad with empty groups: what is added to keeps its bits, a NaN's and those
   of -0 too; what is not becomes +0. */
TEST(test_empty_groups)
{
    for (int added = 0; added < 2; added++) {
        struct qt_case c = {.what = "empty groups of wgrad",
                            .type = QUERN_BF16,
                            .d_type = QUERN_F32,
                            .m = 33,
                            .n = 50,
                            .sizes_type = QUERN_I64,
                            .form = QT_FIRST,
                            .fill = QT_INTEGER,
                            .epilogue = &qt_epilogues[added]};
        struct host_output out = {0};
        struct qt_data data;
        float *d;

        qt_case_op(&c, QUERN_WGRAD);
        qt_case_layout(&c, &qt_patterns[7]);
        assert_int_equal(qt_data_make(&c, &data), 0);
        d = data.operand[QT_D];
        for (size_t i = 0; i < data.bytes[QT_D] / 4; i++)
            d[i] = i % 3 == 0 ? -0.0f : i % 3 == 1 ? -NAN : (float)i;
        host_multiply(&c, &data, 0, &out);
        if (!added)
            memset(d, 0, data.bytes[QT_D]);
        assert_memory_equal(out.d, d, data.bytes[QT_D]);
        host_output_free(&out);
        qt_data_free(&data);
    }
}

/* Address space without memory after it, but where it is touched. */
static void *reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

#define FAR ((int64_t)1 << 30) /* elements between two rows */

/* Three rows in two groups; the last begins at element 2^31. Only its own
   elements are memory. */
static void far_rows(int op, void *a, void *b, void *d)
{
    static const int32_t lengths[] = {1, 2};
    char line[128], workspace[256] __attribute__((aligned(64))) = {0};
    struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct qn_problem problem;
    struct qn_description need;
    struct qn_plan *plan;
    int wgrad = op == QUERN_WGRAD;

    snprintf(line, sizeof line, "%s bf16 g=2 m=%d n=4 k=%d d=f32",
             wgrad ? "wgrad" : "fprop", wgrad ? 4 : 3, wgrad ? 3 : 4);
    assert_int_equal(qn_problem_parse(host_ctx, line, &problem), 0);
    assert_int_equal(qn_problem_describe(host_ctx, &problem, &need), 0);
    assert_int_equal(qn_plan(host_ctx, &problem, &host, &plan), 0);
    need.args.a.data = a;
    need.args.b.data = b;
    need.args.d.data = d;
    need.args.a.first_dims = lengths;
    need.args.workspace = workspace;
    need.args.a.stride = FAR;
    need.args.a.bytes = (size_t)(2 * FAR + 4) * 2;
    if (wgrad) {
        need.args.b.stride = FAR;
        need.args.b.bytes = (size_t)(2 * FAR + 4) * 2;
    } else {
        need.args.d.stride = FAR;
        need.args.d.bytes = (size_t)(2 * FAR + 4) * 4;
    }
    if (qn_run(plan, &need.args, NULL))
        fail_msg("%s: %s", line, quern_errmsg());
    qn_plan_free(plan);
}

/* Ones everywhere: each element of D is the length of its sum. */
TEST(test_far_rows)
{
    size_t bytes = (size_t)(2 * FAR + 4) * 4;
    uint16_t *a = reserve(bytes), *b = reserve(bytes);
    float *d = reserve(bytes);

    if (!a || !b || !d) {
        print_message("skip: needs 24 GB of address space\n");
        skip();
    }
    for (int64_t row = 0; row < 3; row++)
        for (int j = 0; j < 4; j++)
            a[row * FAR + j] = b[row * FAR + j] = qt_bf16(1);
    for (int i = 0; i < 2 * 4 * 4; i++)
        b[i] = qt_bf16(1);
    far_rows(QUERN_FPROP, a, b, d);
    for (int64_t row = 0; row < 3; row++)
        for (int j = 0; j < 4; j++)
            assert_true(d[row * FAR + j] == 4);
    far_rows(QUERN_WGRAD, a, b, d);
    for (int i = 0; i < 2 * 4 * 4; i++)
        assert_true(d[i] == (float)(i < 16 ? 1 : 2));
    munmap(a, bytes);
    munmap(b, bytes);
    munmap(d, bytes);
}
