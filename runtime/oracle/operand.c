/* SPDX-License-Identifier: Apache-2.0 */
/* operand.c: bytes and addresses of a line's operands, by its table. */
#include "oracle/operand.h"

#include <string.h>

int qn_operand_bytes(struct quern_context *ctx, const struct qn_line *line,
                     int64_t rows, size_t bytes[QUERN_ARGS_COUNT])
{
    struct quern_operand table[QN_SLOTS];
    int count = 0, code = qn_api_table(ctx, line, table, &count);

    memset(bytes, 0, QUERN_ARGS_COUNT * sizeof *bytes);
    for (int i = 0; i < count && !code; i++)
        bytes[table[i].arg] = (size_t)quern_extent(&table[i].bytes, rows);
    return code;
}

void qn_operand_put(int kind, int arg, void *args, void *data)
{
    const struct qn_slot *slot = qn_api_slot(arg, kind);
    void *at = slot ? (char *)args + slot->at[kind] : NULL;
    struct qn_tensor *t = at;

    if (!slot)
        return;
    switch (slot->form) {
    case QN_SLOT_TENSOR:
        t->data = data;
        break;
    case QN_SLOT_SF:
        t->sf = data;
        break;
    case QN_SLOT_GLOBAL:
        t->global = data;
        break;
    default:
        memcpy(at, &data, sizeof data);
    }
}
