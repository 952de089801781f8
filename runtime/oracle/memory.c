/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: buffers of the host or of a GPU, with guards on both sides. */
#include "oracle/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "oracle/gpu.h"

/* `at` counts from the first guard. */
static int copy_out(const struct qn_memory *m, size_t at, void *to,
                    size_t bytes)
{
    if (bytes == 0)
        return QUERN_OK;
    if (m->gpu)
        return QN_GPU(m->gpu, cuMemcpyDtoH_v2, to,
                      (uint64_t)(uintptr_t)(m->base + at), bytes);
    memcpy(to, m->base + at, bytes);
    return QUERN_OK;
}

int qn_memory_new(struct qn_memory *m, struct qn_gpu *gpu, size_t bytes)
{
    const size_t padded = (bytes + 255) / 256 * 256;
    const size_t all = padded + 2 * QN_MEMORY_GUARD;
    uint64_t address = 0;

    *m = (struct qn_memory){.gpu = gpu, .bytes = bytes};
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

void qn_memory_free(struct qn_memory *m)
{
    if (m->gpu && m->base)
        m->gpu->cuMemFree_v2((uint64_t)(uintptr_t)m->base);
    else
        free(m->base);
    *m = (struct qn_memory){0};
}

int qn_memory_write(struct qn_memory *m, size_t at, const void *from,
                    size_t bytes)
{
    if (bytes == 0)
        return QUERN_OK;
    if (m->gpu)
        return QN_GPU(m->gpu, cuMemcpyHtoD_v2,
                      (uint64_t)(uintptr_t)(m->data + at), from, bytes);
    memcpy(m->data + at, from, bytes);
    return QUERN_OK;
}

int qn_memory_read(const struct qn_memory *m, size_t at, void *to, size_t bytes)
{
    return copy_out(m, QN_MEMORY_GUARD + at, to, bytes);
}

int qn_memory_clear(struct qn_memory *m, unsigned char value)
{
    if (m->bytes == 0)
        return QUERN_OK;
    if (m->gpu)
        return QN_GPU(m->gpu, cuMemsetD8_v2, (uint64_t)(uintptr_t)m->data,
                      value, m->bytes);
    memset(m->data, value, m->bytes);
    return QUERN_OK;
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

int qn_memory_guards(const struct qn_memory *m, int *intact)
{
    const size_t ends[] = {0, QN_MEMORY_GUARD + m->bytes};
    unsigned char guard[QN_MEMORY_GUARD];

    *intact = 1;
    for (int i = 0; i < 2; i++) {
        const int code = copy_out(m, ends[i], guard, sizeof guard);
        if (code)
            return code;
        for (size_t j = 0; j < sizeof guard; j++)
            *intact &= guard[j] == QN_MEMORY_POISON;
    }
    return QUERN_OK;
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
