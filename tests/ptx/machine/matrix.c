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

uint32_t px_matrix_unit(const struct px_matrix *m, int x, int y)
{
    static const int units[] = {1, 2, 4, 8}; /* in a swizzled row */
    const int wide = units[m->swizzle];
    uint32_t at = m->start;

    if (!m->swizzle) /* 8 rows of 16 bytes; the next in k, the next in mn */
        at += m->turned ? (uint32_t)(y / 8) * m->leading +
                              (uint32_t)x * m->stride + (uint32_t)(y % 8) * 16
                        : (uint32_t)(x / 8) * m->stride +
                              (uint32_t)y * m->leading + (uint32_t)(x % 8) * 16;
    else if (m->turned)
        at +=
            (uint32_t)(x / wide) * m->leading + (uint32_t)(y / 8) * m->stride +
            (uint32_t)(y % 8) * 16 * (uint32_t)wide + (uint32_t)(x % wide) * 16;
    else
        at += (uint32_t)(x / 8) * m->stride +
              (uint32_t)(x % 8) * 16 * (uint32_t)wide + (uint32_t)y * 16;
    return px_swizzled(at, m->swizzle);
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
            const uint32_t at = px_matrix_unit(m, u.x + x, y);

            if (at < PX_SHARED_START || at + 16 > cta->shared_bytes)
                return px_fault(w, op, lane, "an operand at shared address %u",
                                at);
            if (px_hazard_issued(w, op, lane, cta, at, 16))
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

int px_matrix_gather(struct px_async *async, const struct px_cta *cta,
                     const struct px_matrix *m, struct px_units u, float *to,
                     int row_step, int k_step)
{
    const int n = u.per_unit;
    float unit[32];

    for (int x = 0; x < u.nx; x++)
        for (int y = 0; y < u.ny; y++) {
            const uint32_t at = px_matrix_unit(m, u.x + x, y);

            if (px_hazard_read(async, cta, at, 16))
                return PX_FAULT;
            decode(m, unit, cta->shared + at, n);
            for (int i = 0; i < n; i++)
                if (m->turned)
                    to[(x * n + i) * row_step + y * k_step] = unit[i];
                else
                    to[x * row_step + (y * n + i) * k_step] = unit[i];
        }
    return PX_NEXT;
}
