/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h: shared by the files of the fake driver. */
#pragma once

#include "../fake.h"
#include "oracle/gpu.h"

extern struct fake_cuda fake_state;

/* One call at a time: what is recorded is of one thread. */
int fake_enter(const char *name);
void fake_leave(const int *code);

static inline void fake_add(int *counter, int change)
{
    __atomic_add_fetch(counter, change, __ATOMIC_SEQ_CST);
}

/* Until the function returns no other call is made. */
#define BEGIN()                                                                \
    int code_ __attribute__((cleanup(fake_leave))) = fake_enter(__func__)

/* Fail if this is the n-th call. */
#define ENTER()                                                                \
    BEGIN();                                                                   \
    if (code_)                                                                 \
    return code_

/* The same of a call that copies or sets memory. */
#define COPY(to, bytes)                                                        \
    ENTER();                                                                   \
    if (fake_state.told_copy)                                                  \
        fake_state.told_copy(__func__, (uint64_t)(uintptr_t)(to), bytes);      \
    fake_state.copies++

#define DECLARE(name, arguments) FAKE_API int name arguments;
QN_CU_FUNCTIONS(DECLARE)
QN_CU_OPTIONAL(DECLARE)
QN_GPU_FUNCTIONS(DECLARE)
#undef DECLARE
