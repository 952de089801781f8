/* SPDX-License-Identifier: Apache-2.0 */
/*
** split.h: the syntax of split=, which plans ignore.
*/
#ifndef QUERN_PROBLEM_SPLIT_H
#define QUERN_PROBLEM_SPLIT_H

#include "internal.h"

/* Named ways to draw sizes; sizes.c has a function for each. */
#define QN_SPLITS(X) X(even) X(mild) X(skew) X(zipf) X(one)

/* QUERN_EINVAL unless it is empty, a name, @FILE, or a list that fits; where no
   axis is ragged, unless it is empty or even. */
int qn_split_check(const struct qn_problem *problem);
/* The same of what has rows in groups, as a problem with a ragged m has them;
   with `ragged` 0 all groups have the same rows. */
int qn_split_check_rows(int groups, int64_t rows, const char *split,
                        int ragged);

#endif
