//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A tile's results as the tensors that quantize makes of them: rounded to $(d.type) first, as it
** reads them. They are 128 rows x 128 columns, one block of scales of either copy.
**
**   rowwise tensor     a scale for a row's 128 results: a warp has 16 rows of them
**   columnwise tensor  a scale for a column's 128 rows, after the group's last one zeros,
**                transposed: the warps tell each other the largest value of their columns
**
** A thread holds results of two rows, `row` + lane / 4 and 8 below, packed in pairs: pair j of a
** row has columns 8 j + 2 (lane % 4) and the next one, as sums have.
*/
//$ local back = epilogue == "gradient_copies"
//$ if activation == "none" then
//$ end
//$ once "cast/arith.c"
//$ once("cast/from_" .. d.type .. ".c")
//$ once("cast/to_" .. a.type .. ".c")
/* From a block's largest magnitude: the stored scale, and the values' factor. */
//$ rule "scale"

enum { BLOCK = 128, PAIRS = BLOCK / 8 };

struct packed {
    unsigned int row[2][PAIRS];
};

//$ include "sm90/pairs.cu"

//$ if not back then
/* A thread's sums become results; the pre-activation is stored if it is wanted. */
//$ local to = activation ~= "none" and "struct slabs *slabs, const struct maps *maps, " or ""
FN void find_results(struct packed *packed, float sum[SUMS], const struct tile *t,
                     $(to)const struct finish *s, int row, int rows, int lane)
{
    const int above = row + lane / 4 < rows, below = row + lane / 4 + 8 < rows;
//$ if activation ~= "none" then
    struct maps given = *maps; /* where p goes */

    given.d = maps->p;
    given.d_ragged = maps->p_ragged;
//$ end
#pragma unroll
    for (int slab = 0; slab < RESULT_SLABS; slab++) {
//$ if operands == "halves" then
        const int apart = COLUMNS / 4, beside = maps->half; /* elements and columns, from a to b */
        const int first = t->column / 2 + slab * SLAB_COLUMNS;
        float *part = sum + slab * PART;
//$ elseif operands == "runs" then
        const int apart = PART, beside = SLAB_COLUMNS; /* elements and columns, of two slabs */
        const int first = t->column + slab * 2 * SLAB_COLUMNS;
        float *part = sum + slab * 2 * PART;
//$ else
        const int apart = 0, beside = 0;
        const int first = t->column + slab * SLAB_COLUMNS;
        float *part = sum + slab * PART;
//$ end
#pragma unroll
        for (int j = 0; j < OPERANDS; j++) {
//$ local bias_rows = activation == "none" and ", 0" or ""
            finish_part(part + j * apart, s, first + j * beside, lane$(bias_rows));
//$ if activation ~= "none" then
            if (s->of->saved && row < rows)
                put_slab(slabs, &given, part + j * apart, t, first + j * beside, row, rows, lane);
//$ end
        }
#pragma unroll
        for (int i = 0; i < PART / 4; i++) {
            float result[4];

#pragma unroll
            for (int j = 0; j < 4; j++)
//$ if activation ~= "none" then
                result[j] = result_of(part, s, 4 * i + j, 0);
//$ else
                result[j] = part[4 * i + j];
//$ end
//$ if operands == "runs" and interleave == 1 then
            unsigned int word[2];

            exchange_results(result, word, lane);
            packed->row[0][slab * (PART / 4) + i] = above ? word[0] : 0;
            packed->row[1][slab * (PART / 4) + i] = below ? word[1] : 0;
//$ else
            packed->row[0][slab * (PART / 4) + i] = above ? pack(result[0], result[1]) : 0;
            packed->row[1][slab * (PART / 4) + i] = below ? pack(result[2], result[3]) : 0;
//$ end
        }
    }
}

//$ end
/* ------------------------------------------------------------------ rowwise tensor */

/* The largest magnitudes of the thread's two rows. */
FN void largest_of_rows(const struct packed *packed, float most[2])
{
    unsigned int of_row[2], both;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        of_row[i] = magnitudes_of(packed->row[i][0]);
#pragma unroll
        for (int j = 1; j < PAIRS; j++)
            of_row[i] = larger_pair(of_row[i], magnitudes_of(packed->row[i][j]));
    }
    both = larger_pair(__byte_perm(of_row[0], of_row[1], 0x5410),
                       __byte_perm(of_row[0], of_row[1], 0x7632));
    both = larger_pair(both, __shfl_xor_sync(~0u, both, 1));
    both = larger_pair(both, __shfl_xor_sync(~0u, both, 2));
    most[0] = fmaxf(lo_of(both), 0);
    most[1] = fmaxf(hi_of(both), 0);
}

//$ if back then
/* A warp's rows of the rowwise tensor, and their scales, from column x on; nothing reads the
   slab. */
FN void store_row_copy(const struct packed *packed, unsigned int slab, const struct tile *t,
                       const struct maps *maps, const struct copies *c, int x, int row,
                       int rows, int lane)
{
//$ else
/* A warp's rows of the rowwise tensor, and their scales, from column x on. */
FN void store_row_copy(const struct packed *packed, struct slabs *slabs, const struct tile *t,
                       const struct maps *maps, const struct copies *c, int x, int row,
                       int rows, int lane)
{
    const unsigned int slab = slabs->first + slabs->slot * SLAB_BYTES;
//$ end
    const unsigned int line = slab + lane / 4 * 128 + lane % 2 * 8 + lane % 4 / 2 * 4;
    const int odd = lane % 2; /* two lanes exchange halves */
    const unsigned int upper = odd ? 0x1054 : 0x5410, lower = odd ? 0x3276 : 0x7632;
    float *const sf = c->row_sf + x / BLOCK * c->row_stride + t->start + row + lane / 4;
    float most[2], factor[4], stored[2];

    largest_of_rows(packed, most);
    factor[0] = factor[1] = scale_of(most[0], &stored[0]);
    factor[2] = factor[3] = scale_of(most[1], &stored[1]);
    if (lane % 4 == 0 && row + lane / 4 < rows)
        sf[0] = stored[0];
    if (lane % 4 == 0 && row + lane / 4 + 8 < rows)
        sf[8] = stored[1];
//$ if not back then
    slabs->slot = (slabs->slot + 1) % SLABS;
    if (lane == 0)
        store_wait(SLABS - 1);
//$ end
    __syncwarp();
#pragma unroll
    for (int j = 0; j < PAIRS; j += 2) {
        const unsigned int one = codes_of(packed->row[0][j], packed->row[1][j], factor);
        const unsigned int two = codes_of(packed->row[0][j + 1], packed->row[1][j + 1], factor);
        const unsigned int kept = odd ? two : one;
        const unsigned int got = __shfl_xor_sync(~0u, odd ? one : two, 1);
        const unsigned int at = line + (j / 2 ^ lane / 4) * 16;

        store_shared_word(at, __byte_perm(kept, got, upper));
        store_shared_word(at + 8 * 128, __byte_perm(kept, got, lower));
    }
    copy_engine_fence();
    __syncwarp();
    if (lane == 0)
        store_slab(maps, slab, t, x, row, rows);
}

/* --------------------------------------------------------------- columnwise tensor */

/* A warp's largest magnitudes of each column, for all warps: lanes exchange halves. */
FN void share_maxima(const struct packed *packed, unsigned int maxima, int lane)
{
    const int place = lane / 16 * 8 + lane / 8 % 2 * 4 + lane / 4 % 2 * 2;
    unsigned int most[PAIRS];

#pragma unroll
    for (int j = 0; j < PAIRS; j++)
        most[j] = larger_pair(magnitudes_of(packed->row[0][j]), magnitudes_of(packed->row[1][j]));
#pragma unroll
    for (int mask = 16, left = PAIRS / 2; mask >= 4; mask /= 2, left /= 2) {
        const int upper = lane & mask;
#pragma unroll
        for (int j = 0; j < PAIRS / 2; j++) {
            if (j >= left)
                continue;
            const unsigned int kept = upper ? most[j + left] : most[j];
            const unsigned int given = upper ? most[j] : most[j + left];
            most[j] = larger_pair(kept, __shfl_xor_sync(~0u, given, mask));
        }
    }
#pragma unroll
    for (int j = 0; j < 2; j++)
        store_shared_word(maxima + threadIdx.x / 32 % 8 * 256 + ((place + j) * 4 + lane % 4) * 4,
                          most[j]);
}

/* A column's factor, for the warpgroup; each thread has one column. */
FN void share_factors(unsigned int maxima, unsigned int columns, float *sf)
{
    const int column = threadIdx.x % BLOCK;
    unsigned int most = 0;
    float stored, factor;

#pragma unroll
    for (int i = 0; i < 8; i++)
        most = larger_pair(most, load_shared_word(maxima + i * 256 + column / 2 * 4));
    factor = scale_of(fmaxf(column % 2 ? hi_of(most) : lo_of(most), 0), &stored);
    store_shared_word(columns + column * 4, bits_of(factor));
    if (sf)
        sf[column] = stored;
}

/*
** A warp's rows turn: a line of 64 bytes for each column has the warpgroup's rows. Lanes of
** neighbouring rows, then of pairs of these, exchange halves of their words, until each has 4
** rows of a column in a word.
*/
FN void turn_columns(const struct packed *packed, unsigned int turned, unsigned int columns,
                     int lane)
{
    const int odd = lane / 4 % 2, low = lane / 8 % 2, chunk = (threadIdx.x / 32 ^ lane) % 4;
    const unsigned int upper = odd ? 0x1504 : 0x5140, lower = odd ? 0x3726 : 0x7362;
    const unsigned int even_column = low ? 0x1054 : 0x5410, odd_column = low ? 0x3276 : 0x7632;
    const unsigned int at = turned + odd * 8 * 64 + lane % 4 * 2 * 64 + chunk * 16 +
                            (2 * low + lane / 16) * 4;

#pragma unroll
    for (int j = 0; j < PAIRS; j += 2) {
        unsigned int codes[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float factor[4];

            load_shared_x2(columns + (8 * (j + i) + lane % 4 * 2) * 4, &factor[0], &factor[1]);
            factor[2] = factor[0];
            factor[3] = factor[1];
            codes[i] = codes_of(packed->row[0][j + i], packed->row[1][j + i], factor);
        }
        const unsigned int own = odd ? codes[1] : codes[0];
        const unsigned int other = __shfl_xor_sync(~0u, odd ? codes[0] : codes[1], 4);
        const unsigned int rows = __byte_perm(own, other, upper); /* two of them, of two columns */
        const unsigned int below = __byte_perm(own, other, lower); /* and those 8 rows on */
        const unsigned int kept = low ? below : rows;
        const unsigned int got = __shfl_xor_sync(~0u, low ? rows : below, 8);
        const unsigned int to = at + j * 8 * 64;

        store_shared_word(to + odd * 64, __byte_perm(kept, got, odd ? odd_column : even_column));
        store_shared_word(to + 64 - odd * 64,
                          __byte_perm(kept, got, odd ? even_column : odd_column));
    }
}

/* The warpgroup's lines to memory, 16 bytes at a time. */
FN void store_lines(unsigned int turned, unsigned char *to, long long stride)
{
    const int line = threadIdx.x % BLOCK / 4, chunk = threadIdx.x % 4;

    to += line * stride + chunk * 16;
#pragma unroll
    for (int i = 0; i < BLOCK; i += 32) {
        unsigned int word[4];

        load_shared_x4(turned + (i + line) * 64 + (chunk ^ line / 2 % 4) * 16, word);
        *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
        to += 32 * stride;
    }
}

/*
** A warp reads the values that the others share before it comes to the next block's barrier for
** all: so only the maxima, which are written before that, have two buffers.
*/
FN void store_copies(const struct packed *packed, struct slabs *slabs, const struct tile *t,
                     const struct maps *maps, const struct copies *c, int x,
                     $(back and "unsigned int slab, " or "")int row, int rows, int lane)
{
    const int warpgroup = threadIdx.x / 128 - 1;
    const unsigned int columns = c->memory->columns + warpgroup * 512;
    const unsigned int turned = c->memory->turned + warpgroup * BLOCK * 64;
    const unsigned int maxima = c->memory->maxima + slabs->side * 2048;
    const long long first = (long long)t->runs * BLOCK + t->row; /* of the tile's rows in lines */

    if (c->column)
        share_maxima(packed, maxima, lane);
    if (row < rows)
        store_row_copy(packed, $(back and "slab" or "slabs"), t, maps, c, x, row, rows, lane);
    if (!c->column)
        return;
    slabs->side ^= 1;
    named_wait(1, 256);
    share_factors(maxima, columns,
                  warpgroup ? 0 : c->column_sf + first / BLOCK * c->results + x);
    named_wait(2 + warpgroup, 128);
    turn_columns(packed, turned, columns, lane);
    named_wait(2 + warpgroup, 128);
    store_lines(turned, c->column + x * c->column_stride + first + warpgroup * 64,
                c->column_stride);
}
//$ if not back then

/* One warp's rows of a tile, whose first result is in column t->column / OPERANDS. */
FN void store_tile(float sum[SUMS], struct slabs *slabs, const struct tile *t,
                   const struct maps *maps, const struct finish *s, int row, int rows,
                   int lane)
{
    struct packed packed;

//$ local to = activation ~= "none" and "slabs, maps, " or ""
    find_results(&packed, sum, t, $(to)s, row, rows, lane);
    store_copies(&packed, slabs, t, maps, &s->of->copies, t->column / OPERANDS, row, rows, lane);
}
//$ end
