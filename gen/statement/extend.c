/* SPDX-License-Identifier: Apache-2.0 */
/*
** extend.c: `extend "name" { ... }`: more kernels of a kernels statement.
**
** The extension is the statement again, template and rules included, with an
** axis or a derive in the place of the one with its name, fields that keep
** fewer values, and further rules after those of the statement. It is made
** when all files are read: the statement may be in any of them.
*/
#include "lua/base.h"
#include "statement/field.h"
#include "statement/word.h"

#include <string.h>

/* Stack index 1: the table, fields and entries together. */
int qg_extend_take(struct qg *q, struct qg_word *word)
{
    struct qg_kernels *extension = qg_mem_new(q, sizeof *extension);
    int errors;

    extension->location = word->location;
    extension->name = word->name;
    extension->extends = 1;
    errors = qg_field_read(q, word, &qg_kernels_extend, extension);
    if (errors + qg_kernels_items(q, extension))
        return 0;
    extension->next = q->extensions;
    q->extensions = extension;
    return 0;
}

/* ------------------------------------------------------------------ fields */

/* The field's values as texts, at most QG_MAX_LIST; returns how many. */
static int values_of(const struct qg_field *field, const struct qg_kernels *k,
                     const char **out)
{
    const void *at = (const char *)k + field->offset;
    const struct qg_names *names = at;
    const struct qg_types *types = at;

    if (field->kind == QG_F_NAME) {
        out[0] = *(const char *const *)at;
        return out[0] != NULL;
    }
    for (int i = 0; field->kind == QG_F_NAMES && i < names->count; i++)
        out[i] = names->at[i];
    if (field->kind == QG_F_NAMES)
        return names->count;
    for (int i = 0; i < types->count; i++)
        out[i] = qg_types_of(types->at[i])->name;
    return types->count;
}

static size_t size_of(const struct qg_field *field)
{
    return field->kind == QG_F_NAME    ? sizeof(const char *)
           : field->kind == QG_F_NAMES ? sizeof(struct qg_names)
                                       : sizeof(struct qg_types);
}

/* Statements without these take all there is. */
static int is_open(const struct qg_field *field)
{
    return !strcmp(field->name, "recipe") || !strcmp(field->name, "d");
}

/* A value that the statement has not: returns 1 and noted. */
static int check_value(struct qg *q, const struct qg_field *field,
                       const struct qg_kernels *base, const char *value,
                       const struct qg_kernels *extension)
{
    const char *has[QG_MAX_LIST];
    int count = values_of(field, base, has);
    struct qg_nearest nearest;
    struct qg_text *list = &q->chunk;

    if (!count && is_open(field))
        return 0;
    qg_nearest_start(&nearest, value);
    qg_text_clear(list);
    qg_text_put(q, list, count ? "" : "nothing");
    for (int i = 0; i < count; i++) {
        if (!strcmp(has[i], value))
            return 0;
        qg_nearest_try(&nearest, has[i]);
        qg_text_print(q, list, "%s%s", i ? ", " : "", has[i]);
    }
    qg_diag_note(q, qg_lex_field(q, extension->location, field->name, 1),
                 QG_E_EXTEND_FIELD, field->name, base->name, value,
                 qg_nearest_hint(&nearest, "it has: ", list->data));
    return 1;
}

/* Fields that the extension gives. Returns the errors that were noted. */
static int narrow(struct qg *q, struct qg_kernels *into,
                  const struct qg_kernels *extension)
{
    int errors = 0;

    for (int i = 0; i < qg_kernels_extend.count; i++) {
        const struct qg_field *field = &qg_kernels_extend.fields[i];
        const char *values[QG_MAX_LIST];
        int count = values_of(field, extension, values), before = errors;

        for (int j = 0; j < count && errors == before; j++)
            errors += check_value(q, field, into, values[j], extension);
        if (count && errors == before)
            memcpy((char *)into + field->offset,
                   (const char *)extension + field->offset, size_of(field));
    }
    return errors;
}

/* ----------------------------------------------------------------- entries */

/* Replaces the entry of its name. Returns 0, or 1 and noted. */
static int replace(struct qg *q, struct qg_kernels *into,
                   const struct qg_item *item)
{
    struct qg_nearest nearest;

    qg_nearest_start(&nearest, item->name);
    for (int i = 0; i < into->count; i++) {
        if (into->items[i]->kind > QG_DERIVE)
            continue;
        if (!strcmp(into->items[i]->name, item->name)) {
            into->items[i] = item;
            return 0;
        }
        qg_nearest_try(&nearest, into->items[i]->name);
    }
    qg_diag_note(q, item->word->location, QG_E_EXTEND_ITEM, into->name,
                 item->name,
                 qg_nearest_hint(&nearest,
                                 "an extension gives some of them other "
                                 "values",
                                 ""));
    return 1;
}

/* Rules come last: they see all values. Returns the errors that were noted. */
static int add_items(struct qg *q, struct qg_kernels *into,
                     const struct qg_kernels *extension)
{
    int errors = 0;

    for (int i = 0; i < extension->count; i++) {
        const struct qg_item *item = extension->items[i];

        if (item->kind <= QG_DERIVE)
            errors += replace(q, into, item);
        else
            errors += qg_kernels_without(q, into, item) ||
                      qg_kernels_add(q, into, item);
    }
    return errors + qg_kernels_axes(q, into);
}

/* --------------------------------------------------------------- statements */

static const struct qg_kernels *find_base(struct qg *q,
                                          const struct qg_kernels *extension)
{
    struct qg_nearest nearest;

    qg_nearest_start(&nearest, extension->name);
    for (struct qg_kernels *k = q->kernels; k; k = k->next) {
        if (!strcmp(k->name, extension->name))
            return k;
        qg_nearest_try(&nearest, k->name);
    }
    qg_diag_note(q, extension->location, QG_E_EXTEND_UNKNOWN, extension->name,
                 qg_nearest_hint(&nearest,
                                 "quern why KERNEL names the file and line of "
                                 "a kernel's statement",
                                 ""));
    return NULL;
}

/* Extensions follow all statements, so that none extends another. */
void qg_extend_apply(struct qg *q)
{
    struct qg_kernels *made = NULL, **end = &made;

    for (struct qg_kernels *e = q->extensions; e; e = e->next) {
        const struct qg_kernels *base = find_base(q, e);
        struct qg_kernels *k;

        if (!base)
            continue;
        k = qg_mem_new(q, sizeof *k);
        *k = *base;
        k->location = e->location;
        k->extends = 1;
        k->next = NULL;
        if (narrow(q, k, e) + add_items(q, k, e) == 0) {
            *end = k;
            end = &k->next;
        }
    }
    for (end = &q->kernels; *end; end = &(*end)->next)
        ;
    *end = made;
}
