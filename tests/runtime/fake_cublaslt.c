/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake_cublaslt.c: a cuBLASLt that computes on the host, column by column as
** the real one, from nothing but the descriptors that it is given. So a layout
** that is described wrongly gives wrong values.
**
** An algorithm serves only the product that it was found for: its layouts,
** operations and alignments are in it, and are compared.
*/
#include "fake.h"

#include <pthread.h>
#include <string.h>

#include "fake_cublaslt/product.h"

enum { DESC = 0x11, LAYOUT, PREFERENCE, ALGO };

_Static_assert(sizeof(struct desc) <= sizeof(struct lt_desc), "desc");
_Static_assert(sizeof(struct layout) <= sizeof(struct lt_layout), "layout");
_Static_assert(sizeof(struct preference) <= sizeof(struct lt_preference), "");
_Static_assert(sizeof(struct algo) <= sizeof(struct lt_algo), "algo");

static struct fake_cublaslt state;

/* Tests find the state by this name. */
FAKE_API struct fake_cublaslt *fake_cublaslt(void);
struct fake_cublaslt *fake_cublaslt(void)
{
    return &state;
}

static int enter(const char *name)
{
    int call = __atomic_add_fetch(&state.calls, 1, __ATOMIC_SEQ_CST);

    if (!state.fail_at || call < state.fail_at ||
        (call > state.fail_at && !state.lost))
        return 0;
    if (!state.failed)
        state.failed = name;
    return state.fail_status;
}

/* Fail if this is the n-th call. */
#define ENTER()                                                                \
    do {                                                                       \
        int status_ = enter(__func__);                                         \
        if (status_)                                                           \
            return status_;                                                    \
    } while (0)

/* CUBLAS_STATUS_INVALID_VALUE, and the rule for the test. */
#define RULE(holds)                                                            \
    do {                                                                       \
        if (!(holds)) {                                                        \
            state.broken = #holds;                                             \
            return 7;                                                          \
        }                                                                      \
    } while (0)

#define DECLARE(name, arguments) FAKE_API int name arguments;
QN_LT_FUNCTIONS(DECLARE)
#undef DECLARE

FAKE_API size_t cublasLtGetVersion(void);
size_t cublasLtGetVersion(void)
{
    /* asked once by its opener, which stays loaded */
    fake_log("cublaslt", "open", "");
    return (size_t)(state.version ? state.version : 130102);
}

FAKE_API const char *cublasLtGetStatusString(int status);
const char *cublasLtGetStatusString(int status)
{
    return status == 999 ? "the test's error" : "some error";
}

int cublasLtCreate(struct lt_context **context)
{
    ENTER();
    *context = malloc(1);
    if (!*context)
        return LT_ALLOC_FAILED;
    __atomic_add_fetch(&state.contexts, 1, __ATOMIC_SEQ_CST);
    return 0;
}

int cublasLtDestroy(struct lt_context *context)
{
    free(context);
    __atomic_add_fetch(&state.contexts, -1, __ATOMIC_SEQ_CST);
    return enter(__func__);
}

/* ------------------------------------------------------------- descriptors */

int cublasLtMatmulDescInit_internal(struct lt_desc *desc, size_t size,
                                    int compute, int scale)
{
    struct desc *d = (struct desc *)desc;

    ENTER();
    RULE(size == sizeof *desc);
    *d = (struct desc){.kind = DESC, .compute = compute, .scale = scale};
    return 0;
}

int cublasLtMatmulDescSetAttribute(struct lt_desc *desc, int attribute,
                                   const void *value, size_t size)
{
    struct desc *d = (struct desc *)desc;
    const struct {
        int attribute;
        size_t size;
        void *field;
    } fields[] = {
        {LT_DESC_POINTER_MODE, 4, &d->device},
        {LT_DESC_TRANSA, 4, &d->ops[0]},
        {LT_DESC_TRANSB, 4, &d->ops[1]},
        {LT_DESC_SM_COUNT_TARGET, 4, &d->sms},
        {LT_DESC_A_SCALE_POINTER, sizeof(void *), &d->scales[0]},
        {LT_DESC_B_SCALE_POINTER, sizeof(void *), &d->scales[1]},
        {LT_DESC_FAST_ACCUM, 1, &d->fast},
        {LT_DESC_A_SCALE_MODE, 4, &d->modes[0]},
        {LT_DESC_B_SCALE_MODE, 4, &d->modes[1]},
    };
    size_t i = 0;

    ENTER();
    RULE(d->kind == DESC);
    while (i < sizeof fields / sizeof fields[0] &&
           fields[i].attribute != attribute)
        i++;
    RULE(i < sizeof fields / sizeof fields[0] && fields[i].size == size);
    RULE(attribute < LT_DESC_A_SCALE_MODE || !state.version ||
         state.version >= 120800);
    memcpy(fields[i].field, value, size);
    return 0;
}

int cublasLtMatrixLayoutInit_internal(struct lt_layout *layout, size_t size,
                                      int type, uint64_t rows, uint64_t columns,
                                      int64_t ld)
{
    ENTER();
    RULE(size == sizeof *layout);
    RULE(rows > 0 && columns > 0 && ld >= (int64_t)rows);
    *(struct layout *)layout = (struct layout){.kind = LAYOUT,
                                               .type = type,
                                               .rows = rows,
                                               .columns = columns,
                                               .ld = ld,
                                               .batch = 1};
    return 0;
}

FAKE_API qn_lt_grouped cublasLtGroupedMatrixLayoutInit_internal;

int cublasLtGroupedMatrixLayoutInit_internal(struct lt_layout *layout,
                                             size_t size, int type, int groups,
                                             const void *rows,
                                             const void *columns,
                                             const void *ld)
{
    ENTER();
    RULE(size == sizeof *layout && groups > 0);
    RULE((uintptr_t)rows % 4 == 0 && (uintptr_t)columns % 4 == 0);
    *(struct layout *)layout = (struct layout){.kind = LAYOUT,
                                               .type = type,
                                               .rows = (uintptr_t)rows,
                                               .columns = (uintptr_t)columns,
                                               .ld = (int64_t)(uintptr_t)ld,
                                               .batch = groups,
                                               .grouped = 1};
    return 0;
}

int cublasLtMatrixLayoutSetAttribute(struct lt_layout *layout, int attribute,
                                     const void *value, size_t size)
{
    struct layout *l = (struct layout *)layout;

    ENTER();
    RULE(l->kind == LAYOUT);
    if (attribute == LT_LAYOUT_BATCH_COUNT) {
        RULE(size == 4);
        memcpy(&l->batch, value, size);
    } else {
        RULE(attribute == LT_LAYOUT_BATCH_OFFSET && size == 8);
        memcpy(&l->offset, value, size);
    }
    return 0;
}

int cublasLtMatmulPreferenceInit_internal(struct lt_preference *preference,
                                          size_t size)
{
    ENTER();
    RULE(size == sizeof *preference);
    *(struct preference *)preference = (struct preference){.kind = PREFERENCE};
    return 0;
}

int cublasLtMatmulPreferenceSetAttribute(struct lt_preference *preference,
                                         int attribute, const void *value,
                                         size_t size)
{
    struct preference *p = (struct preference *)preference;
    int which = attribute - LT_PREFER_ALIGNMENT_A;
    int average = attribute - LT_PREFER_AVERAGE_K;

    ENTER();
    RULE(p->kind == PREFERENCE);
    if (attribute == LT_PREFER_WORKSPACE_BYTES) {
        RULE(size == 8);
        memcpy(&p->workspace, value, size);
    } else if (attribute == LT_PREFER_REDUCTIONS) {
        RULE(size == 4);
        memcpy(&p->reductions, value, size);
    } else if (average >= 0) {
        RULE(average < 3 && size == 4);
        memcpy(&p->averages[average], value, size);
    } else {
        RULE(which >= 0 && which < 4 && size == 4);
        memcpy(&p->alignments[which], value, size);
    }
    return 0;
}

/* ---------------------------------------------------------------- products */

/* Everything that cuBLAS may choose an algorithm by. */
static uint64_t hash_product(const struct desc *desc,
                             const struct layout *const layouts[4])
{
    uint64_t hash = 14695981039346656037u;

#define MIX(value) hash = (hash ^ (uint64_t)(value)) * 1099511628211u
    MIX(desc->ops[0]), MIX(desc->ops[1]), MIX(desc->device), MIX(desc->sms);
    MIX(desc->modes[0]), MIX(desc->modes[1]), MIX(desc->fast);
    for (int i = 0; i < 4; i++) {
        const struct layout *l = layouts[i];

        MIX(l->type), MIX(l->batch), MIX(l->offset), MIX(l->grouped);
        if (!l->grouped)
            MIX(l->rows), MIX(l->columns), MIX(l->ld);
    }
#undef MIX
    return hash;
}

static int is_8_bits(int type)
{
    return type == LT_R_8F_E4M3 || type == LT_R_8F_E5M2;
}

static int is_block(int mode)
{
    return mode == LT_SCALE_VECTOR_128 || mode == LT_SCALE_BLOCK_128;
}

/* Pairs that there are; scales of blocks at multiples of 16 bytes, of rows in
   whole fours, and summed in fp32. */
static int check_modes(const struct desc *desc, const struct layout *const x[4])
{
    const int *modes = desc->modes;

    RULE(is_block(modes[0]) ? is_block(modes[1]) : modes[0] == modes[1]);
    RULE(modes[0] != LT_SCALE_BLOCK_128 || modes[1] != LT_SCALE_BLOCK_128);
    for (int i = 0; i < 2; i++) {
        RULE(modes[i] == LT_SCALE_SCALAR || desc->scales[i]);
        RULE((modes[i] != LT_SCALE_VECTOR_32 && !is_block(modes[i])) ||
             ((uintptr_t)desc->scales[i] % 16 == 0));
        RULE(!is_block(modes[i]) || (x[i]->columns % 4 == 0 && !desc->fast));
    }
    return 0;
}

/* FP8: both k-major, rows at multiples of 16 bytes, one e5m2 at most. */
static int check_8_bits(const struct desc *desc,
                        const struct layout *const x[4])
{
    RULE(is_8_bits(x[1]->type) && x[0]->batch == 1);
    RULE(x[0]->type == LT_R_8F_E4M3 || x[1]->type == LT_R_8F_E4M3);
    RULE(desc->ops[0] == LT_OP_T && desc->ops[1] == LT_OP_N);
    RULE(x[0]->ld % 16 == 0 && x[1]->ld % 16 == 0);
    RULE(x[0]->rows % 16 == 0 && x[0]->columns % 16 == 0);
    return check_modes(desc, x);
}

/* Shapes fit, types are a product that there is, one batch for all. */
static int check_product(const struct desc *desc,
                         const struct layout *const x[4])
{
    RULE(desc->kind == DESC);
    for (int i = 0; i < 4; i++)
        RULE(x[i]->kind == LAYOUT && x[i]->batch == x[0]->batch);
    RULE(desc->compute == LT_COMPUTE_32F && desc->scale == LT_R_32F);
    for (int i = 0; i < 4; i++)
        RULE(x[i]->grouped == x[0]->grouped);
    if (x[0]->grouped) /* each group's: when it is multiplied */
        return 0;
    RULE(fake_op_rows(x[0], desc->ops[0]) == x[3]->rows);
    RULE(fake_op_columns(x[1], desc->ops[1]) == x[3]->columns);
    RULE(fake_op_columns(x[0], desc->ops[0]) ==
         fake_op_rows(x[1], desc->ops[1]));
    RULE(x[2]->rows == x[3]->rows && x[2]->columns == x[3]->columns);
    RULE(x[2]->type == x[3]->type);
    if (is_8_bits(x[0]->type))
        return check_8_bits(desc, x);
    RULE(!desc->scales[0] && !desc->scales[1] && !desc->fast);
    RULE(x[0]->type == x[1]->type);
    RULE(x[0]->type == LT_R_16BF || x[0]->type == LT_R_16F);
    RULE(x[3]->type == x[0]->type || x[3]->type == LT_R_32F);
    return 0;
}

int cublasLtMatmulAlgoGetHeuristic(struct lt_context *context,
                                   struct lt_desc *desc, struct lt_layout *a,
                                   struct lt_layout *b, struct lt_layout *c,
                                   struct lt_layout *d,
                                   struct lt_preference *preference, int wanted,
                                   struct lt_heuristic *results, int *count)
{
    const struct layout *x[] = {(struct layout *)a, (struct layout *)b,
                                (struct layout *)c, (struct layout *)d};
    const struct preference *p = (const struct preference *)preference;
    struct algo *algo = (struct algo *)&results->algo;
    int status;

    ENTER();
    RULE(context && wanted == 1 && p->kind == PREFERENCE);
    RULE(p->reductions == LT_REDUCTION_COMPUTE_TYPE);
    status = check_product((const struct desc *)desc, x);
    if (status)
        return status;
    __atomic_add_fetch(&state.heuristics, 1, __ATOMIC_SEQ_CST);
    *count = !state.no_algorithm && (!x[3]->grouped || state.groups);
    memset(results, 0, sizeof *results);
    *algo =
        (struct algo){.kind = ALGO,
                      .workspace = p->workspace,
                      .product = hash_product((const struct desc *)desc, x)};
    memcpy(algo->alignments, p->alignments, sizeof algo->alignments);
    memcpy(algo->averages, p->averages, sizeof algo->averages);
    results->workspace = p->workspace;
    return 0;
}

/* Compute every matrix of the batch. */
static int check_addresses(const struct call *call, const struct algo *algo)
{
    const void *pointers[] = {call->a, call->b, call->c, call->d};

    for (int i = 0; i < 4; i++)
        for (int batch = 0; batch < call->x[i]->batch; batch++) {
            size_t bytes = call->x[i]->type == LT_R_32F  ? 4
                           : is_8_bits(call->x[i]->type) ? 1
                                                         : 2;
            uintptr_t address = (uintptr_t)pointers[i] +
                                fake_place(call->x[i], batch, 0, 0) * bytes;

            RULE(pointers[i] && address % algo->alignments[i] == 0);
        }
    return 0;
}

/* One group of several, by what the arrays say. */
static int compute_group(const struct call *all, const struct algo *algo,
                         int group)
{
    const void *const arrays[] = {all->a, all->b, all->c, all->d};
    struct layout layouts[4];
    struct call call = *all;
    void *data[4];
    int status;

    for (int i = 0; i < 4; i++) {
        const struct layout *l = all->x[i];

        RULE(arrays[i]);
        memcpy(&data[i], (const char *)arrays[i] + group * 8, sizeof data[i]);
        layouts[i] = (struct layout){
            .kind = LAYOUT,
            .type = l->type,
            .rows = (uint64_t)((const int *)(uintptr_t)l->rows)[group],
            .columns = (uint64_t)((const int *)(uintptr_t)l->columns)[group],
            .ld = ((const int *)(uintptr_t)l->ld)[group],
            .batch = 1};
        RULE(layouts[i].rows > 0 && layouts[i].columns > 0);
        RULE(layouts[i].ld >= (int64_t)layouts[i].rows);
        call.x[i] = &layouts[i];
    }
    call.a = data[0], call.b = data[1], call.c = data[2], call.d = data[3];
    status = check_product(call.desc, call.x);
    if (!status)
        status = check_addresses(&call, algo);
    if (!status)
        fake_compute(&call, 0);
    return status;
}

/* The scratch is the caller's to give: both its ends are written. */
static int use_scratch(char *workspace, size_t bytes, const struct algo *algo)
{
    RULE(workspace && (uintptr_t)workspace % 256 == 0);
    RULE(bytes >= 512 && bytes >= algo->workspace);
    memset(workspace, 0xEE, 256);
    memset(workspace + bytes - 256, 0xEE, 256);
    return 0;
}

/* Any number of threads may multiply: the last one is kept. */
static void note(const struct call *call, const struct algo *algo,
                 const void *alpha, const void *beta, void *scratch,
                 void *stream)
{
    static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&noting);
    if (state.products < FAKE_PRODUCTS) {
        state.streams[state.products] = stream;
        state.scratches[state.products] = scratch;
    }
    state.products++;
    state.batch = call->x[3]->batch;
    state.device_scalars = call->desc->device;
    state.sms = call->desc->sms;
    for (int i = 0; i < 4; i++)
        state.alignments[i] = (int)algo->alignments[i];
    for (int i = 0; i < 3; i++)
        state.averages[i] = (int)algo->averages[i];
    state.alpha = alpha;
    state.beta = beta;
    state.scales[0] = call->desc->scales[0];
    state.scales[1] = call->desc->scales[1];
    state.fast = call->desc->fast;
    memcpy(state.modes, call->desc->modes, sizeof state.modes);
    state.stream = stream;
    pthread_mutex_unlock(&noting);
}

int cublasLtMatmul(struct lt_context *context, struct lt_desc *desc,
                   const void *alpha, const void *a, struct lt_layout *a_layout,
                   const void *b, struct lt_layout *b_layout, const void *beta,
                   const void *c, struct lt_layout *c_layout, void *d,
                   struct lt_layout *d_layout, const struct lt_algo *algorithm,
                   void *workspace, size_t workspace_bytes,
                   struct cu_stream *stream)
{
    const struct algo *algo = (const struct algo *)algorithm;
    struct call call = {(const struct desc *)desc,
                        {(struct layout *)a_layout, (struct layout *)b_layout,
                         (struct layout *)c_layout, (struct layout *)d_layout},
                        a,
                        b,
                        c,
                        d,
                        0,
                        0};
    int status;

    ENTER();
    RULE(context && algo && algo->kind == ALGO);
    status = check_product(call.desc, call.x);
    if (!status)
        status = use_scratch(workspace, workspace_bytes, algo);
    if (status)
        return status;
    RULE(hash_product(call.desc, call.x) == algo->product);
    memcpy(&call.alpha, alpha, sizeof call.alpha);
    memcpy(&call.beta, beta, sizeof call.beta);
    note(&call, algo, alpha, beta, workspace, stream);
    for (int i = 0; call.x[3]->grouped && i < call.x[3]->batch; i++) {
        status = compute_group(&call, algo, i);
        if (status)
            return status;
    }
    if (call.x[3]->grouped)
        return 0;
    status = check_addresses(&call, algo);
    for (int i = 0; !status && i < call.x[3]->batch; i++)
        fake_compute(&call, i);
    return status;
}
