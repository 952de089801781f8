/* SPDX-License-Identifier: Apache-2.0 */
/*
** point.c: one point of a grid: its values, and whether it is a kernel.
**
** A point's values are those of its variant (variant.c), of the axes, and
** derived ones, in a Lua table that specs and templates see through a frozen
** one.
*/
#include "grid/grid.h"
#include "grid/param.h"
#include "lua/base.h"
#include "statement/word.h"

#include <string.h>

enum { MAX_LIST = 64 };

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
    if (qg_variant_casts(v)) {
        kernel->of = v->of;
        kernel->input = qg_variant_input(v);
        kernel->form = qg_list_find(&qg_list_forms, v->form);
    } else {
        describe_product(v, kernel);
    }
    kernel->rules = v->kernels->rules;
    kernel->nrules = v->kernels->nrules;
}

/* Push a table with the variant's values, to which a point adds its own. */
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
    lua_pushstring(q->L, point->kernel.name);
    lua_setfield(q->L, -2, "name");
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
    if (qg_variant_casts(v)) {
        point->scale = &v->recipe->scale[v->of];
    } else if (qg_variant_result(v) >= 0) {
        point->scale = &v->recipe->scale[qg_variant_result(v)];
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
