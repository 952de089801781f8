/* SPDX-License-Identifier: Apache-2.0 */
/* driver_memory.c: device memory, which is the host's; copies are done at
   once. New memory holds NaN in every format. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

#include "device/driver.h"
#include "oracle/gpu.h"

#define API                      __attribute__((visibility("default")))
#define DECLARE(name, arguments) API int name arguments;
QN_CU_FUNCTIONS(DECLARE)
QN_GPU_FUNCTIONS(DECLARE)
#undef DECLARE

static void *host(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

int cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    *unused = *total = (size_t)1 << 40;
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    const size_t room = (bytes + 255) / 256 * 256;
    void *memory = bytes ? aligned_alloc(256, room) : NULL;

    if (!memory || px_memory_add((uintptr_t)memory, bytes)) {
        free(memory);
        return bytes ? 2 : 1;
    }
    memset(memory, 0xff, room);
    *address = (uintptr_t)memory;
    return 0;
}

int cuMemFree_v2(uint64_t address)
{
    if (px_memory_remove(address))
        return 1;
    free(host(address));
    return 0;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    memcpy(host(to), from, bytes);
    return 0;
}

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
                             struct cu_stream *stream);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
                         struct cu_stream *stream)
{
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, bytes);
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    memcpy(to, host(from), bytes);
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes,
                         struct cu_stream *stream)
{
    (void)stream;
    return cuMemcpyDtoH_v2(to, from, bytes);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes,
                         struct cu_stream *stream)
{
    (void)stream;
    memcpy(host(to), host(from), bytes);
    return 0;
}

int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes)
{
    memset(host(to), value, bytes);
    return 0;
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes,
                    struct cu_stream *stream)
{
    (void)stream;
    return cuMemsetD8_v2(to, value, bytes);
}

int cuMemsetD32Async(uint64_t to, unsigned value, size_t count,
                     struct cu_stream *stream)
{
    unsigned *words = host(to);

    (void)stream;
    if (to % 4)
        return 1;
    for (size_t i = 0; i < count; i++)
        words[i] = value;
    return 0;
}

int cuMemsetD2D8Async(uint64_t to, size_t pitch, unsigned char value,
                      size_t width, size_t height, struct cu_stream *stream)
{
    (void)stream;
    if (pitch < width)
        return 1;
    for (size_t i = 0; i < height; i++)
        memset(host(to + i * pitch), value, width);
    return 0;
}

int cuMemcpy2DAsync_v2(const struct cu_copy *copy, struct cu_stream *stream)
{
    (void)stream;
    if (copy->from.pitch < copy->width || copy->to.pitch < copy->width)
        return 1;
    for (size_t i = 0; i < copy->height; i++)
        memcpy(host(copy->to.device + i * copy->to.pitch),
               host(copy->from.device + i * copy->from.pitch), copy->width);
    return 0;
}
