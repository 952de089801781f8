/* SPDX-License-Identifier: Apache-2.0 */
/*
** mem.c: memory, all of it from qg.resize.
**
** Lua's is counted and bounded. The generator's own is in an arena: nothing
** is freed singly, and a failure raises a Lua error, so no caller looks for
** NULL.
*/
#include "lua/base.h"

#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 32768

struct qg_block {
    struct qg_block *next;
    size_t used, size;
    max_align_t data[];
};

/* Unwind to qg_sandbox_protect. A thrown error must need no memory. */
static _Noreturn void out_of_memory(struct qg *q)
{
    q->fault = QG_NO_MEMORY;
    lua_settop(q->L, 0); /* room for the thrown error */
    lua_pushnil(q->L);
    lua_error(q->L);
    __builtin_unreachable();
}

/* Large requests get a block of their own. */
static struct qg_block *new_block(struct qg *q, size_t bytes)
{
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    struct qg_block *block =
        q->resize(q->user, NULL, sizeof(struct qg_block) + size);

    if (!block)
        out_of_memory(q);
    block->used = 0;
    block->size = size;
    block->next = q->blocks;
    q->blocks = block;
    return block;
}

void *qg_mem_new(struct qg *q, size_t bytes)
{
    size_t rounded =
        (bytes + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    struct qg_block *block = q->blocks;
    char *memory;

    if (rounded < bytes)
        out_of_memory(q);
    if (!block || block->size - block->used < rounded)
        block = new_block(q, rounded);
    memory = (char *)block->data + block->used;
    block->used += rounded;
    return memset(memory, 0, rounded);
}

void *qg_mem_array(struct qg *q, size_t count, size_t bytes)
{
    size_t all;

    if (__builtin_mul_overflow(count ? count : 1, bytes, &all))
        out_of_memory(q);
    return qg_mem_new(q, all);
}

const char *qg_mem_string(struct qg *q, const char *text, size_t length)
{
    char *copy = qg_mem_new(q, length + 1);

    memcpy(copy, text, length);
    return copy;
}

const char *qg_mem_print(struct qg *q, const char *format, ...)
{
    va_list list;
    int length;
    char *copy;

    va_start(list, format);
    length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    copy = qg_mem_new(q, (size_t)length + 1);
    va_start(list, format);
    vsnprintf(copy, (size_t)length + 1, format, list);
    va_end(list);
    return copy;
}

/* The line that runs is kept: Lua calls no handler when memory is denied. */
static int denied(struct qg *q, enum qg_refusal why)
{
    struct qg_location location = {-1, 0};

    q->refused = why;
    if (q->L)
        location = qg_sandbox_location(q->L);
    if (location.file >= 0) /* none is left after unwinding */
        q->where = location;
    return 0;
}

/* Room for `old` bytes of Lua's to become `bytes`? A new string has its kind
   in `old`: bounded, since comparing two long ones counts as one instruction.
   Allocated bytes count as instructions too, for it takes time to fill. A
   refusal outlives later grants: unwinding moves Lua's stack. */
static int allowed(struct qg *q, void *memory, size_t old, size_t bytes)
{
    size_t held = memory ? old : 0;

    if (!memory && old == LUA_TSTRING && bytes > QG_MAX_STRING)
        return denied(q, QG_LONG_STRING);
    if (bytes > held &&
        (bytes - held > q->bound || q->held > q->bound - (bytes - held)))
        return denied(q, QG_TOO_MUCH);
    if (bytes <= held)
        return 1;
    q->left -= (long long)((bytes - held) / 32);
    return 1;
}

/* Lua's allocator; see lua_Alloc. */
void *qg_mem_lua(void *user, void *memory, size_t old, size_t bytes)
{
    struct qg *q = user;
    size_t held = memory ? old : 0;
    void *new;

    if (!bytes) {
        if (memory)
            q->resize(q->user, memory, 0);
        q->held -= held;
        return NULL;
    }
    if (!allowed(q, memory, old, bytes))
        return NULL;
    new = q->resize(q->user, memory, bytes);
    if (!new &&bytes > held) {
        q->refused = QG_GRANTED;
        return NULL;
    }
    if (!new) /* Lua relies on shrinking */
        return memory;
    q->held += bytes - held;
    return new;
}

/* The arena only; Lua frees its own. */
void qg_mem_free(struct qg *q)
{
    while (q->blocks) {
        struct qg_block *next = q->blocks->next;

        q->resize(q->user, q->blocks, 0);
        q->blocks = next;
    }
}
