/* SPDX-License-Identifier: Apache-2.0 */
/*
** tune_data.c: operands to measure on.
**
** Values need not be right, but must be like real ones: a GPU that multiplies
** zeros draws less power and runs at a higher clock. So a block of random
** values, or of random codes where the operand is a quantized tensor, is laid
** out again and again.
*/
#include "tune/tune.h"
#include "base/error.h"
#include "base/random.h"
#include "base/types.h"
#include "problem/gather_rules.h"
#include "problem/geometry.h"
#include "problem/sizes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 20, ALIGN = 256 };

/* Parts of the one allocation, back to back; A to T each. */
enum part {
    DATA,
    SCALES = DATA + QN_ROLES,
    GLOBAL = SCALES + QN_ROLES,
    POINTERS = GLOBAL + QN_ROLES,
    SIZES = POINTERS + QN_ROLES,
    FACTORS,
    BIAS,
    PROBABILITY,
    PAIRS,
    WORKSPACE,
    PARTS
};

struct maker {
    struct qn_tune_job *job;
    struct qn_driver *driver;
    const struct qn_problem *p;
    struct qn_args *args;
    uint64_t at[PARTS]; /* addresses; before there is memory, from 0 */
    size_t bytes[PARTS];
    int64_t sizes[QUERN_MAX_GROUPS];
};

static struct qn_tensor *tensor(const struct maker *m, int role)
{
    struct qn_tensor *all[QN_ROLES] = {&m->args->a, &m->args->b, &m->args->c,
                                       &m->args->d, &m->args->p, &m->args->t};

    return all[role];
}

/* ------------------------------------------------------------------ memory */

/* Sizes of all parts, and where they are. Returns the sum. */
static size_t lay_out(struct maker *m)
{
    const size_t groups = (size_t)m->p->groups;
    size_t sum = 0;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        const struct qn_tensor *t = tensor(m, role);

        m->bytes[DATA + role] = t->bytes;
        m->bytes[SCALES + role] = t->sf_bytes;
        m->bytes[GLOBAL + role] = t->global_bytes;
        if (m->p->pointers >> role & 1)
            m->bytes[POINTERS + role] = groups * sizeof(uint64_t);
    }
    m->bytes[SIZES] = groups * sizeof(int64_t);
    m->bytes[FACTORS] = 2 * groups * sizeof(float);
    if (m->p->bias)
        m->bytes[BIAS] = groups * (size_t)m->p->n * sizeof(float);
    if (m->p->probability)
        m->bytes[PROBABILITY] = (size_t)m->p->m * sizeof(float);
    if (m->p->gather)
        m->bytes[PAIRS] = (size_t)m->p->m * sizeof(int);
    m->bytes[WORKSPACE] = m->job->session.need.workspace_bytes;
    for (int i = 0; i < PARTS; i++) {
        m->at[i] = sum;
        sum += (m->bytes[i] + ALIGN - 1) / ALIGN * ALIGN;
    }
    return sum;
}

/* 0 if runs shall find L2 as they left it, else a buffer that evicts it. */
static size_t flush_bytes(const struct qn_tune_job *job)
{
    int l2 = 0;

    if (job->options.l2 == QUERN_L2_WARM)
        return 0;
    job->session.driver->cuDeviceGetAttribute(&l2, QN_CU_L2_CACHE_SIZE,
                                              job->session.device.ordinal);
    return 2 * (l2 > 0 ? (size_t)l2 : (size_t)64 << 20);
}

static int allocate(struct qn_driver *driver, size_t bytes, uint64_t *address)
{
    return bytes ? QN_CU(driver, cuMemAlloc_v2, address, bytes) : QUERN_OK;
}

static int allocate_all(struct qn_tune_job *job)
{
    struct qn_driver *driver = job->session.driver;
    struct qn_tune_data *d = &job->data;
    size_t unused = 0, total = 0;
    int code;

    d->flush_bytes = flush_bytes(job);
    code = QN_CU(driver, cuMemGetInfo_v2, &unused, &total);
    if (!code && d->bytes + d->flush_bytes > unused)
        return qn_error_set(QUERN_ECUDA,
                            "measuring takes %zu bytes of device memory for "
                            "operands and %zu to drive L2 out, %zu of %zu are "
                            "free",
                            d->bytes, d->flush_bytes, unused, total);
    if (!code)
        code = allocate(driver, d->bytes, &d->operands);
    if (!code)
        code = allocate(driver, d->flush_bytes, &d->flush);
    return code;
}

/* ---------------------------------------------------------------- contents */

/* A random code of the type that is a finite number. */
static unsigned char code_of(int type, uint64_t bits)
{
    const unsigned sign = bits >> 8 & 0x80;

    switch (type) {
    case QUERN_E4M3:
        return (unsigned char)((bits & 0xFFFF) % 0x7F | sign);
    case QUERN_E5M2:
        return (unsigned char)((bits & 0xFFFF) % 0x7C | sign);
    case QUERN_E2M3:
    case QUERN_E3M2:
        return bits & 0x3F;
    case QUERN_E8M0: /* 2^-9 to 2^-6 */
        return (unsigned char)(118 + (bits & 3));
    }
    return (unsigned char)bits;
}

/* A block of values of the type; small ones for scales. Zero points are any. */
static void fill_block(void *block, size_t bytes, int type, uint64_t seed,
                       float scale)
{
    unsigned char *codes = block;

    if (type == QUERN_F16_ZERO || type == QUERN_BF16_ZERO)
        type = type == QUERN_F16_ZERO ? QUERN_F16 : QUERN_BF16;
    if (!qn_random_fill(block, type, bytes * 8 / (size_t)qn_type_bits(type), 0,
                        seed, scale))
        return;
    for (size_t i = 0; i < bytes; i++)
        codes[i] = code_of(type, qn_random_next(&seed));
}

/* Scales are positive. */
static void make_positive(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = fabsf(values[i]) + 0x1p-10f;
}

/* The block, repeated until the part is full. */
static int spread(struct maker *m, int part, const void *block)
{
    struct qn_driver *driver = m->driver;
    const size_t bytes = m->bytes[part];
    size_t done = bytes < BLOCK ? bytes : BLOCK;
    int code = QN_CU(driver, cuMemcpyHtoD_v2, m->at[part], block, done);

    while (!code && done < bytes) {
        size_t more = bytes - done < done ? bytes - done : done;

        code = QN_CU(driver, cuMemcpyDtoDAsync_v2, m->at[part] + done,
                     m->at[part], more, NULL);
        done += more;
    }
    return code;
}

/* B is small, so that D is of the order of 1 for any k. */
static int fill_values(struct maker *m, void *block, int part, int type,
                       float scale)
{
    size_t bytes = m->bytes[part] < BLOCK ? m->bytes[part] : BLOCK;

    if (!bytes)
        return QUERN_OK;
    fill_block(block, bytes, type, m->job->options.seed + (uint64_t)part,
               scale);
    if (part >= SCALES && type == QUERN_F32)
        make_positive(block, bytes / sizeof(float));
    return spread(m, part, block);
}

static int fill_operand(struct maker *m, void *block, int role)
{
    const struct qn_scaling *scaling;
    struct qn_quantization q;
    const int type = tensor(m, role)->type;
    const int read =
        role < QN_ROLE_D || (role == QN_ROLE_D && m->p->beta == QUERN_BETA_ONE);
    float scale = 1;
    int code = QUERN_OK;

    if (role == QN_ROLE_B)
        scale = 1 / sqrtf((float)m->p->k);
    if (read)
        code = fill_values(m, block, DATA + role, type, scale);
    scaling =
        role <= QN_ROLE_B
            ? qn_scale_source(m->p, m->job->session.demand.recipe, role, &q)
            : NULL;
    if (!code && scaling && scaling->type)
        code = fill_values(m, block, SCALES + role, scaling->type, 0x1p-7f);
    if (!code && scaling)
        code = fill_values(m, block, GLOBAL + role, QUERN_F32, 0x1p-4f);
    return code;
}

/* Addresses of the matrices, where the problem gives them. */
static int fill_pointers(struct maker *m, int role)
{
    uint64_t addresses[QUERN_MAX_GROUPS];
    struct qn_geometry g;

    if (!m->bytes[POINTERS + role])
        return QUERN_OK;
    qn_geometry_of(m->p, m->job->session.demand.recipe, role, &g);
    for (int i = 0; i < m->p->groups; i++)
        addresses[i] =
            m->at[DATA + role] + (uint64_t)i * (uint64_t)(g.rows * g.columns) *
                                     (uint64_t)qn_type_bits(g.type) / 8;
    return QN_CU(m->driver, cuMemcpyHtoD_v2, m->at[POINTERS + role], addresses,
                 m->bytes[POINTERS + role]);
}

/* As from a route: a group's rows ascend, by steps of any length. */
static int fill_pairs(struct maker *m)
{
    const int64_t pairs = m->p->tokens * qn_gather_topk(m->p);
    int *block = malloc(m->bytes[PAIRS] + 1);
    uint64_t seed = 1;
    int64_t row = 0;
    int code;

    if (!block)
        return qn_error_memory();
    for (int g = 0; g < m->p->groups; g++)
        for (int64_t i = 0; i < m->sizes[g] && row < m->p->m; i++)
            block[row++] = (int)((i * pairs + (int64_t)(qn_random_next(&seed) %
                                                        (uint64_t)pairs)) /
                                 m->sizes[g]);
    code =
        QN_CU(m->driver, cuMemcpyHtoD_v2, m->at[PAIRS], block, m->bytes[PAIRS]);
    free(block);
    return code;
}

static int fill_rest(struct maker *m)
{
    float ones[2 * QUERN_MAX_GROUPS];
    int code = QN_CU(m->driver, cuMemcpyHtoD_v2, m->at[SIZES], m->sizes,
                     m->bytes[SIZES]);

    for (int i = 0; i < 2 * m->p->groups; i++)
        ones[i] = 1;
    if (!code)
        code = QN_CU(m->driver, cuMemcpyHtoD_v2, m->at[FACTORS], ones,
                     m->bytes[FACTORS]);
    if (!code)
        code = QN_CU(m->driver, cuMemsetD8Async, m->at[WORKSPACE], 0,
                     m->bytes[WORKSPACE], NULL);
    if (!code && m->bytes[PAIRS])
        code = fill_pairs(m);
    for (int role = QN_ROLE_A; role < QN_ROLES && !code; role++)
        code = fill_pointers(m, role);
    return code;
}

static int fill_all(struct maker *m)
{
    void *block = malloc(BLOCK);
    int code = block ? QUERN_OK : qn_error_memory();

    for (int role = QN_ROLE_A; role < QN_ROLES && !code; role++)
        code = fill_operand(m, block, role);
    for (int part = BIAS; part <= PROBABILITY && !code; part++)
        code = fill_values(m, block, part, QUERN_F32, 1);
    if (!code)
        code = fill_rest(m);
    if (!code) /* copies from the host may still be running, and the runs'
                  stream need not wait for this one */
        code = QN_CU(m->driver, cuStreamSynchronize, NULL);
    free(block);
    return code;
}

/* --------------------------------------------------------------- arguments */

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* One array for the sizes, in the field of the axis that it belongs to. */
static void point(struct maker *m)
{
    const struct qn_problem *p = m->p;
    struct qn_args *args = m->args;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        struct qn_tensor *t = tensor(m, role);
        struct qn_geometry g;

        if (p->pointers >> role & 1)
            t->pointers = pointer(m->at[POINTERS + role]);
        else if (qn_geometry_has(p, role))
            t->data = pointer(m->at[DATA + role]);
        t->sf = t->sf_bytes ? pointer(m->at[SCALES + role]) : NULL;
        t->global = t->global_bytes ? pointer(m->at[GLOBAL + role]) : NULL;
        qn_geometry_of(p, m->job->session.demand.recipe, role, &g);
        if (g.grouped || g.gathered || role == QN_ROLE_C || role > QN_ROLE_D ||
            (role == QN_ROLE_D && !p->gather))
            continue;
        t->sizes_type = QUERN_I64;
        *(g.inner_ragged ? &t->last_dims : &t->first_dims) =
            pointer(m->at[SIZES]);
    }
    if (p->beta != QUERN_BETA_ANY)
        memset(&args->c, 0, sizeof args->c);
    if (p->alpha)
        args->alpha = pointer(m->at[FACTORS]);
    if (p->beta == QUERN_BETA_ANY)
        args->beta = pointer(m->at[FACTORS]);
    if (p->bias)
        args->bias = pointer(m->at[BIAS]);
    if (p->probability)
        args->probability = pointer(m->at[PROBABILITY]);
    if (p->gather)
        args->gather = pointer(m->at[PAIRS]);
    args->scalars = p->groups;
    args->workspace = pointer(m->at[WORKSPACE]);
}

/* The caller's, or the split's, or all alike. */
static int draw_sizes(struct maker *m)
{
    const struct qn_problem *p = m->p;
    char why[512];

    if (m->job->options.sizes)
        memcpy(m->sizes, m->job->options.sizes,
               (size_t)p->groups * sizeof *m->sizes);
    else if (p->ragged != QUERN_AXIS_NONE &&
             qn_sizes_draw(p->split, p->groups,
                           qn_geometry_length(p, p->ragged),
                           m->job->options.seed, m->sizes, why, sizeof why))
        return qn_error_set(QUERN_EINVAL, "%s", why);
    return QUERN_OK;
}

int qn_tune_data_make(struct qn_tune_job *job)
{
    struct maker m = {.job = job,
                      .driver = job->session.driver,
                      .p = job->problem,
                      .args = &job->data.args};
    int code = QUERN_OK;

    job->data.args =
        job->options.args ? *job->options.args : job->session.need.args;
    if (!job->options.args) {
        job->data.bytes = lay_out(&m);
        code = draw_sizes(&m);
    }
    if (!code)
        code = allocate_all(job);
    if (code || job->options.args)
        return code;
    for (int i = 0; i < PARTS; i++)
        m.at[i] += job->data.operands;
    code = fill_all(&m);
    if (!code)
        point(&m);
    return code;
}

void qn_tune_data_free(struct qn_tune_job *job)
{
    struct qn_driver *driver = job->session.driver;

    if (job->data.operands)
        driver->cuMemFree_v2(job->data.operands);
    if (job->data.flush)
        driver->cuMemFree_v2(job->data.flush);
}
