/* SPDX-License-Identifier: Apache-2.0 */
/*
** fuzz.h: texts from elsewhere, damaged at random.
**
** A target takes any bytes and must neither crash nor hang, leak or overflow
** (the sanitizers see it), nor fail without a sentence. Its corpus is
** tests/fuzz/corpus/NAME/: inputs that it takes, and those that once broke it.
*/
#pragma once

#include <stddef.h>
#include <stdint.h>

struct fuzz_target {
    const char *name;
    void (*run)(const char *text, size_t length); /* a zero follows */
    int rounds; /* of the plain driver: about a second's */
    const char *const *words;
};

/* A rule of ours that did not hold: as a crash, so that a driver sees it. */
#define FUZZ_HOLDS(rule)                                                       \
    do {                                                                       \
        if (!(rule))                                                           \
            fuzz_broken(#rule, __FILE__, __LINE__);                            \
    } while (0)
void fuzz_broken(const char *rule, const char *file, int line);

/* -------------------- damage.c */

enum { FUZZ_MOST = 8192 }; /* bytes of an input */

/* Values that are the same on every machine. */
unsigned fuzz_draw(uint64_t *seed, unsigned below);

/* One damage; `text` has room for FUZZ_MOST + 1. Returns the new length. */
size_t fuzz_damage(char *text, size_t length, const char *const *words,
                   uint64_t *seed);

/* -------------------- the targets */

void fuzz_spec(const char *text, size_t length);
void fuzz_problem(const char *text, size_t length);
void fuzz_cast(const char *text, size_t length);
void fuzz_line(const char *text, size_t length);
void fuzz_rule(const char *text, size_t length);
void fuzz_tune(const char *text, size_t length);
void fuzz_sizes(const char *text, size_t length);
void fuzz_routes(const char *text, size_t length);
void fuzz_config(const char *text, size_t length);
void fuzz_cache(const char *text, size_t length);
void fuzz_checkpoint(const char *text, size_t length);

/* A folder of this process's own, removed at its end. */
const char *fuzz_folder(void);

/* Write a file in it; its path, in a static buffer. */
const char *fuzz_file(const char *name, const char *text, size_t length);
