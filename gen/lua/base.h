/* SPDX-License-Identifier: Apache-2.0 */
/* base.h: memory, texts, errors, and Lua without functions that specs must not
   have. */
#pragma once

#include <stdarg.h>

#include "messages.h"
#include "qg.h"
#include "registry.h"

/* mem.c: the arena, and the allocator of Lua. */
void *qg_mem_new(struct qg *, size_t bytes); /* zeroed; freed by qg_close */
void *qg_mem_array(struct qg *, size_t count, size_t bytes);
const char *qg_mem_string(struct qg *, const char *text, size_t length);
const char *qg_mem_print(struct qg *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *qg_mem_lua(void *qg, void *memory, size_t old, size_t bytes);
void qg_mem_free(struct qg *);

/* text.c: text that grows. */
void qg_text_clear(struct qg_text *);
void qg_text_add(struct qg *, struct qg_text *, const char *, size_t length);
void qg_text_put(struct qg *, struct qg_text *, const char *);
void qg_text_print(struct qg *, struct qg_text *, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void qg_text_vprint(struct qg *, struct qg_text *, const char *format, va_list);
void qg_text_quote(struct qg *, struct qg_text *, const char *); /* C string */

/* files.c: the specs and templates that are read. */
void qg_files_load(struct qg *, const struct qg_options *);
int qg_files_template(const struct qg *, const char *name); /* -1: none */
const char *qg_files_line(const struct qg *, struct qg_location, int *length);
const char *qg_files_doc(struct qg *, struct qg_location);
const char *qg_files_print(struct qg *, struct qg_location);
/* Its text for generated files, which have no path of the machine. */
const char *qg_files_portable(struct qg *, const char *);

/* diag.c: noting errors. */
enum qg_message {
#define QG_MESSAGE_ENUM(name, format) QG_E_##name,
    QG_MESSAGES(QG_MESSAGE_ENUM)
#undef QG_MESSAGE_ENUM
};

/* Note an error and go on; the last one allowed unwinds everything. */
void qg_diag_note(struct qg *, struct qg_location, enum qg_message, ...);
/* Raise it in the spec's code instead: the line is the one that runs. */
int qg_diag_raise(lua_State *, enum qg_message, ...);
void qg_diag_clear(struct qg *);

/* sandbox.c: calling functions of specs and templates. */
struct qg *qg_sandbox_owner(lua_State *);
int qg_sandbox_protect(struct qg *, void (*)(struct qg *, void *), void *);
int qg_sandbox_load(struct qg *, int file, const char *text, size_t length);
int qg_sandbox_call(struct qg *, int arguments, int results,
                    struct qg_location);
void qg_sandbox_count(lua_State *, lua_Debug *);
void qg_sandbox_charge(lua_State *, long long steps);
struct qg_location qg_sandbox_location(lua_State *);
/* An environment over the two tables on top, the second may be nil. */
void qg_sandbox_env(lua_State *);

/* object.c: the generator's own things as values of Lua. */

/* Push the metatable of objects that messages call "a scale", say. */
void qg_object_define(lua_State *, const char *metatable, const char *called);
/* Push a pointer as a value, and get it back: NULL if it is another kind. */
void qg_object_push(lua_State *, const void *, const char *metatable);
void *qg_object_at(lua_State *, int index, const char *metatable);
/* How any value of a spec is called in messages, e.g. "a text". */
const char *qg_object_kind(lua_State *, int index);

/* frozen.c: tables that specs and templates cannot change. */
void qg_frozen_build(lua_State *);
void qg_frozen_wrap(lua_State *);              /* the table on top */
int qg_frozen_content(lua_State *, int index); /* pushes it; 0: not frozen */

/* pairs.c: the keys of tables, sorted. */

/* Push the keys of the table at `index` as a list, integers first, sorted.
** Returns their number, or -1 with the key of another kind pushed. */
int qg_pairs_keys(lua_State *, int index);
/* The names among them as "a, b, c", as far as the buffer goes. */
void qg_pairs_names(lua_State *, int index, char *buffer, size_t size);
/* A key that makes the table something else than a list; NULL if none does. */
const char *qg_pairs_other(lua_State *, int index);

/* functions that specs and templates see; each is in the file of its name. */
int qg_pairs(lua_State *), qg_tostring(lua_State *), qg_format(lua_State *),
    qg_hex(lua_State *), qg_typename(lua_State *); /* type */
extern const luaL_Reg qg_table[];

const char *qg_hex_float(char buffer[32], float value);

/* lex.c: the tokens of a spec, to find the line that an error is about. */
enum qg_token { QG_END, QG_NAME, QG_KEYWORD, QG_STRING, QG_NUMBER, QG_SIGN };

struct qg_lex {
    const char *at, *end;
    enum qg_token token;
    const char *start; /* of the token */
    int length, line;
};

void qg_lex_start(struct qg_lex *, const char *text, size_t length);
int qg_lex_next(struct qg_lex *); /* 0 at the end */
int qg_lex_is(const struct qg_lex *, const char *text);
int qg_lex_nesting(const struct qg_lex *); /* its addition to the depth */

/* The line of `field =`, `depth` tables inside the item that starts at
   `place`. */
struct qg_location qg_lex_field(const struct qg *, struct qg_location location,
                                const char *field, int depth);
/* The line of the first "text" in quotes from `place` on, else `place`. */
struct qg_location qg_lex_text(const struct qg *, struct qg_location location,
                               const char *text);
/* Report names that one table of the file has twice. */
void qg_lex_twice(struct qg *, int file);

/* lists.c: words that specs and the runtime share, in the order of its
   enums. */

/* Both end with NULL; the names are those of the enum, in C. */
struct qg_list {
    const char *const *words, *const *names;
};

extern const struct qg_list qg_list_ops, qg_list_ofs, qg_list_axes,
    qg_list_majors, qg_list_epilogues, qg_list_forms, qg_list_spans,
    qg_list_orders, qg_list_types, qg_list_inputs;

/* The place of a word; -1: it has none. */
int qg_list_find(const struct qg_list *, const char *word);

/* "fprop dgrad wgrad", of one list or of several in a row. */
#define QG_WORD(name, word, ...) " " word
#define QG_WORDS(...)            (&(__VA_ARGS__)[1])

/* types.c: the number types. */
struct qg_type {
    const char *name;
    int id; /* enum quern_type */
    int bits;
    double max;  /* largest finite value */
    double tiny; /* smallest above 0 */
};

/* Types without scales; types that operands can have. */
#define QG_WIDE QG_WORDS(QUERN_WIDE_TYPES(QG_WORD))
#define QG_ELEMENTS                                                            \
    QG_WORDS(QUERN_WIDE_TYPES(QG_WORD) QUERN_NARROW_TYPES(                     \
        QG_WORD) " i8" QUERN_INTEGER_TYPES(QG_WORD))

void qg_types_build(struct qg *);
int qg_types_check(lua_State *, int index); /* enum quern_type; 0: no type */
void qg_types_push(lua_State *, int id);
void qg_types_push_to(lua_State *, int id, double max);
const struct qg_type *qg_types_of(int id);

/* nearest.c: "did you mean ...?" */

/* The right word that is closest to a wrong one. */
struct qg_nearest {
    const char *word;
    const char *best;
    int distance;
    char text[512];
};

void qg_nearest_start(struct qg_nearest *, const char *word);
void qg_nearest_try(struct qg_nearest *, const char *candidate);
void qg_nearest_words(struct qg_nearest *, const char *candidates);
/* "did you mean 'x'?", else `otherwise`, followed by `list`. */
const char *qg_nearest_hint(struct qg_nearest *, const char *otherwise,
                            const char *list);
