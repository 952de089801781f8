/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_recipes.c: `quern recipes`: the recipes of the specs. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "base/types.h"
#include "gen.h"

static const struct argp_option options[] = {
    {"fields", QN_KEY_FIELDS, NULL, 0,
     "List every field that a spec may have, instead", 0},
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    {0},
};

/* "bf16 f32", the default first. */
static void list_d_types(const struct qn_recipe *recipe, char *text,
                         size_t size)
{
    size_t used =
        (size_t)snprintf(text, size, "%s", qn_type_name(recipe->default_d));

    for (int type = 1; type <= QUERN_I64; type++)
        if (type != recipe->default_d && recipe->d_types >> type & 1 &&
            used < size)
            used += (size_t)snprintf(text + used, size - used, " %s",
                                     qn_type_name(type));
}

/* x, or the first tensor that is quantized where x is not. */
static int shown_tensor(const struct qn_recipe *recipe)
{
    int of = QN_X;

    while (of < QN_TENSORS && recipe->scaling[of].type == QUERN_TYPE_NONE)
        of++;
    return of < QN_TENSORS ? of : QN_X;
}

/* Its share of the scales included; a scale of more than a block counts
   nothing. */
static double bits_of(const struct qn_recipe *recipe)
{
    const int types[] = {recipe->x, recipe->w, recipe->dy};
    const int of = shown_tensor(recipe);
    const struct qn_scaling *s = &recipe->scaling[of];
    double bits = qn_type_bits(types[of]);

    if (s->type != QUERN_TYPE_NONE && s->span == QN_SPAN_BLOCK)
        bits += (double)qn_type_bits(s->type) / (s->rows * s->k);
    return bits;
}

/* The architectures that kernels of the recipe are made for: of products, or
   of casts. */
static void list_arches(const struct quern_registry *registry,
                        const struct qn_recipe *recipe, int casts, char *text,
                        size_t size)
{
    size_t used = 0;

    text[0] = 0;
    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];

        if ((kernel->op > QUERN_WGRAD) != casts ||
            strcmp(kernel->recipe, recipe->name) != 0 ||
            strstr(text, kernel->arch) || used >= size)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 used ? " " : "", kernel->arch);
    }
}

/* All fields of a recipe, and its kernels. */
static cJSON *make_row(const struct qn_options *opt, struct quern_context *ctx,
                       const struct qn_recipe *recipe)
{
    cJSON *row = cJSON_CreateObject();
    char text[160];
    double error;

    cJSON_AddStringToObject(row, "recipe", recipe->name);
    cJSON_AddStringToObject(row, "x", qn_type_name(recipe->x));
    cJSON_AddStringToObject(row, "w", qn_type_name(recipe->w));
    cJSON_AddStringToObject(row, "dy", qn_type_name(recipe->dy));
    list_d_types(recipe, text, sizeof text);
    cJSON_AddStringToObject(row, "d", text);
    cJSON_AddStringToObject(row, "scale", recipe->scale);
    cJSON_AddStringToObject(row, "rule", recipe->rule);
    cJSON_AddNumberToObject(row, "bits", bits_of(recipe));
    if (recipe->scaled &&
        !qn_cast_error(opt, ctx, recipe->name, shown_tensor(recipe), &error))
        cJSON_AddNumberToObject(row, "error", error);
    list_arches(ctx->base, recipe, 1, text, sizeof text);
    cJSON_AddStringToObject(row, "casts", text);
    list_arches(ctx->base, recipe, 0, text, sizeof text);
    cJSON_AddStringToObject(row, "products", text);
    cJSON_AddStringToObject(row, "spec", recipe->spec);
    cJSON_AddStringToObject(row, "doc", recipe->doc);
    return row;
}

static void print_recipes(const struct qn_options *opt,
                          struct quern_context *ctx)
{
    static const struct qn_column columns[] = {
        {"recipe", "recipe", "s"},
        {"x", "x", "s"},
        {"w", "w", "s"},
        {"dy", "dy", "s"},
        {"d", "d", "s"},
        {"scale", "scale", "s"},
        {"bits", "bits", "%.3g"},
        {"error", "error", "%.1e"},
        {"casts", "casts", "s"},
        {"products", "products", "s"},
        {"doc", "description", "s"},
        {0},
    };
    cJSON *rows = cJSON_CreateArray();

    for (int i = 0; i < ctx->base->nrecipes; i++)
        cJSON_AddItemToArray(rows, make_row(opt, ctx, &ctx->base->recipes[i]));
    qn_table_print(opt, rows, columns);
}

/* One recipe, a line for each thing that it says. */
static int print_recipe(const struct qn_options *opt, struct quern_context *ctx)
{
    const char *name = opt->words[0];
    const struct qn_recipe *recipe = qn_context_recipe(ctx, name);
    const cJSON *item;
    cJSON *row;

    if (!recipe)
        return qn_message_code(opt, qn_problem_no_recipe(ctx, name),
                               quern_errmsg());
    row = make_row(opt, ctx, recipe);
    if (opt->json) {
        qn_table_json(row);
        return QN_EXIT_OK;
    }
    cJSON_ArrayForEach(item, row)
    {
        if (cJSON_IsString(item))
            printf("%-9s %s\n", item->string, item->valuestring);
        else
            printf("%-9s %.3g\n", item->string, item->valuedouble);
    }
    cJSON_Delete(row);
    return QN_EXIT_OK;
}

/* A field takes some lines: its values are too long for a column. */
static void print_field(const struct qg_field_row *field)
{
    printf("%s.%s: %s%s\n", field->statement, field->field, field->kind,
           field->required ? ", required" : "");
    qn_table_wrapped(field->doc, 4, 100);
    if (*field->allowed)
        qn_table_wrapped(field->allowed, 8, 100);
}

static void print_fields(const struct qn_options *opt)
{
    cJSON *rows = cJSON_CreateArray();
    struct qg_field_row field;

    for (int i = 0; qg_field_row(i, &field); i++) {
        if (!opt->json) {
            print_field(&field);
            continue;
        }
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "statement", field.statement);
        cJSON_AddStringToObject(row, "field", field.field);
        cJSON_AddStringToObject(row, "kind", field.kind);
        cJSON_AddBoolToObject(row, "required", field.required);
        cJSON_AddStringToObject(row, "allowed", field.allowed);
        cJSON_AddStringToObject(row, "doc", field.doc);
        cJSON_AddItemToArray(rows, row);
    }
    if (opt->json)
        qn_table_json(rows);
    else
        cJSON_Delete(rows);
}

static int run(const struct qn_options *opt)
{
    struct quern_context *ctx;
    int status;

    if (opt->nwords > 1 || (opt->nwords && opt->fields))
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "at most one argument is taken: a recipe");
    if (opt->fields) {
        print_fields(opt);
        return QN_EXIT_OK;
    }
    status = qn_source_context(opt, &ctx);
    if (status)
        return status;
    if (opt->nwords)
        status = print_recipe(opt, ctx);
    else
        print_recipes(opt, ctx);
    quern_close(ctx);
    return status;
}

const struct qn_command qn_cmd_recipes = {
    .name = "recipes",
    .arguments = "[RECIPE]",
    .summary = "Show the recipes, or the fields of the spec language",
    .help =
        "A recipe is a file below specs/recipes/. bits: of a value of x "
        "(or w, where x is not quantized), with its share of the scale. "
        "error: 1 - 2xy/(xx + yy) of normal values x and the rowwise tensor's "
        "y, by the host backend. With RECIPE, "
        "its scale rule too. Example:\n"
        "  quern recipes --specs ~/my-specs",
    .options = options,
    .run = run,
};
