/* SPDX-License-Identifier: Apache-2.0 */
/*
** code.h: a kernel's PTX, machine code and resources.
*/
#ifndef QN_CODE_H
#define QN_CODE_H

#include "cli.h"

/*
** Show what opt->show asks for, of the kernel that opt->kernel names or that
** would run the problem on the command line. An exit status, after printing
** what was wrong: QN_EXIT_UNABLE without NVRTC, or without a disassembler.
*/
int qn_code_show(const struct qn_options *opt, struct quern_context *ctx);

#endif
