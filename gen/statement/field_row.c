/* SPDX-License-Identifier: Apache-2.0 */
/* field_row.c: the fields of all statements as rows, for people. */
#include "statement/field.h"
#include "statement/word.h"

static void fill(struct qg_field_row *row, const struct qg_fields *set,
                 const struct qg_field *field)
{
    row->statement = set->statement;
    row->field = field->name;
    row->kind = qg_field_kinds[field->kind];
    row->allowed = field->allowed ? field->allowed : "";
    row->required = field->required && !set->optional;
    row->doc = field->doc;
}

/* Row `*index` of a set and those inside it, or `*index` less their number. */
static int find_row(const struct qg_fields *set, int *index,
                    struct qg_field_row *row)
{
    for (int i = 0; i < set->count; i++) {
        if ((*index)-- == 0) {
            fill(row, set, &set->fields[i]);
            return 1;
        }
        if (set->fields[i].sub && find_row(set->fields[i].sub, index, row))
            return 1;
    }
    return 0;
}

/* The entries of a kernels list, which are words rather than fields. */
static int find_part(int index, struct qg_field_row *row)
{
    const struct qg_word_kind *kind;

    for (int i = 0; (kind = qg_word_kind(i)); i++)
        if (kind->is_part && kind->named && index-- == 0) {
            *row = (struct qg_field_row){"kernels",   kind->word, "entry",
                                         kind->usage, 0,          kind->doc};
            return 1;
        }
    return 0;
}

/* The tables above are the documentation: there is no second list to keep. */
int qg_field_row(int index, struct qg_field_row *row)
{
    static const struct qg_fields *const sets[] = {
        &qg_recipe_fields,    &qg_blocked_fields, &qg_layout_fields,
        &qg_ragged_fields,    &qg_storage_fields, &qg_kernels_fields,
        &qg_kernels_extension};

    if (index < 0)
        return 0;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (find_row(sets[i], &index, row))
            return 1;
    return find_part(index, row);
}
