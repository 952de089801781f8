/* SPDX-License-Identifier: Apache-2.0 */
/*
** wgmma.c: products of a warpgroup. Each warp does its 16 rows by itself, later
** than it issues them; the accumulators change only then.
*/
#include "build.h"
#include "hazard.h"
#include "matrix.h"
#include "wgmma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct px_matrix operand_of(uint64_t bits, int turned, int type)
{
    static const int swizzles[] = {0, 3, 2, 1};

    return px_matrix_of(bits, swizzles[bits >> 62], turned, type);
}

struct product {
    int n, k, a_type, b_type, counts, in_registers;
    struct px_matrix a, b;
};

/* Register r of lane 0: where it is in 16 rows. Four lanes have a row. */
static inline int place_of(const struct product *p, int r)
{
    return r / 2 % 2 * 8 * p->n + r / 4 * 8 + r % 2;
}

static void add_integers(struct px_async *async, const struct product *p,
                         const float *a, const float *b, int accumulate)
{
    static float sum[16 * 256];
    struct px_warp *w = async->warp;
    const struct px_op *op = async->op;

    px_mma_multiply(sum, a, b, 16, p->n, p->k);
    for (int r = 0; r < p->n / 2; r++) {
        int32_t *d = PX_AT(w, int32_t, r);
        const float *from = sum + place_of(p, r);

        for (int i = 0; i < PX_LANES; i++)
            d[i] = (int32_t)from[i / 4 * p->n + i % 4 * 2] +
                   (accumulate ? d[i] : 0);
    }
}

/* Two registers are eight columns of eight rows; four lanes have a row. */
static void put_rows(float *to, int step, const float *d, const float *e)
{
    for (int row = 0; row < 8; row++, to += step, d += 4, e += 4)
        for (int i = 0; i < 4; i++) {
            to[2 * i] = d[i];
            to[2 * i + 1] = e[i];
        }
}

static void take_rows(const float *from, int step, float *d, float *e)
{
    for (int row = 0; row < 8; row++, from += step, d += 4, e += 4)
        for (int i = 0; i < 4; i++) {
            d[i] = from[2 * i];
            e[i] = from[2 * i + 1];
        }
}

static void add_floats(struct px_async *async, const struct product *p,
                       const float *a, const float *b, int accumulate)
{
    static float sum[16 * 256];
    struct px_warp *w = async->warp;
    const struct px_op *op = async->op;

    if (!accumulate)
        memset(sum, 0, (size_t)(16 * p->n) * sizeof *sum);
    for (int r = 0; accumulate && r < p->n / 2; r += 2)
        put_rows(sum + place_of(p, r), p->n, PX_AT(w, float, r),
                 PX_AT(w, float, r + 1));
    px_sums_add(sum, a, b, p->n, p->k, p->a_type, p->b_type);
    for (int r = 0; r < p->n / 2; r += 2)
        take_rows(sum + place_of(p, r), p->n, PX_AT(w, float, r),
                  PX_AT(w, float, r + 1));
}

/* The shape in op->sub, and the descriptors as they were issued. */
static struct product product_of(const struct px_async *async)
{
    const struct px_op *op = async->op;
    const uint32_t *word = async->word;
    struct product p = {.n = op->vector,
                        .k = op->size,
                        .a_type = op->sub & 7,
                        .b_type = op->sub >> 3 & 7,
                        .in_registers = op->sub >> 6 & 1,
                        .counts = op->sub >> 9 & 1};

    p.a = operand_of((uint64_t)word[1] << 32 | word[0], op->sub >> 7 & 1,
                     p.a_type);
    p.b = operand_of((uint64_t)word[3] << 32 | word[2], op->sub >> 8 & 1,
                     p.b_type);
    return p;
}

/* This warp's rows of A. */
static struct px_units a_units(const struct px_warp *w, const struct product *p)
{
    const int part = px_misreads(PX_ALL_ROWS) ? 0 : w->number % 4;

    return px_matrix_units(&p->a, part * 16, 16, p->k);
}

static int land_product(struct px_async *async)
{
    static float a[16 * 32], b[32 * 256];
    const struct product p = product_of(async);
    struct px_warp *w = async->warp;
    const int accumulate = px_misreads(PX_OLD_SUM) || (int)async->word[4];

    if (p.in_registers)
        px_mma_rows(w, async->op->arg + p.n / 2, a, p.a_type);
    else if (px_matrix_gather(async, w->cta, &p.a, a_units(w, &p), a, p.k, 1))
        return PX_FAULT;
    if (px_matrix_gather(async, w->cta, &p.b,
                         px_matrix_units(&p.b, 0, p.n, p.k), b, 1, p.n))
        return PX_FAULT;
    (p.counts ? add_integers : add_floats)(async, &p, a, b, accumulate);
    w->mma_landed++;
    return PX_NEXT;
}

/* The product that the first warp of a group issued under a number. */
struct px_issued {
    uint64_t order;
    const struct px_op *op;
    uint32_t word[5];
};
enum { ISSUED = 256 }; /* kept for each warpgroup */

/* Warps of a group issue the same products with the same descriptors. */
static int check_group(struct px_warp *w, const struct px_op *op,
                       const struct px_async *async)
{
    struct px_cta *cta = w->cta;
    struct px_issued *issued;

    if (w->number / 4 * 4 + 4 > cta->nwarps)
        return px_fault(w, op, 0, "its warpgroup has no four warps");
    if (!cta->issued)
        cta->issued = calloc((size_t)cta->nwarps / 4 * ISSUED, sizeof *issued);
    if (!cta->issued)
        return px_fault_plain("out of memory");
    issued =
        &cta->issued[w->number / 4 * ISSUED + (int)(async->order % ISSUED)];
    if (issued->order != async->order) {
        issued->order = async->order;
        issued->op = op;
        memcpy(issued->word, async->word, sizeof issued->word);
    }
    if (issued->op != op ||
        memcmp(issued->word, async->word, sizeof issued->word))
        return px_fault(w, op, 0,
                        "another warp of the warpgroup issues another product");
    return PX_NEXT;
}

static int issue(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int registers = op->sub >> 6 & 1, at = op->vector / 2;
    struct px_async *async = px_async_add(w, op, 0, land_product);
    struct product p;
    uint64_t a, b;

    (void)mask;
    if (!async)
        return PX_FAULT;
    a = registers ? 0 : PX_AT(w, uint64_t, at)[0];
    b = PX_AT(w, uint64_t, at + (registers ? 4 : 1))[0];
    async->word[0] = (uint32_t)a;
    async->word[1] = (uint32_t)(a >> 32);
    async->word[2] = (uint32_t)b;
    async->word[3] = (uint32_t)(b >> 32);
    async->word[4] = *PX_AT(w, uint32_t, op->nargs - 1) & 1;
    async->order = ++w->mma_issued;
    p = product_of(async);
    if (px_hazard_product(w, op, at, registers ? 4 : 0) ||
        check_group(w, op, async))
        return PX_FAULT;
    if (!registers && px_matrix_issued(w, op, 0, w->cta, &p.a, a_units(w, &p)))
        return PX_FAULT;
    return px_matrix_issued(w, op, 0, w->cta, &p.b,
                            px_matrix_units(&p.b, 0, p.n, p.k));
}

static int commit(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)op, (void)mask;
    w->mma_group[w->mma_groups++ % 64] = w->mma_issued;
    return PX_NEXT;
}

static int wait(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const uint32_t most = PX_AT(w, uint32_t, 0)[0];

    (void)mask;
    if (most > 60)
        return px_fault(w, op, 0, "waits for %u batches", most);
    if (w->mma_groups > most &&
        w->mma_landed < w->mma_group[(w->mma_groups - most - 1) % 64])
        return px_wait_for(w, &w->mma_landed);
    if (w->mma_groups > most)
        w->mma_known = w->mma_group[(w->mma_groups - most - 1) % 64];
    return PX_NEXT;
}

static int fence(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)op, (void)mask;
    px_hazard_begin(w);
    return PX_NEXT;
}

/* wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16
   {sums}, a, b, p, 1, 1 (, turned a) (, turned b) */
static int setup_product(struct px_build *b, const char *shape)
{
    struct px_op *op = b->op;
    int n, k, used = 0, a, bt, at, registers, rest;
    char sums[8], ab[40];

    if (sscanf(shape, "64n%dk%d.%7[^.].%39s%n", &n, &k, sums, ab, &used) != 4)
        return PX_NEXT;
    a = px_mma_type(ab);
    bt = strchr(ab, '.') ? px_mma_type(strchr(ab, '.') + 1) : -1;
    at = n / 2;
    if (a < 0 || bt < 0 || n % 8 || n > 256 ||
        (strcmp(sums, "f32") && strcmp(sums, "s32")))
        return PX_NEXT;
    registers = b->shape[at] == '{';
    rest = at + (registers ? 4 : 1) + 2; /* after b and p */
    for (int i = 0; i < at; i++)
        if (px_give(b, i, 'r'))
            return PX_FAULT;
    for (int i = at; i < rest - 2; i++)
        if (px_give(b, i, registers ? 'r' : 'd'))
            return PX_FAULT;
    if (px_give(b, rest - 2, 'd') || px_give(b, rest - 1, 'p'))
        return PX_FAULT;
    for (int i = rest; i < rest + 2 && i < b->noperands; i++)
        if (b->operand[i].value != 1)
            return px_bad(b, "negative operands are not known");
    rest += 2;
    op->sub =
        (short)(a | bt << 3 | registers << 6 | (sums[0] == 's' ? 1 << 9 : 0));
    if (!registers && rest < b->noperands)
        op->sub |= (short)(b->operand[rest++].value << 7);
    if (rest < b->noperands)
        op->sub |= (short)(b->operand[rest++].value << 8);
    op->vector = (short)n;
    op->size = (short)k;
    op->meet = PX_MEET_ALL;
    op->run = issue;
    op->is_product = 1;
    b->program->products = 1;
    return PX_EXIT;
}

int px_setup_wgmma(struct px_build *b)
{
    static const char begin[] = "wgmma.mma_async.sync.aligned.m";

    b->op->meet = PX_MEET_ALL;
    if (!strcmp(b->mnemonic, "wgmma.fence.sync.aligned"))
        b->op->run = fence;
    else if (!strcmp(b->mnemonic, "wgmma.commit_group.sync.aligned"))
        b->op->run = commit;
    else if (!strcmp(b->mnemonic, "wgmma.wait_group.sync.aligned"))
        b->op->run = wait;
    else if (!strncmp(b->mnemonic, begin, sizeof begin - 1))
        return setup_product(b, b->mnemonic + sizeof begin - 1);
    else
        return PX_NEXT;
    for (int i = 0; i < b->noperands; i++)
        if (px_give(b, i, 'r'))
            return PX_FAULT;
    return PX_EXIT;
}
