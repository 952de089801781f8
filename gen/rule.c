/*
** rule.c: calling a rule to see what it computes.
**
** Lua gives no hand on `if`, `and`, `or`, `not`, nor on == between a value
** and a number. So the text of every Lua function that runs is looked through
** for them first: with plain numbers they would be harmless, but a rule is
** short, and a wrong expression would go unnoticed.
*/
#include "qg.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word, *instead;
} refused[] = {
    {"if", "select(condition, x, y)"},
    {"and", "a & b"},
    {"or", "a | b"},
    {"not", "~a"},
    {"while", "for i = 1, n do, with a number n"},
    {"repeat", "for i = 1, n do, with a number n"},
    {"==", "eq(a, b)"},
    {"~=", "~eq(a, b)"},
    {"<", "lt(a, b)"},
    {"<=", "le(a, b)"},
    {">", "lt(b, a)"},
    {">=", "le(b, a)"},
};

/* What to write instead of the token; NULL if a rule may have it. */
static const char *replacement(const struct qg_lex *lex)
{
    if (lex->token != QG_KEYWORD && lex->token != QG_SIGN)
        return NULL;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (qg_lex_is(lex, refused[i].word))
            return refused[i].instead;
    return NULL;
}

/* Raise for the first word that a rule cannot use in lines first .. last. */
static void look_through(lua_State *L, const struct qg_input *file, int index,
                         int first, int last)
{
    struct qg_lex lex;
    int inside = 0;

    qg_lex_start(&lex, file->text, file->length);
    while (qg_lex_next(&lex) && lex.line <= last) {
        const char *instead;

        inside |= lex.line >= first && qg_lex_is(&lex, "function");
        instead = inside ? replacement(&lex) : NULL;
        if (instead) {
            lua_pushfstring(L, "%d:%d: ", index, lex.line);
            lua_pushlstring(L, lex.start, (size_t)lex.length);
            qg_diag_raise(L, QG_E_RULE_WORD, lua_tostring(L, -2),
                          lua_tostring(L, -1), instead);
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

/*
** A fresh argument. Values of earlier calls are told from it by their number.
*/
static const struct qg_node *amax(struct qg *q)
{
    qg_trace_start(q);
    return qg_trace_node(q->L, QG_OP_AMAX, QG_FLOAT,
                         (const struct qg_node *[3]){NULL});
}

/* What one call returns is left on the stack. Returns 0, or 1 and noted. */
static int call(struct qg *q, const struct qg_scale *scale)
{
    lua_State *L = q->L;
    int failed;

    lua_rawgeti(L, LUA_REGISTRYINDEX, scale->rule);
    qg_trace_push(L, amax(q));
    lua_sethook(L, on_call, LUA_MASKCOUNT | LUA_MASKCALL, QG_STEP);
    failed = qg_sandbox_call(q, 1, 1, scale->place);
    lua_sethook(L, qg_sandbox_count, LUA_MASKCOUNT, QG_STEP);
    return failed;
}

/* The rule's result on top of the stack, if it is one. */
static const struct qg_node *result(struct qg *q, const struct qg_scale *scale)
{
    enum qg_kind kind = scale->type == QUERN_E8M0 ? QG_E8M0 : QG_FLOAT;
    const struct qg_node *node = qg_trace_at(q->L, -1);
    const char *got =
        node ? qg_trace_kinds[node->kind] : qg_word_kind_of(q->L, -1);

    if (!node && lua_type(q->L, -1) == LUA_TNUMBER) {
        qg_diag_note(q, scale->place, QG_E_RULE_NUMBER, "a number");
    } else if (!node || node->kind != kind) {
        qg_diag_note(q, scale->place, QG_E_SCALE_TYPE,
                     qg_types_of(scale->type)->name, qg_trace_kinds[kind], got);
    } else if (node->trace != q->traces) {
        qg_diag_note(q, scale->place, QG_E_RULE_OLD);
    } else if (!node->uses_amax) {
        qg_diag_note(q, scale->place, QG_E_RULE_NUMBER, got);
    } else {
        return node;
    }
    return NULL;
}

/* A rule that counts its calls, say, would give each copy another scale. */
static int is_steady(struct qg *q, const struct qg_node *one,
                     const struct qg_node *two)
{
    qg_text_clear(&q->chunk);
    qg_text_clear(&q->output);
    qg_trace_print(q, &q->chunk, one, "rule", QG_C);
    qg_trace_print(q, &q->output, two, "rule", QG_C);
    return !strcmp(q->chunk.data, q->output.data);
}

const struct qg_node *qg_rule_trace(struct qg *q, const struct qg_scale *scale)
{
    const struct qg_node *node[2];

    for (int i = 0; i < 2; i++) {
        if (call(q, scale))
            return NULL;
        node[i] = result(q, scale);
        lua_pop(q->L, 1);
        if (!node[i])
            return NULL;
    }
    if (is_steady(q, node[0], node[1]))
        return node[0];
    qg_diag_note(q, scale->place, QG_E_RULE_STEADY);
    return NULL;
}

/* ---------------------------------------------------------- for the caller */

struct request {
    const char *recipe;
    int language;
};

static void print_rule(struct qg *q, void *argument)
{
    struct request *request = argument;
    struct qg_recipe *recipe = q->recipes;

    while (recipe && strcmp(recipe->name, request->recipe))
        recipe = recipe->next;
    if (!recipe || !recipe->scale.trace) {
        qg_diag_note(q, (struct qg_place){-1, 0}, QG_E_RULE_UNKNOWN,
                     request->recipe,
                     recipe ? "has no rule" : "does not exist");
        return;
    }
    qg_text_clear(&q->output);
    qg_trace_print(q, &q->output, recipe->scale.trace,
                   qg_mem_print(q, "%s_scale", recipe->name),
                   request->language);
}

int qg_rule_text(struct qg *q, const char *recipe, int language,
                 const char **text, size_t *length)
{
    struct request request = {recipe, language};

    qg_diag_clear(q);
    if (qg_sandbox_protect(q, print_rule, &request))
        return 1;
    *text = q->output.data;
    *length = q->output.length;
    return 0;
}
