/* SPDX-License-Identifier: Apache-2.0 */
/* blocked.c: `blocked { type = ..., per = ..., rule = ... }`: the scales of a
   recipe, one for each block of values. */
#include "lua/base.h"
#include "statement/field.h"
#include "statement/word.h"

#include <stddef.h>

#define AT(member)       offsetof(struct qg_scale, member)
#define IN_BLOCK(member) (offsetof(struct qg_scale, block.member) - AT(block))
#define IN_DELAYED(member)                                                     \
    (offsetof(struct qg_scale, delayed.member) - AT(delayed))

static const struct qg_field per_fields[] = {
    {"k", QG_F_SIZE, 1, IN_BLOCK(per.k), NULL, NULL,
     "values along the summed axis: 16, 32, 64 or 128"},
    {"m", QG_F_SIZE, 0, IN_BLOCK(per.m), NULL, NULL,
     "rows of activations and gradients (default 1)"},
    {"n", QG_F_SIZE, 0, IN_BLOCK(per.n), NULL, NULL,
     "rows of weights (default 1)"},
};

static const struct qg_fields per_set = {"blocked.per", per_fields, 3, 0, 0};

static const struct qg_field delayed_fields[] = {
    {"history", QG_F_SIZE, 1, IN_DELAYED(history), NULL, NULL,
     "how many largest values are kept"},
    {"amax", QG_F_NAME, 0, IN_DELAYED(amax), "max latest", NULL,
     "the rule gets the largest or the latest of them (default \"max\")"},
};

static const struct qg_fields delayed_set = {"blocked.delayed", delayed_fields,
                                             2, 0, 0};

static const struct qg_field fields[] = {
    {"type", QG_F_TYPE, 1, AT(type), "e8m0 e4m3 bf16 f16 f32", NULL,
     "the type in which scales are stored"},
    {"per", QG_F_BLOCK, 1, AT(block), QG_WORDS(QN_SPANS(QG_WORD)), &per_set,
     "the block that shares a scale"},
    {"rule", QG_F_FUNCTION, 1, AT(rule), NULL, NULL,
     "the stored scale, and the values' factor, from the largest "
     "magnitude in a block"},
    {"zero", QG_F_CODE, 0, AT(zero), "stored", NULL,
     "the code that stands for 0: of u4 and u8, which have no sign; "
     "\"stored\": each block's own, next to its scale"},
    {"global", QG_F_FUNCTION, 0, AT(global), NULL, NULL,
     "the same for a second scale, of a whole group; the rule finds it as "
     "of.global"},
    {"storage", QG_F_NAME, 0, AT(storage), NULL, NULL,
     "a storage statement's name (default \"plain\")"},
    {"copies", QG_F_NAME, 0, AT(copies), "both rowwise", NULL,
     "of w: \"rowwise\" if dgrad, too, reads the rowwise tensor (default "
     "\"both\": its columnwise tensor)"},
    {"as", QG_F_TYPE, 0, AT(as), "e4m3", NULL,
     "of w in e2m1: e4m3 if it is to hold each value, relative to the "
     "largest scale within 128 values of k, which casts see to"},
    {"rounding", QG_F_NAME, 0, AT(rounding), "nearest stochastic", NULL,
     "how values are rounded (default \"nearest\")"},
    {"hadamard", QG_F_SIGNS, 0, AT(hadamard), NULL, NULL,
     "16 values along the rows are transformed for the columnwise tensor, "
     "after "
     "these "
     "signs"},
    {"delayed", QG_F_TABLE, 0, AT(delayed), NULL, &delayed_set,
     "the scale comes from earlier calls: per = \"tensor\""},
};

const struct qg_fields qg_blocked_fields = {
    "blocked", fields, sizeof fields / sizeof *fields, 0, 0};

/* A wrong one is given to the recipe all the same: one error is enough. */
int qg_blocked_take(struct qg *q, struct qg_word *word)
{
    struct qg_scale *scale = qg_mem_new(q, sizeof *scale);

    scale->location = word->location;
    scale->word = word;
    scale->storage = "plain";
    scale->copies = "both";
    scale->rounding = "nearest";
    scale->delayed.amax = "max";
    scale->blocked = 1;
    if (qg_field_read(q, word, &qg_blocked_fields, scale))
        scale->rule = 0;
    qg_object_push(q->L, scale, QG_SCALE);
    return 1;
}
