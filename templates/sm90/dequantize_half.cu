//$ -- SPDX-License-Identifier: Apache-2.0
//$ local stored = a.bits == 4 and 4 or 8 -- bits of a code: six have a byte
//$ local words = stored -- of 32 codes
//$ local kind = a.type .. (apart and stored == 4 and "_apart" or "")
//$ local blocks = a.scale and (64 > a.scale.k and 64 // a.scale.k or 1)
//$ local each = 32 // stored -- codes in a word
/*
** Half of row `row` of the tile's A, 8 of each 16 steps of k, into 4 of the 8 chunks of 16 bytes of
** the dequantized row: `codes` is where the packed rows begin, `to` the dequantized ones. The copy
** engine's swizzle keeps the halves and rows of neighbouring threads in different banks. The order
** of k is that of the registers that B is multiplied from: see multiply_tile.
*/
//$ if a.scale then
FN void dequantize_half_a(unsigned int codes, unsigned int to, int row, int half,
                          unsigned int scales)
{
    unsigned int word[$(words)], pair[16], scale[$(blocks)];

#pragma unroll
    for (int i = 0; i < $(blocks); i++) /* in both halves */
        scale[i] = permute(scales, 0, i * 0x0101 + 0x4040);
#pragma unroll
    for (int i = 0; i < 4; i++)
//$ if stored == 4 then
        word[i] = load_shared_word(codes + row * 32 + (i / 2 ^ row / 4 % 2) * 16 + i % 2 * 8 +
                                   half * 4);
//$ else
        load_shared_codes(codes + row * 64 + (i ^ row / 2 % 4) * 16 + half * 8, word + 2 * i);
//$ end
//$ if apart and stored == 8 then
#pragma unroll
    for (int i = 0; i < 4; i++)
        codes_apart(word + 2 * i);
//$ end
//$ local of_word = "scale[i / " .. words // 4 .. " * 16 / " .. a.scale.k .. "]"
//$ if a.scale.type == "e8m0" then
//$ local near = apart and stored == 4 and "e8m0_apart" or "e8m0"
    unsigned int most = scale[0];

#pragma unroll
    for (int i = 1; i < $(blocks); i++)
        most = most > scale[i] ? most : scale[i];
    if (__ballot_sync(~0u, most > MOST_$(near:upper()) * 0x10001) == 0)
#pragma unroll
        for (int i = 0; i < $(words); i++)
            dequantize_$(kind)_twice(pair + $(each // 2) * i, word[i], twice_$(near)($(of_word)));
    else
//$ end
#pragma unroll
    for (int i = 0; i < $(words); i++)
//$ if lowered > 0 and a.type == "e2m1" and a.scale.type == "e4m3" then
        dequantize_$(kind)_twice(pair + $(each // 2) * i, word[i],
                                 twice_e4m3_apart($(of_word) & 255));
//$ else
        dequantize_$(kind)(pair + $(each // 2) * i, word[i],
                           factor_$(a.scale.type)($(of_word) & 255));
//$ end
//$ else
FN void dequantize_half_a(unsigned int codes, unsigned int to, int row, int half)
{
    unsigned int pair[16];

#pragma unroll
    for (int i = 0; i < 4; i++)
        load_shared_x4(codes + row * 128 + ((2 * i + half) ^ row % 8) * 16, pair + 4 * i);
//$ if apart then
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs_apart(pair + 4 * i);
//$ end
//$ end
#pragma unroll
    for (int i = 0; i < 4; i++)
        store_shared_x4(to + row * 128 + ((4 * half + i) ^ row % 8) * 16, pair[i], pair[4 + i],
                        pair[8 + i], pair[12 + i]);
}
