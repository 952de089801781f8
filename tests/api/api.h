/* SPDX-License-Identifier: Apache-2.0 */
/* api.h: shared by the tests of quern.h: lines, what they need according to
   internal functions, and two runs of one line, between canaries. */
#pragma once

#include "runtime/test.h"
#include "api/api.h"

enum { API_GUARD = 256, API_GROUPS = 4 };

/* ------------------------------------------------------------------- walk.c */

/* A context with the real generator, but no real driver. */
struct quern_context *api_open(void);

struct api_line {
    char text[256];
    struct qn_line line; /* read */
    int index;           /* among all */
    int valid;           /* so far, those of other shares too */
};

/* The next valid one of every pattern and recipe, with so many groups, rows and
   features, that is in this process' share; 0 at the end. Begin with zeros. */
int api_line_next(struct quern_context *ctx, int groups, int64_t rows,
                  int features, struct api_line *line);

/* A loop saw all lines: all patterns are in use. */
void api_line_enough(const struct api_line *line);

/* --------------------------------------------------------------- expected.c */

struct api_expected {
    int type, ndim; /* -1: scales.c knows the shape */
    int64_t shape[QUERN_MAX_DIMS], pitch, bytes;
    size_t alignment;
};

/* An operand by the internal description of a line with these rows; 0:
   the line has no such operand. */
int api_expected_find(const struct qn_line *line, const union qn_needs *needs,
                      int arg, struct api_expected *e);

/* Its address in the internal arguments; `form` as in struct qn_slot. NULL:
   nowhere. */
void *api_expected_place(union qn_given *args, int kind, int arg,
                         enum qn_slot_form *form);

/* --------------------------------------------------------------------- run.c
** A plan on the host backend, with memory for each operand.
*/
struct api_run {
    struct quern_context *ctx;
    const char *text;
    struct quern_plan *plan;
    const struct quern_operand *table;
    int count;
    struct quern_args args; /* all operands, as quern.h takes them */
    unsigned char *memory[QUERN_ARGS_COUNT];
    size_t bytes[QUERN_ARGS_COUNT]; /* without the guards */
    void **pointers[QUERN_ARGS_COUNT];
    int64_t host_sizes[API_GROUPS];
};

/* Every operand but the sizes has memory, with values where it is read. The
   same line has the same bytes. */
void api_run_open(struct api_run *run, struct quern_context *ctx,
                  const char *line);
void api_run_close(struct api_run *run);

/* Nothing around the operands was written. */
void api_run_guarded(const struct api_run *run);

/* A hash of all memory without the guards. */
uint64_t api_run_digest(const struct api_run *run);

/* Lengths of API_GROUPS groups, and how they are given: both leaves a row
   before each group. The form of sizes on the host is not checked. */
enum api_form { API_LENGTHS, API_STARTS, API_BOTH, API_ENDS, API_FORMS };
void api_run_sizes(struct api_run *run, const int64_t *lengths, int form,
                   int type);

/* The usual ones: some rows for each group. */
void api_run_usual(struct api_run *run);

/* quern_run of each phase that there is. */
int api_run_phases(const struct api_run *run);
