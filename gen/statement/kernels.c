/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c: `kernels "name" { ... }`: a grid of kernels from one template. */
#include "lua/base.h"
#include "statement/field.h"
#include "statement/word.h"

#include <stddef.h>
#include <string.h>

#define AT(member)                      offsetof(struct qg_kernels, member)
#define PARAM_NAME(name, type, meaning) #name " "
#define ARCHES                                                                 \
    "host sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_100f sm_100a sm_103a "      \
    "sm_120 sm_120f sm_120a"

static const struct qg_field fields[] = {
    {"op", QG_F_NAMES, 1, AT(op),
     QG_WORDS(QUERN_OPS(QG_WORD) QN_CASTS(QG_WORD)), NULL,
     "which product of a layer; or which cast"},
    {"element", QG_F_TYPES, 1, AT(element), QG_ELEMENTS, NULL,
     "types of A and B, or of quantized values, that the template takes"},
    {"scale", QG_F_NAMES, 0, AT(scale),
     QG_WORDS(" none blocked block" QN_SPANS(QG_WORD)), NULL,
     "scales that the template takes: the values that share one, \"blocked\": "
     "any of "
     "these, or \"none\" (the default)"},
    {"layout", QG_F_NAMES, 0, AT(layout), NULL, NULL,
     "a layout statement's name; of products"},
    {"ragged", QG_F_NAMES, 0, AT(ragged), NULL, NULL,
     "a ragged statement's name; of products"},
    {"of", QG_F_NAMES, 0, AT(of), QG_WORDS(QN_OFS(QG_WORD)), NULL,
     "which tensor of a layer; of casts"},
    {"input", QG_F_NAMES, 0, AT(input),
     QG_WORDS(QUERN_WIDE_TYPES(QG_WORD) " copy"), NULL,
     "the type before the cast (of dequantize, after it), or \"copy\": the "
     "rowwise tensor; of casts"},
    {"form", QG_F_NAMES, 0, AT(form), QG_WORDS(QN_FORMS(QG_WORD)), NULL,
     "the source of quantization: values as they are, an activation's result, "
     "or the "
     "gradient of its input; of casts (default \"plain\")"},
    {"epilogue", QG_F_NAMES, 0, AT(epilogue), QG_WORDS(QN_EPILOGUES(QG_WORD)),
     NULL,
     "the use of the product: it becomes D, is added to D, is scaled, is "
     "scaled and added to a scaled C, an activation of it becomes D, that is "
     "quantized at once, or it is an activation's gradient, and D that of "
     "its input, as values or quantized (default \"store\")"},
    {"arch", QG_F_NAMES, 1, AT(arch), ARCHES, NULL,
     "architectures that the kernels are compiled for"},
    {"recipe", QG_F_NAME, 0, AT(recipe), NULL, NULL,
     "only this recipe (default: all that match)"},
    {"d", QG_F_TYPES, 0, AT(d), QG_WIDE, NULL,
     "only these output types (default: the recipe's)"},
    {"template", QG_F_PATH, 1, AT(template), NULL, NULL,
     "a file below templates/"},
    {"params", QG_F_NAMES, 1, AT(params), QN_PARAMS(PARAM_NAME), NULL,
     "the kernel's parameters, in order"},
};

enum { FIELDS = sizeof fields / sizeof *fields, OF_TEMPLATE = 2 };

const struct qg_fields qg_kernels_fields = {"kernels", fields, FIELDS, 1, 0};
/* An extension keeps the template, and so the parameters. */
const struct qg_fields qg_kernels_extend = {"extend", fields,
                                            FIELDS - OF_TEMPLATE, 1, 1};

/* Names that templates and functions know already. */
static int reserved(struct qg *q, const char *name)
{
    static const char *const names[] = {
        "a",       "b",       "d",        "recipe",   "op",    "layout",
        "ragged",  "arch",    "epilogue", "template", "name",  "params",
        "types",   "include", "once",     "of",       "input", "form",
        "element", "scale",   "rule",     "promote"};
    int found;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name))
            return 1;
    lua_rawgeti(q->L, LUA_REGISTRYINDEX, q->template_globals);
    lua_getfield(q->L, -1, name);
    found = !lua_isnil(q->L, -1);
    lua_pop(q->L, 2);
    return found;
}

/* Names of axes and derived values are one set. */
static int check_item_name(struct qg *q, const struct qg_kernels *kernels,
                           const struct qg_item *item)
{
    if (item->kind != QG_AXIS && item->kind != QG_DERIVE)
        return 0;
    if (reserved(q, item->name)) {
        qg_diag_note(q, item->word->location, QG_E_ITEM_RESERVED, item->name);
        return 1;
    }
    for (int i = 0; i < kernels->count; i++) {
        const struct qg_item *other = kernels->items[i];

        if (other->kind <= QG_DERIVE && !strcmp(other->name, item->name)) {
            qg_diag_note(q, item->word->location, QG_E_ITEM_NAME, item->name,
                         qg_files_print(q, other->word->location));
            return 1;
        }
    }
    return 0;
}

int qg_kernels_without(struct qg *q, const struct qg_kernels *kernels,
                       const struct qg_item *item)
{
    const struct qg_names *params = &kernels->params;
    const char *at =
        item->kind == QG_WITHOUT && params->count ? item->name : "";

    for (size_t length; *at; at += length + (at[length] == ' ')) {
        const char *name = qg_mem_string(q, at, length = strcspn(at, " "));
        struct qg_nearest nearest;
        int i = 0;

        while (i < params->count && strcmp(params->at[i], name))
            i++;
        if (i < params->count)
            continue;
        qg_nearest_start(&nearest, name);
        for (i = 0; i < params->count; i++)
            qg_nearest_try(&nearest, params->at[i]);
        qg_diag_note(q, item->word->location, QG_E_WITHOUT_NAME, name,
                     kernels->name,
                     qg_nearest_hint(&nearest,
                                     "without takes some of them, "
                                     "separated by blanks",
                                     ""));
        return 1;
    }
    return 0;
}

int qg_kernels_add(struct qg *q, struct qg_kernels *kernels,
                   const struct qg_item *item)
{
    enum { MOST = sizeof kernels->items / sizeof *kernels->items };

    if (kernels->count == MOST) {
        qg_diag_note(q, item->word->location, QG_E_ITEM_COUNT, kernels->name,
                     MOST);
        return 1;
    }
    kernels->items[kernels->count++] = item;
    return 0;
}

int qg_kernels_axes(struct qg *q, const struct qg_kernels *kernels)
{
    int axes = 0;

    for (int i = 0; i < kernels->count; i++)
        axes += kernels->items[i]->kind == QG_AXIS;
    if (axes <= QG_MAX_AXES)
        return 0;
    qg_diag_note(q, kernels->location, QG_E_AXIS_COUNT, kernels->name,
                 QG_MAX_AXES);
    return 1;
}

/* The entry on top of the stack. Returns the errors that were noted. */
static int take_item(struct qg *q, struct qg_kernels *kernels, int index)
{
    struct qg_item *item = qg_object_at(q->L, -1, QG_ITEM);

    if (lua_iscfunction(q->L, -1))
        return 1; /* a word without its second part says so itself */
    if (!item) {
        qg_diag_note(q, kernels->location, QG_E_ITEM_KIND, (long long)index,
                     kernels->name, qg_object_kind(q->L, -1));
        return 1;
    }
    item->word->used = 1;
    return check_item_name(q, kernels, item) ||
           qg_kernels_without(q, kernels, item) ||
           qg_kernels_add(q, kernels, item);
}

int qg_kernels_items(struct qg *q, struct qg_kernels *kernels)
{
    int count, errors = 0;

    if (lua_type(q->L, 1) != LUA_TTABLE)
        return 1;
    count = (int)lua_rawlen(q->L, 1);
    for (int i = 1; i <= count && errors < QG_MAX_ERRORS; i++) {
        lua_rawgeti(q->L, 1, i);
        errors += take_item(q, kernels, i);
        lua_pop(q->L, 1);
    }
    return errors + qg_kernels_axes(q, kernels);
}

static int is_cast(const char *op)
{
    return qg_list_find(&qg_list_ops, op) > QUERN_WGRAD;
}

/* Products have layouts and ragged axes, casts have tensors and inputs. */
static int check_family(struct qg *q, const struct qg_kernels *k)
{
    const struct {
        const char *name, *doc;
        int cast, count;
    } needs[] = {
        {"layout", "a layout statement's name", 0, k->layout.count},
        {"ragged", "a ragged statement's name", 0, k->ragged.count},
        {"of", "which tensor of a layer: x, w, dy", 1, k->of.count},
        {"input", "the type before the cast", 1, k->input.count},
    };
    int cast, errors = 0;

    if (!k->op.count)
        return 0;
    cast = is_cast(k->op.at[0]);
    for (int i = 1; i < k->op.count; i++)
        if (is_cast(k->op.at[i]) != cast) {
            qg_diag_note(q, k->location, QG_E_KERNELS_MIXED, k->name,
                         k->op.at[0], k->op.at[i]);
            return 1;
        }
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        if (needs[i].cast == cast && !needs[i].count)
            qg_diag_note(q, k->location, QG_E_KERNELS_NEEDS, k->name,
                         k->op.at[0], needs[i].name, needs[i].doc);
        else if (needs[i].cast != cast && needs[i].count)
            qg_diag_note(q, qg_lex_field(q, k->location, needs[i].name, 1),
                         QG_E_KERNELS_OTHER, k->name, k->op.at[0],
                         needs[i].name, cast ? "products" : "casts");
        else
            continue;
        errors++;
    }
    return errors;
}

/* Stack index 1: the table, fields and entries together. The statement is kept
   only if all of it is right; its points are made when all files are read. */
int qg_kernels_take(struct qg *q, struct qg_word *word)
{
    struct qg_kernels *kernels = qg_mem_new(q, sizeof *kernels);
    int errors;

    kernels->location = word->location;
    kernels->name = word->name;
    kernels->scale = (struct qg_names){1, {"none"}};
    kernels->epilogue = (struct qg_names){1, {"store"}};
    kernels->form = (struct qg_names){1, {"plain"}};
    if (qg_word_taken(q, word))
        return 0;
    errors = qg_field_read(q, word, &qg_kernels_fields, kernels);
    errors += qg_kernels_items(q, kernels);
    if (errors || check_family(q, kernels))
        return 0;
    kernels->next = q->kernels;
    q->kernels = kernels;
    qg_word_declare(q, word, kernels);
    return 0;
}
