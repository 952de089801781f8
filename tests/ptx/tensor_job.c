/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_job.c: products of tcgen05 with their operands in shared memory as the
   ISA has them, and their sums in fp64. */
#define _GNU_SOURCE
#include "tensor_job.h"
#include "cases.h"
#include "interpret.h"
#include "tensor_kernel.h"

#include <math.h>
#include <stdio.h>

#include "device/driver.h"
#include "support/case.h"

enum { IMAGE = 192 << 10, MOST_N = 256, MOST_K = 256, ROWS = 256 };

const struct tensor_type tensor_f16 = {"f16", 0, 16, 5, 10, 15, 8},
                         tensor_bf16 = {"bf16", 1, 16, 8, 7, 127, 8},
                         tensor_e4m3 = {"e4m3", 0, 8, 4, 3, 7, 16},
                         tensor_e5m2 = {"e5m2", 1, 8, 5, 2, 15, 16},
                         tensor_e2m3 = {"e2m3", 3, 6, 2, 3, 1, 16},
                         tensor_e3m2 = {"e3m2", 4, 6, 3, 2, 3, 16},
                         tensor_e2m1 = {"e2m1", 5, 4, 2, 1, 1, 16},
                         tensor_packed = {"e2m1x2", 1, 4, 2, 1, 1, 32};

struct tensor_defect tensor_defect;
static struct qn_driver *driver;

void tensor_start(const char *variable, const char *value)
{
    driver = interpret_start(variable, value);
}

/* ------------------------------------------------------------------ numbers */

static struct {
    uint16_t a[ROWS][MOST_K], b[MOST_N][MOST_K];
    uint8_t scale_a[ROWS][MOST_K], scale_b[MOST_N][MOST_K]; /* by block */
} matrix;

static double value_of(const struct tensor_type *t, unsigned code)
{
    const unsigned fraction = code & ((1u << t->mantissa) - 1);
    const int power = (int)(code >> t->mantissa) & ((1 << t->exponent) - 1);
    const double size = power ? ldexp((1 << t->mantissa) + fraction,
                                      power - t->bias - t->mantissa)
                              : ldexp(fraction, 1 - t->bias - t->mantissa);

    return code >> (t->bits - 1) & 1 ? -size : size;
}

/* Middling sizes, for sums that cancel little. */
static uint16_t random_code(const struct tensor_type *t, uint64_t *state)
{
    const int near = t->exponent > 3 ? 4 : 1 << t->exponent;
    const int most = t->exponent > 3 ? t->bias + 2 : near;
    const int power = most - 1 - (int)qt_random_below(state, near);

    return (uint16_t)((uint64_t)qt_random_below(state, 2) << (t->bits - 1) |
                      (uint64_t)power << t->mantissa |
                      (uint64_t)qt_random_below(state, 1 << t->mantissa));
}

static uint8_t random_scale(const struct tensor_product *p, uint64_t *state)
{
    return (uint8_t)(p->e4m3 ? 0x30 + qt_random_below(state, 24)
                             : 122 + qt_random_below(state, 10));
}

static double scale_of(const struct tensor_product *p, unsigned code)
{
    return !p->blocks ? 1
           : p->e4m3  ? value_of(&tensor_e4m3, code)
                      : ldexp(1, (int)code - 127);
}

/* A as its image has it. */
static struct tensor_layout a_layout(const struct tensor_product *p)
{
    const struct tensor_layout none = {0, p->a.turned};

    return p->a.swizzle == TENSOR_MEMORY ? none : p->a;
}

/* Rows of A in a CTA. */
static int rows_of(const struct tensor_product *p)
{
    return p->is_64 ? 64 : 128;
}

/* Codes of a step of k. */
static int step_of(const struct tensor_product *p)
{
    return p->a_type->bits == 16 ? 16 : p->a_type->per_unit == 32 ? 64 : 32;
}

static void fill(const struct tensor_product *p)
{
    uint64_t state = 11;

    for (int k = 0; k < p->k; k++) {
        for (int i = 0; i < ROWS; i++)
            matrix.a[i][k] = random_code(p->a_type, &state);
        for (int j = 0; j < p->n; j++)
            matrix.b[j][k] = random_code(p->b_type, &state);
    }
    for (int v = 0; v < MOST_K; v++)
        for (int i = 0; i < ROWS; i++) {
            matrix.scale_a[i][v] = random_scale(p, &state);
            matrix.scale_b[i][v] = random_scale(p, &state);
        }
}

/* ------------------------------------------------------------------ layouts */

/* The 16 bytes that hold element (row, k) of `rows`. Swizzled k-major rows have
   all of k. */
static uint32_t unit_of(struct tensor_layout l, const struct tensor_type *t,
                        int rows, int row, int k)
{
    const int wide = l.swizzle ? l.swizzle : 16;
    const uint32_t bits = l.swizzle == 128  ? 7
                          : l.swizzle == 64 ? 3
                                            : l.swizzle == 32;
    const int x = row / t->per_unit * 16, y = k / t->per_unit * 16;
    const int at = l.turned ? x / wide * wide * 8 + x % wide + k % 8 * wide +
                                  k / 8 * 8 * (rows / t->per_unit * 16)
                            : y / wide * wide * rows + y % wide +
                                  row % 8 * wide + row / 8 * 8 * wide;

    return (uint32_t)at ^ ((uint32_t)at >> 7 & bits) << 4;
}

static void put(uint8_t *image, struct tensor_layout l,
                const struct tensor_type *t, int rows, int row, int k,
                uint16_t code)
{
    uint8_t *unit = image + unit_of(l, t, rows, row, k);
    const int at = (l.turned ? row : k) % t->per_unit * t->bits;

    for (int i = 0; i < t->bits; i++)
        if (code >> i & 1)
            unit[(at + i) / 8] |= (uint8_t)(1 << (at + i) % 8);
}

static uint32_t bytes_of(struct tensor_layout l, const struct tensor_type *t,
                         int rows, int k)
{
    assert_true(l.turned || !l.swizzle || k / t->per_unit * 16 == l.swizzle);
    return (uint32_t)(rows * k / t->per_unit * 16);
}

/* Between steps of k, in units of 16 bytes. */
static uint32_t between(struct tensor_layout l, const struct tensor_type *t,
                        int rows, int step)
{
    if (l.turned)
        return (uint32_t)(step * (rows / t->per_unit));
    return (uint32_t)(l.swizzle ? 2 : 2 * rows);
}

static uint64_t descriptor(struct tensor_layout l, const struct tensor_type *t,
                           int rows, uint32_t at)
{
    const uint32_t wide = (uint32_t)(l.swizzle ? l.swizzle : 16);
    const uint32_t n = (uint32_t)(rows / t->per_unit * 16), all = 8 * n;
    const uint64_t kind = l.swizzle == 128  ? 2
                          : l.swizzle == 64 ? 4
                          : l.swizzle == 32 ? 6
                                            : 0;
    uint32_t leading = 0, stride = 8 * wide;

    if (l.turned && l.swizzle) {
        leading = 8 * wide;
        stride = all;
    } else if (l.turned) {
        leading = all;
    } else if (!l.swizzle) {
        leading = (uint32_t)rows * 16;
    }
    return at >> 4 | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | 1ull << 46 | kind << 61;
}

/* --------------------------------------------------------------------- jobs */

static uint32_t instruction_of(const struct tensor_product *p)
{
    return (p->blocks ? (uint32_t)!p->e4m3 << 23 : 1u << 4) |
           (uint32_t)p->a_type->number << 7 |
           (uint32_t)p->b_type->number << 10 | (uint32_t)p->negate << 13 |
           (uint32_t)p->a.turned << 15 | (uint32_t)p->b.turned << 16 |
           (uint32_t)p->n << 14 | (uint32_t)(rows_of(p) / 16 * p->ctas) << 24;
}

/* Tiles of 128 rows and four blocks: A's by k, then B's by k and by row. */
static void put_scales(const struct tensor_product *p, uint8_t *to, int rank,
                       int tiles, int tiles_n)
{
    for (int v = 0; v < 4 * tiles; v++) {
        for (int i = 0; i < 128; i++)
            to[v / 4 * 512 + i % 32 * 16 + i / 32 * 4 + v % 4] =
                matrix.scale_a[128 * rank + i][v];
        for (int j = 0; j < p->n; j++)
            to[(tiles + v / 4 * tiles_n + j / 128) * 512 + j % 32 * 16 +
               j / 32 % 4 * 4 + v % 4] = matrix.scale_b[j][v];
    }
}

static void put_operands(const struct tensor_product *p, uint8_t *image,
                         int rank, uint32_t b_at)
{
    const int n = p->n / p->ctas;

    for (int k = 0; k < p->k; k++) {
        for (int i = 0; i < rows_of(p); i++)
            put(image, a_layout(p), p->a_type, rows_of(p), i, k,
                matrix.a[128 * rank + i][k]);
        for (int j = 0; j < n; j++)
            put(image + b_at, p->b, p->b_type, n, j, k,
                matrix.b[n * rank + j][k]);
    }
}

static struct tensor_job *job_of(const struct tensor_product *p)
{
    const int n = p->n / p->ctas, step = step_of(p);
    const int tiles = p->k / step * p->blocks / 4, tiles_n = (p->n + 127) / 128;
    const uint32_t b_at = bytes_of(a_layout(p), p->a_type, rows_of(p), p->k);
    const uint32_t scales = b_at + bytes_of(p->b, p->b_type, n, p->k);
    const uint32_t bytes = scales + (uint32_t)(tiles * (1 + tiles_n) * 512);
    struct tensor_job *job = calloc(1, sizeof *job + 2 * IMAGE);

    assert_non_null(job);
    assert_true(bytes <= IMAGE);
    *job = (struct tensor_job){
        .a =
            descriptor(a_layout(p), p->a_type, rows_of(p), 0) ^ tensor_defect.a,
        .b = descriptor(p->b, p->b_type, n, b_at),
        .instruction = instruction_of(p) ^ tensor_defect.instruction,
        .steps = (uint32_t)(p->k / step),
        .words = bytes / 4,
        .columns = (uint32_t)p->n,
        .a_step = between(a_layout(p), p->a_type, rows_of(p), step),
        .b_step = between(p->b, p->b_type, n, step),
        .tiles = (uint32_t)(tiles * (1 + tiles_n)),
        .blocks = (uint32_t)p->blocks,
        .scales = scales / 16,
        .b_first = 256 + 4 * (uint32_t)tiles,
        .b_column = 4 * (uint32_t)tiles_n,
    };
    for (int rank = 0; rank < p->ctas; rank++) {
        uint8_t *image = (uint8_t *)job->image + (uint32_t)rank * bytes;

        put_operands(p, image, rank, b_at);
        if (p->blocks)
            put_scales(p, image + scales, rank, tiles, tiles_n);
    }
    return job;
}

/* ------------------------------------------------------------------ running */

void tensor_write(const struct tensor_product *p, char *text, size_t size)
{
    char product[2000];
    size_t n = 0;
    const int in_tensor = p->a.swizzle == TENSOR_MEMORY;
    const char *const parts[] = {TENSOR_BEGIN TENSOR_COPY,
                                 in_tensor ? TENSOR_A : "",
                                 TENSOR_ISSUER,
                                 p->blocks ? TENSOR_SCALES : "",
                                 TENSOR_STEP,
                                 product,
                                 TENSOR_NEXT,
                                 p->ctas == 2 ? TENSOR_COMMIT_PAIR
                                              : TENSOR_COMMIT,
                                 TENSOR_LOAD TENSOR_END};

    snprintf(product, sizeof product, p->blocks ? TENSOR_SCALED : TENSOR_PLAIN,
             p->kind, in_tensor ? "[%r40]" : "%rd2");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const char *at = parts[i]; *at; at++) {
            if (at > parts[i] && at[-1] == '.' && *at == 'G') {
                n += (size_t)snprintf(text + n, size - n, "cta_group::%d",
                                      p->ctas);
                continue;
            }
            text[n++] = *at;
            assert_true(n < size - 20);
        }
    text[n] = 0;
}

/* 0 with the result, or an error's code. */
static int launch(const char *text, const void *in_bytes, size_t bytes,
                  int ctas, void *out, size_t results)
{
    struct cu_attribute cluster = {.id = QN_CU_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.cluster = {(unsigned)ctas, 1, 1}};
    const struct cu_launch shape = {.grid = {(unsigned)ctas, 1, 1},
                                    .block = {128, 1, 1},
                                    .shared_bytes = 200 << 10,
                                    .attributes = &cluster,
                                    .nattributes = ctas > 1};
    uint64_t in, to;
    void *params[] = {&in, &to};
    int code;

    assert_int_equal(driver->cuMemAlloc_v2(&in, bytes), 0);
    assert_int_equal(driver->cuMemAlloc_v2(&to, results), 0);
    memcpy((void *)in, in_bytes, bytes);
    code = interpret_launch(text, &shape, params);
    memcpy(out, (void *)to, results);
    driver->cuMemFree_v2(in);
    driver->cuMemFree_v2(to);
    return code;
}

int tensor_launch(const char *text, void *out, size_t bytes)
{
    return launch(text, "", 1, 1, out, bytes);
}

static int is_sum(const struct tensor_product *p, int i, int j, float d)
{
    const int step = step_of(p);
    double sum = 0, size = 0;

    for (int k = 0; k < p->k; k++) {
        const int v = k * p->blocks / step;
        const double term = value_of(p->a_type, matrix.a[i][k]) *
                            value_of(p->b_type, matrix.b[j][k]) *
                            scale_of(p, matrix.scale_a[i][v]) *
                            scale_of(p, matrix.scale_b[j][v]);

        sum += p->negate ? -term : term;
        size += fabs(term);
    }
    return fabs(d - sum) <= ldexp(size, -18);
}

/* 64 rows are 16 of each part of the lanes, whose others stay as they were. */
static int is_right(const struct tensor_product *p, int lane, int j, float d)
{
    if (!p->is_64)
        return is_sum(p, lane, j, d);
    return lane % 32 < 16 ? is_sum(p, lane / 32 * 16 + lane % 32, j, d)
                          : isnan(d);
}

int tensor_run(const struct tensor_product *p, const char *text,
               const char **why)
{
    static float d[ROWS * MOST_N];
    struct tensor_job *job;
    int code, wrong = 0;

    fill(p);
    job = job_of(p);
    code = launch(text, job, sizeof *job + 2 * IMAGE, p->ctas, d,
                  (size_t)(p->ctas * 128 * p->n) * sizeof *d);
    *why = "";
    if (code)
        driver->cuGetErrorString(code, why);
    for (int i = 0; i < 128 * p->ctas; i++)
        for (int j = 0; j < p->n; j++)
            wrong += code || !is_right(p, i, j, d[i * p->n + j]);
    free(job);
    return wrong;
}
