/* SPDX-License-Identifier: Apache-2.0 */
/*
** compiler.c: NVRTC whose cubins are PTX, which driver.c takes. The real one,
** $PTX_NVRTC or as the loader finds it, compiles for the virtual architecture,
** with the lines of the source, or in its place a file of the program's name in
** the folder $PTX_SOURCES, if there is one: a kernel with a defect.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/library.h"

struct nvrtc_program;

/* Passed on as they are. */
#define SAME(X)                                                                \
    X(nvrtcDestroyProgram, (struct nvrtc_program * *program), (program))       \
    X(nvrtcGetPTXSize, (struct nvrtc_program * program, size_t * bytes),       \
      (program, bytes))                                                        \
    X(nvrtcGetPTX, (struct nvrtc_program * program, char *ptx),                \
      (program, ptx))                                                          \
    X(nvrtcGetProgramLogSize,                                                  \
      (struct nvrtc_program * program, size_t * bytes), (program, bytes))      \
    X(nvrtcGetProgramLog, (struct nvrtc_program * program, char *log),         \
      (program, log))

#define API __attribute__((visibility("default")))

enum { FAILURE = 11 }; /* NVRTC_ERROR_INTERNAL_ERROR */

/* NVRTC opens its builtins by name: one next to it must be loaded before. */
static void load_builtins(void *library)
{
    char path[PATH_MAX];
    int (*version)(int *, int *);
    void *symbol = dlsym(library, "nvrtcVersion");
    int major, minor;
    const char *slash;
    Dl_info info;

    memcpy(&version, &symbol, sizeof version);
    if (!symbol || version(&major, &minor) || !dladdr(symbol, &info) ||
        !info.dli_fname || !(slash = strrchr(info.dli_fname, '/')))
        return;
    snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d",
             (int)(slash - info.dli_fname), info.dli_fname, major, minor);
    qn_library_open(path, 1);
}

/* As the runtime looks for it, from this library's folder. */
static void *open_real(void)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                        "libnvrtc.so", NULL};
    static const char *const beside[] = {
        "/../nvrtc", "/../nvrtc/nvidia/cu13/lib",
        "/../nvrtc/nvidia/cuda_nvrtc/lib", NULL};
    const struct qn_library_search search = {names, beside};
    const char *given = getenv("PTX_NVRTC");
    void *library = given ? qn_library_open(given, 1)
                          : qn_library_find(&search, getenv("CUDA_HOME"));

    if (library)
        load_builtins(library);
    return library;
}

static void *find(const char *name)
{
    static void *library;

    if (!library)
        library = open_real();
    return library ? dlsym(library, name) : NULL;
}

#define FORWARD(name, arguments, passed)                                       \
    API int name arguments;                                                    \
    int name arguments                                                         \
    {                                                                          \
        int(*real) arguments;                                                  \
        void *symbol = find(#name);                                            \
                                                                               \
        memcpy(&real, &symbol, sizeof real);                                   \
        return symbol ? real passed : FAILURE;                                 \
    }
SAME(FORWARD)

API int nvrtcCreateProgram(struct nvrtc_program **program, const char *source,
                           const char *name, int nheaders,
                           const char *const *headers,
                           const char *const *names);
API int nvrtcVersion(int *major, int *minor);
API int nvrtcCompileProgram(struct nvrtc_program *program, int noptions,
                            const char *const *options);
API int nvrtcGetCUBINSize(struct nvrtc_program *program, size_t *bytes);
API int nvrtcGetCUBIN(struct nvrtc_program *program, char *cubin);

/* The file's text, to be freed; NULL if there is none. */
static char *read_source(const char *name)
{
    const char *folder = getenv("PTX_SOURCES");
    char path[PATH_MAX], *text = NULL;
    size_t room = 0;
    FILE *file;

    if (!folder)
        return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "r");
    if (!file)
        return NULL;
    if (getdelim(&text, &room, 0, file) < 0) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

int nvrtcCreateProgram(struct nvrtc_program **program, const char *source,
                       const char *name, int nheaders,
                       const char *const *headers, const char *const *names)
{
    int (*real)(struct nvrtc_program **, const char *, const char *, int,
                const char *const *, const char *const *);
    void *symbol = find("nvrtcCreateProgram");
    char *other = read_source(name);
    int code = FAILURE;

    memcpy(&real, &symbol, sizeof real);
    if (symbol)
        code = real(program, other ? other : source, name, nheaders, headers,
                    names);
    free(other);
    return code;
}

/* Another version than the real one's, which is part of the cache's keys. */
int nvrtcVersion(int *major, int *minor)
{
    int (*real)(int *, int *);
    void *symbol = find("nvrtcVersion");
    int code;

    memcpy(&real, &symbol, sizeof real);
    if (!symbol)
        return FAILURE;
    code = real(major, minor);
    *major += 1000;
    return code;
}

/* sm_90a becomes compute_90a. */
int nvrtcCompileProgram(struct nvrtc_program *program, int noptions,
                        const char *const *options)
{
    static const char real_arch[] = "--gpu-architecture=sm_";
    int (*real)(struct nvrtc_program *, int, const char *const *);
    void *symbol = find("nvrtcCompileProgram");
    const char *changed[8] = {"-lineinfo"};
    char arch[64];

    memcpy(&real, &symbol, sizeof real);
    if (!symbol || noptions > 7)
        return FAILURE;
    for (int i = 0; i < noptions; i++) {
        changed[i + 1] = options[i];
        if (!strncmp(options[i], real_arch, sizeof real_arch - 1)) {
            snprintf(arch, sizeof arch, "--gpu-architecture=compute_%s",
                     options[i] + sizeof real_arch - 1);
            changed[i + 1] = arch;
        }
    }
    return real(program, noptions + 1, changed);
}

int nvrtcGetCUBINSize(struct nvrtc_program *program, size_t *bytes)
{
    return nvrtcGetPTXSize(program, bytes);
}

int nvrtcGetCUBIN(struct nvrtc_program *program, char *cubin)
{
    return nvrtcGetPTX(program, cubin);
}
