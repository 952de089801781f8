/* SPDX-License-Identifier: Apache-2.0 */
/* field.c: a statement's table of fields, read as its rows say. */
#include "lua/base.h"
#include "statement/field.h"
#include "statement/word.h"

#include <string.h>

/* The state of reading: the table is at stack index `table`. */
struct reader {
    struct qg *q;
    const struct qg_word *word;
    struct qg_location location; /* of the table */
    const char *owner;           /* whose fields they are, for messages */
    int depth;                   /* tables around the fields */
    int errors;
    int items; /* it has entries without names */
    const struct qg_field *field;
    const char *shown; /* the field's name with those around it */
};

const char *const qg_field_kinds[QG_F_COUNT] = {
    [QG_F_NAME] = "a text",
    [QG_F_NAMES] = "a text or a list of texts",
    [QG_F_PATH] = "a text",
    [QG_F_TYPE] = "a type",
    [QG_F_TYPES] = "a type or a list of types",
    [QG_F_SIZE] = "a whole number",
    [QG_F_SCALE] = "a scale: blocked { ... }, or \"none\"",
    [QG_F_SCALES] = "blocked { ... }, \"none\", or a table of them by tensor: "
                    "x, w, dy",
    [QG_F_BLOCK] = "a table such as { k = 32 }, or \"row\", \"group\", "
                   "\"tensor\"",
    [QG_F_EVERY] = "a whole number, or \"never\"",
    [QG_F_CODE] = "a whole number, or \"stored\"",
    [QG_F_SIGNS] = "16 of + and - as a text",
    [QG_F_FUNCTION] = "a function",
    [QG_F_TABLE] = "a table of fields",
};

/* The line that sets the field, as near as its text tells. */
static struct qg_location place_of(const struct reader *r)
{
    return qg_lex_field(r->q, r->word->location, r->field->name, r->depth);
}

static int takes_types(const struct qg_field *field)
{
    return field->kind == QG_F_TYPE || field->kind == QG_F_TYPES;
}

/* "x, w, dy", until the next text is made. */
static const char *names_of(struct qg *q, const struct qg_fields *set)
{
    struct qg_text *list = &q->chunk;

    qg_text_clear(list);
    for (int i = 0; i < set->count; i++)
        qg_text_print(q, list, "%s%s", i ? ", " : "", set->fields[i].name);
    return list->data;
}

/* Report the error with the rule and the given value; always 1, for return. */
static int wrong_kind(struct reader *r)
{
    int types = takes_types(r->field), table = r->field->kind == QG_F_TABLE;

    qg_diag_note(r->q, place_of(r), QG_E_FIELD_KIND, r->shown,
                 qg_field_kinds[r->field->kind], qg_object_kind(r->q->L, -1),
                 types   ? "; without quotes: "
                 : table ? "; it has: "
                         : "",
                 types   ? r->field->allowed
                 : table ? names_of(r->q, r->field->sub)
                         : "");
    return 1;
}

/* Is the word one of those in `allowed`, which are separated by blanks? */
static int is_allowed(const char *allowed, const char *word)
{
    size_t length = strlen(word);
    const char *at = allowed;

    if (!allowed)
        return 1;
    while (length && (at = strstr(at, word))) {
        if ((at == allowed || at[-1] == ' ') &&
            (!at[length] || at[length] == ' '))
            return 1;
        at += length;
    }
    return 0;
}

/* Returns 0, or 1 and noted with the word that was probably meant. Types are
   not guessed: e8m0 where elements stand is no slip of the pen for e2m1. */
static int check_allowed(struct reader *r, const char *word)
{
    struct qg_nearest nearest;

    if (is_allowed(r->field->allowed, word))
        return 0;
    qg_nearest_start(&nearest, word);
    if (!takes_types(r->field))
        qg_nearest_words(&nearest, r->field->allowed);
    qg_diag_note(r->q, place_of(r), QG_E_FIELD_VALUE, r->shown, word,
                 qg_nearest_hint(&nearest,
                                 r->field->kind == QG_F_BLOCK
                                     ? "it is a table such as { k = 32 }, or: "
                                 : r->field->kind == QG_F_EVERY ||
                                         r->field->kind == QG_F_CODE
                                     ? "it is a whole number, or: "
                                     : "it can be: ",
                                 r->field->allowed));
    return 1;
}

/* A text that may stand in code: a name, checked against `allowed`. */
static int take_name(struct reader *r, const char **out)
{
    const char *text;

    if (lua_type(r->q->L, -1) != LUA_TSTRING)
        return wrong_kind(r);
    text = lua_tostring(r->q->L, -1);
    if (r->field->allowed && check_allowed(r, text))
        return 1;
    if (!qg_word_identifier(text, QG_MAX_NAME) ||
        strlen(text) != lua_rawlen(r->q->L, -1)) {
        qg_diag_note(r->q, place_of(r), QG_E_NAME_FORM, text, r->shown,
                     QG_MAX_NAME);
        return 1;
    }
    *out = qg_mem_string(r->q, text, strlen(text));
    return 0;
}

/* The type on top of the stack. */
static int take_type(struct reader *r, int *out)
{
    int type = qg_types_check(r->q->L, -1);

    if (!type)
        return wrong_kind(r);
    if (check_allowed(r, qg_types_of(type)->name))
        return 1;
    *out = type;
    return 0;
}

static int read_name(struct reader *r, void *out)
{
    return take_name(r, out);
}

static int read_type(struct reader *r, void *out)
{
    return take_type(r, out);
}

/* Entries of a list on top of the stack: 1 .. QG_MAX_LIST, -1 and noted. */
static int list_length(struct reader *r)
{
    lua_Integer n = (lua_Integer)lua_rawlen(r->q->L, -1);
    const char *key = qg_pairs_other(r->q->L, -1);

    if (key) {
        qg_diag_note(r->q, place_of(r), QG_E_FIELD_LIST,
                     qg_mem_print(r->q, "field '%s'", r->shown), key);
        return -1;
    }
    if (n >= 1 && n <= QG_MAX_LIST)
        return (int)n;
    if (n)
        qg_diag_note(r->q, place_of(r), QG_E_FIELD_LONG, r->shown, (long long)n,
                     QG_MAX_LIST);
    else
        qg_diag_note(r->q, place_of(r), QG_E_FIELD_EMPTY, r->shown);
    return -1;
}

/* A list with the same value twice would make one kernel twice. */
static int again(struct reader *r, const char *word)
{
    qg_diag_note(r->q, place_of(r), QG_E_FIELD_AGAIN, r->shown, word);
    return 1;
}

/* One name is a list of one. */
static int read_names(struct reader *r, void *out)
{
    struct qg_names *names = out;
    int count, errors = 0;

    if (lua_type(r->q->L, -1) != LUA_TTABLE) {
        names->count = 1;
        return take_name(r, &names->at[0]);
    }
    count = list_length(r);
    for (int i = 0; i < count && !errors; i++) {
        lua_rawgeti(r->q->L, -1, i + 1);
        errors += take_name(r, &names->at[i]);
        lua_pop(r->q->L, 1);
        for (int j = 0; j < i && !errors; j++)
            if (!strcmp(names->at[i], names->at[j]))
                errors += again(r, names->at[i]);
    }
    names->count = errors || count < 0 ? 0 : count;
    return errors || count < 0;
}

/* One type is a list of one. */
static int read_types(struct reader *r, void *out)
{
    struct qg_types *types = out;
    int count, errors = 0;

    if (lua_type(r->q->L, -1) != LUA_TTABLE) {
        types->count = 1;
        return take_type(r, &types->at[0]);
    }
    count = list_length(r);
    for (int i = 0; i < count && !errors; i++) {
        lua_rawgeti(r->q->L, -1, i + 1);
        errors += take_type(r, &types->at[i]);
        lua_pop(r->q->L, 1);
        for (int j = 0; j < i && !errors; j++)
            if (types->at[i] == types->at[j])
                errors += again(r, qg_types_of(types->at[i])->name);
    }
    types->count = errors || count < 0 ? 0 : count;
    return errors || count < 0;
}

/* Below templates/, and nowhere else. */
static int read_path(struct reader *r, void *out)
{
    const char *text;

    if (lua_type(r->q->L, -1) != LUA_TSTRING)
        return wrong_kind(r);
    text = lua_tostring(r->q->L, -1);
    if (strlen(text) > 100 || strstr(text, "..") || text[0] == '/' ||
        !text[0] ||
        text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_./")]) {
        qg_diag_note(r->q, place_of(r), QG_E_FIELD_PATH, r->shown, text);
        return 1;
    }
    *(const char **)out = qg_mem_string(r->q, text, strlen(text));
    return 0;
}

/* The bound keeps products of sizes far from overflow. 1e3 is whole too. */
static int read_size(struct reader *r, void *out)
{
    lua_State *L = r->q->L;
    long long value;

    if (lua_type(L, -1) != LUA_TNUMBER)
        return wrong_kind(r);
    value = (long long)lua_tointeger(L, -1); /* 0 unless it is an integer */
    if (value < 1 || value > 65536) {
        lua_pushvalue(L, -1);
        qg_diag_note(r->q, place_of(r), QG_E_FIELD_RANGE, r->shown, 65536,
                     lua_tostring(L, -1));
        lua_pop(L, 1);
        return 1;
    }
    *(int *)out = (int)value;
    return 0;
}

/* "none" or the result of blocked { ... }, which this consumes. */
static int read_scale(struct reader *r, void *out)
{
    struct qg_scale *scale = qg_object_at(r->q->L, -1, QG_SCALE);

    if (scale) {
        scale->word->used = 1;
        *(struct qg_scale *)out = *scale;
        return 0;
    }
    if (lua_type(r->q->L, -1) != LUA_TSTRING)
        return wrong_kind(r);
    return check_allowed(r, lua_tostring(r->q->L, -1));
}

static int read_table(struct reader *r, void *out);

/* One for all three tensors, or one for each. */
static int read_scales(struct reader *r, void *out)
{
    struct qg_scale *scales = out;
    int failed;

    if (lua_type(r->q->L, -1) == LUA_TTABLE) {
        failed = read_table(r, out);
        for (int i = 0; i < QN_TENSORS; i++)
            scales[i].by_role = 1;
        return failed;
    }
    failed = read_scale(r, &scales[0]);
    scales[1] = scales[2] = scales[0];
    return failed;
}

/* A text stands for a block that ends where the row, group or tensor does. */
static int read_block(struct reader *r, void *out)
{
    struct qg_sharing *block = out;
    int type = lua_type(r->q->L, -1);

    if (type == LUA_TTABLE)
        return read_table(r, out);
    if (type != LUA_TSTRING)
        return wrong_kind(r);
    if (check_allowed(r, lua_tostring(r->q->L, -1)))
        return 1;
    block->span = qg_list_find(&qg_list_spans, lua_tostring(r->q->L, -1));
    return 0;
}

/* The word in `allowed` stands for 0. */
static int read_every(struct reader *r, void *out)
{
    if (lua_type(r->q->L, -1) != LUA_TSTRING)
        return read_size(r, out);
    *(int *)out = 0;
    return check_allowed(r, lua_tostring(r->q->L, -1));
}

/* The word in `allowed` stands for QG_STORED. */
static int read_code(struct reader *r, void *out)
{
    const int errors = read_every(r, out);

    if (!*(int *)out)
        *(int *)out = QG_STORED;
    return errors;
}

static int read_signs(struct reader *r, void *out)
{
    const char *text;

    if (lua_type(r->q->L, -1) != LUA_TSTRING)
        return wrong_kind(r);
    text = lua_tostring(r->q->L, -1);
    if (strlen(text) != 16 || strspn(text, "+-") != 16) {
        qg_diag_note(r->q, place_of(r), QG_E_SIGNS, r->shown, text);
        return 1;
    }
    *(const char **)out = qg_mem_string(r->q, text, 16);
    return 0;
}

/* Kept as a reference: the function outlives the statement's table. */
static int read_function(struct reader *r, void *out)
{
    if (lua_type(r->q->L, -1) != LUA_TFUNCTION)
        return wrong_kind(r);
    lua_pushvalue(r->q->L, -1);
    *(int *)out = luaL_ref(r->q->L, LUA_REGISTRYINDEX);
    return 0;
}

static int (*const readers[QG_F_COUNT])(struct reader *, void *) = {
    [QG_F_NAME] = read_name,         [QG_F_NAMES] = read_names,
    [QG_F_PATH] = read_path,         [QG_F_TYPE] = read_type,
    [QG_F_TYPES] = read_types,       [QG_F_SIZE] = read_size,
    [QG_F_SCALE] = read_scale,       [QG_F_SCALES] = read_scales,
    [QG_F_BLOCK] = read_block,       [QG_F_EVERY] = read_every,
    [QG_F_CODE] = read_code,         [QG_F_SIGNS] = read_signs,
    [QG_F_FUNCTION] = read_function, [QG_F_TABLE] = read_table,
};

/* The field's name as people write it: "element.x". */
static const char *join(struct qg *q, const char *around, const char *name)
{
    return around ? qg_mem_print(q, "%s.%s", around, name) : name;
}

/* The field's own documentation has the remedy. Entries without a
   name were probably meant to be the fields: they have been complained
   about. */
static void missing(struct reader *r)
{
    if (!r->items)
        qg_diag_note(r->q, r->location, QG_E_FIELD_MISSING,
                     qg_word_print(r->q, r->word), r->shown, r->field->doc);
    r->errors++;
}

/* The table is on top of the stack. */
static void read_fields(struct reader *r, const struct qg_fields *set,
                        char *out, const char *around)
{
    for (int i = 0; i < set->count; i++) {
        r->field = &set->fields[i];
        r->shown = join(r->q, around, r->field->name);
        lua_pushstring(r->q->L, r->field->name);
        if (lua_rawget(r->q->L, -2) != LUA_TNIL)
            r->errors +=
                readers[r->field->kind](r, out + r->field->offset) != 0;
        else if (r->field->required && !set->optional)
            missing(r);
        lua_pop(r->q->L, 1);
    }
}

static int is_field(const struct qg_fields *set, const char *name)
{
    for (int i = 0; i < set->count; i++)
        if (!strcmp(set->fields[i].name, name))
            return 1;
    return 0;
}

/* Never ignored: most are misspelled, and the default would go unnoticed. */
static void unknown(struct reader *r, const struct qg_fields *set,
                    const char *name, const char *around)
{
    const struct qg_word *word = r->word;
    struct qg_nearest nearest;

    qg_nearest_start(&nearest, name);
    for (int i = 0; i < set->count; i++)
        qg_nearest_try(&nearest, set->fields[i].name);
    qg_diag_note(r->q, qg_lex_field(r->q, word->location, name, r->depth),
                 QG_E_FIELD_UNKNOWN, qg_word_print(r->q, word),
                 join(r->q, around, name),
                 qg_nearest_hint(&nearest, "it has: ", names_of(r->q, set)));
    r->errors++;
}

/* One key of the table; it is on top of the stack. One entry is enough. */
static void check_key(struct reader *r, const struct qg_fields *set,
                      const char *around, int table)
{
    lua_State *L = r->q->L;

    if (lua_type(L, -1) == LUA_TSTRING) {
        if (!is_field(set, lua_tostring(L, -1)))
            unknown(r, set, lua_tostring(L, -1), around);
        return;
    }
    if (set->items || r->items++)
        return;
    lua_pushvalue(L, -1);
    lua_rawget(L, table);
    qg_diag_note(r->q, r->location, QG_E_FIELD_ITEM, r->owner,
                 (long long)lua_tointeger(L, -2), qg_object_kind(L, -1),
                 names_of(r->q, set));
    lua_pop(L, 1);
    r->errors++;
}

/* The table is on top of the stack. */
static void check_keys(struct reader *r, const struct qg_fields *set,
                       const char *around)
{
    lua_State *L = r->q->L;
    int table = lua_gettop(L), count = qg_pairs_keys(L, table);

    if (count < 0) {
        qg_diag_note(r->q, r->location, QG_E_FIELD_KEY, r->owner,
                     qg_object_kind(L, -1));
        r->errors++;
    }
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(L, -1, i);
        check_key(r, set, around, table);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* A table inside the table; its fields fill the struct in place. */
static int read_table(struct reader *r, void *out)
{
    const struct qg_fields *sub = r->field->sub;
    struct reader inner = {
        .q = r->q,
        .word = r->word,
        .location = place_of(r),
        .owner = qg_mem_print(r->q, "field '%s'", r->shown),
        .depth = r->depth + 1,
    };

    if (lua_type(r->q->L, -1) != LUA_TTABLE)
        return wrong_kind(r);
    luaL_checkstack(r->q->L, 10, NULL);
    check_keys(&inner, sub, r->shown);
    read_fields(&inner, sub, out, r->shown);
    return inner.errors;
}

int qg_field_read(struct qg *q, const struct qg_word *word,
                  const struct qg_fields *set, void *out)
{
    struct reader r = {
        .q = q,
        .word = word,
        .location = word->location,
        .owner = qg_word_print(q, word),
        .depth = 1,
    };

    if (lua_type(q->L, 1) != LUA_TTABLE) {
        qg_diag_note(q, word->location, QG_E_TABLE_KIND, r.owner,
                     qg_object_kind(q->L, 1));
        return 1;
    }
    lua_settop(q->L, 1);
    check_keys(&r, set, NULL);
    read_fields(&r, set, out, NULL);
    return r.errors;
}
