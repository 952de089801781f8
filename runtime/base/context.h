/* SPDX-License-Identifier: Apache-2.0 */
/*
** context.h: the result of qn_open, and the services of its parts for each
** other.
**
** Fields without a note are set by qn_open and never change. The others
** are guarded by `lock`, which is never locked during a compilation.
*/
#pragma once

#include "internal.h"

#include <pthread.h>

struct qg;
struct qn_backend;
struct qn_cache;
struct qn_cublaslt;
struct qn_driver;
struct qn_module;
struct qn_nvrtc;
struct qn_trial_result;
struct qn_tune_book;
struct qn_api_recent;
struct quern_plan;

/* X(field, variable): the environment, read once, with the variables of
   qn_cache_default(). */
#define QN_ENVIRONMENT(X)                                                      \
    X(cuda, "QUERN_CUDA")                                                      \
    X(nvrtc, "QUERN_NVRTC")                                                    \
    X(cublaslt_path, "QUERN_CUBLASLT")                                         \
    X(archive, "QUERN_KERNELS")                                                \
    X(gen, "QUERN_GEN")                                                        \
    X(cc, "QUERN_CC")                                                          \
    X(checker, "QUERN_CHECKER")                                                \
    X(trust_wanted, "QUERN_TRUST")                                             \
    X(threads, "QUERN_THREADS")                                                \
    X(log_wanted, "QUERN_LOG")                                                 \
    X(cuda_home, "CUDA_HOME")                                                  \
    X(cache_size, "QUERN_CACHE_SIZE")                                          \
    X(temporary, "TMPDIR")

/* A kernel and the registry that it comes from. */
struct qn_candidate {
    const struct qn_kernel *kernel;
    const struct quern_registry *registry;
};

/* libquern_gen, once it is open: see code/generator.h. */
struct qn_generator {
    pthread_mutex_t lock;
    void *library;
    struct qg *qg;
    int (*open)(const char *const *folders, int count, struct qg **out);
    int (*open_lazily)(struct qg **out);
    void (*close)(struct qg *);
    const char *(*diagnostics)(const struct qg *);
    const struct quern_registry *(*registry)(const struct qg *);
    const struct qn_kernel *(*kernel)(struct qg *, const char *name);
    int (*source)(struct qg *, const char *kernel, const char **text,
                  size_t *length);
};

struct quern_context {
#define QN_ENVIRONMENT_FIELD(field, variable) char *field;
    QN_ENVIRONMENT(QN_ENVIRONMENT_FIELD)
#undef QN_ENVIRONMENT_FIELD
    char *cache_list;    /* the options', else the environment's */
    int64_t cache_limit; /* bytes of the folder that takes new entries */
    void (*log)(void *user, int level, const char *line);
    void *log_user;
    int log_level;
    int trust;            /* the least evidence that needs no trial */
    double trial_seconds; /* that a kernel has */
    void *library;        /* that `archive` names; NULL: none is open */
    const struct quern_registry *linked; /* options' registry, or the library's,
                                            or NULL */
    const struct quern_registry *base;   /* built in, or of the user's specs */
    struct qn_candidate *kernels;        /* of both */
    int nkernels;
    int *order; /* of these, by op and recipe: see qn_context_kernels */
    char **specs;
    int nspecs;
    unsigned forks; /* how many led to the process that opened it */

    /* Functions that the parts above call without knowing them: a library that
       multiplies, and the tuner; set by open.c. */
    const struct qn_backend *cublaslt;
    int (*measure)(struct quern_context *ctx, const struct qn_problem *problem,
                   const struct qn_tune_options *options, int unless_known,
                   struct quern_tune_result *result);

    const struct qn_device *assumed; /* explanations are for this GPU; NULL: for
                                        the one that is there */

    pthread_mutex_t lock;
    pthread_cond_t changed;        /* a module is no longer being loaded */
    struct qn_driver *driver;      /* lock; NULL until one was found */
    struct qn_nvrtc *compiler;     /* lock; the same */
    struct qn_cublaslt *products;  /* lock; the same */
    struct qn_cache *disk;         /* lock; the same */
    struct qn_generator generator; /* its own lock */
    struct qn_module *modules;     /* lock */
    struct quern_plan *plans;      /* lock: of quern_plan_get */
    struct qn_api_recent *recent;  /* lock: their lines, as last written */

    pthread_mutex_t trying;         /* one trial at a time */
    struct qn_trial_result *trials; /* trying: see choose/trial.h */

    char *tune_list; /* the options', else the environment's, else NULL */
    pthread_mutex_t books_lock;
    struct qn_tune_book *books; /* books_lock: measured winners by GPU */
    pthread_mutex_t measuring;  /* one at a time */
};

/* Tell the caller's log; `format` has no newline. */
void qn_context_log(const struct quern_context *ctx, int level,
                    const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Note the process that opens the context. QUERN_ENOMEM. */
int qn_context_mark(struct quern_context *ctx);

/* Is this the process that opened the context? After fork() the child has a
   copy whose driver does not work and whose locks may be locked for good: it
   must not use it. QUERN_EINVAL names `what`. */
int qn_context_here(const struct quern_context *ctx);
int qn_context_process(const struct quern_context *ctx, const char *what);

/* The recipe of that name in a registry, or in both of the context; or NULL. */
const struct qn_recipe *
qn_context_recipe_in(const struct quern_registry *registry, const char *name);
const struct qn_recipe *qn_context_recipe(const struct quern_context *ctx,
                                          const char *name);

/* Indices in ctx->kernels of those that have an op (enum quern_op or
   qn_cast_op) and a recipe, in their order there. */
struct qn_kernel_list {
    const int *at;
    int count;
};

struct qn_kernel_list qn_context_kernels(const struct quern_context *ctx,
                                         int op, const char *recipe);
