/* SPDX-License-Identifier: Apache-2.0 */
/*
** trace_call.c: the functions that rules call: select, lt, bits, e8m0_up, ...
**
** With plain numbers they compute; with a rule's values they add nodes.
** Functions that can be written with others are: isnan, min or e8m0_up print as
** integer code that gives the same bits on every machine and under any compiler
** option.
*/
#include "lua/base.h"
#include "rule/trace.h"

#include <math.h>

#define INFINITY_BITS 0x7f800000u
#define MAGNITUDE     0x7fffffffu

/* ---------------------------------------------------- building expressions */

static const struct qg_node *unary(lua_State *L, enum qg_op op,
                                   enum qg_kind kind, const struct qg_node *a)
{
    return qg_trace_node(L, op, kind, (const struct qg_node *[3]){a});
}

static const struct qg_node *binary(lua_State *L, enum qg_op op,
                                    enum qg_kind kind, const struct qg_node *a,
                                    const struct qg_node *b)
{
    return qg_trace_node(L, op, kind, (const struct qg_node *[3]){a, b});
}

static const struct qg_node *choose(lua_State *L, const struct qg_node *which,
                                    const struct qg_node *yes,
                                    const struct qg_node *no)
{
    return qg_trace_node(L, QG_OP_SELECT, yes->kind,
                         (const struct qg_node *[3]){which, yes, no});
}

static const struct qg_node *number(lua_State *L, unsigned int value)
{
    return qg_trace_constant(L, QG_BITS, value);
}

static const struct qg_node *masked(lua_State *L, const struct qg_node *bits,
                                    unsigned int mask)
{
    return binary(L, QG_OP_AND, QG_BITS, bits, number(L, mask));
}

static const struct qg_node *equals(lua_State *L, const struct qg_node *bits,
                                    unsigned int value)
{
    return binary(L, QG_OP_EQ, QG_CHOICE, bits, number(L, value));
}

/* The eight bits above the fraction. */
static const struct qg_node *exponent(lua_State *L, const struct qg_node *bits)
{
    return masked(L, binary(L, QG_OP_SHR, QG_BITS, bits, number(L, 23)), 0xff);
}

/* ------------------------------------------------------------- comparisons */

/* The kind that both operands must have: that of the one which has a kind. */
static enum qg_kind common_kind(lua_State *L, int first)
{
    const struct qg_node *node = qg_trace_at(L, first);

    if (!node)
        node = qg_trace_at(L, first + 1);
    return node ? node->kind : QG_FLOAT;
}

static int is_plain(lua_State *L, int first)
{
    return !qg_trace_at(L, first) && !qg_trace_at(L, first + 1);
}

/* Plain numbers give a plain boolean, which select takes as well. */
static int compare(lua_State *L, enum qg_op op, int plain, const char *what)
{
    enum qg_kind kind = common_kind(L, 1);
    const struct qg_node *a, *b;

    if (is_plain(L, 1)) {
        luaL_checknumber(L, 1);
        luaL_checknumber(L, 2);
        lua_pushboolean(L, lua_compare(L, 1, 2, plain));
        return 1;
    }
    kind = kind == QG_BITS ? QG_BITS : QG_FLOAT;
    a = qg_trace_operand(L, 1, kind, what);
    b = qg_trace_operand(L, 2, kind, what);
    return qg_trace_push(L, binary(L, op, QG_CHOICE, a, b));
}

static int call_lt(lua_State *L)
{
    return compare(L, QG_OP_LT, LUA_OPLT, "lt");
}

static int call_le(lua_State *L)
{
    return compare(L, QG_OP_LE, LUA_OPLE, "le");
}

static int call_eq(lua_State *L)
{
    return compare(L, QG_OP_EQ, LUA_OPEQ, "eq");
}

static int call_select(lua_State *L)
{
    enum qg_kind kind = common_kind(L, 2);
    const struct qg_node *which, *yes, *no;

    lua_settop(L, 3);
    if (lua_isboolean(L, 1)) {
        lua_pushvalue(L, lua_toboolean(L, 1) ? 2 : 3);
        return 1;
    }
    which = qg_trace_operand(L, 1, QG_CHOICE, "select");
    yes = qg_trace_operand(L, 2, kind, "select");
    no = qg_trace_operand(L, 3, kind, "select");
    return qg_trace_push(L, choose(L, which, yes, no));
}

/* min and max give a where a comparison with NaN is false. */
static int extreme(lua_State *L, int is_max)
{
    const char *what = is_max ? "max" : "min";
    enum qg_kind kind = common_kind(L, 1) == QG_BITS ? QG_BITS : QG_FLOAT;
    const struct qg_node *a, *b, *which;

    lua_settop(L, 2);
    if (is_plain(L, 1)) {
        luaL_checknumber(L, 1);
        luaL_checknumber(L, 2);
        lua_pushvalue(
            L,
            lua_compare(L, is_max ? 1 : 2, is_max ? 2 : 1, LUA_OPLT) ? 2 : 1);
        return 1;
    }
    a = qg_trace_operand(L, 1, kind, what);
    b = qg_trace_operand(L, 2, kind, what);
    which = binary(L, QG_OP_LT, QG_CHOICE, is_max ? a : b, is_max ? b : a);
    return qg_trace_push(L, choose(L, which, b, a));
}

static int call_min(lua_State *L)
{
    return extreme(L, 0);
}

static int call_max(lua_State *L)
{
    return extreme(L, 1);
}

/* -------------------------------------------------------------------- bits */

static const struct qg_node *bits_of(lua_State *L, const char *what)
{
    return unary(L, QG_OP_BITS, QG_BITS,
                 qg_trace_operand(L, 1, QG_FLOAT, what));
}

static int call_bits(lua_State *L)
{
    return qg_trace_push(L, bits_of(L, "bits"));
}

static int call_frombits(lua_State *L)
{
    return qg_trace_push(L, unary(L, QG_OP_FROMBITS, QG_FLOAT,
                                  qg_trace_operand(L, 1, QG_BITS, "frombits")));
}

/* The sign bit cleared: exact for NaN and infinity too. */
static int call_abs(lua_State *L)
{
    return qg_trace_push(L, unary(L, QG_OP_FROMBITS, QG_FLOAT,
                                  masked(L, bits_of(L, "abs"), MAGNITUDE)));
}

static int call_isinf(lua_State *L)
{
    return qg_trace_push(
        L, equals(L, masked(L, bits_of(L, "isinf"), MAGNITUDE), INFINITY_BITS));
}

static int call_isnan(lua_State *L)
{
    return qg_trace_push(L, binary(L, QG_OP_LT, QG_CHOICE,
                                   number(L, INFINITY_BITS),
                                   masked(L, bits_of(L, "isnan"), MAGNITUDE)));
}

/* ---------------------------------------------------------------- e8m0 */

static const struct qg_node *as_e8m0(lua_State *L, const struct qg_node *bits)
{
    return binary(L, QG_OP_AND, QG_E8M0, bits, number(L, 0xff));
}

/* Both e8m0 casts: NaN is 0xff, infinity 0xfe; `finite` is for the rest. */
static const struct qg_node *with_specials(lua_State *L,
                                           const struct qg_node *e,
                                           const struct qg_node *fraction,
                                           const struct qg_node *finite)
{
    const struct qg_node *special =
        choose(L, equals(L, fraction, 0), number(L, 0xfe), number(L, 0xff));

    return as_e8m0(L, choose(L, equals(L, e, 0xff), special, finite));
}

/* The power of two at or above v, as its biased exponent, into which a sum
   carries: all that has a fraction goes up by one, but denormals up to 2^-127
   stay, as does the largest exponent. */
static int call_e8m0_up(lua_State *L)
{
    const struct qg_node *v = masked(L, bits_of(L, "e8m0_up"), MAGNITUDE);
    const struct qg_node *normal, *below, *up, *most = number(L, 0xfe), *nan;

    normal = binary(L, QG_OP_LE, QG_CHOICE, number(L, 0x800000), v);
    below = choose(L, normal, number(L, 0x7fffff), number(L, 0x3fffff));
    up = binary(L, QG_OP_SHR, QG_BITS,
                binary(L, QG_OP_BITS_ADD, QG_BITS, v, below), number(L, 23));
    up = choose(L, binary(L, QG_OP_LT, QG_CHOICE, up, most), up, most);
    nan = binary(L, QG_OP_LT, QG_CHOICE, number(L, INFINITY_BITS), v);
    return qg_trace_push(L, as_e8m0(L, choose(L, nan, number(L, 0xff), up)));
}

/* The power of two at or below v. */
static int call_e8m0_down(lua_State *L)
{
    const struct qg_node *u = bits_of(L, "e8m0_down");
    const struct qg_node *e = exponent(L, u);

    return qg_trace_push(L, with_specials(L, e, masked(L, u, 0x7fffff), e));
}

/* A scale whose eight bits a rule has worked out itself. */
static int call_e8m0_bits(lua_State *L)
{
    return qg_trace_push(
        L, as_e8m0(L, qg_trace_operand(L, 1, QG_BITS, "e8m0_bits")));
}

/* A scale as it is stored in a float type of fewer bits than fp32. */
static int to_stored(lua_State *L, enum qg_op op, enum qg_kind kind,
                     const char *name)
{
    return qg_trace_push(
        L, unary(L, op, kind, qg_trace_operand(L, 1, QG_FLOAT, name)));
}

/* The value that such a scale stands for. */
static int from_stored(lua_State *L, enum qg_op op, enum qg_kind kind,
                       const char *name)
{
    return qg_trace_push(
        L, unary(L, op, QG_FLOAT, qg_trace_operand(L, 1, kind, name)));
}

#define STORED(NAME, word)                                                     \
    static int call_to_##word(lua_State *L)                                    \
    {                                                                          \
        return to_stored(L, QG_OP_TO_##NAME, QG_##NAME, "to_" #word);          \
    }                                                                          \
    static int call_from_##word(lua_State *L)                                  \
    {                                                                          \
        return from_stored(L, QG_OP_FROM_##NAME, QG_##NAME, "from_" #word);    \
    }
STORED(E4M3, e4m3)
STORED(BF16, bf16)
STORED(F16, f16)

/* Code 254 gives a denormal, 255 NaN; all others an exponent. */
const struct qg_node *qg_trace_multiplier(lua_State *L,
                                          const struct qg_node *code)
{
    const struct qg_node *bits =
        binary(L, QG_OP_SHL, QG_BITS,
               binary(L, QG_OP_BITS_SUB, QG_BITS, number(L, 0xfe), code),
               number(L, 23));

    bits = choose(L, equals(L, code, 0xfe), number(L, 0x400000), bits);
    bits = choose(L, equals(L, code, 0xff), number(L, 0x7fffffff), bits);
    return unary(L, QG_OP_FROMBITS, QG_FLOAT, bits);
}

/* Each function, and how many values it takes. */
static const struct {
    const char *name;
    lua_CFunction call;
    int values;
} calls[] = {
    {"select", call_select, 3},
    {"lt", call_lt, 2},
    {"le", call_le, 2},
    {"eq", call_eq, 2},
    {"isinf", call_isinf, 1},
    {"isnan", call_isnan, 1},
    {"min", call_min, 2},
    {"max", call_max, 2},
    {"abs", call_abs, 1},
    {"bits", call_bits, 1},
    {"frombits", call_frombits, 1},
    {"e8m0_up", call_e8m0_up, 1},
    {"e8m0_down", call_e8m0_down, 1},
    {"e8m0_bits", call_e8m0_bits, 1},
    {"to_e4m3", call_to_e4m3, 1},
    {"from_e4m3", call_from_e4m3, 1},
    {"to_bf16", call_to_bf16, 1},
    {"from_bf16", call_from_bf16, 1},
    {"to_f16", call_to_f16, 1},
    {"from_f16", call_from_f16, 1},
};

enum { CALLS = sizeof calls / sizeof *calls };

/* Upvalue: the row. Excess arguments would be dropped silently. */
static int on_call(lua_State *L)
{
    int i = (int)lua_tointeger(L, lua_upvalueindex(1));

    if (lua_gettop(L) != calls[i].values)
        return qg_diag_raise(L, QG_E_RULE_COUNT, calls[i].name, calls[i].values,
                             calls[i].values == 1 ? "" : "s", lua_gettop(L));
    return calls[i].call(L);
}

void qg_trace_call_build(struct qg *q)
{
    qg_text_clear(&q->chunk);
    for (int i = 0; i < CALLS; i++) {
        qg_text_print(q, &q->chunk, "%s%s", i ? ", " : "", calls[i].name);
        lua_pushinteger(q->L, i);
        lua_pushcclosure(q->L, on_call, 1);
        lua_setfield(q->L, -2, calls[i].name);
    }
    q->calls = qg_mem_string(q, q->chunk.data, q->chunk.length);
}
