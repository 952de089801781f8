/* SPDX-License-Identifier: Apache-2.0 */
/*
** order.h: which accesses of tensor memory a warp knows to have ended, by the
** barriers between warps, in programs that have tcgen05.
**
** Each warp of a cluster has two counts: of its own loads and stores, and of
** the products and copies that it issued, which end by themselves. It hears of
** others' at barriers, and may rely on that after its
** tcgen05.fence::after_thread_sync.
*/
#pragma once

#include "machine.h"

enum { PX_OWN, PX_ISSUED };

struct px_known {
    uint32_t *heard; /* by count: all accesses up to this one have ended */
    uint32_t *ready; /* as of the last tcgen05.fence::after_thread_sync */
};

/* Which of the counts of all warps of the cluster. */
uint32_t px_order_count(const struct px_warp *w, int which);
/* Memory for a warp's counts; PX_FAULT without. */
int px_order_warp(struct px_warp *w);
void px_order_warp_end(struct px_warp *w);
/* All accesses of this count up to the number have ended. */
void px_order_tell(struct px_warp *w, int which, uint32_t number);
/* tcgen05.fence::after_thread_sync */
void px_order_fence(struct px_warp *w);
/* May the warp rely on the end of an access? */
int px_order_is_ready(const struct px_warp *w, uint32_t count, uint32_t number);
/* A copy of all that the warp has heard, and that its products up to one have
   ended. */
size_t px_order_bytes(const struct px_warp *w);
void px_order_copy(const struct px_warp *w, uint32_t *to, uint32_t products);

/* A barrier: a warp arrives, or a commit that has a copy, all have arrived, a
   warp goes on. */
int px_order_arrive(const struct px_warp *w, struct px_heard *heard,
                    const uint32_t *copy);
void px_order_complete(struct px_heard *heard);
void px_order_pass(struct px_warp *w, const struct px_heard *heard);
void px_order_end(struct px_heard *heard);
