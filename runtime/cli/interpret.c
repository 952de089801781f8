/* SPDX-License-Identifier: Apache-2.0 */
/* interpret.c: --backend ptx: a CUDA driver and a compiler whose GPU is an
   interpreter of PTX, as a build of the source has it. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "device/library.h"

void qn_interpret(struct argp_state *state)
{
    const char *real = getenv("QUERN_NVRTC");
    char folder[PATH_MAX - 32], path[PATH_MAX];

    if (!qn_library_folder(folder, sizeof folder))
        *folder = 0;
    snprintf(path, sizeof path, "%s/../lib/fake_ptx.so", folder);
    if (access(path, R_OK))
        argp_error(state,
                   "--backend ptx needs %s, which `make` builds and an "
                   "installation does not have",
                   path);
    /* Its objects are PTX, so no cache holds them; and it is no GPU on which a
       first use could do harm. */
    if (setenv("QUERN_CUDA", path, 1) || setenv("QUERN_CACHE", "", 1) ||
        setenv("QUERN_TRUST", "compiled", 0) ||
        (real && !strstr(real, "/fake_ptx.so") &&
         setenv("PTX_NVRTC", real, 1)) ||
        setenv("QUERN_NVRTC", path, 1))
        argp_error(state, "--backend ptx: out of memory");
}
