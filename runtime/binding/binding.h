/* SPDX-License-Identifier: Apache-2.0 */
/*
** binding.h: the context that all calls of a process share. Each front end's
** library has a copy of this file's code, and so a context of its own.
*/
#ifndef QUERN_BINDING_H
#define QUERN_BINDING_H

#include "quern.h"

/* The first call opens the context, in a child of fork() again. Any thread may
   call. A code of the library's. */
int qn_binding_open(struct quern_context **ctx);

/* How often fork() led to this process since the context was opened first: plans
   of another number are a parent's. */
int qn_binding_forks(void);

/* Add a folder with specs of a user's, before the context is open. NULL, or a
   sentence in static storage. */
const char *qn_binding_add_specs(const char *folder);

#endif
