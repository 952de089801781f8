/* SPDX-License-Identifier: Apache-2.0 */
/* tune_compile.c: candidates are compiled by threads, in the model's order,
   while the GPU measures those that are ready. */
#include "tune/tune.h"
#include "base/context.h"
#include "base/error.h"
#include "choose/trial.h"
#include "code/cache.h"
#include "code/module.h"
#include "device/host.h"
#include "product/plan.h"

#include <time.h>

enum { MOST_THREADS = 16 };

/* The next that waits, or NULL; needs the lock. */
static struct qn_tune_runner *next_waiting(struct qn_tune_job *job)
{
    if (job->quit || job->next == job->kernels || qn_tune_over(job))
        return NULL;
    return &job->runners[job->next++];
}

/* Into this context and, with its CUDA context current, onto the GPU, after a
   trial if it never ran on such a GPU. */
static int load(struct qn_tune_job *job, const struct qn_tune_runner *runner)
{
    struct qn_trial_line line = {0};
    struct qn_driver_scope scope;
    struct qn_module *module;
    int code = qn_driver_enter(job->session.driver, job->session.scope.context,
                               &scope);

    if (!code)
        code = qn_trial_next(&job->session, &line, runner->candidate,
                             runner->backend);
    if (!code)
        code = qn_module_get(job->ctx, runner->candidate, runner->backend,
                             &module);
    qn_driver_leave(job->session.driver, &scope);
    return code;
}

static void *work(void *user)
{
    struct qn_tune_job *job = user;
    struct qn_tune_runner *runner;

    qn_cache_wait_until(job->deadline);
    pthread_mutex_lock(&job->lock);
    while ((runner = next_waiting(job))) {
        int code;

        runner->state = QN_TUNE_COMPILING;
        pthread_mutex_unlock(&job->lock);
        code = load(job, runner);
        pthread_mutex_lock(&job->lock);
        runner->state = QN_TUNE_READY;
        if (code)
            qn_tune_out(runner, "%s", qn_error_text());
        pthread_cond_broadcast(&job->changed);
    }
    pthread_mutex_unlock(&job->lock);
    return NULL;
}

/* One core is left to the thread that measures. */
static int count_threads(const struct qn_tune_job *job)
{
    int cores = qn_host_cores() - 1;

    if (job->options.threads > 0)
        cores = job->options.threads;
    if (cores > MOST_THREADS)
        cores = MOST_THREADS;
    if (cores > job->count)
        cores = job->count;
    return cores > 1 ? cores : 1;
}

int qn_tune_compile_start(struct qn_tune_job *job)
{
    const int wanted = count_threads(job);

    while (job->nthreads < wanted &&
           !pthread_create(&job->threads[job->nthreads], NULL, work, job))
        job->nthreads++;
    return job->nthreads
               ? QUERN_OK
               : qn_error_set(QUERN_ENOMEM, "no thread could be started");
}

void qn_tune_compile_stop(struct qn_tune_job *job)
{
    pthread_mutex_lock(&job->lock);
    job->quit = 1;
    pthread_mutex_unlock(&job->lock);
    while (job->nthreads)
        pthread_join(job->threads[--job->nthreads], NULL);
    for (; job->next < job->kernels; job->next++)
        if (job->runners[job->next].state == QN_TUNE_WAITING)
            qn_tune_out(&job->runners[job->next],
                        "time was up before it was compiled");
}

/* Until something changes, at most a tenth of a second. */
static void wait_for_change(struct qn_tune_job *job)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&job->changed, &job->lock, &until);
}

/* Needs the lock. */
static int count_state(const struct qn_tune_job *job, enum qn_tune_state state)
{
    int count = 0;

    for (int i = 0; i < job->count; i++)
        count += job->runners[i].state == state;
    return count;
}

/* A kernel is loaded, so this compiles nothing; the passes of a strategy
   are. */
static void plan(struct qn_tune_job *job, struct qn_tune_runner *runner)
{
    struct qn_plan_options options = {.backend = runner->backend,
                                      .sms = job->options.sms};
    struct qn_problem problem = *job->problem;

    if (runner->candidate)
        options.kernel = runner->candidate->kernel->name;
    problem.dequantize = runner->dequantize;
    runner->state = QN_TUNE_RACING;
    if (qn_plan_make(job->ctx, &problem, &options, runner->band, &runner->plan))
        qn_tune_out(runner, "%s", qn_error_text());
    else
        runner->told->kernel = runner->plan->kernel->name;
}

/* A dequantize strategy is compiled here, so a kernel is measured first, as
   long as one has a chance. Needs the lock. */
static int may_plan(const struct qn_tune_job *job,
                    const struct qn_tune_runner *runner)
{
    int chances = 0, measured = 0;

    if (runner->state != QN_TUNE_READY)
        return 0;
    for (int i = 0; i < job->kernels; i++) {
        chances += job->runners[i].state != QN_TUNE_OUT;
        measured += job->runners[i].told->rounds >= 2;
    }
    return runner->candidate || ((measured || !chances) && !qn_tune_over(job));
}

/* The next that is ready for a plan: strategies come last. Needs the lock. */
static struct qn_tune_runner *next_ready(struct qn_tune_job *job)
{
    for (int i = 0; i < job->count; i++)
        if (may_plan(job, &job->runners[i]))
            return &job->runners[i];
    return NULL;
}

int qn_tune_compile_take(struct qn_tune_job *job, int wait)
{
    struct qn_tune_runner *runner;
    int waiting, chances;

    pthread_mutex_lock(&job->lock);
    while (wait && !next_ready(job) &&
           (count_state(job, QN_TUNE_WAITING) ||
            count_state(job, QN_TUNE_COMPILING)) &&
           !qn_tune_over(job))
        wait_for_change(job);
    do { /* all kernels, or one strategy: rounds run before the next */
        runner = next_ready(job);
        pthread_mutex_unlock(&job->lock);
        if (runner)
            plan(job, runner);
        pthread_mutex_lock(&job->lock);
    } while (runner && runner->candidate);
    waiting = count_state(job, QN_TUNE_WAITING) +
              count_state(job, QN_TUNE_COMPILING) +
              count_state(job, QN_TUNE_READY);
    chances = waiting + count_state(job, QN_TUNE_RACING);
    pthread_mutex_unlock(&job->lock);
    return chances ? waiting : -1;
}
