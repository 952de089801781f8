/* SPDX-License-Identifier: Apache-2.0 */
/* driver_stream.h: work of the driver: done at once, or kept in the graph that
   its stream captures. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct cu_stream;

/* Who has it may parse programs, run launches and change the list of buffers,
   for which the machine has no locks of its own. */
extern pthread_mutex_t px_running;

struct px_work {
    int (*run)(struct px_work *); /* a code of the driver */
    uint64_t word[5];             /* its arguments */
    void *owned;                  /* freed with the graph, or NULL */
};

/* A copy of the work is run, or goes into the graph; with `bytes` of what
   work->owned is at, which then has a copy of its own. */
int px_stream_do(struct cu_stream *stream, const struct px_work *work,
                 size_t bytes);
