/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: seconds from an arbitrary start, never going back. */
#ifndef QN_CLOCK_H
#define QN_CLOCK_H

#include <time.h>

static inline double qn_clock_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
