/*
** library.h: NVIDIA's libraries, looked for where people have them.
*/
#ifndef QUERN_LIBRARY_H
#define QUERN_LIBRARY_H

#include <dlfcn.h>
#include <stddef.h>

/* Loaded for good: none of them frees its memory on the way out. */
#define QN_LIBRARY_STAY (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

/* Both lists end with NULL. */
struct qn_library_search {
    const char *const *names;  /* of the file, the best first */
    const char *const *beside; /* folders, seen from libquern's own */
};

/*
** Open the first that there is: on the loader's path (which knows a library
** that the process has already loaded), in CUDA_HOME/lib64 if that is not
** NULL, in /usr/local/cuda/lib64, and beside libquern. NULL if there is none.
*/
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

#endif
