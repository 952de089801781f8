/* SPDX-License-Identifier: Apache-2.0 */
/* test_check.c: qn_check's reading of the error record. */
#include "test.h"

#define PROBLEM "fprop bf16 g=8 m=1000 n=512 k=256"

static void record(struct qn_args *args, unsigned code, unsigned group,
                   int64_t value)
{
    unsigned *words = args->workspace;

    words[0] = code;
    words[1] = group;
    words[2] = (unsigned)value;
    words[3] = (unsigned)((uint64_t)value >> 32);
}

static void check_on(int backend)
{
    const struct qn_plan_options options = {.backend = backend};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, PROBLEM, &options);
    struct qn_args args = test_args(ctx, PROBLEM);
    const void *first_dims = args.a.first_dims;

    test_expect(qn_check(plan, &args, NULL), QUERN_OK, "");
    record(&args, 1, 3, -5);
    test_expect(qn_check(plan, &args, NULL), QUERN_ESIZES,
                "lengths[3] is -5: a group's size is negative");
    /* and it was cleared */
    test_expect(qn_check(plan, &args, NULL), QUERN_OK, "");
    record(&args, 2, 7, (int64_t)5 << 32);
    test_expect(qn_check(plan, &args, NULL), QUERN_ESIZES,
                "lengths[7] is 21474836480: a group ends past the rows");
    args.a.offsets = first_dims;
    record(&args, 3, 2, 100);
    test_expect(qn_check(plan, &args, NULL), QUERN_ESIZES,
                "starts[2] is 100: a group starts before the previous one");
    record(&args, 2, 2, 100);
    test_expect(qn_check(plan, &args, NULL), QUERN_ESIZES,
                "lengths[2] or starts[2] is 100");
    args.a.first_dims = NULL;
    record(&args, 2, 2, 100);
    test_expect(qn_check(plan, &args, NULL), QUERN_ESIZES,
                "starts[3] - starts[2] is 100");
    record(&args, 77, 2, 100);
    test_expect(qn_check(plan, &args, NULL), QUERN_ESIZES,
                "the error record is not one that kernels write");
    args.a.first_dims = first_dims;
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

TEST(checks_the_gpu)
{
    check_on(QUERN_BACKEND_JIT);
}

TEST(checks_the_host)
{
    check_on(QUERN_BACKEND_HOST);
}

TEST(refuses_captures)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, PROBLEM, NULL);
    struct qn_args args = test_args(ctx, PROBLEM);
    struct qn_quantization q;
    struct qn_quantize_plan *cast;

    test_expect(
        qn_quantize_parse(ctx, "quantize group of=dy g=3 m=200 k=96", &q),
        QUERN_OK, "");
    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_expect(qn_check(plan, &args, NULL), QUERN_ECAPTURE,
                "quern_check is not allowed while a stream captures");
    test_expect(qn_quantize_plan(ctx, &q, NULL, &cast), QUERN_ECAPTURE,
                "making a plan is not allowed while a stream captures");
    assert_null(cast);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}
