/* SPDX-License-Identifier: Apache-2.0 */
/* compile.c: many kernels to cubins, side by side. */
#include "cli.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "oracle/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "gen.h"

enum { MAX_JOBS = 64 };

/* State shared by the threads; the lock guards `next` and `progress`. */
struct shop {
    struct qn_compile *work;
    struct qn_nvrtc *nvrtc;
    struct qn_progress progress;
    pthread_mutex_t lock;
    int next;
};

/* The next kernel that no thread has, or NULL. */
static struct qn_compile_item *take(struct shop *shop)
{
    struct qn_compile_item *item = NULL;

    pthread_mutex_lock(&shop->lock);
    if (shop->next < shop->work->count)
        item = &shop->work->items[shop->next++];
    pthread_mutex_unlock(&shop->lock);
    return item;
}

/* A thread: compile until nothing is left. */
static void *compile(void *user)
{
    struct shop *shop = user;
    struct qn_compile_item *item;

    while ((item = take(shop)) != NULL) {
        item->code =
            qn_nvrtc_compile(shop->nvrtc, item->kernel->name, item->source,
                             item->kernel->arch, &item->compiled);
        if (item->code) /* the text is this thread's own */
            item->message = qn_text_copy(qn_error_text());
        pthread_mutex_lock(&shop->lock);
        qn_progress_step(&shop->progress, item->kernel->name);
        pthread_mutex_unlock(&shop->lock);
    }
    return NULL;
}

/* This thread and jobs - 1 others; fewer if the system gives no more. */
static void compile_all(struct shop *shop, int jobs)
{
    pthread_t threads[MAX_JOBS];
    int started = 0;

    if (jobs < 1)
        jobs = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (jobs > shop->work->count)
        jobs = shop->work->count;
    if (jobs > MAX_JOBS)
        jobs = MAX_JOBS;
    qn_progress_begin(&shop->progress, "Compiling", shop->work->count);
    while (started < jobs - 1 &&
           pthread_create(&threads[started], NULL, compile, shop) == 0)
        started++;
    compile(shop);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    qn_progress_end(&shop->progress);
}

/* All sources, before anything is compiled: the generator has no threads. */
static int collect(const struct qn_options *opt, struct qg *generator,
                   const struct qg_selection *selection,
                   struct qn_compile *work)
{
    const struct quern_registry *registry = qg_registry(generator);

    work->items = calloc((size_t)registry->nkernels + 1, sizeof *work->items);
    if (!work->items)
        return qn_message_code(opt, QUERN_ENOMEM, NULL);
    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];
        struct qn_compile_item *item = &work->items[work->count];
        const char *text;
        size_t length;
        if (!qg_selects(selection, kernel) || strcmp(kernel->arch, "host") == 0)
            continue;
        if (qg_source(generator, kernel->name, &text, &length)) {
            fputs(qg_diagnostics(generator), stderr);
            return QN_EXIT_USAGE;
        }
        item->kernel = kernel;
        item->source = qn_text_copy(text);
        if (!item->source)
            return qn_message_code(opt, QUERN_ENOMEM, NULL);
        work->count++;
    }
    if (work->count == 0)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "no CUDA kernel matches; quern list -k shows "
                               "all");
    return QN_EXIT_OK;
}

/* The error as a compiler prints it: the spec, the kernel, the log. */
static int report(const struct qn_options *opt, const struct qn_compile *work)
{
    int status = QN_EXIT_OK;

    for (int i = 0; i < work->count; i++) {
        const struct qn_compile_item *item = &work->items[i];
        if (!item->code)
            continue;
        fprintf(stderr, "%s: error: %s: %s\n", item->kernel->spec,
                item->kernel->name,
                item->message ? item->message : qn_strerror(item->code));
        status = QN_EXIT_FAILED;
    }
    if (status)
        qn_message_fail(opt, status, "not every kernel may be used");
    return status;
}

int qn_compile_run(const struct qn_options *opt, struct qg *generator,
                   struct quern_context *ctx,
                   const struct qg_selection *selection, int jobs,
                   struct qn_compile *work)
{
    struct shop shop = {.work = work, .lock = PTHREAD_MUTEX_INITIALIZER};
    const double start = qn_clock_seconds();
    int code, status;

    memset(work, 0, sizeof *work);
    status = collect(opt, generator, selection, work);
    if (status)
        return status;
    code = qn_nvrtc_of(ctx, &shop.nvrtc);
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    compile_all(&shop, jobs);
    work->seconds = qn_clock_seconds() - start;
    return report(opt, work);
}

void qn_compile_free(struct qn_compile *work)
{
    for (int i = 0; i < work->count; i++) {
        qn_nvrtc_free(&work->items[i].compiled);
        free(work->items[i].source);
        free(work->items[i].message);
    }
    free(work->items);
    memset(work, 0, sizeof *work);
}
