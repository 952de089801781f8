/* SPDX-License-Identifier: Apache-2.0 */
/* session.c: the machine and the problem that a plan or an explanation is
   for. */
#include "choose/session.h"
#include "base/context.h"
#include "base/error.h"
#include "base/guess.h"
#include "base/text.h"
#include "code/ahead.h"
#include "device/chip.h"
#include "device/host.h"
#include "choose/describe_all.h"

#include <string.h>

/* Dependent launches: of so few rows (bench/notes: dependent), and by drivers
   whose CUDA captures them. */
enum { DEPENDENT_ROWS = 256, DEPENDENTS_IN_GRAPHS = 12030 /* CUDA 12.3 */ };

/* Make a context current and look at its device. */
static int open_device(struct qn_session *s)
{
    int code = qn_driver_of(s->ctx, &s->driver);

    if (!code)
        code = qn_driver_enter(s->driver, NULL, &s->scope);
    if (!code)
        code = qn_driver_device(s->driver, &s->device);
    if (!code)
        qn_context_log(s->ctx, QUERN_LOG_DEBUG,
                       "GPU %d: %s, sm_%d%d, %d multiprocessors",
                       s->device.ordinal, s->device.name, s->device.major,
                       s->device.minor, s->device.sms);
    return code;
}

/* AUTO without a GPU is the host; other requested backends must be there. */
static int open_backend(struct qn_session *s)
{
    int wanted = s->options.backend;
    int code;

    if (wanted == QUERN_BACKEND_HOST) {
        s->demand.backend = wanted;
        return qn_host_threads(s->ctx, &s->demand.sms);
    }
    code = open_device(s);
    if (code == QUERN_ENODEVICE && wanted == QUERN_BACKEND_AUTO) {
        qn_context_log(s->ctx, QUERN_LOG_INFO, "%s: the host computes",
                       qn_error_text());
        if (s->driver)
            qn_driver_leave(s->driver, &s->scope);
        s->driver = NULL;
        s->demand.backend = QUERN_BACKEND_HOST;
        return qn_host_threads(s->ctx, &s->demand.sms);
    }
    s->demand.backend = wanted;
    s->demand.device = &s->device;
    s->demand.sms = s->device.sms;
    return code;
}

/* Only ranges; whether the kernel exists comes later. */
static int check_options(const struct qn_plan_options *options)
{
    if (options->backend < QUERN_BACKEND_AUTO ||
        options->backend > QUERN_BACKEND_CUBLASLT)
        return qn_error_set(QUERN_EINVAL,
                            "options.backend is %d: not a value "
                            "of enum quern_backend",
                            options->backend);
    if (options->sms < 0)
        return qn_error_set(QUERN_EINVAL,
                            "options.sms is %d: 0 (all) or more "
                            "is expected",
                            options->sms);
    if (options->tune_ms < 0)
        return qn_error_set(QUERN_EINVAL,
                            "options.tune_ms is %d: 0 (do not tune) or more is "
                            "expected",
                            options->tune_ms);
    if (options->streams < 0 || options->streams > QUERN_MAX_STREAMS)
        return qn_error_set(QUERN_EINVAL,
                            "options.streams is %d: 0 (1) to %d is expected",
                            options->streams, QUERN_MAX_STREAMS);
    if (options->streams && options->backend != QUERN_BACKEND_CUBLASLT)
        return qn_error_set(QUERN_EINVAL,
                            "options.streams is %d: only the cublaslt backend "
                            "spreads groups over streams",
                            options->streams);
    return QUERN_OK;
}

int qn_session_open(struct qn_session *s, struct quern_context *ctx,
                    const struct qn_problem *problem,
                    const struct qn_plan_options *options)
{
    int code;

    memset(s, 0, sizeof *s);
    s->ctx = ctx;
    s->problem = problem;
    s->demand.problem = problem;
    if (options)
        s->options = *options;
    s->demand.kernel = s->options.kernel;
    s->demand.same_sums = s->options.same_sums;
    code = qn_context_process(ctx, "ctx");
    if (!code)
        code = check_options(&s->options);
    if (!code && problem)
        code = qn_describe(ctx, problem, &s->need, &s->demand.recipe);
    if (!code)
        code = open_backend(s);
    if (!code && s->options.sms && s->options.sms < s->demand.sms)
        s->demand.sms = s->options.sms;
    return code;
}

int qn_session_capture(const struct qn_session *s, void *stream,
                       const char *what)
{
    int code;

    if (!s->driver)
        return QUERN_OK;
    code = qn_driver_no_capture(s->driver, stream, what);
    if (!code)
        code = qn_driver_no_capture(s->driver, QN_CU_PER_THREAD, what);
    return code;
}

void qn_session_assume_gpu(struct qn_session *s, int backend)
{
    if (s->ctx->assumed)
        s->device = *s->ctx->assumed;
    else
        qn_chip(0, &s->device);
    s->demand.device = &s->device;
    s->demand.sms = s->device.sms;
    s->demand.backend = backend;
    if (s->options.sms && s->options.sms < s->demand.sms)
        s->demand.sms = s->options.sms;
}

int qn_session_assume(struct qn_session *s, struct quern_context *ctx,
                      const struct qn_problem *problem,
                      const struct qn_device *device)
{
    *s = (struct qn_session){.ctx = ctx,
                             .problem = problem,
                             .options = {.backend = QUERN_BACKEND_JIT},
                             .device = *device,
                             .outline = 1};
    s->demand = (struct qn_demand){.problem = problem,
                                   .device = &s->device,
                                   .backend = QUERN_BACKEND_JIT,
                                   .sms = device->sms};
    return problem ? qn_describe(ctx, problem, &s->need, &s->demand.recipe)
                   : QUERN_OK;
}

int qn_session_gpu(const struct qn_session *s)
{
    return s->demand.backend != QUERN_BACKEND_HOST;
}

int qn_session_inner(struct qn_session *s, const struct qn_session *outer,
                     const struct qn_problem *problem,
                     const struct qn_plan_options *options)
{
    *s = (struct qn_session){.ctx = outer->ctx,
                             .problem = problem,
                             .options = *options,
                             .driver = outer->driver,
                             .device = outer->device,
                             .outline = outer->outline,
                             .ahead = outer->ahead,
                             .tried = outer->tried,
                             .compiles_none = outer->compiles_none};
    s->scope.context = outer->scope.context; /* which is current */
    s->demand.problem = problem;
    s->demand.kernel = options->kernel;
    s->demand.same_sums = options->same_sums;
    s->demand.device = &s->device;
    s->demand.sms = outer->demand.sms;
    s->demand.backend =
        qn_session_gpu(outer) ? options->backend : QUERN_BACKEND_HOST;
    return problem ? qn_describe(s->ctx, problem, &s->need, &s->demand.recipe)
                   : QUERN_OK;
}

/* Open it for an explanation. */
static int open_assumed(struct qn_session *s, struct quern_context *ctx,
                        const struct qn_problem *problem,
                        const struct qn_plan_options *options,
                        struct qn_text *text)
{
    const int wanted = options ? options->backend : QUERN_BACKEND_AUTO;
    int code = qn_session_open(s, ctx, problem, options);

    s->outline = 1;
    if (ctx->assumed && wanted != QUERN_BACKEND_HOST &&
        (!code || code == QUERN_ENODEVICE)) {
        qn_session_assume_gpu(s, wanted);
        qn_text_add(text, "figures are for %s\n\n", s->device.name);
        return QUERN_OK;
    }
    if (code != QUERN_ENODEVICE &&
        (code || wanted != QUERN_BACKEND_AUTO || s->driver))
        return code;
    qn_session_assume_gpu(s, wanted);
    qn_text_add(
        text, "%s\nfigures are for %s%s\n\n", qn_error_text(), s->device.name,
        wanted == QUERN_BACKEND_AUTO ? "; on this machine the host computes"
                                     : "");
    return QUERN_OK;
}

void qn_session_close(struct qn_session *s)
{
    if (s->driver)
        qn_driver_leave(s->driver, &s->scope);
}

int qn_session_loads(const struct qn_session *s,
                     const struct qn_candidate *candidate, int backend)
{
    const int cold = backend == QUERN_BACKEND_JIT &&
                     (s->ahead || s->compiles_none) &&
                     !qn_module_known(s->ctx, candidate->kernel, backend);

    if (cold && s->ahead)
        qn_ahead_note(s->ahead, candidate);
    if (cold && s->compiles_none)
        return QN_COLD;
    return s->tried && backend == QUERN_BACKEND_JIT
               ? qn_ahead_failed(s->tried, candidate)
               : QUERN_OK;
}

/* Compile the kernels of the plan's outline, then make the plan. */
static int make_cold(const struct qn_session *s,
                     const struct qn_plan_kind *kind, const void *line,
                     void *plan)
{
    struct qn_ahead ahead = {.count = 0};
    struct qn_session outline = *s, last = *s;
    int code;

    outline.outline = 1;
    outline.ahead = &ahead;
    code = kind->make(&outline, line, plan);
    if (code == QUERN_ENOMEM)
        return code;
    if (!code)
        kind->drop(plan);
    qn_ahead_load(&ahead, s->ctx, s->driver, s->scope.context);
    last.tried = &ahead;
    code = kind->make(&last, line, plan);
    qn_ahead_free(&ahead);
    return code;
}

int qn_session_make(const struct qn_session *s, const struct qn_plan_kind *kind,
                    const void *line, void *plan)
{
    struct qn_session first = *s;
    int code;

    /* a plan that tunes compiles more than it loads, with threads of its own */
    first.compiles_none = s->driver && s->options.tune_ms <= 0;
    code = kind->make(&first, line, plan);
    return code == QN_COLD ? make_cold(s, kind, line, plan) : code;
}

int qn_session_plan(struct quern_context *ctx,
                    const struct qn_plan_options *options,
                    const struct qn_plan_kind *kind, const void *line,
                    void *plan)
{
    struct qn_session session;
    int code = qn_session_open(&session, ctx, NULL, options);

    if (!code)
        code = qn_session_capture(&session, NULL, "making a plan");
    if (!code)
        code = qn_session_make(&session, kind, line, plan);
    qn_session_close(&session);
    return qn_error_done(code);
}

int qn_session_why(struct quern_context *ctx, const struct qn_problem *problem,
                   const struct qn_plan_options *options,
                   int (*explain)(struct qn_session *, const void *,
                                  struct qn_text *),
                   const void *line, char **out)
{
    struct qn_session session;
    struct qn_text text = {0};
    int code = open_assumed(&session, ctx, problem, options, &text);

    *out = NULL;
    if (!code)
        code = explain(&session, line, &text);
    qn_session_close(&session);
    if (!code) {
        *out = qn_text_take(&text);
        code = *out ? QUERN_OK : qn_error_memory();
    }
    qn_text_free(&text);
    return qn_error_done(code);
}

int qn_session_no_cublaslt(const struct qn_plan_options *options,
                           const char *does)
{
    if (options && options->backend == QUERN_BACKEND_CUBLASLT)
        return qn_error_set(QUERN_EINVAL,
                            "options.backend is cublaslt: it multiplies, and "
                            "%s nothing",
                            does);
    return QUERN_OK;
}

int qn_session_capability(const struct qn_session *s)
{
    return s->device.major * 10 + s->device.minor;
}

int qn_session_dependents(const struct qn_session *s, int64_t rows)
{
    return rows > 0 && rows <= DEPENDENT_ROWS && qn_session_gpu(s) &&
           s->device.major >= 9 &&
           (!s->driver || s->driver->version >= DEPENDENTS_IN_GRAPHS);
}

int qn_session_name(const struct qn_session *s)
{
    const char *name = s->options.kernel;
    struct qn_guess guess = {.word = name};
    char hint[192];

    if (!name)
        return QUERN_OK;
    if (s->options.backend == QUERN_BACKEND_CUBLASLT)
        return qn_error_set(QUERN_EINVAL,
                            "options.kernel is '%s': the cublaslt backend "
                            "runs none of the registry's kernels",
                            name);
    for (int i = 0; i < s->ctx->nkernels; i++)
        if (!strcmp(s->ctx->kernels[i].kernel->name, name))
            return QUERN_OK;
    for (int i = 0; i < s->ctx->nkernels; i++)
        qn_guess_try(&guess, s->ctx->kernels[i].kernel->name);
    return qn_error_set(QUERN_EINVAL,
                        "options.kernel: there is no kernel "
                        "'%s'%s",
                        name, qn_guess_text(&guess, hint, sizeof hint));
}
