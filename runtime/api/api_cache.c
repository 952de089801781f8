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
                    uint64_t current)
{
    int64_t *rows = qn_api_rows(line);
    const int64_t most =
        line->kind == QN_LINE_ROUTE ? QN_MAX_PAIRS / line->of.route.topk
        : line->kind == QN_LINE_MOE ? QN_MAX_PAIRS / line->of.moe.topk
                                    : 1 << 30;
    const char *kernel = o->kernel ? o->kernel : "";
    size_t room;
    char *key;
    int used;

    if (rows && bucket(*rows) <= most)
        *rows = bucket(*rows);
    room = (size_t)qn_api_print(line, NULL, 0) + strlen(kernel) + 96;
    key = malloc(room);
    if (!key)
        return NULL;
    used = snprintf(key, room, "%d %llu %d %d %d %d %s ", o->device,
                    (unsigned long long)current, o->backend, o->sms, o->tune_ms,
                    o->streams, kernel);
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

/* ------------------------------------------------------------ recent texts */

/* One text and its plan; a later one of the same hash replaces it. */
struct qn_api_recent {
    char text[256]; /* "": none */
    uint64_t current;
    struct quern_plan_options options; /* without a kernel */
    struct quern_plan *plan;
};

enum { RECENT = 512 };

static struct qn_api_recent *slot_of(struct quern_context *ctx,
                                     const char *text)
{
    unsigned hash = 2166136261u;

    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return &ctx->recent[hash % RECENT];
}

static int is_same(const struct quern_plan_options *a,
                   const struct quern_plan_options *b)
{
    return a->device == b->device && a->backend == b->backend &&
           a->sms == b->sms && a->tune_ms == b->tune_ms &&
           a->streams == b->streams;
}

/* NULL: it must be looked for by its line. */
static struct quern_plan *recall(struct quern_context *ctx, const char *text,
                                 const struct quern_plan_options *o,
                                 uint64_t current)
{
    struct quern_plan *found = NULL;

    pthread_mutex_lock(&ctx->lock);
    if (ctx->recent && !o->kernel) {
        const struct qn_api_recent *r = slot_of(ctx, text);

        if (!strcmp(r->text, text) && r->current == current &&
            is_same(&r->options, o))
            found = r->plan;
    }
    pthread_mutex_unlock(&ctx->lock);
    return found;
}

/* Without memory nothing is remembered. */
static void remember(struct quern_context *ctx, const char *text,
                     const struct quern_plan_options *o, uint64_t current,
                     struct quern_plan *plan)
{
    struct qn_api_recent *r;

    if (o->kernel || strlen(text) >= sizeof r->text)
        return;
    pthread_mutex_lock(&ctx->lock);
    if (!ctx->recent)
        ctx->recent = calloc(RECENT, sizeof *ctx->recent);
    if (ctx->recent) {
        r = slot_of(ctx, text);
        strcpy(r->text, text);
        r->current = current;
        r->options = *o;
        r->plan = plan;
    }
    pthread_mutex_unlock(&ctx->lock);
}

/* --------------------------------------------------------------- make, get */

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
    int code = qn_api_no_capture(ctx, stream);

    if (!code)
        code = qn_api_make(ctx, line, options, plan);
    if (!code)
        (*plan)->rounded = (*plan)->rows >= 0;
    return code;
}

/* The inputs of a plan besides its options; a device that is named does not
   depend on the thread. */
static uint64_t current_of(struct quern_context *ctx,
                           const struct quern_plan_options *o)
{
    return o->device == -1 ? qn_api_current(ctx) : 0;
}

/* By its line, made if there is none. */
static int look_up(struct quern_context *ctx, const char *text,
                   const struct quern_plan_options *options, uint64_t current,
                   struct CUstream_st *stream, struct quern_plan **plan)
{
    struct quern_plan *found;
    struct qn_line line;
    char *key;
    int code = qn_api_line(ctx, text, &line);

    if (code)
        return code;
    key = key_of(&line, options, current);
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
    free(key);
    code = make(ctx, &line, options, stream, &found);
    if (code)
        return code;
    /* the first plan opens the driver, the only source of the current device */
    key = key_of(&line, options, current_of(ctx, options));
    if (!key) {
        quern_plan_destroy(found);
        return qn_error_memory();
    }
    *plan = keep(ctx, found, key);
    return QUERN_OK;
}

int quern_plan_get(struct quern_context *ctx, const char *text,
                   const struct quern_plan_options *given,
                   struct CUstream_st *stream, struct quern_plan **plan)
{
    struct quern_plan_options options;
    uint64_t current;
    int code;

    if (!ctx || !text || !plan)
        return qn_error_null("ctx", ctx, "line", text, "plan");
    code = qn_context_process(ctx, "ctx");
    if (!code)
        code = qn_api_options(given, &options);
    if (code)
        return code;
    current = current_of(ctx, &options);
    *plan = recall(ctx, text, &options, current);
    if (*plan)
        return QUERN_OK;
    code = look_up(ctx, text, &options, current, stream, plan);
    if (!code)
        remember(ctx, text, &options, current_of(ctx, &options), *plan);
    return code;
}

void qn_api_forget(struct quern_context *ctx)
{
    free(ctx->recent);
    ctx->recent = NULL;
    while (ctx->plans) {
        struct quern_plan *plan = ctx->plans;

        ctx->plans = plan->next;
        qn_api_free(plan);
    }
}
