/* SPDX-License-Identifier: Apache-2.0 */
/*
** point.c: one point of a grid: its values, and whether it is a kernel.
**
** A point's values are in a Lua table, which specs and templates see through a
** frozen one. Texts among them are names, so that for any spec, code
** made with them is as the template's author wrote it.
*/
#include "grid/grid.h"
#include "grid/param.h"
#include "lua/base.h"
#include "statement/word.h"

#include <string.h>

enum { MAX_LIST = 64 };

static void set_string(lua_State *L, const char *name, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

/* Names for the integers of a tuple: v.tile.m is v.tile[1]. */
static void name_elements(lua_State *L, const char *name, int count)
{
    static const struct {
        const char *name, *elements[3];
    } tuples[] = {{"tile", {"m", "n", "k"}}, {"cluster", {"m", "n", NULL}}};

    for (size_t i = 0; i < sizeof tuples / sizeof *tuples; i++)
        for (int j = 0; !strcmp(name, tuples[i].name) && j < 3 && j < count &&
                        tuples[i].elements[j];
             j++) {
            lua_rawgeti(L, -1, j + 1);
            lua_setfield(L, -2, tuples[i].elements[j]);
        }
}

/* Set table[name] on top of the stack. */
static void set_axis(lua_State *L, const char *name,
                     const struct qg_value *value)
{
    if (value->string) {
        lua_pushstring(L, value->string);
    } else if (!value->tuple) {
        lua_pushinteger(L, value->at[0]);
    } else {
        lua_createtable(L, value->count, 0);
        for (int i = 0; i < value->count; i++) {
            lua_pushinteger(L, value->at[i]);
            lua_rawseti(L, -2, i + 1);
        }
        name_elements(L, name, value->count);
        qg_frozen_wrap(L);
    }
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

/* enum quern_type; none for a rowwise tensor. */
static int input_of(int input)
{
    static const int types[] = {QUERN_WIDE_TYPES(QUERN_ENUM) QUERN_TYPE_NONE};

    return types[input];
}

static int is_cast(const struct qg_variant *v)
{
    return v->kernels->of.count > 0;
}

/* D is always contiguous along n. */
static void describe_product(const struct qg_variant *v,
                             struct qn_kernel *kernel)
{
    kernel->ragged = qg_list_find(&qg_list_axes, v->ragged->name);
    kernel->epilogue = qg_list_find(&qg_list_epilogues, v->epilogue);
    kernel->a.type = v->a.element;
    kernel->b.type = v->b.element;
    kernel->d.type = v->d;
    kernel->a.major = qg_list_find(&qg_list_majors, v->layout->a);
    kernel->b.major = qg_list_find(&qg_list_majors, v->layout->b);
    kernel->d.major = QUERN_MAJOR_MN;
    kernel->a.ragged = qg_list_find(&qg_list_axes, v->ragged->a);
    kernel->b.ragged = qg_list_find(&qg_list_axes, v->ragged->b);
    kernel->d.ragged = qg_list_find(&qg_list_axes, v->ragged->d);
}

/* Values that all points of a variant share. */
static void describe_variant(struct qg *q, const struct qg_variant *v,
                             struct qn_kernel *kernel)
{
    kernel->recipe = v->recipe->name;
    kernel->arch = v->arch;
    kernel->template_path = v->kernels->template;
    kernel->spec = qg_files_print(q, v->kernels->location);
    kernel->op = qg_list_find(&qg_list_ops, v->op);
    if (is_cast(v)) {
        kernel->of = v->of;
        kernel->input = input_of(v->input);
        kernel->form = qg_list_find(&qg_list_forms, v->form);
    } else {
        describe_product(v, kernel);
    }
    kernel->rules = v->kernels->rules;
    kernel->nrules = v->kernels->nrules;
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
    set_type(L, "input", input_of(v->input), NULL);
    set_type(L, "element", scale->element, scale);
    int copies = strcmp(v->op, "dprob") && strcmp(v->op, "sum_rows");

    if (scale->blocked && copies) /* others read none */
        set_scale(L, scale, v->of, NULL, 0);
    else
        set_boolean(L, "scale", 0);
}

/* Does D leave as copies: of an x, or going back of a dy? */
static int has_copies(const struct qg_variant *v)
{
    return !strcmp(v->epilogue, "copies") ||
           !strcmp(v->epilogue, "gradient_copies");
}

static int result_of(const struct qg_variant *v)
{
    return !strcmp(v->epilogue, "copies") ? QN_X : QN_DY;
}

/* The quantized tensors of D, as of a cast. */
static void set_result(lua_State *L, const struct qg_variant *v)
{
    const int of = result_of(v);
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
    if (is_cast(v)) {
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
    if (has_copies(v))
        set_result(L, v);
}

int qg_point_values(struct qg *q, const struct qg_variant *v)
{
    lua_settop(q->L, 0);
    lua_createtable(q->L, 0, 24);
    set_values(q->L, v);
    return luaL_ref(q->L, LUA_REGISTRYINDEX);
}

/* Push a table with them, to which a point adds its own. */
static void push_values(lua_State *L, const struct qg_variant *v)
{
    lua_createtable(L, 0, 16 + v->kernels->count);
    lua_rawgeti(L, LUA_REGISTRYINDEX, v->values);
    lua_pushnil(L);
    while (lua_next(L, 2)) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, 1);
    }
    lua_settop(L, 1);
}

/* ------------------------------------------------------------------- items */

static int plain_text(const char *text)
{
    size_t length = strlen(text);

    return length && length <= 2 * QG_MAX_NAME &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == length;
}

/* The list of integers on top of the stack, copied and frozen; 0: it is not. */
static int copy_list(lua_State *L, const char *name)
{
    lua_Integer count = (lua_Integer)lua_rawlen(L, -1);

    if (count < 1 || count > MAX_LIST)
        return 0;
    lua_createtable(L, (int)count, 0);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, -2, i);
        if (!lua_isinteger(L, -1)) {
            lua_pop(L, 2);
            return 0;
        }
        lua_rawseti(L, -2, i);
    }
    name_elements(L, name, (int)count);
    qg_frozen_wrap(L);
    lua_replace(L, -2);
    return 1;
}

/* Whole numbers only: a float in a tile is a slip of / for //. */
static int check_number(struct qg *q, const struct qg_item *item)
{
    if (lua_isinteger(q->L, -1))
        return 0;
    lua_pushvalue(q->L, -1);
    qg_diag_note(q, item->word->location, QG_E_DERIVED_FLOAT, item->name,
                 lua_tostring(q->L, -1));
    return 1;
}

/* May the value on top of the stack be kept? Returns 0, or 1 and noted. */
static int check_derived(struct qg *q, const struct qg_item *item)
{
    lua_State *L = q->L;

    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN:
        return 0;
    case LUA_TNUMBER:
        return check_number(q, item);
    case LUA_TSTRING:
        if (plain_text(lua_tostring(L, -1)))
            return 0;
        qg_diag_note(q, item->word->location, QG_E_DERIVED_NAME, item->name,
                     lua_tostring(L, -1));
        return 1;
    case LUA_TTABLE:
        if (copy_list(L, item->name))
            return 0;
        break;
    case LUA_TUSERDATA:
        if (qg_frozen_content(L, -1)) {
            lua_replace(L, -2);
            if (copy_list(L, item->name))
                return 0;
        }
        break;
    }
    qg_diag_note(q, item->word->location, QG_E_DERIVED_KIND, item->name,
                 qg_object_kind(L, -1));
    return 1;
}

/* Call the item's function of v; the values are at index 1, v at 2. */
static int call(struct qg *q, const struct qg_item *item)
{
    lua_rawgeti(q->L, LUA_REGISTRYINDEX, item->function);
    lua_pushvalue(q->L, 2);
    return qg_sandbox_call(q, 1, 1, item->word->location);
}

/* Returns 0, or -1 and noted. */
static int derive(struct qg *q, const struct qg_item *item)
{
    if (item->constant)
        lua_rawgeti(q->L, LUA_REGISTRYINDEX, item->function);
    else if (call(q, item))
        return -1;
    if (check_derived(q, item))
        return -1;
    lua_setfield(q->L, 1, item->name);
    return 0;
}

/* Does the item's function hold? -1: an error has been noted. */
static int holds(struct qg *q, const struct qg_item *item)
{
    int result;

    if (call(q, item))
        return -1;
    if (!lua_isboolean(q->L, -1)) {
        qg_diag_note(q, item->word->location, QG_E_REJECT_KIND,
                     item->word->kind->word, qg_object_kind(q->L, -1));
        return -1;
    }
    result = lua_toboolean(q->L, -1);
    lua_pop(q->L, 1);
    return result;
}

/* Returns 0; 1 when the point is rejected; -1 and noted. */
static int reject(struct qg *q, const struct qg_item *item,
                  struct qg_point *point)
{
    int result = holds(q, item);

    if (result > 0)
        point->reason = item->reason;
    return result;
}

/* Returns 0, or -1 and noted. */
static int leave_out(struct qg *q, const struct qg_item *item,
                     struct qg_point *point)
{
    int result = holds(q, item);

    if (result > 0)
        point->left_out |= qg_param_bits(point->kernels, item->name);
    return result < 0 ? -1 : 0;
}

/* In the order of the list. 0; 1: rejected; -1: an error has been noted. */
static int apply_items(struct qg *q, const struct qg_variant *v,
                       struct qg_point *point, const int *choice)
{
    int result = 0;

    for (int i = 0; i < v->kernels->count && !result; i++) {
        const struct qg_item *item = v->kernels->items[i];

        if (item->kind == QG_AXIS) {
            lua_pushvalue(q->L, 1);
            set_axis(q->L, item->name, &item->values[*choice++]);
            lua_pop(q->L, 1);
        } else if (item->kind == QG_DERIVE) {
            result = derive(q, item);
        } else if (item->kind == QG_REJECT) {
            result = reject(q, item, point);
        } else if (item->kind == QG_WITHOUT) {
            result = leave_out(q, item, point);
        }
    }
    return result;
}

/* Further values for templates: the values are on top of the stack. */
static void keep_values(struct qg *q, const struct qg_variant *v,
                        struct qg_point *point)
{
    point->params = qg_param_list(q, v->kernels, point->left_out);
    point->kernel.params = point->params->bytes;
    point->kernel.nparams = point->params->count;
    set_string(q->L, "name", point->kernel.name);
    lua_rawgeti(q->L, LUA_REGISTRYINDEX, point->params->list);
    lua_setfield(q->L, -2, "params");
    point->values = luaL_ref(q->L, LUA_REGISTRYINDEX);
}

/* The scale that the template's rules are of: of a cast's tensor; of a
   product's quantized result, from the type of D; or of A, which is quantized
   in the mainloop. */
static void set_rule(const struct qg_variant *v, struct qg_point *point)
{
#define INPUT(name, ...) [QUERN_##name] = QG_IN_##name,
    static const int inputs[] = {QUERN_WIDE_TYPES(INPUT)};

    point->scale = v->a.scale;
    point->input = v->input;
    if (is_cast(v)) {
        point->scale = &v->recipe->scale[v->of];
    } else if (has_copies(v)) {
        point->scale = &v->recipe->scale[result_of(v)];
        point->input = inputs[v->d];
    }
}

struct qg_point *qg_point_make(struct qg *q, const struct qg_variant *v,
                               const int *choice)
{
    struct qg_point *point = qg_mem_new(q, sizeof *point);
    lua_State *L = q->L;
    int result;

    lua_settop(L, 0);
    describe_variant(q, v, &point->kernel);
    point->kernels = v->kernels;
    point->recipe = v->recipe;
    set_rule(v, point);
    point->kernel.name = qg_name_make(q, v, choice);
    if (!point->kernel.name)
        return NULL;
    push_values(L, v);
    lua_pushvalue(L, 1);
    qg_frozen_wrap(L);
    result = apply_items(q, v, point, choice);
    lua_settop(L, result < 0 ? 0 : 1);
    if (result < 0)
        return NULL;
    if (result ? qg_describe_variant(q, v->kernels, &point->kernel)
               : qg_describe_fill(q, v->kernels, &point->kernel))
        return NULL;
    if (!result)
        keep_values(q, v, point);
    lua_settop(L, 0);
    return point;
}
