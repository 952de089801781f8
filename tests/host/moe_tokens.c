/* SPDX-License-Identifier: Apache-2.0 */
/*
** moe_tokens.c: layers whose products read tokens through indices, by the host
** backend: the bytes of permuted rows.
*/
#include "host_moe.h"

#include "api/api.h"
#include "layer/moe_plan.h"
#include "mlp/mlp_plan.h"

#include <stdio.h>

/* Products read tokens through indices, or rows: the same bytes. `dy`: that of
   dh, too. */
static void same_of_tokens(const char *rest, int dy)
{
    static const int all[] = {QUERN_ARG_Y, QUERN_ARG_DX, QUERN_ARG_DPROB,
                              QUERN_ARG_DW1, QUERN_ARG_DW2};
    struct qn_moe_job tokens, rows;
    char text[2][256];

    for (int i = 0; i < 2; i++)
        snprintf(text[i], sizeof text[i], "moe %s gather=%s", rest,
                 i ? "none" : "all");
    host_moe_begin(&tokens, text[0]);
    host_moe_begin(&rows, text[1]);
    assert_int_equal(tokens.call.plan->of.moe->mlp->gathers,
                     tokens.call.args.rows > 0);
    assert_int_equal(tokens.call.plan->of.moe->mlp->gathers_dy, dy);
    assert_int_equal(rows.call.plan->of.moe->mlp->gathers, 0);
    assert_int_equal(rows.call.plan->of.moe->mlp->gathers_dy, 0);
    host_moe_run(&tokens, text[0]);
    host_moe_run(&rows, text[1]);
    for (int i = 0; i < 5; i++) {
        int same;

        assert_int_equal(qn_memory_same(&tokens.call.memory[all[i]],
                                        &rows.call.memory[all[i]], &same),
                         QUERN_OK);
        if (!same)
            fail_msg("%s: %s differs with permuted tokens", rest,
                     qn_api_name(all[i]));
    }
    qn_moe_job_free(&rows);
    qn_moe_job_free(&tokens);
}

TEST(test_moe_gathered_product)
{
    static const struct {
        int dy;
        const char *rest;
    } rows[] = {
        {0, "bf16 g=5 m=70 topk=3 hidden=80 ffn=48 experts=6"},
        {0, "bf16 g=5 m=70 topk=3 hidden=80 ffn=48 prob=y recompute=1"},
        {0, "fp16 g=4 m=33 topk=1 hidden=64 ffn=40 bias=1 prob=none"},
        {0, "fp16 g=4 m=65 topk=2 hidden=72 ffn=40 bias=1 activation=gelu"},
        {0, "bf16 g=3 m=1 topk=2 hidden=64 ffn=32 grad=0"},
        {0, "bf16 g=3 m=0 topk=2 hidden=64 ffn=32"},
        {1, "fp8_block g=5 m=70 topk=3 hidden=144 ffn=128 experts=6"},
        {0, "fp8_block g=5 m=65 topk=2 hidden=128 ffn=72 prob=y"},
        {0, "fp8_block g=3 m=129 topk=1 hidden=128 ffn=128 bias=1"},
        {1, "fp8_row g=4 m=64 topk=4 hidden=96 ffn=40 recompute=1"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        same_of_tokens(rows[i].rest, rows[i].dy);
}

TEST(test_moe_gather_refused)
{
    static const char *const lines[][2] = {
        {"moe bf16 g=3 m=9 topk=2 hidden=64 ffn=32 gather=a",
         "gather=a: auto, none, x or all is expected"},
        {"moe bf16 g=3 m=9 topk=2 hidden=64 ffn=32 gather=x prob=x",
         "gather=x cannot be combined with prob=x"},
        {"moe fp8_row g=3 m=9 topk=2 hidden=64 ffn=32 gather=all prob=x",
         "gather=all cannot be combined with prob=x"},
    };

    host_refuses(lines, sizeof lines / sizeof lines[0]);
}
