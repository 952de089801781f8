//$ -- SPDX-License-Identifier: Apache-2.0
//$ local two, pairs = operands ~= "one", operands == "runs" and interleave == 1
//$ local constants = ", s->of->limit, s->of->slope, s->of->shift"
//$ local more = activation == "clamped_swiglu" and constants or ""
/*
** p = alpha * sum + bias in fp32, stored where it is wanted,
//$ if activation == "none" then
** and the result itself; with a probability the bias is times the row's.
//$ elseif two then
** and $(activation)(a, b) of two columns of p, times the row's probability. Both are a thread's: of
** a warp's 16 rows of B the first 8 make a, the others b.
//$ if operands == "halves" then
** The tile has as many rows of each half of B.
//$ end
//$ else
** and $(activation)(p), times the row's probability.
//$ end
**
** A thread has two columns of p, of 2 rows of each 8. A warp stores 32 rows at a time: 8 columns
** are a box.
*/
//$ if activation ~= "none" then
//$ once("activation/" .. activation .. ".c")

//$ end
//$ if activation == "none" then
//$ once "cast/arith.c"

//$ end
/* As the caller gave it; each may be null. */
struct follow {
    const float *alpha, *bias, *probability;
    const void *saved;
    int step; /* from one group's alpha to the next's: 0 or 1 */
    int columns; /* of p */
//$ if activation == "clamped_swiglu" then
    float limit, slope, shift;
//$ end
};

/* One tile's state of it: read when the tile is multiplied, as sums leave no registers. */
struct finish {
    const struct follow *of;
};

FN struct finish finish_of(const struct follow *f, const struct tile *t, int row, int rows,
                           int lane)
{
    const struct finish s = { f };

    return s;
}

enum { PART = SLAB_ROWS / 2 }; /* of a thread's sums, for SLAB_ROWS rows */

/* The columns of a warp's boxes. */
struct places {
    int p[2], d[2]; /* of p, of D */
    int column[2];  /* of p, the thread's */
};

FN struct places places_of(const struct maps *maps, const struct tile *t, int lane)
{
    const int first = t->column + threadIdx.x / 32 % 4 * 16;
    struct places at;

//$ if two then
    at.d[0] = at.d[1] = first / 2;
//$ end
//$ if operands == "halves" then
    at.p[0] = first / 2;
    at.p[1] = first / 2 + maps->half;
//$ elseif operands == "runs" and interleave > 8 then
    at.p[0] = first / $(2 * interleave) * $(2 * interleave) + first / 2 % $(interleave);
    at.p[1] = at.p[0] + $(interleave);
//$ else
    at.p[0] = first;
    at.p[1] = first + 8;
//$ end
//$ if not two then
    at.d[0] = at.p[0];
    at.d[1] = at.p[1];
//$ end
//$ if pairs then
    at.column[0] = first + lane / 4 * 2;
    at.column[1] = at.column[0] + 1;
//$ else
    at.column[0] = at.p[0] + lane / 4;
    at.column[1] = at.p[1] + lane / 4;
//$ end
    return at;
}

/* 32 rows of two boxes: words of two rows of a column. */
FN void fill_columns(unsigned int slab, const float part[PART], int lane)
{
    for (int i = 0; i < SLAB_ROWS / 16; i++) {
        const int row = i * 16 + lane / 16 * 8 + lane % 8;
        const float *s = part + 8 * i;

        store_matrix_x4_turned(slab + lane / 8 % 2 * SLAB_BYTES + row * 16, pack(s[0], s[1]),
                               pack(s[2], s[3]), pack(s[4], s[5]), pack(s[6], s[7]));
    }
}

/* The same where a thread's columns are neighbours. */
FN void fill_neighbours(unsigned int slab, const float part[PART], int lane)
{
    for (int i = 0; i < PART / 2; i++) {
        const int row = i / 2 * 8 + lane % 4 * 2 + i % 2;
        const float *s = part + i / 2 * 4 + i % 2;

        store_shared_word(slab + lane / 16 * SLAB_BYTES + row * 16 + lane / 4 % 4 * 4,
                          pack(s[0], s[2]));
    }
}

/* 32 rows of one box. */
FN void fill_results(unsigned int slab, const float result[PART / 2], int lane)
{
    store_matrix_x4_turned(slab + lane * 16, pack(result[0], result[1]),
                           pack(result[2], result[3]), pack(result[4], result[5]),
                           pack(result[6], result[7]));
}

/* The warp's sums of 32 rows from `y` on become elements of p. */
FN void finish_part(float part[PART], const struct finish *s, float alpha, const float bias[2],
                    const float probability[PART / 2])
{
#pragma unroll
    for (int i = 0; i < PART; i++)
        part[i] = __fmul_rn(alpha, part[i]);
    if (!s->of->bias)
        return;
#pragma unroll
    for (int i = 0; i < PART; i++)
//$ if activation == "none" then
        part[i] = __fadd_rn(part[i], __fmul_rn(bias[i / 2 % 2], probability[i / 4 * 2 + i % 2]));
//$ else
        part[i] = __fadd_rn(part[i], bias[i / 2 % 2]);
//$ end
}

/* One warp stores its columns of a tile. */
FN void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, const struct finish *s, int row, int rows, int lane)
{
    const struct follow *f = s->of;
    const struct places at = places_of(maps, t, lane);
    const float alpha = f->alpha ? __ldg(f->alpha + t->group * f->step) : 1;
    const float *of_group = f->bias + (f->bias ? (long long)t->group * f->columns : 0);
    float bias[2];
//$ if activation ~= "none" then
    struct maps given = *maps; /* where p goes */

    given.d = maps->p;
    given.d_ragged = maps->p_ragged;
//$ end
    for (int i = 0; i < 2; i++)
        bias[i] = f->bias && at.column[i] < f->columns ? __ldg(of_group + at.column[i]) : 0;
#pragma unroll
    for (int i = 0; i < ROWS / SLAB_ROWS; i++) {
        const int y = row + i * SLAB_ROWS;
        const unsigned int results = slabs->first + 2 * SLAB_BYTES;
        float *part = sum + i * PART;
        float probability[PART / 2];

        if (y >= rows)
            break;
#pragma unroll
        for (int j = 0; j < PART / 2; j++) {
            const int own = y + j / 2 * 8 + lane % 4 * 2 + j % 2;

            probability[j] = f->probability && own < rows ? __ldg(f->probability + t->start + own)
                                                          : 1;
        }
        finish_part(part, s, alpha, bias, probability);
//$ if activation ~= "none" then
        if (f->saved) {
            if (lane == 0)
                store_wait($(two and 1 or 2)); /* those of the rows before */
            __syncwarp();
            fill_$(pairs and "neighbours" or "columns")(slabs->first, part, lane);
            copy_engine_fence();
            __syncwarp();
            if (lane == 0) {
                store_slab(&given, slabs->first, t, at.p[0], y, rows);
                store_slab(&given, slabs->first + SLAB_BYTES, t, at.p[1], y, rows);
            }
        }
//$ if two then
#pragma unroll
        for (int j = 0; j < PART / 2; j++) {
            const float *operand = part + j / 2 * 4 + j % 2;

            part[j] = mul_rn($(activation)(operand[0], operand[2]$(more)), probability[j]);
        }
//$ else
#pragma unroll
        for (int j = 0; j < PART; j++)
            part[j] = mul_rn($(activation)(part[j], 0$(more)), probability[j / 4 * 2 + j % 2]);
//$ end
//$ end
        if (lane == 0) {
//$ if activation ~= "none" then
            if (f->saved)
                store_wait(2); /* those of p */
            else
//$ end
            $(activation ~= "none" and "    " or "")store_wait(0);
        }
        __syncwarp();
        fill_$(two and "results" or "columns")(results, part, lane);
        copy_engine_fence();
        __syncwarp();
        if (lane == 0) {
            store_slab(maps, results, t, at.d[0], y, rows);
//$ if not two then
            store_slab(maps, results + SLAB_BYTES, t, at.d[1], y, rows);
//$ end
        }
    }
}
