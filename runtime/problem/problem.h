/* SPDX-License-Identifier: Apache-2.0 */
/*
** problem.h: functions on a problem for the parts of the runtime.
*/
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "internal.h"

struct quern_context;
struct qn_fields;

/* The alignment of every operand and of the workspace, in bytes, unless the
   problem says less: required by TMA. */
#define QN_ALIGNMENT 16

/* The alignment of one operand: the problem's, but never less than an
   element. */
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

/* QUERN_EINVAL if products of the recipe have no D of the problem's type: the
   message names the key that gave it, the writer, and the types. */
int qn_problem_writes(const struct qn_problem *problem,
                      const struct qn_recipe *recipe, const char *key,
                      const char *writer);

/* For a structure that begins with the recipe's name and may come from a
   program rather than from text: the rules of its fields, and its recipe.
   QUERN_EINVAL names the field and the rule. */
int qn_problem_begin(struct quern_context *ctx, const struct qn_fields *line,
                     const void *target, const struct qn_recipe **recipe);

/* The next word as the name of a recipe; `before` is the word that it follows.
   QUERN_EINVAL names the known ones. */
int qn_problem_recipe(struct quern_context *ctx, const char **at,
                      const char *before, char name[32],
                      const struct qn_recipe **recipe);

/* QUERN_EINVAL: rows of `least` elements of the tensor overlap, or are too far
   apart. */
int qn_problem_stride(const char *tensor, int64_t stride, int64_t least);

/* Does a kernel of that epilogue (enum qn_epilogue), and of that activation,
   serve the problem's use of the product? */
int qn_problem_takes(const struct qn_problem *problem, int epilogue,
                     const char *activation, int interleave);

/* QUERN_EINVAL for a number of groups that no problem has. */
int qn_problem_groups(int groups);

/* Layouts and ragged axis as the op's tensors are in training; quantized
   tensors are k-major (parse.c). The recipe may be NULL: it has none. */
void qn_problem_defaults(struct qn_problem *problem,
                         const struct qn_recipe *recipe);

/* The constants of clamped_swiglu where a caller gives none: those of
   QUERN_ARGS_INIT. */
static inline void qn_problem_limits(float *limit, float *slope, float *shift)
{
    static const struct quern_args usual = QUERN_ARGS_INIT;

    *limit = usual.limit;
    *slope = usual.slope;
    *shift = usual.shift;
}

/* Set the message for an unknown recipe, with the known ones; QUERN_EINVAL. */
int qn_problem_no_recipe(struct quern_context *ctx, const char *name);

/* QUERN_EINVAL if the recipe has no dy: `given` needs it, `instead` is for
   those who do not. */
int qn_problem_gradient(const struct qn_recipe *recipe, const char *given,
                        const char *instead);

/* split.c: the syntax of split=, which plans ignore. */

/* Named rules to draw sizes; sizes.c has a function for each. */
#define QN_SPLITS(X) X(even) X(mild) X(skew) X(zipf) X(one)

/* QUERN_EINVAL unless it is empty, a name, @FILE, or a list that fits; where no
   axis is ragged, unless it is empty or even. */
int qn_split_check(const struct qn_problem *problem);
/* The same for any object with rows in groups, as a problem with a ragged m has
   them; with `ragged` 0 all groups have the same rows. */
int qn_split_check_rows(int groups, int64_t rows, const char *split,
                        int ragged);

/* space: lay out a workspace, or another buffer of several slices. */

/*
** The offset of the next slice: `*used` bytes come before it, and with it
** `*used` becomes their end, a multiple of 256. If no size_t holds the end it
** stays SIZE_MAX, which no caller can provide.
*/
static inline size_t qn_space_add(size_t *used, size_t bytes)
{
    const size_t at = *used;

    if (__builtin_add_overflow(at, bytes, used) || *used > SIZE_MAX - 255)
        *used = SIZE_MAX;
    else
        *used = (*used + 255) / 256 * 256;
    return at;
}

/* workspace.c: the bytes of workspace that a problem needs. */

/* Bytes of a run's workspace, for any strategy of its plan. */
size_t qn_workspace_bytes(struct quern_context *ctx,
                          const struct qn_problem *problem,
                          const struct qn_recipe *recipe);

/* describe.c: qn_problem_describe for the runtime's own use. */

/* All but the workspace; and the recipe, if `recipe` is not NULL.
   QUERN_EINVAL. */
int qn_describe_operands(struct quern_context *ctx,
                         const struct qn_problem *problem,
                         struct qn_description *description,
                         const struct qn_recipe **recipe);

/* The same of a problem that obeys all rules. */
int qn_describe_valid(struct quern_context *ctx,
                      const struct qn_problem *problem,
                      const struct qn_recipe *recipe,
                      struct qn_description *description);

/* renamed.c: words of problem lines that have another name now. */

/* QUERN_EINVAL names the new spelling of a key or of its value. With key ""
   `value` is the first word of a line. */
int qn_renamed_check(const char *key, const char *value);

/* line.c: the kind of a line, by its first word. */

enum qn_line_kind {
    QN_LINE_PRODUCT,
    QN_LINE_CAST,
    QN_LINE_MLP,
    QN_LINE_ROUTE,
    QN_LINE_MOE,
    QN_LINE_KINDS,
    QN_LINE_UNKNOWN = QN_LINE_KINDS
};

/* A misspelled word counts as the nearest one, whose parser then refuses it;
   an empty line is a product's. */
enum qn_line_kind qn_line_of(const char *text);

/* Every first word that there is, with commas between them. */
const char *qn_line_words(char *buffer, size_t size);
