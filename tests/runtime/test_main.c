/* SPDX-License-Identifier: Apache-2.0 */
/* test_main.c: the tests of libquern, which need neither a GPU nor a compiler:
   fakes replace libcuda, libnvrtc, libcublasLt and libquern_gen. */
#include "test.h"

/* An argument is a pattern of the names of tests to run: '*thread*' is what a
   thread sanitizer should see. */
TEST_MAIN("runtime", NULL, NULL)
