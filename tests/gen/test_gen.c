/* SPDX-License-Identifier: Apache-2.0 */
/* test_gen.c: the generator, from specs to files. Needs no compiler but for
   the test of a rule's C, which skips without one. */
#include "test_gen.h"

TEST_MAIN("gen", NULL, NULL)
