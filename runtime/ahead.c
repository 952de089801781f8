/*
** ahead.c: whether a product's operands become bf16 before it, and what that
** takes.
**
** A kernel that expands beside its products is held up by the warps that do
** it; the model of kernels knows by how much (expand.c), sizes alone do not:
** there it is INSIDE times what the products take (bench/NOTES.md, 12).
** Launches before it read all codes and scales, write two bytes for each value,
** and leave a plain product:
**
**     ahead  = product + bytes / MOVED + LAUNCHES
**     inside = max(waves * tile, memory)                      (expand.c)
**              SIXTEENS as many cycles where tokens are summed
**     fp8    = product in FP8 + bytes / CODED + LAUNCHES_FP8
**     f16    = inside, as f16 + bytes / LOOKED + LAUNCHES_F16
**
** So it is worth its while where many rows meet each weight. Whether it could
** be, sizes alone tell, with the products of a whole chip instead of tiles: a
** description says what the workspace may have to hold.
*/
#include "ahead.h"
#include "expand.h"
#include "host_sizes.h"
#include "gradient.h"
#include "problem.h"
#include "result.h"
#include "select.h"
#include "types.h"

#include <stdlib.h>
#include <string.h>

#define INSIDE       2.5    /* of the cycles of the products, by sizes alone */
#define MOVED        1600.0 /* bytes in a cycle, four of five of them written */
#define LAUNCHES     15000.0 /* cycles of three more, first and last tiles */
#define NARROW       0.5     /* of the cycles of the products: FP8's */
#define CODED        2000.0 /* bytes in a cycle, two of three of them written */
#define LAUNCHES_FP8 30000.0 /* of six more, three of which do nothing */
#define LOOKED       1500.0  /* bytes in a cycle, of scales */
#define SIXTEENS     1.1     /* scales of 16 tokens, to who expands beside */
#define LAUNCHES_F16 14000.0 /* of two more, one of which does nothing */
#define SMS          132     /* where no GPU is asked */

/* ------------------------------------------------------------------- rules */

/* Values that are bf16, and nothing else about them. */
static int is_plain(const struct qn_recipe *r)
{
    return !r->scaled && r->x == QUERN_BF16 && r->w == QUERN_BF16 &&
           r->dy == QUERN_BF16;
}

const struct qn_recipe *qn_ahead_plain(const struct quern_context *ctx)
{
    const struct quern_registry *const all[] = {ctx->base, ctx->linked};

    for (int i = 0; i < 2; i++)
        for (int r = 0; all[i] && r < all[i]->nrecipes; r++)
            if (is_plain(&all[i]->recipes[r]))
                return &all[i]->recipes[r];
    return NULL;
}

/* What keeps one operand from being expanded; NULL: nothing does. */
static const char *wrong_operand(const struct quern_problem *p,
                                 const struct qn_recipe *recipe, int role)
{
    struct quern_quantization q;
    const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

    if (!s)
        return qn_quantize_element(&q, recipe) == QUERN_BF16
                   ? NULL
                   : "what has no scales is multiplied as it is, and must be "
                     "bf16";
    if (s->span != QN_SPAN_BLOCK || s->type == QUERN_F32)
        return "scales in fp32, or of more than a block, are factors of sums, "
               "not of values";
    return NULL;
}

/* Are both to be had in bf16, in launches before the product? */
static int expands(const struct quern_problem *p,
                   const struct qn_recipe *recipe)
{
    return p->expand != QUERN_EXPAND_F16 &&
           !wrong_operand(p, recipe, QN_ROLE_A) &&
           !wrong_operand(p, recipe, QN_ROLE_B);
}

/* Why a product of bf16 cannot be the problem's; NULL: it can. */
static const char *wrong_bf16(struct quern_context *ctx,
                              const struct quern_problem *p,
                              const struct qn_recipe *recipe)
{
    const struct qn_recipe *plain = qn_ahead_plain(ctx);
    const char *why = NULL;

    for (int role = QN_ROLE_A; !why && role <= QN_ROLE_B; role++)
        why = wrong_operand(p, recipe, role);
    if (!why && qn_ahead_total(p, recipe) > QN_RAGGED_LIMIT)
        why = "groups that begin at multiples of 128 would pass 2^30 tokens";
    if (!why && !plain)
        why = "no recipe has bf16 for x, w and dy";
    if (!why && !(plain->d_types >> p->d_type & 1))
        why = "no recipe of bf16 writes such a D";
    return why;
}

const char *qn_ahead_wrong(struct quern_context *ctx,
                           const struct quern_problem *p,
                           const struct qn_recipe *recipe, int way)
{
    const char *why = NULL;

    if (!qn_scale_any(p, recipe))
        why = "no operand has scales";
    else if (p->parts > 1)
        why = "parts: merged products have more operands than one workspace "
              "has room for";
    else if (qn_geometry_back(p) && way != QUERN_EXPAND_AHEAD)
        why = "activation: of two products each would leave sums for launches "
              "behind it";
    else if (p->copies)
        why = "copies: a product of what was expanded makes none of its result";
    else if (p->quantize)
        why = "quantize: what a run makes of a is expanded where it is "
              "multiplied; quantize a by itself";
    if (!why && way == QUERN_EXPAND_FP8)
        why = qn_reencode_wrong(ctx, p, recipe);
    if (!why && way == QUERN_EXPAND_F16)
        why = qn_look_wrong(p, recipe);
    else if (!why && (way != QUERN_EXPAND_FP8 || expands(p, recipe)))
        why = wrong_bf16(ctx, p, recipe);
    return why;
}

int qn_ahead_check(struct quern_context *ctx, const struct quern_problem *p,
                   const struct qn_recipe *recipe)
{
    struct quern_problem product;
    const char *why;

    qn_result_product(p, &product);
    why = qn_ahead_wrong(ctx, &product, recipe, p->expand);
    return why ? qn_error_set(QUERN_EINVAL, "expand=%s: %s",
                              qn_expand_name(p->expand), why)
               : QUERN_OK;
}

int qn_ahead_factors(const struct quern_problem *p,
                     const struct qn_recipe *recipe)
{
    struct quern_quantization q;
    int any = 0;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

        any |= s && s->global;
    }
    return any && expands(p, recipe);
}

/* ----------------------------------------------------------- what it is of */

int qn_ahead_cast(const struct quern_problem *p, const struct qn_recipe *recipe,
                  int role, struct quern_quantization *q)
{
    if (!qn_scale_source(p, recipe, role, q) || !expands(p, recipe))
        return 0;
    q->work = QUERN_DEQUANTIZE;
    return 1;
}

int qn_ahead_align(const struct quern_problem *p,
                   const struct qn_recipe *recipe)
{
    struct quern_quantization q;
    int align = 0;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

        if (s && q.of != QUERN_W && q.copies == QUERN_COLUMN && s->k > align)
            align = s->k;
    }
    return expands(p, recipe) ? align : 0;
}

int64_t qn_ahead_total(const struct quern_problem *p,
                       const struct qn_recipe *recipe)
{
    struct quern_quantization q;

    if (!qn_ahead_align(p, recipe))
        return qn_geometry_length(p, p->ragged);
    qn_ahead_cast(p, recipe, QN_ROLE_A, &q);
    return qn_quantize_tiles(&q) * 128;
}

/* A row copy stays k-major; of a column copy the numbers lie as they did before
   they were quantized. */
static int major_of(const struct quern_problem *p,
                    const struct qn_recipe *recipe, int role)
{
    struct quern_quantization q;

    return qn_ahead_cast(p, recipe, role, &q) && q.copies == QUERN_COLUMN
               ? QUERN_MAJOR_MN
               : QUERN_MAJOR_K;
}

void qn_ahead_product(struct quern_context *ctx, const struct quern_problem *p,
                      const struct qn_recipe *recipe,
                      struct quern_problem *product)
{
    *product = *p;
    product->sizes = QUERN_SIZES_DEVICE;
    product->expand = QUERN_EXPAND_INSIDE;
    if (!expands(p, recipe))
        return;
    memset(product->recipe, 0, sizeof product->recipe);
    strncpy(product->recipe, qn_ahead_plain(ctx)->name,
            sizeof product->recipe - 1);
    product->a_major = major_of(p, recipe, QN_ROLE_A);
    product->b_major = major_of(p, recipe, QN_ROLE_B);
    product->alpha |= qn_ahead_factors(p, recipe);
    if (qn_ahead_align(p, recipe))
        product->k = qn_ahead_total(p, recipe);
    product->expand = QUERN_EXPAND_AUTO;
}

/* ------------------------------------------------------------------- space */

size_t qn_ahead_brought(const struct quern_problem *p)
{
    struct quern_problem product = *p;

    product.sizes = QUERN_SIZES_DEVICE;
    return qn_padded(qn_gradient_end(&product));
}

/* FP8 from `at` on; returns where it ends. */
static size_t lay_out_codes(const struct quern_problem *p,
                            const struct qn_recipe *recipe,
                            const struct qn_recipe *blocks, size_t at,
                            struct qn_ahead_space *space)
{
    for (int role = QN_ROLE_A; blocks && role <= QN_ROLE_B; role++) {
        struct quern_tensor copy;

        if (!qn_reencode_does(p, recipe, role))
            continue;
        qn_reencode_copy(p, blocks, role, &copy);
        space->codes[role] = at;
        at += qn_padded(copy.bytes);
        space->scales[role] = at;
        at += qn_padded(copy.sf_bytes);
    }
    return at;
}

void qn_ahead_lay_out(const struct quern_problem *p,
                      const struct qn_recipe *recipe,
                      const struct qn_recipe *blocks,
                      struct qn_ahead_space *space)
{
    const size_t groups = (size_t)p->groups;
    size_t at = qn_padded(qn_ahead_brought(p) +
                          qn_host_size_bytes(p->sizes, p->groups, 1));
    size_t coded;
    struct quern_quantization q;
    size_t rows;

    space->factors = at;
    if (qn_ahead_factors(p, recipe))
        at += qn_padded(2 * groups * sizeof(float));
    space->sizes = at;
    if (qn_ahead_align(p, recipe))
        at += qn_padded((2 * groups + 1) * sizeof(int));
    space->flags = at;
    if (blocks || p->expand == QUERN_EXPAND_F16)
        at += qn_padded(QN_FLAGS * sizeof(unsigned));
    coded = lay_out_codes(p, recipe, blocks, at, space);
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        space->operand[role] = at;
        if (!qn_ahead_cast(p, recipe, role, &q))
            continue;
        rows = q.of == QUERN_W ? groups * (size_t)q.m
                               : (size_t)qn_ahead_total(p, recipe);
        at += qn_padded(rows * (size_t)q.k * 2);
    }
    space->end = at > coded ? at : coded;
}

size_t qn_ahead_end(struct quern_context *ctx, const struct quern_problem *p,
                    const struct qn_recipe *recipe)
{
    int fp8 = qn_ahead_may(ctx, p, recipe, QUERN_EXPAND_FP8);
    int ahead = fp8 || qn_ahead_may(ctx, p, recipe, QUERN_EXPAND_AHEAD);
    struct quern_problem f16 = *p;
    struct qn_ahead_space space;

    if (!ahead && !qn_ahead_may(ctx, p, recipe, QUERN_EXPAND_F16))
        return 0;
    f16.expand = QUERN_EXPAND_F16;
    qn_ahead_lay_out(ahead ? p : &f16, recipe,
                     fp8 ? qn_reencode_blocks(ctx) : NULL, &space);
    return space.end;
}

/* ------------------------------------------------------------------- model */

/* Codes, their scales, and what they become. */
static double moved_bytes(const struct quern_problem *p,
                          const struct qn_recipe *recipe)
{
    struct quern_quantization q;
    double bytes = 0;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

        if (s)
            bytes += qn_quantize_values(&q) *
                     (qn_type_bits(qn_quantize_element(&q, recipe)) / 8.0 +
                      1.0 / s->k / s->rows + 2);
    }
    return bytes;
}

/* What comes before the product. */
static struct qn_ahead_cost cost_of(const struct quern_problem *p,
                                    const struct qn_recipe *recipe, int way)
{
    struct qn_ahead_cost cost;

    if (way == QUERN_EXPAND_FP8) {
        cost.bytes = qn_reencode_bytes(p, recipe);
        cost.moving = cost.bytes / CODED + LAUNCHES_FP8;
    } else if (way == QUERN_EXPAND_F16) {
        cost.bytes = qn_look_bytes(p, recipe);
        cost.moving = cost.bytes / LOOKED + LAUNCHES_F16;
    } else {
        cost.bytes = moved_bytes(p, recipe);
        cost.moving = cost.bytes / MOVED + LAUNCHES;
    }
    cost.cycles = 0;
    return cost;
}

double qn_ahead_moving(const struct quern_problem *p,
                       const struct qn_recipe *recipe)
{
    return cost_of(p, recipe, QUERN_EXPAND_AHEAD).moving;
}

int qn_ahead_may(struct quern_context *ctx, const struct quern_problem *p,
                 const struct qn_recipe *recipe, int way)
{
    double math =
        (double)p->m * (double)p->n * (double)p->k / (QN_FMA_PER_CYCLE * SMS);

    if (p->expand != QUERN_EXPAND_AUTO)
        return p->expand == way;
    return !qn_ahead_wrong(ctx, p, recipe, way) &&
           (way == QUERN_EXPAND_FP8 ? NARROW : 1) * math +
                   cost_of(p, recipe, way).moving <
               INSIDE * math;
}

/* ------------------------------------------------------------------ choice */

/* The kernel that would run of a problem, whatever the options name. */
static int best(const struct qn_session *s, const struct quern_problem *p,
                const struct qn_recipe *recipe, struct qn_choice *out)
{
    struct qn_demand demand = s->demand;

    demand.problem = p;
    demand.recipe = recipe;
    demand.kernel = NULL;
    return qn_select_best(s->ctx, &demand, out);
}

void qn_ahead_first(struct quern_context *ctx,
                    const struct quern_problem *problem,
                    const struct qn_recipe *recipe, int way,
                    struct quern_problem *product)
{
    if (way == QUERN_EXPAND_FP8)
        qn_reencode_product(ctx, problem, product);
    else if (way == QUERN_EXPAND_F16)
        qn_look_product(problem, product);
    else if (way == QUERN_EXPAND_AHEAD)
        qn_ahead_product(ctx, problem, recipe, product);
    else
        *product = *problem;
}

/* The way with its product. 0: no kernel serves that; -1: an error. */
static int judge_way(const struct qn_session *s, int way,
                     struct qn_ahead_cost *cost)
{
    const struct qn_recipe *recipe = s->demand.recipe;
    struct quern_problem product;
    struct qn_choice plain;
    int found;

    if (!qn_ahead_may(s->ctx, s->problem, recipe, way))
        return 0;
    qn_ahead_first(s->ctx, s->problem, recipe, way, &product);
    found =
        best(s, &product, qn_context_recipe(s->ctx, product.recipe), &plain);
    if (found <= 0)
        return found;
    *cost = cost_of(s->problem, recipe, way);
    cost->cycles = plain.figures.cycles + cost->moving;
    return 1;
}

/* Compare the kernel that would expand with those that would not have to. FP8
   needs the way behind it. */
static int judge(struct qn_session *s, struct qn_ahead_choice *choice)
{
    struct qn_ahead_cost *cost = choice->cost;
    struct qn_choice inside;
    double least;
    int found = best(s, s->problem, s->demand.recipe, &inside);

    if (found <= 0 || (!qn_expand_does(inside.candidate->kernel) &&
                       expands(s->problem, s->demand.recipe)))
        return found < 0 ? QUERN_ENOMEM : QUERN_OK;
    least = inside.figures.waves * inside.figures.tile_cycles;
    if (s->problem->ragged == QUERN_AXIS_K &&
        s->demand.recipe->scaling[QUERN_X].k <= 16)
        least *= SIXTEENS;
    if (least < inside.figures.memory_cycles)
        least = inside.figures.memory_cycles;
    cost[QUERN_EXPAND_INSIDE].cycles = least;
    for (int way = QUERN_EXPAND_AHEAD; way <= QUERN_EXPAND_F16; way++) {
        found = judge_way(s, way, &cost[way]);
        if (found < 0)
            return QUERN_ENOMEM;
        choice->judged |= found;
        if (!found || cost[way].cycles >= least)
            continue;
        choice->way = way;
        least = cost[way].cycles;
    }
    return QUERN_OK;
}

/* What was measured goes before what the model says. */
static int prefer(struct qn_session *s, struct qn_ahead_choice *choice)
{
    int code = qn_tuned_look(s);
    int way = s->tuned.known ? (int)s->tuned.found.line.expand : 0;

    choice->tuned = choice->cost[way].cycles > 0;
    if (choice->tuned)
        choice->way = way;
    return code;
}

int qn_ahead_choose(struct qn_session *s, struct qn_ahead_choice *choice)
{
    const struct quern_problem *p = s->problem;
    int code;

    memset(choice, 0, sizeof *choice);
    choice->asked = p->expand > QUERN_EXPAND_INSIDE;
    choice->way = choice->asked ? p->expand : QUERN_EXPAND_INSIDE;
    choice->model = choice->way;
    if (choice->asked && s->demand.backend == QUERN_BACKEND_CUBLASLT)
        return qn_error_set(QUERN_EINVAL,
                            "expand=%s: the cublaslt backend multiplies "
                            "copies as they are",
                            qn_expand_name(p->expand));
    if (p->expand != QUERN_EXPAND_AUTO || s->demand.kernel ||
        s->demand.backend == QUERN_BACKEND_CUBLASLT ||
        s->demand.backend == QUERN_BACKEND_HOST ||
        !qn_ahead_end(s->ctx, p, s->demand.recipe))
        return QUERN_OK;
    code = judge(s, choice);
    choice->model = choice->way;
    return code ? code : prefer(s, choice);
}

int qn_ahead_next(const struct qn_ahead_choice *choice)
{
    const struct qn_ahead_cost *cost = choice->cost;

    if (choice->tuned && choice->way != choice->model)
        return choice->model;
    return choice->way == QUERN_EXPAND_FP8 &&
                   cost[QUERN_EXPAND_AHEAD].cycles > 0 &&
                   cost[QUERN_EXPAND_AHEAD].cycles <
                       cost[QUERN_EXPAND_INSIDE].cycles
               ? QUERN_EXPAND_AHEAD
               : QUERN_EXPAND_INSIDE;
}
