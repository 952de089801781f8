/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.c: the arithmetic of the fake for cuBLASLt. */
#include "product.h"

#include <math.h>

#include "base/element.h"
#include "cublaslt/cublaslt_api.h"

uint64_t fake_op_rows(const struct layout *l, int op)
{
    return op == LT_OP_N ? l->rows : l->columns;
}

uint64_t fake_op_columns(const struct layout *l, int op)
{
    return op == LT_OP_N ? l->columns : l->rows;
}

static int type_of(int type)
{
    return type == LT_R_32F   ? QUERN_F32
           : type == LT_R_16F ? QUERN_F16
                              : QUERN_BF16;
}

size_t fake_place(const struct layout *l, int batch, uint64_t i, uint64_t j)
{
    return (size_t)(batch * l->offset + (int64_t)j * l->ld + (int64_t)i);
}

/* E4M3 or E5M2: so many bits of mantissa, by the definition. */
static float decode(unsigned char byte, int mantissa, int bias)
{
    const int exponent = (byte & 127) >> mantissa;
    const float part =
        (float)(byte & ((1 << mantissa) - 1)) / (float)(1 << mantissa);
    float value = exponent ? 1 + part : part;

    for (int i = exponent ? exponent : 1; i < bias; i++)
        value /= 2;
    for (int i = bias; i < exponent; i++)
        value *= 2;
    return byte & 128 ? -value : value;
}

static float load(const struct layout *l, const void *data, int batch,
                  uint64_t i, uint64_t j)
{
    const unsigned char *bytes = data;

    if (l->type == LT_R_8F_E4M3)
        return decode(bytes[fake_place(l, batch, i, j)], 3, 7);
    if (l->type == LT_R_8F_E5M2)
        return decode(bytes[fake_place(l, batch, i, j)], 2, 15);
    return qn_element_load(data, type_of(l->type), fake_place(l, batch, i, j));
}

/* The factor of element k of A's row or B's column `index`, of `count`. */
static float scale_of(const struct desc *desc, int which, uint64_t index,
                      uint64_t count, uint64_t k, uint64_t length)
{
    const float *scales = desc->scales[which];
    const unsigned char *bytes = desc->scales[which];
    const uint64_t blocks = (length + 127) / 128, tile = k / 128;

    if (!scales)
        return 1;
    switch (desc->modes[which]) {
    case LT_SCALE_OUTER_VECTOR:
        return scales[index];
    case LT_SCALE_VECTOR_128:
        return scales[tile * count + index];
    case LT_SCALE_BLOCK_128:
        return scales[index / 128 * ((blocks + 3) / 4 * 4) + tile];
    case LT_SCALE_VECTOR_32:
        return ldexpf(
            1, bytes[(index / 128 * blocks + tile) * 512 + index % 32 * 16 +
                     index % 128 / 32 * 4 + k / 32 % 4] -
                   127);
    }
    return scales[0];
}

/* One element of op(A) op(B), each with its scales. */
static float sum(const struct desc *desc, const struct layout *const x[4],
                 const void *a, const void *b, int batch, uint64_t i,
                 uint64_t j)
{
    const uint64_t length = fake_op_columns(x[0], desc->ops[0]);
    float total = 0;

    for (uint64_t k = 0; k < length; k++) {
        float left = desc->ops[0] == LT_OP_N ? load(x[0], a, batch, i, k)
                                             : load(x[0], a, batch, k, i);
        float right = desc->ops[1] == LT_OP_N ? load(x[1], b, batch, k, j)
                                              : load(x[1], b, batch, j, k);
        total += left * scale_of(desc, 0, i, x[3]->rows, k, length) * right *
                 scale_of(desc, 1, j, x[3]->columns, k, length);
    }
    return total;
}

void fake_compute(const struct call *call, int batch)
{
    const struct layout *d = call->x[3];

    for (uint64_t j = 0; j < d->columns; j++)
        for (uint64_t i = 0; i < d->rows; i++) {
            float value = call->alpha * sum(call->desc, call->x, call->a,
                                            call->b, batch, i, j);

            if (call->beta != 0)
                value += call->beta * load(call->x[2], call->c, batch, i, j);
            qn_element_store(call->d, type_of(d->type),
                             fake_place(d, batch, i, j), value);
        }
}
