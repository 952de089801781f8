/* SPDX-License-Identifier: Apache-2.0 */
/* context.c: the log, the process, and the recipes of a context. */
#define _GNU_SOURCE
#include "base/context.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

void qn_context_log(const struct quern_context *ctx, int level,
                    const char *format, ...)
{
    char line[1024];
    va_list list;

    if (!ctx->log || level > ctx->log_level)
        return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    line[strcspn(line, "\n")] = 0; /* details of an error are for its caller */
    ctx->log(ctx->log_user, level, line);
}

/* How often fork() led here since the first qn_open. A count rather than a
   process number, which would cost each run a call of the system. */
static atomic_uint forks;
static int unwatched;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    unwatched = pthread_atfork(NULL, NULL, count_fork);
}

int qn_context_mark(struct quern_context *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (pthread_once(&once, watch_forks) || unwatched)
        return QUERN_ENOMEM;
    ctx->forks = atomic_load(&forks);
    return QUERN_OK;
}

int qn_context_here(const struct quern_context *ctx)
{
    return ctx->forks == atomic_load_explicit(&forks, memory_order_relaxed);
}

int qn_context_process(const struct quern_context *ctx, const char *what)
{
    if (qn_context_here(ctx))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s was made before fork(), by the parent: the child "
                        "must open the library anew",
                        what);
}

const struct qn_recipe *qn_context_recipe_in(const struct quern_registry *in,
                                             const char *name)
{
    for (int i = 0; in && i < in->nrecipes; i++)
        if (!strcmp(in->recipes[i].name, name))
            return &in->recipes[i];
    return NULL;
}

const struct qn_recipe *qn_context_recipe(const struct quern_context *ctx,
                                          const char *name)
{
    const struct qn_recipe *recipe = qn_context_recipe_in(ctx->base, name);

    return recipe ? recipe : qn_context_recipe_in(ctx->linked, name);
}

/* The first of ctx->order whose kernel does not come before op and recipe, or,
   with `after`, comes after them. */
static int find_place(const struct quern_context *ctx, int op,
                      const char *recipe, int after)
{
    int low = 0, high = ctx->nkernels;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        const struct qn_kernel *k = ctx->kernels[ctx->order[middle]].kernel;
        const int order = k->op != op ? k->op - op : strcmp(k->recipe, recipe);

        if (order < 0 || (after && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct qn_kernel_list qn_context_kernels(const struct quern_context *ctx,
                                         int op, const char *recipe)
{
    const int first = find_place(ctx, op, recipe, 0);

    return (struct qn_kernel_list){ctx->order + first,
                                   find_place(ctx, op, recipe, 1) - first};
}
