/* SPDX-License-Identifier: Apache-2.0 */
/* mma.c: products of a warp, and matrices between registers and memory. */
#include "build.h"
#include "hazard.h"
#include "lanes.h"
#include "mma.h"
#include "wgmma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *half_table;
static float byte_table[PX_TYPES][256];

static int fill_tables(void)
{
    if (half_table)
        return PX_NEXT;
    half_table = malloc(65536 * sizeof *half_table);
    if (!half_table)
        return px_fault_plain("out of memory");
    for (int i = 0; i < 65536; i++)
        half_table[i] = px_float_of_half((uint16_t)i);
    for (int i = 0; i < 256; i++) {
        byte_table[PX_E4M3][i] = px_float_of_e4m3((uint8_t)i);
        byte_table[PX_E5M2][i] = px_float_of_e5m2((uint8_t)i);
        byte_table[PX_S8][i] = (int8_t)i;
        byte_table[PX_E3M2][i] = px_float_of_e3m2((uint8_t)i);
        byte_table[PX_E2M3][i] = px_float_of_e2m3((uint8_t)i);
        byte_table[PX_E2M1][i] = px_float_of_e2m1((uint8_t)(i >> 2));
    }
    return PX_NEXT;
}

void px_mma_decode(float *to, const void *from, int count, int type)
{
    const uint16_t *words = from;
    const uint8_t *bytes = from;

    switch (type) {
    case PX_F16:
        for (int i = 0; i < count; i++)
            to[i] = half_table[words[i]];
        break;
    case PX_BF16:
        for (int i = 0; i < count; i++)
            to[i] = px_float_of_bf16(words[i]);
        break;
    case PX_E2M1X2:
        for (int i = 0; i < count; i++)
            to[i] = px_float_of_e2m1(bytes[i / 2] >> i % 2 * 4);
        break;
    case PX_TF32: /* the low bits are not used */
        for (int i = 0; i < count; i++) {
            const uint32_t bits = ((const uint32_t *)from)[i] & ~0x1fffu;

            memcpy(&to[i], &bits, 4);
        }
        break;
    default:
        for (int i = 0; i < count; i++)
            to[i] = byte_table[type][bytes[i]];
        break;
    }
}

enum { COLUMNS = 8 };
typedef float floats __attribute__((vector_size(4 * COLUMNS)));

/* There are whole pieces of four rows and of so many columns. */
PX_FAST void px_mma_multiply(float *restrict c, const float *restrict a,
                             const float *restrict b, int m, int n, int k)
{
    for (int i = 0; i < m; i += 4, a += 4 * k, c += 4 * n)
        for (int j = 0; j < n; j += COLUMNS) {
            floats p = {0}, q = {0}, r = {0}, s = {0}, x;

            for (int at = 0; at < k; at++) {
                memcpy(&x, b + at * n + j, sizeof x);
                p += a[at] * x;
                q += a[k + at] * x;
                r += a[2 * k + at] * x;
                s += a[3 * k + at] * x;
            }
            memcpy(c + j, &p, sizeof p);
            memcpy(c + n + j, &q, sizeof q);
            memcpy(c + 2 * n + j, &r, sizeof r);
            memcpy(c + 3 * n + j, &s, sizeof s);
        }
}

int px_mma_per_word(int type)
{
    switch (type) {
    case PX_TF32:
        return 1;
    case PX_F16:
    case PX_BF16:
        return 2;
    case PX_E2M1X2:
        return 8;
    default:
        return 4;
    }
}

/* The fragment of A in four registers: 16 rows of two times 16 bytes. */
void px_mma_rows(const struct px_warp *w, const int32_t *arg, float *to,
                 int type)
{
    const int per_word = px_mma_per_word(type);
    const int k = 8 * per_word;

    for (int r = 0; r < 4; r++) {
        const int other = px_misreads(PX_FRAGMENT) && r % 3 ? 3 - r : r;
        const uint32_t *word = (const void *)(w->file + arg[other]);

        for (int i = 0; i < PX_LANES; i++)
            px_mma_decode(to + (i / 4 + r % 2 * 8) * k +
                              (r / 2 * 4 + i % 4) * per_word,
                          &word[i], per_word, type);
    }
}

static int types_of(const char *name)
{
    static const char *const names[] = {"f16",  "bf16", "e4m3",
                                        "e5m2", "s8",   "tf32"};

    for (int i = 0; i < 6; i++)
        if (!strncmp(name, names[i], strlen(names[i])) &&
            strchr(".", name[strlen(names[i])]))
            return i;
    return -1;
}

int px_mma_type(const char *name)
{
    return types_of(name);
}

/* That of B in two registers: two times 16 bytes of each of 8 columns. */
void px_mma_columns(const struct px_warp *w, const int32_t *arg, float *to,
                    int type)
{
    const int per_word = px_mma_per_word(type);
    float column[8];

    for (int r = 0; r < 2; r++) {
        const uint32_t *word = (const void *)(w->file + arg[r]);

        for (int i = 0; i < PX_LANES; i++) {
            px_mma_decode(column, &word[i], per_word, type);
            for (int x = 0; x < per_word; x++)
                to[((r * 4 + i % 4) * per_word + x) * 8 + i / 4] = column[x];
        }
    }
}

void px_mma_add(struct px_warp *w, const struct px_op *op, const float *sum)
{
    for (int r = 0; r < 4; r++) {
        const float *c = PX_AT(w, float, 10 + r);
        float *d = PX_AT(w, float, r);

        for (int i = 0; i < PX_LANES; i++)
            d[i] = c[i] + sum[(i / 4 + r / 2 * 8) * 8 + i % 4 * 2 + r % 2];
    }
}

/* mma.sync m16n8: d, a, b, c; all lanes. */
static int product(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    float a[16 * 32], b[32 * 8], sum[16 * 8];

    (void)mask;
    px_mma_rows(w, op->arg + 4, a, op->sub & 15);
    px_mma_columns(w, op->arg + 8, b, op->sub >> 4);
    px_mma_multiply(sum, a, b, 16, 8, op->size);
    px_mma_add(w, op, sum);
    return PX_NEXT;
}

/* ----------------------------------------------------------------- matrices */

/* {words}, [row of each lane]; op->sub: transposed */
static int load_matrices(struct px_warp *w, const struct px_op *op,
                         uint32_t mask)
{
    const int n = op->vector;
    uint16_t all[4][8][8];

    (void)mask;
    for (int i = 0; i < 8 * n; i++) {
        const uint64_t at = px_address(w, op, n, i);
        const unsigned char *row = px_memory_at(w, op, 's', at, 16, i);

        if (!row)
            return PX_FAULT;
        memcpy(all[i / 8][i % 8], row, 16);
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < PX_LANES; i++) {
            const int x = i / 4, y = i % 4 * 2;

            PX_AT(w, uint32_t, r)
            [i] = op->sub && !px_misreads(PX_MATRIX)
                      ? all[r][y][x] | (uint32_t)all[r][y + 1][x] << 16
                      : all[r][x][y] | (uint32_t)all[r][x][y + 1] << 16;
        }
    return PX_NEXT;
}

/* [row of each lane], {words} */
static int store_matrices(struct px_warp *w, const struct px_op *op,
                          uint32_t mask)
{
    const int n = op->vector;
    uint16_t all[4][8][8];

    (void)mask;
    px_machine.clock++;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < PX_LANES; i++) {
            const uint32_t given = PX_AT(w, uint32_t, 1 + r)[i];
            const uint32_t word =
                px_misreads(PX_STORED) ? given << 16 | given >> 16 : given;
            const int x = i / 4, y = i % 4 * 2;

            all[r][op->sub ? y : x][op->sub ? x : y] = (uint16_t)word;
            all[r][op->sub ? y + 1 : x][op->sub ? x : y + 1] = word >> 16;
        }
    for (int i = 0; i < 8 * n; i++) {
        const uint64_t at = px_address(w, op, 0, i);
        unsigned char *row = px_memory_at(w, op, 's', at, 16, i);

        if (!row)
            return PX_FAULT;
        px_hazard_written(w, row, 16, i);
        memcpy(row, all[i / 8][i % 8], 16);
    }
    return PX_NEXT;
}

/* ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16, with its words in any
   order. */
static int setup_matrices(struct px_build *b, int is_load)
{
    static const char *const plain[] = {"sync",   "aligned",     "m8n8",
                                        "shared", "shared::cta", "b16"};
    char name[80], *save, *word;
    int n = 1, known = 1;

    snprintf(name, sizeof name, "%s", b->mnemonic + strlen("ldmatrix."));
    for (word = strtok_r(name, ".", &save); word && known;
         word = strtok_r(NULL, ".", &save)) {
        known =
            !strcmp(word, "trans") || (*word == 'x' && strchr("124", word[1]));
        b->op->sub |= !strcmp(word, "trans");
        if (*word == 'x')
            n = atoi(word + 1);
        for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
            known |= !strcmp(plain[i], word);
    }
    if (!known)
        return PX_NEXT;
    if (b->noperands != n + 1)
        return px_bad(b, "has another count of operands");
    b->op->run = is_load ? load_matrices : store_matrices;
    b->op->vector = (short)n;
    b->op->meet = PX_MEET_ALL;
    if (!is_load && px_give_address(b, 0))
        return PX_FAULT;
    for (int i = 0; i < n; i++)
        if (px_give(b, i + !is_load, 'r'))
            return PX_FAULT;
    return is_load && px_give_address(b, n) ? PX_FAULT : PX_EXIT;
}

/* mma.sync.aligned.m16n8k16.row.col.f32.A.B.f32 */
static int setup_product(struct px_build *b)
{
    static const char begin[] = "mma.sync.aligned.m16n8k";
    const char *at = b->mnemonic + sizeof begin - 1;
    int k, a_type, b_type;

    if (strncmp(b->mnemonic, begin, sizeof begin - 1))
        return PX_NEXT;
    k = atoi(at);
    at = strstr(at, ".row.col.f32.");
    if (!at || b->noperands != 14)
        return PX_NEXT;
    at += 13;
    a_type = types_of(at);
    b_type = types_of(strchr(at, '.') + 1);
    if (a_type < 0 || b_type < 0 || k != (a_type > PX_BF16 ? 32 : 16))
        return PX_NEXT;
    b->op->run = product;
    b->op->size = (short)k;
    b->op->sub = (short)(a_type | b_type << 4);
    b->op->meet = PX_MEET_ALL;
    for (int i = 0; i < 14; i++)
        if (px_give(b, i, 'r'))
            return PX_FAULT;
    return PX_EXIT;
}

int px_setup_matrix(struct px_build *b)
{
    int code = PX_NEXT;

    if (fill_tables())
        return PX_FAULT;
    if (!strncmp(b->mnemonic, "ldmatrix.", 9))
        code = setup_matrices(b, 1);
    else if (!strncmp(b->mnemonic, "stmatrix.", 9))
        code = setup_matrices(b, 0);
    else if (strstr(b->mnemonic, ".kind::") &&
             !strncmp(b->mnemonic, "mma.sync", 8))
        code = px_setup_scaled(b);
    else if (!strncmp(b->mnemonic, "mma.sync", 8))
        code = setup_product(b);
    else if (!strncmp(b->mnemonic, "wgmma.", 6))
        code = px_setup_wgmma(b);
    return code;
}
