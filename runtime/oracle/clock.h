/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: seconds from an arbitrary start, never going back. */
#pragma once

#include <time.h>

static inline double qn_clock_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
