/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_api.c: the tests of quern.h: what its tables say, what its calls take
** and refuse, and that runs give the bytes of the internal functions.
*/
#include "api.h"

/* Of the kernels that only test_runtime has; support.c clears them. */
struct test_host test_host;
unsigned long long test_host_workers;

/* An argument is a pattern of the names of tests to run. */
int main(int argc, char **argv)
{
    int (*const groups[])(void) = {
        api_table_group,   api_demand_group, api_bytes_group,
        api_refused_group, api_open_group,   api_text_group,
        api_get_group,     api_queue_group,  api_failure_group,
    };
    int failed = 0;

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        failed += groups[i]();
    return failed != 0;
}
