//$ -- SPDX-License-Identifier: Apache-2.0
//$ local four, s = b.bits == 4, b.scale
//$ local word_k = 4 // s.bytes * s.k -- steps of k that a word of scales is for
//$ local kind = b.type .. (four and "_apart" or "") .. (s.type == "f32" and "_wide" or "")
//$ local exact = b.type == "e2m1" and s.type == "e8m0" -- bf16 holds all but the largest scales
//$ local low = lowered > 0
//$ once("dequantize/" .. kind .. ".c")
//$ once("dequantize/factor_" .. s.type .. ".c")
//$ once "dequantize/permute.c"
//$ if s.zeros then once("dequantize/zero_" .. b.type .. ".c") end
//$ if exact then once "dequantize/twice_e8m0_apart.c" end
//$ if low then once "dequantize/twice_e4m3_apart.c" end
/*
** The codes of a warp's rows as values. A lane has four neighbouring ones of each 16 steps of k, of
** row l / 4 and of each row that is a multiple of 8 below it. The tensor cores add the products of
** 16 steps in any order, so tokens take the same four.
//$ if four then
** Two codes make a pair of bf16 where 16 bits are between them: the first and the third of the
** four, the second and the fourth.
//$ end
*/
enum { WORDS = $(math.max(tile.k // word_k, 1)) }; /* of scales, that a stage needs of a row */
enum { WORD_STEPS = TILE_K / WORDS };              /* of k, for which one of them is enough */

/* The scales of a lane's rows for one stage. */
struct held {
    unsigned int scales[HELD][WORDS];
//$ if exact then
    int beyond; /* may one of the warp's need care? */
//$ end
};

FN void load_scales(struct held *h, const struct memory *s, const struct rows *r, int x)
{
//$ if exact then
    unsigned int beyond = 0;

//$ end
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < WORDS; j++)
            h->scales[i][j] = word_b(s, r->skips[i], x + j * B_WORD_K, r->row + 8 * i);
//$ if exact then
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < WORDS; j++)
            beyond |= beyond_e8m0_apart(h->scales[i][j]);
    h->beyond = __ballot_sync(~0u, beyond) != 0;
//$ end
}

//$ local mask = s.bytes == 1 and " & 255" or s.bytes == 2 and " & 0xffff" or ""
/* The scale of row i at step y of the stage that begins at `x`, which is word j's, in the lowest
   bits. */
FN unsigned int scale_at(const struct held *h, int i, int j, int x, int y)
{
//$ if s.bytes == 4 then
    (void)x, (void)y;
    return h->scales[i][j];
//$ elseif word_k > tile.k then
    return h->scales[i][j] >> $(8 * s.bytes) * ((x + y) / $(s.k) % $(4 // s.bytes))$(mask);
//$ else
    (void)x;
    return h->scales[i][j] >> $(8 * s.bytes) * (y / $(s.k) % $(4 // s.bytes))$(mask);
//$ end
}

//$ local zero = s.zeros and ", zero_" .. b.type .. "(code)" or b.zero
//$ local factor = "factor_" .. s.type .. "(code" .. (s.zeros and " & 0xffff" or "") .. ")"
//$ for _, form in ipairs(exact and { "near", "any" } or { "all" }) do
//$ local name = form == "all" and "" or "_" .. form
//$ local which = form == "near" and ", which is no large one" or ""
/*
** Row i's four values of the 16 steps from y on of the stage that begins at `x`: words 0 and 2.
** Their scale is that of step y, in word j$(which).
*/
FN void dequantize_row$(name)(unsigned int *word, const struct held *h, unsigned int stage,
                          const struct rows *r, int i, int j, int x, int y)
{
    const int byte = y * $(b.bits) / 8;
    const unsigned int from = stage + r->codes + i * 8 * B_ROW + (byte / 16 * 16 ^ r->digits);
//$ if form == "near" then
//$ local place = word_k > tile.k and "(x + y) / " .. s.k .. " % 4" or "y / " .. s.k .. " % 4"
    const unsigned int digits = 0x4040 + $(place) * 0x0101; /* twice, 16 bits apart */
    const unsigned int twice =
        twice_e8m0_apart(permute(h->scales[i][j], 0, digits));
//$ else
    const unsigned int code = scale_at(h, i, j, x, y);
//$ end
//$ if four then
//$ local scale = low and "twice_e4m3_apart(code)" or form == "near" and "twice" or factor .. zero
//$ local by = (low or form == "near") and "_twice" or ""
    /* 16 bits between its two bytes */
    const unsigned int codes = permute(load_shared_half(from + byte % 16), 0, 0x4140);
    unsigned int pair[4]; /* the last two would be those of the bytes between */

    (void)x;
    dequantize_$(kind)$(by)(pair, codes, $(scale));
//$ else
    unsigned int pair[2];

    dequantize_$(kind)(pair, load_shared_word(from), $(factor)$(zero));
//$ end
    word[0] = pair[0];
    word[2] = pair[1];
}

//$ end
//$ if s.global or low then
//$ local raised = low and "sum[i][j][c] * 0x1p" .. lowered .. "f" or "sum[i][j][c]"
/* The factor of whole sums$(low and ", and the powers of two that they lack" or ""). */
FN void finish_sums(float sum[WARP_N / 16][TILE_M / 8][4], float factor)
{
#pragma unroll
    for (int i = 0; i < WARP_N / 16; i++)
#pragma unroll
        for (int j = 0; j < TILE_M / 8; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                sum[i][j][c] = __fmul_rn($(raised), factor);
}

//$ end
