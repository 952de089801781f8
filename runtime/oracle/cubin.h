/* SPDX-License-Identifier: Apache-2.0 */
/* cubin.h: the resources of a compiled kernel. */
#pragma once

#include <stddef.h>

struct qn_cubin {
    int entries;    /* kernels in it */
    char name[256]; /* the first one's symbol, as profilers show it */
    int registers;  /* of a thread, when it starts */
    int stack;      /* bytes of local memory for each thread's frame */
    int shared;     /* bytes of static shared memory */
};

/* Returns 0, or 1 if it is no cubin with one kernel's figures. */
int qn_cubin_read(const void *data, size_t bytes, struct qn_cubin *cubin);

/* The CTAs that fit one multiprocessor. */
struct qn_occupancy {
    int ctas;        /* at the same time; 0: the architecture is not known */
    int warps, most; /* these CTAs' warps, and how many there could be */
    const char *by;  /* the bound: "registers", "shared memory", .. */
};

/* For CTAs of so many threads, registers a thread and bytes of shared
   memory, on a GPU of version 90 (for 9.0). */
void qn_cubin_occupancy(int version, int threads, int registers, int shared,
                        struct qn_occupancy *occupancy);
