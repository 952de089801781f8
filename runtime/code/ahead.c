/* SPDX-License-Identifier: Apache-2.0 */
/* ahead.c: kernels of a plan, compiled side by side before it is made. */
#include "code/ahead.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "code/cache.h"
#include "code/jit.h"
#include "code/module.h"
#include "device/driver.h"
#include "device/host.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MOST_THREADS = 16 };

void qn_ahead_note(struct qn_ahead *ahead, const struct qn_candidate *candidate)
{
    for (int i = 0; i < ahead->count; i++)
        if (ahead->at[i]->kernel == candidate->kernel)
            return;
    if (ahead->count < QN_AHEAD_KERNELS)
        ahead->at[ahead->count++] = candidate;
}

/* State shared by the threads. */
struct crew {
    struct qn_ahead *ahead;
    struct quern_context *ctx;
    struct qn_driver *driver;
    struct cu_context *context;
    double wait_end; /* for locks of the cache, as the caller waits */
    atomic_int next;
};

/* Without memory for its message the error is forgotten, and found again. */
static void keep(struct qn_ahead_failure *failure, int code)
{
    failure->message = qn_text_copy(qn_error_text());
    failure->code = failure->message ? code : QUERN_OK;
}

/* Until an error: the plan will have it, and make do without the others. */
static void *work(void *user)
{
    struct crew *crew = user;
    struct qn_driver_scope scope;
    struct qn_module *module;
    int i, code = qn_driver_enter(crew->driver, crew->context, &scope);

    qn_cache_wait_until(crew->wait_end);
    while (!code &&
           (i = atomic_fetch_add(&crew->next, 1)) < crew->ahead->count) {
        code = qn_module_get(crew->ctx, crew->ahead->at[i], QUERN_BACKEND_JIT,
                             &module);
        if (code == QN_REJECTED || code == QUERN_ECOMPILE)
            keep(&crew->ahead->failed[i], code);
        if (code == QN_REJECTED)
            code = QUERN_OK;
    }
    if (code)
        atomic_store(&crew->next, crew->ahead->count);
    qn_driver_leave(crew->driver, &scope);
    return NULL;
}

void qn_ahead_load(struct qn_ahead *ahead, struct quern_context *ctx,
                   struct qn_driver *driver, struct cu_context *context)
{
    struct crew crew = {ahead, ctx, driver, context, qn_cache_wait_end(), 0};
    const int cores = qn_host_cores();
    pthread_t threads[MOST_THREADS];
    int started = 0;

    /* and this one */
    while (started + 1 < MOST_THREADS && started + 1 < cores &&
           started + 1 < ahead->count &&
           !pthread_create(&threads[started], NULL, work, &crew))
        started++;
    if (started)
        work(&crew);
    while (started)
        pthread_join(threads[--started], NULL);
}

int qn_ahead_failed(const struct qn_ahead *ahead,
                    const struct qn_candidate *candidate)
{
    for (int i = 0; i < ahead->count; i++)
        if (ahead->failed[i].code && ahead->at[i]->kernel == candidate->kernel)
            return qn_error_set(ahead->failed[i].code, "%s",
                                ahead->failed[i].message);
    return QUERN_OK;
}

void qn_ahead_free(struct qn_ahead *ahead)
{
    for (int i = 0; i < ahead->count; i++)
        free(ahead->failed[i].message);
}
