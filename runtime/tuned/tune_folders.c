/* SPDX-License-Identifier: Apache-2.0 */
/* tune_folders.c: the folders with files of measured winners. */
#define _GNU_SOURCE
#include "tuned/tune_folders.h"
#include "base/context.h"
#include "base/text.h"
#include "code/cache_folder.h"
#include "device/library.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int each_given(const char *list, qn_tune_visitor *visit, void *user)
{
    char *copy = qn_text_copy(list), *rest = copy;
    int result = copy ? 0 : -1;

    for (char *path; !result && (path = strsep(&rest, ":"));)
        if (*path)
            result = visit(user, path);
    free(copy);
    return result;
}

/* The user's own, next to the cache's compiled kernels. */
static int each_cached(struct quern_context *ctx, qn_tune_visitor *visit,
                       void *user)
{
    char folder[PATH_MAX];
    struct qn_cache *cache;
    const char *path;
    int result = 0;

    if (qn_cache_of(ctx, &cache))
        return -1;
    for (int i = 0; !result && (path = qn_cache_folder(cache, i)); i++)
        if (!qn_cache_refused(cache, i) &&
            snprintf(folder, sizeof folder, "%s/tune", path) <
                (int)sizeof folder)
            result = visit(user, folder);
    return result;
}

/* COUPLED: shipped winners */
static int visit_shipped(qn_tune_visitor *visit, void *user)
{
    char here[PATH_MAX], folder[PATH_MAX + 32];
    char *last;

    if (!qn_library_folder(here, sizeof here))
        return 0;
    /* lib/x86_64-linux-gnu: libraries of several machines side by side */
    last = strrchr(here, '/');
    if (last && last - here >= 4 && !strncmp(last - 4, "/lib", 4))
        *last = 0;
    snprintf(folder, sizeof folder, "%s/../share/quern/tune", here);
    return visit(user, folder);
}

int qn_tune_each_own(struct quern_context *ctx, qn_tune_visitor *visit,
                     void *user)
{
    const char *given = ctx->tune_list;
    int result = 0;

    if (given && !*given)
        return 0;
    if (given)
        result = each_given(given, visit, user);
    return result ? result : each_cached(ctx, visit, user);
}

int qn_tune_each_folder(struct quern_context *ctx, qn_tune_visitor *visit,
                        void *user)
{
    int result = qn_tune_each_own(ctx, visit, user);

    if (result || (ctx->tune_list && !*ctx->tune_list))
        return result;
    return visit_shipped(visit, user);
}
