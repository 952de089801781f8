/* SPDX-License-Identifier: Apache-2.0 */
/*
** infer.c: the problem that two tensors and the axes to be summed make.
**
** Each tensor collapses to a matrix at the boundary between its summed and its
** free axes; its ragged axis, and the side of the boundary that it is on,
** determine the canonical product's ragged axis:
**
**     a's free axes   b grouped                       m
**     b's free axes   a grouped                       n
**     summed axes     of both                         k
**     nothing         both grouped                    none
*/
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/problem.h"
#include "problem/scale.h"

#include <string.h>

/* Which of a matrix's two sides is split among the groups. */
enum side { SIDE_NONE, SIDE_FREE, SIDE_SUM };

/* A or B, collapsed. */
struct matrix {
    char name;
    int major;      /* enum quern_major */
    enum side side; /* that is ragged; none: a matrix for each group */
    int64_t free, sum;
};

/* ---------------------------------------------------------------- collapse */

/* The product of axes begin .. end - 1. */
static int multiply(char name, const struct quern_shape *s, int begin, int end,
                    int64_t *product)
{
    *product = 1;
    for (int i = begin; i < end; i++)
        if (s->shape[i] < 0 ||
            __builtin_mul_overflow(*product, s->shape[i], product))
            return qn_error_set(QUERN_EINVAL,
                                "%c.shape[%d] is %lld: lengths are 0 or more, "
                                "and their product has 64 bits",
                                name, i, (long long)s->shape[i]);
    return QUERN_OK;
}

static int check_rank(char name, const struct quern_shape *s, int least)
{
    if (s->ndim >= least && s->ndim <= QUERN_MAX_RANK)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "%c.ndim is %d: %d to %d are possible",
                        name, s->ndim, least, QUERN_MAX_RANK);
}

/* One axis at most is split; offsets without others are of the first. */
static int check_arrays(char name, const struct quern_shape *s)
{
    if (!s->first_dims || !s->last_dims)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%c has first_dims and last_dims: one axis of a "
                        "tensor can be ragged",
                        name);
}

static int is_ragged(const struct quern_shape *s)
{
    return s->first_dims || s->last_dims || s->offsets;
}

/* Without sizes of its own, a tensor begins with the groups. */
static int check_groups(char name, const struct quern_shape *s, int groups)
{
    if (is_ragged(s) || s->shape[0] == groups)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%c.shape[0] is %lld: without first_dims, last_dims "
                        "and offsets, %c's first axis counts the groups, %d",
                        name, (long long)s->shape[0], name, groups);
}

/* Summed axes exist, and are at one end of the axes other than the group
   axis. */
static int check_sum(char name, const struct quern_shape *s, int first)
{
    if (s->sum_begin < first || s->sum_end > s->ndim ||
        s->sum_begin >= s->sum_end)
        return qn_error_set(QUERN_EINVAL,
                            "%c.sum_begin is %d and %c.sum_end %d: one or more "
                            "axes from %d to %d must be summed%s",
                            name, s->sum_begin, name, s->sum_end, first,
                            s->ndim - 1,
                            first ? "; axis 0 counts the groups" : "");
    if (s->sum_begin == first || s->sum_end == s->ndim)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%c's summed axes %d to %d have others on both sides: "
                        "a matrix needs them first or last",
                        name, s->sum_begin, s->sum_end - 1);
}

/* Rows come first; last_dims are of the columns. */
static enum side ragged_side(const struct quern_shape *s, int sum_last)
{
    if (!is_ragged(s))
        return SIDE_NONE;
    return sum_last == (s->last_dims != 0) ? SIDE_SUM : SIDE_FREE;
}

/* Are the summed axes the columns? If there are no others, the given array
   tells: first_dims are of rows. */
static int sums_columns(const struct quern_shape *s, int first)
{
    if (s->sum_begin == first && s->sum_end == s->ndim)
        return !is_ragged(s) || s->last_dims;
    return s->sum_end == s->ndim;
}

static int collapse(char name, const struct quern_shape *s, int groups,
                    struct matrix *out)
{
    int first = is_ragged(s) ? 0 : 1, sum_last;
    int code = check_rank(name, s, 1);

    if (!code)
        code = check_arrays(name, s);
    if (!code)
        code = check_groups(name, s, groups);
    if (!code)
        code = check_sum(name, s, first);
    if (code)
        return code;
    sum_last = sums_columns(s, first);
    *out = (struct matrix){.name = name,
                           .major = sum_last ? QUERN_MAJOR_K : QUERN_MAJOR_MN,
                           .side = ragged_side(s, sum_last)};
    code = multiply(name, s, s->sum_begin, s->sum_end, &out->sum);
    if (!code)
        code = multiply(name, s, sum_last ? first : s->sum_end,
                        sum_last ? s->sum_begin : s->ndim, &out->free);
    return code;
}

/* ------------------------------------------------------------------- match */

/* Axis by axis, so that a transposed pair is not taken for a match. */
static int match_sums(const struct quern_shape *a, const struct quern_shape *b)
{
    int count = a->sum_end - a->sum_begin;

    if (count != b->sum_end - b->sum_begin)
        return qn_error_set(QUERN_EINVAL,
                            "a sums %d axes and b %d: the same ones must be "
                            "summed in both",
                            count, b->sum_end - b->sum_begin);
    for (int i = 0; i < count; i++) {
        int x = a->sum_begin + i, y = b->sum_begin + i;

        if (a->shape[x] != b->shape[y])
            return qn_error_set(QUERN_EINVAL,
                                "a.shape[%d] is %lld and b.shape[%d] %lld: "
                                "summed axes have the same length in both",
                                x, (long long)a->shape[x], y,
                                (long long)b->shape[y]);
    }
    return QUERN_OK;
}

/* The table at the head of this file. */
static int find_ragged(const struct matrix *a, const struct matrix *b,
                       int *ragged)
{
    const struct matrix *sum = a->side == SIDE_SUM ? a : b;

    if (a->side == SIDE_SUM && b->side == SIDE_SUM)
        *ragged = QUERN_AXIS_K;
    else if (a->side == SIDE_SUM || b->side == SIDE_SUM)
        return qn_error_set(QUERN_EINVAL,
                            "%c is ragged along the summed axes and %c is not: "
                            "both have them, so both must be",
                            sum->name, sum == a ? 'b' : 'a');
    else if (a->side == SIDE_FREE && b->side == SIDE_FREE)
        return qn_error_set(QUERN_EINVAL,
                            "a and b are both ragged along axes that are not "
                            "summed: one of them must be a matrix for each "
                            "group, or D would be ragged along two");
    else
        *ragged = a->side == SIDE_FREE   ? QUERN_AXIS_M
                  : b->side == SIDE_FREE ? QUERN_AXIS_N
                                         : QUERN_AXIS_NONE;
    return QUERN_OK;
}

/* ---------------------------------------------------------------------- op */

/* Does the recipe have these types for the op's operands? */
static int op_takes(const struct qn_recipe *r, int op, int a, int b)
{
    return a == (op == QUERN_FPROP ? r->x : r->dy) &&
           b == (op == QUERN_WGRAD ? r->x : r->w);
}

/* How usual such a problem is for the op. */
static int op_fits(const struct qn_problem *p, const struct qn_recipe *recipe,
                   int op)
{
    struct qn_problem usual = {.op = op};
    int token_axis = op == QUERN_WGRAD ? QUERN_AXIS_K : QUERN_AXIS_M;

    qn_problem_defaults(&usual, recipe);
    return 4 * (p->ragged == token_axis) + 2 * (p->b_major == usual.b_major) +
           (p->a_major == usual.a_major);
}

/* Only layouts that the types allow; the most usual of those. */
static int find_op(const struct qn_recipe *recipe, int a, int b,
                   struct qn_problem *p)
{
    int best = -1;

    for (int op = QUERN_FPROP; op <= QUERN_WGRAD; op++) {
        int fit = op_takes(recipe, op, a, b) ? op_fits(p, recipe, op) : -1;

        if (fit > best) {
            best = fit;
            p->op = op;
        }
    }
    if (best >= 0)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "a.type is %s and b.type %s: recipe %s has %s for x, "
                        "%s for w and %s for dy, and multiplies x by w, dy by "
                        "w or dy by x",
                        qn_type_name(a), qn_type_name(b), recipe->name,
                        qn_type_name(recipe->x), qn_type_name(recipe->w),
                        qn_type_name(recipe->dy));
}

/* A columnwise tensor's columns are a bound on the tokens of all groups, each
   aligned to 128: the most tokens that need no more columns. */
static int find_tokens(const struct qn_recipe *recipe, struct qn_problem *p)
{
    const int64_t tile = 128, columns = p->k;

    if (p->op != QUERN_WGRAD || !qn_scale_any(p, recipe))
        return QUERN_OK;
    p->k = columns + (tile - 1) * (1 - (int64_t)p->groups);
    if (columns % tile == 0 && p->k >= 0)
        return QUERN_OK;
    return qn_error_set(
        QUERN_EINVAL,
        "a sums %lld columns: a columnwise tensor of k tokens in %d "
        "groups has (k + 127 * %d) / 128 * 128 of them",
        (long long)columns, p->groups, p->groups);
}

/* ----------------------------------------------------------------------- d */

/* D is split as the product is, by rows or by columns or not at all. */
static int check_d_arrays(const struct quern_shape *d, int ragged)
{
    static const struct {
        const char *name;
        int axis;
    } arrays[] = {{"first_dims", QUERN_AXIS_M}, {"last_dims", QUERN_AXIS_N}};
    const int given[] = {d->first_dims, d->last_dims};

    for (int i = 0; i < 2; i++)
        if (given[i] && ragged != arrays[i].axis)
            return qn_error_set(QUERN_EINVAL,
                                "d.%s is given: the product is ragged along "
                                "%s, so D is %s",
                                arrays[i].name, qn_axis_name(ragged),
                                ragged == QUERN_AXIS_M   ? "split by rows"
                                : ragged == QUERN_AXIS_N ? "split by columns"
                                                         : "a matrix for each "
                                                           "group");
    if (d->offsets && ragged != QUERN_AXIS_M && ragged != QUERN_AXIS_N)
        return qn_error_set(QUERN_EINVAL,
                            "d.offsets is given: the product is ragged along "
                            "%s, so D is a matrix for each group",
                            qn_axis_name(ragged));
    return QUERN_OK;
}

/* Some boundary must leave m before it and n after it. */
static int check_d_shape(const struct quern_shape *d,
                         const struct qn_problem *p)
{
    int grouped = p->ragged != QUERN_AXIS_M && p->ragged != QUERN_AXIS_N;

    if (grouped && d->shape[0] != p->groups)
        return qn_error_set(QUERN_EINVAL,
                            "d.shape[0] is %lld: D is a matrix for each group, "
                            "so its first axis counts the groups, %d",
                            (long long)d->shape[0], p->groups);
    for (int i = grouped; i <= d->ndim; i++) {
        int64_t m, n;
        int code = multiply('d', d, grouped, i, &m);

        if (!code)
            code = multiply('d', d, i, d->ndim, &n);
        if (code)
            return code;
        if (m == p->m && n == p->n)
            return QUERN_OK;
    }
    return qn_error_set(
        QUERN_EINVAL,
        "d.shape has no boundary between m=%lld rows and "
        "n=%lld columns: a's free axes come first, b's after them",
        (long long)p->m, (long long)p->n);
}

/* A given D must agree with the inferred one. */
static int check_d(const struct quern_shape *d, const struct qn_problem *p)
{
    int code = check_d_arrays(d, p->ragged);

    if (!code && (d->sum_begin || d->sum_end))
        code = qn_error_set(QUERN_EINVAL,
                            "d.sum_begin is %d and d.sum_end %d: nothing of D "
                            "is summed, 0 is expected",
                            d->sum_begin, d->sum_end);
    if (code || d->ndim == 0)
        return code;
    code = check_rank('d', d, 1);
    return code ? code : check_d_shape(d, p);
}

/* --------------------------------------------------------------------- all */

/* Everything but the op and the type of D. */
static int infer_product(const struct qn_contraction *c, struct qn_problem *p)
{
    struct matrix a, b;
    int code = collapse('a', &c->a, c->groups, &a);

    if (!code)
        code = collapse('b', &c->b, c->groups, &b);
    if (!code)
        code = match_sums(&c->a, &c->b);
    if (!code)
        code = find_ragged(&a, &b, &p->ragged);
    if (code)
        return code;
    p->a_major = a.major;
    p->b_major = b.major;
    p->m = a.free;
    p->n = b.free;
    p->k = a.sum;
    return QUERN_OK;
}

int qn_infer(struct quern_context *ctx, const struct qn_contraction *c,
             struct qn_problem *problem)
{
    struct qn_problem p = {.op = 0};
    const struct qn_recipe *recipe;
    int code;

    if (!ctx || !c || !problem || !c->recipe)
        return qn_error_set(QUERN_EINVAL, "%s is NULL",
                            !ctx       ? "ctx"
                            : !c       ? "contraction"
                            : !problem ? "problem"
                                       : "contraction.recipe");
    recipe = qn_context_recipe(ctx, c->recipe);
    if (!recipe || strlen(recipe->name) >= sizeof p.recipe)
        return qn_problem_no_recipe(ctx, c->recipe);
    strcpy(p.recipe, recipe->name);
    p.groups = c->groups;
    p.alpha = c->alpha;
    p.beta = c->beta;
    p.alignment = c->alignment;
    p.pointers = c->pointers;
    p.d_type = c->d.type ? c->d.type : recipe->default_d;
    code = qn_problem_groups(c->groups);
    if (!code)
        code = infer_product(c, &p);
    if (!code)
        code = find_op(recipe, c->a.type, c->b.type, &p);
    if (!code)
        code = find_tokens(recipe, &p);
    if (!code)
        code = check_d(&c->d, &p);
    if (!code)
        code = qn_problem_check(ctx, &p, NULL);
    if (!code)
        *problem = p;
    return code;
}
