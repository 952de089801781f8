/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: allocations that fail on request. The test program is linked with
   -Wl,--wrap for these four, so only the runtime's own and the tests' calls
   come here, not those of the C library. The linker also reads what shared
   libraries need, so the names must be visible. */
#include "test.h"

static int fail_at, count;

int test_fail_allocation(int n)
{
    int before = __atomic_exchange_n(&count, 0, __ATOMIC_SEQ_CST);

    fail_at = n;
    return before;
}

static int fails(void)
{
    return __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) == fail_at;
}

void *__real_malloc(size_t size);
FAKE_API void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t number, size_t size);
FAKE_API void *__wrap_calloc(size_t number, size_t size);
void *__wrap_calloc(size_t number, size_t size)
{
    return fails() ? NULL : __real_calloc(number, size);
}

void *__real_realloc(void *memory, size_t size);
FAKE_API void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

void *__real_aligned_alloc(size_t alignment, size_t size);
FAKE_API void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}
