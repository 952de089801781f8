/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c: `recipe "name" { ... }`: how each operand is quantized. */
#include "lua/base.h"
#include "statement/field.h"
#include "statement/word.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct qg_recipe, member)
#define IN_ELEMENT(member)                                                     \
    (offsetof(struct qg_recipe, element.member) - AT(element))
#define IN_SCALE(of) ((of) * sizeof(struct qg_scale))

static const struct qg_field element_fields[] = {
    {"x", QG_F_TYPE, 1, IN_ELEMENT(x), QG_ELEMENTS, NULL,
     "activations, the input of fprop"},
    {"w", QG_F_TYPE, 1, IN_ELEMENT(w), QG_ELEMENTS, NULL, "weights"},
    {"dy", QG_F_TYPE, 0, IN_ELEMENT(dy), QG_ELEMENTS, NULL,
     "gradients of the output; without it there is no dgrad and no wgrad"},
};

static const struct qg_fields element_set = {"recipe.element", element_fields,
                                             3, 0, 0};

static const struct qg_field scale_fields[] = {
    {"x", QG_F_SCALE, 1, IN_SCALE(QN_X), "none", NULL,
     "how activations are scaled"},
    {"w", QG_F_SCALE, 1, IN_SCALE(QN_W), "none", NULL,
     "how weights are scaled"},
    {"dy", QG_F_SCALE, 0, IN_SCALE(QN_DY), "none", NULL,
     "how gradients are scaled"},
};

static const struct qg_fields scale_set = {"recipe.scale", scale_fields, 3, 0,
                                           0};

static const struct qg_field fields[] = {
    {"element", QG_F_TABLE, 1, AT(element), NULL, &element_set,
     "the type in which each operand's values are kept"},
    {"scale", QG_F_SCALES, 0, AT(scale), "none", &scale_set,
     "how values are scaled before the cast, all alike or by tensor (default "
     "\"none\")"},
    {"accum", QG_F_TYPE, 0, AT(accum), "f32", NULL,
     "the type in which products are summed (default f32)"},
    {"promote", QG_F_EVERY, 0, AT(promote), "never", NULL,
     "values of k that narrow accumulators sum before fp32 takes over (default "
     "\"never\")"},
    {"d", QG_F_TYPES, 1, AT(d), QG_WIDE, NULL,
     "types that the product can be stored in, the default first"},
};

const struct qg_fields qg_recipe_fields = {
    "recipe", fields, sizeof fields / sizeof *fields, 0, 0};

/* ---------------------------------------------------------- combined fields */

/* Rows of a block and values along k; absent ones are 1. */
static int check_block(struct qg *q, struct qg_scale *scale, int of)
{
    struct qg_sharing *block = &scale->block;
    int *rows = of == QN_W ? &block->per.n : &block->per.m;
    int *other = of == QN_W ? &block->per.m : &block->per.n;
    int k = block->per.k;

    if (block->span != QN_SPAN_BLOCK)
        return 0;
    if (scale->by_role && *other) {
        qg_diag_note(q, scale->location, QG_E_BLOCK_ROWS, qg_list_ofs.words[of],
                     of == QN_W ? "n" : "m", of == QN_W ? "m" : "n");
        return 1;
    }
    if (!*rows)
        *rows = 1;
    if ((k == 16 || k == 32 || k == 64 || k == 128) &&
        (*rows == 1 || *rows == k))
        return 0;
    qg_diag_note(q, scale->location, QG_E_BLOCK_SHAPE, *rows, k);
    return 1;
}

int qg_recipe_packed(const struct qg_scale *scale)
{
    return scale->blocked && !strcmp(scale->copies, "rowwise");
}

static int is_unsigned(int type)
{
    return type == QUERN_U4 || type == QUERN_U8;
}

static int is_integer(int type)
{
    return type == QUERN_I8 || type == QUERN_I4 || is_unsigned(type);
}

/* COUPLED: of values */
int qg_recipe_alone(const struct qg_recipe *recipe, int of)
{
    int others = 0;

    for (int i = 0; i < QN_TENSORS; i++)
        others |= i != of && recipe->scale[i].blocked;
    return !others;
}

/* Do kernels know a scale with the field `as`? COUPLED: as */
static int is_rebased(const struct qg_scale *scale, int of)
{
    return of == QN_W && scale->element == QUERN_E2M1 &&
           scale->type == QUERN_E8M0 && scale->block.span == QN_SPAN_BLOCK &&
           scale->block.per.k == 32 && scale->block.per.n == 1 &&
           !scale->global && !strcmp(scale->storage, "plain") &&
           !strcmp(scale->rounding, "nearest") && qg_recipe_packed(scale);
}

/* Checks of fields that need something that the scale lacks. `alone`: it is
   the only scaled tensor; `serves`: the recipe has no gradients. */
static int check_parts(struct qg *q, const struct qg_scale *scale, int of,
                       int alone, int serves)
{
    int block = scale->block.span == QN_SPAN_BLOCK;
    int delayed = scale->delayed.history != 0;
    int stored = scale->zero == QG_STORED;
    const struct {
        int wrong;
        const char *field, *text;
    } rules[] = {
        {qg_types_of(scale->element)->bits > 8, "",
         "elements of more than 8 bits need no scale; write: scale = "
         "\"none\", or scale = { x = ..., w = ..., dy = ... } with \"none\" "
         "for this one"},
        {scale->global && !block, "global",
         "'global' is a second scale above those of blocks; write: per = { k = "
         "... }"},
        {!block && strcmp(scale->storage, "plain") != 0, "storage",
         "'storage' is how scales of blocks are; those of rows, groups and "
         "tensors follow each other, so leave it out"},
        {delayed && scale->block.span != QN_SPAN_TENSOR, "delayed",
         "'delayed' keeps one scale; write: per = \"tensor\""},
        {delayed && scale->type != QUERN_F32, "delayed",
         "'delayed' keeps an fp32 scale; write: type = f32"},
        {!strcmp(scale->rounding, "stochastic") && is_integer(scale->element),
         "rounding",
         "integers are rounded to nearest; write: rounding = \"nearest\""},
        {is_unsigned(scale->element) && !scale->zero, "zero",
         "u4 and u8 have no sign, so one of their codes must stand for 0; "
         "write, for the one in the middle: zero = 8, or 128 of u8"},
        {scale->zero && !is_unsigned(scale->element), "zero",
         "only u4 and u8 have a code for 0 of their own; leave 'zero' out"},
        {scale->zero && (double)scale->zero >= qg_types_of(scale->element)->max,
         "zero",
         "'zero' must be a code below the largest one, which is 15 of u4 and "
         "255 of u8"},
        {is_unsigned(scale->element) && !alone &&
             (!block || scale->type == QUERN_F32),
         "type",
         "next to a tensor with scales values of u4 and u8 are multiplied by "
         "theirs before they are summed; write: per = { k = ... } and type = "
         "bf16, f16, e8m0 or e4m3"},
        {stored && scale->type != QUERN_F16 && scale->type != QUERN_BF16,
         "type",
         "a zero point is the other half of a word with a scale of 16 bits; "
         "write: type = f16, or bf16"},
        {stored && (!block || scale->block.per.n > 1 || scale->global ||
                    strcmp(scale->storage, "plain") != 0),
         "zero",
         "zero points are stored for blocks of one row, row by row; write: per "
         "= { k = ... }, without 'global' and 'storage'"},
        {stored && !(qg_recipe_packed(scale) && alone), "zero",
         "zero points are stored for weights that dgrad, too, reads row by "
         "row, next to x and dy without scales; write: copies = \"rowwise\", "
         "or a code for all, such as zero = 8"},
        {qg_recipe_packed(scale) && of != QN_W, "copies",
         "only w is read by fprop and dgrad, so only w may have one tensor for "
         "both; leave 'copies' out"},
        {qg_recipe_packed(scale) && !alone && !serves, "copies",
         "dgrad reads w's rowwise tensor across its scales, which then "
         "multiply values, next to a dy without scales; write \"none\" for x "
         "and dy, or leave 'copies' out"},
        {scale->as && !is_rebased(scale, of), "as",
         "'as' keeps scales of w near each other, of e2m1 with a rowwise "
         "tensor only; write: type = e8m0, per = { k = 32 }, copies = "
         "\"rowwise\" and a rule, and no more, or leave 'as' out"},
        {scale->hadamard && of == QN_W, "hadamard",
         "dgrad multiplies w's columnwise tensor with dy's rowwise tensor, "
         "which is not "
         "transformed; give 'hadamard' only to x and dy: scale = { x = ..., w "
         "= ..., dy = ... }"},
        {scale->hadamard && block && scale->block.per.m > 1, "hadamard",
         "a square block has one scale for both tensors, and the columnwise "
         "tensor's "
         "values are transformed; write only: per = { k = ... }"},
        {scale->hadamard && delayed, "hadamard",
         "'delayed' keeps the magnitudes of values as they are, and those of "
         "the columnwise tensor are transformed; write: one of both"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].wrong) {
            qg_diag_note(q, qg_lex_field(q, scale->location, rules[i].field, 1),
                         QG_E_SCALE_PARTS, qg_list_ofs.words[of],
                         rules[i].text);
            return 1;
        }
    return 0;
}

/* wgrad multiplies both columnwise tensors: their transforms cancel, or
   nothing. */
static int check_pair(struct qg *q, const struct qg_recipe *recipe)
{
    const char *x = recipe->scale[QN_X].hadamard;
    const char *dy = recipe->scale[QN_DY].hadamard;

    if (!recipe->element.dy || x == dy || (x && dy && !strcmp(x, dy)))
        return 0;
    qg_diag_note(q, recipe->scale[x ? QN_X : QN_DY].location, QG_E_SCALE_PARTS,
                 "x and dy",
                 "wgrad multiplies both after their transforms, which cancel "
                 "only if they are the same; write the same 'hadamard' for "
                 "both, or for none");
    return 1;
}

/* Each tensor's scale by itself. Returns how many errors were noted. */
static int check_scales(struct qg *q, struct qg_recipe *recipe)
{
    const int elements[QN_TENSORS] = {recipe->element.x, recipe->element.w,
                                      recipe->element.dy};
    int errors = 0;

    for (int of = 0; of < QN_TENSORS && !errors; of++) {
        struct qg_scale *scale = &recipe->scale[of];

        scale->element = elements[of];
        if (scale->blocked && scale->rule)
            errors += check_block(q, scale, of) ||
                      check_parts(q, scale, of, qg_recipe_alone(recipe, of),
                                  !recipe->element.dy);
    }
    return errors || check_pair(q, recipe);
}

/* A recipe for serving has neither dy's type nor a scale for it, one that has
   the type has both where scales are given by tensor. Stack index 1: the
   table. */
static int check_dy(struct qg *q, const struct qg_word *word,
                    struct qg_recipe *recipe)
{
    struct qg_scale *scale = &recipe->scale[QN_DY];
    int by_role = scale->by_role, given = 0;

    if (by_role) {
        lua_pushliteral(q->L, "scale");
        lua_rawget(q->L, 1);
        lua_pushliteral(q->L, "dy");
        given = lua_rawget(q->L, -2) != LUA_TNIL;
        lua_pop(q->L, 2);
    }
    if (!recipe->element.dy && !given) {
        *scale = (struct qg_scale){.location = word->location};
        return 0;
    }
    if (given == by_role && recipe->element.dy)
        return 0;
    if (given)
        qg_diag_note(q, qg_lex_field(q, word->location, "scale", 1),
                     QG_E_RECIPE_DY, recipe->name);
    else
        qg_diag_note(q, qg_lex_field(q, word->location, "scale", 1),
                     QG_E_FIELD_MISSING, qg_word_print(q, word), "scale.dy",
                     "how gradients are scaled");
    return 1;
}

/* Stack index 1: the table. Later parts know nothing else of the recipe. */
int qg_recipe_take(struct qg *q, struct qg_word *word)
{
    struct qg_recipe *recipe = qg_mem_new(q, sizeof *recipe);

    recipe->location = word->location;
    recipe->name = word->name;
    recipe->accum = QUERN_F32;
    recipe->doc = qg_files_doc(q, word->location);
    if (qg_word_taken(q, word))
        return 0;
    if (qg_field_read(q, word, &qg_recipe_fields, recipe) ||
        check_dy(q, word, recipe) || check_scales(q, recipe))
        return 0;
    recipe->next = q->recipes;
    q->recipes = recipe;
    qg_word_declare(q, word, recipe);
    return 0;
}

/* -------------------------------------------------- operands of products */

static struct qg_factor factor(const struct qg_recipe *recipe, int of,
                               const char *copy)
{
    const int elements[QN_TENSORS] = {recipe->element.x, recipe->element.w,
                                      recipe->element.dy};
    const struct qg_scale *scale = &recipe->scale[of];

    return (struct qg_factor){of, copy, elements[of],
                              scale->blocked ? scale : NULL};
}

/* Copies are k-major for the product that reads them, except w's rowwise tensor
   in dgrad where it is the only one. COUPLED: copies */
void qg_recipe_factors(const struct qg_recipe *recipe, const char *op,
                       struct qg_factor *a, struct qg_factor *b)
{
    if (!strcmp(op, "fprop")) {
        *a = factor(recipe, QN_X, "row");
        *b = factor(recipe, QN_W, "row");
    } else if (!strcmp(op, "dgrad")) {
        *a = factor(recipe, QN_DY, "row");
        *b = factor(recipe, QN_W,
                    qg_recipe_packed(&recipe->scale[QN_W]) ? "row" : "column");
    } else {
        *a = factor(recipe, QN_DY, "column");
        *b = factor(recipe, QN_X, "column");
    }
}
