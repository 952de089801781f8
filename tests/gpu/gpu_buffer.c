/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_buffer.c: device memory between guards, and waiting with a limit. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

/* A failed driver call is sticky: no later one would succeed. */
static void lost(int code, const char *what)
{
    const char *meaning = NULL;
    char text[512];

    cu.error_string(code, &meaning);
    snprintf(text, sizeof text, "%s: %s (%d)", what, meaning ? meaning : "?",
             code);
    gpu_lost(text);
}

void gpu_must(int code, const char *what)
{
    if (code)
        lost(code, what);
}

/* Freed memory, by the power of two that its size was rounded up to. */
enum { CLASSES = 40, KEPT = 16 };
static gpu_address kept[CLASSES][KEPT];
static int nkept[CLASSES];

/* The driver takes longer to allocate than most kernels to run. */
static gpu_address allocate(size_t bytes, int *size_class)
{
    gpu_address memory;
    int c = 12;

    while (bytes > (size_t)1 << c)
        c++;
    *size_class = c;
    if (nkept[c])
        return kept[c][--nkept[c]];
    gpu_must(cu.alloc(&memory, (size_t)1 << c), "allocating device memory");
    return memory;
}

/* The allocation has a byte at least, so that an empty buffer has an
   address. Exact sizes where the end of an allocation is seen. Rounded to
   words, as a sanitizer takes a cp.async of the last bytes for one of four. */
static size_t whole(const struct gpu_buffer *b)
{
    return gpu_device.exact ? (b->bytes + !b->bytes + 3) / 4 * 4
                            : b->bytes + 2 * b->guard + !b->bytes;
}

void gpu_buffer_make(struct gpu_buffer *b, size_t bytes, size_t guard)
{
    b->guard = gpu_device.exact ? 0 : guard;
    b->bytes = bytes;
    b->size_class = -1;
    if (gpu_device.exact)
        gpu_must(cu.alloc(&b->memory, whole(b)), "allocating device memory");
    else
        b->memory = allocate(whole(b), &b->size_class);
    b->data = b->memory + b->guard;
    gpu_buffer_poison(b);
}

void gpu_buffer_poison(const struct gpu_buffer *b)
{
    gpu_must(cu.fill(b->memory, QT_POISON, whole(b)), "filling device memory");
}

void gpu_buffer_workspace(const struct gpu_buffer *b)
{
    gpu_must(cu.fill(b->data, 0xFF, b->bytes), "filling device memory");
    gpu_must(
        cu.fill(b->data, 0,
                b->bytes < QN_WORKSPACE_BYTES ? b->bytes : QN_WORKSPACE_BYTES),
        "zeroing device memory");
}

void gpu_buffer_upload(const struct gpu_buffer *b, const void *from)
{
    if (b->bytes)
        gpu_must(cu.upload(b->data, from, b->bytes), "copying to the device");
}

void gpu_buffer_download(const struct gpu_buffer *b, void *to)
{
    if (b->bytes)
        gpu_must(cu.download(to, b->data, b->bytes), "copying from the device");
}

void gpu_buffer_free(struct gpu_buffer *b)
{
    int c = b->size_class;

    if (b->memory && c >= 0 && nkept[c] < KEPT)
        kept[c][nkept[c]++] = b->memory;
    else if (b->memory)
        gpu_must(cu.free(b->memory), "freeing device memory");
    memset(b, 0, sizeof *b);
}

/* The first byte of a guard that is not poison, or -1. */
static long long first_written(gpu_address guard, size_t bytes)
{
    static unsigned char copy[GPU_WIDE_GUARD];

    gpu_must(cu.download(copy, guard, bytes), "copying a guard");
    if (copy[0] == QT_POISON && !memcmp(copy, copy + 1, bytes - 1))
        return -1; /* all bytes are as the first */
    for (size_t i = 0; i < bytes; i++)
        if (copy[i] != QT_POISON)
            return (long long)i;
    return -1;
}

const char *gpu_buffer_guarded(const struct gpu_buffer *b, const char *name)
{
    long long at;

    if (!b->memory || !b->guard)
        return NULL;
    at = first_written(b->memory, b->guard);
    if (at >= 0)
        return gpu_text("%lld bytes before %s were written",
                        (long long)b->guard - at, name);
    at = first_written(b->data + b->bytes, b->guard);
    if (at >= 0)
        return gpu_text("byte %lld after %s was written", at, name);
    return NULL;
}

/* Polls: a kernel that hangs must not hang the suite. */
void gpu_wait(void *stream, const char *what)
{
    const struct timespec nap = {0, 20000};
    double end =
        qn_clock_seconds() + GPU_TIMEOUT * (gpu_options.sanitize ? 20 : 1);
    int code, tries = 0;

    while ((code = cu.stream_query(stream)) == GPU_NOT_READY) {
        if (qn_clock_seconds() > end)
            gpu_lost(
                gpu_text("%s: still running after %d s", what, GPU_TIMEOUT));
        if (++tries > 2000)
            nanosleep(&nap, NULL);
    }
    gpu_must(code, what);
}

void gpu_capture_begin(void *stream)
{
    gpu_must(cu.capture_begin(stream, GPU_CAPTURE_RELAXED), "a capture");
}

void *gpu_capture_end(void *stream, int code)
{
    void *graph, *executable = NULL;

    gpu_must(cu.capture_end(stream, &graph), "the end of a capture");
    if (!code)
        gpu_must(cu.graph_instantiate(&executable, graph, 0), "a graph");
    gpu_must(cu.graph_destroy(graph), "freeing a graph");
    return executable;
}
