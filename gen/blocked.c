/*
** blocked.c: `blocked { type = ..., per = ..., rule = ... }`: the scales of a
** recipe, one for each block of values.
*/
#include "qg.h"

#include <stddef.h>

#define AT(member)     offsetof(struct qg_scale, member)
#define IN_PER(member) (offsetof(struct qg_scale, per.member) - AT(per))

static const struct qg_field per_fields[] = {
    {"k", QG_F_SIZE, 0, IN_PER(k), NULL, NULL, "values along the summed axis"},
    {"m", QG_F_SIZE, 0, IN_PER(m), NULL, NULL, "rows of activations"},
    {"n", QG_F_SIZE, 0, IN_PER(n), NULL, NULL, "rows of weights"},
};

static const struct qg_fields per_set = {"blocked.per", per_fields, 3, 0};

static const struct qg_field fields[] = {
    {"type", QG_F_TYPE, 1, AT(type), "e8m0 f32", NULL,
     "the type in which scales are stored"},
    {"per", QG_F_TABLE, 1, AT(per), NULL, &per_set,
     "the block that shares a scale; what is not given is 1"},
    {"rule", QG_F_FUNCTION, 1, AT(rule), NULL, NULL,
     "the scale of a block, from the largest magnitude in it"},
};

const struct qg_fields qg_blocked_fields = {"blocked", fields,
                                            sizeof fields / sizeof *fields, 0};

/* A wrong one is given to the recipe all the same: one error is enough. */
int qg_blocked_take(struct qg *q, struct qg_word *word)
{
    struct qg_scale *scale = qg_mem_new(q, sizeof *scale);

    scale->place = word->place;
    scale->word = word;
    scale->per.k = scale->per.m = scale->per.n = 1;
    scale->blocked = 1;
    if (qg_field_read(q, word, &qg_blocked_fields, scale))
        scale->rule = 0;
    qg_word_give(q->L, scale, QG_SCALE);
    return 1;
}
