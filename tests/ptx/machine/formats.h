/* SPDX-License-Identifier: Apache-2.0 */
/* formats.h: floats of 16 and 8 bits; to the nearest, ties to even. */
#pragma once

#include "machine.h"

/* Larger values become the largest, as .satfinite has it. */
uint8_t px_e4m3_of(float x);
uint8_t px_e5m2_of(float x);
