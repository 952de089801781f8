/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_numbers.c: casts, scales, random bytes, functions and activations.
**
** Run: build/bin/test_numbers      from the repository's root
**   QUERN_FLOAT_STEP=1   exp, sigmoid and tanh of every float (minutes)
*/
#include "numbers.h"

TEST_MAIN("numbers", pieces_load, pieces_free)
