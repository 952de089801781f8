/* SPDX-License-Identifier: Apache-2.0 */
/*
** sweep.c: keep the parts of a kernel's text that the kernel uses.
**
** Pieces of templates define everything that any of the kernels that include
** them may call. Here the declarations that one kernel reaches from its own
** function are found, by their names, and the others are left out.
*/
#include "lua/base.h"
#include "write/decl.h"
#include "write/write.h"
#include "write/sweep.h"

#include <string.h>

static struct qg_decls *decls_of(struct qg *q)
{
    if (!q->decls)
        q->decls = qg_mem_new(q, sizeof *q->decls);
    return q->decls;
}

void qg_sweep_begin(struct qg *q, int file)
{
    decls_of(q)->origins_count = decls_of(q)->pieces_count = 0;
    qg_sweep_origin(q, file);
}

void qg_sweep_origin(struct qg *q, int file)
{
    struct qg_decls *items = decls_of(q);

    items->origins = qg_decl_grow(q, items->origins, items->origins_count,
                                  &items->origins_room, sizeof *items->origins);
    items->origins[items->origins_count++] =
        (struct qg_decl_origin){q->output.length, file};
}

/* ------------------------------------------------------------- used names */

/* A constant keeps its enum, without the other constants. */
static void keep(struct qg *q, struct qg_decls *items, int index)
{
    struct qg_decl *item = &items->at[index];

    if (item->kept)
        return;
    item->kept = 1;
    if (item->kind == QG_DECL_CONSTANT)
        items->at[item->parent].kept = 1;
    items->queue = qg_decl_grow(q, items->queue, items->queued,
                                &items->queue_room, sizeof *items->queue);
    items->queue[items->queued++] = index;
}

/* Everything that the item's text names. */
static void search(struct qg *q, struct qg_decls *items,
                   const struct qg_decl *item)
{
    const char *end = item->open ? item->open : item->end;
    struct qg_decl_token t = qg_decl_token(item->start, end);

    for (; t.at < t.end; t = qg_decl_token(t.end, end)) {
        struct qg_decl_name *name = t.word ? qg_decl_find(items, &t) : NULL;

        for (; name; name = qg_decl_again(items, name))
            keep(q, items, name->item);
    }
}

/* Returns 0 if there is no function of this name. */
static int keep_used(struct qg *q, struct qg_decls *items, const char *kernel)
{
    struct qg_decl_token t = qg_decl_token(kernel, kernel + strlen(kernel));
    struct qg_decl_name *name = qg_decl_find(items, &t);

    if (!name)
        return 0;
    for (; name; name = qg_decl_again(items, name))
        keep(q, items, name->item);
    for (int i = 0; i < items->count; i++)
        if (items->at[i].kind == QG_DECL_OTHER)
            keep(q, items, i);
    while (items->queued) {
        struct qg_decl item = items->at[items->queue[--items->queued]];

        search(q, items, &item);
    }
    return 1;
}

/* ----------------------------------------------------------------- output */

struct writer {
    struct qg *q;
    struct qg_decls *items;
    const char *text;
    int origin;                    /* index in items->origins */
    int said;                      /* the file that the text says it is from */
    int blank;                     /* an empty line comes before the next one */
    const struct qg_decl *comment; /* about those that follow */
};

static void put(struct writer *w, const char *start, const char *end)
{
    qg_text_add(w->q, &w->q->chunk, start, (size_t)(end - start));
}

static void put_separated(struct writer *w, const struct qg_decl *item,
                          const char *end)
{
    const int blank = w->blank && w->q->chunk.length;

    qg_text_put(w->q, &w->q->chunk, blank ? "\n\n" : "\n");
    put(w, item->start, end);
    w->blank = 0;
}

/* An enum with those of its constants that are kept: from item `first` on. */
static void put_enum(struct writer *w, const struct qg_decl *item, int first)
{
    const struct qg_decl *at = w->items->at;
    const char *rest = item->open + 1;
    int last = -1, count = first;

    while (count < w->items->count && at[count].kind == QG_DECL_CONSTANT &&
           at[count].parent == first - 1) {
        last = at[count].kept ? count : last;
        rest = at[count++].end;
    }
    put_separated(w, item, item->open + 1);
    for (int i = first; i <= last; i++) {
        const char *comma = at[i].comma ? at[i].comma : at[i].end;

        if (!at[i].kept)
            continue;
        put(w, at[i].start, comma);
        if (i < last || (i == count - 1 && at[i].comma))
            qg_text_put(w->q, &w->q->chunk, ",");
        put(w, at[i].comma ? comma + 1 : comma, at[i].end);
    }
    put(w, rest, item->end);
}

/* For the contents: each file once. */
static void add_piece(struct qg *q, struct qg_decls *items, int file)
{
    for (int i = 0; i < items->pieces_count; i++)
        if (items->pieces[i] == file)
            return;
    items->pieces = qg_decl_grow(q, items->pieces, items->pieces_count,
                                 &items->pieces_room, sizeof *items->pieces);
    items->pieces[items->pieces_count++] = file;
}

/* The line that says which file the next item is from; 1 if it is new. */
static int put_origin(struct writer *w)
{
    enum { WIDTH = 80 };
    static const char dashes[] = "----------------------------------------"
                                 "----------------------------------------";
    const int file = w->items->origins[w->origin].file;
    const char *name = w->q->files[file].name;
    int room = WIDTH - (int)(strlen("/*  */") + strlen(name));

    if (file == w->said)
        return 0;
    w->said = file;
    add_piece(w->q, w->items, file);
    qg_text_print(w->q, &w->q->chunk, "\n\n/* %.*s %s */\n",
                  room < 3 ? 3 : room, dashes, name);
    w->blank = 0;
    return 1;
}

/* Items of another file have another subject. */
static void follow_origin(struct writer *w, const struct qg_decl *item)
{
    const struct qg_decl_origin *origins = w->items->origins;

    while (w->origin + 1 < w->items->origins_count &&
           w->text + origins[w->origin + 1].at <= item->start) {
        w->origin++;
        w->comment = NULL;
    }
}

static void put_items(struct writer *w)
{
    for (int i = 0; i < w->items->count; i++) {
        const struct qg_decl *item = &w->items->at[i];
        int is_new;

        if (item->kind == QG_DECL_CONSTANT)
            continue;
        follow_origin(w, item);
        w->blank |= item->blank;
        if (item->kind == QG_DECL_COMMENT)
            w->comment = item;
        if (!item->kept)
            continue;
        is_new = put_origin(w);
        if (w->comment) {
            w->blank = !is_new;
            put_separated(w, w->comment, w->comment->end);
            w->blank = 1;
            w->comment = NULL;
        }
        if (item->open)
            put_enum(w, item, i + 1);
        else
            put_separated(w, item, item->end);
    }
    qg_text_put(w->q, &w->q->chunk, "\n");
}

/* The line of the text that `at` is in; the first one is empty. */
static int line_of(const char *text, const char *at)
{
    int line = 0;

    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

int qg_sweep(struct qg *q, const char *kernel, int file)
{
    struct qg_decls *items = decls_of(q);
    struct writer w = {
        .q = q, .items = items, .text = q->output.data, .said = file};
    struct qg_text swept;
    const char *wrong =
        qg_decl_parse(q, items, q->output.data, q->output.length);

    if (wrong) {
        const char *stop = wrong + strcspn(wrong, "\n");

        qg_diag_note(q, (struct qg_location){file, 0}, QG_E_TEXT_UNBALANCED,
                     line_of(q->output.data, wrong),
                     (int)(stop - wrong < 40 ? stop - wrong : 40), wrong);
        return 1;
    }
    items->queued = 0;
    if (items->includes || !keep_used(q, items, kernel))
        return 0;
    qg_text_clear(&q->chunk);
    put_items(&w);
    swept = q->chunk;
    q->chunk = q->output;
    q->output = swept;
    return 0;
}

const char *qg_sweep_contents(struct qg *q, int file)
{
    enum { WIDTH = 80 };
    static const char first[] = "** pieces    ", later[] = ",\n**           ";
    static const char common[] = "templates/";
    const struct qg_decls *items = decls_of(q);
    size_t column = 0;

    qg_text_clear(&q->chunk);
    qg_text_put(q, &q->chunk, "");
    for (int i = 0; i < items->pieces_count; i++) {
        const char *name = q->files[items->pieces[i]].name;

        if (items->pieces[i] == file)
            continue;
        if (!strncmp(name, common, strlen(common)))
            name += strlen(common);
        if (column && column + strlen(name) + strlen(", ,") <= WIDTH) {
            qg_text_put(q, &q->chunk, ", ");
            column += strlen(", ");
        } else {
            qg_text_put(q, &q->chunk, column ? later : first);
            column = strlen(first);
        }
        qg_text_put(q, &q->chunk, name);
        column += strlen(name);
    }
    if (column)
        qg_text_put(q, &q->chunk, "\n");
    return q->chunk.data;
}
