/* SPDX-License-Identifier: Apache-2.0 */
/* test_api.c: the tests of quern.h: what its tables say, what its calls take
   and refuse, and that runs give the bytes of the internal functions. */
#include "api.h"

/* State of the kernels that only test_runtime has; support.c clears it. */
struct test_host test_host;
unsigned long long test_host_workers;

TEST_MAIN("api", NULL, NULL)
