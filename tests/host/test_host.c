/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_host.c: the host backend through the public header.
**
** It is the oracle for the GPU, so it is held to float64 itself:
**
**   err = |d - ref| / |ref|      16-bit operands, NUMERICS
**     fp32 out    err <= max(1e-5, 2e-9 k)
**     bf16 out    err <= 4e-3 and <= 1.1 x that of the reference rounded once
**     fp16 out    err <= 6e-4 and the same
**   integer operands             right to the bit
**   fp32 sums                    the bits of a plain ascending loop
**                                                  COUPLED: tolerances
**
** Run: build/bin/test_host [name, may have * and ?]
*/
#include "host.h"

static int open_library(void **state)
{
    struct quern_open_options options = {.cache = ""};
    int code = qn_open(&options, &host_ctx);

    (void)state;
    qt_context = host_ctx;
    return code;
}

static int close_library(void **state)
{
    (void)state;
    quern_close(host_ctx); /* and the plans that it keeps */
    return 0;
}

TEST_MAIN("host", open_library, close_library)
