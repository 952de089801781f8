/* SPDX-License-Identifier: Apache-2.0 */
/* generator.h: libquern_gen, opened when a source or a user's specs are
   needed. One lock serializes it: the generator is not thread-safe. */
#pragma once

#include "internal.h"

#include <pthread.h>

struct qn_candidate;
struct quern_context;

/*
** Open the library and load the embedded specs and the context's folders;
** nothing if it was done before.
** QUERN_EMISSING (the names tried), QUERN_ECOMPILE (the diagnostics).
*/
int qn_generator_open(struct quern_context *ctx);
void qn_generator_close(struct quern_context *ctx);

/* A copy of a kernel's source, freed with free. QUERN_ECOMPILE if the library
   knows no such kernel or would write another source than the registry says. */
int qn_generator_source(struct quern_context *ctx,
                        const struct qn_kernel *kernel, char **source);

/* The key of a kernel, which lives as long as the context. A registry of the
   user's specs has keys only of the kernels that were asked for, so this one
   may be generated first. QUERN_ECOMPILE. */
int qn_generator_key(struct quern_context *ctx,
                     const struct qn_candidate *candidate, const char **key);
