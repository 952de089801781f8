/* SPDX-License-Identifier: Apache-2.0 */
/* operand.h: bytes and addresses of a line's operands, by its table. */
#pragma once

#include "api/api.h"

/* The bytes of each operand for so many rows; 0: the line has none. Codes of
   the library. */
int qn_operand_bytes(struct quern_context *, const struct qn_line *,
                     int64_t rows, size_t bytes[QUERN_ARGS_COUNT]);

/* Put the address of an array where the arguments of a kind of line (enum
   qn_line_kind) have it: struct qn_args and its like. Sizes have no such
   place: they are left to the caller. */
void qn_operand_put(int kind, int arg, void *args, void *data);
