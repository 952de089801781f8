/*
** reencode.c: which products may have their operands as FP8, and the launches
** that make these.
*/
#include "reencode.h"
#include "scale.h"
#include "types.h"

#include <string.h>

/* ------------------------------------------------------------------- rules */

/* Scales of 128 values of a line, as the launches before write them.
                                    COUPLED: reencode */
static int is_lines(const struct qn_scaling *s)
{
    return s->span == QN_SPAN_BLOCK && s->type == QUERN_F32 && s->rows == 1 &&
           s->k == 128 && s->order == QN_ORDER_COLUMNS && s->pad_rows == 4 &&
           s->pad_columns == 1 && !s->global && !s->hadamard;
}

/* And of 128 x 128. */
static int is_squares(const struct qn_scaling *s)
{
    return s->span == QN_SPAN_BLOCK && s->type == QUERN_F32 && s->rows == 128 &&
           s->k == 128 && s->order == QN_ORDER_ROWS && s->pad_rows == 1 &&
           s->pad_columns == 4 && !s->global;
}

static int is_blocks(const struct qn_recipe *r)
{
    return r->x == QUERN_E4M3 && r->w == QUERN_E4M3 && r->dy == QUERN_E4M3 &&
           r->promote == 128 && is_lines(&r->scaling[QUERN_X]) &&
           is_squares(&r->scaling[QUERN_W]) && is_lines(&r->scaling[QUERN_DY]);
}

const struct qn_recipe *qn_reencode_blocks(const struct quern_context *ctx)
{
    const struct quern_registry *const all[] = {ctx->base, ctx->linked};

    for (int i = 0; i < 2; i++)
        for (int r = 0; all[i] && r < all[i]->nrecipes; r++)
            if (is_blocks(&all[i]->recipes[r]))
                return &all[i]->recipes[r];
    return NULL;
}

/* Values as the product takes them. */
static int is_coded(const struct quern_quantization *q,
                    const struct qn_recipe *recipe)
{
    const struct qn_scaling *s = &recipe->scaling[q->of];

    return qn_quantize_element(q, recipe) == QUERN_E4M3 &&
           (q->of == QUERN_W ? is_squares(s) : is_lines(s));
}

int qn_reencode_does(const struct quern_problem *p,
                     const struct qn_recipe *recipe, int role)
{
    struct quern_quantization q;

    return qn_scale_source(p, recipe, role, &q) && !is_coded(&q, recipe);
}

/* What keeps one operand from being encoded again; NULL: nothing does. */
static const char *wrong_operand(const struct quern_problem *p,
                                 const struct qn_recipe *recipe, int role)
{
    struct quern_quantization q;
    const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);
    int type = qn_quantize_element(&q, recipe);

    if (s && is_coded(&q, recipe))
        return NULL;
    if (!s)
        return "values of 16 bits have more digits than e4m3";
    if (type == QUERN_E4M3 || type == QUERN_E5M2)
        return "e4m3's own values use all of e4m3's exponents: blocks whose "
               "scales differ have no scale in common";
    if (s->type == QUERN_E4M3)
        return "a scale of e4m3 has four digits of its own: a value times it "
               "has six, and e4m3 has four";
    if (type != QUERN_E2M1 || s->type != QUERN_E8M0 ||
        s->span != QN_SPAN_BLOCK || s->global)
        return "values of e2m1 with scales of e8m0 in one level are encoded "
               "again, no others";
    return NULL;
}

const char *qn_reencode_wrong(const struct quern_context *ctx,
                              const struct quern_problem *p,
                              const struct qn_recipe *recipe)
{
    const struct qn_recipe *blocks = qn_reencode_blocks(ctx);
    const char *why = NULL;

    for (int role = QN_ROLE_A; !why && role <= QN_ROLE_B; role++)
        why = wrong_operand(p, recipe, role);
    if (!why && !qn_reencode_does(p, recipe, QN_ROLE_A) &&
        !qn_reencode_does(p, recipe, QN_ROLE_B))
        why = "its operands are FP8 in blocks as they are";
    if (!why && !blocks)
        why = "no recipe has e4m3 in blocks of 128 for x, w and dy";
    if (!why && !(blocks->d_types >> p->d_type & 1))
        why = "no recipe of FP8 in blocks writes such a D";
    return why;
}

/* ----------------------------------------------------------- what it is of */

void qn_reencode_product(const struct quern_context *ctx,
                         const struct quern_problem *p,
                         struct quern_problem *product)
{
    *product = *p;
    memset(product->recipe, 0, sizeof product->recipe);
    strncpy(product->recipe, qn_reencode_blocks(ctx)->name,
            sizeof product->recipe - 1);
    product->sizes = QUERN_SIZES_DEVICE;
    product->expand = QUERN_EXPAND_AUTO;
}

void qn_reencode_copy(const struct quern_problem *p,
                      const struct qn_recipe *blocks, int role,
                      struct quern_tensor *copy)
{
    struct quern_quantization q;

    memset(copy, 0, sizeof *copy);
    qn_scale_source(p, blocks, role, &q);
    qn_quantize_copy(&q, blocks, q.copies, copy);
}

double qn_reencode_bytes(const struct quern_problem *p,
                         const struct qn_recipe *recipe)
{
    struct quern_quantization q;
    double bytes = 0;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        const struct qn_scaling *s = qn_scale_source(p, recipe, role, &q);

        if (!qn_reencode_does(p, recipe, role))
            continue;
        bytes += qn_quantize_values(&q) *
                 (qn_type_bits(qn_quantize_element(&q, recipe)) / 8.0 +
                  1.0 / s->k / s->rows + 1);
    }
    return bytes;
}

/* ----------------------------------------------------------------- launches */

int qn_reencode_load(struct qn_session *s, int role, int backend,
                     struct qn_step *step)
{
    struct quern_quantization q;

    qn_scale_source(s->problem, s->demand.recipe, role, &q);
    return qn_step_load(s, QN_REENCODE, q.of, "encodes a copy again",
                        s->problem->recipe, backend, step);
}

void qn_reencode_why(struct qn_session *s, int role, struct qn_text *text)
{
    const struct qn_kernel *kernel;
    struct quern_quantization q;

    qn_scale_source(s->problem, s->demand.recipe, role, &q);
    kernel = qn_step_find(s, QN_REENCODE, q.of, s->problem->recipe);
    qn_text_add(text, "reencode %s of=%s g=%d m=%lld k=%lld copies=%s\n%s %s\n",
                s->problem->recipe, qn_of_name(q.of), q.groups, (long long)q.m,
                (long long)q.k, qn_copies_name(q.copies), kernel ? ">" : " ",
                kernel ? kernel->name : "no kernel of this GPU does it");
}

/* Elements from one line of a copy to the next. */
static long long stride_of(const struct quern_tensor *t)
{
    return t->stride ? t->stride : t->shape[t->ndim - 1];
}

int qn_reencode_launch(struct qn_driver *driver, const struct qn_step *step,
                       const struct qn_reencoding *e, void *stream)
{
    struct quern_tensor from = {.ndim = 0}, to;
    struct quern_quantization q;
    const void *data[2] = {NULL}, *sf[2] = {NULL};
    long long stride, out_stride;
    int m, k, column;

    qn_scale_source(e->problem, e->recipe, e->role, &q);
    qn_quantize_copy(&q, e->recipe, q.copies, &from);
    qn_reencode_copy(e->problem, e->blocks, e->role, &to);
    column = q.copies == QUERN_COLUMN;
    data[column] = e->copy->data;
    sf[column] = e->copy->sf;
    stride = stride_of(&from);
    out_stride = stride_of(&to);
    m = (int)q.m;
    k = (int)q.k;
    void *const values[QN_PARAM_COUNT] = {
        [QN_PARAM_row] = &data[0],
        [QN_PARAM_row_stride] = &stride,
        [QN_PARAM_row_sf] = &sf[0],
        [QN_PARAM_column] = &data[1],
        [QN_PARAM_column_stride] = &stride,
        [QN_PARAM_column_sf] = &sf[1],
        [QN_PARAM_out] = (void *)&e->codes,
        [QN_PARAM_out_stride] = &out_stride,
        [QN_PARAM_out_sf] = (void *)&e->sf,
        [QN_PARAM_flags] = (void *)&e->flags,
        [QN_PARAM_groups] = (void *)&q.groups,
        [QN_PARAM_m] = &m,
        [QN_PARAM_k] = &k,
        [QN_PARAM_noop] = (void *)&e->noop,
        [QN_PARAM_first_dims] = (void *)&e->first_dims,
        [QN_PARAM_offsets] = (void *)&e->offsets,
        [QN_PARAM_sizes_bytes] = (void *)&e->sizes_bytes,
        [QN_PARAM_error] = (void *)&e->error};

    return qn_step_launch(driver, step, values, stream);
}
