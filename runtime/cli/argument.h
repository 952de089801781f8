/* SPDX-License-Identifier: Apache-2.0 */
/*
** argument.h: what `quern describe` says of an argument, as rows of a table.
*/
#ifndef QN_ARGUMENT_H
#define QN_ARGUMENT_H

#include "cli.h"

/* Anything; `bytes` 0: it has no size of its own. */
void qn_argument_row(cJSON *rows, const char *name, const char *type,
                     const char *shape, size_t bytes, size_t alignment,
                     const char *what);

/* The array of sizes from the host (enum quern_sizes). */
void qn_argument_host_sizes(cJSON *rows, int sizes, int groups);

/* A tensor's axes, and how far its rows are apart if that is said. */
void qn_argument_shape(char *text, size_t size, const struct qn_tensor *t);

/* A tensor, and a copy's scales of type `sf_type`; none if it has no axes. */
void qn_argument_tensor(cJSON *rows, const char *name, const char *what,
                        const struct qn_tensor *t, const char *sf_type);

/* Print and free them. */
void qn_argument_print(const struct qn_options *, cJSON *rows);

/*
** Why a kernel was chosen for `subject`: the text, or with --json an object
** that has both, under `key` and "why".
*/
void qn_argument_why(const struct qn_options *, const char *key,
                     const char *subject, const char *text);

#endif
