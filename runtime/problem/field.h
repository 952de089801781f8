/* SPDX-License-Identifier: Apache-2.0 */
/* field.h: the fields of a line. Each is one row: parsing, printing, checking,
   comparing and the help all iterate over these rows. */
#pragma once

#include "base/types.h"
#include "internal.h"

#include <stddef.h>

struct qn_field;

/* How values of a field are read and written. */
struct qn_field_kind {
    /* From text; QUERN_EINVAL names key, value and rule. */
    int (*set)(const struct qn_field *field, void *target, const char *value);
    /* To text; "" leaves the field out. */
    void (*print)(const struct qn_field *field, const void *at, char *text,
                  size_t size);
    size_t size; /* bytes that differ if the value does */
};

extern const struct qn_field_kind qn_field_word;   /* int: offset in words */
extern const struct qn_field_kind qn_field_int;    /* int, not negative */
extern const struct qn_field_kind qn_field_length; /* int64_t, not negative */
extern const struct qn_field_kind qn_field_text;   /* char[most + 1] */
void qn_field_print_word(const struct qn_field *field, const void *at,
                         char *text, size_t size);
/* int: merged microbatches, -1 for a 0 that problem_check.c refuses. */
extern const struct qn_field_kind qn_field_microbatches;

enum qn_field_flags {
    QN_FIELD_REQUIRED = 1, /* in every line */
    QN_FIELD_SHOWN = 2,    /* printed even if the value is the usual one */
    QN_FIELD_LISTED = 4,   /* an unknown word gets the list, not `expected` */
    QN_FIELD_GUESSED = 8,  /* an unknown word gets the nearest one */
    QN_FIELD_LATER = 16,   /* the range is checked with other rules */
    QN_FIELD_VARIES = 32   /* may differ in products that are merged */
};

struct qn_field {
    const char *key;    /* "": of the first word; no KEY=VALUE sets it */
    const char *member; /* of the structure */
    size_t at;          /* its offset */
    const struct qn_field_kind *kind;
    const struct qn_words *words;
    int least;    /* of words: the first that is allowed */
    int64_t most; /* the last, or the largest number; 0: as the kind has it */
    unsigned flags;
    const char *expected; /* the rule, for messages; NULL: lists the words */
    const char *usage;    /* a value, for help; NULL: the words, or the key */
    unsigned without;     /* bits of first words whose lines lack the field */
};

/* A structure's members, for a row's `member` and `at`. */
#define QN_FIELD(structure, member) #member, offsetof(structure, member)

/* A word of one of the lists of types.h. */
#define QN_FIELD_WORD(list) .kind = &qn_field_word, .words = &qn_##list##_words

/* The fields of one kind of line. */
struct qn_fields {
    const struct qn_field *fields;
    int count;
    const char *whose; /* in messages: "the values that ..." */
};

/* Fields of each kind of line: lines.c. */
extern const struct qn_fields qn_line_product, qn_line_cast, qn_line_mlp,
    qn_line_route, qn_line_moe;

#define QN_LINE(rows, whose)                                                   \
    {                                                                          \
        rows, sizeof(rows) / sizeof *(rows), whose                             \
    }

/* Move to the next word of a text: 1, or 0 at the end, or -1 with an error. */
#define QN_LONGEST_WORD 300
int qn_field_next(const char **at, char word[QN_LONGEST_WORD]);

/* The rest of a line with that first word: KEY=VALUE words in any order, none
   twice. QUERN_EINVAL names the word and the nearest right one. */
int qn_field_parse(const struct qn_fields *line, int first, const char *at,
                   void *target);

/* The line as text, without values that are as in `usual`; returns the length
   it needs. `recipe` has 32 bytes. */
int qn_field_print(const struct qn_fields *line, int first, const char *word,
                   const void *target, const void *usual, const char *recipe,
                   char *buffer, size_t size);

/* QUERN_EINVAL names the first field whose value is no word of its list, or no
   text. */
int qn_field_check(const struct qn_fields *line, const void *target);

/* Are all fields but those that vary the same? */
int qn_field_same(const struct qn_fields *line, const void *x, const void *y);

/* "g=G m=M [d=TYPE] ..", the fields of lines with that first word (-1: with
   any): returns `buffer`. */
const char *qn_field_usage(const struct qn_fields *line, int first,
                           char *buffer, size_t size);

/* A word of a list; else the nearest one is named. The first word of a line has
   the key "". */
int qn_field_listed(const char *key, const char *value,
                    const struct qn_words *words, int *out);

/* QUERN_EINVAL names the rule. */
int qn_field_number(const char *key, const char *value, int64_t *out);
