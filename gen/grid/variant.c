/* SPDX-License-Identifier: Apache-2.0 */
/*
** variant.c: the values that a variant fixes, in a table that its points share.
**
** Specs and templates see tables in it through frozen ones. Texts among the
** values are names, so that for any spec, code made with them is as the
** template's author wrote it.
*/
#include "grid/grid.h"
#include "lua/base.h"

#include <string.h>

int qg_variant_casts(const struct qg_variant *v)
{
    return v->kernels->of.count > 0;
}

int qg_variant_input(const struct qg_variant *v)
{
    static const int types[] = {QUERN_WIDE_TYPES(QUERN_ENUM) QUERN_TYPE_NONE};

    return types[v->input];
}

int qg_variant_result(const struct qg_variant *v)
{
    return !strcmp(v->epilogue, "copies")            ? QN_X
           : !strcmp(v->epilogue, "gradient_copies") ? QN_DY
                                                     : -1;
}

static void set_string(lua_State *L, const char *name, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

static void set_integer(lua_State *L, const char *name, int value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

static void set_boolean(lua_State *L, const char *name, int value)
{
    lua_pushboolean(L, value);
    lua_setfield(L, -2, name);
}

/* Scales that are together where one block in `size` of a tile's 128 lines has
   one, to the next multiple of `pad`; 0 where blocks have no such size. */
static int of_tile(int size, int pad)
{
    return size ? (128 / size + pad - 1) / pad * pad : 0;
}

/* Do the scales of a line that are of one tile are side by side, in whole words
   of which no padding is a part? */
static int in_words(const struct qg_scale *s, int rows)
{
    return qg_types_of(s->type)->bits == 8 && s->block.span == QN_SPAN_BLOCK &&
           rows == 1 && s->block.per.k <= 32 &&
           strcmp(s->stored->order, "columns") != 0 &&
           128 / s->block.per.k % s->stored->pad.columns == 0 &&
           128 % s->stored->pad.rows == 0;
}

/* Are values multiplied by powers of two? */
static int by_powers(const struct qg_scale *s)
{
    int given = 0;

    for (int i = 0; i < QG_INPUTS; i++)
        given |= s->rules[i].given;
    return s->type == QUERN_E8M0 && !given;
}

/* Bit i is set where the i-th of 16 values changes its sign. */
static int sign_bits(const char *signs)
{
    int bits = 0;

    for (int i = 0; signs && i < 16; i++)
        bits |= (signs[i] == '-') << i;
    return bits;
}

/* C's type of a stored scale. */
static const char *code_of(const struct qg_scale *s)
{
    return s->zero == QG_STORED               ? "unsigned int"
           : s->type == QUERN_F32             ? "float"
           : qg_types_of(s->type)->bits == 16 ? "unsigned short"
                                              : "unsigned char";
}

/* `integer`, and `zero`: what follows a code in calls of from_TYPE, and a value
   in those of to_TYPE. Integers without a sign know by it which code stands
   for 0: a constant, or a variable of that name. */
static void set_integers(lua_State *L, int type, const struct qg_scale *s)
{
    set_boolean(L, "integer",
                type == QUERN_I8 || type == QUERN_I4 || type == QUERN_U4 ||
                    type == QUERN_U8);
    if (s && s->zero == QG_STORED)
        lua_pushliteral(L, ", zero");
    else if (s && (type == QUERN_U4 || type == QUERN_U8))
        lua_pushfstring(L, ", %d", s->zero);
    else
        lua_pushliteral(L, "");
    lua_setfield(L, -2, "zero");
}

/*
** v.scale, v.a.scale, v.b.scale: how the tensor is scaled, false where it is
** not. An operand's also names the copy: rows of a columnwise tensor are
** features, and its k counts rows of the tensor, as the product does.
** `of_values`: each value is multiplied before it is summed; else the sums are.
*/
static void set_scale(lua_State *L, const struct qg_scale *s, int of,
                      const char *copy, int of_values)
{
    int rows = of == QN_W ? s->block.per.n : s->block.per.m;
    int lines = rows && strcmp(s->stored->order, "tiles") ? rows : 1;
    int stored = s->zero == QG_STORED;

    lua_createtable(L, 0, 26);
    set_string(L, "type", qg_types_of(s->type)->name);
    set_string(L, "code", code_of(s));
    set_integer(L, "zero", stored ? 0 : s->zero);
    set_boolean(L, "zeros", stored); /* in the upper half of a word */
    set_integer(L, "bytes", stored ? 4 : qg_types_of(s->type)->bits / 8);
    set_string(L, "span", qg_list_spans.words[s->block.span]);
    set_integer(L, "rows", rows);
    set_integer(L, "lines", lines); /* that share a line of stored scales */
    set_integer(L, "k", s->block.per.k);
    set_string(L, "order", s->stored->order);
    set_integer(L, "pad_rows", s->stored->pad.rows);
    set_integer(L, "pad_columns", s->stored->pad.columns);
    set_integer(L, "tile_rows", rows ? of_tile(lines, s->stored->pad.rows) : 0);
    set_integer(L, "tile_columns",
                of_tile(s->block.per.k, s->stored->pad.columns));
    set_boolean(L, "apart", !strcmp(s->stored->groups, "apart"));
    set_boolean(L, "words", in_words(s, rows));
    set_boolean(L, "powers", by_powers(s));
    set_boolean(L, "stored_powers", s->stored_powers);
    set_boolean(L, "by_input", s->by_input);
    set_boolean(L, "of_values", of_values);
    set_boolean(L, "global", s->global != 0);
    set_boolean(L, "delayed", s->delayed.history != 0);
    set_integer(L, "history", s->delayed.history);
    set_boolean(L, "latest", !strcmp(s->delayed.amax, "latest"));
    set_boolean(L, "stochastic", !strcmp(s->rounding, "stochastic"));
    if (s->as)
        set_string(L, "as", qg_types_of(s->as)->name);
    else
        set_boolean(L, "as", 0);
    set_boolean(L, "hadamard", s->hadamard != NULL);
    set_integer(L, "signs", sign_bits(s->hadamard));
    if (copy)
        set_string(L, "copy", copy);
    qg_frozen_wrap(L);
    lua_setfield(L, -2, "scale");
}

/* Scales in fp32, or of more than a block, can be factors of sums. Next to an
   operand without any, all are of values. COUPLED: of values */
static int of_values(const struct qg_scale *s, const struct qg_scale *other)
{
    return !other || (s->block.span == QN_SPAN_BLOCK && s->type != QUERN_F32);
}

/*
** v.a, v.b, v.d. Types of less than eight bits have no bytes: asking for them
** is an error, not a fraction. D, and tensors without scales, have the scale
** false.
*/
static void set_operand(lua_State *L, const char *name, int type,
                        const char *major, const char *ragged,
                        const struct qg_factor *factor,
                        const struct qg_factor *other)
{
    const struct qg_type *row = qg_types_of(type);

    lua_createtable(L, 0, 9);
    set_string(L, "type", row->name);
    set_integers(L, type, factor ? factor->scale : NULL);
    set_string(L, "major", major);
    set_string(L, "ragged", ragged);
    lua_pushinteger(L, row->bits);
    lua_setfield(L, -2, "bits");
    if (row->bits % 8 == 0) {
        lua_pushinteger(L, row->bits / 8);
        lua_setfield(L, -2, "bytes");
    }
    if (factor && factor->scale)
        set_scale(L, factor->scale, factor->of, factor->copy,
                  of_values(factor->scale, other->scale));
    else
        set_boolean(L, "scale", 0);
    qg_frozen_wrap(L);
    lua_setfield(L, -2, name);
}

/* A type as templates see it: its name and its bits. `scale` is that of the
   tensor, or NULL. */
static void set_type(lua_State *L, const char *name, int id,
                     const struct qg_scale *scale)
{
    const struct qg_type *row = qg_types_of(id);

    lua_createtable(L, 0, 4);
    set_integers(L, id, scale);
    set_string(L, "type", row ? row->name : "copy");
    set_integer(L, "bits", row ? row->bits : 0);
    qg_frozen_wrap(L);
    lua_setfield(L, -2, name);
}

static void set_cast(lua_State *L, const struct qg_variant *v)
{
    const struct qg_scale *scale = &v->recipe->scale[v->of];

    set_string(L, "of", qg_list_ofs.words[v->of]);
    set_string(L, "ragged", v->of == QN_W ? "none" : "m");
    set_string(L, "form", v->form);
    set_type(L, "input", qg_variant_input(v), NULL);
    set_type(L, "element", scale->element, scale);
    int copies = strcmp(v->op, "dprob") && strcmp(v->op, "sum_rows");

    if (scale->blocked && copies) /* others read none */
        set_scale(L, scale, v->of, NULL, 0);
    else
        set_boolean(L, "scale", 0);
}

/* The quantized tensors of D, as of a cast. */
static void set_result(lua_State *L, const struct qg_variant *v)
{
    const int of = qg_variant_result(v);
    const struct qg_scale *scale = &v->recipe->scale[of];

    set_string(L, "of", qg_list_ofs.words[of]);
    set_type(L, "input", v->d, NULL);
    set_type(L, "element", scale->element, scale);
    if (scale->blocked)
        set_scale(L, scale, of, NULL, 0);
    else
        set_boolean(L, "scale", 0);
}

/* The values that the variant fixes, into the table on top of the stack. */
static void set_values(lua_State *L, const struct qg_variant *v)
{
    set_string(L, "recipe", v->recipe->name);
    set_string(L, "op", v->op);
    set_string(L, "arch", v->arch);
    set_string(L, "template", v->kernels->template);
    if (qg_variant_casts(v)) {
        set_cast(L, v);
        return;
    }
    set_string(L, "layout", v->layout->name);
    set_string(L, "ragged", v->ragged->name);
    set_string(L, "epilogue", v->epilogue);
    set_integer(L, "promote", v->recipe->promote);
    set_operand(L, "a", v->a.element, v->layout->a, v->ragged->a, &v->a, &v->b);
    set_operand(L, "b", v->b.element, v->layout->b, v->ragged->b, &v->b, &v->a);
    set_operand(L, "d", v->d, "mn", v->ragged->d, NULL, NULL);
    if (qg_variant_result(v) >= 0)
        set_result(L, v);
}

int qg_variant_values(struct qg *q, const struct qg_variant *v)
{
    lua_settop(q->L, 0);
    lua_createtable(q->L, 0, 24);
    set_values(q->L, v);
    return luaL_ref(q->L, LUA_REGISTRYINDEX);
}
