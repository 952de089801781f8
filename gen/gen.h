/* SPDX-License-Identifier: Apache-2.0 */
/* gen.h: the generator as a library. The CLI, the build and the runtime's JIT
   (through dlopen) call the same functions. */
#pragma once

#include "registry.h"

struct qg;

/*
** Load the embedded specs and those of `dirs` (each a folder laid out as
** specs/), make every variant and kernel, check all of them. Only some of the
** sources that no build has made before are tried: an error that a template
** finds in another one shows when that is requested. Returns 0; 1 for an error
** in the specs or no memory. `*out` is set in both cases, unless memory ran out
** (then it is NULL): qg_diagnostics() has the errors. Free with qg_close. Not
** thread-safe for one `qg`.
*/
QUERN_API int qg_open(const char *const *dirs, int count, struct qg **out);
QUERN_API void qg_close(struct qg *);

/* Only the embedded specs, which the build has checked, for those who know
   the names of the kernels that they want: each is made when it is asked for,
   which takes a tenth of the time, and the registry stays empty. */
QUERN_API int qg_open_lazily(struct qg **out);

/* "file:line: error: ..." with source lines, as printed; "" if none. */
QUERN_API const char *qg_diagnostics(const struct qg *);

/* Recipes, kernels, rejected points. Lives as long as the generator. A kernel
   has a key (else NULL) only once its source, or a registry's text with it,
   was asked for: making all of them would take a second. */
QUERN_API const struct quern_registry *qg_registry(const struct qg *);

/* The kernel of a name; NULL if there is none. Lives as the registry does. */
QUERN_API const struct qn_kernel *qg_source_kernel(struct qg *,
                                                   const char *name);

/* The source of one kernel, header included; the text lives as long as the
   generator. Returns 0, or 1 with a diagnostic (unknown name, template
   error). */
QUERN_API int qg_source(struct qg *, const char *kernel, const char **text,
                        size_t *length);

/* ------------------------------------------------- opening, with more to say
** Zero or NULL in a field chooses the default.
*/
struct qg_file; /* embedded.h */

struct qg_options {
    const char *const *dirs; /* folders with specs of the user's own */
    int dirs_count;
    const struct qg_file *files; /* instead of the embedded ones; copied */
    int files_count;
    /* memory: bytes 0 frees; NULL for no memory. Default: realloc and free */
    void *(*resize)(void *user, void *memory, size_t bytes);
    void *user;
    long long instructions; /* bound on the Lua instructions of all specs */
    size_t memory;          /* bound on the bytes that Lua may hold */
    int lazy;               /* as qg_open_lazily */
};

/* qg_open with options. */
QUERN_API int qg_open_with(const struct qg_options *options, struct qg **out);

/* ----------------------------------------------------------------- selection
** Kernels to write. NULL stands for all of them. Both texts may be lists with
** commas: a kernel is taken that one word of each holds for.
*/
struct qg_selection {
    const char *arch;   /* "sm_90a", "sm_80,sm_90a", "host"; NULL: any */
    const char *filter; /* part of a name, or a pattern with * ? [; NULL: any */
    int shipped;        /* only those that specs/kernels/shipped.lua names */
    /* and only those for which it returns nonzero; NULL: any */
    int (*takes)(void *user, const struct qn_kernel *kernel);
    void *user;
};

QUERN_API int qg_selects(const struct qg_selection *selection,
                         const struct qn_kernel *kernel);

/* Write the selected kernels' files (symbol.cu, symbol.c), registry.c and
   quern_kernels.h into `dir`, which is made if it is missing. All texts exist
   before the first file is touched, and no file is half written: on an error
   of the file system, each is as it was or as it should be. A file whose text
   has not changed is not touched. `*count` (may be NULL) is the number of
   kernels. Returns 0; or with a diagnostic 1 (nothing selected, template), or
   2 where the file system does not take it. */
QUERN_API int qg_emit(struct qg *, const char *dir,
                      const struct qg_selection *selection, int *count);

/* The registry as C text. It includes "registry.h" and defines
   `const struct quern_registry <symbol>`. A kernel for which `cubin_bytes`
   says more than 0 gets `extern const unsigned char <kernel>_cubin[bytes]`
   as its cubin; with `host`, a host kernel gets the function of its name.
   The text lives until the next call that writes a registry, or qg_close.
   Returns 0, or 1 with a diagnostic. */
struct qg_link {
    const char *symbol; /* "quern_kernels" */
    int host;
    size_t (*cubin_bytes)(void *user, const struct qn_kernel *kernel);
    void *user;
};

QUERN_API int qg_registry_text(struct qg *, const struct qg_selection *,
                               const struct qg_link *link, const char **text,
                               size_t *length);

/* ------------------------------------------------------------- spec language
** The fields of each statement of the spec language, one row at a time:
** returns 1 and fills `row`, or 0 when there is no row `index`.
*/
struct qg_field_row {
    const char *statement; /* "recipe", "blocked", "kernels" */
    const char *field;     /* "d", "element.x" */
    const char *kind;      /* "type", "list of types", "function" */
    const char *allowed;   /* right values, separated by blanks; "" for any */
    int required;
    const char *doc;
};

QUERN_API int qg_field_row(int index, struct qg_field_row *row);

/*
** The scale rule of one of a recipe's tensors (enum quern_of), for bf16
** inputs, as a function in C or CUDA C:
**
**     float <recipe>_scale(float amax[, float global][, float previous], T *sf)
**
** sets *sf (float, or unsigned int for scales of 8 bits) to the stored scale
** and returns the values' factor. The C text calls bits_of, float_of, to_e4m3
** and from_e4m3. Text as in qg_registry_text. Returns 0, or 1 with a diagnostic
** (no such recipe, or it has no rule).
*/
enum qg_language { QG_C, QG_CUDA };

QUERN_API int qg_rule_text(struct qg *, const char *recipe, int of,
                           int language, const char **text, size_t *length);
