/* SPDX-License-Identifier: Apache-2.0 */
/*
** site.c: read a call's attributes, make its plans.
*/
#include "jax/site.h"
#include "binding/binding.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic int64_t qn_site_count[QN_SITE_EVENTS];

/* ------------------------------------------------------------------- errors */

struct qn_ffi_error *qn_site_fail(const struct qn_ffi_call *call,
                                  enum qn_ffi_code code, const char *format,
                                  ...)
{
    char text[2048];
    struct qn_ffi_error_args args = {
        .size = sizeof args, .message = text, .code = (int)code};
    va_list arguments;
    const int used = snprintf(text, sizeof text, "quern: ");

    va_start(arguments, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    va_end(arguments);
    return call->api->make_error(&args);
}

struct qn_ffi_error *qn_site_fail_library(const struct qn_ffi_call *call,
                                          int code)
{
    static const enum qn_ffi_code codes[QUERN_STATUS_COUNT] = {
        [QUERN_EINVAL] = QN_FFI_INVALID_ARGUMENT,
        [QUERN_ENOMEM] = QN_FFI_RESOURCE_EXHAUSTED,
        [QUERN_ENOKERNEL] = QN_FFI_UNIMPLEMENTED,
        [QUERN_ENODEVICE] = QN_FFI_UNAVAILABLE,
        [QUERN_ESIZES] = QN_FFI_OUT_OF_RANGE,
        [QUERN_ECAPTURE] = QN_FFI_FAILED_PRECONDITION,
        [QUERN_EMISSING] = QN_FFI_NOT_FOUND,
    };
    const enum qn_ffi_code found = codes[code];

    return qn_site_fail(call, found ? found : QN_FFI_INTERNAL, "%s",
                        quern_errmsg());
}

/* ---------------------------------------------------------- Python's calls */

QUERN_API const char *quern_jax_specs(const char *folder);
QUERN_API void quern_jax_count(int64_t *events);

const char *quern_jax_specs(const char *folder)
{
    return qn_binding_add_specs(folder);
}

/* For tests: as enum qn_site_event. */
void quern_jax_count(int64_t *events)
{
    for (int i = 0; i < QN_SITE_EVENTS; i++)
        events[i] = atomic_load(&qn_site_count[i]);
}

/* --------------------------------------------------------------- attributes */

/* An attribute of a kind; NULL: the call has none of this name. */
static const void *attribute(const struct qn_ffi_call *call, const char *name,
                             int kind)
{
    const struct qn_ffi_attributes *all = &call->attributes;

    for (int64_t i = 0; i < all->count; i++)
        if (all->kinds[i] == kind && all->names[i]->length == strlen(name) &&
            !memcmp(all->names[i]->text, name, strlen(name)))
            return all->at[i];
    return NULL;
}

static int64_t integer(const struct qn_ffi_call *call, const char *name)
{
    const struct qn_ffi_scalar *s = attribute(call, name, QN_FFI_SCALAR);

    return s && s->type == QN_FFI_S64 ? *(const int64_t *)s->value : 0;
}

static void take_number(const struct qn_ffi_call *call, const char *name,
                        float *number)
{
    const struct qn_ffi_scalar *s = attribute(call, name, QN_FFI_SCALAR);

    if (s && s->type == QN_FFI_F32)
        *number = *(const float *)s->value;
}

static const struct quern_operand *find(const struct quern_operand *table,
                                        int count, const char *name, size_t n)
{
    for (int i = 0; i < count; i++)
        if (strlen(table[i].name) == n && !memcmp(table[i].name, name, n))
            return &table[i];
    return NULL;
}

/* Names of a line's operands, one blank between two, become their indexes. */
static struct qn_ffi_error *take_names(const struct qn_ffi_call *call,
                                       const struct qn_site *site,
                                       const char *attribute_name,
                                       const struct quern_operand *table,
                                       int count, short *index, int *names)
{
    const struct qn_ffi_span *span =
        attribute(call, attribute_name, QN_FFI_STRING);
    const char *at = span ? span->text : NULL;
    const char *end = span ? at + span->length : NULL;

    for (int i = 0; i < QUERN_ARGS_COUNT; i++)
        index[i] = -1;
    while (at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        const size_t n = (size_t)((blank ? blank : end) - at);
        const struct quern_operand *o = find(table, count, at, n);

        if (!o || index[o->arg] >= 0)
            return qn_site_fail(call, QN_FFI_INVALID_ARGUMENT,
                                "%s: '%.*s' is %s of '%s'", attribute_name,
                                (int)n, at, o ? "named twice" : "no operand",
                                site->line);
        index[o->arg] = (short)(*names)++;
        at += n + 1;
    }
    return NULL;
}

static struct qn_ffi_error *take_tables(const struct qn_ffi_call *call,
                                        struct qn_site *site)
{
    struct quern_context *ctx;
    struct quern_operand *table = NULL;
    struct qn_ffi_error *error;
    int count, code = qn_binding_open(&ctx);

    if (!code)
        code = quern_describe(ctx, site->line, &table, &count);
    if (code)
        return qn_site_fail_library(call, code);
    error = take_names(call, site, "operands", table, count, site->operand,
                       &site->operands);
    if (!error)
        error = take_names(call, site, "results", table, count, site->result,
                           &site->results);
    quern_free(table);
    return error;
}

/* -------------------------------------------------------------------- sites */

struct qn_ffi_error *qn_site_make(const struct qn_ffi_call *call, int is_cuda,
                                  struct qn_site **site)
{
    static const struct quern_args init = QUERN_ARGS_INIT;
    const struct qn_ffi_span *line = attribute(call, "line", QN_FFI_STRING);
    struct qn_site *made = calloc(1, sizeof *made);
    struct qn_ffi_error *error;

    if (!made || !line || !(made->line = strndup(line->text, line->length))) {
        free(made);
        return line ? qn_site_fail(call, QN_FFI_RESOURCE_EXHAUSTED,
                                   "host memory ran out")
                    : qn_site_fail(call, QN_FFI_INVALID_ARGUMENT,
                                   "the attribute line is missing");
    }
    atomic_fetch_add(&qn_site_count[QN_SITE_LIVE], 1);
    pthread_mutex_init(&made->lock, NULL);
    made->is_cuda = is_cuda;
    made->args = init;
    made->rows = integer(call, "rows");
    made->args.phase = (int)integer(call, "phase");
    take_number(call, "limit", &made->args.limit);
    take_number(call, "slope", &made->args.slope);
    take_number(call, "shift", &made->args.shift);
    error = take_tables(call, made);
    if (!error && !is_cuda)
        error = qn_site_prepare(call, made, 0);
    if (error) {
        qn_site_destroy(made);
        return error;
    }
    *site = made;
    return NULL;
}

void qn_site_destroy(void *object)
{
    struct qn_site *site = object;

    for (int i = 0; i < QN_SITE_DEVICES; i++)
        quern_plan_destroy(atomic_load(&site->plans[i]));
    pthread_mutex_destroy(&site->lock);
    free(site->line);
    free(site);
    atomic_fetch_sub(&qn_site_count[QN_SITE_LIVE], 1);
}

/* The plan of a device, with the site's lock held. */
static int make_plan(struct qn_site *site, int device)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_context *ctx;
    struct quern_plan *plan;
    int code = qn_binding_open(&ctx);

    options.device = site->is_cuda ? device : -1;
    options.backend = site->is_cuda ? QUERN_BACKEND_AUTO : QUERN_BACKEND_HOST;
    if (!code)
        code = quern_plan_create(ctx, site->line, &options, &plan);
    if (code)
        return code;
    atomic_store(&site->plans[device], plan);
    atomic_store(&site->forks, qn_binding_forks());
    atomic_fetch_add(&qn_site_count[QN_SITE_PLANS], 1);
    return QUERN_OK;
}

struct qn_ffi_error *qn_site_prepare(const struct qn_ffi_call *call,
                                     struct qn_site *site, int device)
{
    int code = QUERN_OK;

    if (atomic_load_explicit(&site->plans[device], memory_order_acquire))
        return NULL;
    pthread_mutex_lock(&site->lock);
    if (!atomic_load(&site->plans[device]))
        code = make_plan(site, device);
    pthread_mutex_unlock(&site->lock);
    return code ? qn_site_fail_library(call, code) : NULL;
}

struct qn_ffi_error *qn_site_renew(const struct qn_ffi_call *call,
                                   struct qn_site *site)
{
    const int forks = qn_binding_forks();
    int code = QUERN_OK;

    if (atomic_load_explicit(&site->forks, memory_order_acquire) == forks)
        return NULL;
    pthread_mutex_lock(&site->lock);
    if (atomic_load(&site->forks) != forks) {
        struct quern_plan *parents = atomic_load(&site->plans[0]);

        code = make_plan(site, 0);
        if (!code)
            quern_plan_destroy(parents);
    }
    pthread_mutex_unlock(&site->lock);
    return code ? qn_site_fail_library(call, code) : NULL;
}
