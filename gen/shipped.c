/*
** shipped.c: `shipped { "quern_...", ... }`: kernels that are built ahead.
** Whether they exist is known once everything is expanded.
*/
#include "qg.h"

#include <string.h>

/* The entry on top of the stack. */
static void take_name(struct qg *q, const struct qg_word *word, int entry)
{
    struct qg_shipped *shipped;
    const char *name;

    if (lua_type(q->L, -1) != LUA_TSTRING) {
        qg_diag_note(q, word->place, QG_E_SHIPPED_LIST, entry,
                     qg_word_kind_of(q->L, -1));
        return;
    }
    name = lua_tostring(q->L, -1);
    shipped = qg_mem_new(q, sizeof *shipped);
    shipped->place = qg_lex_text(q, word->place, name);
    shipped->name = qg_mem_string(q, name, strlen(name));
    shipped->next = q->shipped;
    q->shipped = shipped;
}

/* Stack index 1: the list. May stand in several files: they add up. */
int qg_shipped_take(struct qg *q, struct qg_word *word)
{
    const char *key;
    int count;

    if (lua_type(q->L, 1) != LUA_TTABLE) {
        qg_diag_note(q, word->place, QG_E_SHIPPED_KIND,
                     qg_word_kind_of(q->L, 1));
        return 0;
    }
    key = qg_pairs_other(q->L, 1);
    if (key) {
        qg_diag_note(q, word->place, QG_E_FIELD_LIST, "shipped", key);
        return 0;
    }
    count = (int)lua_rawlen(q->L, 1);
    if (count > QG_MAX_SHIPPED) {
        qg_diag_note(q, word->place, QG_E_SHIPPED_COUNT, QG_MAX_SHIPPED);
        return 0;
    }
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(q->L, 1, i);
        take_name(q, word, i);
        lua_pop(q->L, 1);
    }
    return 0;
}

/* ---------------------------------------------------- once all is expanded */

/* NULL if neither a kernel nor a rejected point has the name. */
static struct qg_point *find_point(struct qg *q, const char *name)
{
    struct qg_point wanted = {.kernel = {.name = name, .spec = ""}};
    struct qg_point *key = &wanted, **found;
    int low = 0, high = q->npoints;

    while (low < high) {
        int middle = (low + high) / 2;

        found = &q->sorted[middle];
        if (strcmp((*found)->kernel.name, key->kernel.name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < q->npoints && !strcmp(q->sorted[low]->kernel.name, name))
        return q->sorted[low];
    return NULL;
}

/*
** Shipped kernels must exist: a name that has gone stale would drop a kernel
** from the build without a word.
*/
static void ship(struct qg *q, const struct qg_shipped *shipped)
{
    struct qg_point *point = find_point(q, shipped->name);
    struct qg_nearest nearest;

    if (!point) {
        qg_nearest_start(&nearest, shipped->name);
        for (int i = 0; i < q->npoints; i++)
            qg_nearest_try(&nearest, q->sorted[i]->kernel.name);
        qg_diag_note(q, shipped->place, QG_E_SHIPPED_UNKNOWN, shipped->name,
                     qg_nearest_hint(&nearest, "quern list prints them", ""));
    } else if (point->reason) {
        qg_diag_note(q, shipped->place, QG_E_SHIPPED_REJECTED, shipped->name,
                     point->reason);
    } else {
        point->kernel.shipped = 1;
    }
}

void qg_shipped_mark(struct qg *q)
{
    int count = 0;

    for (const struct qg_shipped *s = q->shipped; s; s = s->next) {
        for (const struct qg_shipped *t = q->shipped; t != s; t = t->next)
            if (!strcmp(s->name, t->name)) {
                qg_diag_note(q, s->place, QG_E_SHIPPED_TWICE, s->name,
                             qg_files_print(q, t->place));
                break;
            }
        if (++count > QG_MAX_SHIPPED) {
            qg_diag_note(q, s->place, QG_E_SHIPPED_COUNT, QG_MAX_SHIPPED);
            return;
        }
        ship(q, s);
    }
}
