/* SPDX-License-Identifier: Apache-2.0 */
/* split.c: the syntax of split=, which plans ignore. */
#include "problem/problem.h"
#include "base/error.h"
#include "base/guess.h"
#include "base/text.h"
#include "base/types.h"
#include "problem/geometry.h"

#include <ctype.h>
#include <string.h>

/* 200,0,37: as many lengths as groups, together at most the axis. */
static int check_list(const struct qn_problem *p)
{
    int64_t total = qn_geometry_length(p, p->ragged), sum = 0, length;
    const char *at = p->split;
    int count = 0;

    for (;;) {
        at = qn_text_number(at, &length);
        if (!at || (*at && *at != ','))
            return qn_error_set(QUERN_EINVAL,
                                "split=%s: whole numbers with commas "
                                "between them are expected",
                                p->split);
        count++;
        if (length > total - sum)
            return qn_error_set(
                QUERN_EINVAL, "split=%s: more than %s=%lld together", p->split,
                qn_axis_name(p->ragged), (long long)total);
        sum += length;
        if (!*at++)
            break;
    }
    if (count != p->groups)
        return qn_error_set(QUERN_EINVAL,
                            "split=%s: %d lengths for g=%d groups", p->split,
                            count, p->groups);
    return QUERN_OK;
}

int qn_split_check(const struct qn_problem *p)
{
#define NAME(name)  #name,
#define COMMA(name) #name ", "
    static const char *const names[] = {QN_SPLITS(NAME)};
    struct qn_guess guess = {.word = p->split};
    char hint[128];

    if (!p->split[0] || !strcmp(p->split, "even"))
        return QUERN_OK;
    if (p->ragged == QUERN_AXIS_NONE)
        return qn_error_set(QUERN_EINVAL,
                            "split=%s: no axis is ragged, so that groups have "
                            "no sizes",
                            p->split);
    if (p->split[0] == '@' && p->split[1])
        return QUERN_OK;
    if (isdigit((unsigned char)p->split[0]))
        return check_list(p);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!strcmp(names[i], p->split))
            return QUERN_OK;
        qn_guess_try(&guess, names[i]);
    }
    return qn_error_set(QUERN_EINVAL,
                        "split=%s is unknown%s; known: " QN_SPLITS(
                            COMMA) "@FILE, or lengths like 200,0,37",
                        p->split, qn_guess_text(&guess, hint, sizeof hint));
}

int qn_split_check_rows(int groups, int64_t rows, const char *split, int ragged)
{
    struct qn_problem p = {.ragged = ragged ? QUERN_AXIS_M : QUERN_AXIS_NONE,
                           .groups = groups,
                           .m = rows};

    strcpy(p.split, split);
    return qn_split_check(&p);
}
