/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.h: operands of wgmma and tcgen05 in shared memory. */
#pragma once

#include "machine.h"

/* CU_TENSOR_MAP_SWIZZLE_...: bits of 16 bytes that are exchanged. */
static inline uint32_t px_swizzled(uint32_t address, int swizzle)
{
    static const uint32_t bits[] = {0, 0x10, 0x30, 0x70};

    if (px_misreads(PX_NO_SWIZZLE))
        return address;
    return address ^
           (address >> (px_misreads(PX_LOW_SWIZZLE) ? 2 : 3) & bits[swizzle]);
}

struct px_matrix {
    uint32_t start, leading, stride; /* bytes */
    int swizzle;                     /* as tensor maps have it */
    int turned;                      /* mn-major */
    int type;                        /* PX_F16, ... */
    int padded; /* 16 elements of 6 or 4 bits, then 0 up to 16 bytes */
};

/* Units of 16 bytes: the first along mn, how many in each direction, elements
   of each. */
struct px_units {
    int x, nx, ny, per_unit;
};

/* By a descriptor, whose layout the instruction's version has. */
struct px_matrix px_matrix_of(uint64_t bits, int swizzle, int turned, int type);
/* The units of `rows` of mn from `first` on. */
struct px_units px_matrix_units(const struct px_matrix *m, int first, int rows,
                                int k);
/* The shared address of a unit: rows x of mn, units y of k; turned: units x of
   mn, rows y of k. */
uint32_t px_matrix_unit(const struct px_matrix *m, int x, int y);
/* All writes to the units must be known to the tensor cores. */
int px_matrix_issued(struct px_warp *w, const struct px_op *op, int lane,
                     const struct px_cta *cta, const struct px_matrix *m,
                     struct px_units u);
/* As floats at [row * row_step + k * k_step]. */
int px_matrix_gather(struct px_async *async, const struct px_cta *cta,
                     const struct px_matrix *m, struct px_units u, float *to,
                     int row_step, int k_step);
