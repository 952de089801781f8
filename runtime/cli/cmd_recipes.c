/*
** cmd_recipes.c: `quern recipes`: what the specs know.
*/
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "gen.h"
#include "types.h"

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

static void print_recipes(const struct qn_options *opt,
                          const struct quern_registry *registry)
{
    static const struct qn_column columns[] = {
        {"recipe", "recipe", "s"},
        {"x", "x", "s"},
        {"w", "w", "s"},
        {"dy", "dy", "s"},
        {"d", "d", "s"},
        {"scale", "scale", "s"},
        {"spec", "spec", "s"},
        {"doc", "what it is", "s"},
        {0},
    };
    cJSON *rows = cJSON_CreateArray();

    for (int i = 0; i < registry->nrecipes; i++) {
        const struct qn_recipe *recipe = &registry->recipes[i];
        cJSON *row = cJSON_CreateObject();
        char d[64];
        list_d_types(recipe, d, sizeof d);
        cJSON_AddStringToObject(row, "recipe", recipe->name);
        cJSON_AddStringToObject(row, "x", qn_type_name(recipe->x));
        cJSON_AddStringToObject(row, "w", qn_type_name(recipe->w));
        cJSON_AddStringToObject(row, "dy", qn_type_name(recipe->dy));
        cJSON_AddStringToObject(row, "d", d);
        cJSON_AddStringToObject(row, "scale", recipe->scale);
        cJSON_AddStringToObject(row, "spec", recipe->spec);
        cJSON_AddStringToObject(row, "doc", recipe->doc);
        cJSON_AddItemToArray(rows, row);
    }
    qn_table_print(opt, rows, columns);
}

static void print_fields(const struct qn_options *opt)
{
    static const struct qn_column columns[] = {
        {"statement", "statement", "s"},
        {"field", "field", "s"},
        {"kind", "kind", "s"},
        {"required", "required", "s"},
        {"allowed", "allowed", "s"},
        {"doc", "what it says", "s"},
        {0},
    };
    cJSON *rows = cJSON_CreateArray();
    struct qg_field_row field;

    for (int i = 0; qg_field_row(i, &field); i++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "statement", field.statement);
        cJSON_AddStringToObject(row, "field", field.field);
        cJSON_AddStringToObject(row, "kind", field.kind);
        cJSON_AddBoolToObject(row, "required", field.required);
        cJSON_AddStringToObject(row, "allowed", field.allowed);
        cJSON_AddStringToObject(row, "doc", field.doc);
        cJSON_AddItemToArray(rows, row);
    }
    qn_table_print(opt, rows, columns);
}

static int run(const struct qn_options *opt)
{
    struct qg *generator;
    int status;

    if (opt->nwords)
        return qn_message_fail(opt, QN_EXIT_USAGE, "no argument is taken");
    if (opt->fields) {
        print_fields(opt);
        return QN_EXIT_OK;
    }
    status = qn_source_open(opt, &generator);
    if (status)
        return status;
    print_recipes(opt, qg_registry(generator));
    qg_close(generator);
    return QN_EXIT_OK;
}

const struct qn_command qn_cmd_recipes = {
    .name = "recipes",
    .arguments = "",
    .summary = "Show the recipes, or the fields of the spec language",
    .help = "A recipe is a file below specs/recipes/. Example:\n"
            "  quern recipes --specs ~/my-specs",
    .options = options,
    .run = run,
};
