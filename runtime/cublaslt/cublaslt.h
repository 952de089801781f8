/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt.h: NVIDIA's cuBLASLt as a backend: one product for each group, in a
   loop on the host. A user would otherwise call it, hence it is the
   yardstick of benchmarks, and the fallback where no kernel of ours runs. */
#pragma once

#include "cublaslt/cublaslt_api.h"

struct quern_context;

/* The scales of a product's factors: fp32 values, each of them for a row,
   for all rows of a group, for all of them, or for a block of 1 x 128 or 128
   x 128; or e8m0 for blocks of 1 x 32. */
enum qn_cublaslt_scale {
    QN_CUBLASLT_UNSCALED,
    QN_CUBLASLT_ROW_SCALES,
    QN_CUBLASLT_GROUP_SCALES,
    QN_CUBLASLT_TENSOR_SCALES,
    QN_CUBLASLT_BLOCK_SCALES,
    QN_CUBLASLT_TILE_SCALES,
    QN_CUBLASLT_SCALES
};

/* The library. */
struct qn_cublaslt {
    void *library;
    char version[32];                   /* "cublasLt 13.1.0" */
    unsigned number;                    /* 130100 */
    char names[QN_CUBLASLT_SCALES][64]; /* the version, and its scale */
    char grouped_name[64];              /* the same of groups in one call */
    size_t (*cublasLtGetVersion)(void);
    const char *(*cublasLtGetStatusString)(int status);
    qn_lt_grouped *cublasLtGroupedMatrixLayoutInit_internal; /* or NULL */
#define QN_CUBLASLT_FIELD(name, arguments) int(*name) arguments;
    QN_LT_FUNCTIONS(QN_CUBLASLT_FIELD)
#undef QN_CUBLASLT_FIELD
};

/* Open the library: `path` if not NULL, else as qn_library_find finds it.
   `cuda_home` may be NULL. QUERN_EMISSING names all that was tried. */
int qn_cublaslt_open(const char *path, const char *cuda_home,
                     struct qn_cublaslt **out);
void qn_cublaslt_close(struct qn_cublaslt *lt);

/* Make a failed call a code and a message with the library's own text. */
int qn_cublaslt_error(const struct qn_cublaslt *lt, const char *call,
                      int status);

/* Call one of its functions; evaluates to a QUERN_ code. */
#define QN_LT(lt, name, ...)                                                   \
    qn_cublaslt_error(lt, #name, (lt)->name(__VA_ARGS__))

/* The context's library, opened on first use. Errors of qn_cublaslt_open. */
int qn_cublaslt_of(struct quern_context *ctx, struct qn_cublaslt **out);
