/* SPDX-License-Identifier: Apache-2.0 */
/* history.c: the order of delayed scaling's history. */
#include "host.h"

/* As TransformerEngine's amax_history: the first slot collects, a rescale takes
   the largest of all, drops the second and moves the first to the end. */
TEST(test_quantize_history)
{
    static const float calls[] = {2, 8, 4}, scales[] = {224, 56, 56};
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct qn_quantization q;
    float scale[2] = {1, 1}, history[1024] = {0};
    unsigned char workspace[256] __attribute__((aligned(256))) = {0};

    if (qn_quantize_parse(host_ctx, "rescale fp8_tensor_delayed of=x", &q) ||
        qn_quantize_needs(host_ctx, &q, &need) ||
        qn_quantize_plan(host_ctx, &q, &options, &plan))
        fail_msg("%s", quern_errmsg());
    assert_int_equal(need.history, 1024);
    need.args.scale = scale;
    need.args.history = history;
    need.args.workspace = workspace;
    history[1] = 1e6f; /* the oldest */
    for (int i = -1; i < 3; i++) {
        history[0] = i < 0 ? 0 : calls[i];
        if (qn_quantize_run(plan, &need.args, NULL))
            fail_msg("%s", quern_errmsg());
        assert_true(i < 0 || scale[0] == scales[i]);
    }
    for (int i = 0; i < 1024; i++)
        assert_true(history[i] == (i < 1021 ? 0 : calls[i - 1021]));
    qn_quantize_plan_free(plan);
}
