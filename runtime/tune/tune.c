/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c: measure which kernel is fastest for a problem, and keep the
   result. */
#include "tune/tune.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "code/cache.h"
#include "device/nvml.h"
#include "problem/result_rules.h"
#include "tuned/tune_key.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS    20.0 /* unless the options say other */
#define CLOCK_FROM 5.0  /* seconds to spend: opening NVML takes one */
#define HOPELESS   2.0  /* of the model's cycles: more is not measured */

/* -------------------------------------------------------------- candidates */

/* "" for a choice that is worth compiling. */
static void judge(const struct qn_choice *choice, const struct qn_choice *best,
                  struct quern_tune_candidate *told)
{
    const double factor = choice->figures.cycles / best->figures.cycles;

    told->kernel = choice->candidate->kernel->name;
    if (!choice->fits)
        memcpy(told->reason, choice->reason, sizeof told->reason);
    else if (factor > HOPELESS)
        snprintf(told->reason, sizeof told->reason,
                 "the model expects %.1f x the cycles of its best", factor);
}

/* Linked kernels need no compiler. */
static int backend_of(const struct qn_tune_job *job,
                      const struct qn_kernel *kernel)
{
    if (job->options.backend != QUERN_BACKEND_AUTO)
        return job->options.backend;
    return kernel->cubin ? QUERN_BACKEND_AOT : QUERN_BACKEND_JIT;
}

/* The rounds that a runner was not in hold no time. */
static void clear_rounds(struct qn_tune_runner *runner)
{
    for (int i = 0; i < QN_TUNE_ROUNDS; i++)
        runner->log_ns[i] = NAN;
}

/* A runner for each choice that is worth it, in the model's order. */
static int make_runners(struct qn_tune_job *job, const struct qn_choice *list,
                        int count)
{
    const size_t most = (size_t)count + QN_TUNE_LATE;

    job->runners = calloc(most, sizeof *job->runners);
    job->told = calloc(most, sizeof *job->told);
    if (!job->runners || !job->told)
        return qn_error_memory();
    for (size_t i = 0; i < most; i++)
        clear_rounds(&job->runners[i]);
    for (int i = 0; i < count; i++) {
        struct quern_tune_candidate *told = &job->told[job->told_count++];
        struct qn_tune_runner *runner = &job->runners[job->count];

        judge(&list[i], &list[0], told);
        if (told->reason[0])
            continue;
        runner->candidate = list[i].candidate;
        runner->backend = backend_of(job, list[i].candidate->kernel);
        runner->dequantize = QUERN_DEQUANTIZE_MAINLOOP;
        runner->told = told;
        job->count++;
    }
    job->kernels = job->count;
    return QUERN_OK;
}

static int find_candidates(struct qn_tune_job *job)
{
    struct qn_demand *demand = &job->session.demand;
    struct qn_choice *list;
    int count, code;

    demand->backend = job->options.backend == QUERN_BACKEND_AUTO
                          ? QUERN_BACKEND_JIT
                          : job->options.backend;
    code = qn_select_list(job->ctx, demand, &list, &count);
    if (code)
        return code;
    if (count == 0 || !list[0].fits)
        code = qn_select_none(job->ctx, demand, list, count);
    else
        code = make_runners(job, list, count);
    free(list);
    return code;
}

/* The choice of plans without measurements. */
static int find_way(struct qn_tune_job *job)
{
    int code = qn_dequantize_choose(&job->session, &job->choice);

    job->choice.strategy = job->choice.model;
    job->choice.tuned = 0;
    return code;
}

/* ------------------------------------------------------------------ results */

/* No runner could be measured: each one's reason. */
static int fail_all(struct qn_tune_job *job)
{
    int code = job->failure ? job->failure : QUERN_ECOMPILE;

    if (!job->failure && job->stopped)
        code = qn_error_set(QUERN_EINVAL,
                            "options.progress ended it before any candidate "
                            "was measured twice");
    else if (!job->failure && qn_tune_over(job))
        code = qn_error_set(QUERN_EINVAL,
                            "options.seconds is %.3f: time was up before any "
                            "candidate was measured twice",
                            job->options.seconds);
    else
        qn_error_set(code, "no candidate could be measured");
    for (int i = 0; i < job->told_count; i++)
        if (job->told[i].reason[0])
            qn_error_add("  %s: %s", job->told[i].kernel, job->told[i].reason);
    return code;
}

static void describe_line(const struct qn_tune_job *job,
                          const struct quern_tune_result *r,
                          struct qn_tune_line *line)
{
    struct qn_problem bucket;

    memset(line, 0, sizeof *line);
    qn_tune_file_canonical(job->problem, &bucket);
    qn_problem_print(&bucket, line->problem, sizeof line->problem);
    snprintf(line->kernel, sizeof line->kernel, "%s", r->kernel);
    snprintf(line->model, sizeof line->model, "%s", r->model);
    line->sms = job->session.demand.sms;
    line->band = r->band;
    line->dequantize = r->dequantize;
    line->ns = llround(fmax(r->seconds * 1e9, 1));
    line->model_ns = llround(fmax(r->model_seconds * 1e9, 1));
    line->permille = llround(r->ratio * 1000);
    line->mhz = r->clock_mhz;
    line->certain = r->certain;
}

static int keep(struct qn_tune_job *job, struct quern_tune_result *result)
{
    struct qn_tune_line line;
    struct qn_tune_file file = {.lines = &line, .count = 1};
    int code;

    describe_line(job, result, &line);
    snprintf(file.gpu, sizeof file.gpu, "%s", job->session.device.name);
    code = qn_tune_key_of(job->ctx, line.kernel, line.key);
    if (!code)
        code = qn_tune_store_add(job->ctx, &file, 1, result->file,
                                 sizeof result->file);
    if (code) /* which has no such line */
        result->file[0] = 0;
    return code;
}

/* Was any strategy but that of kernels which read the operands measured? */
static int has_strategies(const struct qn_tune_job *job)
{
    for (int i = 0; i < job->count; i++)
        if (job->runners[i].dequantize > QUERN_DEQUANTIZE_MAINLOOP &&
            job->runners[i].told->rounds >= 2)
            return 1;
    return 0;
}

/* Those that came when time was nearly up. */
static void tell_unmeasured(struct qn_tune_job *job)
{
    for (int i = 0; i < job->count; i++)
        if (!job->runners[i].told->rounds && !job->runners[i].told->reason[0])
            qn_tune_out(&job->runners[i], "time was up before it was measured");
}

/* Who won, and by how much. */
static int sum_up(struct qn_tune_job *job, struct quern_tune_result *result)
{
    struct qn_tune_runner *best = qn_tune_race_best(job);
    struct qn_tune_runner *model = qn_tune_race_model(job);

    tell_unmeasured(job);
    result->rounds = job->rounds;
    result->clock_mhz = job->clock_mhz;
    result->bytes = job->data.bytes + job->data.flush_bytes;
    if (!best || best->told->rounds < 2)
        return fail_all(job);
    result->kernel = best->told->kernel;
    result->band = best->band;
    result->dequantize =
        has_strategies(job) ? best->dequantize : QUERN_DEQUANTIZE_AUTO;
    result->seconds = best->told->seconds;
    result->model = model->told->kernel;
    result->model_seconds = model->told->seconds;
    result->ratio = qn_tune_race_ratio(model, best);
    result->certain = job->certain;
    return QUERN_OK;
}

/* -------------------------------------------------------------------- work */

static int make_events(struct qn_tune_job *job)
{
    int code = QUERN_OK;

    for (int i = 0; i < QN_TUNE_EVENTS && !code; i++)
        code = QN_CU(job->session.driver, cuEventCreate, &job->events[i], 0);
    return code;
}

/* The GPU's memory last: threads compile while it is filled. Launches that
   dequantize are compiled by this thread, whose time ends, too. */
static int work(struct qn_tune_job *job)
{
    int code = find_way(job);

    qn_cache_wait_until(job->deadline);
    if (!code)
        code = find_candidates(job);
    if (!code)
        code = qn_tune_compile_start(job);
    if (!code)
        code = qn_tune_data_make(job);
    if (!code)
        code = make_events(job);
    if (!code && job->options.seconds >= CLOCK_FROM)
        job->nvml =
            qn_nvml_open(job->session.driver, job->session.device.ordinal);
    if (!code)
        code = qn_tune_race_run(job);
    qn_tune_compile_stop(job);
    qn_cache_wait_until(0);
    return code;
}

/* Everything but the memory that the result takes. */
static void clean_up(struct qn_tune_job *job)
{
    struct qn_driver *driver = job->session.driver;

    if (job->events[0]) /* something may have been launched */
        driver->cuStreamSynchronize(job->options.stream);
    for (int i = 0; i < job->count; i++)
        qn_plan_free(job->runners[i].plan);
    for (int i = 0; i < QN_TUNE_EVENTS; i++)
        if (job->events[i])
            driver->cuEventDestroy_v2(job->events[i]);
    if (driver)
        qn_tune_data_free(job);
    qn_nvml_close(job->nvml);
    free(job->runners);
}

static int check_options(const struct qn_tune_job *job)
{
    const struct qn_tune_options *o = &job->options;

    if (o->backend == QUERN_BACKEND_HOST ||
        o->backend == QUERN_BACKEND_CUBLASLT)
        return qn_error_set(QUERN_EINVAL,
                            "options.backend is %s: only kernels for GPUs are "
                            "chosen from, by auto, jit and aot",
                            o->backend == QUERN_BACKEND_HOST ? "host"
                                                             : "cublaslt");
    if (!(o->seconds >= 0))
        return qn_error_set(QUERN_EINVAL,
                            "options.seconds is %g: 0 (default) or more is "
                            "expected",
                            o->seconds);
    if (o->threads < 0)
        return qn_error_set(QUERN_EINVAL,
                            "options.threads is %d: 0 (default) or more is "
                            "expected",
                            o->threads);
    if (o->keep < 0 || o->keep > 2)
        return qn_error_set(QUERN_EINVAL, "options.keep is %d: 0, 1 or 2",
                            o->keep);
    if (o->l2 < QUERN_L2_BOTH || o->l2 > QUERN_L2_WARM)
        return qn_error_set(QUERN_EINVAL,
                            "options.l2 is %d: not a value of enum quern_l2",
                            o->l2);
    return QUERN_OK;
}

/* A GPU, its driver and its context. */
static int open_session(struct qn_tune_job *job)
{
    const struct qn_plan_options plan = {.backend = job->options.backend,
                                         .sms = job->options.sms};
    int code = qn_session_open(&job->session, job->ctx, job->problem, &plan);

    if (!code && !job->session.driver)
        code = qn_error_set(QUERN_ENODEVICE,
                            "tuning measures on a GPU, and this machine has "
                            "none that can be used");
    if (!code)
        code = qn_session_capture(&job->session, job->options.stream, "tuning");
    return code;
}

/* Is there a line by now? */
static int is_known(struct qn_tune_job *job)
{
    return !qn_tuned_look(&job->session) && job->session.tuned.known;
}

static void begin(struct qn_tune_job *job)
{
    job->start = qn_clock_seconds();
    if (!(job->options.seconds > 0))
        job->options.seconds = SECONDS;
    job->deadline = job->start + job->options.seconds;
    job->random = job->options.seed;
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
}

/* One launch is measured, of a kernel that reads its operands, and with
   dequantize=auto the dequantize passes before it. */
static int check_problem(const struct quern_context *ctx,
                         const struct qn_problem *p)
{
    const struct qn_recipe *recipe = qn_context_recipe(ctx, p->recipe);

    if (p->dequantize > QUERN_DEQUANTIZE_MAINLOOP)
        return qn_error_set(
            QUERN_EINVAL,
            "dequantize=%s: the kernels to be measured are those of "
            "the product in %s, which quern_why names",
            qn_dequantize_name(p->dequantize),
            p->dequantize == QUERN_DEQUANTIZE_FP8   ? "FP8"
            : p->dequantize == QUERN_DEQUANTIZE_F16 ? "f16"
                                                    : "bf16");
    if (p->quantize)
        return qn_error_set(QUERN_EINVAL,
                            "quantize=%s: the kernels to be measured are those "
                            "of quantize=pass, which read a copy that is "
                            "there",
                            qn_strategy_name(p->quantize));
    if (p->dbias || p->dprob)
        return qn_error_set(QUERN_EINVAL,
                            "%s: sums take launches of their own: tune the "
                            "problem without them",
                            p->dbias ? "dbias" : "dprob=1");
    if (p->copies && recipe && qn_result_apart(p, recipe))
        return qn_error_set(QUERN_EINVAL,
                            "copies: a cast of its own makes them, %s: tune "
                            "the problem without them",
                            qn_result_apart(p, recipe));
    return QUERN_OK;
}

int qn_tune_measure(struct quern_context *ctx, const struct qn_problem *problem,
                    const struct qn_tune_options *options, int unless_known,
                    struct quern_tune_result *result)
{
    struct qn_tune_job *job;
    int code = qn_context_process(ctx, "ctx");

    memset(result, 0, sizeof *result);
    if (code)
        return code;
    job = calloc(1, sizeof *job);
    if (!job)
        return qn_error_memory();
    job->ctx = ctx;
    job->problem = problem;
    if (options)
        job->options = *options;
    pthread_mutex_lock(&ctx->measuring);
    code = check_options(job);
    if (!code)
        code = check_problem(ctx, problem);
    begin(job);
    if (!code)
        code = open_session(job);
    unless_known |= job->options.keep == 2;
    if (!code && !(unless_known && is_known(job))) {
        code = work(job);
        if (!code)
            code = sum_up(job, result);
        if (!code && job->options.keep != 1)
            code = keep(job, result);
    }
    clean_up(job);
    qn_session_close(&job->session);
    pthread_mutex_unlock(&ctx->measuring);
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    result->candidates = job->told;
    result->count = job->told_count;
    free(job);
    return code;
}

int qn_tune(struct quern_context *ctx, const struct qn_problem *problem,
            const struct qn_tune_options *options,
            struct quern_tune_result *result)
{
    if (!ctx || !problem || !result)
        return qn_error_null("ctx", ctx, "problem", problem, "result");
    return qn_error_done(qn_tune_measure(ctx, problem, options, 0, result));
}
