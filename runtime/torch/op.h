/* SPDX-License-Identifier: Apache-2.0 */
/*
** op.h: an operator of torch.ops.quern, as its schema declares it. Parameters
** and results have the names of a line's operands, with '_' for '.'; integers
** have the names of a line's keys.
*/
#ifndef QUERN_TORCH_OP_H
#define QUERN_TORCH_OP_H

#include "quern.h"
#include "torch/abi.h"

enum { QN_OP_PARAMETERS = 40, QN_OP_RESULTS = 8 };

struct qn_op_parameter {
    enum {
        QN_OP_LINE,
        QN_OP_KEY,    /* SymInt: a number of the line */
        QN_OP_NUMBER, /* int: queue or layer */
        QN_OP_SCALAR, /* float: limit, slope or shift */
        QN_OP_TENSOR,
        QN_OP_OPTIONAL
    } kind;
    char name[24];
    int arg; /* enum quern_arg, of tensors */
};

struct qn_op {
    struct qn_op_parameter parameters[QN_OP_PARAMETERS];
    int results[QN_OP_RESULTS]; /* enum quern_arg */
    int parameter_count, result_count;
    int phase; /* enum quern_phase */
};

/* Read a schema of ours. 0: a name in it is unknown, or there are too many. */
int qn_op_read(const char *schema, struct qn_op *op);

/*
** Serve a call: make the line, find its plan, iterate over its operands,
** allocate results and workspace, run on torch's current stream or put the run
** into a queue. Consumes the arguments on the stack and leaves the results
** there. A failure throws a C++ exception with the library's sentence, after
** everything was released.
*/
void qn_call(const struct qn_op *op, qn_abi_value *stack);

/* Add a folder with specs of a user's, before the context is open: Python calls
   it. NULL, or a sentence in static storage. */
QUERN_API const char *quern_torch_specs(const char *folder);

#endif
