/* SPDX-License-Identifier: Apache-2.0 */
/*
** rule.c: calling a rule to record its computation.
**
** Lua gives no hand on the loops `while` and `repeat`, so the text of every Lua
** function that runs is looked through for them. condition.c is about `if`,
** `and`, `or`, `not` and ==.
*/
#include "lua/base.h"
#include "rule/rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int is_loop(const struct qg_lex *lex)
{
    return lex->token == QG_KEYWORD &&
           (qg_lex_is(lex, "while") || qg_lex_is(lex, "repeat"));
}

/* Raise for the first word that a rule cannot use in lines first .. last. */
static void look_through(lua_State *L, const struct qg_input *file, int index,
                         int first, int last)
{
    struct qg_lex lex;
    int depth = 0; /* of the outermost function's openings */

    qg_lex_start(&lex, file->text, file->length);
    while (qg_lex_next(&lex) && lex.line <= last) {
        if (depth || (lex.line >= first && qg_lex_is(&lex, "function")))
            depth += qg_lex_nesting(&lex);
        if (depth && is_loop(&lex)) {
            lua_pushfstring(L, "%d:%d: ", index, lex.line);
            lua_pushlstring(L, lex.start, (size_t)lex.length);
            qg_diag_raise(L, QG_E_RULE_WORD, lua_tostring(L, -2),
                          lua_tostring(L, -1),
                          "for i = 1, n do, with a number n");
        }
    }
}

/* Every function that runs while a rule is traced. */
static void on_call(lua_State *L, lua_Debug *debug)
{
    struct qg *q = qg_sandbox_owner(L);
    int index;

    if (debug->event == LUA_HOOKCOUNT) {
        qg_sandbox_count(L, debug);
        return;
    }
    lua_getinfo(L, "S", debug);
    if (debug->source[0] != '@' || debug->linedefined < 1)
        return;
    index = atoi(debug->source + 1);
    qg_sandbox_charge(L, (long long)q->files[index].length / 4);
    look_through(L, &q->files[index], index, debug->linedefined,
                 debug->lastlinedefined);
}

/* ------------------------------------------------------------- calling one */

/* One call of a rule: its purpose, and the values it may use. */
struct call {
    struct qg *q;
    const struct qg_scale *scale;
    int input;     /* enum qg_input_type */
    int is_global; /* the rule of the second level */
};

/* A rowwise tensor's values were rounded already: its values are fp32 then. */
static int input_type(int input)
{
    static const int types[QG_INPUTS] = {QUERN_BF16, QUERN_F16, QUERN_F32,
                                         QUERN_F32};

    return types[input];
}

/* Push a value that is known only when the kernel runs. */
static void push_value(lua_State *L, enum qg_op op)
{
    qg_trace_push(
        L, qg_trace_node(L, op, QG_FLOAT, (const struct qg_node *[3]){NULL}));
}

/* Push the type of values. Its codes next to one that stands for 0 reach as far
   as magnitudes of either sign do. */
static void push_element(lua_State *L, const struct qg_scale *scale)
{
    const double max = qg_types_of(scale->element)->max, zero = scale->zero;

    if (zero > 0)
        qg_types_push_to(L, scale->element, fmin(zero, max - zero));
    else
        qg_types_push(L, scale->element);
}

/* Push the second argument: element, input, and the other fields. */
static void push_facts(const struct call *c)
{
    lua_State *L = c->q->L;

    lua_createtable(L, 0, 4);
    push_element(L, c->scale);
    lua_setfield(L, -2, "element");
    qg_types_push(L, input_type(c->input));
    lua_setfield(L, -2, "input");
    if (c->scale->global && !c->is_global) {
        push_value(L, QG_OP_GLOBAL);
        lua_setfield(L, -2, "global");
    }
    if (c->scale->delayed.history) {
        push_value(L, QG_OP_PREVIOUS);
        lua_setfield(L, -2, "previous");
    }
    qg_frozen_wrap(L);
}

/* The rule's first line; a function of C's has no location of its own. */
struct qg_location qg_rule_location(struct qg *q, const struct qg_scale *scale,
                                    int global)
{
    lua_Debug debug;

    lua_rawgeti(q->L, LUA_REGISTRYINDEX, global ? scale->global : scale->rule);
    if (!lua_isfunction(q->L, -1)) {
        lua_pop(q->L, 1);
        return scale->location;
    }
    lua_getinfo(q->L, ">S", &debug);
    if (debug.source[0] != '@')
        return scale->location;
    return (struct qg_location){atoi(debug.source + 1), debug.linedefined};
}

/* Has the rule parameters that would be nil? Returns 1 and noted then. */
static int takes_more(const struct call *c)
{
    lua_Debug debug;

    lua_rawgeti(c->q->L, LUA_REGISTRYINDEX,
                c->is_global ? c->scale->global : c->scale->rule);
    lua_getinfo(c->q->L, ">u", &debug);
    if (debug.nparams <= 2)
        return 0;
    qg_diag_note(c->q, qg_rule_location(c->q, c->scale, c->is_global),
                 QG_E_RULE_TAKES, debug.nparams);
    return 1;
}

/* Its results are left on the stack, and the one after them. Values of earlier
   calls are told from those of this one by their number. Returns 0, or 1 and
   noted. */
static int call(const struct call *c)
{
    struct qg *q = c->q;
    lua_State *L = q->L;
    int failed, arguments;

    lua_rawgeti(L, LUA_REGISTRYINDEX,
                c->is_global ? c->scale->global : c->scale->rule);
    arguments = lua_iscfunction(L, -1) ? 1 : 2; /* rule = e8m0_up */
    qg_trace_start(q);
    push_value(L, QG_OP_AMAX);
    if (arguments == 2)
        push_facts(c);
    lua_sethook(L, on_call, LUA_MASKCOUNT | LUA_MASKCALL, QG_STEP);
    q->tracing = 1;
    failed = qg_sandbox_call(q, arguments, 3, c->scale->location);
    q->tracing = 0;
    lua_sethook(L, qg_sandbox_count, LUA_MASKCOUNT, QG_STEP);
    return failed;
}

/* -------------------------------------------------------------- its results */

static const char *kind_at(lua_State *L, int index)
{
    const struct qg_node *node = qg_trace_at(L, index);

    if (lua_isnil(L, index))
        return "nothing";
    return node ? qg_trace_kinds[node->kind] : qg_object_kind(L, index);
}

static struct qg_location place_of(const struct call *c)
{
    return qg_rule_location(c->q, c->scale, c->is_global);
}

/* The stored scale, of the kind that the scale's type has. */
static const struct qg_node *stored(const struct call *c)
{
    static const struct {
        int type;
        enum qg_kind kind;
        const char *usual;
    } kinds[] = {{QUERN_F32, QG_FLOAT, "1 / s, s"},
                 {QUERN_E8M0, QG_E8M0, "e8m0_up(amax * (1 / of.element.max))"},
                 {QUERN_E4M3, QG_E4M3,
                  "b, 1 / from_e4m3(b), b being "
                  "to_e4m3(amax / of.element.max)"},
                 {QUERN_BF16, QG_BF16,
                  "b, min(1 / from_bf16(b), f32.max), b being "
                  "to_bf16(amax / of.element.max)"},
                 {QUERN_F16, QG_F16,
                  "b, min(1 / from_f16(b), f32.max), b being "
                  "to_f16(amax / of.element.max)"}};
    int type = c->is_global ? QUERN_F32 : c->scale->type, i = 0;
    const struct qg_node *node = qg_trace_at(c->q->L, -2);

    while (kinds[i].type != type)
        i++;
    if (!node && lua_type(c->q->L, -2) == LUA_TNUMBER)
        qg_diag_note(c->q, place_of(c), QG_E_RULE_NUMBER, "a number");
    else if (!node || node->kind != kinds[i].kind)
        qg_diag_note(c->q, place_of(c), QG_E_SCALE_TYPE,
                     qg_types_of(type)->name, qg_trace_kinds[kinds[i].kind],
                     kind_at(c->q->L, -2), kinds[i].usual);
    else
        return node;
    return NULL;
}

const char *qg_rule_usual(const struct qg_scale *scale, int global)
{
    static const struct {
        int type;
        const char *alone, *below;
    } pairs[] = {
        {QUERN_F32, "1 / s, s", "s, of.global / s"},
        {QUERN_E8M0, "only the e8m0 scale",
         "e8m0_bits(e), of.global * frombits((254 - e) << 23)"},
        {QUERN_E4M3, "b, 1 / from_e4m3(b)", "b, of.global / from_e4m3(b)"},
        {QUERN_BF16, "b, 1 / from_bf16(b)", "b, of.global / from_bf16(b)"},
        {QUERN_F16, "b, 1 / from_f16(b)", "b, of.global / from_f16(b)"},
    };
    int i = 0;

    while (!global && pairs[i].type != scale->type)
        i++;
    return !global && scale->global ? pairs[i].below : pairs[i].alone;
}

/* The values' factor; an e8m0 in one level determines it. */
static const struct qg_node *factor(const struct call *c,
                                    const struct qg_node *sf)
{
    lua_State *L = c->q->L;
    const struct qg_node *node = qg_trace_at(L, -1);

    if (lua_isnil(L, -1) && sf->kind == QG_E8M0 && !c->scale->global)
        return qg_trace_multiplier(L, sf);
    if (node && node->kind == QG_FLOAT)
        return node;
    qg_diag_note(c->q, place_of(c), QG_E_RULE_FACTOR, kind_at(L, -1),
                 qg_rule_usual(c->scale, c->is_global));
    return NULL;
}

/* Does the rule use the values that it may use? A slip would otherwise go
   unnoticed. */
static int check_uses(const struct call *c, unsigned uses)
{
    const char *missing = NULL;

    if (!(uses & 1u << QG_OP_AMAX))
        missing = "its argument";
    else if (c->scale->global && !c->is_global && !(uses & 1u << QG_OP_GLOBAL))
        missing = "of.global";
    else if (c->scale->delayed.history && !(uses & 1u << QG_OP_PREVIOUS))
        missing = "of.previous";
    if (missing)
        qg_diag_note(c->q, place_of(c), QG_E_RULE_UNUSED, missing);
    return missing != NULL;
}

/* Both results and any values after them, on top of the stack. Returns 0, or
   1 and noted. */
static int results(const struct call *c, struct qg_rule_trace *out)
{
    if (!lua_isnil(c->q->L, -1)) {
        qg_diag_note(c->q, place_of(c), QG_E_RULE_THIRD, kind_at(c->q->L, -1));
        return 1;
    }
    lua_pop(c->q->L, 1);
    out->given = !lua_isnil(c->q->L, -1);
    out->stored = stored(c);
    out->factor = out->stored ? factor(c, out->stored) : NULL;
    if (!out->factor)
        return 1;
    if (out->stored->trace != c->q->traces ||
        out->factor->trace != c->q->traces) {
        qg_diag_note(c->q, place_of(c), QG_E_RULE_OLD);
        return 1;
    }
    return check_uses(c, out->stored->uses | out->factor->uses);
}

/* Do both print alike? */
static int same_rule(struct qg *q, const struct qg_rule_trace *one,
                     const struct qg_rule_trace *two)
{
    qg_text_clear(&q->chunk);
    qg_text_clear(&q->output);
    qg_trace_print(q, &q->chunk, "", one->stored, one->factor, QG_C);
    qg_trace_print(q, &q->output, "", two->stored, two->factor, QG_C);
    return !strcmp(q->chunk.data, q->output.data);
}

/*
** Twice: a rule that counts its calls, say, would give each copy another scale.
** Returns 0, or 1 and noted. */
static int trace(const struct call *c, struct qg_rule_trace *out)
{
    struct qg_rule_trace again;
    int failed = takes_more(c) || call(c) || results(c, out);

    lua_settop(c->q->L, 0);
    if (!failed)
        failed = call(c) || results(c, &again);
    lua_settop(c->q->L, 0);
    if (failed || same_rule(c->q, out, &again))
        return failed;
    qg_diag_note(c->q, place_of(c), QG_E_RULE_STEADY);
    return 1;
}

int qg_rule_trace_all(struct qg *q, struct qg_scale *scale)
{
    struct call c = {q, scale, 0, 0};

    for (c.input = 0; c.input < QG_INPUTS; c.input++) {
        c.is_global = 0;
        if (trace(&c, &scale->rules[c.input]))
            return 1;
        c.is_global = 1;
        if (scale->global && trace(&c, &scale->globals[c.input]))
            return 1;
        if (!same_rule(q, &scale->rules[0], &scale->rules[c.input]))
            scale->by_input = 1;
    }
    return 0;
}
