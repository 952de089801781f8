/* SPDX-License-Identifier: Apache-2.0 */
/* storage.c: `storage "mn" { order = "columns", pad = { rows = 4 } }`: how a
   matrix of scales is in memory. */
#include "lua/base.h"
#include "statement/field.h"
#include "statement/word.h"

#include <stddef.h>
#include <string.h>

#define AT(member)     offsetof(struct qg_storage, member)
#define IN_PAD(member) (offsetof(struct qg_storage, pad.member) - AT(pad))

static const struct qg_field pad_fields[] = {
    {"rows", QG_F_SIZE, 0, IN_PAD(rows), NULL, NULL,
     "rows of the matrix (default 1, at most 128)"},
    {"columns", QG_F_SIZE, 0, IN_PAD(columns), NULL, NULL,
     "columns of the matrix (default 1, at most 128)"},
};

static const struct qg_fields pad_set = {"storage.pad", pad_fields, 2, 0, 0};

static const struct qg_field fields[] = {
    {"order", QG_F_NAME, 1, AT(order), QG_WORDS(QN_ORDERS(QG_WORD)), NULL,
     "row by row, column by column, or in the tiles that Blackwell reads: 128 "
     "rows by 4 columns"},
    {"pad", QG_F_TABLE, 0, AT(pad), NULL, &pad_set,
     "the multiples that the matrix is padded to"},
    {"groups", QG_F_NAME, 0, AT(groups), "together apart", NULL,
     "one matrix for all groups, or one after the other, each padded (default "
     "\"together\")"},
};

const struct qg_fields qg_storage_fields = {
    "storage", fields, sizeof fields / sizeof *fields, 0, 0};

/* Tiles have one size, so their padding follows. Returns 0, or 1 and noted. */
static int take_tiles(struct qg *q, struct qg_storage *storage)
{
    static const char *const given[] = {"pad", "groups"};

    storage->pad.rows = 128;
    storage->pad.columns = 4;
    storage->groups = "apart";
    for (int i = 0; i < 2; i++)
        if (lua_getfield(q->L, 1, given[i]) != LUA_TNIL) {
            qg_diag_note(q, qg_lex_field(q, storage->location, given[i], 1),
                         QG_E_TILES, given[i]);
            return 1;
        }
    return 0;
}

/* More is only padding, and sizes are added up for no more than these. Returns
   0, or 1 and noted.                    COUPLED: pads */
static int check_pad(struct qg *q, const struct qg_storage *storage)
{
    enum { MOST = 128 };
    const int given[] = {storage->pad.rows, storage->pad.columns};

    for (int i = 0; i < 2; i++)
        if (given[i] > MOST) {
            const char *name = pad_fields[i].name;

            qg_diag_note(q, qg_lex_field(q, storage->location, name, 2),
                         QG_E_FIELD_RANGE, qg_mem_print(q, "pad.%s", name),
                         MOST, qg_mem_print(q, "%d", given[i]));
            return 1;
        }
    return 0;
}

/* Stack index 1: the table. */
int qg_storage_take(struct qg *q, struct qg_word *word)
{
    struct qg_storage *storage = qg_mem_new(q, sizeof *storage);

    storage->location = word->location;
    storage->name = word->name;
    storage->groups = "together";
    storage->pad.rows = storage->pad.columns = 1;
    if (qg_word_taken(q, word))
        return 0;
    if (qg_field_read(q, word, &qg_storage_fields, storage) ||
        check_pad(q, storage))
        return 0;
    if (!strcmp(storage->order, "tiles") && take_tiles(q, storage))
        return 0;
    qg_word_declare(q, word, storage);
    return 0;
}
