/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: device memory, which is the host's; every copy is done at once. */
#include "driver.h"

#include <string.h>

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes,
                         struct cu_stream *stream)
{
    (void)stream;
    COPY(to, bytes);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes,
                    struct cu_stream *stream)
{
    (void)stream;
    COPY(to, bytes);
    memset((void *)(uintptr_t)to, value, bytes);
    fake_state.cold = 1;
    return 0;
}

int cuMemsetD32Async(uint64_t to, unsigned value, size_t count,
                     struct cu_stream *stream)
{
    (void)stream;
    COPY(to, 4 * count);
    if (to % 4)
        return 1;
    for (size_t i = 0; i < count; i++)
        memcpy((void *)(uintptr_t)(to + 4 * i), &value, 4);
    return 0;
}

int cuMemsetD2D8Async(uint64_t to, size_t pitch, unsigned char value,
                      size_t width, size_t height, struct cu_stream *stream)
{
    (void)stream;
    COPY(to, width * height);
    if (pitch < width)
        return 1;
    for (size_t i = 0; i < height; i++)
        memset((void *)(uintptr_t)(to + i * pitch), value, width);
    return 0;
}

int cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    ENTER();
    *total = (size_t)1 << 40;
    *unused = fake_state.free_bytes ? fake_state.free_bytes : *total;
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    void *memory;

    ENTER();
    memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!memory || !bytes)
        return bytes ? 2 : 1;
    fake_add(&fake_state.allocations, 1);
    *address = (uintptr_t)memory;
    return 0;
}

int cuMemFree_v2(uint64_t address)
{
    BEGIN();
    free((void *)(uintptr_t)address);
    fake_add(&fake_state.allocations, -1);
    return code_;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    COPY(to, bytes);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes,
                         struct cu_stream *stream)
{
    (void)stream;
    COPY(to, bytes);
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int cuMemcpy2DAsync_v2(const struct cu_copy *copy, struct cu_stream *stream)
{
    (void)stream;
    COPY(copy->to.device, copy->width * copy->height);
    if (copy->from.memory != QN_CU_MEMORY_DEVICE ||
        copy->to.memory != QN_CU_MEMORY_DEVICE ||
        copy->from.pitch < copy->width || copy->to.pitch < copy->width)
        return 1;
    for (size_t i = 0; i < copy->height; i++)
        memcpy((char *)(uintptr_t)copy->to.device + i * copy->to.pitch,
               (char *)(uintptr_t)copy->from.device + i * copy->from.pitch,
               copy->width);
    return 0;
}

/* ------------------------------------- for programs that run what they plan */

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes)
{
    memset((void *)(uintptr_t)to, value, bytes);
    return 0;
}
