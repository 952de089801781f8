/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize_rules.c: which products may have operands that become bf16 or f16
   before them, the multiplied operands then, and their part of the workspace.
 */
#include "problem/dequantize_rules.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/fuse_rules.h"
#include "problem/geometry.h"
#include "problem/gradient_rules.h"
#include "problem/host_sizes_rules.h"
#include "problem/range_rules.h"
#include "problem/problem.h"
#include "problem/quantize.h"
#include "problem/requantize_rules.h"
#include "problem/result_rules.h"

#include <string.h>

/* Values of one type, and nothing else about them. */
static int is_plain(const struct qn_recipe *r, int type)
{
    return !r->scaled && r->x == type && r->w == type && r->dy == type;
}

const struct qn_recipe *qn_dequantize_plain_of(const struct quern_context *ctx,
                                               int type)
{
    const struct quern_registry *const all[] = {ctx->base, ctx->linked};

    for (int i = 0; i < 2; i++)
        for (int r = 0; all[i] && r < all[i]->nrecipes; r++)
            if (is_plain(&all[i]->recipes[r], type))
                return &all[i]->recipes[r];
    return NULL;
}

const struct qn_recipe *qn_dequantize_plain(const struct quern_context *ctx)
{
    return qn_dequantize_plain_of(ctx, QUERN_BF16);
}

int qn_dequantize_type(const struct qn_problem *p,
                       const struct qn_recipe *recipe)
{
    struct qn_quantization q;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++)
        if (!qn_scale_source(p, recipe, role, &q) &&
            qn_quantize_element(&q, recipe) == QUERN_F16)
            return QUERN_F16;
    return QUERN_BF16;
}

/* Why one operand cannot be dequantized; NULL: it can. */
static const char *wrong_operand(const struct qn_problem *p,
                                 const struct qn_recipe *recipe, int role)
{
    struct qn_quantization q;
    const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);
    const int type = s ? QUERN_BF16 : qn_quantize_element(&q, recipe);

    if (type != QUERN_BF16 && type != QUERN_F16)
        return "operands without scales are multiplied directly, and must be "
               "bf16 or f16";
    if (!s)
        return NULL;
    if (!qn_scale_of_values(p, recipe, role, s))
        return "scales in fp32, or of more than a block, are factors of sums, "
               "not of values";
    return NULL;
}

/* Are both to be had in 16 bits, in launches before the product? */
int qn_dequantize_dequantizes(const struct qn_problem *p,
                              const struct qn_recipe *recipe)
{
    return p->dequantize != QUERN_DEQUANTIZE_F16 &&
           !wrong_operand(p, recipe, QN_ROLE_A) &&
           !wrong_operand(p, recipe, QN_ROLE_B);
}

/* Why a product of 16-bit values cannot be the problem's; NULL: it can. */
static const char *wrong_plain(struct quern_context *ctx,
                               const struct qn_problem *p,
                               const struct qn_recipe *recipe)
{
    const int f16 = qn_dequantize_type(p, recipe) == QUERN_F16;
    const struct qn_recipe *plain =
        qn_dequantize_plain_of(ctx, f16 ? QUERN_F16 : QUERN_BF16);
    const char *why = NULL;

    for (int role = QN_ROLE_A; !why && role <= QN_ROLE_B; role++)
        why = wrong_operand(p, recipe, role);
    if (!why && qn_dequantize_total(p, recipe) > QN_RAGGED_LIMIT)
        why = "groups that begin at multiples of 128 would pass 2^30 tokens";
    if (!why && !plain)
        why = f16 ? "no recipe has f16 for x, w and dy"
                  : "no recipe has bf16 for x, w and dy";
    if (!why && !(plain->d_types >> p->d_type & 1))
        why = f16 ? "no recipe of f16 writes such a D"
                  : "no recipe of bf16 writes such a D";
    return why;
}

const char *qn_dequantize_wrong(struct quern_context *ctx,
                                const struct qn_problem *p,
                                const struct qn_recipe *recipe, int strategy)
{
    const char *why = NULL;

    if (!qn_scale_any(p, recipe))
        why = "no operand has scales";
    else if (p->microbatches > 1)
        why = "microbatches: merged products have more operands than one "
              "workspace "
              "has room for";
    else if (qn_geometry_backward(p) && strategy != QUERN_DEQUANTIZE_PASS)
        why = "activation: both products of dgrad with an activation would "
              "write partial sums";
    else if (p->gather && p->dequantize != QUERN_DEQUANTIZE_PASS)
        why = "gather: rows that are gathered are multiplied as codes, or "
              "with dequantize=pass";
    else if (p->copies)
        why = "copies: a product of dequantized operands does not quantize its "
              "result";
    else if (p->quantize && p->dequantize != QUERN_DEQUANTIZE_PASS)
        why = "quantize: a that a run quantizes is dequantized in the mainloop "
              "or by dequantize=pass";
    if (!why && strategy == QUERN_DEQUANTIZE_FP8)
        why = qn_requantize_wrong(ctx, p, recipe);
    if (!why && strategy == QUERN_DEQUANTIZE_F16)
        why = qn_range_wrong(p, recipe);
    else if (!why && (strategy != QUERN_DEQUANTIZE_FP8 ||
                      qn_dequantize_dequantizes(p, recipe)))
        why = wrong_plain(ctx, p, recipe);
    return why;
}

int qn_dequantize_check(struct quern_context *ctx, const struct qn_problem *p,
                        const struct qn_recipe *recipe)
{
    struct qn_problem product;
    const char *why;

    qn_result_product(p, &product);
    why = qn_dequantize_wrong(ctx, &product, recipe, p->dequantize);
    return why ? qn_error_set(QUERN_EINVAL, "dequantize=%s: %s",
                              qn_dequantize_name(p->dequantize), why)
               : QUERN_OK;
}

int qn_dequantize_factors(const struct qn_problem *p,
                          const struct qn_recipe *recipe)
{
    struct qn_quantization q;
    int any = 0;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

        any |= s && s->global;
    }
    return any && qn_dequantize_dequantizes(p, recipe);
}

/* ---------------------------------------------------------------- operands */

int qn_dequantize_cast(const struct qn_problem *p,
                       const struct qn_recipe *recipe, int role,
                       struct qn_quantization *q)
{
    if (!qn_scale_source(p, recipe, role, q) ||
        !qn_dequantize_dequantizes(p, recipe))
        return 0;
    q->work = QUERN_DEQUANTIZE;
    q->type = qn_dequantize_type(p, recipe);
    return 1;
}

int qn_dequantize_align(const struct qn_problem *p,
                        const struct qn_recipe *recipe)
{
    struct qn_quantization q;
    int align = 0;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

        if (s && q.of != QN_W && q.copies == QUERN_COLUMNWISE && s->k > align)
            align = s->k;
    }
    return qn_dequantize_dequantizes(p, recipe) ? align : 0;
}

int64_t qn_dequantize_total(const struct qn_problem *p,
                            const struct qn_recipe *recipe)
{
    struct qn_quantization q;

    if (!qn_dequantize_align(p, recipe))
        return qn_geometry_length(p, p->ragged);
    qn_dequantize_cast(p, recipe, QN_ROLE_A, &q);
    return qn_quantize_tiles(&q) * 128;
}

/* The values of a rowwise tensor are where it is; those of a columnwise tensor
   have the layout of before they were quantized. */
static int major_of(const struct qn_problem *p, const struct qn_recipe *recipe,
                    int role)
{
    struct qn_quantization q;

    if (qn_dequantize_cast(p, recipe, role, &q) && q.copies == QUERN_COLUMNWISE)
        return QUERN_MAJOR_MN;
    return role == QN_ROLE_A ? p->a_major : p->b_major;
}

void qn_dequantize_product(struct quern_context *ctx,
                           const struct qn_problem *p,
                           const struct qn_recipe *recipe,
                           struct qn_problem *product)
{
    *product = *p;
    product->sizes = QUERN_SIZES_DEVICE;
    product->dequantize = QUERN_DEQUANTIZE_MAINLOOP;
    if (qn_fuse_sums(p)) /* by the cast */
        product->dbias = QUERN_NO_DBIAS;
    product->quantize = 0;
    if (!qn_dequantize_dequantizes(p, recipe))
        return;
    memset(product->recipe, 0, sizeof product->recipe);
    strncpy(product->recipe,
            qn_dequantize_plain_of(ctx, qn_dequantize_type(p, recipe))->name,
            sizeof product->recipe - 1);
    product->a_major = major_of(p, recipe, QN_ROLE_A);
    product->b_major = major_of(p, recipe, QN_ROLE_B);
    product->alpha |= qn_dequantize_factors(p, recipe);
    if (qn_dequantize_align(p, recipe))
        product->k = qn_dequantize_total(p, recipe);
    product->dequantize = QUERN_DEQUANTIZE_AUTO;
}

void qn_dequantize_first(struct quern_context *ctx,
                         const struct qn_problem *problem,
                         const struct qn_recipe *recipe, int strategy,
                         struct qn_problem *product)
{
    if (strategy == QUERN_DEQUANTIZE_FP8)
        qn_requantize_product(ctx, problem, recipe, product);
    else if (strategy == QUERN_DEQUANTIZE_F16)
        qn_range_product(problem, product);
    else if (strategy == QUERN_DEQUANTIZE_PASS)
        qn_dequantize_product(ctx, problem, recipe, product);
    else
        *product = *problem;
}

/* ------------------------------------------------------------------- space */

/* FP8 from `at` on; returns where it ends. */
static size_t lay_out_codes(const struct qn_problem *p,
                            const struct qn_recipe *recipe,
                            const struct qn_recipe *target, size_t at,
                            struct qn_dequantize_space *space)
{
    for (int role = QN_ROLE_A; target && role <= QN_ROLE_B; role++) {
        struct qn_tensor copy;

        if (!qn_requantize_does(p, recipe, role))
            continue;
        qn_requantize_copy(p, target, role, &copy);
        space->codes[role] = qn_space_add(&at, copy.bytes);
        space->scales[role] = qn_space_add(&at, copy.sf_bytes);
    }
    return at;
}

/* Bytes of an operand in 16 bits; 0: it is not dequantized. */
static size_t bytes_of(const struct qn_problem *p,
                       const struct qn_recipe *recipe, int role)
{
    struct qn_quantization q;
    int64_t rows;

    if (!qn_dequantize_cast(p, recipe, role, &q))
        return 0;
    rows = q.of == QN_W || p->gather ? q.groups * q.m
                                     : qn_dequantize_total(p, recipe);
    return (size_t)rows * (size_t)q.k * 2;
}

void qn_dequantize_lay_out(const struct qn_problem *p,
                           const struct qn_recipe *recipe,
                           const struct qn_recipe *target,
                           struct qn_dequantize_space *space)
{
    const size_t groups = (size_t)p->groups;
    const int has_factors = qn_dequantize_factors(p, recipe);
    const int has_sizes = qn_dequantize_align(p, recipe) != 0;
    const int has_flags = target || p->dequantize == QUERN_DEQUANTIZE_F16;
    struct qn_problem product = *p;
    size_t at, coded;

    product.sizes = QUERN_SIZES_DEVICE;
    at = qn_gradient_end(&product);
    space->brought =
        qn_space_add(&at, qn_host_size_bytes(p->sizes, p->groups, 1));
    space->factors =
        qn_space_add(&at, has_factors ? 2 * groups * sizeof(float) : 0);
    space->sizes =
        qn_space_add(&at, has_sizes ? (2 * groups + 1) * sizeof(int) : 0);
    space->count = qn_space_add(&at, p->gather ? sizeof(int) : 0);
    space->flags =
        qn_space_add(&at, has_flags ? QN_FLAGS * sizeof(unsigned) : 0);
    coded = lay_out_codes(p, recipe, target, at, space);
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++)
        space->operand[role] = qn_space_add(&at, bytes_of(p, recipe, role));
    space->end = at > coded ? at : coded;
}

size_t qn_dequantize_end(struct quern_context *ctx, const struct qn_problem *p,
                         const struct qn_recipe *recipe)
{
    int fp8 = qn_dequantize_may(ctx, p, recipe, QUERN_DEQUANTIZE_FP8);
    int ahead = fp8 || qn_dequantize_may(ctx, p, recipe, QUERN_DEQUANTIZE_PASS);
    struct qn_problem f16 = *p;
    struct qn_dequantize_space space;

    if (!ahead && !qn_dequantize_may(ctx, p, recipe, QUERN_DEQUANTIZE_F16))
        return 0;
    f16.dequantize = QUERN_DEQUANTIZE_F16;
    qn_dequantize_lay_out(ahead ? p : &f16, recipe,
                          fp8 ? qn_requantize_target(ctx, recipe) : NULL,
                          &space);
    return space.end;
}

/* ------------------------------------------------------------------- model */

#define MOVED                                                                  \
    1600.0                   /* bytes in a cycle, four of five of them written;
                               this and CHECKED on an H200 */
#define LAUNCHES     15000.0 /* cycles of three more, first and last tiles */
#define CHECKED      1500.0  /* bytes in a cycle, of scales */
#define LAUNCHES_F16 14000.0 /* of two more, one of which does nothing */

/* Codes, their scales, and the dequantized values. */
static double moved_bytes(const struct qn_problem *p,
                          const struct qn_recipe *recipe, int strategy)
{
    const int fp8 = strategy == QUERN_DEQUANTIZE_FP8;
    struct qn_quantization q;
    double bytes = 0;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

        if (s && (!fp8 || qn_requantize_does(p, recipe, role)))
            bytes += qn_quantize_values(&q) *
                     (qn_type_bits(qn_quantize_element(&q, recipe)) / 8.0 +
                      1.0 / s->k / s->rows + (fp8 ? 1 : 2));
    }
    return bytes;
}

/* The launches before the product. */
struct qn_dequantize_cost qn_dequantize_cost_of(const struct qn_problem *p,
                                                const struct qn_recipe *recipe,
                                                int strategy, double memory)
{
    struct qn_dequantize_cost cost;

    if (strategy == QUERN_DEQUANTIZE_F16) {
        cost.bytes = qn_range_bytes(p, recipe);
        cost.moving = cost.bytes / (CHECKED * memory) + LAUNCHES_F16;
    } else {
        cost.bytes = moved_bytes(p, recipe, strategy);
        cost.moving = cost.bytes / (MOVED * memory) + LAUNCHES;
    }
    cost.cycles = 0;
    return cost;
}

int qn_dequantize_may(struct quern_context *ctx, const struct qn_problem *p,
                      const struct qn_recipe *recipe, int strategy)
{
    if (p->dequantize != QUERN_DEQUANTIZE_AUTO)
        return p->dequantize == strategy;
    if (strategy == QUERN_DEQUANTIZE_FP8 && !qn_requantize_sums(recipe))
        return 0; /* narrower sums: only if asked */
    return !qn_dequantize_wrong(ctx, p, recipe, strategy);
}
