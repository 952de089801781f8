/* SPDX-License-Identifier: Apache-2.0 */
/* args.c: the arguments of a run, as its plan sees them. */
#include "product/args.h"

const char *const qn_args_names[QN_ROLES] = {"a", "b",   "c",
                                             "d", "pre", "d_columnwise"};

int64_t qn_args_group_stride(const struct qn_tensor *tensor,
                             const struct qn_geometry *g)
{
    if (!g->grouped)
        return 0;
    /* of a single group it leads nowhere, and may be anything */
    return tensor->group_stride && g->groups > 1
               ? tensor->group_stride
               : qn_args_stride(tensor, g) * g->rows;
}

int qn_args_sizes(const struct qn_plan *plan, const struct qn_args *args)
{
    int first = -1;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        const struct qn_tensor *tensor = qn_args_tensor(args, role);
        const struct qn_geometry *g = &plan->operands[role];

        if (g->grouped || g->gathered || role == QN_ROLE_C || role >= QN_ROLE_P)
            continue;
        if (qn_args_lengths(tensor, g) || tensor->offsets)
            return role;
        if (first < 0)
            first = role;
    }
    return first;
}

void qn_args_given(const struct qn_plan *plan, const struct qn_args *args,
                   const void **lengths, const void **offsets, int *type)
{
    const int from = qn_args_sizes(plan, args);
    const struct qn_tensor *t;

    *lengths = args->host_sizes;
    *offsets = NULL;
    *type = QUERN_I64;
    if (args->host_sizes || from < 0)
        return;
    t = qn_args_tensor(args, from);
    *lengths = qn_args_lengths(t, &plan->operands[from]);
    *offsets = t->offsets;
    *type = t->sizes_type;
}
