/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h: a measurement in the making, shared by the files tune*.c. */
#pragma once

#include "choose/dequantize_choose.h"
#include "choose/session.h"

#include <pthread.h>

struct cu_event;
struct qn_candidate;
struct qn_nvml;
struct quern_context;
struct qn_plan;

enum { QN_TUNE_ROUNDS = 400 }; /* at most */

enum qn_tune_state {
    QN_TUNE_WAITING,   /* for a thread that compiles it */
    QN_TUNE_COMPILING, /* a thread is at it */
    QN_TUNE_READY,     /* loaded; has no plan yet */
    QN_TUNE_RACING,    /* has a plan */
    QN_TUNE_OUT        /* told->reason says why */
};

/* A kernel, or a kernel with a band of its own, or launches that dequantize
   operands before a product. */
struct qn_tune_runner {
    const struct qn_candidate *candidate; /* NULL: of launches */
    int backend;                          /* AOT where it is linked, else JIT */
    int band;                             /* 0: as usual */
    int dequantize;           /* enum quern_dequantize: MAINLOOP, or of
                                 launches */
    enum qn_tune_state state; /* job->lock while threads compile */
    struct qn_plan *plan;
    struct quern_tune_candidate *told; /* its index in the result */
    int repeats; /* runs between two events; 0: not yet known */
    float log_ns[QN_TUNE_ROUNDS]; /* of each round; NAN where it did not run */
};

/* Operands on the device: one allocation, and one to drive L2 out. */
struct qn_tune_data {
    uint64_t operands, flush; /* addresses; 0: none */
    size_t bytes, flush_bytes;
    struct qn_args args;
};

enum { QN_TUNE_REPEATS = 8, QN_TUNE_EVENTS = 2 * QN_TUNE_REPEATS + 2 };

struct qn_tune_job {
    struct quern_context *ctx;
    const struct qn_problem *problem;
    struct qn_tune_options options;
    struct qn_session session;
    double start, deadline; /* monotonic seconds */
    struct qn_tune_runner *runners;
    int count, kernels;                /* of them, and those that came first */
    struct quern_tune_candidate *told; /* as many and QN_TUNE_LATE more */
    int told_count;                    /* with those that never were runners */
    /* of the strategy, without a measurement */
    struct qn_dequantize_choice choice;
    struct qn_tune_data data;
    struct cu_event *events[QN_TUNE_EVENTS];
    struct qn_nvml *nvml; /* NULL: no clock */
    int clock_mhz;
    int rounds, certain;
    int stopped;     /* by the caller; lock */
    int failure;     /* code of the run that failed last */
    uint64_t random; /* of the order in a round */
    /* threads that compile */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t threads[16];
    int nthreads, next, quit;
};

/* Runners derived from kernels: the fastest one's bands, and strategies that
   dequantize before a product. */
enum { QN_TUNE_BANDS = 2, QN_TUNE_WAYS = 3 };
enum { QN_TUNE_LATE = QN_TUNE_BANDS + QN_TUNE_WAYS };

/* qn_tune; with `unless_known` nothing is done where another thread has
   measured the bucket meanwhile. */
int qn_tune_measure(struct quern_context *ctx, const struct qn_problem *problem,
                    const struct qn_tune_options *options, int unless_known,
                    struct quern_tune_result *result);

/* Is time up, or did the caller say stop? */
int qn_tune_over(const struct qn_tune_job *job);

/* Take a runner out of the race. */
void qn_tune_out(struct qn_tune_runner *runner, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* tune_data.c: operands as the problem needs them, or the caller's.
   QUERN_ECUDA says how many bytes are missing; QUERN_EINVAL for a split. */
int qn_tune_data_make(struct qn_tune_job *job);
void qn_tune_data_free(struct qn_tune_job *job);

/* tune_compile.c: threads that compile in the order of the runners. Stopping
   waits for compilations under way; others are dropped. */
int qn_tune_compile_start(struct qn_tune_job *job);
void qn_tune_compile_stop(struct qn_tune_job *job);

/* Give a plan to each kernel that is ready, or else to one strategy, and return
   how many have none yet; with `wait`, first wait for a change if none is
   ready, as long as time is left. -1: none has a chance any more. */
int qn_tune_compile_take(struct qn_tune_job *job, int wait);

/* tune_race.c: measure until the order is certain or time is up. QUERN_ECUDA;
   QUERN_ESIZES. */
int qn_tune_race_run(struct qn_tune_job *job);

/* The fastest, and the model's choice; NULL if none ran. The ratio is paired:
   how many times as long the second takes. */
struct qn_tune_runner *qn_tune_race_best(struct qn_tune_job *job);
struct qn_tune_runner *qn_tune_race_model(struct qn_tune_job *job);
double qn_tune_race_ratio(const struct qn_tune_runner *slower,
                          const struct qn_tune_runner *faster);
