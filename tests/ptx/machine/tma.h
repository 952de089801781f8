/* SPDX-License-Identifier: Apache-2.0 */
/* tma.h: boxes of tensors, and the layout of a tensor map. */
#pragma once

#include "machine.h"

enum { PX_MAX_RANK = 5 };

/* The 128 bytes of a tensor map. */
struct px_map {
    uint64_t signature; /* so that other bytes are seen */
    uint64_t address;
    uint64_t strides[PX_MAX_RANK - 1]; /* bytes, of dimensions 1, 2, ... */
    uint32_t dims[PX_MAX_RANK];
    uint16_t box[PX_MAX_RANK];
    uint8_t rank, type, swizzle, element_bytes;
    uint8_t halves; /* coordinates count elements of 4 bits */
    uint8_t pad[45];
};
_Static_assert(sizeof(struct px_map) == 128, "a tensor map has 128 bytes");
#define PX_MAP_SIGNATURE 0x70616d726f736e65ull

struct px_tile {
    struct px_map map;
    int32_t at[PX_MAX_RANK];
    uint32_t shared; /* where in a CTA's shared memory */
    uint64_t global; /* of copies without a map */
    uint32_t bytes;
    struct px_cta *to_cta; /* whose shared memory */
    uint32_t barrier;      /* in this CTA: */
    struct px_cta *barrier_cta;
    int adds;
    unsigned char *data; /* of a store that has been read */
};

struct px_build;
int px_setup_tile(struct px_build *b);
