/* SPDX-License-Identifier: Apache-2.0 */
/*
** tcgen05_mma.c: products of one thread, of shared memory's operands, A also of
** tensor memory, into tensor memory; of one CTA or of a pair.
**
** From the PTX ISA 9.2, 9.7.16: both descriptors are in Tables 40 to 44. Its
** figures have the lanes of D and of scales, which are taken from CUTLASS'
** layouts.
** A product adds plain fp32 sums, as mma.sync does here.
*/
#include "build.h"
#include "hazard.h"
#include "matrix.h"
#include "tensor.h"
#include "wgmma.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_K = 64, MOST_N = 256, NONE = -1, A_COLUMNS = 8 };

/* Types by their number in an instruction descriptor. */
static const struct kind {
    const char *name;
    int k, scaled, types[6];
} kinds[] = {
    {"f16", 16, 0, {PX_F16, PX_BF16, NONE, NONE, NONE, NONE}},
    {"tf32", 8, 0, {NONE, NONE, PX_TF32, NONE, NONE, NONE}},
    {"f8f6f4", 32, 0, {PX_E4M3, PX_E5M2, NONE, PX_E2M3, PX_E3M2, PX_E2M1}},
    {"mxf8f6f4", 32, 1, {PX_E4M3, PX_E5M2, NONE, PX_E2M3, PX_E3M2, PX_E2M1}},
    {"mxf4", 64, 1, {NONE, PX_E2M1X2, NONE, NONE, NONE, NONE}},
    {"mxf4nvf4", 64, 1, {NONE, PX_E2M1X2, NONE, NONE, NONE, NONE}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct product {
    const struct kind *kind;
    int ctas, n, accumulate;
    int rows; /* of a CTA: 128, or 64 as 16 of each part of the lanes */
    float sign;
    struct px_matrix a, b;
    int a_in_tensor;           /* in tensor memory, 32 bytes of a row */
    uint32_t a_column, column; /* of D */
    int blocks;                /* of k, with a scale each; 0: none */
    int e4m3_scales;
    struct scale {
        uint32_t column, columns;
        int byte;
    } scale[2];           /* of A, of B */
    uint32_t disabled[8]; /* lanes of D */
};

/* -------------------------------------------------------------- descriptors */

int px_tensor_matrix(struct px_warp *w, const struct px_op *op, int lane,
                     uint64_t bits, struct px_matrix *out)
{
    static const int swizzles[] = {0, NONE, 3, NONE, 2, NONE, 1, NONE};
    const int swizzle = swizzles[bits >> 61];

    if ((bits >> 46 & 7) != 1)
        return px_fault(w, op, lane,
                        "matrix descriptor 0x%016llx: bits 46 to 48 are not 1",
                        (unsigned long long)bits);
    if (bits & 0x1fe0c000c000c000 & ~(7ull << 46))
        return px_fault(w, op, lane,
                        "matrix descriptor 0x%016llx: a reserved bit is set",
                        (unsigned long long)bits);
    if (swizzle == NONE || bits >> 49 & 15)
        return px_fault(w, op, lane,
                        "matrix descriptor 0x%016llx: its layout or base "
                        "offset is not known here",
                        (unsigned long long)bits);
    *out = px_matrix_of(bits, swizzle, out->turned, out->type);
    out->padded =
        out->type == PX_E2M1 || out->type == PX_E2M3 || out->type == PX_E3M2;
    return PX_NEXT;
}

static int type_of(const struct kind *kind, uint32_t number)
{
    return number < 6 ? kind->types[number] : NONE;
}

static int fault_instruction(struct px_warp *w, const struct px_op *op,
                             int lane, uint32_t bits, const char *why)
{
    return px_fault(w, op, lane, "instruction descriptor 0x%08x: %s", bits,
                    why);
}

static int check_shape(struct px_warp *w, const struct px_op *op, int lane,
                       uint32_t bits, struct product *p)
{
    const int m = (int)(bits >> 24 & 31) << 4;
    const int is_64 = p->ctas == 1 && m == 64;
    const int of_bytes = p->kind->k == 32; /* 16 columns of mn-major B a unit */
    const int step = p->kind->scaled                       ? 16
                     : p->ctas == 2                        ? 32
                     : is_64 && !(p->b.turned && of_bytes) ? 8
                                                           : 16;

    p->rows = is_64 ? 64 : PX_ROWS;
    if (m != p->rows * p->ctas)
        return px_fault(w, op, lane,
                        "instruction descriptor 0x%08x: m = %d; only %d%s is "
                        "known here",
                        bits, m, 128 * p->ctas, p->ctas == 1 ? " or 64" : "");
    if (p->n < step || p->n > MOST_N || p->n % step)
        return px_fault(w, op, lane,
                        "instruction descriptor 0x%08x: n = %d is no multiple "
                        "of %d up to 256",
                        bits, p->n, step);
    return PX_NEXT;
}

/* The product. */
static int read_instruction(struct px_warp *w, const struct px_op *op, int lane,
                            uint32_t bits, struct product *p)
{
    const uint32_t reserved = p->kind->scaled ? 0x8700004f : 0xe080004f;
    const uint32_t a = bits >> 7 & 7, b = bits >> 10 & 7;

    p->n = (int)(bits >> 17 & 63) << 3;
    p->a.type = type_of(p->kind, a);
    p->b.type = type_of(p->kind, b);
    p->a.turned = bits >> 15 & 1;
    p->b.turned = bits >> 16 & 1;
    p->sign = (bits >> 13 ^ bits >> 14) & 1 ? -1 : 1;
    if (bits & reserved)
        return fault_instruction(w, op, lane, bits, "a reserved bit is set");
    if (p->a.type == NONE || p->b.type == NONE)
        return fault_instruction(w, op, lane, bits,
                                 "a type of A or B that the kind has not");
    if (!p->kind->scaled && (bits >> 4 & 3) != 1)
        return fault_instruction(w, op, lane, bits,
                                 "only fp32 is known as the type of D");
    if (p->kind->k == 8 && (p->a.turned || p->b.turned))
        return fault_instruction(w, op, lane, bits,
                                 "mn-major tf32 is not known here");
    if (p->kind->k == MOST_K && (p->a.turned || p->b.turned))
        return fault_instruction(w, op, lane, bits,
                                 "operands of 4 bits are k-major");
    return check_shape(w, op, lane, bits, p);
}

/* Scales: which of a word's bytes, and in which columns. */
static int read_scales(struct px_warp *w, const struct px_op *op, int lane,
                       uint32_t bits, struct product *p)
{
    static const unsigned valid[] = {0, 15, 5, 0, 1}; /* by blocks */
    static const int shifts[] = {29, 4};
    const int is_4x = p->blocks == 4;

    p->e4m3_scales = !(bits >> 23 & 1) ^ px_misreads(PX_SCALE_TYPE);
    if (!(bits >> 23 & 1) && !is_4x)
        return fault_instruction(w, op, lane, bits,
                                 "e4m3 scales are of blocks of 16");
    for (int i = 0; i < 2; i++) {
        const int other = px_misreads(PX_SCALE_SIDES) ? !i : i;
        const uint32_t at = PX_AT(w, uint32_t, op->nargs - 3 + other)[lane];
        const uint32_t rows = i ? (uint32_t)p->n : PX_ROWS;
        const uint32_t id = bits >> shifts[i] & 3;

        if (!(valid[p->blocks] >> id & 1))
            return px_fault(w, op, lane, "there is no scale id %u of %c", id,
                            "AB"[i]);
        if (px_row_of(at) & 0x3fff || (at >> 30 && at >> 30 != id))
            return px_fault(w, op, lane, "scales of %c at 0x%08x", "AB"[i], at);
        p->scale[i] = (struct scale){px_column_of(at), (rows + 31) / 32,
                                     px_misreads(PX_SCALE_BYTES) ? 0 : (int)id};
    }
    return PX_NEXT;
}

/* A step of k as the halves of a pair have it: rows of A, columns of B. */
static struct px_units a_units(const struct product *p)
{
    return px_matrix_units(&p->a, 0, p->rows, p->kind->k);
}

static struct px_units b_units(const struct product *p)
{
    return px_matrix_units(&p->b, 0, p->n / p->ctas, p->kind->k);
}

/* ------------------------------------------------------------------ landing */

/* Rows of A of one CTA: lanes, or units of shared memory. */
static int gather_a(struct px_async *async, const struct product *p,
                    const struct px_cta *cta, float *a)
{
    if (!p->a_in_tensor)
        return px_matrix_gather(async, cta, &p->a, a_units(p), a, p->kind->k,
                                1);
    for (int i = 0; i < PX_ROWS; i++) {
        uint32_t row[A_COLUMNS];

        for (uint32_t j = 0; j < A_COLUMNS; j++)
            row[j] = cta->tmem->word[p->a_column + j][i];
        px_mma_decode(a + i * p->kind->k, row, p->kind->k, p->a.type);
    }
    return PX_NEXT;
}

/* Rows of A of one CTA, and its columns of B. */
static int gather(struct px_async *async, const struct product *p, int half,
                  float *a, float *b)
{
    struct px_warp *w = async->warp;
    struct px_cta *cta = &w->cta->cluster->cta[w->cta->rank + half];

    if (!cta->live_warps)
        return px_fault(w, async->op, async->lane,
                        "a CTA of the pair has ended");
    if (gather_a(async, p, cta, a))
        return PX_FAULT;
    if (px_misreads(PX_PAIR_COLUMNS))
        half = p->ctas - 1 - half;
    return px_matrix_gather(async, cta, &p->b, b_units(p),
                            b + half * p->n / p->ctas, 1, p->n);
}

/* Scales of `rows` rows, of a block each, which all parts of the lanes have. */
static int gather_scales(struct px_async *async, const struct product *p,
                         const struct px_cta *cta, int side, float *to)
{
    const struct scale *s = &p->scale[side];
    const int rows = side ? p->n : PX_ROWS;

    for (int row = 0; row < rows; row++) {
        const int by_4 = px_misreads(PX_SCALE_ROWS);
        const uint32_t *column =
            cta->tmem->word[s->column + (uint32_t)(by_4 ? row % 4 : row / 32)];
        const uint32_t word = column[by_4 ? row / 4 % 32 : row % 32];

        for (int part = 1; part < PX_PARTS; part++)
            if (column[32 * part + row % 32] != column[row % 32])
                return px_fault(async->warp, async->op, async->lane,
                                "scales of %c, column %u of tensor memory: "
                                "lane %d has others than lane %d",
                                "AB"[side], s -> column + (uint32_t)row / 32,
                                32 * part + row % 32, row % 32);
        for (int v = 0; v < p->blocks; v++) {
            const uint8_t code = (uint8_t)(word >> 8 * (s->byte + v));

            to[row * p->blocks + v] = p->e4m3_scales
                                          ? px_float_of_e4m3(code & 0x7f)
                                      : code == 255 ? NAN
                                                    : ldexpf(1, code - 127);
        }
    }
    return PX_NEXT;
}

/* Each block's sum, times both scales. */
static int multiply_scaled(struct px_async *async, const struct product *p,
                           const struct px_cta *cta, const float *a,
                           const float *b, float *sum)
{
    static float scale_a[PX_ROWS * 4], scale_b[MOST_N * 4];
    static float rows[PX_ROWS * MOST_K], block[PX_ROWS * MOST_N];
    const int size = p->kind->k / p->blocks, n = p->n;

    if (gather_scales(async, p, cta, 0, scale_a) ||
        gather_scales(async, p, cta, 1, scale_b))
        return PX_FAULT;
    memset(sum, 0, (size_t)(PX_ROWS * n) * sizeof *sum);
    for (int v = 0; v < p->blocks; v++) {
        for (int i = 0; i < PX_ROWS; i++)
            memcpy(rows + i * size, a + i * p->kind->k + v * size,
                   (size_t)size * sizeof *rows);
        px_mma_multiply(block, rows, b + v * size * n, PX_ROWS, n, size);
        for (int i = 0; i < PX_ROWS * n; i++)
            sum[i] +=
                (float)((double)block[i] * scale_a[i / n * p->blocks + v] *
                        scale_b[i % n * p->blocks + v]);
    }
    return PX_NEXT;
}

enum { TOGETHER = 8 }; /* columns, of which there are whole pieces */

/* A row's sums to so many columns. */
static inline void add_row(uint32_t (*column)[PX_ROWS], int lane,
                           const struct product *p, const float *sum)
{
    const float sign = p->sign;
    float d[TOGETHER] = {0};

    for (int j = 0; p->accumulate && j < TOGETHER; j++)
        memcpy(&d[j], &column[j][lane], sizeof *d);
    for (int j = 0; j < TOGETHER; j++)
        d[j] += sign * sum[j];
    for (int j = 0; j < TOGETHER; j++)
        memcpy(&column[j][lane], &d[j], sizeof *d);
}

static void add_to(struct px_cta *cta, const struct product *p,
                   const float *sum)
{
    for (int j = 0; j < p->n; j += TOGETHER)
        for (int i = 0; i < p->rows; i++) {
            const int lane = p->rows == 64 ? i / 16 * 32 + i % 16 : i;

            if (!(p->disabled[lane / 32] >> lane % 32 & 1))
                add_row(&cta->tmem->word[p->column + (uint32_t)j], lane, p,
                        sum + i * p->n + j);
        }
}

/* Rows of both halves in turns. */
static void misread_rows(float a[2][PX_ROWS * MOST_K], int k)
{
    static float rows[2][PX_ROWS * MOST_K];
    const size_t bytes = (size_t)k * sizeof(float);

    for (int i = 0; i < 2 * PX_ROWS; i++)
        memcpy(&rows[i % 2][i / 2 * k], &a[i / PX_ROWS][i % PX_ROWS * k],
               bytes);
    memcpy(a, rows, sizeof rows);
}

static int land_product(struct px_async *async)
{
    static float a[2][PX_ROWS * MOST_K], b[MOST_K * MOST_N];
    static float sum[PX_ROWS * MOST_N];
    const struct product *p = async->work;
    struct px_warp *w = async->warp;

    for (int i = 0; i < p->ctas; i++)
        if (gather(async, p, i, a[i], b))
            return PX_FAULT;
    if (p->ctas == 2 && px_misreads(PX_PAIR_ROWS))
        misread_rows(a, p->kind->k);
    for (int i = 0; i < p->ctas; i++) {
        struct px_cta *cta = &w->cta->cluster->cta[w->cta->rank + i];

        if (!p->blocks)
            px_mma_multiply(sum, a[i], b, p->rows, p->n, p->kind->k);
        else if (multiply_scaled(async, p, cta, a[i], b, sum))
            return PX_FAULT;
        add_to(cta, p, sum);
    }
    return PX_NEXT;
}

/* ------------------------------------------------------------------ issuing */

/* In op->sub: the kind, and how many operands disable lanes; op->space 't': A
   is in tensor memory. */
enum { A = 1, B = 2, INSTRUCTION = 3, KIND = 15, MASKS = 4 };

static int read_a(struct px_warp *w, const struct px_op *op, int lane,
                  struct product *p)
{
    const int type = p->a.type;
    uint32_t at;

    p->a_in_tensor = op->space == 't';
    if (!p->a_in_tensor)
        return px_tensor_matrix(w, op, lane, PX_AT(w, uint64_t, A)[lane],
                                &p->a);
    at = PX_AT(w, uint32_t, A)[lane];
    p->a_column = px_column_of(at);
    if (px_row_of(at))
        return px_fault(w, op, lane, "A begins in lane %u", px_row_of(at));
    if (p->a.turned)
        return px_fault(w, op, lane, "A in tensor memory is k-major");
    if (p->rows != PX_ROWS)
        return px_fault(w, op, lane,
                        "A of 64 rows in tensor memory is not known here");
    if (type == PX_E2M1 || type == PX_E2M3 || type == PX_E3M2)
        return px_fault(w, op, lane,
                        "A in tensor memory with bytes that have 4 or 6 bits "
                        "is not known here");
    return PX_NEXT;
}

static int read_product(struct px_warp *w, const struct px_op *op, int lane,
                        struct product *p)
{
    const int masks = op->sub >> MASKS;
    const uint32_t bits = PX_AT(w, uint32_t, INSTRUCTION)[lane];
    const uint32_t d = PX_AT(w, uint32_t, 0)[lane] + (uint32_t)op->offset;

    p->kind = &kinds[op->sub & KIND];
    p->ctas = px_machine.launch->program->tensor;
    p->column = px_column_of(d);
    p->blocks = op->vector;
    p->accumulate = px_misreads(PX_OLD_SUM) ||
                    (*PX_AT(w, uint32_t, op->nargs - 1) >> lane & 1);
    for (int i = 0; i < masks; i++)
        p->disabled[i] = PX_AT(w, uint32_t, INSTRUCTION + 1 + i)[lane];
    if (px_row_of(d))
        return px_fault(w, op, lane, "D begins in lane %u", px_row_of(d));
    if (read_instruction(w, op, lane, bits, p) ||
        (p->blocks && read_scales(w, op, lane, bits, p)))
        return PX_FAULT;
    if (read_a(w, op, lane, p))
        return PX_FAULT;
    return px_tensor_matrix(w, op, lane, PX_AT(w, uint64_t, B)[lane], &p->b);
}

/* A in tensor memory, and scales. */
static int check_tensor_operands(struct px_warp *w, const struct px_op *op,
                                 int lane, const struct product *p,
                                 struct px_cta *cta)
{
    if (p->a_in_tensor) {
        if (px_tmem_will_read(w, op, lane, cta, p->a_column, A_COLUMNS, "A"))
            return PX_FAULT;
        px_tmem_used(w, cta, p->a_column, A_COLUMNS);
    }
    for (int k = 0; p->blocks && k < 2; k++) {
        const struct scale *s = &p->scale[k];

        if (px_tmem_will_read(w, op, lane, cta, s->column, s->columns,
                              "scales"))
            return PX_FAULT;
        px_tmem_used(w, cta, s->column, s->columns);
    }
    return PX_NEXT;
}

/* Both CTAs' operands and sums. */
static int check_product(struct px_warp *w, const struct px_op *op, int lane,
                         const struct product *p)
{
    px_tensor_count(w, lane);
    for (int i = 0; i < p->ctas; i++) {
        struct px_cta *cta = px_tensor_cta(w, op, lane, p->ctas, i);
        const uint32_t n = (uint32_t)p->n;

        if (!cta ||
            (!p->a_in_tensor &&
             px_matrix_issued(w, op, lane, cta, &p->a, a_units(p))) ||
            px_matrix_issued(w, op, lane, cta, &p->b, b_units(p)) ||
            check_tensor_operands(w, op, lane, p, cta))
            return PX_FAULT;
        if (p->accumulate && px_tmem_will_read(w, op, lane, cta, p->column, n,
                                               "a sum to be added to"))
            return PX_FAULT;
        if (px_tmem_will_write(w, op, lane, cta, p->column, n))
            return PX_FAULT;
    }
    return PX_NEXT;
}

static int issue(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    PX_EACH (mask) {
        struct px_async *async =
            px_tensor_issue(w, op, i, land_product, sizeof(struct product));

        if (!async || read_product(w, op, i, async->work) ||
            check_product(w, op, i, async->work))
            return PX_FAULT;
    }
    return PX_NEXT;
}

/* -------------------------------------------------------------------- names */

/* Blocks of a step of k by the end of a name; -1 if it has no such end. */
static int blocks_of(const struct kind *kind, const char *end)
{
    static const struct {
        const char *kind, *end;
        int blocks;
    } ends[] = {
        {"mxf8f6f4", "", 1},
        {"mxf8f6f4", ".scale_vec::1X", 1},
        {"mxf8f6f4", ".block32", 1},
        {"mxf4", "", 2},
        {"mxf4", ".scale_vec::2X", 2},
        {"mxf4", ".block32", 2},
        {"mxf4nvf4", ".scale_vec::2X", 2},
        {"mxf4nvf4", ".block32", 2},
        {"mxf4nvf4", ".scale_vec::4X", 4},
        {"mxf4nvf4", ".block16", 4},
    };

    if (!kind->scaled)
        return *end ? NONE : 0;
    if (strncmp(end, ".block_scale", 12))
        return NONE;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(ends[i].kind, kind->name) && !strcmp(ends[i].end, end + 12))
            return ends[i].blocks;
    return NONE;
}

/* kind::f16 [d], a or [a], b, instruction (, {lanes}), p
   kind::mxf4.block_scale.block32 [d], a, b, instruction, [scales of A],
   [of B], p */
int px_setup_tensor_product(struct px_build *b, const char *rest)
{
    char name[20];
    int kind = 0, used = 0, blocks, masks;

    if (sscanf(rest, "kind::%19[a-z0-9]%n", name, &used) != 1)
        return PX_NEXT;
    while (kind < KINDS && strcmp(kinds[kind].name, name))
        kind++;
    blocks = kind < KINDS ? blocks_of(&kinds[kind], rest + used) : NONE;
    if (blocks == NONE)
        return PX_NEXT;
    masks = b->noperands - (blocks ? 7 : 5);
    if (masks && (blocks || masks != 4 * b->program->tensor))
        return px_bad(b, "has another count of operands");
    b->op->run = issue;
    b->op->sub = (short)(kind | masks << MASKS);
    b->op->vector = (short)blocks;
    if (b->operand[A].kind == 'r' && !b->operand[A].wide)
        b->op->space = 't';
    for (int i = 0; i < b->noperands - 1; i++)
        if (px_give(b, i,
                    i == B || (i == A && b->op->space != 't') ? 'd' : 'r'))
            return PX_FAULT;
    return px_give(b, b->noperands - 1, 'p') ? PX_FAULT : PX_EXIT;
}
