/* SPDX-License-Identifier: Apache-2.0 */
/*
** cublaslt_product.c: one product of matrices by cuBLASLt.
**
** cuBLAS counts columns first, our operands are row by row. Our row of D is a
** column to cuBLAS, so it computes the transposed product, with the operands in
** the other order and without moving a byte:
**
**     ours    D[m,n]   = A[m,k] B[n,k]^T            row by row
**     cuBLAS  D^T[n,m] = op(B^T) op(A^T)            column by column
**
** A buffer of `outer` rows of `inner` elements is to cuBLAS a matrix of `inner`
** rows and `outer` columns whose leading dimension is our stride:
**
**     operand        buffer     to cuBLAS   first factor (n x k)   op
**     B  k-major     [n, k]     k x n                               T
**     B  mn-major    [k, n]     n x k                               N
**                                           second factor (k x m)
**     A  k-major     [m, k]     k x m                               N
**     A  mn-major    [k, m]     m x k                               T
**     C, D           [m, n]     n x m       result
**
** which is where the names tn, nn, nt and tt come from: B's op, then A's.
*/
#include "cublaslt/cublaslt_product.h"
#include "base/error.h"
#include "cublaslt/cublaslt.h"

#include <stdlib.h>
#include <string.h>

enum { WAYS = 4, FEWEST_SETS = 16, MOST_SETS = 512 };

/* In the order in which cuBLAS takes them: its A is our B. */
static const int order[QN_LT_MATRICES] = {QN_LT_B, QN_LT_A, QN_LT_C, QN_LT_D};

/* X(quern, cudaDataType) */
#define TYPES(X)                                                               \
    X(QUERN_BF16, LT_R_16BF)                                                   \
    X(QUERN_F16, LT_R_16F)                                                     \
    X(QUERN_F32, LT_R_32F)                                                     \
    X(QUERN_E4M3, LT_R_8F_E4M3)                                                \
    X(QUERN_E5M2, LT_R_8F_E5M2)

static int type_of(int type)
{
    switch (type) {
#define ROW(quern, cuda)                                                       \
    case quern:                                                                \
        return cuda;
        TYPES(ROW)
#undef ROW
    }
    return -1;
}

static int is_8_bits(int type)
{
    return type == QUERN_E4M3 || type == QUERN_E5M2;
}

int qn_cublaslt_has(int a_type, int b_type, int d_type)
{
    if (is_8_bits(a_type) && is_8_bits(b_type))
        return (a_type == QUERN_E4M3 || b_type == QUERN_E4M3) &&
               (d_type == QUERN_BF16 || d_type == QUERN_F16 ||
                d_type == QUERN_F32);
    return a_type == b_type && (a_type == QUERN_BF16 || a_type == QUERN_F16) &&
           (d_type == a_type || d_type == QUERN_F32);
}

static int64_t bytes_of(const struct qn_cublaslt_engine *engine, int matrix)
{
    switch (engine->types[matrix]) {
    case LT_R_32F:
        return 4;
    case LT_R_8F_E4M3:
    case LT_R_8F_E5M2:
        return 1;
    }
    return 2;
}

/* ----------------------------------------------------------------- engine */

/* Sums in fp32, for any elements. */
static int make_desc(const struct qn_cublaslt_engine *engine,
                     const struct qn_cublaslt_form *form, struct lt_desc *desc)
{
    const struct {
        int attribute;
        int32_t value;
    } wanted[] = {
        {LT_DESC_TRANSA, form->b_major == QUERN_MAJOR_K ? LT_OP_T : LT_OP_N},
        {LT_DESC_TRANSB, form->a_major == QUERN_MAJOR_K ? LT_OP_N : LT_OP_T},
        {LT_DESC_POINTER_MODE,
         engine->device_scalars ? LT_POINTERS_DEVICE : LT_POINTERS_HOST},
        {LT_DESC_SM_COUNT_TARGET, engine->sms},
    };
    int code = QN_LT(engine->lt, cublasLtMatmulDescInit_internal, desc,
                     sizeof *desc, LT_COMPUTE_32F, LT_R_32F);

    for (size_t i = 0; !code && i < sizeof wanted / sizeof wanted[0]; i++)
        code = QN_LT(engine->lt, cublasLtMatmulDescSetAttribute, desc,
                     wanted[i].attribute, &wanted[i].value,
                     sizeof wanted[i].value);
    return code;
}

/* Scalars do not need a library of 12.8 or later. */
static int set_mode(const struct qn_cublaslt_engine *engine,
                    struct lt_desc *desc, int attribute, int32_t mode)
{
    if (mode == LT_SCALE_SCALAR)
        return QUERN_OK;
    return QN_LT(engine->lt, cublasLtMatmulDescSetAttribute, desc, attribute,
                 &mode, sizeof mode);
}

/* The same with the scales of one product, whose addresses belong to it: made
   anew, as the library does not promise that a copy serves. */
static int make_scaled(const struct qn_cublaslt_engine *engine,
                       const struct qn_cublaslt_product *p,
                       struct lt_desc *desc)
{
    const int8_t fast = (int8_t)engine->fast;
    int code = make_desc(engine, &engine->forms[p->form], desc);

    if (!code)
        code = QN_LT(engine->lt, cublasLtMatmulDescSetAttribute, desc,
                     LT_DESC_A_SCALE_POINTER, &p->scales[QN_LT_B],
                     sizeof p->scales[QN_LT_B]);
    if (!code)
        code = QN_LT(engine->lt, cublasLtMatmulDescSetAttribute, desc,
                     LT_DESC_B_SCALE_POINTER, &p->scales[QN_LT_A],
                     sizeof p->scales[QN_LT_A]);
    if (!code)
        code = set_mode(engine, desc, LT_DESC_A_SCALE_MODE,
                        engine->modes[QN_LT_B]);
    if (!code)
        code = set_mode(engine, desc, LT_DESC_B_SCALE_MODE,
                        engine->modes[QN_LT_A]);
    if (!code)
        code = QN_LT(engine->lt, cublasLtMatmulDescSetAttribute, desc,
                     LT_DESC_FAST_ACCUM, &fast, sizeof fast);
    return code;
}

static int make_forms(struct qn_cublaslt_engine *engine,
                      const struct qn_cublaslt_make *make)
{
    struct qn_cublaslt_form *forms = engine->forms;
    int code = QUERN_OK;

    forms[QN_CUBLASLT_PLAIN].a_major = make->a_major;
    forms[QN_CUBLASLT_PLAIN].b_major = make->b_major;
    forms[QN_CUBLASLT_ZEROS].a_major = QUERN_MAJOR_K;
    forms[QN_CUBLASLT_ZEROS].b_major = QUERN_MAJOR_K;
    for (int i = 0; !code && i < QN_CUBLASLT_FORMS; i++)
        code = make_desc(engine, &forms[i], &forms[i].desc);
    return code;
}

/* Room for twice the sizes of one run, so that the next may have others. */
static int make_memo(struct qn_cublaslt_engine *engine, int groups)
{
    engine->sets = FEWEST_SETS;
    while (engine->sets < MOST_SETS &&
           engine->sets * WAYS < 2 * (unsigned)groups)
        engine->sets *= 2;
    engine->memo = calloc((size_t)engine->sets * WAYS, sizeof *engine->memo);
    return engine->memo ? QUERN_OK : qn_error_memory();
}

int qn_cublaslt_engine_open(struct qn_cublaslt_engine *engine,
                            const struct qn_cublaslt *lt,
                            const struct qn_cublaslt_make *make)
{
    int code;

    engine->lt = lt;
    engine->device_scalars = make->device_scalars;
    engine->sms = make->sms;
    memcpy(engine->modes, make->modes, sizeof engine->modes);
    engine->name = lt->names[make->scale];
    engine->fast = make->fast;
    engine->types[QN_LT_A] = type_of(make->a_type);
    engine->types[QN_LT_B] = type_of(make->b_type);
    engine->types[QN_LT_C] = type_of(make->d_type);
    engine->types[QN_LT_D] = type_of(make->d_type);
    pthread_mutex_init(&engine->lock, NULL);
    code = QN_LT(lt, cublasLtCreate, &engine->context);
    if (!code)
        code = make_forms(engine, make);
    if (!code)
        code = make_memo(engine, make->groups);
    if (code)
        qn_cublaslt_engine_close(engine);
    return code;
}

void qn_cublaslt_engine_close(struct qn_cublaslt_engine *engine)
{
    if (engine->context)
        engine->lt->cublasLtDestroy(engine->context);
    pthread_mutex_destroy(&engine->lock);
    free(engine->memo);
    engine->context = NULL;
    engine->memo = NULL;
}

/* ----------------------------------------------------------------- layouts */

enum { AXIS_M, AXIS_N, AXIS_K };

/* Along which axes one of ours in the table above has its inner elements, and
   its outer rows. */
static void axes_of(const struct qn_cublaslt_form *form, int which, int *inner,
                    int *outer)
{
    int free_axis = which == QN_LT_B ? AXIS_N : AXIS_M;
    int major = which == QN_LT_A ? form->a_major : form->b_major;

    if (which == QN_LT_C || which == QN_LT_D) {
        *inner = AXIS_N;
        *outer = AXIS_M;
    } else if (major == QUERN_MAJOR_K) {
        *inner = AXIS_K;
        *outer = free_axis;
    } else {
        *inner = free_axis;
        *outer = AXIS_K;
    }
}

/* On the device; see struct qn_cublaslt_arrays. */
static char *array_at(const struct qn_cublaslt_arrays *arrays, int number)
{
    const size_t count = (size_t)arrays->count, wide = QN_LT_MATRICES;

    if (number < QN_LT_MATRICES)
        return arrays->at + count * (size_t)number * 8;
    return arrays->at + count * (wide * 8 + ((size_t)number - wide) * 4);
}

/* A matrix, or that of each group. */
static int make_layout(const struct qn_cublaslt_engine *engine,
                       const struct qn_cublaslt_product *p, int which,
                       struct lt_layout *layout)
{
    const int64_t sizes[] = {p->m, p->n, p->k};
    const struct qn_cublaslt_arrays *arrays = &p->arrays;
    int inner, outer;

    axes_of(&engine->forms[p->form], which, &inner, &outer);
    if (arrays->count)
        return QN_LT(engine->lt, cublasLtGroupedMatrixLayoutInit_internal,
                     layout, sizeof *layout, engine->types[which],
                     arrays->count, array_at(arrays, QN_LT_AXES + inner),
                     array_at(arrays, QN_LT_AXES + outer),
                     array_at(arrays, QN_LT_STRIDES + which));
    return QN_LT(engine->lt, cublasLtMatrixLayoutInit_internal, layout,
                 sizeof *layout, engine->types[which], (uint64_t)sizes[inner],
                 (uint64_t)sizes[outer], p->matrices[which].stride);
}

static int set_batch(const struct qn_cublaslt *lt, struct lt_layout *layout,
                     int64_t batch, int64_t step)
{
    int32_t count = (int32_t)batch;
    int code = QN_LT(lt, cublasLtMatrixLayoutSetAttribute, layout,
                     LT_LAYOUT_BATCH_COUNT, &count, sizeof count);

    return code ? code
                : QN_LT(lt, cublasLtMatrixLayoutSetAttribute, layout,
                        LT_LAYOUT_BATCH_OFFSET, &step, sizeof step);
}

/* By our names; on the caller's stack, for the length of one call. */
static int make_layouts(const struct qn_cublaslt_engine *engine,
                        const struct qn_cublaslt_product *p,
                        struct lt_layout layouts[QN_LT_MATRICES])
{
    int code = QUERN_OK;

    for (int i = 0; !code && i < QN_LT_MATRICES; i++) {
        code = make_layout(engine, p, i, &layouts[i]);
        if (!code && p->batch > 1)
            code = set_batch(engine->lt, &layouts[i], p->batch,
                             p->matrices[i].step);
    }
    return code;
}

/* -------------------------------------------------------------- algorithms */

/* A ragged axis that is contiguous starts its groups anywhere. */
static uint32_t alignment_of(const struct qn_cublaslt_matrix *matrix,
                             int64_t batch, int64_t bytes)
{
    uint64_t bits = (uintptr_t)matrix->data | QN_CUBLASLT_ALIGNMENT;

    if (batch > 1)
        bits |= (uint64_t)matrix->step * (uint64_t)bytes;
    return (uint32_t)(bits & (~bits + 1));
}

static void make_key(const struct qn_cublaslt_engine *engine,
                     const struct qn_cublaslt_product *p,
                     struct qn_cublaslt_key *key)
{
    memset(key, 0, sizeof *key);
    key->m = p->m;
    key->n = p->n;
    key->k = p->k;
    key->batch = p->batch;
    key->form = p->form;
    key->count = p->arrays.count;
    for (int i = 0; i < QN_LT_MATRICES; i++) {
        key->strides[i] = p->matrices[i].stride;
        key->steps[i] = p->batch > 1 ? p->matrices[i].step : 0;
        key->alignments[i] =
            alignment_of(&p->matrices[i], p->batch, bytes_of(engine, i));
    }
}

/* The first slot of a key (FNV-1a). */
static struct qn_cublaslt_memo *places(const struct qn_cublaslt_engine *engine,
                                       const struct qn_cublaslt_key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    hash ^= hash >> 16;
    return &engine->memo[(size_t)(hash & (engine->sets - 1)) * WAYS];
}

/* 1 and a copy, if it is known. */
static int recall(struct qn_cublaslt_engine *engine,
                  const struct qn_cublaslt_key *key, struct lt_algo *algo)
{
    const struct qn_cublaslt_memo *set = places(engine, key);
    int found = 0;

    pthread_mutex_lock(&engine->lock);
    for (int i = 0; i < WAYS && !found; i++)
        if (set[i].used && !memcmp(&set[i].key, key, sizeof *key)) {
            *algo = set[i].algo;
            found = 1;
        }
    pthread_mutex_unlock(&engine->lock);
    return found;
}

/* Two threads that found the same keep it twice, which does no harm. */
static void remember(struct qn_cublaslt_engine *engine,
                     const struct qn_cublaslt_key *key,
                     const struct lt_algo *algo)
{
    struct qn_cublaslt_memo *set = places(engine, key);
    int place = 0;

    pthread_mutex_lock(&engine->lock);
    while (place < WAYS && set[place].used)
        place++;
    if (place == WAYS)
        place = (int)(engine->turn++ % WAYS);
    set[place] = (struct qn_cublaslt_memo){*key, *algo, 1};
    pthread_mutex_unlock(&engine->lock);
}

/* The groups' sizes: k, and D's rows and columns as cuBLAS counts them. */
static int prefer_averages(const struct qn_cublaslt *lt,
                           const struct qn_cublaslt_key *key,
                           struct lt_preference *preference)
{
    const uint32_t averages[] = {(uint32_t)key->k, (uint32_t)key->n,
                                 (uint32_t)key->m};
    int code = QUERN_OK;

    for (int i = 0; !code && i < 3; i++)
        code = QN_LT(lt, cublasLtMatmulPreferenceSetAttribute, preference,
                     LT_PREFER_AVERAGE_K + i, &averages[i], sizeof averages[i]);
    return code;
}

/* No partial sums in D's type: a recipe rounds once, at the end. */
static int make_preference(const struct qn_cublaslt *lt,
                           const struct qn_cublaslt_key *key,
                           struct lt_preference *preference)
{
    const uint64_t scratch = QN_CUBLASLT_SCRATCH;
    const uint32_t reductions = LT_REDUCTION_COMPUTE_TYPE;
    int code = QN_LT(lt, cublasLtMatmulPreferenceInit_internal, preference,
                     sizeof *preference);

    if (!code)
        code = QN_LT(lt, cublasLtMatmulPreferenceSetAttribute, preference,
                     LT_PREFER_WORKSPACE_BYTES, &scratch, sizeof scratch);
    if (!code)
        code = QN_LT(lt, cublasLtMatmulPreferenceSetAttribute, preference,
                     LT_PREFER_REDUCTIONS, &reductions, sizeof reductions);
    for (int i = 0; !code && i < QN_LT_MATRICES; i++)
        code = QN_LT(lt, cublasLtMatmulPreferenceSetAttribute, preference,
                     LT_PREFER_ALIGNMENT_A + i, &key->alignments[order[i]],
                     sizeof(uint32_t));
    if (!code && key->count)
        code = prefer_averages(lt, key, preference);
    return code;
}

/* The library's own first choice. */
static int find_algo(struct qn_cublaslt_engine *engine,
                     const struct qn_cublaslt_key *key, struct lt_desc *desc,
                     struct lt_layout layouts[QN_LT_MATRICES],
                     struct lt_algo *algo)
{
    struct lt_preference preference;
    struct lt_heuristic result = {.status = LT_NOT_SUPPORTED};
    int count = 0;
    int code = make_preference(engine->lt, key, &preference);

    if (!code)
        code =
            QN_LT(engine->lt, cublasLtMatmulAlgoGetHeuristic, engine->context,
                  desc, &layouts[QN_LT_B], &layouts[QN_LT_A], &layouts[QN_LT_C],
                  &layouts[QN_LT_D], &preference, 1, &result, &count);
    if (!code)
        code = qn_cublaslt_error(engine->lt, "cublasLtMatmulAlgoGetHeuristic",
                                 count > 0 ? result.status : LT_NOT_SUPPORTED);
    *algo = result.algo;
    return code;
}

int qn_cublaslt_group(struct qn_cublaslt_engine *engine,
                      const struct qn_cublaslt_product *like)
{
    struct lt_layout layouts[QN_LT_MATRICES];
    struct qn_cublaslt_key key;
    struct lt_algo algo;
    int code;

    if (!engine->lt->cublasLtGroupedMatrixLayoutInit_internal)
        return qn_error_set(QUERN_ENOKERNEL, "%s has no grouped layouts",
                            engine->lt->version);
    code = make_layouts(engine, like, layouts);
    make_key(engine, like, &key);
    if (!code)
        code = find_algo(engine, &key, &engine->forms[like->form].desc, layouts,
                         &algo);
    if (!code) {
        engine->grouped = 1;
        engine->name = engine->lt->grouped_name;
    }
    return code;
}

void qn_cublaslt_ungroup(struct qn_cublaslt_engine *engine)
{
    engine->grouped = 0;
    engine->name = engine->lt->names[QN_CUBLASLT_UNSCALED];
}

/* The address of a matrix, or of the array of all matrices. */
static void *data_of(const struct qn_cublaslt_product *p, int which)
{
    return p->arrays.count ? array_at(&p->arrays, which)
                           : p->matrices[which].data;
}

int qn_cublaslt_multiply(struct qn_cublaslt_engine *engine,
                         const struct qn_cublaslt_product *p)
{
    struct lt_layout layouts[QN_LT_MATRICES];
    struct qn_cublaslt_key key;
    struct lt_algo algo;
    struct lt_desc scaled, *desc = &engine->forms[p->form].desc;
    int code = make_layouts(engine, p, layouts);

    if (!code && (p->scales[QN_LT_A] || p->scales[QN_LT_B])) {
        desc = &scaled;
        code = make_scaled(engine, p, desc);
    }
    make_key(engine, p, &key);
    if (!code && !recall(engine, &key, &algo)) {
        code = find_algo(engine, &key, desc, layouts, &algo);
        if (!code)
            remember(engine, &key, &algo);
    }
    if (!code)
        code =
            QN_LT(engine->lt, cublasLtMatmul, engine->context, desc, p->alpha,
                  data_of(p, QN_LT_B), &layouts[QN_LT_B], data_of(p, QN_LT_A),
                  &layouts[QN_LT_A], p->beta, data_of(p, QN_LT_C),
                  &layouts[QN_LT_C], data_of(p, QN_LT_D), &layouts[QN_LT_D],
                  &algo, p->scratch, QN_CUBLASLT_SCRATCH, p->stream);
    if (code)
        qn_error_add("  in the product m=%lld n=%lld k=%lld", (long long)p->m,
                     (long long)p->n, (long long)p->k);
    return code;
}
