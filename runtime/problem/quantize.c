/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.c: the rules and the requirements of a quantization. */
#include "problem/quantize.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/geometry.h"
#include "problem/host_sizes_rules.h"
#include "problem/problem.h"

#include <string.h>

enum { TILE = 128, TILE_COLUMNS = 4 };

const struct qn_scaling *qn_quantize_scaling(const struct qn_quantization *q,
                                             const struct qn_recipe *recipe)
{
    return &recipe->scaling[q->of];
}

int qn_quantize_element(const struct qn_quantization *q,
                        const struct qn_recipe *recipe)
{
    const int types[QN_TENSORS] = {recipe->x, recipe->w, recipe->dy};

    return types[q->of];
}

int qn_quantize_same_sf(const struct qn_scaling *scaling)
{
    return scaling->span >= QN_SPAN_GROUP && !scaling->hadamard;
}

int qn_quantize_needs_amax(const struct qn_quantization *q,
                           const struct qn_scaling *s)
{
    return q->work <= QUERN_TRANSPOSE && !s->history &&
           (s->span != QN_SPAN_BLOCK || s->global);
}

int qn_quantize_has_bias(const struct qn_quantization *q)
{
    return q->work == QUERN_BIAS || (q->dprob && !q->activation);
}

int qn_quantize_op(const struct qn_quantization *q)
{
    static const int ops[] = {QN_QUANTIZE, QN_QUANTIZE, QN_DEQUANTIZE,
                              QN_HISTORY, QN_BIAS};

    return ops[q->work];
}

/* An activation of two operands halves the features, its gradient doubles
   them. */
static int64_t in_columns(const struct qn_quantization *q)
{
    if (qn_activation_operands(q->activation) == 1)
        return q->k;
    return q->of == QN_X ? 2 * q->k : q->k / 2;
}

double qn_quantize_values(const struct qn_quantization *q)
{
    return (double)q->m * (double)q->k * (q->of == QN_W ? q->groups : 1);
}

int64_t qn_quantize_tiles(const struct qn_quantization *q)
{
    return (q->m + (TILE - 1) * (int64_t)q->groups) / TILE;
}

int64_t qn_quantize_tokens(int64_t columns, int groups)
{
    int64_t rows;

    if (columns < 0 || columns % TILE)
        return -1;
    rows = columns + (TILE - 1) - (TILE - 1) * (int64_t)groups;
    return rows < 0 ? -1 : rows;
}

/* ------------------------------------------------------------------- rules */

/* Values get a bias as they are, with any later use. */
static int check_bias(const struct qn_quantization *q,
                      const struct qn_recipe *recipe)
{
    if (q->of != QN_X || recipe->scaling[QN_X].type != QUERN_TYPE_NONE)
        return qn_error_set(QUERN_EINVAL,
                            "bias is supported only for x that the recipe does "
                            "not quantize; of=x and a recipe without scales "
                            "are expected");
    return QUERN_OK;
}

/* The recipe's fields that the work requires. */
static int check_recipe(const struct qn_quantization *q,
                        const struct qn_recipe *recipe)
{
    const struct qn_scaling *s = qn_quantize_scaling(q, recipe);

    if (q->work == QUERN_BIAS)
        return check_bias(q, recipe);
    if (s->type == QUERN_TYPE_NONE &&
        (q->work != QUERN_QUANTIZE || (!q->activation && !q->dbias)))
        return qn_error_set(
            QUERN_EINVAL,
            "recipe %s does not scale %s (%s): there is nothing to %s",
            recipe->name, qn_of_name(q->of),
            qn_type_name(qn_quantize_element(q, recipe)),
            qn_work_name(q->work));
    if (q->probability && !q->activation &&
        (s->type != QUERN_TYPE_NONE || q->of != QN_DY || !q->dbias))
        return qn_error_set(QUERN_EINVAL,
                            "prob=1: without an activation rows are multiplied "
                            "only in dbias, for dy that the recipe does not "
                            "quantize");
    if (s->type == QUERN_TYPE_NONE && q->copies & QUERN_COLUMNWISE)
        return qn_error_set(QUERN_EINVAL,
                            "recipe %s keeps %s as %s, which has no column "
                            "copy: copies=rowwise",
                            recipe->name, qn_of_name(q->of),
                            qn_type_name(qn_quantize_element(q, recipe)));
    if (q->work == QUERN_RESCALE && !s->history)
        return qn_error_set(QUERN_EINVAL,
                            "recipe %s has no delayed scaling: its scales need "
                            "no rescale",
                            recipe->name);
    return QUERN_OK;
}

/* Fields that one kind of work has and another has not. */
static int check_work(const struct qn_quantization *q)
{
    const char *wrong = NULL;

    if (q->work != QUERN_QUANTIZE &&
        (q->activation || q->interleave || q->dbias || q->dprob ||
         (q->probability && q->work != QUERN_BIAS)))
        wrong = "only quantize supports activation, interleave, prob, dbias "
                "and dprob; bias supports prob";
    else if (q->work == QUERN_TRANSPOSE && q->copies != QUERN_COLUMNWISE)
        wrong = "transpose makes the columnwise tensor: copies=columnwise";
    else if (q->work == QUERN_DEQUANTIZE &&
             q->copies == (QUERN_ROWWISE | QUERN_COLUMNWISE))
        wrong =
            "dequantize reads one copy: copies=rowwise or copies=columnwise";
    else if (q->of == QN_W && q->activation)
        wrong = "activation: weights have none; of=x or of=dy";
    else if (q->of == QN_W && q->dbias)
        wrong = "dbias: weights have none; of=dy or of=x";
    else if (q->dprob && (q->of != QN_DY || !q->probability))
        wrong = "dprob=1: the gradient is of prob=1 and comes from of=dy";
    else if (q->interleave && !q->activation)
        wrong = "interleave needs an activation";
    if (!wrong)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "%s", wrong);
}

/* Operands of an activation are halves, or runs of equal length. */
static int check_halves(const struct qn_quantization *q)
{
    int64_t results = q->of == QN_DY ? q->k / 2 : q->k;

    if (q->interleave < 0 || q->interleave > 1 << 16)
        return qn_error_set(QUERN_EINVAL,
                            "interleave=%d: 0 to 65536 is expected",
                            q->interleave);
    if (qn_activation_operands(q->activation) == 1)
        return QUERN_OK;
    if (q->of == QN_DY && q->k % 2)
        return qn_error_set(QUERN_EINVAL,
                            "k=%lld: gradients of an activation's two operands "
                            "are an even number of features",
                            (long long)q->k);
    if (q->interleave && results % q->interleave)
        return qn_error_set(QUERN_EINVAL,
                            "interleave=%d does not divide %lld features",
                            q->interleave, (long long)results);
    return QUERN_OK;
}

/* All that is counted below, in bits, is at most 64 times a matrix whose sides
   are padded by less than PADDING: tokens of 1024 groups to tiles, scales to
   multiples of 65536. So 2^63 is out of reach. */
int qn_quantize_fits(const struct qn_quantization *q)
{
    enum { PADDING = 1 << 18 };
    double groups = q->of == QN_W ? q->groups : 1;

    return groups * (double)(q->m + PADDING) * (double)(q->k + PADDING) <
           0x1p57;
}

static int check_lengths(const struct qn_quantization *q)
{
    const int64_t most = QN_RAGGED_LIMIT;
    int code = qn_problem_groups(q->groups);

    if (!code && (q->m < (q->of == QN_W) || q->m > most))
        code = qn_error_set(QUERN_EINVAL, "m=%lld: %d to %lld rows%s",
                            (long long)q->m, q->of == QN_W, (long long)most,
                            q->of == QN_W ? "" : " over all groups");
    if (!code && (q->k < 1 || q->k > most))
        code = qn_error_set(QUERN_EINVAL, "k=%lld: 1 to %lld features",
                            (long long)q->k, (long long)most);
    if (!code && !qn_quantize_fits(q))
        code = qn_error_set(QUERN_EINVAL,
                            "g=%d m=%lld k=%lld: more bytes than 64 bits count",
                            q->groups, (long long)q->m, (long long)q->k);
    return code;
}

int qn_quantize_check(struct quern_context *ctx,
                      const struct qn_quantization *q,
                      const struct qn_recipe **out)
{
    const int ragged = q->of != QN_W && q->work != QUERN_RESCALE;
    const struct qn_recipe *recipe;
    int code = qn_problem_begin(ctx, &qn_line_cast, q, &recipe);

    if (code)
        return code;
    if (q->of == QN_DY)
        code = qn_problem_gradient(recipe, "of=dy", "write of=x or of=w");
    if (!code)
        code = check_recipe(q, recipe);
    if (!code)
        code = qn_host_size_problem(q->sizes, ragged);
    if (!code && q->work != QUERN_RESCALE)
        code = check_lengths(q);
    if (!code)
        code = check_work(q);
    if (!code)
        code = check_halves(q);
    if (!code)
        code = qn_split_check_rows(q->groups, q->m, q->split, ragged);
    if (out)
        *out = recipe;
    return code;
}

/* ------------------------------------------------------------------- sizes */

int64_t qn_quantize_ceil_div(int64_t length, int64_t size)
{
    return length / size + (length % size > 0);
}

int64_t qn_quantize_round_up(int64_t length, int64_t size)
{
    return qn_quantize_ceil_div(length, size) * size;
}

int qn_quantize_lines(const struct qn_scaling *s)
{
    return s->order == QN_ORDER_TILES ? 1 : s->rows;
}

int64_t qn_quantize_tile_rows(const struct qn_scaling *s)
{
    return qn_quantize_round_up(TILE / qn_quantize_lines(s), s->pad_rows);
}

int64_t qn_quantize_tile_columns(const struct qn_scaling *s)
{
    return qn_quantize_round_up(TILE / s->k, s->pad_columns);
}

/* A matrix of `lines` and `blocks`, both padded, in the order of memory.
   COUPLED: pads */
static void block_shape(const struct qn_scaling *s, int64_t lines,
                        int64_t blocks, int swapped, struct qn_scale_shape *out)
{
    const int tiles = s->order == QN_ORDER_TILES;
    const int unit[2] = {tiles ? TILE : 1, tiles ? TILE_COLUMNS : 1};
    int64_t *to = out->shape + out->ndim;

    to[swapped] = qn_quantize_round_up(lines, s->pad_rows) / unit[0];
    to[!swapped] = qn_quantize_round_up(blocks, s->pad_columns) / unit[1];
    to[2] = tiles ? TILE * TILE_COLUMNS : 0;
    out->pitch = tiles ? to[1] * to[2] : to[1];
    out->ndim += 2 + tiles;
}

/* Tokens: groups begin at tiles, except where a rowwise tensor has a scale for
   each token. COUPLED: scales */
static void token_shape(const struct qn_quantization *q,
                        const struct qn_scaling *s, int copy,
                        struct qn_scale_shape *out)
{
    const int lines = qn_quantize_lines(s), columns = copy == QUERN_COLUMNWISE;
    const int down = s->order == QN_ORDER_COLUMNS;
    const int own = s->apart && down != columns;
    int64_t rows = q->m;

    if (columns)
        out->tiled =
            (int)(s->apart || down ? qn_quantize_tile_columns(s) : TILE / s->k);
    else if (s->apart || lines > 1)
        out->tiled = (int)(s->apart ? qn_quantize_tile_rows(s) : TILE / lines);
    if (out->tiled)
        rows = qn_quantize_tiles(q) * out->tiled;
    if (columns)
        block_shape(s, qn_quantize_ceil_div(q->k, lines), rows, down || own,
                    out);
    else
        block_shape(s, rows, qn_quantize_ceil_div(q->k, s->k), down && !own,
                    out);
    if (own)
        out->pitch = 0;
}

void qn_quantize_scales(const struct qn_quantization *q,
                        const struct qn_scaling *s, int copy,
                        struct qn_scale_shape *out)
{
    const int columns = copy == QUERN_COLUMNWISE;
    const int grouped = s->span == QN_SPAN_GROUP || q->of == QN_W ||
                        (columns && s->span == QN_SPAN_ROW);

    *out = (struct qn_scale_shape){.ndim = 0};
    if (grouped && s->span != QN_SPAN_TENSOR)
        out->shape[out->ndim++] = q->groups;
    if (s->span == QN_SPAN_BLOCK && q->of == QN_W)
        block_shape(
            s,
            qn_quantize_ceil_div(columns ? q->k : q->m, qn_quantize_lines(s)),
            qn_quantize_ceil_div(columns ? q->m : q->k, s->k),
            s->order == QN_ORDER_COLUMNS, out);
    else if (s->span == QN_SPAN_BLOCK)
        token_shape(q, s, copy, out);
    else if (s->span == QN_SPAN_ROW)
        out->shape[out->ndim++] = columns ? q->k : q->m;
    else if (!out->ndim)
        out->shape[out->ndim++] = 1;
}

/* The bytes of a quantized tensor's scales; of scales that span more than a
   block, also of the largest values. */
static int64_t count_scales(const struct qn_quantization *q,
                            const struct qn_scaling *s, int copy)
{
    struct qn_scale_shape shape;
    int64_t count = 1;

    qn_quantize_scales(q, s, copy, &shape);
    for (int i = 0; i < shape.ndim; i++)
        count *= shape.shape[i];
    return count;
}

/* Values of `bits` in a row that is padded to 16 bytes. */
static int64_t padded_row(int64_t length, int bits)
{
    return qn_quantize_round_up(length, 128 / bits);
}

void qn_quantize_shape(struct qn_tensor *t, int type, int64_t groups,
                       int64_t rows, int64_t columns, int64_t stride)
{
    int dims = 0;

    if (groups)
        t->shape[dims++] = groups;
    t->shape[dims++] = rows;
    t->shape[dims++] = columns;
    t->ndim = dims;
    t->type = type;
    t->stride = stride == columns ? 0 : stride;
    t->bytes = (size_t)((groups ? groups : 1) * rows * stride *
                        qn_type_bits(type) / 8);
    t->alignment = (size_t)(qn_type_bits(type) / 8);
}

void qn_quantize_copy(const struct qn_quantization *q,
                      const struct qn_recipe *recipe, int copy,
                      struct qn_tensor *t)
{
    const struct qn_scaling *s = qn_quantize_scaling(q, recipe);
    int type = qn_quantize_element(q, recipe), bits = qn_type_bits(type);
    int64_t groups = q->of == QN_W ? q->groups : 0;
    int64_t tokens = qn_quantize_tiles(q) * TILE;

    if (copy == QUERN_ROWWISE)
        qn_quantize_shape(t, type, groups, q->m, q->k, padded_row(q->k, bits));
    else if (groups)
        qn_quantize_shape(t, type, groups, q->k, q->m, padded_row(q->m, bits));
    else
        qn_quantize_shape(t, type, 0, q->k, tokens, tokens);
    t->alignment = QN_ALIGNMENT;
    if (s->type != QUERN_TYPE_NONE)
        t->sf_bytes =
            (size_t)(count_scales(q, s, copy) * qn_type_bits(s->type) / 8);
    t->global_bytes = s->global ? (size_t)q->groups * sizeof(float) : 0;
}

/* The source of quantization, or the result of dequantizing. */
static void describe_numbers(const struct qn_quantization *q,
                             struct qn_quantize_args *args)
{
    int64_t groups = q->of == QN_W ? q->groups : 0;
    int64_t columns = in_columns(q);

    if (q->work == QUERN_DEQUANTIZE || q->work == QUERN_BIAS)
        qn_quantize_shape(&args->out, q->type, groups, q->m, q->k, q->k);
    if (q->work != QUERN_QUANTIZE)
        return;
    qn_quantize_shape(&args->in, q->type, groups, q->m, columns, columns);
    if (q->activation && q->of == QN_DY)
        qn_quantize_shape(&args->saved, q->type, 0, q->m, q->k, q->k);
}

/* The tensors read or written; a bias, and its gradients, have none. */
static int described_copies(const struct qn_quantization *q)
{
    if (q->work == QUERN_TRANSPOSE)
        return QUERN_ROWWISE | QUERN_COLUMNWISE;
    if (q->work == QUERN_BIAS || (q->probability && !q->activation))
        return 0;
    return q->copies;
}

/* Only parts that a kernel uses take room. */
void qn_quantize_lay_out(const struct qn_quantization *q,
                         const struct qn_recipe *recipe,
                         struct qn_quantize_space *w)
{
    const struct qn_scaling *s = qn_quantize_scaling(q, recipe);
    const int64_t word = (int64_t)sizeof(unsigned);
    int64_t rows = 0, columns = 0, tiles = q->dbias ? qn_quantize_tiles(q) : 0;

    if (qn_quantize_needs_amax(q, s)) {
        rows = s->global ? q->groups : count_scales(q, s, QUERN_ROWWISE);
        columns = s->global ? q->groups : count_scales(q, s, QUERN_COLUMNWISE);
    }
    w->end = QN_WORKSPACE_BYTES;
    w->row_amax = qn_space_add(&w->end, (size_t)((rows + columns) * word));
    w->column_amax = w->row_amax + (size_t)(rows * word);
    w->partials =
        qn_space_add(&w->end, (size_t)(tiles * (TILE / 32) * q->k * word));
    w->sizes =
        qn_space_add(&w->end, qn_host_size_bytes(q->sizes, q->groups, 1));
}

int qn_quantize_describe(struct quern_context *ctx,
                         const struct qn_quantization *q,
                         struct qn_quantize_description *d,
                         struct qn_quantize_space *space,
                         const struct qn_recipe **out)
{
    struct qn_quantize_space own;
    const struct qn_recipe *recipe;
    const struct qn_scaling *s;
    int code = qn_quantize_check(ctx, q, &recipe);

    if (code)
        return code;
    s = qn_quantize_scaling(q, recipe);
    memset(d, 0, sizeof *d);
    d->history = q->work == QUERN_DEQUANTIZE ? 0 : s->history;
    d->random = s->stochastic && q->work <= QUERN_TRANSPOSE;
    d->args.sizes_type = QUERN_I32;
    qn_problem_limits(&d->args.limit, &d->args.slope, &d->args.shift);
    if (q->work != QUERN_RESCALE) {
        int copies = described_copies(q);

        describe_numbers(q, &d->args);
        if (copies & QUERN_ROWWISE)
            qn_quantize_copy(q, recipe, QUERN_ROWWISE, &d->args.row);
        if (copies & QUERN_COLUMNWISE)
            qn_quantize_copy(q, recipe, QUERN_COLUMNWISE, &d->args.column);
    }
    qn_quantize_lay_out(q, recipe, space ? space : &own);
    d->workspace_bytes = (space ? space : &own)->end;
    if (out)
        *out = recipe;
    return QUERN_OK;
}

int qn_quantize_needs(struct quern_context *ctx,
                      const struct qn_quantization *q,
                      struct qn_quantize_description *description)
{
    return qn_quantize_describe(ctx, q, description, NULL, NULL);
}
