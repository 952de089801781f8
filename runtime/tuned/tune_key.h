/* SPDX-License-Identifier: Apache-2.0 */
/* tune_key.h: are lines of measured winners about kernels as they are now? */
#pragma once

#include "tuned/tune_file.h"

struct quern_context;

/* The beginning of the key of the context's kernel of that name; "" if there is
   none. A user's specs may have to be rendered: QUERN_ECOMPILE. */
int qn_tune_key_of(struct quern_context *ctx, const char *kernel,
                   char key[QN_TUNE_KEY + 1]);

/* Find out, once for each line, whether no kernel has its name and its key:
   line->stale. QUERN_ECOMPILE. */
int qn_tune_key_check(struct quern_context *ctx, struct qn_tune_line *line);

/* Check all lines of a file and count those that are stale. */
int qn_tune_key_count(struct quern_context *ctx, struct qn_tune_file *file,
                      int *stale);
