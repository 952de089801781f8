/* SPDX-License-Identifier: Apache-2.0 */
/* host_sizes_rules.c: rules on groups' sizes that the host knows. */
#include "problem/host_sizes_rules.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/problem.h"
#include "internal.h"

size_t qn_host_size_bytes(int sizes, int groups, int count)
{
    return sizes == QUERN_SIZES_DEVICE
               ? 0
               : (size_t)groups * (size_t)count * sizeof(int);
}

size_t qn_host_size_end(const struct qn_problem *p)
{
    const int count = p->microbatches > 1 ? p->microbatches : 1;
    size_t end = QN_WORKSPACE_BYTES;

    qn_space_add(&end, qn_host_size_bytes(p->sizes, p->groups, count));
    return end;
}

int qn_host_size_problem(int sizes, int ragged)
{
    if (sizes != QUERN_SIZES_DEVICE && !ragged)
        return qn_error_set(QUERN_EINVAL,
                            "sizes=%s: no axis is ragged, so that groups have "
                            "no sizes",
                            qn_sizes_name(sizes));
    return QUERN_OK;
}

int qn_host_size_word(int sizes)
{
    if (sizes != QUERN_SIZES_DEVICE)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "host_sizes is not NULL: the problem says "
                        "sizes=device; sizes=host takes them");
}

int qn_host_size_check(const int64_t *sizes, int groups, const char *axis,
                       int64_t total)
{
    int64_t left = total;

    if ((uintptr_t)sizes % sizeof *sizes)
        return qn_error_set(QUERN_EINVAL,
                            "host_sizes is %p: it must be a multiple of %zu",
                            (const void *)sizes, sizeof *sizes);
    for (int g = 0; g < groups; g++) {
        if (sizes[g] < 0)
            return qn_error_set(QUERN_EINVAL, "host_sizes[%d] is %lld: %s", g,
                                (long long)sizes[g],
                                "a group's size must not be negative");
        if (sizes[g] > left)
            return qn_error_set(QUERN_EINVAL,
                                "host_sizes[%d] is %lld: the groups pass "
                                "%s=%lld",
                                g, (long long)sizes[g], axis, (long long)total);
        left -= sizes[g];
    }
    return QUERN_OK;
}

int qn_host_size_rows(const int64_t *host, int sizes, int groups, int64_t m)
{
    if (qn_host_size_word(sizes))
        return QUERN_EINVAL;
    return qn_host_size_check(host, groups, "m", m);
}
