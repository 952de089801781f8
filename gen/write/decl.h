/* SPDX-License-Identifier: Apache-2.0 */
/*
** decl.h: the top level of a generated text, one item for each declaration.
**
**     / * Wait until the phase ends. * /        a comment belongs to the item
**     FN void wait(unsigned barrier)            that follows it at once; with
**     {                                         an empty line after it, it is
**         ...                                   an item of its own, about those
**     }                                         that follow
*/
#pragma once

#include <stddef.h>

enum qg_decl_kind {
    QG_DECL_DECLARES, /* something with a name */
    QG_DECL_CONSTANT, /* of the enum that the item of index `parent` is */
    QG_DECL_COMMENT,  /* about the items that follow */
    QG_DECL_OTHER     /* without a name: always kept */
};

struct qg_decl {
    const char *start, *end; /* with its comments, without the last newline */
    const char *open;        /* of an enum with constants as items: its "{" */
    const char *comma;       /* a constant's, or NULL */
    enum qg_decl_kind kind;
    int parent;
    int blank; /* an empty line is before it */
    int kept;
};

/* Names that an item declares. Names with one hash form a list. */
struct qg_decl_name {
    const char *at;
    size_t length;
    int item, next;
};

/* A position of the output from which on a file has written it. */
struct qg_decl_origin {
    size_t at;
    int file;
};

enum { QG_DECL_BUCKETS = 1024 };

/* The arrays are kept from one text to the next. */
struct qg_decls {
    struct qg_decl *at;
    struct qg_decl_name *names;
    struct qg_decl_origin *origins;
    int *queue; /* items whose text is still to be searched */
    int count, room, names_count, names_room, origins_count, origins_room;
    int queued, queue_room;
    int *pieces; /* files that wrote the kept declarations, in their order */
    int pieces_count, pieces_room;
    int includes;                 /* other files, which may name any item */
    int buckets[QG_DECL_BUCKETS]; /* index of a name plus 1, 0: none */
};

struct qg;

/* A token of C; comments are passed over. */
struct qg_decl_token {
    const char *at, *end; /* at == end: there is none left */
    int word;             /* an identifier or a keyword */
    unsigned hash;        /* of a word */
};

/* The token at or after `at`. Its `at` is NULL where a comment or a text in
   quotes does not end. */
struct qg_decl_token qg_decl_token(const char *at, const char *end);

/* The first name of this token that is declared, or NULL. */
struct qg_decl_name *qg_decl_find(struct qg_decls *,
                                  const struct qg_decl_token *);
/* The next one that is the same. */
struct qg_decl_name *qg_decl_again(struct qg_decls *, struct qg_decl_name *);

/* Find the items of the text. Returns NULL, or the position of brackets, a
   comment or a text in quotes without an end or a beginning. */
const char *qg_decl_parse(struct qg *, struct qg_decls *, const char *text,
                          size_t length);

/* The array with room for one more of `size` bytes. */
void *qg_decl_grow(struct qg *, void *array, int count, int *room, size_t size);
