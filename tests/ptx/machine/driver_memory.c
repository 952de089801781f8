/* SPDX-License-Identifier: Apache-2.0 */
/* driver_memory.c: device memory, which is the host's; copies are done at
   once. New memory holds NaN in every format. */
#include "driver_stream.h"
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
    int code = PX_FAULT;

    pthread_mutex_lock(&px_running);
    if (memory)
        code = px_memory_add((uintptr_t)memory, bytes);
    pthread_mutex_unlock(&px_running);
    if (code != PX_NEXT) {
        free(memory);
        return bytes ? 2 : 1;
    }
    memset(memory, 0xff, room);
    *address = (uintptr_t)memory;
    return 0;
}

int cuMemFree_v2(uint64_t address)
{
    int code;

    pthread_mutex_lock(&px_running);
    code = px_memory_remove(address);
    pthread_mutex_unlock(&px_running);
    if (code != PX_NEXT)
        return 1;
    free(host(address));
    return 0;
}

/* ------------------------------------------------------------------ copies */

static int copy(struct px_work *work)
{
    memcpy(host(work->word[0]), host(work->word[1]), work->word[2]);
    return 0;
}

static int do_copy(uint64_t to, uint64_t from, size_t bytes,
                   struct cu_stream *stream)
{
    const struct px_work work = {.run = copy, .word = {to, from, bytes}};

    return px_stream_do(stream, &work, 0);
}

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
                             struct cu_stream *stream);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
                         struct cu_stream *stream)
{
    return do_copy(to, (uintptr_t)from, bytes, stream);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    return do_copy(to, (uintptr_t)from, bytes, NULL);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes,
                         struct cu_stream *stream)
{
    return do_copy((uintptr_t)to, from, bytes, stream);
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    return do_copy((uintptr_t)to, from, bytes, NULL);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes,
                         struct cu_stream *stream)
{
    return do_copy(to, from, bytes, stream);
}

static int copy_rows(struct px_work *work)
{
    const struct cu_copy *rows = work->owned;

    for (size_t i = 0; i < rows->height; i++)
        memcpy(host(rows->to.device + i * rows->to.pitch),
               host(rows->from.device + i * rows->from.pitch), rows->width);
    return 0;
}

int cuMemcpy2DAsync_v2(const struct cu_copy *rows, struct cu_stream *stream)
{
    const struct px_work work = {.run = copy_rows,
                                 .owned = (void *)(uintptr_t)rows};

    if (rows->from.pitch < rows->width || rows->to.pitch < rows->width)
        return 1;
    return px_stream_do(stream, &work, sizeof *rows);
}

/* -------------------------------------------------------------------- fills */

/* Rows of so many bytes at a pitch. */
static int fill(struct px_work *work)
{
    const uint64_t *word = work->word;

    for (uint64_t i = 0; i < word[4]; i++)
        memset(host(word[0] + i * word[3]), (int)word[1], word[2]);
    return 0;
}

static int fill_words(struct px_work *work)
{
    unsigned *to = host(work->word[0]);

    for (uint64_t i = 0; i < work->word[2]; i++)
        to[i] = (unsigned)work->word[1];
    return 0;
}

int cuMemsetD2D8Async(uint64_t to, size_t pitch, unsigned char value,
                      size_t width, size_t height, struct cu_stream *stream)
{
    const struct px_work work = {.run = fill,
                                 .word = {to, value, width, pitch, height}};

    return pitch < width ? 1 : px_stream_do(stream, &work, 0);
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes,
                    struct cu_stream *stream)
{
    return cuMemsetD2D8Async(to, bytes, value, bytes, 1, stream);
}

int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes)
{
    return cuMemsetD8Async(to, value, bytes, NULL);
}

int cuMemsetD32Async(uint64_t to, unsigned value, size_t count,
                     struct cu_stream *stream)
{
    const struct px_work work = {.run = fill_words, .word = {to, value, count}};

    return to % 4 ? 1 : px_stream_do(stream, &work, 0);
}
