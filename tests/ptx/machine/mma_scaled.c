/* SPDX-License-Identifier: Apache-2.0 */
/*
** mma_scaled.c: mma.sync with a .kind, of sm_120a: elements of 8, 6 and 4 bits,
** with scales of blocks or without.
**
** From the PTX ISA 9.2: which lanes and bytes have the scales, 9.7.14.3, "Block
** Scaling for mma.sync"; that of a pair of lanes the first has A's rows 0 to 7
** is in its Figure 43 only, and taken from CUTLASS' SFALayout. The elements:
** 9.7.14.5, "Matrix Fragments for mma.m16n8k32" and "for mma.m16n8k64". An e2m1
** that has a byte is bits 2 to 5 of it, as CUTLASS has it for sm_120a. The bits
** that pad an element must be 0 here: the ISA does not say how set ones are
** read.
**
** A block's sum is plain fp32, as those of the other mma.sync are. Its scales
** are applied exactly, and the result is rounded to fp32.
*/
#include "build.h"
#include "mma.h"
#include "wgmma.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The operands d, a, b, c have 14 registers. */
enum { A = 4, B = 8, SCALE_A = 14, SCALE_B = 17, PLAIN = 14, SCALED = 20 };

enum { E4M3_SCALES = 1 << 8 }; /* in op->sub, above the types of A and B */

static const struct form {
    const char *kind, *scale;
    int k, blocks; /* of k, each with a scale: .scale_vec */
    int implied;   /* .scale_vec may be left out */
} forms[] = {
    {"f8f6f4", NULL, 32, 0, 1},      {"mxf8f6f4", "ue8m0", 32, 1, 1},
    {"mxf4", "ue8m0", 64, 2, 1},     {"mxf4nvf4", "ue8m0", 64, 2, 0},
    {"mxf4nvf4", "ue8m0", 64, 4, 0}, /* refused by ptxas 13.0 */
    {"mxf4nvf4", "ue4m3", 64, 4, 0},
};

struct scales {
    double a[16][4], b[8][4];
};

/* --------------------------------------------------------------- selectors */

/* The value of a byte-id or thread-id, which is one of the bits of `valid`. */
static int select_by(struct px_warp *w, const struct px_op *op, int i,
                     unsigned valid, int *out)
{
    static const char *const names[] = {"byte-id", "thread-id"};
    const char side = i < SCALE_B ? 'a' : 'b';
    const char *name = names[i - (side == 'a' ? SCALE_A : SCALE_B) - 1];
    const uint32_t *given = PX_AT(w, uint32_t, i);

    for (int lane = 0; lane < PX_LANES; lane++) {
        const unsigned id = given[lane] & 0xffff;

        if (id > 3 || !(valid >> id & 1))
            return px_fault(w, op, lane, "there is no %s-%c %u", name, side,
                            id);
        if (lane && (int)id != *out)
            return px_fault(w, op, lane, "%s-%c is not lane 0's", name, side);
        *out = (int)id;
    }
    return PX_NEXT;
}

static double scale_of(const struct px_op *op, uint32_t word, int byte)
{
    const uint8_t code = (uint8_t)(word >> 8 * byte);
    const int is_e4m3 = (op->sub & E4M3_SCALES) != 0;

    if (is_e4m3 != px_misreads(PX_SCALE_TYPE)) /* without a sign */
        return px_float_of_e4m3(code & 0x7f);
    return code == 255 ? NAN : ldexp(1, code - 127);
}

/* The pair of each four lanes that thread-id-a names has scales of A, the one
   that thread-id-b names has those of B, from the byte byte-id on. */
static int read_scales(struct px_warp *w, const struct px_op *op,
                       struct scales *out)
{
    static const unsigned bytes[] = {0, 15, 5, 0, 1}; /* by .scale_vec */
    const unsigned valid = bytes[op->vector];
    const int other = px_misreads(PX_SCALE_ROWS);
    const uint32_t *a = PX_AT(w, uint32_t, SCALE_A);
    const uint32_t *b = PX_AT(w, uint32_t, SCALE_B);
    int byte_a, lane_a, byte_b, lane_b;

    if (select_by(w, op, SCALE_A + 1, valid, &byte_a) ||
        select_by(w, op, SCALE_A + 2, 3, &lane_a) ||
        select_by(w, op, SCALE_B + 1, valid, &byte_b) ||
        select_by(w, op, SCALE_B + 2, 15, &lane_b))
        return PX_FAULT;
    if (px_misreads(PX_SCALE_BYTES))
        byte_a = byte_b = 0;
    if (px_misreads(PX_SCALE_LANES))
        lane_a = lane_b = 0;
    for (int v = 0; v < op->vector; v++) {
        const int at = px_misreads(PX_SCALE_BLOCKS) ? op->vector - 1 - v : v;

        for (int row = 0; row < 16; row++)
            out->a[row][v] =
                scale_of(op, a[row % 8 * 4 + lane_a * 2 + (row / 8 ^ other)],
                         byte_a + at);
        for (int column = 0; column < 8; column++)
            out->b[column][v] =
                scale_of(op, b[column * 4 + lane_b], byte_b + at);
    }
    return PX_NEXT;
}

/* ---------------------------------------------------------------- products */

static int check_padding(struct px_warp *w, const struct px_op *op, int first,
                         int type)
{
    static const uint32_t padding[PX_TYPES] = {
        [PX_E3M2] = 0xc0c0c0c0, [PX_E2M3] = 0xc0c0c0c0, [PX_E2M1] = 0xc3c3c3c3};
    const int end = first == A ? B : B + 2;

    for (int i = first; i < end; i++)
        for (int lane = 0; lane < PX_LANES; lane++) {
            const uint32_t word = PX_AT(w, uint32_t, i)[lane];

            if (word & padding[type])
                return px_fault(
                    w, op, lane,
                    "0x%08x of %c: bits that pad an element are set", word,
                    first == A ? 'A' : 'B');
        }
    return PX_NEXT;
}

static void add_blocks(float *sum, const float *a, const float *b,
                       const struct scales *scales, int k, int blocks)
{
    const int size = k / blocks;
    float rows[16 * 64], block[16 * 8];

    memset(sum, 0, sizeof block);
    for (int v = 0; v < blocks; v++) {
        for (int i = 0; i < 16; i++)
            memcpy(rows + i * size, a + i * k + v * size,
                   (size_t)size * sizeof *rows);
        px_mma_multiply(block, rows, b + v * size * 8, 16, 8, size);
        for (int i = 0; i < 16 * 8; i++)
            sum[i] +=
                (float)(block[i] * scales->a[i / 8][v] * scales->b[i % 8][v]);
    }
}

static int product(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int a_type = op->sub & 15, b_type = op->sub >> 4 & 15;
    float a[16 * 64], b[64 * 8], sum[16 * 8];
    struct scales scales;

    (void)mask;
    if (check_padding(w, op, A, a_type) || check_padding(w, op, B, b_type))
        return PX_FAULT;
    px_mma_rows(w, op->arg + A, a, a_type);
    px_mma_columns(w, op->arg + B, b, b_type);
    if (op->vector) {
        if (read_scales(w, op, &scales))
            return PX_FAULT;
        add_blocks(sum, a, b, &scales, op->size, op->vector);
    } else {
        px_mma_multiply(sum, a, b, 16, 8, op->size);
    }
    px_mma_add(w, op, sum);
    return PX_NEXT;
}

/* -------------------------------------------------------------------- names */

/* The words of a name; which come first, ptxas leaves open. */
struct words {
    const char *kind, *types[5]; /* of D, A, B, C and the scales */
    int ntypes, k, blocks, scaled;
};

static int read_words(char *name, struct words *out)
{
    char *save;

    memset(out, 0, sizeof *out);
    for (char *word = strtok_r(name, ".", &save); word;
         word = strtok_r(NULL, ".", &save)) {
        if (!strncmp(word, "kind::", 6))
            out->kind = word + 6;
        else if (!strncmp(word, "scale_vec::", 11))
            out->blocks = atoi(word + 11);
        else if (!strncmp(word, "m16n8k", 6))
            out->k = atoi(word + 6);
        else if (!strcmp(word, "block_scale"))
            out->scaled = 1;
        else if (strcmp(word, "row") && strcmp(word, "col")) {
            if (out->ntypes == 5)
                return 0;
            out->types[out->ntypes++] = word;
        }
    }
    return out->kind && out->ntypes == 4 + out->scaled &&
           !strcmp(out->types[0], "f32") && !strcmp(out->types[3], "f32");
}

static const struct form *find_form(const struct words *words)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const struct form *f = &forms[i];

        if (strcmp(f->kind, words->kind) || f->k != words->k ||
            words->scaled != (f->blocks > 0) ||
            (words->blocks ? words->blocks != f->blocks : !f->implied) ||
            (f->scale && strcmp(f->scale, words->types[4])))
            continue;
        return f;
    }
    return NULL;
}

/* -1 for none */
static int type_of(const char *name, const struct form *form)
{
    static const struct {
        const char *name;
        int k, type;
    } types[] = {
        {"e4m3", 32, PX_E4M3}, {"e5m2", 32, PX_E5M2}, {"e3m2", 32, PX_E3M2},
        {"e2m3", 32, PX_E2M3}, {"e2m1", 32, PX_E2M1}, {"e2m1", 64, PX_E2M1X2},
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].k == form->k && !strcmp(types[i].name, name))
            return types[i].type;
    return -1;
}

/* mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.
   f32.A.B.f32.ue8m0 d, a, b, c, scales, {byte, thread}, scales, {...} */
int px_setup_scaled(struct px_build *b)
{
    static const char begin[] = "mma.sync.aligned.";
    const struct form *form;
    struct words words;
    char name[160];
    int a_type, b_type;

    if (strncmp(b->mnemonic, begin, sizeof begin - 1))
        return PX_NEXT;
    snprintf(name, sizeof name, "%s", b->mnemonic + sizeof begin - 1);
    if (!read_words(name, &words) || !(form = find_form(&words)))
        return PX_NEXT;
    a_type = type_of(words.types[1], form);
    b_type = type_of(words.types[2], form);
    if (a_type < 0 || b_type < 0)
        return PX_NEXT;
    if (b->noperands != (form->blocks ? SCALED : PLAIN))
        return px_bad(b, "has another count of operands");
    b->op->run = product;
    b->op->size = (short)form->k;
    b->op->vector = (short)form->blocks;
    b->op->sub = (short)(a_type | b_type << 4);
    if (form->scale && !strcmp(form->scale, "ue4m3"))
        b->op->sub |= E4M3_SCALES;
    b->op->meet = PX_MEET_ALL;
    for (int i = 0; i < b->noperands; i++)
        if (px_give(b, i, 'r'))
            return PX_FAULT;
    return PX_EXIT;
}
