//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The pieces themselves: blocks of values, their scales and codes, from memory to memory through
** the registers of one warp.
*/
#define FN DEVICE
//$ once("cast/from_bf16.c")
//$ once("cast/to_" .. a.type .. ".c")

/* From a block's largest magnitude: what is stored, and what values are multiplied by. */
//$ rule "scale"

/* Sixteen bytes that nobody needs again soon, and two values that somebody does. */
DEVICE uint4 load_once(u64 from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}

DEVICE unsigned int load_pair(u64 from)
{
    unsigned int v;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}

/*
** The address `times` strides further. The compiler is not told so: it would keep every multiple of
** the stride in registers, of which there are few.
*/
template <int times> DEVICE u64 further(u64 address, unsigned int stride)
{
    asm volatile("mad.wide.u32 %0, %1, %2, %0;" : "+l"(address) : "r"(stride), "n"(times));
    return address;
}

/* Ask for LINE_BYTES around addresses: `lines` of them in a row, then those of the next row. */
DEVICE void stream_ahead(u64 from, unsigned int stride, int lines, int rows, int bytes, int lane)
{
#pragma unroll 1
    for (int i = lane; i < rows * lines; i += 32)
        if (i % lines * LINE_BYTES < bytes)
            asm volatile("prefetch.global.L2 [%0];"
                         : : "l"(from + (u64)(i / lines) * stride * 2 + i % lines * LINE_BYTES)
                         : "memory");
}

//$ include "sm90/pairs.cu"

/* Of one block, or of one line: all four have the same factor. */
DEVICE unsigned int codes_by(unsigned int first, unsigned int second, float factor)
{
    const float factors[4] = { factor, factor, factor, factor };

    return codes_of(first, second, factors);
}

/*
** PIECE_ROWS rows and BLOCK values of each: half a warp has a row, a lane eight values of it. Of
** the maxima lanes give each other half of what they have, until each pair of lanes has one row's.
*/
DEVICE void stream_block(const struct stream *s, unsigned int row, int rows, int x, int lane)
{
    enum { EACH = PIECE_ROWS / 2 };
    const int second = lane / 16, at = x + lane % 16 * 8;
    u64 from = (u64)s->in + ((u64)(row + second) * s->in_stride + at) * 2;
    u64 to = (u64)s->row + (u64)(row + second) * s->row_stride + at;
    uint4 value[EACH];
    unsigned int most[EACH];
    float factor, sf;

#pragma unroll
    for (int i = 0; i < EACH; i++) {
        value[i] = make_uint4(0, 0, 0, 0);
        if (2 * i + second < rows && at < s->k)
            value[i] = load_once(from);
        from = further<4>(from, s->in_stride);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        most[i] = larger_pair(larger_pair(magnitudes_of(value[i].x), magnitudes_of(value[i].y)),
                              larger_pair(magnitudes_of(value[i].z), magnitudes_of(value[i].w)));
#pragma unroll
    for (int mask = 8, left = EACH / 2; mask > 0; mask /= 2, left /= 2) {
#pragma unroll
        for (int i = 0; i < EACH / 2; i++) {
            const int upper = lane & mask;

            if (i >= left)
                continue;
            const unsigned int kept = upper ? most[i + left] : most[i];
            const unsigned int given = upper ? most[i] : most[i + left];
            most[i] = larger_pair(kept, __shfl_xor_sync(~0u, given, mask));
        }
        if (left == 0)
            most[0] = larger_pair(most[0], __shfl_xor_sync(~0u, most[0], mask));
    }
    factor = scale_of(fmaxf(fmaxf(lo_of(most[0]), 0), fmaxf(hi_of(most[0]), 0)), &sf);
    if (lane % 2 == 0 && lane % 16 / 2 * 2 + second < rows)
        s->row_sf[(u64)(x / BLOCK) * s->row_sf_stride + row + lane % 16 / 2 * 2 + second] = sf;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const float f = __shfl_sync(~0u, factor, (lane & 16) | i * 2);

        if (2 * i + second < rows && at < (int)s->row_stride)
            *(uint2 *)to = make_uint2(codes_by(value[i].x, value[i].y, f),
                                      codes_by(value[i].z, value[i].w, f));
        to = further<2>(to, s->row_stride);
    }
}

/* Ask for what a piece of the row copy is made of, and for that of the column copy. */
DEVICE void stream_rows_ahead(const struct stream *s, const struct tile *t, int lane)
{
    const unsigned int number = (unsigned int)t->column / TILE_N;
    const int first = t->row + (int)(number % PIECES) * PIECE_ROWS;
    const int rows = (int)t->length - first, begin = (int)(number / PIECES) * CHUNK;
    const int left = s->k - begin < CHUNK ? s->k - begin : CHUNK;

    stream_ahead((u64)s->in + ((u64)(t->start + first) * s->in_stride + begin) * 2, s->in_stride,
                 CHUNK * 2 / LINE_BYTES, rows < PIECE_ROWS ? rows : PIECE_ROWS, left * 2, lane);
}

DEVICE void stream_lines_ahead(const struct stream *s, const struct tile *t, int lane)
{
    const int feature = t->column / TILE_N * PIECE_FEATURES, rows = (int)t->length - t->row;

    if (feature < s->k)
        stream_ahead((u64)s->in + ((u64)(t->start + t->row) * s->in_stride + feature) * 2,
                     s->in_stride, 1, rows < BLOCK ? rows : BLOCK, 1, lane);
}

/* A piece of the row copy, and its flag. By all lanes of a warp. */
DEVICE void stream_rows(const struct stream *s, const struct tile *t, int lane)
{
    const unsigned int number = (unsigned int)t->column / TILE_N, chunk = number / PIECES;
    const int first = t->row + (int)(number % PIECES) * PIECE_ROWS;
    const int rows = (int)t->length - first, begin = (int)chunk * CHUNK;
    const int end = s->k - begin < CHUNK ? s->k : begin + CHUNK;

    stream_rows_ahead(s, t, afresh(lane));
    if (rows > 0)
#pragma unroll 1
        for (int x = begin; x < end; x += BLOCK)
            stream_block(s, t->start + first, rows, x, afresh(lane));
    flag_raise(s->words + FLAGS + (t->runs + t->row / BLOCK) * chunks_of(s->k) + chunk, lane);
}

/* Sixteen rows of a lane's two features, of which there are `rows`; the others are zeros. */
DEVICE u64 load_rows(unsigned int value[16], u64 from, unsigned int stride, int rows)
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        value[i] = 0;
        if (i < rows)
            value[i] = load_pair(from);
        from = further<2>(from, stride);
    }
    return from;
}

/*
** Their codes to two lines of the column copy, four rows in a word. Features lie side by side in a
** value, rows in a line.
*/
DEVICE void store_lines(u64 to, unsigned int stride, const unsigned int value[16],
                        const float factor[2])
{
    unsigned int word[2][4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned int *v = value + 4 * i;

        word[0][i] = codes_by(__byte_perm(v[0], v[1], 0x5410), __byte_perm(v[2], v[3], 0x5410),
                              factor[0]);
        word[1][i] = codes_by(__byte_perm(v[0], v[1], 0x7632), __byte_perm(v[2], v[3], 0x7632),
                              factor[1]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        *(uint4 *)(to + (u64)i * stride) =
            make_uint4(word[i][0], word[i][1], word[i][2], word[i][3]);
}

/*
** A piece of the column copy: BLOCK rows of PIECE_FEATURES, a lane two of these. What it reads
** twice is still near the second time.
*/
DEVICE void stream_lines(const struct stream *s, const struct tile *t, int lane)
{
    const int feature = t->column / TILE_N * PIECE_FEATURES + 2 * lane;
    const int rows = (int)t->length - t->row;
    const unsigned int block = t->runs + t->row / BLOCK;
    const u64 begin = (u64)s->in + ((u64)(t->start + t->row) * s->in_stride + feature) * 2;
    u64 to = (u64)s->column + (u64)feature * s->column_stride + (u64)block * BLOCK;
    u64 from = begin;
    unsigned int value[2][16], most = 0;
    float factor[2], sf[2];

    stream_lines_ahead(s, t, afresh(lane));
    if (feature >= s->k)
        return;
#pragma unroll 1
    for (int r = 0; r < BLOCK && r < rows; r += 32) {
        from = load_rows(value[0], from, s->in_stride, rows - r);
        from = load_rows(value[1], from, s->in_stride, rows - r - 16);
#pragma unroll
        for (int i = 0; i < 32; i++)
            most = larger_pair(most, magnitudes_of(value[i / 16][i % 16]));
    }
    factor[0] = scale_of(fmaxf(lo_of(most), 0), &sf[0]);
    factor[1] = scale_of(fmaxf(hi_of(most), 0), &sf[1]);
    *(float2 *)(s->column_sf + (u64)block * (unsigned int)s->k + feature) =
        make_float2(sf[0], sf[1]);
    from = load_rows(value[0], begin, s->in_stride, rows);
#pragma unroll 1
    for (int r = 0; r < BLOCK; r += 32) { /* one half is on its way while the other is stored */
        from = load_rows(value[1], from, s->in_stride, rows - r - 16);
        store_lines(to, s->column_stride, value[0], factor);
        from = load_rows(value[0], from, s->in_stride, r + 32 < BLOCK ? rows - r - 32 : 0);
        store_lines(to + 16, s->column_stride, value[1], factor);
        to += 32;
    }
}
