//$ -- SPDX-License-Identifier: Apache-2.0
//$ once("dequantize/requantize_" .. element.type .. ".c")
//$ once "dequantize/requantize_scale.c"
enum {
    PIECE = 16, /* codes that a thread has of a line */
    NAN_CODE = 255
};

/* Sixteen codes, and their scale's. */
struct part {
    uint2 codes;
    int scale;
};

/* Codes from `count` on become 0. */
FN void cut_codes(uint2 *codes, int count)
{
    if (count < PIECE) {
        const unsigned long long kept = (1ull << 4 * count) - 1;

        codes->x &= (unsigned)kept;
        codes->y &= (unsigned)(kept >> 32);
    }
}

/* Sixteen codes more; 1 if some of them is no number of e4m3 under this scale. */
FN int convert(uint4 *to, const struct part *p, int exponent)
{
    const int r = p->scale - 127 - exponent;
    const struct magnitudes m = magnitudes_of(r);
    unsigned word[4];
    int bad = p->scale == NAN_CODE;

    requantize_$(element.type)(word, p->codes.x, &m);
    requantize_$(element.type)(word + 2, p->codes.y, &m);
    *to = make_uint4(word[0], word[1], word[2], word[3]);
    if (!requantize_always(r))
        for (int i = 0; i < 4; i++)
            bad |= requantize_nan(word[i]);
    return bad;
}
