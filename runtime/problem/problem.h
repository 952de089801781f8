/* SPDX-License-Identifier: Apache-2.0 */
/*
** problem.h: what the parts of the runtime ask of a problem.
*/
#ifndef QUERN_PROBLEM_PROBLEM_H
#define QUERN_PROBLEM_PROBLEM_H

#include "internal.h"

struct quern_context;

/* Of every operand and of the workspace, in bytes, unless the problem says
   less: what copies by TMA need. */
#define QN_ALIGNMENT 16

/* Of one operand: the problem's, but never less than an element. */
int qn_problem_alignment(const struct qn_problem *problem, int type);

/* The longest ragged axis: a ragged tensor map counts rows from 2^30. */
#define QN_RAGGED_LIMIT ((int64_t)1 << 30)

/*
** Check each field against the rules and, if `recipe` is not NULL, return the
** recipe. QUERN_EINVAL names the field and the rule.
*/
int qn_problem_check(struct quern_context *ctx,
                     const struct qn_problem *problem,
                     const struct qn_recipe **recipe);

/* A field that has values least .. count - 1. */
struct qn_problem_field {
    const char *name;
    int value, least, count;
};

/* QUERN_EINVAL names the first whose value is none of `whose`. */
int qn_problem_fields(const struct qn_problem_field *fields, size_t count,
                      const char *whose);

/* Both words of a problem end where they must: QUERN_EINVAL names the one that
   does not. */
#define QN_PROBLEM_WORDS(p)                                                    \
    qn_problem_words((p)->recipe, sizeof(p)->recipe, (p)->split,               \
                     sizeof(p)->split)
int qn_problem_words(const char *recipe, size_t recipe_size, const char *split,
                     size_t split_size);

/* QUERN_EINVAL: rows of `least` elements of the tensor overlap, or are too far
   apart. */
int qn_problem_stride(const char *tensor, int64_t stride, int64_t least);

/* Does a kernel of that epilogue (enum qn_epilogue), and of that activation,
   serve what the problem makes of the product? */
int qn_problem_takes(const struct qn_problem *problem, int epilogue,
                     const char *activation, int interleave);

/* QUERN_EINVAL for a number of groups that no problem has. */
int qn_problem_groups(int groups);

/* Move to the next word of a text: 1, or 0 at the end, or -1 with an error. */
#define QN_LONGEST_WORD 300
int qn_parse_word(const char **at, char word[QN_LONGEST_WORD]);

/* A key that a line may have; a list of them ends with no name. */
struct qn_parse_key {
    const char *name;
    int (*set)(void *target, const char *key, const char *value);
    int required;
};

/*
** The rest of a line: KEY=VALUE words in any order, none twice; those required
** may be left out unless `all_required`. QUERN_EINVAL names the word and the
** nearest right one.
*/
int qn_parse_pairs(const char *at, const struct qn_parse_key *keys,
                   int all_required, void *target);

/* The next word as the name of a recipe; `before` is the word that it follows.
   QUERN_EINVAL names the known ones. */
int qn_parse_recipe(struct quern_context *ctx, const char **at,
                    const char *before, char name[32],
                    const struct qn_recipe **recipe);

/* A word of a list, as types.h has them; else the nearest one is named. The
   first word of a line has the key "". */
int qn_parse_listed(const char *key, const char *value, int *out,
                    int (*find)(const char *, int *), const char *(*at)(int));

/* Values that several lines have. QUERN_EINVAL names the rule. */
int qn_parse_number(const char *key, const char *value, int64_t *out);
int qn_parse_int(const char *key, const char *value, int *out);
/* -1 for 0; how many there may be is problem_check.c's to say. */
int qn_parse_microbatches(const char *key, const char *value,
                          int *microbatches);
int qn_parse_split(const char *value, char *split, size_t size);
int qn_parse_sizes(const char *key, const char *value, int *sizes);
int qn_parse_dbias(const char *key, const char *value, int *dbias);
const char *qn_parse_dbias_name(int dbias);

/* Layouts and ragged axis as the op's tensors lie in training; quantized copies
   are k-major (parse.c). The recipe may be NULL: it has none. */
void qn_problem_defaults(struct qn_problem *problem,
                         const struct qn_recipe *recipe);

/* Set the message for an unknown recipe, with the known ones; QUERN_EINVAL. */
int qn_problem_no_recipe(struct quern_context *ctx, const char *name);

/* The type and the shape that a plan was made for. QUERN_EINVAL. */
int qn_problem_shape(const char *name, const struct qn_tensor *given,
                     const struct qn_tensor *need);

#endif
