/* SPDX-License-Identifier: Apache-2.0 */
/*
** jit.c: the compiled form of a kernel, from the cache or made now.
**
** A warm start goes index -> key -> entry and opens neither a compiler nor
** the generator. Without an index the compiler's version is needed for the
** key; only without an entry is the source generated and compiled, once among
** all threads and processes that share the cache.
*/
#define _GNU_SOURCE
#include "code/jit.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "code/cache_folder.h"
#include "code/entry.h"
#include "code/generator.h"
#include "device/host.h"
#include "device/nvrtc.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compilers: NVRTC for GPUs, the system's compiler for the host. */
struct maker {
    const char *(*options)(void);
    int (*version)(struct quern_context *ctx, char *text, size_t size);
    int (*compile)(struct quern_context *ctx, const char *folder,
                   const struct qn_kernel *kernel, const char *source,
                   struct qn_compiled *out);
    int own; /* the cache must hold only files of this user */
};

/* Opening NVRTC takes the time here: 0.1 s at first. */
static int nvrtc_version(struct quern_context *ctx, char *text, size_t size)
{
    struct qn_nvrtc *nvrtc;
    int code = qn_nvrtc_of(ctx, &nvrtc);

    if (!code)
        snprintf(text, size, "%s", qn_nvrtc_version(nvrtc));
    return code;
}

/* Spills and serialized wgmma get a code of their own. NVRTC makes no files. */
static int nvrtc_compile(struct quern_context *ctx, const char *folder,
                         const struct qn_kernel *kernel, const char *source,
                         struct qn_compiled *out)
{
    struct qn_nvrtc *nvrtc;
    int code = qn_nvrtc_of(ctx, &nvrtc);

    (void)folder;
    if (!code)
        code = qn_nvrtc_compile(nvrtc, kernel->name, source, kernel->arch, out);
    return code && out->rejected ? QN_REJECTED : code;
}

static const struct maker gpu_maker = {qn_nvrtc_options, nvrtc_version,
                                       nvrtc_compile, 0};

/* A library that is loaded into this process must be our own work. */
static const struct maker host_maker = {qn_host_options, qn_host_version,
                                        qn_host_compile, 1};

/* One compilation and where it is kept. */
struct job {
    struct quern_context *ctx;
    const struct qn_candidate *candidate;
    const struct maker *maker;
    struct qn_cache *cache;
    const char *source; /* its key */
    char index[QN_KEY_SIZE], key[QN_KEY_SIZE];
    char version[96];
};

/* sha256 of lines; 0 if memory ran out. */
static int sum_lines(char sum[QN_KEY_SIZE], const char *const *lines)
{
    struct qn_text text = {0};
    int whole;

    for (; *lines; lines++)
        qn_text_add(&text, "%s\n", *lines);
    whole = !text.failed;
    if (whole)
        qn_entry_sum(text.data, text.length, sum);
    qn_text_free(&text);
    return whole;
}

/* All that decides about the object except the compiler's version: a compiled
   object serves until its own source changes. */
static int make_index(struct job *job)
{
    const struct qn_kernel *kernel = job->candidate->kernel;
    const char *lines[] = {"quern index 2",
                           job->source,
                           kernel->arch,
                           job->maker->options(),
                           job->maker->own ? qn_host_machine() : "",
                           NULL};

    return sum_lines(job->index, lines) ? QUERN_OK : qn_error_memory();
}

/* All that decides about the object; no path and no name. */
static int make_key(struct job *job)
{
    const struct qn_kernel *kernel = job->candidate->kernel;
    const char *lines[] = {"quern entry 2",       job->source,  kernel->arch,
                           job->maker->options(), job->version, NULL};

    return sum_lines(job->key, lines) ? QUERN_OK : qn_error_memory();
}

/* Verified by its checksum. */
static int load(struct job *job, int repair, struct qn_cache_object *object)
{
    return qn_cache_load(job->cache, job->key, repair, job->maker->own, object);
}

/* A kernel that is not fit for use is kept without its object, so that the
   next process need not find out again. */
static void keep(struct job *job, const char *source,
                 const struct qn_compiled *made)
{
    const struct qn_kernel *kernel = job->candidate->kernel;
    const struct qn_cache_item item = {.source = source,
                                       .log = made->log,
                                       .object = made->object,
                                       .bytes =
                                           made->rejected ? 0 : made->bytes,
                                       .kernel = kernel->name,
                                       .arch = kernel->arch,
                                       .compiler = job->version};

    if (qn_cache_store(job->cache, job->key, &item))
        qn_cache_index_store(job->cache, job->index, job->key);
}

/* Generate, compile, keep. */
static int make(struct job *job, struct qn_cache_object *object)
{
    const struct qn_kernel *kernel = job->candidate->kernel;
    struct qn_compiled made = {0};
    double start = qn_clock_seconds();
    char *source;
    int code = qn_generator_source(job->ctx, kernel, &source);
    char folder[PATH_MAX];

    if (!code)
        code = job->maker->compile(
            job->ctx,
            qn_cache_work(job->cache, folder, sizeof folder) ? folder : NULL,
            kernel, source, &made);
    if ((!code || code == QN_REJECTED) && !made.old)
        keep(job, source, &made);
    if (!code) {
        qn_context_log(job->ctx, QUERN_LOG_INFO, "compiled %s in %.2f s",
                       kernel->name, qn_clock_seconds() - start);
        object->data = made.object;
        object->bytes = made.bytes;
        made.object = NULL;
    }
    free(source);
    qn_nvrtc_free(&made);
    return code;
}

/* The cache's entry, if it is usable. */
static int take(struct job *job, struct qn_cache_object *object)
{
    const char *name = job->candidate->kernel->name;

    if (object->bytes) {
        qn_context_log(job->ctx, QUERN_LOG_DEBUG, "%s comes from the cache",
                       name);
        return QUERN_OK;
    }
    free(object->data);
    object->data = NULL;
    return qn_error_set(QN_REJECTED,
                        "%s is not used: it spills registers or its wgmma "
                        "are serialized; entry %.12s... of the cache has the "
                        "log",
                        name, job->key);
}

/* There is no index: find the entry, or make it under its lock. */
static int find_or_make(struct job *job, struct qn_cache_object *object)
{
    int code = job->maker->version(job->ctx, job->version, sizeof job->version);
    int lock;

    if (code)
        qn_error_add("  %s needs it", job->candidate->kernel->name);
    else
        code = make_key(job);
    if (code)
        return code;
    lock = qn_cache_lock(job->cache, job->key);
    if (lock == QN_LOCK_LATE)
        return qn_error_set(QUERN_EIO,
                            "%s: time was up while another process compiled it",
                            job->candidate->kernel->name);
    if (load(job, lock >= 0, object)) {
        qn_cache_index_store(job->cache, job->index, job->key);
        code = take(job, object);
    } else {
        code = make(job, object);
    }
    qn_cache_unlock(lock);
    return code;
}

/* By the index, which the job has after it. QUERN_OK with `*found` 0: the
   cache has no such kernel. */
static int look(struct job *job, struct qn_cache_object *object, int *found)
{
    int code = qn_cache_of(job->ctx, &job->cache);

    object->data = NULL;
    object->bytes = 0;
    *found = 0;
    if (!code)
        code = qn_generator_key(job->ctx, job->candidate, &job->source);
    if (!code)
        code = make_index(job);
    if (code)
        return code;
    for (int at = 0;
         (at = qn_cache_index(job->cache, at, job->index, job->key)) > 0;) {
        *found = load(job, 0, object);
        if (*found)
            return take(job, object);
    }
    return QUERN_OK;
}

static struct job begin(struct quern_context *ctx,
                        const struct qn_candidate *candidate)
{
    const int host = !strcmp(candidate->kernel->arch, "host");

    return (struct job){.ctx = ctx,
                        .candidate = candidate,
                        .maker = host ? &host_maker : &gpu_maker};
}

int qn_jit_look(struct quern_context *ctx, const struct qn_candidate *candidate,
                struct qn_cache_object *object, int *found)
{
    struct job job = begin(ctx, candidate);

    return look(&job, object, found);
}

int qn_jit_object(struct quern_context *ctx,
                  const struct qn_candidate *candidate,
                  struct qn_cache_object *object)
{
    struct job job = begin(ctx, candidate);
    int found, code = look(&job, object, &found);

    return code || found ? code : find_or_make(&job, object);
}
