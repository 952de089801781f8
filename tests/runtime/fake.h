/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake.h: what the tests and the fakes for libcuda, libnvrtc, libcublasLt
** and libquern_gen know of each other.
**
** Each fake appends lines to the file $FAKE_LOG, so that the tests see
** across processes who opened and compiled what:
**
**     cuda open | nvrtc open | nvrtc compile NAME | gen open | gen source NAME
**     cublaslt open
**
** Any number of threads may call them.
*/
#pragma once

#include "device/cuda_api.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FAKE_API __attribute__((visibility("default")))

/* A tensor map as the fake driver encodes it: the arguments themselves. */
struct fake_map {
    uint64_t address, dims[4], strides[3];
    uint32_t box[4], element_strides[4];
    uint8_t type, rank, interleave, swizzle, promotion, fill;
};

#define FAKE_PARAMS 48

/* One of the launches since the test cleared `launches`: the kernel's name, and
   its first parameters, which have 8 bytes each (if `trailed` says so). */
enum { FAKE_TRAIL = 24, FAKE_TRAILED = 8 };
struct fake_launch {
    char kernel[128];
    uint64_t params[FAKE_TRAILED];
    const void *stream;
};

/* One of the calls that order streams: 'r'ecord or 'w'ait. */
enum { FAKE_ORDERS = 32 };
struct fake_order {
    char what;
    const void *stream, *event;
};

enum { FAKE_DEVICES = 4 };

struct fake_cuda {
    /* the machine */
    int devices, major, minor, sms, shared_bytes;
    int version;                        /* of CUDA, 12090 for 12.9 */
    int capture_status, capture_result; /* of cuStreamIsCapturing */
    char contexts[FAKE_DEVICES];        /* the addresses of primary contexts */
    const void
        *device_streams[FAKE_DEVICES]; /* of the devices; all others are of the
                                          current context */
    int remade; /* how often contexts were made again, at their addresses */
    /* failures: the n-th call from now on returns `fail_code`, and with `lost`
       all that follow */
    int fail_at, fail_code, lost;
    int calls;          /* made since the test set it to 0 */
    int attributes;     /* calls among them that ask for one of the device */
    const char *failed; /* the first call that was made to fail */
    int process;        /* that called cuInit; in another one nothing works */
    /* what must be balanced */
    int libraries, primaries, depth;
    void *current;   /* the context below what the runtime pushed */
    void *destroyed; /* a context that cannot be made current any more */
    /* what was done last */
    const void *code; /* given to cuLibraryLoadData */
    char kernel[256];
    int smem, nonportable, loaded, launches, encodes, replaces;
    int copies; /* calls that copy or set memory */
    struct cu_launch launch;
    struct cu_attribute attribute;
    void *launch_context;
    const char *only; /* set by the test: keep only this kernel's, or NULL */
    size_t param_sizes[FAKE_PARAMS]; /* set by the test: how much to keep */
    unsigned char params[FAKE_PARAMS][512];
    /* memory and events, which must be balanced, too */
    int allocations, events, streams;
    size_t free_bytes; /* of the device; 0: plenty */
    /* time, which only launches spend: see fake_cuda.c */
    double now; /* milliseconds */
    int cold;   /* something else was written since the last launch */
    unsigned random;
    int broken; /* all that waits for the device fails */
    int watch;  /* parameter that is the address of `watched`, 0: none */
    int64_t watched[4];
    int band_at; /* 1 + the parameter that is the band; 0: none */
    int trailed; /* parameters that each launch keeps */
    struct fake_launch trail[FAKE_TRAIL];
    /* set by the test: told of every launch, and of all that is set or copied
       on a stream */
    void (*told)(const char *kernel, const struct cu_launch *launch,
                 void **params);
    void (*told_copy)(const char *call, uint64_t to, size_t bytes);
    /* streams: what was ordered since the test cleared `orders`, and two that
       belong to captures */
    int orders;
    struct fake_order order[FAKE_ORDERS];
    struct {
        const void *stream;
        uint64_t id;
    } captured[2];
};

enum { FAKE_PRODUCTS = 16 };

/* The calls of the fake cuBLASLt, and its orders. */
struct fake_cublaslt {
    /* failures, as above; the status is `fail_status` */
    int fail_at, fail_status, lost;
    int calls;          /* made since the test set it to 0 */
    const char *failed; /* the call that was made to fail */
    int no_algorithm;   /* the heuristic finds none */
    int groups;         /* nor one for groups, unless this is 1 */
    int version;        /* 0: 130102; read when the library is opened */
    int contexts;       /* created and not destroyed */
    int heuristics, products;
    /* of the last product */
    int batch, device_scalars, sms, alignments[4], averages[3];
    const void *alpha, *beta;
    const void *scales[2]; /* of its A and B, which are our B and A */
    int fast;
    void *stream;
    int modes[2];
    /* of the first products since the test cleared `products` */
    void *streams[FAKE_PRODUCTS], *scratches[FAKE_PRODUCTS];
    const char *broken; /* a rule that a call broke, or NULL */
};

/* Append one line to $FAKE_LOG. */
static inline void fake_log(const char *who, const char *what, const char *name)
{
    const char *path = getenv("FAKE_LOG");
    char line[512];
    int length, file;

    if (!path)
        return;
    length = snprintf(line, sizeof line, "%s %s%s%s\n", who, what,
                      *name ? " " : "", name);
    file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    if (write(file, line, (size_t)length) != length)
        abort();
    close(file);
}
