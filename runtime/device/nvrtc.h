/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.h: NVIDIA's run-time compiler, opened when it is first needed. */
#pragma once

#include "internal.h"

#include <stddef.h>

struct qn_nvrtc;
struct quern_context;

/* The result of a compile: both are freed with qn_nvrtc_free. */
struct qn_compiled {
    void *object;
    size_t bytes;
    char *log;    /* never NULL after a compile, even a failed one */
    int rejected; /* compiled, but it spills or its wgmma are serialized; or: */
    int old;      /* the kernel needs a newer compiler; nothing was compiled */
};

/* Open the library: `path` if not NULL, else the paths that the README names.
   `cuda_home` may be NULL; `cuda` is the driver's version (12090 for 12.9), 0
   if unknown: before 13000 NVRTC 12 is preferred. QUERN_EMISSING names all
   that was tried. */
int qn_nvrtc_open(const char *path, const char *cuda_home, int cuda,
                  struct qn_nvrtc **out);
void qn_nvrtc_close(struct qn_nvrtc *nvrtc);

/* "nvrtc 13.0"; lives as long as the handle. */
const char *qn_nvrtc_version(const struct qn_nvrtc *nvrtc);

/* The options of every compile except the architecture, in one line. */
const char *qn_nvrtc_options(void);

/* Compile one kernel's source to a cubin for `arch` ("sm_90a"). `name` is the
   kernel's, for messages. May be called by several threads at once.
   QUERN_OK; QUERN_ECOMPILE with the log (or, with `rejected` set, the reason
   for which the cubin must not be used); QUERN_ENOMEM. */
int qn_nvrtc_compile(struct qn_nvrtc *nvrtc, const char *name,
                     const char *source, const char *arch,
                     struct qn_compiled *out);
void qn_nvrtc_free(struct qn_compiled *compiled);

/* The same as PTX, freed with free. QUERN_ECOMPILE, QUERN_ENOMEM. */
int qn_nvrtc_ptx(struct qn_nvrtc *nvrtc, const char *name, const char *source,
                 const char *arch, char **ptx);

/* The context's compiler, opened on first use. Errors of qn_nvrtc_open. */
int qn_nvrtc_of(struct quern_context *ctx, struct qn_nvrtc **out);
