/* SPDX-License-Identifier: Apache-2.0 */
/*
** api_cache.c: the plans that a context keeps.
*/
#include "api/api.h"
#include "api/api_device.h"
#include "base/context.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A power of 2 or the middle of two, at least `rows`. */
static int64_t bucket(int64_t rows)
{
    int64_t power = 1;

    if (rows <= 2)
        return rows;
    while (2 * power < rows)
        power *= 2;
    return rows <= power / 2 * 3 ? power / 2 * 3 : 2 * power;
}

/* The line with its rows in a bucket, since runs may have fewer, and the
   options. The caller frees it. */
static char *key_of(struct qn_line *line, const struct quern_plan_options *o,
                    const void *current)
{
    int64_t *rows = qn_api_rows(line);
    const char *kernel = o->kernel ? o->kernel : "";
    size_t room;
    char *key;
    int used;

    if (rows && bucket(*rows) <= 1 << 30)
        *rows = bucket(*rows);
    room = (size_t)qn_api_print(line, NULL, 0) + strlen(kernel) + 96;
    key = malloc(room);
    if (!key)
        return NULL;
    /* a device that is named does not depend on the thread */
    if (o->device != -1)
        current = NULL;
    used = snprintf(key, room, "%d %p %d %d %d %d %s ", o->device, current,
                    o->backend, o->sms, o->tune_ms, o->streams, kernel);
    qn_api_print(line, key + used, room - (size_t)used);
    return key;
}

/* Needs the lock. */
static struct quern_plan *find(const struct quern_context *ctx, const char *key)
{
    for (struct quern_plan *p = ctx->plans; p; p = p->next)
        if (!strcmp(p->key, key))
            return p;
    return NULL;
}

/* The plan of another thread that was faster takes the place of ours. */
static struct quern_plan *keep(struct quern_context *ctx,
                               struct quern_plan *plan, char *key)
{
    struct quern_plan *other;

    pthread_mutex_lock(&ctx->lock);
    other = find(ctx, key);
    if (!other) {
        plan->key = key;
        plan->next = ctx->plans;
        ctx->plans = plan;
    }
    pthread_mutex_unlock(&ctx->lock);
    if (!other)
        return plan;
    quern_plan_destroy(plan);
    free(key);
    return other;
}

static int make(struct quern_context *ctx, const struct qn_line *line,
                const struct quern_plan_options *options,
                struct CUstream_st *stream, struct quern_plan **plan)
{
    struct qn_driver_scope scope;
    int code = qn_api_no_capture(ctx, stream);

    if (!code)
        code = qn_api_enter(ctx, options->device, options->backend, &scope);
    if (code)
        return code;
    code = qn_api_make(ctx, line, options, plan);
    qn_api_leave(ctx, &scope);
    return code;
}

int quern_plan_get(struct quern_context *ctx, const char *text,
                   const struct quern_plan_options *given,
                   struct CUstream_st *stream, struct quern_plan **plan)
{
    struct quern_plan_options options;
    struct quern_plan *found;
    struct qn_line line;
    char *key;
    int code = qn_api_line(ctx, text, &line);

    if (!code && !plan)
        code = qn_error_set(QUERN_EINVAL, "plan is NULL");
    if (!code)
        code = qn_context_process(ctx, "ctx");
    if (!code)
        code = qn_api_options(given, &options);
    if (code)
        return code;
    key = key_of(&line, &options, qn_api_current(ctx));
    if (!key)
        return qn_error_memory();
    pthread_mutex_lock(&ctx->lock);
    found = find(ctx, key);
    pthread_mutex_unlock(&ctx->lock);
    if (found) {
        *plan = found;
        free(key);
        return qn_error_done(QUERN_OK);
    }
    code = make(ctx, &line, &options, stream, &found);
    if (code)
        free(key);
    else
        *plan = keep(ctx, found, key);
    return code;
}

void qn_api_forget(struct quern_context *ctx)
{
    while (ctx->plans) {
        struct quern_plan *plan = ctx->plans;

        ctx->plans = plan->next;
        qn_api_free(plan);
    }
}
