//$ -- SPDX-License-Identifier: Apache-2.0
//$ local copies = epilogue == "copies"
//$ local bias_rows = activation == "none" and ", block" or ""
//$ local two = operands == "halves" or operands == "runs"
//$ local pairs = operands == "runs" and interleave == 1
/*
** p = alpha * sum + bias in fp32, stored where it is wanted,
//$ if activation == "none" then
** and the result itself; with a probability the bias is times the row's.
//$ elseif two then
** and $(activation)(a, b) of two columns of p, times the row's probability. Both are a thread's:
//$   if operands == "halves" then
** the first COLUMNS / 2 columns of the sums are of B's rows that make a, the others of those that
** make b. After the last result come b's first columns; more than one tile may write them, with the
** same values.
//$   else
** columns of a and b alternate in runs of $(interleave).
//$   end
//$ else
** and $(activation)(p), times the row's probability.
//$ end
*/
//$ if activation ~= "none" then
//$ once("activation/" .. activation .. ".c")

//$ end
enum {
    PART = SLAB_COLUMNS / 2, /* of a slab's elements, in each thread */
    OPERANDS = $(two and 2 or 1),
    RESULT_SLABS = ROW_SLABS / OPERANDS
};

//$ if copies then
//$ include "sm90/copies_place.cu"

//$ end
/* As the caller gave it; each may be null. */
struct follow {
    const float *alpha, *bias, *probability;
    const void *saved;
    int step; /* from one group's alpha to the next's: 0 or 1 */
    int columns; /* of p */
//$ if copies then
    struct copies copies;
//$ end
//$ if activation == "clamped_swiglu" then
    float limit, slope, shift;
//$ end
};

//$ include "sm90/finish.cu"

/* A slab's sums, from column x of p on, become elements of p. */
//$ if activation ~= "none" then
FN void finish_part(float part[PART], const struct finish *s, int x, int lane)
{
//$ else
FN void finish_part(float part[PART], const struct finish *s, int x, int lane, int block)
{
    const float high = s->probability[block * 2], low = s->probability[block * 2 + 1];
//$ end
#pragma unroll
    for (int i = 0; i < PART; i++)
        part[i] = __fmul_rn(s->alpha, part[i]);
    if (!s->bias)
        return;
#pragma unroll
    for (int i = 0; i < PART; i += 4) {
        const int column = x + i * 2 + lane % 4 * 2;
        const int inside = column < s->of->columns;
        const float left = inside ? __ldg(s->bias + column) : 0;
        const float right = inside ? __ldg(s->bias + column + 1) : 0;

//$ if activation == "none" then
        part[i] = __fadd_rn(part[i], __fmul_rn(left, high));
        part[i + 1] = __fadd_rn(part[i + 1], __fmul_rn(right, high));
        part[i + 2] = __fadd_rn(part[i + 2], __fmul_rn(left, low));
        part[i + 3] = __fadd_rn(part[i + 3], __fmul_rn(right, low));
//$ else
        part[i] = __fadd_rn(part[i], left);
        part[i + 1] = __fadd_rn(part[i + 1], right);
        part[i + 2] = __fadd_rn(part[i + 2], left);
        part[i + 3] = __fadd_rn(part[i + 3], right);
//$ end
    }
}

//$ if activation ~= "none" then
//$ local constants = ", s->of->limit, s->of->slope, s->of->shift"
//$ local more = activation == "clamped_swiglu" and constants or ""
//$ if pairs then
/* A thread's i-th result of a slab of D, whose rows alternate, from the sums whose first is `part`.
   */
//$ else
/* The i-th element of a slab of D, from the sums whose first is `part`. */
//$ end
FN float result_of(const float *part, const struct finish *s, int i, int block)
{
//$ if operands == "halves" then
    const float a = part[i], b = part[i + COLUMNS / 4];
//$ elseif pairs then
    const float a = part[2 * i], b = part[2 * i + 1];
//$ elseif operands == "runs" then
    const int run = $(interleave // 2), at = i / run * 2 * run + i % run;
    const float a = part[at], b = part[at + run];
//$ else
    const float a = part[i], b = 0;
//$ end

//$ local low = pairs and "i % 2" or "i / 2 % 2"
    return mul_rn($(activation)(a, b$(more)), s->probability[block * 2 + $(low)]);
}

//$ end
//$ if copies then
//$ include "sm90/copies.cu"
//$ else
/* One warp stores its rows of a tile, a slab of results at a time. */
FN void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, const struct finish *s, int row, int rows,
                   int lane)
{
//$ if activation ~= "none" then
    struct maps given = *maps; /* where p goes */

    given.d = maps->p;
    given.d_ragged = maps->p_ragged;
//$ end
#pragma unroll
    for (int i = 0; i < ROWS / 64 * RESULT_SLABS; i++) {
        const int block = i / RESULT_SLABS, slab = i % RESULT_SLABS, y = row + block * 64;
//$ if operands == "halves" then
        const int apart = COLUMNS / 4, beside = maps->half; /* elements and columns, from a to b */
        const int x = t->column / 2 + slab * SLAB_COLUMNS, first = x;
        float *part = sum + block * (COLUMNS / 2) + slab * PART;
//$ elseif operands == "runs" then
        const int apart = PART, beside = SLAB_COLUMNS; /* elements and columns, of two slabs */
        const int x = t->column / 2 + slab * SLAB_COLUMNS, first = 2 * x;
        float *part = sum + block * (COLUMNS / 2) + slab * 2 * PART;
//$ else
        const int apart = 0, beside = 0;
        const int x = t->column + slab * SLAB_COLUMNS, first = x;
        float *part = sum + block * (COLUMNS / 2) + slab * PART;
//$ end
//$ local is_p, is_result = pairs and ", 0" or "", pairs and ", 1" or ""
//$ if activation ~= "none" then
        float result[PART];
//$ end

        if (y >= rows)
            break;
#pragma unroll
        for (int j = 0; j < OPERANDS; j++) {
            finish_part(part + j * apart, s, first + j * beside, lane$(bias_rows));
//$ if activation ~= "none" then
            if (s->of->saved)
                put_slab(slabs, &given, part + j * apart, t, first + j * beside, y, rows, lane$(is_p));
//$ end
        }
//$ if activation ~= "none" then
#pragma unroll
        for (int j = 0; j < PART; j++)
            result[j] = result_of(part, s, j, block);
        put_slab(slabs, maps, result, t, x, y, rows, lane$(is_result));
//$ else
        put_slab(slabs, maps, part, t, x, y, rows, lane);
//$ end
    }
}
//$ end
