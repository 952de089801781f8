/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt.c: NVIDIA's cuBLASLt, opened when a plan asks for it. */
#include "cublaslt/cublaslt.h"
#include "base/context.h"
#include "base/error.h"
#include "device/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* All at once, so that an old library fails here and not in a run. */
static int load_symbols(struct qn_cublaslt *lt)
{
    static const struct qn_library_symbol symbols[] = {
#define ROW(name, arguments) {#name, offsetof(struct qn_cublaslt, name)},
        ROW(cublasLtGetVersion, ) ROW(cublasLtGetStatusString, )
            QN_LT_FUNCTIONS(ROW)
#undef ROW
    };
    const char *missing = qn_library_load(
        lt->library, lt, symbols, (int)(sizeof symbols / sizeof symbols[0]));

    return missing ? qn_error_set(QUERN_EMISSING,
                                  "libcublasLt has no %s: CUDA 12 or later "
                                  "is needed",
                                  missing)
                   : QUERN_OK;
}

/* 131002 is 13.10.2. */
static void read_version(struct qn_cublaslt *lt)
{
    static const char *const scales[QN_CUBLASLT_SCALES] = {
        "",
        ", FP8 scaled by rows",
        ", FP8 scaled by groups",
        ", FP8 scaled by tensors",
        ", FP8 scaled by blocks",
        ", MXFP8"};
    unsigned version = (unsigned)lt->cublasLtGetVersion();

    lt->number = version;
    snprintf(lt->version, sizeof lt->version, "cublasLt %u.%u.%u",
             version / 10000, version / 100 % 100, version % 100);
    for (int i = 0; i < QN_CUBLASLT_SCALES; i++)
        snprintf(lt->names[i], sizeof lt->names[i], "%s%s", lt->version,
                 scales[i]);
    snprintf(lt->grouped_name, sizeof lt->grouped_name, "%s, grouped",
             lt->version);
}

/* A function that some versions have. */
static void load_optional(struct qn_cublaslt *lt)
{
    static const struct qn_library_symbol grouped = {
        "cublasLtGroupedMatrixLayoutInit_internal",
        offsetof(struct qn_cublaslt, cublasLtGroupedMatrixLayoutInit_internal)};

    qn_library_load(lt->library, lt, &grouped, 1);
}

int qn_cublaslt_open(const char *path, const char *cuda_home,
                     struct qn_cublaslt **out)
{
    static const char *const names[] = {
        "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    static const char *const beside[] = {"/../cublas",
                                         "/../cublas/nvidia/cu13/lib",
                                         "/../cublas/nvidia/cublas/lib",
                                         "/../../nvidia/cu13/lib",
                                         "/../../nvidia/cublas/lib",
                                         NULL};
    static const struct qn_library_search search = {names, beside};
    struct qn_cublaslt *lt = calloc(1, sizeof *lt);
    int code;

    *out = NULL;
    if (!lt)
        return qn_error_memory();
    lt->library =
        path ? qn_library_open(path, 1) : qn_library_find(&search, cuda_home);
    if (lt->library)
        code = load_symbols(lt);
    else if (path)
        code = qn_error_set(QUERN_EMISSING, "QUERN_CUBLASLT: %s",
                            qn_library_error());
    else
        code = qn_error_set(QUERN_EMISSING,
                            "backend cublaslt: there is no libcublasLt.so.13, "
                            ".12 or plain .so in ../cublas next to libquern, "
                            "in nvidia/ next to the package quern, on the "
                            "loader's path, in $CUDA_HOME/lib64 or "
                            "/usr/local/cuda/lib64; set QUERN_CUBLASLT");
    if (code) {
        qn_cublaslt_close(lt);
        return code;
    }
    read_version(lt);
    load_optional(lt);
    *out = lt;
    return QUERN_OK;
}

void qn_cublaslt_close(struct qn_cublaslt *lt)
{
    if (!lt)
        return;
    if (lt->library)
        dlclose(lt->library);
    free(lt);
}

int qn_cublaslt_error(const struct qn_cublaslt *lt, const char *call,
                      int status)
{
    if (status == LT_SUCCESS)
        return QUERN_OK;
    return qn_error_set(status == LT_NOT_SUPPORTED  ? QUERN_ENOKERNEL
                        : status == LT_ALLOC_FAILED ? QUERN_ENOMEM
                                                    : QUERN_ECUDA,
                        "%s: %s (cuBLAS status %d)", call,
                        lt->cublasLtGetStatusString(status), status);
}

int qn_cublaslt_of(struct quern_context *ctx, struct qn_cublaslt **out)
{
    int code = QUERN_OK;

    pthread_mutex_lock(&ctx->lock);
    if (!ctx->products)
        code = qn_cublaslt_open(ctx->cublaslt_path, ctx->cuda_home,
                                &ctx->products);
    *out = ctx->products;
    pthread_mutex_unlock(&ctx->lock);
    return code;
}
