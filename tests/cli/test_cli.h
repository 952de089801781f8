/* SPDX-License-Identifier: Apache-2.0 */
/* test_cli.h: the shell that tests of the program use. */
#pragma once

#include "cases.h"

/* ------------------------------------------------------------------ shell.c */

/* The folder that this program is in, as it stands between the apostrophes of a
   shell's word: '%s/quern'. */
const char *test_own_folder(void);

/* The exit status of a shell's command; its output is in test_output. */
int test_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern char test_output[1 << 23];
