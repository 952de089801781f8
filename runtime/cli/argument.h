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

/* A tensor, and a copy's scales of type `sf_type`; nothing if it has no axes.
 */
void qn_argument_tensor(cJSON *rows, const char *name, const char *what,
                        const struct quern_tensor *t, const char *sf_type);

/* Print and free them. */
void qn_argument_print(const struct qn_options *, cJSON *rows);

#endif
