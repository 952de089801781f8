/* SPDX-License-Identifier: Apache-2.0 */
/* hazard.h: races that values show only by chance. */
#pragma once

#include "machine.h"

enum { PX_UNIT = 16, PX_BY_COPY = 0xffff };

/* Who wrote 16 bytes of shared memory last, and when. */
struct px_unit {
    uint64_t when;
    uint16_t warp;
    uint8_t lane;
};

/* Memory for the records of a CTA and of a warp; PX_FAULT without. */
int px_hazard_cta(struct px_cta *cta);
int px_hazard_warp(struct px_warp *w);

/* A thread wrote so many bytes at a host's address, shared memory or not. */
void px_hazard_written(struct px_warp *w, const unsigned char *at,
                       uint32_t bytes, int lane);
/* A copy landed in shared memory. */
void px_hazard_copied(struct px_cta *cta, uint32_t at, uint32_t bytes);
/* A copy or a product that will read a CTA's shared memory is issued: writes
   before must have been fenced, by the writer or by this thread. */
int px_hazard_issued(struct px_warp *w, const struct px_op *op, int lane,
                     const struct px_cta *cta, uint32_t at, uint32_t bytes);
/* It reads now: no write came since it was issued. */
int px_hazard_read(const struct px_async *async, const struct px_cta *cta,
                   uint32_t at, uint32_t bytes);
/* As those of 16 bytes that begin at a multiple of 16. */
static inline int px_hazard_unit_issued(struct px_warp *w,
                                        const struct px_op *op, int lane,
                                        const struct px_cta *cta, uint32_t at)
{
    return cta->units[at / PX_UNIT].warp == PX_BY_COPY
               ? PX_NEXT
               : px_hazard_issued(w, op, lane, cta, at, PX_UNIT);
}
static inline int px_hazard_unit_read(const struct px_async *async,
                                      const struct px_cta *cta, uint32_t at)
{
    return cta->units[at / PX_UNIT].when <= async->when
               ? PX_NEXT
               : px_hazard_read(async, cta, at, PX_UNIT);
}
/* fence.proxy.async */
int px_hazard_fence(struct px_warp *w, const struct px_op *op, uint32_t mask);

/* wgmma.fence: what other instructions did with registers is done. */
void px_hazard_begin(struct px_warp *w);
/* A product with its first arguments, sums and then registers of A, is issued;
   other instructions may not use them until it was waited for, nor may have
   used them since the last fence. */
int px_hazard_product(struct px_warp *w, const struct px_op *op, int sums,
                      int reads);
int px_hazard_registers(struct px_warp *w, const struct px_op *op);
/* tcgen05.ld: its first registers may be used after tcgen05.wait::ld. */
void px_hazard_loaded(struct px_warp *w, const struct px_op *op, int registers);
void px_hazard_waited(struct px_warp *w);
