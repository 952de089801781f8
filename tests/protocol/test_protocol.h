/* SPDX-License-Identifier: Apache-2.0 */
/* test_protocol.h: kernels' twins, made and launched. */
#pragma once

#include "cases.h"
#include "gen.h"
#include "launch.h"

#include <stdio.h>
#include <sys/types.h>

/* ------------------------------------------------------------- twins */

/* A change to a template that breaks the protocol. */
struct defect {
    const char *file, *from, *to;
};

struct twin {
    const struct qn_kernel *kernel; /* the generator's */
    const struct quern_registry *registry;
    twin_run_fn *run;
    int number; /* its case's: seeds the draws for its launches */
    int file;
    pid_t compiler; /* while it works */
};

/* Whether the file has the text that the defect replaces. */
int twin_has_text(const struct defect *defect);

int twin_make_folder(void **state);
int twin_remove_folder(void **state);

/* With a defect or NULL, for kernels of one recipe or, with NULL, of all; fails
   the test if the generator does not open. */
struct qg *twin_open_generator(const struct defect *defect, const char *recipe);

/* Generate and start to compile, with "-O2" for many launches or "-O0" for few;
   then wait, load until the program ends, and draw from the number on. */
void twin_begin(struct qg *gen, const struct qn_kernel *kernel, char *level,
                int number, struct twin *twin);
void twin_finish(struct twin *twin);

/* A function that passes each parameter from an array, as the driver does, and
   `#include` of its caller. */
void twin_write_call(FILE *f, const struct qn_kernel *kernel,
                     const char *behind);


/* ---------------------------------------------------------- launches */

enum { MAX_GROUPS = 1024 };

/* The meaning of C and the scalars; "store" knows only the first. */
enum addend {
    C_NOTHING, /* alpha, beta and C null: serves "store" */
    C_ONE,     /* alpha and beta null: serves "add" */
    C_SCALARS, /* one alpha, one beta */
    C_UNREAD,  /* one beta of zero, and C where no read may go */
    C_GROUPS,  /* scalars for each group, some zero */
    C_KINDS
};

struct shape {
    int groups, m, n, k; /* the ragged one of the whole buffer */
    const void *first_dims, *offsets;
    int sizes_bytes;
    const int *starts, *lengths; /* the truth; NULL where sizes are */
    int clusters;
    uint64_t seed;
    int gaps;  /* rows and matrices are with room between them */
    int apart; /* matrices have any address, where the kernel supports it */
    enum addend addend;
};

/* Returns "" or the error; `error` is what check_sizes recorded. */
const char *twin_launch(const struct twin *twin, const struct shape *shape,
                        unsigned int error[4]);

/* Start the draws of the launches below anew, so that a case meets the same ones
   whichever cases ran before it. */
void twin_draw_from(int number);

/* Many launches; each returns "" or the first one's error. */
const char *twin_run_small_sizes(const struct twin *twin, int first, int step);
const char *twin_run_many_groups(const struct twin *twin);
const char *twin_run_crowd(const struct twin *twin, int times);
const char *twin_run_one_group_holds_all(const struct twin *twin);
const char *twin_run_bands(const struct twin *twin);
const char *twin_run_gaps(const struct twin *twin, int times);
const char *twin_run_lies(const struct twin *twin);
