/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.h: keep the parts of a kernel's text that the kernel uses. */
#pragma once

struct qg;

/* The text of a kernel begins, by template `file`. */
void qg_sweep_begin(struct qg *, int file);
/* From here on `file` writes it. */
void qg_sweep_origin(struct qg *, int file);
/* Drop from q->output the declarations that the function `kernel` does not
   reach, unless there is no such function, or the text includes another.
   Returns 0, or 1 and noted, about `file`. */
int qg_sweep(struct qg *, const char *kernel, int file);
/* Lines for the head of the text that was made last: the files that have
   written it besides `file`, in their order. Valid until the next call. */
const char *qg_sweep_contents(struct qg *, int file);
