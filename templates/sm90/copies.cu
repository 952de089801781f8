//$ -- SPDX-License-Identifier: Apache-2.0
//$ -- Blackwell, blocks of 32 values: a warp has 32 rows, 16 at a time, and meets no other one, or,
//$ -- of gradients, 16 of the 32 rows that two warps have. Blocks of 128 values: two warpgroups
//$ -- have 16 rows in turns there, and 64 in a row on Hopper.
//$ local small, apart = a.scale.k == 32, arch ~= "sm_90a"
//$ local side = apart and "GIVEN" or "BLOCK" -- of 128
//$ local back = epilogue == "gradient_copies"
//$ local halved = a.bits == 4 -- codes are half bytes
//$ local half = halved and " / 2" or "" -- bytes of as many codes
/*
** A tile's results as the tensors that quantize makes of them: rounded to $(d.type) first, as it
//$ if small then
//$ local of = back and "those of two warps" or "those of one warp"
//$ local who = back and "Two warps have 32 rows" or "A warp has 32 rows"
** reads them. $(who) of them.
**
**   rowwise tensor     a scale for each BLOCK results of a row
**   columnwise tensor  a scale for a column's BLOCK rows, $(of), after the group's
**                      last one zeros, transposed
**
** A thread holds results of two rows of each 16, `row` + lane / 4 and 8 below, packed in pairs:
** pair j of a row has columns 8 j + 2 (lane % 4) and the next one, as sums have.
//$ else
** reads them. They are 128 rows x 128 columns, one block of scales of either.
**
**   rowwise tensor     a scale for a row's 128 results: a warp has 16 rows of them
**   columnwise tensor  a scale for a column's 128 rows, after the group's last one zeros,
**                      transposed: the warps tell each other the largest value of their columns
**
** A thread holds results of two rows, `row` + lane / 4 and 8 below, packed in pairs: pair j of a
** row has columns 8 j + 2 (lane % 4) and the next one, as sums have.
//$ end
*/
//$ once "cast/arith.c"
//$ once("cast/from_" .. d.type .. ".c")
//$ once("cast/to_" .. a.type .. ".c")
/* From a block's largest magnitude: the stored scale, and the values' factor. */
//$ rule "scale"

//$ if small then
enum {
    PAIRS = RESULTS / 8,
    BLOCKS = RESULTS / BLOCK, /* of a row */
    BLOCK_PAIRS = BLOCK / 8$(back and "" or ",")
//$ if not back then
    SLAB_PAIRS = SLAB_BYTES / SLAB_ROWS / 8 /* of codes */
//$ end
};
//$ elseif apart then
enum { PAIRS = GIVEN / 8 };
//$ else
enum { BLOCK = 128, PAIRS = BLOCK / 8 };
//$ end

struct packed {
    unsigned int row[2][PAIRS];
};

//$ include "sm90/pairs.cu"

//$ if halved then
//$ include "sm100/half_bytes.cu"

//$ end
//$ if not back then
/* A thread's sums become results; the pre-activation is stored if it is wanted. */
//$ local to = activation ~= "none" and "struct slabs *slabs, const struct maps *maps, " or ""
FN void find_results(struct packed *packed, float sum[SUMS], const struct tile *t,
                     $(to)const struct finish *s,
                     int row, int rows, int lane)
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
//$ local wanted = "s->of->saved && row < rows"
//$ if apart and not small then wanted = "uniformly(" .. wanted .. ")" end -- else ptxas gives up
            if ($(wanted))
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

//$ local first, count = small and "first + " or "", small and "BLOCK_PAIRS" or "PAIRS"
//$ local chunk = small and not back and "j / 2 % 4 ^ lane / 8" or "j / 2 ^ lane / 4"
//$ local begin, end_ = small and "first" or "0", small and "first + SLAB_PAIRS" or "PAIRS"
//$ if small and back then
//$   chunk, end_ = "(part * (PAIRS / 2) + j / 2) ^ lane / 4", "PAIRS"
//$ end
//$ if small then
/* The largest magnitudes of the thread's two rows in a block, which has a row's pairs from `first`
   on. */
FN void largest_of_rows(const struct packed *packed, int first, float most[2])
{
//$ else
/* The largest magnitudes of the thread's two rows. */
FN void largest_of_rows(const struct packed *packed, float most[2])
{
//$ end
    unsigned int of_row[2], both;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        of_row[i] = magnitudes_of(packed->row[i][$(begin)]);
#pragma unroll
        for (int j = 1; j < $(count); j++)
            of_row[i] = larger_pair(of_row[i], magnitudes_of(packed->row[i][$(first)j]));
    }
    both = larger_pair(__byte_perm(of_row[0], of_row[1], 0x5410),
                       __byte_perm(of_row[0], of_row[1], 0x7632));
    both = larger_pair(both, __shfl_xor_sync(~0u, both, 1));
    both = larger_pair(both, __shfl_xor_sync(~0u, both, 2));
    most[0] = fmaxf(lo_of(both), 0);
    most[1] = fmaxf(hi_of(both), 0);
}

//$ if small then
/* The factors of a warp's 16 rows from `row` on, whose scales are stored: each lane finds those of
   one block of two rows. */
FN void find_row_factors(float factor[2][BLOCKS], const struct packed *packed,
                         const struct tile *t, const struct copies *c, int x, int row, int lane)
{
    const struct group g = { t->group, t->start, (int)t->length, (int)t->runs };
    const struct scales s = row_scales(&g, &c->all);
    float most[2] = { 0, 0 };

#pragma unroll
    for (int i = 0; i < BLOCKS; i++) {
        float of_block[2];

        largest_of_rows(packed, i * BLOCK_PAIRS, of_block);
#pragma unroll
        for (int j = 0; j < 2; j++)
            most[j] = i == lane % BLOCKS ? of_block[j] : most[j];
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        unsigned int sf;
        const float own = scale_of(most[j], &sf);

#pragma unroll
        for (int i = 0; i < BLOCKS; i++)
            factor[j][i] = __shfl_sync(~0u, own, (lane & 28) | i);
        if (lane % 4 < BLOCKS)
            store_sf(c->row_sf, &s, row + lane / 4 + 8 * j, x / BLOCK + lane % 4, (sf_element)sf);
    }
}

//$ if back then
/* A warp's rows of the rowwise tensor to part 0 or 1 of a slab's, for the copy engine. */
FN void put_codes(const struct packed *packed, const float of_block[2][BLOCKS], unsigned int slab,
                  int part, int lane)
{
//$ else
/* Rows of the rowwise tensor through a slab, from column x on: a row's pairs from `first` on. */
FN void put_codes(const struct packed *packed, const float of_block[2][BLOCKS],
                  struct slabs *slabs, const struct tile *t, const struct maps *maps, int first,
                  int x, int row, int rows, int lane)
{
    const unsigned int slab = slabs->first + slabs->slot * SLAB_BYTES;
//$ end
//$ elseif back then
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
//$ local across = small and not back and 64 or 128 -- bytes of a row
//$ if not halved then
    const unsigned int line = slab + lane / 4 * $(across) + lane % 2 * 8 + lane % 4 / 2 * 4;
    const int odd = lane % 2; /* two lanes exchange halves */
    const unsigned int upper = odd ? 0x1054 : 0x5410, lower = odd ? 0x3276 : 0x7632;
//$ end
//$ if not small then
    float *const sf = c->row_sf + x / $(side) * c->row_stride + t->start + row + lane / 4;
    float most[2], factor[4], stored[2];

    largest_of_rows(packed, most);
    factor[0] = factor[1] = scale_of(most[0], &stored[0]);
    factor[2] = factor[3] = scale_of(most[1], &stored[1]);
    if (lane % 4 == 0 && row + lane / 4 < rows)
        sf[0] = stored[0];
    if (lane % 4 == 0 && row + lane / 4 + 8 < rows)
        sf[8] = stored[1];
//$ end
//$ if not back then
//$ if small and not halved then

//$ end
    slabs->slot = (slabs->slot + 1) % SLABS;
    if (lane == 0)
        store_wait(SLABS - 1);
//$ end
    __syncwarp();
//$ if halved then
    put_half_bytes(packed, of_block, slab, $(back and "0, part * 2" or "first, 0"), lane);
//$ else
#pragma unroll
    for (int j = $(small and back and "0" or begin); j < $(end_); j += 2) {
//$ if small then
        const int block = j / BLOCK_PAIRS;
        const float factor[4] = { of_block[0][block], of_block[0][block], of_block[1][block],
                                  of_block[1][block] };
//$ end
        const unsigned int one = codes_of(packed->row[0][j], packed->row[1][j], factor);
        const unsigned int two = codes_of(packed->row[0][j + 1], packed->row[1][j + 1], factor);
        const unsigned int kept = odd ? two : one;
        const unsigned int got = __shfl_xor_sync(~0u, odd ? one : two, 1);
        const unsigned int at = line + ($(chunk)) * 16;

        store_shared_word(at, __byte_perm(kept, got, upper));
        store_shared_word(at + 8 * $(across), __byte_perm(kept, got, lower));
    }
//$ end
    copy_engine_fence();
    __syncwarp();
//$ if not small or not back then
    if (lane == 0)
        store_slab(maps, slab, t, x$(half), row, rows);
//$ end
}

/* --------------------------------------------------------------- columnwise tensor */

//$ if small and back then
/* The largest magnitudes of two columns of a warp's 16 rows: lanes exchange halves, and each has
   the pair of columns that its bits count, the highest first. */
FN unsigned int largest_of_columns(const struct packed *packed, int lane)
{
    unsigned int most[PAIRS];

#pragma unroll
    for (int j = 0; j < PAIRS; j++)
        most[j] = larger_pair(magnitudes_of(packed->row[0][j]), magnitudes_of(packed->row[1][j]));
//$ elseif small then
/* A warp's largest magnitudes of each column and their factors, which go to `columns`, and whose
   scales are stored: lanes exchange halves. */
FN void share_factors(const struct packed packed[2], unsigned int columns, const struct tile *t,
                      const struct copies *c, int x, int row, int lane)
{
    const struct group g = { t->group, t->start, (int)t->length, (int)t->runs };
    const struct scales s = column_scales(&g, &c->all);
    const int place = (lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 4 % 2) * (PAIRS / 8);
    unsigned int most[PAIRS];

#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        const unsigned int upper =
            larger_pair(magnitudes_of(packed[0].row[0][j]), magnitudes_of(packed[0].row[1][j]));
        most[j] = larger_pair(larger_pair(magnitudes_of(packed[1].row[0][j]),
                                          magnitudes_of(packed[1].row[1][j])), upper);
    }
//$ else
/* A warp's largest magnitudes of each column, for all warps: lanes exchange halves. */
FN void share_maxima(const struct packed *packed, unsigned int maxima, int lane)
{
    const int place = lane / 16 * 8 + lane / 8 % 2 * 4 + lane / 4 % 2 * 2;
    unsigned int most[PAIRS];

#pragma unroll
    for (int j = 0; j < PAIRS; j++)
        most[j] = larger_pair(magnitudes_of(packed->row[0][j]), magnitudes_of(packed->row[1][j]));
//$ end
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
//$ if small and back then
    return most[0];
}

//$ elseif small then
#pragma unroll
    for (int j = 0; j < PAIRS / 8; j++) {
        const int column = ((place + j) * 4 + lane % 4) * 2;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            unsigned int sf;
            const float all = fmaxf(i ? hi_of(most[j]) : lo_of(most[j]), 0);

            store_shared_word(columns + (column + i) * 4, bits_of(scale_of(all, &sf)));
            store_sf(c->column_sf, &s, x + column + i, row / BLOCK, (sf_element)sf);
        }
    }
}

//$ else
#pragma unroll
    for (int j = 0; j < 2; j++)
        store_shared_word(maxima + threadIdx.x / 32 % 8 * 256 + ((place + j) * 4 + lane % 4) * 4,
                          most[j]);
}

/* A column's factor, for the warpgroup; each thread has one column. */
FN void share_factors(unsigned int maxima, unsigned int columns, float *sf)
{
    const int column = threadIdx.x % $(side);
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

//$ end
//$ if not halved then
//$ -- bytes of a line, and which 16 of them are these rows
//$ local even = "odd ? odd_column : even_column"
//$ local line, who = small and 32 or 64, small and "warp's" or "warpgroup's"
//$ if small and back then who = "two warps'" end
//$ local chunk = small and "(half ^ lane / 2) % 2" or "(threadIdx.x / 32 ^ lane) % 4"
/*
** A warp's rows turn: a line of $(line) bytes for each column has the $(who) rows. Lanes of
** neighbouring rows, then of pairs of these, exchange halves of their words, until each has 4
** rows of a column in a word.
*/
FN void turn_columns(const struct packed *packed, unsigned int turned, unsigned int columns,
                     $(small and "int half, " or "")int lane)
{
    const int odd = lane / 4 % 2, low = lane / 8 % 2, chunk = $(chunk);
    const unsigned int upper = odd ? 0x1504 : 0x5140, lower = odd ? 0x3726 : 0x7362;
    const unsigned int even_column = low ? 0x1054 : 0x5410, odd_column = low ? 0x3276 : 0x7632;
    const unsigned int at = turned + odd * 8 * $(line) + lane % 4 * 2 * $(line) + chunk * 16 +
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
        const unsigned int to = at + j * 8 * $(line);

        store_shared_word(to + odd * $(line), __byte_perm(kept, got, $(even)));
        store_shared_word(to + $(line) - odd * $(line),
                          __byte_perm(kept, got, odd ? even_column : odd_column));
    }
}

/* The $(who) lines to memory, 16 bytes at a time$(small and back and ": half of them" or ""). */
FN void store_lines(unsigned int turned, unsigned char *to, long long stride)
{
//$ if small then
    const int line = threadIdx.x % 32 / 2, chunk = threadIdx.x % 2;
//$ else
    const int line = threadIdx.x % $(side) / 4, chunk = threadIdx.x % 4;
//$ end
//$ local count = small and (back and "RESULTS / 2" or "RESULTS") or side
//$ local step, turn = small and 16 or 32, small and "line / 4 % 2" or "line / 2 % 4"

    to += line * stride + chunk * $(apart and not small and 32 or 16);
#pragma unroll
    for (int i = 0; i < $(count); i += $(step)) {
        unsigned int word[4];

        load_shared_x4(turned + (i + line) * $(line) + (chunk ^ $(turn)) * 16, word);
        *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
        to += $(step) * stride;
    }
}

//$ end
//$ if small and not back then
/* A warp's 16 rows, from `row` on, and results from column x on: the rowwise tensor, whose scales
   of rows after the group's are 0. */
FN void store_row_copy(const struct packed *packed, struct slabs *slabs, const struct tile *t,
                       const struct maps *maps, const struct copies *c, int x, int row,
                       int rows, int lane)
{
    float factor[2][BLOCKS];

    find_row_factors(factor, packed, t, c, x, row, lane);
    if (row < rows)
#pragma unroll
        for (int i = 0; i < PAIRS; i += SLAB_PAIRS)
            put_codes(packed, factor, slabs, t, maps, i, x + 8 * i, row, rows, lane);
}

/* The same of all 32 rows: the columnwise tensor, zeros after the group's rows. */
FN void store_column_copy(const struct packed packed[2], const struct tile *t,
                          const struct copies *c, int x, int row, int lane)
{
    const int warp = threadIdx.x / 32 % 4;
    const unsigned int columns = c->memory->columns + warp * (COLUMNS_BYTES / WARPS);
    const unsigned int turned = c->memory->turned + warp * (TURNED_BYTES / WARPS);

    share_factors(packed, columns, t, c, x, row, lane);
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; half++)
        turn_columns(&packed[half], turned, columns, half, lane);
    __syncwarp();
    store_lines(turned,
                c->column + (x * c->column_stride + (long long)t->runs * 128 + row)$(half),
                c->column_stride$(half));
}
//$ elseif not small then
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
    const unsigned int turned = c->memory->turned + warpgroup * $(side) * 64;
    const unsigned int maxima = c->memory->maxima + slabs->side * 2048;
    const long long first = (long long)t->runs * $(side) + t->row; /* of the tile's rows in lines */

    if (c->column)
        share_maxima(packed, maxima, lane);
    if (row < rows)
        store_row_copy(packed, $(back and "slab" or "slabs"), t, maps, c, x, row, rows, lane);
    if (!c->column)
        return;
    slabs->side ^= 1;
    named_wait(1, 256);
    share_factors(maxima, columns,
                  warpgroup ? 0 : c->column_sf + first / $(side) * c->results + x);
    named_wait(2 + warpgroup, 128);
    turn_columns(packed, turned, columns, lane);
    named_wait(2 + warpgroup, 128);
//$ local rows = apart and 16 or 64 -- from the warpgroup before
    store_lines(turned, c->column + x * c->column_stride + first + warpgroup * $(rows),
                c->column_stride);
}
//$ end
//$ if not back and not small then

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
