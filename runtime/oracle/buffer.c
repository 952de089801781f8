/* SPDX-License-Identifier: Apache-2.0 */
/* buffer.c: the buffers of a job, in one table. */
#include "oracle/buffer.h"

#include <stddef.h>

#include "oracle/operand.h"

#define ONE(arg, member)                                                       \
    {                                                                          \
        QUERN_ARG_##arg, offsetof(struct qn_job, member), 0, 0                 \
    }
#define OWN(arg, member)                                                       \
    {                                                                          \
        QUERN_ARG_##arg, offsetof(struct qn_job, member), 0, 1                 \
    }
#define ROLE(kind, arg, role)                                                  \
    kind(arg, memory[role]), kind(arg##_SF, sf[role]),                         \
        kind(arg##_GLOBAL, global[role])

const struct qn_buffer qn_buffer_list[] = {
    ROLE(ONE, A, QN_ROLE_A),
    ROLE(ONE, B, QN_ROLE_B),
    ONE(C, memory[QN_ROLE_C]),
    ROLE(OWN, D, QN_ROLE_D),
    ONE(PRE, memory[QN_ROLE_P]),
    ROLE(ONE, D_COLUMNWISE, QN_ROLE_T),
    ONE(LENGTHS, sizes_memory),
    ONE(ALPHA, factors_memory),
    {QUERN_ARG_BETA, offsetof(struct qn_job, factors_memory),
     QUERN_MAX_GROUPS * sizeof(float), 0},
    ONE(BIAS, bias_memory),
    ONE(PROB, probability_memory),
    ONE(GATHER, pairs_memory),
    ONE(DBIAS, dbias),
    ONE(DPROB, dprob),
    ONE(SCALE, scale),
    ONE(HISTORY, history),
    ONE(RANDOM, random),
    ONE(INPUT, in),
    ONE(A_COLUMNWISE, column),
    ONE(A_COLUMNWISE_SF, column_sf),
    ONE(A_COLUMNWISE_GLOBAL, column_global),
    OWN(WORKSPACE, workspace),
};
const int qn_buffer_count = sizeof qn_buffer_list / sizeof qn_buffer_list[0];

struct qn_memory *qn_buffer_of(struct qn_job *job, const struct qn_buffer *b)
{
    return (void *)((char *)job + b->at);
}

static const struct qn_memory *look(const struct qn_job *job,
                                    const struct qn_buffer *b)
{
    return (const void *)((const char *)job + b->at);
}

int qn_buffer_point(struct qn_job *job)
{
    const struct qn_line line = {.kind = QN_LINE_PRODUCT,
                                 .of.product = job->problem};
    struct quern_operand table[QN_SLOTS];
    int count, code = qn_api_table(job->ctx, &line, table, &count);

    for (int i = 0; i < count && !code; i++)
        for (int j = 0; j < qn_buffer_count; j++) {
            const struct qn_buffer *b = &qn_buffer_list[j];
            const struct qn_memory *memory = look(job, b);

            if (b->arg == table[i].arg && memory->base)
                qn_operand_put(QN_LINE_PRODUCT, b->arg, &job->args,
                               memory->data + b->skip);
        }
    return code;
}

void qn_buffer_borrow(struct qn_job *job, const struct qn_job *from)
{
    for (int i = 0; i < qn_buffer_count; i++)
        if (!qn_buffer_list[i].own)
            *qn_buffer_of(job, &qn_buffer_list[i]) =
                *look(from, &qn_buffer_list[i]);
    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        if (role != QN_ROLE_D)
            job->pointers[role] = from->pointers[role];
}

void qn_buffer_free(struct qn_job *job)
{
    for (int i = 0; i < qn_buffer_count; i++)
        if (qn_buffer_list[i].own || !job->borrowed)
            qn_memory_free(qn_buffer_of(job, &qn_buffer_list[i]));
    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        if (role == QN_ROLE_D || !job->borrowed)
            qn_memory_free(&job->pointers[role]);
}

static int guard(const struct qn_memory *memory, int *all)
{
    int intact = 1, code = QUERN_OK;

    if (memory->base)
        code = qn_memory_guards(memory, &intact);
    *all &= intact;
    return code;
}

int qn_buffer_guards(const struct qn_job *job, int *intact)
{
    int code = QUERN_OK;

    *intact = 1;
    for (int i = 0; i < qn_buffer_count && !code; i++)
        code = guard(look(job, &qn_buffer_list[i]), intact);
    for (int role = QN_ROLE_A; role < QN_ROLES && !code; role++)
        code = guard(&job->pointers[role], intact);
    return code;
}
