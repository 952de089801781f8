/* SPDX-License-Identifier: Apache-2.0 */
/* param.c: the parameters of kernels, as templates see them. */
#include "grid/param.h"
#include "lua/base.h"

#include <string.h>

static const struct param_row {
    const char *name, *meaning, *type, *kind, *operand, *member;
} param_rows[] = {
#define PARAM_ROW(n, t, m) {.name = #n, .meaning = m, .type = t},
    QN_PARAMS(PARAM_ROW)
#undef PARAM_ROW
};
enum { PARAM_ROWS = sizeof param_rows / sizeof *param_rows };

/* The field's rule has let only known names pass. */
static int find_row(const char *name)
{
    int i = 0;

    while (strcmp(param_rows[i].name, name))
        i++;
    return i;
}

static void set_text(lua_State *L, const char *key, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, key);
}

/* As C declares it: "const void *offsets", "int groups". */
static void set_declaration(lua_State *L, const char *key, const char *type,
                            const char *name)
{
    size_t length = strlen(type);

    lua_pushfstring(L, "%s%s%s", type, type[length - 1] == '*' ? "" : " ",
                    name);
    lua_setfield(L, -2, key);
}

/* One entry of a template's params. An attribute that the row lacks is "". */
static void push(lua_State *L, int row, int index, int count)
{
    const struct param_row *r = &param_rows[row];

    lua_createtable(L, 0, 11);
    set_text(L, "name", r->name);
    set_text(L, "type", r->type);
    set_text(L, "meaning", r->meaning);
    set_text(L, "kind", r->kind ? r->kind : "");
    set_text(L, "operand", r->operand ? r->operand : "");
    set_text(L, "member", r->member ? r->member : "");
    set_text(L, "comma", index + 1 < count ? "," : "");
    set_declaration(L, "declaration", r->type, r->name);
    if (r->member)
        set_declaration(L, "member_declaration", r->type, r->member);
    lua_pushboolean(L, r->type[strlen(r->type) - 1] == '*');
    lua_setfield(L, -2, "pointer");
    lua_pushinteger(L, index);
    lua_setfield(L, -2, "index");
    qg_frozen_wrap(L);
}

uint64_t qg_param_bits(const struct qg_kernels *k, const char *names)
{
    uint64_t bits = 0;

    for (size_t length; *names; names += length + (names[length] == ' ')) {
        length = strcspn(names, " ");
        for (int i = 0; i < k->params.count; i++)
            if (!strncmp(k->params.at[i], names, length) &&
                !k->params.at[i][length])
                bits |= (uint64_t)1 << i;
    }
    return bits;
}

/* The list that templates loop over, which also says of each name whether it
   is in the list; and the bytes that the runtime reads. */
static void fill(struct qg *q, const struct qg_kernels *k, struct qg_params *p)
{
    p->bytes = qg_mem_array(q, (size_t)k->params.count, 1);
    for (int i = 0; i < k->params.count; i++)
        if (!(p->left_out >> i & 1))
            p->bytes[p->count++] = (unsigned char)find_row(k->params.at[i]);
    lua_createtable(q->L, p->count, PARAM_ROWS);
    for (int i = 0; i < PARAM_ROWS; i++) {
        lua_pushboolean(q->L, 0);
        lua_setfield(q->L, -2, param_rows[i].name);
    }
    for (int i = 0; i < p->count; i++) {
        push(q->L, p->bytes[i], i, p->count);
        lua_rawseti(q->L, -2, i + 1);
        lua_pushboolean(q->L, 1);
        lua_setfield(q->L, -2, param_rows[p->bytes[i]].name);
    }
    qg_frozen_wrap(q->L);
    p->list = luaL_ref(q->L, LUA_REGISTRYINDEX);
}

struct qg_params *qg_param_list(struct qg *q, struct qg_kernels *k,
                                uint64_t left_out)
{
    struct qg_params *p = k->param_lists;

    while (p && p->left_out != left_out)
        p = p->next;
    if (p)
        return p;
    p = qg_mem_new(q, sizeof *p);
    p->left_out = left_out;
    p->next = k->param_lists;
    fill(q, k, p);
    return k->param_lists = p;
}
