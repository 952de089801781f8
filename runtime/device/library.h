/* SPDX-License-Identifier: Apache-2.0 */
/* library.h: libraries that are opened at run time, and where people have
   NVIDIA's. */
#pragma once

#include "internal.h"

#include <stddef.h>

/* Why qn_library_find did not take a file that it found, for messages; "":
   there was none. */
const char *qn_library_refused(void);

/* dlopen, all symbols at once and for this handle only; `stay`: for good, as
   some do not free their memory at exit. NULL: qn_library_error() is one line
   about it, valid until the thread's next call. A program without a loader of
   its own (cc -static) gets no library, which would load a second C library. */
void *qn_library_open(const char *path, int stay);
const char *qn_library_error(void);

/* Both lists end with NULL. */
struct qn_library_search {
    const char *const *names;  /* of the file, the best first */
    const char *const *beside; /* folders, seen from libquern's own */
};

/* Open the first that there is: next to libquern, on the loader's path (which
   knows a library that the process has already loaded), in CUDA_HOME/lib64 if
   that is not NULL, and in /usr/local/cuda/lib64. NULL if there is none. */
void *qn_library_find(const struct qn_library_search *search,
                      const char *cuda_home);

/* A function to look up, and where in a structure its pointer belongs. */
struct qn_library_symbol {
    const char *name;
    size_t offset;
};

/* Look up all; NULL, or the name of the first that the library lacks. */
const char *qn_library_load(void *library, void *structure,
                            const struct qn_library_symbol *symbols, int count);

/* The folder of the program or library that holds this code, no slash. */
int qn_library_folder(char *buffer, size_t size);
