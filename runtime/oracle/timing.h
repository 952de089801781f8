/* SPDX-License-Identifier: Apache-2.0 */
/* timing.h: how long launches take. */
#pragma once

#include "oracle/gpu.h"

enum { QN_TIMING_MOST = 1000, QN_TIMING_BATCH = 32 };

/* How long a launch takes. */
struct qn_job_time {
    double seconds; /* median */
    double least;
    int runs;
    struct qn_gpu_load load; /* while it ran */
};

/* Something that runs again and again; on a GPU it only queues. */
struct qn_timed {
    int (*run)(void *user);
    void *user;
    struct qn_gpu *gpu; /* NULL: runs at once */
};

/* The seconds of `count` runs, in batches that a GPU works off without a
   pause, and the GPU's load while they ran. Codes of the library. */
int qn_timing_runs(const struct qn_timed *, double *seconds, int count,
                   struct qn_gpu_load *load);

/* `runs`, or if that is 0 as many as fit into about a second. */
int qn_timing_count(int runs, double seconds);

/* Sort them. */
void qn_timing_sort(double *seconds, int count);

/* Sort them, and compute their statistics. */
void qn_timing_sum(double *seconds, int runs, struct qn_job_time *time);

/* Two launches to warm up, then `runs` as qn_timing_count says, each timed
   by itself. Codes of the library. */
int qn_timing_measure(const struct qn_timed *, int runs, struct qn_job_time *);
