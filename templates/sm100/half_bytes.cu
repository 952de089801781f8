//$ -- SPDX-License-Identifier: Apache-2.0
//$ local back = epilogue == "gradient_copies"
/*
** Codes of four bits, two in a byte: of neighbouring columns in the rowwise tensor, of rows in the
** columnwise one. A block has 16 bytes of a row, 4 of each 8 columns; lanes make words of theirs.
*/
FN unsigned int byte_of(unsigned int pair, float lo, float hi)
{
    return to_$(a.type)_x2_of_f16(mul_rn(lo_of(pair), lo), mul_rn(hi_of(pair), hi));
}

/* Two blocks of a warp's rows, pairs from `first` on, to the rowwise tensor's part in a slab, 16
   bytes of a row from `chunk` on. Four lanes have a row, and two of them keep its words. */
FN void put_half_bytes(const struct packed *packed, const float of_block[2][BLOCKS],
                       unsigned int slab, int first, int chunk, int lane)
{
    const int odd = lane % 2, late = lane / 2 % 2;
//$ local across, turn = back and 64 or 32, back and "lane / 8" or "lane / 16"
    const unsigned int line = slab + (lane / 4 + 8 * odd) * $(across) + late * 8;

#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int pair = first + j * BLOCK_PAIRS, block = pair / BLOCK_PAIRS;
        unsigned int above = 0, below = 0; /* bytes of a lane's rows */

#pragma unroll
        for (int i = 0; i < BLOCK_PAIRS; i++) {
            const float upper = of_block[0][block], lower = of_block[1][block];

            above |= byte_of(packed->row[0][pair + i], upper, upper) << 8 * i;
            below |= byte_of(packed->row[1][pair + i], lower, lower) << 8 * i;
        }
        const unsigned int own = odd ? below : above;
        const unsigned int other = __shfl_xor_sync(~0u, odd ? above : below, 1);
        const unsigned int one = __byte_perm(own, other, odd ? 0x1504 : 0x5140);
        const unsigned int two = __byte_perm(own, other, odd ? 0x3726 : 0x7362);
        const unsigned int kept = late ? two : one;
        const unsigned int got = __shfl_xor_sync(~0u, late ? one : two, 2);

        store_shared_words(line + (chunk + j ^ $(turn)) * 16,
                           __byte_perm(kept, got, late ? 0x1054 : 0x5410),
                           __byte_perm(kept, got, late ? 0x3276 : 0x7632));
    }
}

/*
** A warp's rows turn: a line of 16 bytes for each column has 32 rows, of which these are one half.
** Lanes of neighbouring rows, then of pairs and of fours of these, exchange halves, until each has
** 16 rows of a column.
*/
FN void turn_columns(const struct packed *packed, unsigned int turned, unsigned int columns,
                     int half, int lane)
{
    const int odd = lane / 4 % 2, low = lane / 8 % 2, late = lane / 16;
    const unsigned int lows = 0x0f0f0f0f, highs = 0xf0f0f0f0;
    const int column = (2 * low + late) * 8 + lane % 4 * 2 + odd;
    const unsigned int at = turned + column * 16 + (half ^ low) * 8;

#pragma unroll
    for (int j = 0; j < PAIRS; j += 4) {
        unsigned int above = 0, below = 0; /* bytes of two columns, of each lane's rows */

#pragma unroll
        for (int i = 0; i < 4; i++) {
            float lo, hi;

            load_shared_x2(columns + (8 * (j + i) + lane % 4 * 2) * 4, &lo, &hi);
            above |= byte_of(packed->row[0][j + i], lo, hi) << 8 * i;
            below |= byte_of(packed->row[1][j + i], lo, hi) << 8 * i;
        }
        const unsigned int given = odd ? (above & lows) | (below << 4 & highs)
                                       : (above >> 4 & lows) | (below & highs);
        const unsigned int beside = __shfl_xor_sync(~0u, given, 4);
        const unsigned int upper =
            odd ? (beside & lows) | (above & highs) : (above & lows) | (beside << 4 & highs);
        const unsigned int lower =
            odd ? (beside >> 4 & lows) | (below & highs) : (below & lows) | (beside & highs);
        const unsigned int four = __byte_perm(upper, lower, low ? 0x7632 : 0x5410);
        const unsigned int others =
            __shfl_xor_sync(~0u, __byte_perm(upper, lower, low ? 0x5410 : 0x7632), 8);
        const unsigned int one = __byte_perm(four, others, low ? 0x2604 : 0x6240);
        const unsigned int two = __byte_perm(four, others, low ? 0x3715 : 0x7351);
        const unsigned int kept = late ? two : one;
        const unsigned int got = __shfl_xor_sync(~0u, late ? one : two, 16);

        store_shared_words(at + j * 8 * 16, __byte_perm(kept, got, late ? 0x1054 : 0x5410),
                           __byte_perm(kept, got, late ? 0x3276 : 0x7632));
    }
}

//$ local count, who = back and "RESULTS / 2" or "RESULTS", back and "two warps'" or "warp's"
/* The $(who) lines to memory, 16 bytes of each$(back and ": half of them" or ""). */
FN void store_lines(unsigned int turned, unsigned char *to, long long stride)
{
    const int line = threadIdx.x % 32;

    to += line * stride;
#pragma unroll
    for (int i = 0; i < $(count); i += 32) {
        unsigned int w[4];

        load_shared_x4(turned + (i + line) * 16, w);
        *(uint4 *)to = line / 16 ? make_uint4(w[2], w[3], w[0], w[1])
                                 : make_uint4(w[0], w[1], w[2], w[3]);
        to += 32 * stride;
    }
}
