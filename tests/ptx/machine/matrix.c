/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.c: operands of wgmma and tcgen05 in shared memory. */
#include "matrix.h"
#include "hazard.h"
#include "wgmma.h"

struct px_matrix px_matrix_of(uint64_t bits, int swizzle, int turned, int type)
{
    if (px_misreads(PX_NOT_TURNED))
        turned = 0;
    if (px_misreads(PX_STRIDES))
        bits = (bits & ~0x3fff3fff0000ull) | (bits >> 16 & 0x3fff0000) |
               (bits & 0x3fff0000) << 16;
    return (struct px_matrix){.start = (uint32_t)(bits & 0x3fff) << 4,
                              .leading = (uint32_t)(bits >> 16 & 0x3fff) << 4,
                              .stride = (uint32_t)(bits >> 32 & 0x3fff) << 4,
                              .swizzle = swizzle,
                              .turned = turned,
                              .type = type};
}

static inline uint32_t unit_at(const struct px_matrix *m, int row, int column)
{
    const uint32_t x = (uint32_t)row, y = (uint32_t)column;
    const int wide = m->swizzle; /* so many times two units in a row */
    uint32_t at = m->start;

    if (!wide) /* 8 rows of 16 bytes; the next in k, the next in mn */
        at += m->turned ? y / 8 * m->leading + x * m->stride + y % 8 * 16
                        : x / 8 * m->stride + y * m->leading + x % 8 * 16;
    else if (m->turned)
        at += (x >> wide) * m->leading + y / 8 * m->stride +
              (y % 8 * 16 << wide) + (x & ((1u << wide) - 1)) * 16;
    else
        at += x / 8 * m->stride + (x % 8 * 16 << wide) + y * 16;
    return px_swizzled(at, wide);
}

uint32_t px_matrix_unit(const struct px_matrix *m, int x, int y)
{
    return unit_at(m, x, y);
}

struct px_units px_matrix_units(const struct px_matrix *m, int first, int rows,
                                int k)
{
    const int per_unit = 4 * px_mma_per_word(m->type);

    if (m->turned)
        return (struct px_units){first / per_unit, rows / per_unit, k,
                                 per_unit};
    return (struct px_units){first, rows, k / per_unit, per_unit};
}

int px_matrix_issued(struct px_warp *w, const struct px_op *op, int lane,
                     const struct px_cta *cta, const struct px_matrix *m,
                     struct px_units u)
{
    for (int x = 0; x < u.nx; x++)
        for (int y = 0; y < u.ny; y++) {
            const uint32_t at = unit_at(m, u.x + x, y);

            if (at < PX_SHARED_START || at + 16 > cta->shared_bytes)
                return px_fault(w, op, lane, "an operand at shared address %u",
                                at);
            if (px_hazard_unit_issued(w, op, lane, cta, at))
                return PX_FAULT;
        }
    return PX_NEXT;
}

/* A unit as floats; padded: 16 codes of 4 or 6 bits, the first in the lowest
   bits. */
static void decode(const struct px_matrix *m, float *to,
                   const unsigned char *from, int count)
{
    const int bits = m->type == PX_E2M1 ? 4 : 6;

    if (!m->padded) {
        px_mma_decode(to, from, count, m->type);
        return;
    }
    for (int i = 0; i < count; i++) {
        const int at = i * bits;
        const unsigned word = from[at / 8] | (unsigned)from[at / 8 + 1] << 8;
        const uint8_t code = (uint8_t)(word >> at % 8);

        to[i] = m->type == PX_E2M1   ? px_float_of_e2m1(code)
                : m->type == PX_E2M3 ? px_float_of_e2m3(code)
                                     : px_float_of_e3m2(code);
    }
}

/* The elements of a unit with `step` floats from one to the next. */
static inline void spread(float *to, const float *unit, int count, int step)
{
    for (int i = 0; i < count; i++)
        to[i * step] = unit[i];
}

int px_matrix_gather(struct px_async *async, const struct px_cta *cta,
                     const struct px_matrix *m, struct px_units u, float *to,
                     int row_step, int k_step)
{
    const int n = u.per_unit, step = m->turned ? row_step : k_step;
    const int x_step = row_step * (m->turned ? n : 1);
    const int y_step = k_step * (m->turned ? 1 : n);
    float unit[32];

    for (int y = 0; y < u.ny; y++)
        for (int x = 0; x < u.nx; x++) {
            const uint32_t at = unit_at(m, u.x + x, y);
            float *first = to + x * x_step + y * y_step;

            if (px_hazard_unit_read(async, cta, at))
                return PX_FAULT;
            decode(m, step == 1 ? first : unit, cta->shared + at, n);
            if (step != 1)
                spread(first, unit, n, step);
        }
    return PX_NEXT;
}
