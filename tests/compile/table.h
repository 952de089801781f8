/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: results of compiling each kernel, as JSON. */
#pragma once

#include "internal.h"
#include "report.h"

struct table;

/* A file at `path`, with the compiler's version and options at its top. NULL if
   it cannot be written. */
struct table *table_open(const char *path, const char *compiler,
                         const char *options);

/* One row: registers, bytes spilled, seconds of one core from spec to cubin,
   and the rule that is broken or null. `table` may be NULL. */
void table_add(struct table *table, const struct qn_kernel *kernel,
               const struct report *report, double seconds, const char *broken);

/* The sums of all rows, and the file's end; 0, or -1 if anything was not
   written. NULL is allowed. */
int table_close(struct table *table);
