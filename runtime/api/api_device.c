/* SPDX-License-Identifier: Apache-2.0 */
/*
** api_device.c: the device that a caller asks for, and streams of others.
*/
#include "api/api_device.h"
#include "base/context.h"
#include "base/error.h"

int qn_api_enter(struct quern_context *ctx, int device, int backend,
                 struct qn_driver_scope *scope)
{
    struct qn_driver *driver;
    int code;

    scope->pushed = 0;
    if (device == -1 || backend == QUERN_BACKEND_HOST)
        return QUERN_OK;
    code = qn_context_process(ctx, "ctx");
    if (!code)
        code = qn_driver_of(ctx, &driver);
    return code ? code : qn_driver_enter_device(driver, device, scope);
}

void qn_api_leave(struct quern_context *ctx, struct qn_driver_scope *scope)
{
    if (scope->pushed)
        qn_driver_leave(ctx->driver, scope);
}

/* The driver, if a plan has opened it; another thread may do so meanwhile. */
static struct qn_driver *opened(struct quern_context *ctx)
{
    struct qn_driver *driver;

    pthread_mutex_lock(&ctx->lock);
    driver = ctx->driver;
    pthread_mutex_unlock(&ctx->lock);
    return driver;
}

uint64_t qn_api_current(struct quern_context *ctx)
{
    const struct qn_driver *driver = opened(ctx);
    struct cu_context *current = NULL;
    unsigned long long id;

    if (!driver || driver->cuCtxGetCurrent(&current) || !current)
        return 0;
    if (driver->cuCtxGetId && !driver->cuCtxGetId(current, &id))
        return id;
    return (uintptr_t)current;
}

int qn_api_no_capture(struct quern_context *ctx, struct CUstream_st *stream)
{
    struct qn_driver *driver = stream ? opened(ctx) : NULL;

    if (!driver)
        return QUERN_OK;
    return qn_driver_no_capture(driver, (struct cu_stream *)stream,
                                "quern_plan_get, whose plan must be made "
                                "first: call it before the capture, or run "
                                "once outside of one");
}

int qn_api_stream(const struct quern_context *ctx,
                  const struct cu_context *context, struct CUstream_st *stream)
{
    struct cu_context *found = NULL;
    int code;

    /* The default streams, 0 to 2, belong to the context that is current. */
    if (!context || (uintptr_t)stream <= 2 || qn_context_process(ctx, "plan"))
        return QUERN_OK;
    code =
        QN_CU(ctx->driver, cuStreamGetCtx, (struct cu_stream *)stream, &found);
    if (!code && found != context)
        code = qn_error_set(QUERN_EINVAL,
                            "stream is of another device or context than the "
                            "plan");
    return code;
}
