/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h: the CUDA driver, opened at run time. */
#pragma once

#include "device/cuda_api.h"

#include <pthread.h>

struct cu_context;
struct cu_stream;
struct quern_context;

enum { QN_MAX_DEVICES = 64 };

/* Properties of the machine that the choice of a kernel needs. */
struct qn_device {
    int present; /* 0: figures of a chip.h, for people without that GPU */
    int ordinal;
    char name[96];
    int major, minor;
    int sms;
    int shared_bytes; /* the most that a block may have */
    int l2_bytes;
    double memory_rate; /* bytes in a cycle, at the highest of both clocks */
};

struct qn_driver {
    void *library;
    pthread_mutex_t lock; /* guards the next two, got when first needed */
    struct cu_context *primary[QN_MAX_DEVICES];
    struct qn_device devices[QN_MAX_DEVICES];
    int version; /* of CUDA: 12090 for 12.9; 0: it does not say */
#define QN_DRIVER_FIELD(name, arguments) int(*name) arguments;
    QN_CU_FUNCTIONS(QN_DRIVER_FIELD)
    QN_CU_OPTIONAL(QN_DRIVER_FIELD)
#undef QN_DRIVER_FIELD
};

/* A CUDA context made current for a while. */
struct qn_driver_scope {
    struct cu_context *context;
    int pushed;
};

/* Open libcuda (`path`, else libcuda.so.1) and initialize it.
   QUERN_ENODEVICE where there is none or no GPU; QUERN_ECUDA; QUERN_ENOMEM. */
int qn_driver_open(const char *path, struct qn_driver **out);
void qn_driver_close(struct qn_driver *driver);

/* Make a failed call a code and a message with the driver's own text. */
int qn_driver_error(const struct qn_driver *driver, const char *call,
                    int result);

/* Make a context current: `want`, or if NULL the thread's current one, or if
   there is none device 0's primary. Leave restores the thread's context. */
int qn_driver_enter(struct qn_driver *driver, struct cu_context *want,
                    struct qn_driver_scope *scope);
/* The same for a device: the thread's context if it is of that device, else its
   primary one. QUERN_EINVAL if there is no such device. */
int qn_driver_enter_device(struct qn_driver *driver, int ordinal,
                           struct qn_driver_scope *scope);
void qn_driver_leave(struct qn_driver *driver, struct qn_driver_scope *scope);

/* The current context's device. QUERN_ECUDA. */
int qn_driver_device(struct qn_driver *driver, struct qn_device *device);

/* Queue a kernel. `cluster` is an attribute, or NULL. A dependent launch may
   begin before the one before it in the stream has ended: its kernel waits
   itself, before its first access to the device's memory. Neither allocates nor
   synchronizes. QUERN_ECUDA. */
int qn_driver_launch(struct qn_driver *driver, const struct cu_launch *shape,
                     const struct cu_attribute *cluster, int dependent,
                     struct cu_function *function, void **params);

/* QUERN_ECAPTURE if a stream of this thread is seen to capture. */
int qn_driver_no_capture(struct qn_driver *driver, struct cu_stream *stream,
                         const char *what);

/* Call a driver function; evaluates to a QUERN_ code. */
#define QN_CU(driver, name, ...)                                               \
    qn_driver_error(driver, #name, (driver)->name(__VA_ARGS__))

/* The context's driver, opened on first use. Errors of qn_driver_open. */
int qn_driver_of(struct quern_context *ctx, struct qn_driver **out);
