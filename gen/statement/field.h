/* SPDX-License-Identifier: Apache-2.0 */
/* field.h: a statement's fields. */
#pragma once

#include "statement/spec.h"

enum qg_field_kind {
    QG_F_NAME,     /* const char *; one of `allowed` if that is given */
    QG_F_NAMES,    /* struct qg_names; one or a list */
    QG_F_PATH,     /* const char *; a template */
    QG_F_TYPE,     /* int */
    QG_F_TYPES,    /* struct qg_types; one or a list */
    QG_F_SIZE,     /* int, 1 .. 65536 */
    QG_F_SCALE,    /* struct qg_scale; blocked {...} or "none" */
    QG_F_SCALES,   /* the same for each tensor; one or a table by tensor */
    QG_F_BLOCK,    /* struct qg_sharing; a table of sizes or a text */
    QG_F_EVERY,    /* int, 1 .. 65536, or the text in `allowed`: 0 */
    QG_F_CODE,     /* the same; the text: QG_STORED */
    QG_F_SIGNS,    /* const char *; 16 of + and - */
    QG_F_FUNCTION, /* int, reference */
    QG_F_TABLE,    /* the struct that `sub` describes, in place */
    QG_F_COUNT
};

struct qg_field {
    const char *name;
    enum qg_field_kind kind;
    int required;
    size_t offset; /* in the struct that the statement fills */
    const char *allowed;
    const struct qg_fields *sub;
    const char *doc;
};

struct qg_fields {
    const char *statement;
    const struct qg_field *fields;
    int count;
    int items;    /* a list after the fields is allowed */
    int optional; /* none of the fields is required */
};

extern const struct qg_fields qg_recipe_fields, qg_blocked_fields,
    qg_layout_fields, qg_ragged_fields, qg_storage_fields, qg_kernels_fields,
    qg_kernels_extend;

extern const char *const qg_field_kinds[QG_F_COUNT]; /* for messages */
/* Read the table at index 1 into `out`; notes errors and returns how many. */
int qg_field_read(struct qg *, const struct qg_word *, const struct qg_fields *,
                  void *out);
