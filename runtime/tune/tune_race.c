/* SPDX-License-Identifier: Apache-2.0 */
/*
** tune_race.c: rounds, and when their order is certain.
**
** A round runs every remaining runner, in another order each time: a runner
** after a kernel that draws little power finds a cooler chip and a higher
** clock. Only times of the same round are compared, as logarithms of their
** ratio:
**
**     d      median of those differences to the best
**     least  a certain lower bound of d: the i-th smallest difference, so many
**            from the smallest that d is below it once in 4000 times,
**            however the times are distributed
**
**     out       least > 0, or a row of `early` says so
**     no rival  least > -log(1.005): it cannot be faster by more than 0.5 %
**     certain   all are compiled, and no candidate left is a rival of the best
**
** The model's choice stays to the end, as the ratio is to it. While some are
** still being compiled, others that ran ENOUGH times wait, but for the best.
*/
#include "tune/tune.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "device/nvml.h"
#include "product/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ENOUGH = 12 }; /* all of these on one side: once in 4000 times */

#define DEVIATIONS 3.5     /* of a normal distribution: as often */
#define ALIKE      0.00499 /* log(1.005) */
#define SAMPLE_NS  200000.0
#define SLOWER     "%.3f x as long as the best"

/* Out before there are ENOUGH rounds: every one of so many is that much slower,
   as a logarithm: 20 %, 4 %. */
static const struct {
    int rounds;
    double slower;
} early[] = {{2, 0.18232}, {5, 0.03922}};

/* ---------------------------------------------------------------- measuring */

/* Other data into L2. */
static int flush(struct qn_tune_job *job)
{
    const struct qn_tune_data *d = &job->data;

    return d->flush ? QN_CU(job->session.driver, cuMemsetD8Async, d->flush, 0,
                            d->flush_bytes, job->options.stream)
                    : QUERN_OK;
}

static int record(struct qn_tune_job *job, int event)
{
    return QN_CU(job->session.driver, cuEventRecord, job->events[event],
                 job->options.stream);
}

static int run(struct qn_tune_job *job, const struct qn_tune_runner *runner)
{
    return qn_run(runner->plan, &job->data.args, job->options.stream);
}

/* Runs after each other between two events. */
static int queue_span(struct qn_tune_job *job, struct qn_tune_runner *runner,
                      int event, int runs)
{
    int code = record(job, event);

    for (int i = 0; i < runs && !code; i++)
        code = run(job, runner);
    return code ? code : record(job, event + 1);
}

/* Cold runs, each between two events; then warm ones, which find the
   last one's data in L2. Returns the number of events in `*events`. */
static int queue(struct qn_tune_job *job, struct qn_tune_runner *runner,
                 int *events)
{
    const int l2 = job->options.l2;
    int code = QUERN_OK, runs = runner->repeats;

    *events = 0;
    for (int i = 0; l2 != QUERN_L2_WARM && i < runs && !code; i++) {
        code = flush(job);
        if (!code)
            code = queue_span(job, runner, *events, 1);
        *events += 2;
    }
    if (!code && l2 == QUERN_L2_WARM)
        code = run(job, runner);
    if (!code && l2 != QUERN_L2_COLD) {
        code = queue_span(job, runner, *events, runs);
        *events += 2;
    }
    return code;
}

static int elapsed(struct qn_tune_job *job, int event, double *ns)
{
    float ms = 0;
    int code = QN_CU(job->session.driver, cuEventElapsedTime, &ms,
                     job->events[event], job->events[event + 1]);

    *ns = (double)ms * 1e6;
    return code;
}

/* The mean of queued runs: half each of cold and of warm ones. */
static int read_times(struct qn_tune_job *job, int events, int runs, double *ns)
{
    const int l2 = job->options.l2;
    const int colds = l2 == QUERN_L2_WARM ? 0 : runs;
    double cold = 0, warm = 0, time;
    int code =
        QN_CU(job->session.driver, cuEventSynchronize, job->events[events - 1]);

    for (int i = 0; i < colds && !code; i++) {
        code = elapsed(job, 2 * i, &time);
        cold += time / runs;
    }
    if (!code && l2 != QUERN_L2_COLD) {
        code = elapsed(job, 2 * colds, &time);
        warm = time / runs;
    }
    *ns = l2 == QUERN_L2_BOTH ? (cold + warm) / 2 : cold + warm;
    return code;
}

static int measure(struct qn_tune_job *job, struct qn_tune_runner *runner,
                   double *ns)
{
    int events, code = queue(job, runner, &events);

    return code ? code : read_times(job, events, runner->repeats, ns);
}

/* The first runs: the sizes are checked, and how often short ones repeat. */
static int warm_up(struct qn_tune_job *job, struct qn_tune_runner *runner)
{
    double ns = 0;
    int code = run(job, runner);

    if (!code)
        code = qn_check(runner->plan, &job->data.args, job->options.stream);
    runner->repeats = 1;
    if (!code)
        code = measure(job, runner, &ns);
    if (ns < SAMPLE_NS / QN_TUNE_REPEATS)
        runner->repeats = QN_TUNE_REPEATS;
    else if (ns < SAMPLE_NS)
        runner->repeats = (int)ceil(SAMPLE_NS / ns);
    return code;
}

/* After a failure: a broken CUDA context is the end, else only the runner is
   out. Wrong sizes of the caller's are wrong for everybody. */
static int give_up(struct qn_tune_job *job, struct qn_tune_runner *runner,
                   int code)
{
    qn_tune_out(runner, "%s", qn_error_text());
    job->failure = code;
    if (code == QUERN_ESIZES)
        return code;
    if (code == QUERN_EINVAL)
        return QUERN_OK;
    code = QN_CU(job->session.driver, cuStreamSynchronize, job->options.stream);
    if (code)
        qn_error_add("  after %s: %s", runner->told->kernel,
                     runner->told->reason);
    return code;
}

/* One runner's part of a round. */
static int take_turn(struct qn_tune_job *job, struct qn_tune_runner *runner)
{
    double ns = 0;
    int code = runner->repeats ? QUERN_OK : warm_up(job, runner);

    if (!code)
        code = measure(job, runner, &ns);
    if (code)
        return give_up(job, runner, code);
    runner->log_ns[job->rounds] = (float)log(ns > 1 ? ns : 1);
    runner->told->rounds++;
    return QUERN_OK;
}

/* --------------------------------------------------------------- statistics */

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(float *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_floats);
    return count % 2 ? values[count / 2]
                     : ((double)values[count / 2 - 1] + values[count / 2]) / 2;
}

/* The rounds' comparison of two runners; all 0 without any. */
struct verdict {
    int rounds; /* that both were in */
    double d;
    double smallest; /* of all differences */
    double least;    /* see above; the smallest before there are ENOUGH */
};

static struct verdict compare(const struct qn_tune_runner *runner,
                              const struct qn_tune_runner *other)
{
    struct verdict v = {.rounds = 0};
    float values[QN_TUNE_ROUNDS];
    int i;

    for (i = 0; i < QN_TUNE_ROUNDS; i++)
        if (!isnan(runner->log_ns[i]) && !isnan(other->log_ns[i]))
            values[v.rounds++] = runner->log_ns[i] - other->log_ns[i];
    if (!v.rounds)
        return v;
    v.d = median(values, v.rounds);
    v.smallest = values[0];
    i = (int)((v.rounds - DEVIATIONS * sqrt(v.rounds)) / 2);
    v.least = values[i > 0 ? i : 0];
    return v;
}

double qn_tune_race_ratio(const struct qn_tune_runner *slower,
                          const struct qn_tune_runner *faster)
{
    return exp(compare(slower, faster).d);
}

/* Everybody's median time, for people and for files. */
static void tell_times(struct qn_tune_job *job)
{
    float values[QN_TUNE_ROUNDS];

    for (int i = 0; i < job->count; i++) {
        const struct qn_tune_runner *r = &job->runners[i];
        int count = 0;

        for (int j = 0; j < job->rounds; j++)
            if (!isnan(r->log_ns[j]))
                values[count++] = r->log_ns[j];
        if (count)
            r->told->seconds = exp(median(values, count)) * 1e-9;
    }
}

/* ------------------------------------------------------------------ ranking */

/* The first in the model's order that ran: of one strategy, or AUTO: of any. */
static struct qn_tune_runner *first_of(struct qn_tune_job *job, int strategy)
{
    for (int i = 0; i < job->count; i++)
        if (job->runners[i].told->rounds &&
            (strategy == QUERN_DEQUANTIZE_AUTO ||
             job->runners[i].dequantize == strategy))
            return &job->runners[i];
    return NULL;
}

/* The choice of untuned plans, of the first strategy that ran in the order
   that they try. */
struct qn_tune_runner *qn_tune_race_model(struct qn_tune_job *job)
{
    struct qn_tune_runner *found = first_of(job, job->choice.strategy);

    if (!found)
        found = first_of(job, qn_dequantize_next(&job->choice));
    return found ? found : first_of(job, QUERN_DEQUANTIZE_AUTO);
}

/* In the race, and fastest of those by the rounds that they share. */
static struct qn_tune_runner *find_best(struct qn_tune_job *job)
{
    struct qn_tune_runner *best = NULL;

    for (int i = 0; i < job->count; i++) {
        struct qn_tune_runner *r = &job->runners[i];
        struct verdict v;

        if (!r->plan || !r->told->rounds)
            continue;
        v = best ? compare(r, best) : (struct verdict){.rounds = 0};
        if (!best || (v.rounds && v.d < 0))
            best = r;
    }
    return best;
}

/* As fast as the best by the measurements, and it ran as often as counts. */
static int is_alike(const struct qn_tune_runner *runner,
                    const struct qn_tune_runner *best)
{
    struct verdict v = compare(runner, best);

    return runner == best || (v.rounds >= 2 && v.d < ALIKE);
}

static int is_out(const struct verdict *v)
{
    for (size_t i = 0; i < sizeof early / sizeof early[0]; i++)
        if (v->rounds >= early[i].rounds && v->smallest > early[i].slower)
            return 1;
    return v->rounds >= ENOUGH && v->least > 0 && v->d > ALIKE;
}

/* The default wins ties: the model's choice, which must be significantly
   slower to lose; then bands. */
struct qn_tune_runner *qn_tune_race_best(struct qn_tune_job *job)
{
    struct qn_tune_runner *best = find_best(job);
    struct qn_tune_runner *model = qn_tune_race_model(job);
    struct verdict v;

    if (!best)
        return NULL;
    v = compare(model, best);
    if (model->plan && model->told->rounds >= 2 &&
        (is_alike(model, best) || (!job->certain && !is_out(&v))))
        return model;
    for (int i = 0; i < job->count && best->band; i++)
        if (job->runners[i].plan && !job->runners[i].band &&
            job->runners[i].candidate == best->candidate &&
            is_alike(&job->runners[i], best))
            return &job->runners[i];
    return best;
}

static int is_rival(const struct verdict *v)
{
    return v->rounds < ENOUGH || v->least <= -ALIKE;
}

/* A runner is dropped once it is significantly slower; for the model's
   choice that is only noted. Returns how many rivals the best has. */
static int rank(struct qn_tune_job *job)
{
    const struct qn_tune_runner *model = qn_tune_race_model(job);
    struct qn_tune_runner *best = find_best(job);
    int rivals = best && best->told->rounds < ENOUGH;

    for (int i = 0; i < job->count && best; i++) {
        struct qn_tune_runner *r = &job->runners[i];
        struct verdict v;

        if (!r->plan)
            continue;
        v = compare(r, best);
        r->told->reason[0] = 0;
        if (r == best)
            continue;
        if (!is_out(&v))
            rivals += is_rival(&v);
        else if (r != model)
            qn_tune_out(r, SLOWER, exp(v.d));
        else
            snprintf(r->told->reason, sizeof r->told->reason, SLOWER, exp(v.d));
    }
    return rivals;
}

/* ------------------------------------------------------------------- rounds */

/* Those that are in the next round, shuffled; returns how many: 0 if nothing
   would be learned from it. */
static int line_up(struct qn_tune_job *job, int all,
                   struct qn_tune_runner **order)
{
    const struct qn_tune_runner *best = find_best(job);
    const struct qn_tune_runner *model = qn_tune_race_model(job);
    int count = 0, needed = all;

    for (int i = 0; i < job->count; i++) {
        struct qn_tune_runner *r = &job->runners[i];

        if (!r->plan)
            continue;
        needed |= r->told->rounds < ENOUGH;
        if (all || r == best || r == model || r->told->rounds < ENOUGH)
            order[count++] = r;
    }
    if (!needed)
        return 0;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(qn_random_next(&job->random) % (uint64_t)(i + 1));
        struct qn_tune_runner *moved = order[i];

        order[i] = order[j];
        order[j] = moved;
    }
    return count;
}

static int run_round(struct qn_tune_job *job, struct qn_tune_runner **order,
                     int count)
{
    int code = QUERN_OK;

    for (int i = 0; i < count && !code && !qn_tune_over(job); i++) {
        code = take_turn(job, order[i]);
        if (i == count / 2 && job->nvml)
            job->clock_mhz = qn_nvml_clock(job->nvml);
    }
    job->rounds++;
    return code;
}

static void tell(struct qn_tune_job *job, int compiling)
{
    struct quern_tune_progress progress = {.elapsed =
                                               qn_clock_seconds() - job->start,
                                           .candidates = job->count,
                                           .compiling = compiling,
                                           .rounds = job->rounds};
    const struct qn_tune_runner *best = find_best(job);

    if (!job->options.progress)
        return;
    tell_times(job);
    for (int i = 0; i < job->count; i++)
        progress.left += job->runners[i].plan != NULL;
    progress.best = best ? best->told : NULL;
    if (job->options.progress(job->options.user, &progress)) {
        pthread_mutex_lock(&job->lock);
        job->stopped = 1;
        pthread_mutex_unlock(&job->lock);
    }
}

/* One more, of which nothing is left to be compiled by threads. */
static struct qn_tune_runner *add_runner(struct qn_tune_job *job)
{
    struct qn_tune_runner *r = &job->runners[job->count++];

    r->state = QN_TUNE_READY;
    r->told = &job->told[job->told_count++];
    return r;
}

/* Half and twice the winner's band run against it: a kernel of its own each,
   already compiled. Returns how many came. */
static int add_bands(struct qn_tune_job *job)
{
    const struct qn_tune_runner *best = qn_tune_race_best(job);
    const int usual = best ? best->plan->values.band : 0;
    const int bands[QN_TUNE_BANDS] = {usual / 2, 2 * usual};
    int came = 0;

    if (!best || !best->candidate ||
        !qn_tensormap_takes(best->plan->kernel, QN_PARAM_band))
        return 0;
    pthread_mutex_lock(&job->lock);
    for (int i = 0; i < QN_TUNE_BANDS; i++) {
        struct qn_tune_runner *r;

        if (bands[i] < 1)
            continue;
        r = add_runner(job);
        r->candidate = best->candidate;
        r->backend = best->backend;
        r->band = bands[i];
        r->dequantize = best->dequantize;
        r->told->kernel = best->told->kernel;
        r->told->band = bands[i];
        came++;
    }
    pthread_mutex_unlock(&job->lock);
    return came;
}

/* Strategies with dequantize passes. Returns how many came. */
static int add_ways(struct qn_tune_job *job)
{
#define STRATEGY(name, word) "dequantize=" word,
    static const char *const names[] = {QUERN_DEQUANTIZES(STRATEGY)};
    int came = 0;

    pthread_mutex_lock(&job->lock);
    for (int strategy = QUERN_DEQUANTIZE_PASS; strategy <= QUERN_DEQUANTIZE_F16;
         strategy++) {
        struct qn_tune_runner *r;

        if (job->choice.cost[strategy].cycles <= 0)
            continue;
        r = add_runner(job);
        r->backend = job->options.backend;
        r->dequantize = strategy;
        r->told->kernel = names[strategy]; /* until it has a plan */
        r->told->dequantize = strategy;
        came++;
    }
    pthread_mutex_unlock(&job->lock);
    return came;
}

/* When the order is certain, once each. Returns how many came. */
static int add_more(struct qn_tune_job *job, int *bands, int *strategies)
{
    int came = *bands ? 0 : add_bands(job);

    *bands = 1;
    if (came)
        return came;
    came = *strategies ? 0 : add_ways(job);
    *strategies = 1;
    return came;
}

int qn_tune_race_run(struct qn_tune_job *job)
{
    struct qn_tune_runner **order =
        calloc((size_t)job->count + QN_TUNE_LATE, sizeof *order);
    int code = order ? QUERN_OK : qn_error_memory();
    /* the model's choice comes first, so that slower kernels leave */
    int strategies = !code &&
                     job->choice.strategy != QUERN_DEQUANTIZE_MAINLOOP &&
                     add_ways(job);
    int count = 0, rivals = 1, bands = 0;

    while (!code && !job->certain && !qn_tune_over(job) &&
           job->rounds < QN_TUNE_ROUNDS) {
        int compiling = qn_tune_compile_take(job, !rivals || !count);

        if (compiling < 0)
            break;
        count = line_up(job, compiling == 0, order);
        if (!count)
            continue;
        code = run_round(job, order, count);
        rivals = rank(job);
        if (!code && !rivals && compiling == 0) {
            job->certain = 1;
            job->certain = !add_more(job, &bands, &strategies);
        }
        tell(job, compiling);
    }
    tell_times(job);
    free(order);
    return code;
}
