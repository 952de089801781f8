/* SPDX-License-Identifier: Apache-2.0 */
/*
** log.h: calls of the fake driver, as text.
**
** Addresses are given by the region of memory that they are in, NAME+0xOFFSET,
** so that the text is the same on every machine; one that is in no region is
** the library's own, of a map that the kernel does not read. Parameters that
** are 0 or null are left out.
*/
#pragma once

#include "cases.h"
#include "internal.h"

#include <stdio.h>
#include <string.h>

#include "runtime/fake.h"

/* The fake driver, which takes the real one's place; log_open finds it. */
extern struct fake_cuda *log_cuda;
void log_open(void);

/* Write the fake driver's calls, until the end. A short log has instead
   of the parameters a hash of them. The kernels are sorted by name. */
void log_begin(const struct quern_registry *registry, FILE *out, int is_short);
void log_end(void);

/* Address space named `name`; of products that a queue holds `part` counts.
   Nothing takes memory before it is written. Until log_forget. */
void *log_region(const char *name, int part, size_t bytes);
void log_forget(void);
