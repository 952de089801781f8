/* SPDX-License-Identifier: Apache-2.0 */
/* order.c: which accesses of tensor memory a warp knows to have ended. */
#include "order.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

static uint32_t counts_of(const struct px_warp *w)
{
    return (uint32_t)(2 * w->cta->cluster->size * w->cta->nwarps);
}

uint32_t px_order_count(const struct px_warp *w, int which)
{
    return (uint32_t)(2 * (w->cta->rank * w->cta->nwarps + w->number) + which);
}

int px_order_warp(struct px_warp *w)
{
    const uint32_t n = counts_of(w);

    w->tensor->known.heard = calloc(2 * n, sizeof(uint32_t));
    if (!w->tensor->known.heard)
        return px_fault_plain("out of memory");
    w->tensor->known.ready = w->tensor->known.heard + n;
    return PX_NEXT;
}

void px_order_warp_end(struct px_warp *w)
{
    free(w->tensor->known.heard); /* and the array behind it */
}

void px_order_tell(struct px_warp *w, int which, uint32_t number)
{
    uint32_t *heard = &w->tensor->known.heard[px_order_count(w, which)];

    if (number > *heard)
        *heard = number;
}

void px_order_fence(struct px_warp *w)
{
    memcpy(w->tensor->known.ready, w->tensor->known.heard,
           counts_of(w) * sizeof(uint32_t));
}

int px_order_is_ready(const struct px_warp *w, uint32_t count, uint32_t number)
{
    return w->tensor->known.ready[count] >= number;
}

size_t px_order_bytes(const struct px_warp *w)
{
    return counts_of(w) * sizeof(uint32_t);
}

void px_order_copy(const struct px_warp *w, uint32_t *to, uint32_t products)
{
    memcpy(to, w->tensor->known.heard, px_order_bytes(w));
    to[px_order_count(w, PX_ISSUED)] = products;
}

static void join(uint32_t *to, const uint32_t *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = to[i] < from[i] ? from[i] : to[i];
}

int px_order_arrive(const struct px_warp *w, struct px_heard *heard,
                    const uint32_t *copy)
{
    if (!w->tensor)
        return PX_NEXT;
    if (!heard->n) {
        const uint32_t n = counts_of(w);

        heard->arrived = calloc(2 * n, sizeof(uint32_t));
        if (!heard->arrived)
            return px_fault_plain("out of memory");
        heard->complete = heard->arrived + n;
        heard->n = n;
    }
    join(heard->arrived, copy ? copy : w->tensor->known.heard, heard->n);
    return PX_NEXT;
}

/* All that was heard stays: a barrier's later phases come after. */
void px_order_complete(struct px_heard *heard)
{
    join(heard->complete, heard->arrived, heard->n);
}

void px_order_pass(struct px_warp *w, const struct px_heard *heard)
{
    if (w->tensor)
        join(w->tensor->known.heard, heard->complete, heard->n);
}

void px_order_end(struct px_heard *heard)
{
    free(heard->arrived); /* and the array behind it */
    memset(heard, 0, sizeof *heard);
}
