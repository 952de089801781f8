/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_cli.c: the program `quern` as a user meets it, and the parts of it that
** others build on: group sizes and random data.
**
** Run: build/bin/test_cli [TEST]      runs build/bin/quern next to it; TEST is
**                                     one test's name, or a pattern
*/
#include "test_cli.h"

TEST_MAIN("cli", NULL, NULL)
