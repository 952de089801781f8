/* SPDX-License-Identifier: Apache-2.0 */
/*
** tensor.h: tcgen05, sm_100a: tensor memory, its accesses by warps, products
** and copies.
*/
#pragma once

#include "machine.h"
#include "matrix.h"
#include "order.h"

enum { PX_ROWS = 128, PX_COLUMNS = 512, PX_PARTS = 4, PX_ALLOCATIONS = 16 };

/* The last access of a column, by px_order_count. */
struct px_access {
    uint32_t count, number; /* 0: none */
};

/* Tensor memory of a CTA: rows are lanes, of which a part of 32 is a warp's. */
struct px_tmem {
    uint32_t word[PX_COLUMNS][PX_ROWS];
    struct px_access written[PX_COLUMNS][PX_PARTS]; /* since the allocation */
    struct px_access *read;            /* [PX_COLUMNS][warps of the CTA] */
    struct px_access used[PX_COLUMNS]; /* by a product, as A or scales */
    uint8_t taken[PX_COLUMNS];
    struct {
        uint32_t first, columns;
        int warp;
    } allocation[PX_ALLOCATIONS];
    int nallocations, is_relinquished;
};

/* A warp's use of it. */
struct px_tensor {
    uint64_t issued[PX_LANES], landed[PX_LANES]; /* products, copies, commits */
    uint32_t products;              /* and copies, of all lanes: the last */
    uint32_t open[PX_LANES];        /* the first without a commit; 0: none */
    uint32_t accesses;              /* loads and stores: the last */
    uint32_t open_load, open_store; /* the first without a wait; 0: none */
    struct px_known known;
};

/* Column and lane of an address. */
static inline uint32_t px_column_of(uint32_t address)
{
    return address & 0xffff;
}
static inline uint32_t px_row_of(uint32_t address)
{
    return address >> 16;
}

struct px_build;
/* tcgen05_mma.c, tcgen05_copy.c, tmem.c: the rest of a name. */
int px_setup_tensor_product(struct px_build *b, const char *rest);
int px_setup_tensor_copy(struct px_build *b, const char *rest);
int px_setup_tensor_access(struct px_build *b, const char *rest, int stores);

/* tmem.c: memory for a CTA and for a warp; PX_FAULT without. */
int px_tmem_cta(struct px_cta *cta);
void px_tmem_cta_end(struct px_cta *cta);
int px_tmem_warp(struct px_warp *w);
void px_tmem_warp_end(struct px_warp *w);
/* tcgen05.c: all was given back before the CTA's last warp ends. */
int px_tmem_check_end(const struct px_warp *w);

/* A thread issues a product or a copy that will write columns of a CTA's
   memory: they are allocated, and who used them last is known to have ended. */
int px_tmem_will_write(struct px_warp *w, const struct px_op *op, int lane,
                       struct px_cta *cta, uint32_t column, uint32_t columns);
/* As that, of columns that it will read; `what` they are. */
int px_tmem_will_read(struct px_warp *w, const struct px_op *op, int lane,
                      struct px_cta *cta, uint32_t column, uint32_t columns,
                      const char *what);
/* It will read them until it has ended: A or scales. */
void px_tmem_used(struct px_warp *w, struct px_cta *cta, uint32_t column,
                  uint32_t columns);

/* tcgen05.c: a product, a copy or a commit of a thread, in the order of its
   issue, with zeroed bytes as its work. */
struct px_async *px_tensor_issue(struct px_warp *w, const struct px_op *op,
                                 int lane, int (*land)(struct px_async *),
                                 size_t work_bytes);
/* One more product or copy, whose number is then in px_tensor. */
void px_tensor_count(struct px_warp *w, int lane);
/* The own CTA, or one of the pair whose even CTA it is; NULL after a fault. */
struct px_cta *px_tensor_cta(struct px_warp *w, const struct px_op *op,
                             int lane, int ctas, int half);
/* tcgen05_mma.c: a matrix by its descriptor, of the type that it has. */
int px_tensor_matrix(struct px_warp *w, const struct px_op *op, int lane,
                     uint64_t bits, struct px_matrix *out);
