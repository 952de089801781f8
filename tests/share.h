/*
** SPDX-License-Identifier: Apache-2.0
** share.h: a share of each list of cases.
**
** Programs whose cases take minutes run a share of them, so that `make test`
** runs one share and `make test-all` the others:
**
**   QUERN_SHARE   I/N: of each list of cases every N-th, from the I-th on,
**                 counted from 0; not set: all of them
**
** Cases that `make test` must not lose are all of share 0 (share_has_first).
*/
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* One of each program. */
__attribute__((weak)) struct {
    int index, count;
    int taken, cases;
} share_state = {.count = 1};

/* 0 if QUERN_SHARE is not set or is I/N with 0 <= I < N. */
static inline int share_open(void)
{
    const char *given = getenv("QUERN_SHARE");
    int length = 0;

    if (!given)
        return 0;
    if (sscanf(given, "%d/%d%n", &share_state.index, &share_state.count,
               &length) == 2 &&
        !given[length] && share_state.index >= 0 &&
        share_state.index < share_state.count)
        return 0;
    fprintf(stderr, "QUERN_SHARE is '%s'; it must be I/N, I from 0 to N - 1\n",
            given);
    return -1;
}

static inline int share_count(int mine)
{
    share_state.cases++;
    share_state.taken += mine;
    return mine;
}

/* Whether this process runs the case of that number in its list; asked once. */
static inline int share_has(int number)
{
    return share_count(number % share_state.count == share_state.index);
}

static inline int share_is_first(void)
{
    return share_state.index == 0;
}

/* The same for a case that is of the first share whatever its number. */
static inline int share_has_first(void)
{
    return share_count(share_is_first());
}

/* The line from which tests/run.sh tells how many cases were left out. */
static inline void share_print(void)
{
    if (share_state.cases)
        printf("cases: %d of %d\n", share_state.taken, share_state.cases);
}
