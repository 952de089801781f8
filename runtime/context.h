/*
** context.h: what quern_open makes, and what its parts offer to each other.
**
** Fields without a note are set by quern_open and never change. The others
** are guarded by `lock`, which is never held while something is compiled.
*/
#ifndef QUERN_CONTEXT_H
#define QUERN_CONTEXT_H

#include "cache.h"
#include "cublaslt.h"
#include "driver.h"
#include "error.h"
#include "generator.h"
#include "nvrtc.h"
#include "registry.h"

#include <pthread.h>

/* X(field, variable): the environment, read once, with what
   qn_cache_default() reads. */
#define QN_ENVIRONMENT(X)                                                      \
    X(cuda, "QUERN_CUDA")                                                      \
    X(nvrtc, "QUERN_NVRTC")                                                    \
    X(cublaslt, "QUERN_CUBLASLT")                                              \
    X(gen, "QUERN_GEN")                                                        \
    X(cc, "QUERN_CC")                                                          \
    X(threads, "QUERN_THREADS")                                                \
    X(log_wanted, "QUERN_LOG")                                                 \
    X(cuda_home, "CUDA_HOME")                                                  \
    X(temporary, "TMPDIR")

/* A kernel and the registry that it comes from. */
struct qn_candidate {
    const struct qn_kernel *kernel;
    const struct quern_registry *registry;
};

struct quern_context {
#define QN_ENVIRONMENT_FIELD(field, variable) char *field;
    QN_ENVIRONMENT(QN_ENVIRONMENT_FIELD)
#undef QN_ENVIRONMENT_FIELD
    char *cache_list; /* the options', else the environment's */
    void (*log)(void *user, int level, const char *line);
    void *log_user;
    int log_level;
    const struct quern_registry *linked; /* options' registry, or NULL */
    const struct quern_registry *base;   /* built in, or of the user's specs */
    struct qn_candidate *kernels;        /* of both */
    int nkernels;
    char **specs;
    int nspecs;
    unsigned forks; /* how many led to the process that opened it */

    pthread_mutex_t lock;
    pthread_cond_t changed;        /* a module is no longer being loaded */
    struct qn_driver *driver;      /* lock; NULL until one was found */
    struct qn_nvrtc *compiler;     /* lock; the same */
    struct qn_cublaslt *products;  /* lock; the same */
    struct qn_cache *disk;         /* lock; the same */
    struct qn_generator generator; /* its own lock */
    struct qn_module *modules;     /* lock */

    char *tune_list; /* the options', else the environment's, else NULL */
    pthread_mutex_t books_lock;
    struct qn_tune_book *books; /* books_lock: measured winners by GPU */
    pthread_mutex_t measuring;  /* one at a time */
};

/* Tell the caller's log; `format` has no newline. */
void qn_context_log(const struct quern_context *ctx, int level,
                    const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
** Is this the process that opened the context? After fork() the child has a
** copy whose driver does not work and whose locks may be held for good: it must
** not use it. QUERN_EINVAL names `what`.
*/
int qn_context_here(const struct quern_context *ctx);
int qn_context_process(const struct quern_context *ctx, const char *what);

/* Each opens on first use. Errors are those of the _open functions. */
int qn_context_driver(struct quern_context *ctx, struct qn_driver **out);
int qn_context_compiler(struct quern_context *ctx, struct qn_nvrtc **out);
int qn_context_cublaslt(struct quern_context *ctx, struct qn_cublaslt **out);
int qn_context_cache(struct quern_context *ctx, struct qn_cache **out);

/* The recipe of that name, or NULL. */
const struct qn_recipe *qn_context_recipe(const struct quern_context *ctx,
                                          const char *name);

#endif
