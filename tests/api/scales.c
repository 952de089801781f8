/* SPDX-License-Identifier: Apache-2.0 */
/* scales.c: by docs/c-api.md the table of operands leads to the scale of any
   row and block, where the oracle reads it. */
#include "api.h"

#include "base/context.h"
#include "base/types.h"
#include "oracle/fidelity.h"
#include "problem/quantize.h"

/* A line and its table. */
struct subject {
    char text[128];
    struct qn_line line;
    struct quern_operand *table;
    int count;
};

/* A group of a tensor, as a caller knows it. */
struct place {
    const struct quern_operand *o;
    const struct qn_scaling *scaling;
    int64_t rows;
    int of, columnwise, group;
    int64_t first, tiles; /* rows, and tiles of 128, of the groups before */
    int64_t length;
};

static int64_t extent(const struct place *p, int axis)
{
    return quern_extent(&p->o->shape[axis], p->rows);
}

/* Entries of an axis' entry. */
static int64_t below(const struct place *p, int axis)
{
    int64_t count = 1;

    while (++axis < p->o->ndim)
        count *= extent(p, axis);
    return count;
}

static int64_t up(int64_t length, int64_t size)
{
    return (length + size - 1) / size * size;
}

/* A matrix of lines and blocks, `width` entries from one row of it, or of its
   tiles, to the next. */
static int64_t in_matrix(const struct place *p, int64_t line, int64_t block,
                         int64_t width)
{
    if (p->scaling->order == QN_ORDER_ROWS)
        return line * width + block;
    if (p->scaling->order == QN_ORDER_COLUMNS)
        return block * width + line;
    return line / 128 * width + block / 4 * 512 + line % 32 * 16 +
           line % 128 / 32 * 4 + block % 4;
}

/* A matrix for each group. */
static int64_t in_own(const struct place *p, int64_t start, int64_t line,
                      int64_t block)
{
    const int tiles = p->scaling->order == QN_ORDER_TILES;
    const int64_t columns = p->o->tiled * (up(p->length, 128) / 128);
    const int64_t width =
        !p->columnwise
            ? up((p->length + p->scaling->rows - 1) / p->scaling->rows,
                 p->scaling->pad_rows)
        : tiles ? columns / 4 * 512
                : columns;

    return start / (tiles ? 4 : 1) * below(p, 0) +
           in_matrix(p, line, block, width);
}

static int64_t index_of(const struct place *p, int64_t line, int64_t k)
{
    const struct qn_scaling *s = p->scaling;
    const int w = p->of == QN_W;
    const int64_t start = w             ? 0
                          : p->o->tiled ? p->o->tiled * p->tiles
                                        : p->first;
    int64_t block;

    if (s->span == QN_SPAN_TENSOR)
        return 0;
    if (s->span == QN_SPAN_GROUP)
        return p->group;
    if (s->span == QN_SPAN_ROW)
        return w || p->columnwise ? p->group * below(p, 0) + line
                                  : start + line;
    block = k / s->k;
    line /= s->order == QN_ORDER_TILES ? 1 : s->rows;
    if (w)
        return p->group * below(p, 0) + in_matrix(p, line, block, below(p, 1));
    if (!quern_extent(&p->o->pitch, p->rows))
        return in_own(p, start, line, block);
    return in_matrix(p, line + (p->columnwise ? 0 : start),
                     block + (p->columnwise ? start : 0), below(p, 0));
}

static void compare(struct quern_context *ctx, const struct subject *subject,
                    int copy, const int64_t *sizes)
{
    const struct qn_quantization *q = &subject->line.of.cast;
    const struct qn_recipe *recipe = qn_context_recipe(ctx, q->recipe);
    const struct qn_tensor none = {.data = NULL};
    struct place p = {.scaling = qn_quantize_scaling(q, recipe),
                      .rows = q->m,
                      .of = q->of,
                      .columnwise = copy == QUERN_COLUMNWISE};
    struct qn_fidelity f = {.q = *q, .recipe = recipe};
    int64_t starts[API_GROUPS], first = 0;
    struct qn_geometry g;
    struct qn_decode decode;

    for (int i = 0; i < subject->count; i++)
        if (subject->table[i].arg ==
            (p.columnwise ? QUERN_ARG_COLUMNWISE_SF : QUERN_ARG_ROWWISE_SF))
            p.o = &subject->table[i];
    assert_non_null(p.o);
    for (int i = 0; i < API_GROUPS; first += sizes[i++])
        starts[i] = first;
    f.q.copies = copy;
    qn_fidelity_geometry(&f, &g);
    qn_decode_begin(&decode, &g, &none, API_GROUPS, starts, sizes);
    for (p.group = 0; p.group < API_GROUPS; p.group++) {
        const int w = q->of == QN_W;
        const int64_t m = w ? q->m : sizes[p.group];

        p.first = starts[p.group];
        p.tiles += p.group ? (sizes[p.group - 1] + 127) / 128 : 0;
        p.length = sizes[p.group];
        for (int64_t i = 0; i < (p.columnwise ? q->k : m); i++)
            for (int64_t k = 0; k < (p.columnwise ? m : q->k); k++)
                if (index_of(&p, i, k) !=
                    qn_decode_scale(&decode, p.group, i, k))
                    fail_msg(
                        "%s: %s of group %d, line %lld, value %lld: %lld, "
                        "the oracle's is %lld",
                        subject->text, p.o->name, p.group, (long long)i,
                        (long long)k, (long long)index_of(&p, i, k),
                        (long long)qn_decode_scale(&decode, p.group, i, k));
    }
}

/* The table leaves no byte out. */
static void is_whole(const struct subject *subject)
{
    for (int i = 0; i < subject->count; i++) {
        const struct quern_operand *o = &subject->table[i];
        int64_t count = qn_type_bits(o->type) / 8;

        for (int j = 0; j < o->ndim; j++)
            count *= quern_extent(&o->shape[j], subject->line.of.cast.m);
        if (strstr(o->name, ".sf") &&
            count != quern_extent(&o->bytes, subject->line.of.cast.m))
            fail_msg("%s: %s: shape and bytes differ", subject->text, o->name);
    }
}

static void check_recipe(struct quern_context *ctx, const char *recipe)
{
    static const char *const tensors[] = {"x", "w", "dy"};
    static const int64_t sizes[][API_GROUPS] = {
        {0, 1, 130, 7}, {128, 0, 127, 1}, {260, 0, 0, 0}};

    for (int of = 0; of < 3; of++)
        for (int i = 0; i < 3; i++) {
            struct subject s;

            snprintf(s.text, sizeof s.text,
                     "quantize %s of=%s g=%d m=%d k=%d copies=both", recipe,
                     tensors[of], API_GROUPS, of == 1 ? 136 : 260,
                     i ? 150 : 32);
            test_expect(qn_api_line(ctx, s.text, &s.line), QUERN_OK, "");
            test_expect(quern_describe(ctx, s.text, &s.table, &s.count),
                        QUERN_OK, "");
            is_whole(&s);
            compare(ctx, &s, QUERN_ROWWISE, sizes[i]);
            compare(ctx, &s, QUERN_COLUMNWISE, sizes[i]);
            quern_free(s.table);
        }
}

static int is_scaled(const struct qn_recipe *r)
{
    return r->scaling[QN_X].type && r->scaling[QN_W].type &&
           r->scaling[QN_DY].type;
}

/* Recipes of the library, and those of the tests with other storages. */
TEST(leads_to_each_scale)
{
    const char *const folder = "tests/host/specs";
    struct quern_open_options options = QUERN_OPEN_OPTIONS_INIT;
    struct quern_context *ctx;
    int own = 0, seen = 0;

    (void)state;
    unsetenv("QUERN_GEN");
    options.specs = &folder;
    options.specs_count = 1;
    test_expect(quern_open(&options, &ctx), QUERN_OK, "");
    for (int i = 0; i < ctx->base->nrecipes; i++) {
        const struct qn_recipe *r = &ctx->base->recipes[i];

        if (!is_scaled(r))
            continue;
        seen++;
        for (int of = 0; of < QN_TENSORS; of++)
            own += r->scaling[of].apart;
        check_recipe(ctx, r->name);
    }
    print_message("  %d recipes, %d tensors of groups apart\n", seen, own);
    assert_true(seen >= 8 && own >= 3);
    quern_close(ctx);
}
