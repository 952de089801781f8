/* SPDX-License-Identifier: Apache-2.0 */
/* jit.h: the compiled form of a kernel, from the cache or made now. */
#pragma once

#include "internal.h"

struct qn_cache_object;
struct qn_candidate;
struct quern_context;

/* A code of our own: compiled, but not fit for use, or beyond the compiler that
   is there; take the next best. */
#define QN_REJECTED QUERN_STATUS_COUNT

/* The same from the cache only, which compiles nothing: `*found` is 0 if it has
   none. QUERN_ECOMPILE, QUERN_ENOMEM, or QN_REJECTED of one that was found. */
int qn_jit_look(struct quern_context *ctx, const struct qn_candidate *candidate,
                struct qn_cache_object *object, int *found);

/* The cubin, or for arch "host" the shared library, of a kernel. The object
   is freed with free. QUERN_EMISSING, QUERN_ECOMPILE, QUERN_ENOMEM, or
   QN_REJECTED with the reason as the message. */
int qn_jit_object(struct quern_context *ctx,
                  const struct qn_candidate *candidate,
                  struct qn_cache_object *object);
