/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: buffers of the host or of a GPU, with guards on both sides. */
#include "oracle/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "oracle/gpu.h"

/* With the gaps between matrices; the last one has none after it. */
static size_t spread_bytes(const struct qn_memory *m)
{
    return m->pitch ? (m->bytes / m->matrix - 1) * m->pitch + m->matrix
                    : m->bytes;
}

/* The distance of the contents' byte `at` from the data, and in `*count` how
   many of `bytes` follow each other there. */
static size_t spread_at(const struct qn_memory *m, size_t at, size_t bytes,
                        size_t *count)
{
    const size_t left = m->pitch ? m->matrix - at % m->matrix : bytes;

    *count = left < bytes ? left : bytes;
    return m->pitch ? at / m->matrix * m->pitch + at % m->matrix : at;
}

/* `at` counts from the first guard. */
static int copy_out(const struct qn_memory *m, size_t at, void *to,
                    size_t bytes)
{
    if (m->gpu)
        return QN_GPU(m->gpu, cuMemcpyDtoH_v2, to,
                      (uint64_t)(uintptr_t)(m->base + at), bytes);
    memcpy(to, m->base + at, bytes);
    return QUERN_OK;
}

/* The buffer, whose sizes are set. */
static int allocate(struct qn_memory *m, struct qn_gpu *gpu)
{
    const size_t padded = (spread_bytes(m) + 255) / 256 * 256;
    const size_t all = padded + 2 * QN_MEMORY_GUARD;
    uint64_t address = 0;

    m->gpu = gpu;
    if (gpu) {
        const int code = QN_GPU(gpu, cuMemAlloc_v2, &address, all);
        if (code)
            return code;
        m->base = (char *)(uintptr_t)address;
        m->data = m->base + QN_MEMORY_GUARD;
        return QN_GPU(gpu, cuMemsetD8_v2, address, QN_MEMORY_POISON, all);
    }
    m->base = aligned_alloc(256, all);
    if (!m->base)
        return qn_error_memory();
    m->data = m->base + QN_MEMORY_GUARD;
    memset(m->base, QN_MEMORY_POISON, all);
    return QUERN_OK;
}

int qn_memory_new(struct qn_memory *m, struct qn_gpu *gpu, size_t bytes)
{
    *m = (struct qn_memory){.bytes = bytes};
    return allocate(m, gpu);
}

int qn_memory_matrices(struct qn_memory *m, struct qn_gpu *gpu, size_t bytes,
                       size_t count, size_t alignment)
{
    const size_t matrix = bytes / count;

    *m = (struct qn_memory){.bytes = bytes};
    if (matrix % alignment) {
        m->matrix = matrix;
        m->pitch = (matrix + alignment - 1) / alignment * alignment;
    }
    return allocate(m, gpu);
}

void qn_memory_free(struct qn_memory *m)
{
    if (m->gpu && m->base)
        m->gpu->cuMemFree_v2((uint64_t)(uintptr_t)m->base);
    else
        free(m->base);
    *m = (struct qn_memory){0};
}

/* `at` counts from the data. */
static int copy_in(const struct qn_memory *m, size_t at, const void *from,
                   size_t bytes)
{
    if (m->gpu)
        return QN_GPU(m->gpu, cuMemcpyHtoD_v2,
                      (uint64_t)(uintptr_t)(m->data + at), from, bytes);
    memcpy(m->data + at, from, bytes);
    return QUERN_OK;
}

static int set(const struct qn_memory *m, size_t at, unsigned char value,
               size_t bytes)
{
    if (m->gpu)
        return QN_GPU(m->gpu, cuMemsetD8_v2,
                      (uint64_t)(uintptr_t)(m->data + at), value, bytes);
    memset(m->data + at, value, bytes);
    return QUERN_OK;
}

int qn_memory_write(struct qn_memory *m, size_t at, const void *from,
                    size_t bytes)
{
    int code = QUERN_OK;

    for (size_t done = 0, count; done < bytes && !code; done += count) {
        const size_t to = spread_at(m, at + done, bytes - done, &count);

        code = copy_in(m, to, (const char *)from + done, count);
    }
    return code;
}

int qn_memory_read(const struct qn_memory *m, size_t at, void *to, size_t bytes)
{
    int code = QUERN_OK;

    for (size_t done = 0, count; done < bytes && !code; done += count) {
        const size_t from = spread_at(m, at + done, bytes - done, &count);

        code = copy_out(m, QN_MEMORY_GUARD + from, (char *)to + done, count);
    }
    return code;
}

int qn_memory_clear(struct qn_memory *m, unsigned char value)
{
    int code = QUERN_OK;

    for (size_t done = 0, count; done < m->bytes && !code; done += count) {
        const size_t at = spread_at(m, done, m->bytes - done, &count);

        code = set(m, at, value, count);
    }
    return code;
}

void qn_memory_begin(void *workspace, size_t bytes)
{
    memset(workspace, 0xFF, bytes);
    memset(workspace, 0,
           bytes < QN_WORKSPACE_BYTES ? bytes : QN_WORKSPACE_BYTES);
}

int qn_memory_workspace(struct qn_memory *m)
{
    char page[QN_WORKSPACE_BYTES];
    const size_t bytes = m->bytes < sizeof page ? m->bytes : sizeof page;
    int code = qn_memory_clear(m, 0xFF);

    qn_memory_begin(page, sizeof page);
    return code ? code : qn_memory_write(m, 0, page, bytes);
}

/* Clears `*intact` if one of the bytes, at most a guard's, was written. */
static int look(const struct qn_memory *m, size_t at, size_t bytes, int *intact)
{
    unsigned char guard[QN_MEMORY_GUARD];
    const int code = copy_out(m, at, guard, bytes);

    for (size_t i = 0; i < bytes && !code; i++)
        *intact &= guard[i] == QN_MEMORY_POISON;
    return code;
}

int qn_memory_guards(const struct qn_memory *m, int *intact)
{
    const size_t end = QN_MEMORY_GUARD + spread_bytes(m);
    int code;

    *intact = 1;
    code = look(m, 0, QN_MEMORY_GUARD, intact);
    if (!code)
        code = look(m, end, QN_MEMORY_GUARD, intact);
    for (size_t at = QN_MEMORY_GUARD; m->pitch && at + m->pitch < end && !code;
         at += m->pitch)
        code = look(m, at + m->matrix, m->pitch - m->matrix, intact);
    return code;
}

int qn_memory_same(const struct qn_memory *a, const struct qn_memory *b,
                   int *same)
{
    char *x = malloc(a->bytes + 1), *y = malloc(a->bytes + 1);
    int code = x && y ? qn_memory_read(a, 0, x, a->bytes) : qn_error_memory();

    if (!code)
        code = qn_memory_read(b, 0, y, a->bytes);
    *same = !code && !memcmp(x, y, a->bytes);
    free(x);
    free(y);
    return code;
}
