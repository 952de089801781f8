//$ -- SPDX-License-Identifier: Apache-2.0
//$ local kind = a.type
/*
** The same as f16: a word has the factors of four blocks, those of this step are the `step`-th two.
** If codes without a factor `must` be zeros, the tile is marked if some are not.
*/
FN void dequantize_half_f16(const struct memory *s, unsigned int codes, unsigned int to, int row,
                            int half, unsigned int factors, int step, int must,
                            unsigned int sequence)
{
    unsigned int word[8], pair[16], factor[2];

#pragma unroll
    for (int i = 0; i < 2; i++)
        factor[i] = permute(factors, 0, (2 * step + i) * 0x1010 + 0x0404);
#pragma unroll
    for (int i = 0; i < 4; i++)
        load_shared_codes(codes + row * 64 + (i ^ row / 2 % 4) * 16 + half * 8, word + 2 * i);
    if (must) {
        unsigned int any = 0;

#pragma unroll
        for (int i = 0; i < 8; i++)
            any |= factor[i / 4] ? 0 : word[i] & 0x7f7f7f7f;
        mark_tile(s, sequence, any);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        dequantize_$(kind)_f16(pair + 2 * i, word[i], factor[i / 4]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        store_shared_x4(to + row * 128 + ((4 * half + i) ^ row % 8) * 16, pair[i], pair[4 + i],
                        pair[8 + i], pair[12 + i]);
}
