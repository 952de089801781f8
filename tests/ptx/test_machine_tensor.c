/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_machine_tensor.c: tcgen05: products whose operands lie in shared memory
** as the ISA has it, in each layout, against sums in fp64, and what the machine
** refuses.
*/
#define _GNU_SOURCE
#include "cases.h"
#include "interpret.h"
#include "tensor_kernel.h"

#include <math.h>
#include <stdio.h>

#include "device/driver.h"
#include "support/case.h"

enum { MOST_K = 256, MOST_N = 256, IMAGE = 192 << 10 };

static struct qn_driver *driver;

/* Another start of the machine, with other variables. */
static void start(const char *variable, const char *value)
{
    driver = interpret_start(variable, value);
}

/* ------------------------------------------------------------------ layouts */

struct layout {
    int swizzle; /* bytes of a row: 128, 64, 32; 0: none */
    int turned;  /* mn-major */
};

/* Bytes between parts of an operand, and how much a step of k is. */
struct strides {
    uint32_t leading, stride, step, bytes;
};

/* Of `rows` by k elements of `bits`; a step of k has 32 bytes if it is
   k-major. Patterns follow each other in mn first. */
static struct strides strides_of(struct layout l, int rows, int k, int bits)
{
    const uint32_t size = (uint32_t)bits / 8, wide = (uint32_t)l.swizzle;
    const uint32_t n = (uint32_t)rows, step = 32 / size;

    if (l.turned && wide) /* 8 rows of k, `wide` bytes of mn */
        return (struct strides){8 * wide, n * size * 8, step * n * size,
                                n * size * (uint32_t)k};
    if (l.turned) /* 8 rows of k, 16 bytes of mn */
        return (struct strides){n * size * 8, 128, step * n * size,
                                n * size * (uint32_t)k};
    if (wide) /* 8 rows of mn; columns of `wide` bytes follow */
        return (struct strides){0, 8 * wide, 32, n * size * (uint32_t)k};
    return (struct strides){n * 16, 128, n * 32, n * size * (uint32_t)k};
}

static uint32_t swizzled(uint32_t at, int wide)
{
    const uint32_t bits = wide == 128 ? 7 : wide == 64 ? 3 : wide == 32;

    return at ^ (at >> 7 & bits) << 4;
}

/* The byte of element (row, k) of 8 or 16 bits. */
static uint32_t place(struct layout l, int rows, int row, int k, int bits)
{
    const uint32_t size = (uint32_t)bits / 8, wide = (uint32_t)l.swizzle;
    const uint32_t n = (uint32_t)rows, y = (uint32_t)k;
    uint32_t x = (uint32_t)row, at;

    if (l.turned) {
        const uint32_t in = wide ? wide : 16;

        x *= size;
        at = x / in * in * 8 + x % in + y % 8 * in + y / 8 * n * size * 8;
    } else {
        const uint32_t in = wide ? wide : 16, byte = y * size;

        at = byte / in * in * n + byte % in + x % 8 * in + x / 8 * in * 8;
    }
    return swizzled(at, l.swizzle);
}

static uint64_t descriptor(struct layout l, struct strides s, uint32_t at)
{
    const uint64_t kinds = l.swizzle == 128  ? 2
                           : l.swizzle == 64 ? 4
                           : l.swizzle == 32 ? 6
                                             : 0;

    return at >> 4 | (uint64_t)(s.leading >> 4) << 16 |
           (uint64_t)(s.stride >> 4) << 32 | 1ull << 46 | kinds << 61;
}

/* ----------------------------------------------------------------- products */

struct product {
    struct layout a, b;
    int n, k, type; /* type: 0 f16, 1 bf16 */
};

/* Small integers, for sums without rounding. */
static float a_of(int i, int k)
{
    return (float)((i * 7 + k * 3 + i * k) % 9 - 4);
}

static float b_of(int j, int k)
{
    return (float)((j * 5 + k * 11 + j * k % 7) % 9 - 4);
}

static uint16_t code_of(float x, int type)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    int e;

    if (type)
        return (uint16_t)(v.u >> 16);
    if (x == 0)
        return 0;
    e = (int)(v.u >> 23 & 255) - 127;
    return (uint16_t)(v.u >> 16 & 0x8000) | (uint16_t)((e + 15) << 10) |
           (uint16_t)(v.u >> 13 & 0x3ff);
}

static void put(uint8_t *image, struct layout l, int rows, int row, int k,
                uint16_t code)
{
    memcpy(image + place(l, rows, row, k, 16), &code, 2);
}

/* The job, with an image in which columns of B follow rows of A. A k-major
   swizzled operand has as much k as a row of its pattern. */
static struct tensor_job *job_of(const struct product *p)
{
    struct tensor_job *job = calloc(1, sizeof *job + IMAGE);
    const struct strides a = strides_of(p->a, 128, p->k, 16);
    const struct strides b = strides_of(p->b, p->n, p->k, 16);
    uint8_t *image = (uint8_t *)job->image;

    assert_non_null(job);
    for (int k = 0; k < p->k; k++) {
        for (int i = 0; i < 128; i++)
            put(image, p->a, 128, i, k, code_of(a_of(i, k), p->type));
        for (int j = 0; j < p->n; j++)
            put(image + a.bytes, p->b, p->n, j, k,
                code_of(b_of(j, k), p->type));
    }
    job->a = descriptor(p->a, a, 0);
    job->b = descriptor(p->b, b, a.bytes);
    job->instruction = 1u << 4 | (uint32_t)p->type << 7 |
                       (uint32_t)p->type << 10 | (uint32_t)p->a.turned << 15 |
                       (uint32_t)p->b.turned << 16 | (uint32_t)p->n << 14 |
                       128u << 20;
    job->steps = (uint32_t)p->k / 16;
    job->words = (a.bytes + b.bytes) / 4;
    job->columns = (uint32_t)p->n;
    job->a_step = a.step / 16;
    job->b_step = b.step / 16;
    return job;
}

/* 0 with the words of D, or an error's code. */
static int launch(const char *text, const struct tensor_job *job, int ctas,
                  uint32_t *out)
{
    struct cu_attribute cluster = {.id = QN_CU_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.cluster = {(unsigned)ctas, 1, 1}};
    const struct cu_launch shape = {.grid = {(unsigned)ctas, 1, 1},
                                    .block = {128, 1, 1},
                                    .shared_bytes = 200 << 10,
                                    .attributes = &cluster,
                                    .nattributes = ctas > 1};
    const size_t bytes = sizeof *job + IMAGE;
    const size_t results = (size_t)ctas * 128 * job->columns * 4;
    struct cu_library *library;
    struct cu_kernel *kernel;
    struct cu_function *function;
    uint64_t in, to;
    void *params[] = {&in, &to};
    int code =
        driver->cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0);

    if (code)
        return code;
    assert_int_equal(driver->cuLibraryGetKernel(&kernel, library, "kernel"), 0);
    assert_int_equal(driver->cuKernelGetFunction(&function, kernel), 0);
    assert_int_equal(driver->cuMemAlloc_v2(&in, bytes), 0);
    assert_int_equal(driver->cuMemAlloc_v2(&to, results), 0);
    memcpy((void *)in, job, bytes);
    code = driver->cuLaunchKernelEx(&shape, function, params, NULL);
    memcpy(out, (void *)to, results);
    driver->cuMemFree_v2(in);
    driver->cuMemFree_v2(to);
    driver->cuLibraryUnload(library);
    return code;
}

#define F16 "tcgen05.mma.cta_group::1.kind::f16 [%r13], %rd2, %rd3, %r2, %p3;\n"
static const char text_f16[] =
    TENSOR_BEGIN TENSOR_ALLOC("cta_group::1") TENSOR_COPY TENSOR_STEPS(F16)
TENSOR_COMMIT TENSOR_WAIT TENSOR_LOAD TENSOR_END("cta_group::1");

static uint32_t result[256 * MOST_N];

/* How many elements of a product are wrong; all, if it is refused. */
static int wrong_in(const struct product *p, const char **why)
{
    struct tensor_job *job = job_of(p);
    const int code = launch(text_f16, job, 1, result);
    int wrong = 0;

    *why = "";
    if (code)
        driver->cuGetErrorString(code, why);
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < p->n; j++) {
            float sum = 0, d;

            for (int k = 0; k < p->k; k++)
                sum += a_of(i, k) * b_of(j, k);
            memcpy(&d, &result[i * p->n + j], sizeof d);
            wrong += code || d != sum;
        }
    free(job);
    return wrong;
}

static const struct product products[] = {
    {{128, 0}, {128, 0}, 256, 64, 1}, {{128, 1}, {128, 1}, 128, 64, 1},
    {{64, 0}, {64, 0}, 64, 32, 0},    {{32, 0}, {32, 0}, 48, 16, 1},
    {{0, 0}, {0, 0}, 16, 64, 0},      {{0, 1}, {0, 1}, 128, 64, 1},
    {{64, 1}, {32, 0}, 32, 16, 1},    {{128, 0}, {128, 1}, 192, 64, 0},
};
enum { PRODUCTS = sizeof products / sizeof *products };

TEST(tensor_layouts)
{
    static const char *const seeds[] = {"1", "2", "3", "4"};

    for (int i = 0; i < PRODUCTS; i++) {
        const char *why;
        int wrong;

        start("PTX_SEED", seeds[i % 4]);
        wrong = wrong_in(&products[i], &why);
        if (wrong)
            fail_msg("product %d: %d wrong: %s", i, wrong, why);
    }
}
