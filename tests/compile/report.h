/* SPDX-License-Identifier: Apache-2.0 */
/*
** report.h: figures of ptxas about a kernel.
**
** The runtime reads the same log (device/nvrtc.c) to refuse a kernel; this
** reader is separate on purpose, so that neither can hide the other's
** mistake.
*/
#pragma once

#include <stddef.h>

struct report {
    int registers;  /* of the entry function, -1 where ptxas did not say */
    int spills;     /* bytes of spill stores and loads */
    int stack;      /* bytes */
    int shared;     /* bytes of static shared memory */
    int serialized; /* C7510 to C7514: wgmma waits for wgmma */
};

void report_read(const char *log, struct report *report);

/* The first rule that a kernel breaks, as text; NULL if none. `threads` and
   `smem` (dynamic) are its launch's sizes, `name` its name. */
const char *report_broken(const struct report *report, int threads, int smem);
