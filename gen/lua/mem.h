/* SPDX-License-Identifier: Apache-2.0 */
/*
** mem.h: memory: the arena, and the allocator of Lua.
*/
#ifndef QUERN_GEN_LUA_MEM_H
#define QUERN_GEN_LUA_MEM_H

#include "qg.h"

void *qg_mem_new(struct qg *, size_t bytes); /* zeroed; freed by qg_close */
void *qg_mem_array(struct qg *, size_t count, size_t bytes);
const char *qg_mem_string(struct qg *, const char *text, size_t length);
const char *qg_mem_print(struct qg *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *qg_mem_lua(void *qg, void *memory, size_t old, size_t bytes);
void qg_mem_free(struct qg *);

#endif
