/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h: functions that do the same in each lane. */
#pragma once

#include "machine.h"

/* Wider vectors, if the machine that runs has them. */
#if defined __x86_64__ && !defined __clang__ && __GNUC__ >= 12 &&              \
    !defined __SANITIZE_ADDRESS__
#define PX_FAST __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define PX_FAST
#endif

/* A function `name`: d = value in each lane of the mask, where `declared` has
   pointers to the operands and `read` has the lane's values. */
#define PX_LANEWISE(how, name, T, declared, read, value)                       \
    how static int name(struct px_warp *w, const struct px_op *op,             \
                        uint32_t mask)                                         \
    {                                                                          \
        T *d_ = PX_AT(w, T, 0);                                                \
        declared;                                                              \
                                                                               \
        if (mask == PX_ALL) {                                                  \
            T out_[PX_LANES];                                                  \
            for (int i = 0; i < PX_LANES; i++) {                               \
                read;                                                          \
                out_[i] = (T)(value);                                          \
            }                                                                  \
            __builtin_memcpy(d_, out_, sizeof out_);                           \
        } else {                                                               \
            PX_EACH (mask) {                                                   \
                read;                                                          \
                d_[i] = (T)(value);                                            \
            }                                                                  \
        }                                                                      \
        return PX_NEXT;                                                        \
    }

/* By how many operands there are; A, B, C are their types. */
#define PX_ONE_AS(how, name, T, A, value)                                      \
    PX_LANEWISE(how, name, T, const A *a_ = PX_AT(w, A, 1), const A a = a_[i], \
                value)
#define PX_TWO_AS(how, name, T, A, B, value)                                   \
    PX_LANEWISE(how, name, T, const A *a_ = PX_AT(w, A, 1);                    \
                const B *b_ = PX_AT(w, B, 2), const A a = a_[i];               \
                const B b = b_[i], value)
#define PX_THREE_AS(how, name, T, A, B, C, value)                              \
    PX_LANEWISE(how, name, T, const A *a_ = PX_AT(w, A, 1);                    \
                const B *b_ = PX_AT(w, B, 2);                                  \
                const C *c_ = PX_AT(w, C, 3), const A a = a_[i];               \
                const B b = b_[i]; const C c = c_[i], value)
#define PX_FOUR_AS(how, name, T, A, B, C, E, value)                            \
    PX_LANEWISE(how, name, T, const A *a_ = PX_AT(w, A, 1);                    \
                const B *b_ = PX_AT(w, B, 2); const C *c_ = PX_AT(w, C, 3);    \
                const E *e_ = PX_AT(w, E, 4), const A a = a_[i];               \
                const B b = b_[i]; const C c = c_[i];                          \
                const E e = e_[i], value)

#define PX_UNARY(name, T, A, value)       PX_ONE_AS(, name, T, A, value)
#define PX_BINARY(name, T, value)         PX_TWO_AS(, name, T, T, T, value)
#define PX_TWO(name, T, A, B, value)      PX_TWO_AS(, name, T, A, B, value)
#define PX_THREE(name, T, A, B, C, value) PX_THREE_AS(, name, T, A, B, C, value)
#define PX_FOUR(name, T, A, B, C, E, value)                                    \
    PX_FOUR_AS(, name, T, A, B, C, E, value)
