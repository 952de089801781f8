/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.c: NVIDIA's run-time compiler, opened when it is first needed. */
#define _GNU_SOURCE
#include "device/nvrtc.h"
#include "base/context.h"
#include "base/error.h"
#include "device/driver.h"
#include "device/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nvrtc_program;

/* X(name, arguments): all return an nvrtcResult, 0 for success. */
#define FUNCTIONS(X)                                                           \
    X(nvrtcVersion, (int *major, int *minor))                                  \
    X(nvrtcCreateProgram,                                                      \
      (struct nvrtc_program * *program, const char *source, const char *name,  \
       int nheaders, const char *const *headers, const char *const *names))    \
    X(nvrtcDestroyProgram, (struct nvrtc_program * *program))                  \
    X(nvrtcCompileProgram, (struct nvrtc_program * program, int noptions,      \
                            const char *const *options))                       \
    X(nvrtcGetCUBINSize, (struct nvrtc_program * program, size_t * bytes))     \
    X(nvrtcGetCUBIN, (struct nvrtc_program * program, char *cubin))            \
    X(nvrtcGetPTXSize, (struct nvrtc_program * program, size_t * bytes))       \
    X(nvrtcGetPTX, (struct nvrtc_program * program, char *ptx))                \
    X(nvrtcGetProgramLogSize,                                                  \
      (struct nvrtc_program * program, size_t * bytes))                        \
    X(nvrtcGetProgramLog, (struct nvrtc_program * program, char *log))

struct qn_nvrtc {
    void *library;
    char version[32];
    int number; /* 12090 for 12.9 */
#define FIELD(name, arguments) int(*name) arguments;
    FUNCTIONS(FIELD)
#undef FIELD
};

/* Sources include nothing, so nothing else is needed; -v reports spills. */
static const char *const options[] = {"--std=c++17", "--ptxas-options=-v"};

const char *qn_nvrtc_options(void)
{
    return "--std=c++17 --ptxas-options=-v";
}

/* ----------------------------------------------------------------- opening */

/* Unpacked by make or a user; or installed by pip as quern/lib is. */
static const char *const beside[] = {"/../nvrtc",
                                     "/../nvrtc/nvidia/cu13/lib",
                                     "/../nvrtc/nvidia/cuda_nvrtc/lib",
                                     "/../../nvidia/cu13/lib",
                                     "/../../nvidia/cuda_nvrtc/lib",
                                     NULL};

/* A driver of CUDA 12 cannot load cubins of NVRTC 13. */
static void *find_library(const char *cuda_home, int cuda)
{
    static const char *const all[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                      "libnvrtc.so", NULL};
    static const char *const old[] = {"libnvrtc.so.12", NULL};
    const struct qn_library_search any = {all, beside}, cuda12 = {old, beside};
    void *library = NULL;

    if (cuda && cuda < 13000)
        library = qn_library_find(&cuda12, cuda_home);
    return library ? library : qn_library_find(&any, cuda_home);
}

/* All at once, so that an old library fails here. */
static int load_symbols(struct qn_nvrtc *nvrtc)
{
    static const struct qn_library_symbol symbols[] = {
#define ROW(name, arguments) {#name, offsetof(struct qn_nvrtc, name)},
        FUNCTIONS(ROW)
#undef ROW
    };
    const char *missing =
        qn_library_load(nvrtc->library, nvrtc, symbols,
                        (int)(sizeof symbols / sizeof symbols[0]));

    return missing ? qn_error_set(QUERN_EMISSING,
                                  "libnvrtc has no %s: CUDA 12 or later is "
                                  "needed",
                                  missing)
                   : QUERN_OK;
}

/* NVRTC opens its builtins only by name: a copy next to it, in a folder that
   the loader does not search, must be loaded before. None there is no error. */
static void load_builtins(const struct qn_nvrtc *nvrtc, int major, int minor)
{
    char path[PATH_MAX];
    Dl_info info;
    const char *slash;

    if (!dladdr((void *)(uintptr_t)nvrtc->nvrtcVersion, &info) ||
        !info.dli_fname || !(slash = strrchr(info.dli_fname, '/')))
        return;
    snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d",
             (int)(slash - info.dli_fname), info.dli_fname, major, minor);
    qn_library_open(path, 1);
}

/* Part of the key of a compiled kernel. */
static int read_version(struct qn_nvrtc *nvrtc)
{
    int major, minor;

    if (nvrtc->nvrtcVersion(&major, &minor))
        return qn_error_set(QUERN_EMISSING, "libnvrtc tells no version");
    load_builtins(nvrtc, major, minor);
    snprintf(nvrtc->version, sizeof nvrtc->version, "nvrtc %d.%d", major,
             minor);
    nvrtc->number = 1000 * major + 10 * minor;
    return QUERN_OK;
}

int qn_nvrtc_open(const char *path, const char *cuda_home, int cuda,
                  struct qn_nvrtc **out)
{
    struct qn_nvrtc *nvrtc = calloc(1, sizeof *nvrtc);
    int code;

    *out = NULL;
    if (!nvrtc)
        return qn_error_memory();
    nvrtc->library =
        path ? qn_library_open(path, 1) : find_library(cuda_home, cuda);
    if (nvrtc->library) {
        code = load_symbols(nvrtc);
        if (!code)
            code = read_version(nvrtc);
    } else if (path) {
        code =
            qn_error_set(QUERN_EMISSING, "QUERN_NVRTC: %s", qn_library_error());
    } else {
        code = qn_error_set(QUERN_EMISSING,
                            "a kernel must be compiled and there is no "
                            "libnvrtc.so.13 or .12 in ../nvrtc next to "
                            "libquern, in nvidia/ next to the package quern, "
                            "on the loader's path, in $CUDA_HOME/lib64 or "
                            "/usr/local/cuda/lib64; set QUERN_NVRTC%s",
                            qn_library_refused());
    }
    if (code)
        qn_nvrtc_close(nvrtc);
    else
        *out = nvrtc;
    return code;
}

void qn_nvrtc_close(struct qn_nvrtc *nvrtc)
{
    if (!nvrtc)
        return;
    if (nvrtc->library)
        dlclose(nvrtc->library);
    free(nvrtc);
}

const char *qn_nvrtc_version(const struct qn_nvrtc *nvrtc)
{
    return nvrtc->version;
}

/* ----------------------------------------------------------------- versions */

/* Families of architectures ("f") have names since this version. */
enum { NAMES_FAMILIES = 12090 };

/* The first version for a kernel: Blackwell's tensor cores of 10.x are written
   for the family and with block-scaled forms (.block16, .block32) that PTX has
   since CUDA 12.9. */
static int needed_for(const char *arch, const char *source)
{
    static const struct {
        const char *arch;
        int version;
    } rows[] = {{"sm_103", 12090},
                {"sm_121", 12090},
                {"sm_10", 12080},
                {"sm_11", 12080},
                {"sm_12", 12080}};

    if (strstr(source, "tcgen05"))
        return 12090;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!strncmp(arch, rows[i].arch, strlen(rows[i].arch)))
            return rows[i].version;
    return 12000;
}

/* Another kernel may serve, and this one once the compiler is newer. */
static int check_version(const struct qn_nvrtc *nvrtc, const char *name,
                         const char *arch, const char *source,
                         struct qn_compiled *out)
{
    const int needed = needed_for(arch, source);

    if (nvrtc->number >= needed)
        return QUERN_OK;
    out->rejected = out->old = 1;
    out->log = calloc(1, 1);
    if (!out->log)
        return qn_error_memory();
    return qn_error_set(QUERN_ECOMPILE,
                        "%s is not used: it needs NVRTC %d.%d or later, and "
                        "this is %s",
                        name, needed / 1000, needed % 1000 / 10,
                        nvrtc->version);
}

/* A compiler that has no name for a family makes code for its first chip, which
   runs on all of it. */
static void print_target(const struct qn_nvrtc *nvrtc, const char *target,
                         char *text, size_t size)
{
    const size_t length = strlen(target);
    const int family = length && target[length - 1] == 'f';

    snprintf(text, size, "--gpu-architecture=%.*s",
             (int)length - (family && nvrtc->number < NAMES_FAMILIES), target);
}

/* --------------------------------------------------------------- compiling */

/* 1 if a count before `what` in ptxas's report is not zero. */
static int counted(const char *log, const char *what)
{
    for (const char *at = strstr(log, what); at; at = strstr(at + 1, what)) {
        const char *digit = at;

        while (digit > log && digit[-1] == ' ')
            digit--;
        while (digit > log && digit[-1] >= '0' && digit[-1] <= '9')
            digit--;
        if (strtol(digit, NULL, 10) > 0)
            return 1;
    }
    return 0;
}

/* A warning that the kernel is slow; NULL if there is none. */
static const char *find_fault(const char *log)
{
    static const char *const codes[] = {"C7510", "C7511", "C7512", "C7513",
                                        "C7514"};

    if (counted(log, "bytes spill stores") || counted(log, "bytes spill loads"))
        return "it spills registers";
    for (int i = 0; i < 5; i++)
        if (strstr(log, codes[i]))
            return "its wgmma are serialized";
    return NULL;
}

/* Also after success: ptxas's report is in it. */
static int read_log(struct qn_nvrtc *nvrtc, struct nvrtc_program *program,
                    struct qn_compiled *out)
{
    size_t bytes = 0;

    if (nvrtc->nvrtcGetProgramLogSize(program, &bytes))
        bytes = 0;
    out->log = calloc(1, bytes + 1);
    if (!out->log)
        return qn_error_memory();
    if (bytes && nvrtc->nvrtcGetProgramLog(program, out->log))
        out->log[0] = 0;
    return QUERN_OK;
}

/* Needs a real architecture (sm_), not a virtual one. */
static int read_cubin(struct qn_nvrtc *nvrtc, struct nvrtc_program *program,
                      const char *name, struct qn_compiled *out)
{
    if (nvrtc->nvrtcGetCUBINSize(program, &out->bytes) || !out->bytes)
        return qn_error_set(QUERN_ECOMPILE, "%s: nvrtc gave no cubin", name);
    out->object = malloc(out->bytes);
    if (!out->object)
        return qn_error_memory();
    if (nvrtc->nvrtcGetCUBIN(program, out->object))
        return qn_error_set(QUERN_ECOMPILE, "%s: nvrtc gave no cubin", name);
    return QUERN_OK;
}

/* A slow kernel is refused with its log, for the next best. */
static int judge(const char *name, struct qn_compiled *out)
{
    const char *fault = find_fault(out->log);

    if (!fault)
        return QUERN_OK;
    out->rejected = 1;
    return qn_error_set(QUERN_ECOMPILE, "%s is not used: %s\n%s", name, fault,
                        out->log);
}

/* `target` is "sm_90a", or "compute_90a" for PTX only. After an error there
   may be a program, too. */
static int compile(struct qn_nvrtc *nvrtc, const char *name, const char *source,
                   const char *target, struct nvrtc_program **program,
                   struct qn_compiled *out)
{
    char file[300], architecture[64];
    const char *arguments[] = {architecture, options[0], options[1]};
    int failed, code;

    snprintf(file, sizeof file, "%s.cu", name);
    print_target(nvrtc, target, architecture, sizeof architecture);
    if (nvrtc->nvrtcCreateProgram(program, source, file, 0, NULL, NULL))
        return qn_error_set(QUERN_ECOMPILE, "%s: nvrtc takes no program", name);
    failed = nvrtc->nvrtcCompileProgram(*program, 3, arguments);
    code = read_log(nvrtc, *program, out);
    if (!code && failed)
        code = qn_error_set(QUERN_ECOMPILE,
                            "%s does not compile (nvrtc "
                            "error %d)\n%s",
                            name, failed, out->log);
    return code;
}

int qn_nvrtc_compile(struct qn_nvrtc *nvrtc, const char *name,
                     const char *source, const char *arch,
                     struct qn_compiled *out)
{
    struct nvrtc_program *program = NULL;
    int code;

    memset(out, 0, sizeof *out);
    code = check_version(nvrtc, name, arch, source, out);
    if (!code)
        code = compile(nvrtc, name, source, arch, &program, out);
    if (!code)
        code = read_cubin(nvrtc, program, name, out);
    if (!code)
        code = judge(name, out);
    if (program)
        nvrtc->nvrtcDestroyProgram(&program);
    return code;
}

/* The text, which the library ends with a zero. */
static int read_ptx(struct qn_nvrtc *nvrtc, struct nvrtc_program *program,
                    const char *name, char **ptx)
{
    size_t bytes = 0;

    if (nvrtc->nvrtcGetPTXSize(program, &bytes) || !bytes)
        return qn_error_set(QUERN_ECOMPILE, "%s: nvrtc gave no PTX", name);
    *ptx = calloc(1, bytes + 1);
    if (!*ptx)
        return qn_error_memory();
    if (nvrtc->nvrtcGetPTX(program, *ptx))
        return qn_error_set(QUERN_ECOMPILE, "%s: nvrtc gave no PTX", name);
    return QUERN_OK;
}

int qn_nvrtc_ptx(struct qn_nvrtc *nvrtc, const char *name, const char *source,
                 const char *arch, char **ptx)
{
    struct nvrtc_program *program = NULL;
    struct qn_compiled out = {0};
    char target[64];
    int code;

    *ptx = NULL;
    snprintf(target, sizeof target, "compute_%s",
             strncmp(arch, "sm_", 3) ? arch : arch + 3);
    code = compile(nvrtc, name, source, target, &program, &out);
    if (!code)
        code = read_ptx(nvrtc, program, name, ptx);
    if (program)
        nvrtc->nvrtcDestroyProgram(&program);
    qn_nvrtc_free(&out);
    if (code) {
        free(*ptx);
        *ptx = NULL;
    }
    return code;
}

void qn_nvrtc_free(struct qn_compiled *compiled)
{
    free(compiled->object);
    free(compiled->log);
    memset(compiled, 0, sizeof *compiled);
}

int qn_nvrtc_of(struct quern_context *ctx, struct qn_nvrtc **out)
{
    int opens, code = QUERN_OK;

    pthread_mutex_lock(&ctx->lock);
    opens = !ctx->compiler;
    if (opens)
        code = qn_nvrtc_open(ctx->nvrtc, ctx->cuda_home,
                             ctx->driver ? ctx->driver->version : 0,
                             &ctx->compiler);
    *out = ctx->compiler;
    pthread_mutex_unlock(&ctx->lock);
    if (opens && !code)
        qn_context_log(ctx, QUERN_LOG_DEBUG, "%s compiles",
                       qn_nvrtc_version(*out));
    return code;
}
