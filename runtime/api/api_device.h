/* SPDX-License-Identifier: Apache-2.0 */
/* api_device.h: the device that a caller asks for, and streams of others. */
#pragma once

#include "device/driver.h"

struct CUstream_st;

/* Make a context of the device current: -1 leaves the thread's. QUERN_EINVAL
   for a device that is not there; QUERN_ENODEVICE; QUERN_ECUDA. */
int qn_api_enter(struct quern_context *ctx, int device, int backend,
                 struct qn_driver_scope *scope);
void qn_api_leave(struct quern_context *ctx, struct qn_driver_scope *scope);

/* The number of the thread's CUDA context, which no later one has, though it
   may get the address of one that was destroyed; before CUDA 12 the address. 0:
   there is none. */
uint64_t qn_api_current(struct quern_context *ctx);

/* QUERN_EINVAL if the stream is of another context than the plan's. */
int qn_api_stream(const struct quern_context *ctx,
                  const struct cu_context *context, struct CUstream_st *stream);

/* QUERN_ECAPTURE if the stream captures: a plan cannot be made now. */
int qn_api_no_capture(struct quern_context *ctx, struct CUstream_st *stream);
