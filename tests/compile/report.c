/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: a reader of ptxas's report, and the rules for a kernel. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

enum {
    REGISTER_FILE = 65536, /* of a multiprocessor, 32-bit */
    REGISTER_UNIT = 8,     /* a thread's share comes in eights */
    SHARED_LIMIT = 232448  /* bytes that one CTA may have on Hopper */
};

/* The numbers before `unit`, summed over every place where it stands. */
static int sum_before(const char *log, const char *unit)
{
    int sum = 0;

    for (const char *at = log; (at = strstr(at, unit)); at += strlen(unit)) {
        const char *digit = at;

        while (digit > log && digit[-1] >= '0' && digit[-1] <= '9')
            digit--;
        if (digit < at)
            sum += atoi(digit);
    }
    return sum;
}

void report_read(const char *log, struct report *r)
{
    r->registers = -1;
    if (strstr(log, " registers"))
        r->registers = sum_before(log, " registers");
    r->spills = sum_before(log, " bytes spill stores") +
                sum_before(log, " bytes spill loads");
    r->stack = sum_before(log, " bytes stack frame");
    r->shared = sum_before(log, " bytes smem");
    /* C7510 to C7514 differ in their reasons and share this phrase. */
    r->serialized = strstr(log, "instructions are serialized") != NULL;
}

static int register_limit(int threads)
{
    int share = REGISTER_FILE / threads / REGISTER_UNIT * REGISTER_UNIT;

    return share > 255 ? 255 : share;
}

const char *report_broken(const struct report *r, int threads, int smem)
{
    if (r->serialized)
        return "ptxas serialized its wgmma";
    if (r->registers < 0)
        return "ptxas reported no registers";
    if (r->spills || r->stack)
        return "it spills registers";
    if (r->registers > register_limit(threads))
        return "it needs more registers than its threads can have";
    if (r->shared + smem > SHARED_LIMIT)
        return "it needs more than 232448 bytes of shared memory";
    return NULL;
}
