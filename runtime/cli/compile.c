/* SPDX-License-Identifier: Apache-2.0 */
/* compile.c: many kernels to cubins, side by side, and into the cache. */
#include "cli.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "code/jit.h"
#include "device/host.h"

enum { MAX_JOBS = 64 };

/* State shared by the threads; the lock guards `next` and `progress`. */
struct shop {
    struct qn_compile *work;
    struct qn_progress progress;
    pthread_mutex_t lock;
    int next;
};

/* The next kernel that neither the cache nor a thread has, or NULL. */
static struct qn_compile_item *take(struct shop *shop)
{
    struct qn_compile *work = shop->work;
    struct qn_compile_item *item = NULL;

    pthread_mutex_lock(&shop->lock);
    while (shop->next < work->count && work->items[shop->next].cached)
        shop->next++;
    if (shop->next < work->count)
        item = &work->items[shop->next++];
    pthread_mutex_unlock(&shop->lock);
    return item;
}

/* The error text is this thread's own. */
static void note(struct qn_compile_item *item, int code)
{
    item->code = code;
    if (code)
        item->message = qn_text_copy(qn_error_text());
}

/* A thread: compile until nothing is left. */
static void *compile(void *user)
{
    struct shop *shop = user;
    struct quern_context *ctx = shop->work->ctx;
    struct qn_compile_item *item;

    while ((item = take(shop)) != NULL) {
        const struct qn_candidate candidate = {item->kernel, ctx->base};

        note(item, qn_jit_object(ctx, &candidate, &item->object));
        pthread_mutex_lock(&shop->lock);
        qn_progress_step(&shop->progress, item->kernel->name);
        pthread_mutex_unlock(&shop->lock);
    }
    return NULL;
}

/* This thread and jobs - 1 others; fewer if the system gives no more. */
static void compile_all(struct shop *shop, int jobs)
{
    const int count = shop->work->count - shop->work->cached;
    pthread_t threads[MAX_JOBS];
    int started = 0;

    if (jobs < 1)
        jobs = qn_host_cores();
    if (jobs > count)
        jobs = count;
    if (jobs > MAX_JOBS)
        jobs = MAX_JOBS;
    qn_progress_begin(&shop->progress, "Compiling", count);
    while (started < jobs - 1 &&
           pthread_create(&threads[started], NULL, compile, shop) == 0)
        started++;
    compile(shop);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    qn_progress_end(&shop->progress);
}

/* One kernel, and its cubin if the cache has it. */
static int find(const struct qn_options *opt, struct qn_compile *work,
                const struct qn_kernel *kernel)
{
    struct qn_compile_item *item = &work->items[work->count++];
    const struct qn_candidate candidate = {kernel, work->ctx->base};
    int code;

    item->kernel = kernel;
    code = qn_jit_look(work->ctx, &candidate, &item->object, &item->cached);
    work->cached += item->cached;
    if (code && !item->cached)
        return qn_message_code(opt, code, qn_error_text());
    note(item, code);
    return QN_EXIT_OK;
}

int qn_compile_find(const struct qn_options *opt, struct quern_context *ctx,
                    const unsigned char *marks, struct qn_compile *work)
{
    const struct quern_registry *all = ctx->base;
    int status = QN_EXIT_OK;

    *work = (struct qn_compile){.ctx = ctx};
    work->items = calloc((size_t)all->nkernels + 1, sizeof *work->items);
    if (!work->items)
        return qn_message_code(opt, QUERN_ENOMEM, NULL);
    for (int i = 0; i < all->nkernels && !status; i++)
        if (marks[i] && strcmp(all->kernels[i].arch, "host") != 0)
            status = find(opt, work, &all->kernels[i]);
    if (!status && work->count == 0)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "no CUDA kernel matches; quern list -k shows "
                               "all");
    return status;
}

static int compare(const void *name, const void *item)
{
    return strcmp(name, ((const struct qn_compile_item *)item)->kernel->name);
}

const struct qn_compile_item *qn_compile_item(const struct qn_compile *work,
                                              const char *name)
{
    return bsearch(name, work->items, (size_t)work->count, sizeof *work->items,
                   compare);
}

/* The errors as a compiler prints them: the spec, the kernel, the log. */
static int report(const struct qn_options *opt, const struct qn_compile *work)
{
    static const char end[] = "not every kernel may be used";
    struct qn_text all = {0};
    int status = QN_EXIT_OK;

    for (int i = 0; i < work->count; i++) {
        const struct qn_compile_item *item = &work->items[i];
        if (!item->code)
            continue;
        qn_text_add(&all, "%s: error: %s: %s\n", item->kernel->spec,
                    item->kernel->name,
                    item->message ? item->message : quern_strerror(item->code));
        status = QN_EXIT_FAILED;
    }
    if (status && opt->json)
        qn_text_add(&all, "%s", end);
    if (status)
        qn_message_text(opt, status, "", all.data ? all.data : end);
    if (status && !opt->json)
        qn_message_fail(opt, status, "%s", end);
    qn_text_free(&all);
    return status;
}

int qn_compile_run(const struct qn_options *opt, struct qn_compile *work,
                   int jobs)
{
    struct shop shop = {.work = work, .lock = PTHREAD_MUTEX_INITIALIZER};
    const double start = qn_clock_seconds();
    struct qn_nvrtc *nvrtc;
    int code;

    if (work->cached < work->count) {
        code = qn_nvrtc_of(work->ctx, &nvrtc);
        if (code)
            return qn_message_code(opt, code, quern_errmsg());
        compile_all(&shop, jobs);
    }
    work->seconds = qn_clock_seconds() - start;
    return report(opt, work);
}

void qn_compile_free(struct qn_compile *work)
{
    for (int i = 0; i < work->count; i++) {
        free(work->items[i].object.data);
        free(work->items[i].message);
    }
    free(work->items);
    memset(work, 0, sizeof *work);
}
