/* SPDX-License-Identifier: Apache-2.0 */
/*
** twins.h: kernels whose texts differ by their names only, as those of fprop
** and dgrad often do, or of recipes with the same formats.
*/
#pragma once

#include <stdint.h>

#include "registry.h"
#include "report.h"

/* A number of the kernel's text without its heading and name, and of its
   architecture. */
uint64_t twins_number(const struct qn_kernel *kernel, const char *source);

/* The figures of a kernel with this number; NULL if none is known. */
const struct report *twins_find(uint64_t number);

/* Keep the figures of a kernel that was compiled. */
void twins_add(uint64_t number, const struct report *report);
