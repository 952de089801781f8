/*
** recipe.c: `recipe "name" { ... }`: how each operand is quantized.
*/
#include "qg.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct qg_recipe, member)
#define IN_ELEMENT(member)                                                     \
    (offsetof(struct qg_recipe, element.member) - AT(element))

static const struct qg_field element_fields[] = {
    {"x", QG_F_TYPE, 1, IN_ELEMENT(x), QG_ELEMENTS, NULL,
     "activations, the input of fprop"},
    {"w", QG_F_TYPE, 1, IN_ELEMENT(w), QG_ELEMENTS, NULL, "weights"},
    {"dy", QG_F_TYPE, 1, IN_ELEMENT(dy), QG_ELEMENTS, NULL,
     "gradients of the output"},
};

static const struct qg_fields element_set = {"recipe.element", element_fields,
                                             3, 0};

static const struct qg_field fields[] = {
    {"element", QG_F_TABLE, 1, AT(element), NULL, &element_set,
     "the type in which each operand's values are kept"},
    {"scale", QG_F_SCALE, 0, AT(scale), "none", NULL,
     "how values are scaled before the cast (default \"none\")"},
    {"accum", QG_F_TYPE, 0, AT(accum), "f32", NULL,
     "the type in which products are summed (default f32)"},
    {"d", QG_F_TYPES, 1, AT(d), "bf16 f16 f32", NULL,
     "types that the product can be stored in, the default first"},
};

const struct qg_fields qg_recipe_fields = {"recipe", fields,
                                           sizeof fields / sizeof *fields, 0};

/*
** Stack index 1: the table. What it says is all that any later part knows of
** the recipe.
*/
int qg_recipe_take(struct qg *q, struct qg_word *word)
{
    struct qg_recipe *recipe = qg_mem_new(q, sizeof *recipe);

    recipe->place = word->place;
    recipe->name = word->name;
    recipe->accum = QUERN_F32;
    recipe->doc = qg_files_doc(q, word->place);
    for (struct qg_recipe *other = q->recipes; other; other = other->next)
        if (!strcmp(other->name, word->name) &&
            qg_word_taken(q, word, other->place))
            return 0;
    if (qg_field_read(q, word, &qg_recipe_fields, recipe))
        return 0;
    recipe->next = q->recipes;
    q->recipes = recipe;
    return 0;
}
