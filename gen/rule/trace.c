/* SPDX-License-Identifier: Apache-2.0 */
/*
** trace.c: values that are known only on the device, and their operators.
**
** A rule is called with such a value; each operator adds a node to a graph.
** Operators that have no meaning here are refused below with the replacement to
** write; those without a metamethod (if, and, or, not, == with a number) in
** condition.c.
*/
#include "lua/base.h"
#include "rule/trace.h"

#include <math.h>
#include <string.h>

#define VALUE "value of a rule" /* as Lua's messages call it */

const char *const qg_trace_kinds[QG_KINDS] = {
    "a float",       "bits",         "a choice",    "an e8m0 scale",
    "an e4m3 scale", "a bf16 scale", "an f16 scale"};

static const int operands_of[QG_OP_COUNT] = {
#define QG_OP_OPERANDS(name, operands, c, cuda) operands,
    QG_OPS(QG_OP_OPERANDS)
#undef QG_OP_OPERANDS
};

/* Before each call of a rule. */
void qg_trace_start(struct qg *q)
{
    q->nodes = 0;
    q->traces++;
}

/* Raises when the rule has too many terms, e.g. from a loop. */
static struct qg_node *new_node(lua_State *L, enum qg_op op, enum qg_kind kind)
{
    struct qg *q = qg_sandbox_owner(L);
    struct qg_node *node;

    if (q->nodes >= QG_MAX_NODES)
        qg_diag_raise(L, QG_E_RULE_LONG, QG_MAX_NODES);
    node = qg_mem_new(q, sizeof *node);
    node->op = op;
    node->kind = kind;
    node->operands = operands_of[op];
    node->order = q->nodes++;
    node->trace = q->traces;
    return node;
}

const struct qg_node *qg_trace_node(lua_State *L, enum qg_op op,
                                    enum qg_kind kind,
                                    const struct qg_node *const operand[3])
{
    struct qg_node *node = new_node(L, op, kind);

    node->uses = 1u << op;
    for (int i = 0; i < node->operands; i++) {
        node->operand[i] = operand[i];
        node->uses |= operand[i]->uses;
    }
    return node;
}

/* As a value that the rule can go on with. */
int qg_trace_push(lua_State *L, const struct qg_node *node)
{
    qg_object_push(L, node, VALUE);
    return 1;
}

const struct qg_node *qg_trace_at(lua_State *L, int index)
{
    return qg_object_at(L, index, VALUE);
}

/* A float is rounded to fp32 once, here; infinity and NaN go as bits. */
const struct qg_node *qg_trace_constant(lua_State *L, enum qg_kind kind,
                                        double value)
{
    struct qg_node *node = new_node(L, QG_OP_CONSTANT, kind);
    float single = (float)value;

    if (kind != QG_FLOAT) {
        node->bits = (unsigned int)value;
        return node;
    }
    node->value = single;
    if (isfinite(single))
        return node;
    node->kind = QG_BITS;
    memcpy(&node->bits, &single, sizeof single);
    return qg_trace_node(L, QG_OP_FROMBITS, QG_FLOAT,
                         (const struct qg_node *[3]){node});
}

/* For a message. */
static const char *kind_at(lua_State *L, int index)
{
    const struct qg_node *node = qg_trace_at(L, index);

    if (node)
        return qg_trace_kinds[node->kind];
    return qg_object_kind(L, index);
}

/* The same; a number as it is. */
static const char *given_at(lua_State *L, int index)
{
    return lua_type(L, index) == LUA_TNUMBER ? lua_tostring(L, index)
                                             : kind_at(L, index);
}

/* How to convert the given kind to the required one. */
static const char *hint(lua_State *L, int index, enum qg_kind wanted)
{
    const struct qg_node *node = qg_trace_at(L, index);

    if (wanted == QG_CHOICE)
        return "; lt, le, eq, isinf and isnan give one";
    if (wanted == QG_E4M3)
        return "; to_e4m3(x) gives one";
    if (wanted == QG_BF16)
        return "; to_bf16(x) gives one";
    if (wanted == QG_F16)
        return "; to_f16(x) gives one";
    if (wanted == QG_BITS && node && node->kind == QG_FLOAT)
        return "; bits(x) gives them";
    if (wanted == QG_BITS && !node && lua_type(L, index) == LUA_TNUMBER)
        return "; a number must be whole, from 0 to 0xffffffff";
    if (wanted == QG_FLOAT && node && node->kind == QG_BITS)
        return "; frombits(x) gives one";
    if (wanted == QG_FLOAT && qg_types_check(L, index))
        return "; a type's .max and .bits are numbers";
    if (wanted == QG_FLOAT && lua_isuserdata(L, index) && !node)
        return "; of a rule's second argument write of.element.max or .bits";
    return "";
}

const struct qg_node *qg_trace_operand(lua_State *L, int index,
                                       enum qg_kind kind, const char *what)
{
    const struct qg_node *node = qg_trace_at(L, index);

    if (node && node->trace != qg_sandbox_owner(L)->traces)
        qg_diag_raise(L, QG_E_RULE_OLD);
    if (node && node->kind == kind)
        return node;
    if (!node && lua_type(L, index) == LUA_TNUMBER) {
        lua_Number number = lua_tonumber(L, index);

        if (kind == QG_FLOAT)
            return qg_trace_constant(L, kind, number);
        if (kind == QG_BITS && number >= 0 && number <= 4294967295.0 &&
            floor(number) == number)
            return qg_trace_constant(L, kind, number);
    }
    qg_diag_raise(L, QG_E_RULE_KIND, what, qg_trace_kinds[kind],
                  given_at(L, index), hint(L, index, kind));
    return NULL;
}

/* --------------------------------------------------------------- operators */

/* The kind of the operand that is not a plain number. */
static enum qg_kind kind_of_pair(lua_State *L)
{
    const struct qg_node *node = qg_trace_at(L, 1);

    if (!node)
        node = qg_trace_at(L, 2);
    return node->kind;
}

/* A node of two operands of one kind. */
static int pair(lua_State *L, enum qg_op op, enum qg_kind kind,
                const char *what)
{
    const struct qg_node *operand[3] = {qg_trace_operand(L, 1, kind, what),
                                        qg_trace_operand(L, 2, kind, what),
                                        NULL};

    return qg_trace_push(L, qg_trace_node(L, op, kind, operand));
}

static int on_add(lua_State *L)
{
    if (kind_of_pair(L) == QG_BITS)
        return pair(L, QG_OP_BITS_ADD, QG_BITS, "+");
    return pair(L, QG_OP_ADD, QG_FLOAT, "+");
}

static int on_sub(lua_State *L)
{
    if (kind_of_pair(L) == QG_BITS)
        return pair(L, QG_OP_BITS_SUB, QG_BITS, "-");
    return pair(L, QG_OP_SUB, QG_FLOAT, "-");
}

static int on_mul(lua_State *L)
{
    return pair(L, QG_OP_MUL, QG_FLOAT, "*");
}

static int on_div(lua_State *L)
{
    return pair(L, QG_OP_DIV, QG_FLOAT, "/");
}

static int on_unm(lua_State *L)
{
    const struct qg_node *operand[3] = {
        qg_trace_operand(L, 1, QG_FLOAT, "unary -"), NULL, NULL};

    return qg_trace_push(L, qg_trace_node(L, QG_OP_NEG, QG_FLOAT, operand));
}

static int on_bnot(lua_State *L)
{
    enum qg_kind kind = kind_of_pair(L) == QG_CHOICE ? QG_CHOICE : QG_BITS;
    enum qg_op op = kind == QG_CHOICE ? QG_OP_NOT : QG_OP_BITS_NOT;
    const struct qg_node *operand[3] = {qg_trace_operand(L, 1, kind, "~"), NULL,
                                        NULL};

    return qg_trace_push(L, qg_trace_node(L, op, kind, operand));
}

/* & | ~ join bits with bits, and choices with choices. */
static int logic(lua_State *L, enum qg_op op, const char *what)
{
    if (kind_of_pair(L) == QG_CHOICE)
        return pair(L, op, QG_CHOICE, what);
    return pair(L, op, QG_BITS, what);
}

static int on_band(lua_State *L)
{
    return logic(L, QG_OP_AND, "&");
}

static int on_bor(lua_State *L)
{
    return logic(L, QG_OP_OR, "|");
}

static int on_bxor(lua_State *L)
{
    return logic(L, QG_OP_XOR, "~");
}

/* By a plain number below 32: more is undefined in C. */
static int shift(lua_State *L, enum qg_op op, const char *what)
{
    if (!lua_isinteger(L, 2) || lua_tointeger(L, 2) < 0 ||
        lua_tointeger(L, 2) > 31)
        return qg_diag_raise(L, QG_E_RULE_KIND, what,
                             "a whole number from 0 to 31 on its right",
                             given_at(L, 2), "");
    return pair(L, op, QG_BITS, what);
}

static int on_shl(lua_State *L)
{
    return shift(L, QG_OP_SHL, "<<");
}

static int on_shr(lua_State *L)
{
    return shift(L, QG_OP_SHR, ">>");
}

/* -------------------------------------------------------- refused operators */

static const struct {
    const char *event, *what, *instead;
} refused[] = {
    {"__lt", "< or >", "lt(a, b) for a < b"},
    {"__le", "<= or >=", "le(a, b) for a <= b"},
    {"__eq", "==", "eq(a, b)"},
    {"__concat", "..", "a + b for a sum"},
    {"__len", "#", "a number, such as 32, for the values of a block"},
    {"__index", "a field of a value", "bits(a) for the bits of a float"},
    {"__newindex", "assigning to a value's field", "local b = ..."},
    {"__call", "calling a value", "a * b for a product"},
    {"__idiv", "//", "a / b, or bits(a) >> 23 & 255 for the exponent"},
    {"__mod", "%", "bits(a) & 255 for bits"},
    {"__pow", "^",
     "a * a for a square, frombits(code << 23) for 2 ^ (code - 127)"},
};

static int on_refused(lua_State *L)
{
    int i = (int)lua_tointeger(L, lua_upvalueindex(1));

    return qg_diag_raise(L, QG_E_RULE_PLAIN, refused[i].what,
                         refused[i].instead);
}

void qg_trace_build(struct qg *q)
{
    static const luaL_Reg events[] = {
        {"__add", on_add},   {"__sub", on_sub}, {"__mul", on_mul},
        {"__div", on_div},   {"__unm", on_unm}, {"__bnot", on_bnot},
        {"__band", on_band}, {"__bor", on_bor}, {"__bxor", on_bxor},
        {"__shl", on_shl},   {"__shr", on_shr}, {NULL, NULL}};
    lua_State *L = q->L;

    qg_object_define(L, VALUE, "a value of a rule");
    luaL_setfuncs(L, events, 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        lua_pushinteger(L, (lua_Integer)i);
        lua_pushcclosure(L, on_refused, 1);
        lua_setfield(L, -2, refused[i].event);
    }
    lua_pop(L, 1);
}
