/* SPDX-License-Identifier: Apache-2.0 */
/*
** gathered.c: indices of a job whose product gathers rows.
*/
#include "oracle/gathered.h"

#include <stdlib.h>

#include "base/random.h"
#include "problem/gather_rules.h"

static int ascending(const void *left, const void *right)
{
    const int a = *(const int *)left, b = *(const int *)right;

    return (a > b) - (a < b);
}

/* The numbers below `count`, again and again, in an order that is drawn. */
static void shuffle(int64_t m, uint64_t count, uint64_t seed, int *to)
{
    for (int64_t i = 0; i < m; i++)
        to[i] = (int)((uint64_t)i % count);
    for (int64_t i = m - 1; i > 0; i--) {
        const int64_t j = (int64_t)(qn_random_next(&seed) % (uint64_t)(i + 1));
        const int one = to[i];

        to[i] = to[j];
        to[j] = one;
    }
}

/* Past the groups' rows indices of no row. */
static void end(const struct qn_job *job, int *to)
{
    for (int64_t i = job->rows; i < job->problem.m; i++)
        to[i] = i % 2 ? -1 : INT32_MAX;
}

/* Some rows of groups go nowhere, too. */
void qn_gathered_scatter(const struct qn_job *job, uint64_t seed, int *rows)
{
    const int m = (int)job->problem.m,
              nowhere[] = {m, -1, INT32_MAX, INT32_MIN};

    shuffle(m, (uint64_t)m, seed, rows);
    for (int i = 5; i < m; i += 11)
        rows[i] = nowhere[i / 11 % 4];
    end(job, rows);
}

/* As from a route: each pair once, where there are enough, ascending in each
   group; and past the groups' rows indices of no row. */
void qn_gathered_draw(const struct qn_job *job, uint64_t seed, int *to)
{
    const struct qn_problem *p = &job->problem;
    const uint64_t pairs = (uint64_t)(p->tokens * qn_gather_topk(p));

    shuffle(p->m, pairs, seed, to);
    for (int g = 0; g < p->groups; g++)
        qsort(to + job->starts[g], (size_t)job->sizes[g], sizeof *to,
              ascending);
    end(job, to);
}
