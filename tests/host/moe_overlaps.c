/* SPDX-License-Identifier: Apache-2.0 */
/* moe_overlaps.c: operands of layers that share memory, one of them written. */
#include "host_moe.h"

#include <string.h>

/* An operand inside a larger one, one of them written. */
TEST(test_moe_overlaps)
{
    static const char scaled[] =
        "moe nvfp4 g=4 m=64 topk=2 hidden=64 ffn=32 prob=x bias=1 residual=1";
    static const char delayed[] = "moe fp8_tensor_delayed g=4 m=64 topk=2 "
                                  "hidden=64 ffn=32";
    static const char plain[] = "moe bf16 g=4 m=64 topk=2 hidden=64 ffn=32";
    static const struct {
        const char *line;
        int phase, arg, at;
        const char *text; /* NULL: allowed */
    } rows[] = {
#define ROW(line, phase, arg, at, text)                                        \
    {line, QUERN_PHASE_##phase, QUERN_ARG_##arg, QUERN_ARG_##at, text}
        ROW(scaled, FORWARD, Y, C, NULL),
        ROW(scaled, FORWARD, Y, W1_ROWWISE, "y overlaps w1_rowwise"),
        ROW(scaled, FORWARD, W2_ROWWISE_SF, Y, "y overlaps w2_rowwise.sf"),
        ROW(scaled, FORWARD, B1, Y, "y overlaps b1"),
        ROW(scaled, FORWARD, W1_ROWWISE_GLOBAL, Y, "y overlaps w1_rowwise.glo"),
        ROW(scaled, FORWARD, RANDOM, Y, "y overlaps random"),
        ROW(scaled, FORWARD, ERRORS, B2, "errors overlaps b2"),
        ROW(scaled, BACKWARD, DX, W1_COLUMNWISE, "dx overlaps w1_columnwise"),
        ROW(scaled, BACKWARD, DB1, X, "db1 overlaps x"),
        ROW(scaled, BACKWARD, DPROB, DB2, "dprob overlaps db2"),
        ROW(scaled, BACKWARD, DB2, DX, "dx overlaps db2"),
        ROW(delayed, FORWARD, SCALE, Y, "y overlaps scale"),
        ROW(delayed, FORWARD, Y, HISTORY, "y overlaps history"),
        ROW(delayed, FORWARD, X, HISTORY, "history overlaps x"),
        ROW(plain, BACKWARD, DY, DW1, "dw1 overlaps dy"),
        ROW(plain, WGRAD, DW1, SAVED, "overlaps dw1"),
        ROW(plain, FORWARD, INDEX, Y, "y overlaps index"),
#undef ROW
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct quern_args args;
        struct qn_moe_job j;

        host_moe_begin(&j, rows[i].line);
        args = j.call.args;
        args.phase = rows[i].phase;
        args.of[rows[i].arg].data = j.call.memory[rows[i].at].data;
        if (quern_run(j.call.plan, &args, NULL)
                ? !rows[i].text || !strstr(quern_errmsg(), rows[i].text)
                : rows[i].text != NULL)
            fail_msg("row %zu: '%s'", i, quern_errmsg());
        qn_moe_job_free(&j);
    }
}
