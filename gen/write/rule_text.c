/* SPDX-License-Identifier: Apache-2.0 */
/* rule_text.c: rules as text: functions in C and CUDA C, and as their authors
   wrote them. */
#include "lua/base.h"
#include "rule/trace.h"
#include "write/sweep.h"
#include "write/write.h"

#include <stdlib.h>
#include <string.h>

/* The head of a rule's function: `qualifiers` float `name`(...). */
static const char *head(struct qg *q, const struct qg_scale *scale,
                        const char *qualifiers, const char *name, int is_global)
{
    int is_float = is_global || scale->type == QUERN_F32;

    return qg_mem_print(q, "%s float %s(float amax%s%s, %s *sf)", qualifiers,
                        name,
                        scale->global && !is_global ? ", float global" : "",
                        scale->delayed.history ? ", float previous" : "",
                        is_float ? "float" : "unsigned int");
}

/* The functions that it calls, if they are not there already. */
static void bring_casts(lua_State *L, unsigned int uses)
{
    static const struct {
        enum qg_op op;
        const char *file;
    } casts[] = {{QG_OP_FROM_E4M3, "cast/from_e4m3.c"},
                 {QG_OP_TO_E4M3, "cast/to_e4m3.c"},
                 {QG_OP_FROM_BF16, "cast/from_bf16.c"},
                 {QG_OP_TO_BF16, "cast/to_bf16.c"},
                 {QG_OP_FROM_F16, "cast/from_f16.c"},
                 {QG_OP_TO_F16, "cast/to_f16.c"}};

    for (size_t i = 0; i < sizeof casts / sizeof *casts; i++)
        if (uses >> casts[i].op & 1) {
            lua_pushcfunction(L, qg_once);
            lua_pushstring(L, casts[i].file);
            lua_call(L, 1, 0);
        }
}

/* rule "scale" or rule "global", in a template: the function scale_of or
   global_of, which sets *sf to the stored scale and returns the values' factor.
   rule("scale", "f16"): the function scale_of_f16, for this type of input, with
   any type of the kernel. */
int qg_rule(lua_State *L)
{
    struct qg *q = qg_sandbox_owner(L);
    const char *which = luaL_checkstring(L, 1);
    const char *input = luaL_optstring(L, 2, NULL);
    int number = input      ? qg_list_find(&qg_list_inputs, input)
                 : q->point ? q->point->input
                            : 0;
    const struct qn_kernel *kernel = q->point ? &q->point->kernel : NULL;
    const struct qg_scale *scale = q->point ? q->point->scale : NULL;
    int is_global = !strcmp(which, "global");
    const struct qg_rule_trace *rule;

    if (!scale || number < 0 || (input && number == QG_IN_COPY) ||
        (!is_global && strcmp(which, "scale")) || (is_global && !scale->global))
        return qg_diag_raise(L, QG_E_RULE_WHICH, which);
    rule = is_global ? &scale->globals[number] : &scale->rules[number];
    bring_casts(L, rule->stored->uses | rule->factor->uses);
    qg_sweep_origin(q, scale->location.file);
    qg_trace_print(q, &q->output,
                   head(q, scale, "FN",
                        qg_mem_print(q, "%s_of%s%s", which, input ? "_" : "",
                                     input ? input : ""),
                        is_global),
                   rule->stored, rule->factor,
                   strcmp(kernel->arch, "host") ? QG_CUDA : QG_C);
    qg_sweep_origin(q, qg_sandbox_location(L).file);
    return 0;
}

/* ---------------------------------------------------------- for the caller */

struct request {
    const char *recipe;
    int of, language;
};

static void print_rule(struct qg *q, void *argument)
{
    struct request *request = argument;
    struct qg_recipe *recipe = q->recipes;
    const struct qg_scale *scale;

    while (recipe && strcmp(recipe->name, request->recipe))
        recipe = recipe->next;
    scale = recipe ? &recipe->scale[request->of] : NULL;
    if (!scale || !scale->blocked) {
        qg_diag_note(q, (struct qg_location){-1, 0}, QG_E_RULE_UNKNOWN,
                     request->recipe,
                     recipe ? "has no rule" : "does not exist");
        return;
    }
    qg_text_clear(&q->output);
    qg_trace_print(q, &q->output,
                   head(q, scale,
                        request->language == QG_C
                            ? "static inline"
                            : "static __device__ __forceinline__",
                        qg_mem_print(q, "%s_scale", recipe->name), 0),
                   scale->rules[QG_IN_BF16].stored,
                   scale->rules[QG_IN_BF16].factor, request->language);
}

int qg_rule_text(struct qg *q, const char *recipe, int of, int language,
                 const char **text, size_t *length)
{
    struct request request = {recipe, of, language};

    qg_diag_clear(q);
    if (qg_sandbox_protect(q, print_rule, &request))
        return 1;
    *text = q->output.data;
    *length = q->output.length;
    return 0;
}

/* The text between the first "function" and the last "end". */
static const char *cut_function(struct qg *q, const char *text)
{
    const char *first = strstr(text, "function"), *last = NULL;

    for (const char *at = strstr(text, "end"); at; at = strstr(at + 1, "end"))
        last = at + strlen("end");
    if (!first || !last || last < first)
        return qg_mem_string(q, text, strlen(text));
    return qg_mem_string(q, first, (size_t)(last - first));
}

/* The rule as its author wrote it, its lines joined, without comments. */
const char *qg_rule_source(struct qg *q, const struct qg_scale *scale)
{
    struct qg_location location = {0, 0};
    lua_Debug debug;
    struct qg_text *out = &q->chunk;
    const char *line;
    int length;

    if (!scale->blocked)
        return "";
    lua_rawgeti(q->L, LUA_REGISTRYINDEX, scale->rule);
    lua_getinfo(q->L, ">S", &debug);
    location.file = debug.source[0] == '@' ? atoi(debug.source + 1) : -1;
    qg_text_clear(out);
    qg_text_put(q, out, "");
    for (location.line = debug.linedefined;
         location.file >= 0 && location.line <= debug.lastlinedefined;
         location.line++) {
        line = qg_files_line(q, location, &length);
        for (; length && *line == ' '; length--)
            line++;
        for (int i = 0; i + 1 < length; i++)
            if (line[i] == '-' && line[i + 1] == '-')
                length = i; /* a comment would go on to the end */
        if (out->length)
            qg_text_put(q, out, " ");
        qg_text_add(q, out, line, (size_t)length);
    }
    return cut_function(q, out->data);
}
