/* SPDX-License-Identifier: Apache-2.0 */
/* helper.h: a program that may crash or hang in place of this process. */
#pragma once

#include <stddef.h>

struct qn_helper {
    const char *const *arguments; /* NULL-terminated, the program's path first;
                                     no shell, no search */
    const char *const *variables; /* its whole environment, NULL-terminated */
    int input;                    /* an open file: its standard input */
    double seconds;               /* it is killed after so many */
};

/*
** Run it, and keep its standard output, cut at `size`, up to its end or to a
** line that is a dot. Its error output is lost, its signals are as by
** default and none is blocked. It has ended when this returns; no handler of
** this process changes, and a caller that waits for all children, or ignores
** SIGCHLD, does no harm.
**
** 0, or the error number if it could not be started; `*late` is 1 if it was
** killed.
*/
int qn_helper_run(const struct qn_helper *helper, char *output, size_t size,
                  int *late);
