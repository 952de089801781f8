/* SPDX-License-Identifier: Apache-2.0 */
/* host.c: kernels that run on this machine's cores: threads, and libraries
   loaded from memory. */
#define _GNU_SOURCE
#include "device/host.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "device/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ----------------------------------------------------------------- running */

int qn_host_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

int qn_host_threads(const struct quern_context *ctx, int *threads)
{
    int64_t wanted = 0;

    if (ctx->threads) {
        const char *end = qn_text_number(ctx->threads, &wanted);

        if (!end || *end || wanted < 1 || wanted > QN_HOST_THREADS)
            return qn_error_set(QUERN_EINVAL,
                                "QUERN_THREADS=%s: a number "
                                "from 1 to %d is expected",
                                ctx->threads, QN_HOST_THREADS);
        *threads = (int)wanted;
        return QUERN_OK;
    }
    *threads = qn_host_cores();
    if (*threads > QN_HOST_THREADS)
        *threads = QN_HOST_THREADS;
    return QUERN_OK;
}

enum { STACK_BYTES = 1 << 20 }; /* kernels take 256 KiB. COUPLED: stack */

struct worker {
    qn_host_function *function;
    void *const *params;
    int worker, workers;
    pthread_t thread;
    int started;
};

/* A thread's body; it begins in the mode of the thread that made it. */
static void *work(void *user)
{
    const struct worker *w = user;

    w->function(w->params, w->worker, w->workers);
    return NULL;
}

void qn_host_run(qn_host_function *function, void *const *params, int workers)
{
    struct worker all[QN_HOST_THREADS];
    pthread_attr_t room;
    fenv_t mode;

    /* the caller's may flush denormals, or round in another direction */
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    /* instead of the default of `ulimit -s` */
    pthread_attr_init(&room);
    pthread_attr_setstacksize(&room, STACK_BYTES);
    for (int i = 1; i < workers; i++) {
        all[i] = (struct worker){.function = function,
                                 .params = params,
                                 .worker = i,
                                 .workers = workers};
        all[i].started = !pthread_create(&all[i].thread, &room, work, &all[i]);
    }
    pthread_attr_destroy(&room);
    function(params, 0, workers);
    for (int i = 1; i < workers; i++)
        if (all[i].started)
            pthread_join(all[i].thread, NULL);
        else
            work(&all[i]);
    fesetenv(&mode);
}

/* ----------------------------------------------------------------- loading */

const char *qn_host_machine(void)
{
#if defined(__x86_64__)
    return "x86_64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "other";
#endif
}

/* An anonymous file with the object; -1 and errno if that fails. */
static int copy_to_memory(const void *object, size_t bytes)
{
    int file = memfd_create("quern", MFD_CLOEXEC);
    const char *data = object;
    size_t done = 0;

    while (file >= 0 && done < bytes) {
        ssize_t put = write(file, data + done, bytes - done);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            close(file);
            return -1;
        }
        done += (size_t)put;
    }
    return file;
}

/* From memory, so that the loaded bytes are the verified ones, and a folder
   without the right to execute serves too. The descriptor stays open: the
   loader knows libraries by path, and a reused number would be another's. */
int qn_host_load(const char *kernel, const void *object, size_t bytes,
                 struct qn_host_library *library)
{
    char path[64];
    void *symbol;

    memset(library, 0, sizeof *library);
    library->file = copy_to_memory(object, bytes);
    if (library->file < 0)
        return qn_error_set(QUERN_EIO, "%s: no memory to load it: %s", kernel,
                            strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", library->file);
    library->handle = qn_library_open(path, 0);
    if (!library->handle) {
        qn_error_set(QUERN_ECOMPILE, "%s cannot be loaded: %s", kernel,
                     qn_library_error());
        qn_host_unload(library);
        return QUERN_ECOMPILE;
    }
    symbol = dlsym(library->handle, kernel);
    if (!symbol) {
        qn_host_unload(library);
        return qn_error_set(QUERN_ECOMPILE, "%s: its library lacks it", kernel);
    }
    memcpy(&library->function, &symbol, sizeof symbol);
    return QUERN_OK;
}

void qn_host_unload(struct qn_host_library *library)
{
    if (library->handle)
        dlclose(library->handle);
    if (library->file >= 0)
        close(library->file);
    memset(library, 0, sizeof *library);
    library->file = -1;
}
