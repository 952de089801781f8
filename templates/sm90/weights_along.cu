//$ -- SPDX-License-Identifier: Apache-2.0
//$ local four = b.bits == 4
//$ local s = b.scale
//$ local word_k = 4 // s.bytes * s.k -- steps of k that a word of scales is for
//$ local blocks = math.max(tile.k // s.k, 1) -- scales of a row's step
//$ local kind = b.type .. (four and "_byte" or "")
//$ local f16 = a.type == "f16" -- values of tokens, and so of weights
//$ local wide = s.type == "f32" or f16 and s.type ~= "f16" and s.type ~= "e4m3"
//$ -- Codes times powers of two, or scales of few digits: 16 bits hold such a scale.
//$ local twice = b.type == "e2m1" and (s.type == "e8m0" or lowered > 0)
//$ local care = b.type == "e2m1" and s.type == "e8m0" -- as neither has the largest ones
//$ local integer = four and b.integer
//$ local of_f16 = f16 and "_f16" or ""
/*
** Weights whose rows go along k: for each 16 steps of k the tensor cores want from lane l the two
** from 2 (l % 4) on, and the two that are 8 after them, of row l / 4 and of the row 8 below.
*/
//$ if f16 then
//$ once("dequantize/" .. (integer and "integers_f16" or b.type .. "_half") .. ".c")
//$ else
//$ once("dequantize/" .. (b.integer and "integers" or kind .. (wide and "_wide" or "")) .. ".c")
//$ end
//$ once("dequantize/factor_" .. s.type .. ".c")
//$ if s.zeros then once("dequantize/zero_" .. b.type .. ".c") end
//$ if care then once "dequantize/twice_e8m0_apart.c" end
//$ if twice and lowered > 0 and not f16 then once "dequantize/twice_e4m3_apart.c" end
//$ if not four then once "dequantize/permute.c" end
enum { LINES = COLUMNS / 4, HELD = LINES / 8 }; /* rows of B: in a warp, in a thread */
//$ local two = epilogue == "activate" and operands ~= "one"
//$ if two then
//$ local run = operands == "halves" and tile.n // 2 or interleave
/* A warp's rows of B make the first operands of 8 results, then the second ones: in a stage these
   are APART rows away. */
enum { APART = $(run) };

/* The row of B in a stage that makes the first operand of the tile's result `i`. */
FN int first_operand(int i)
{
    return $(operands == "halves" and "i" or "i / APART * 2 * APART + i % APART");
}

/* The column of p that the warp's row `line` makes, whose first result is `result`. */
//$ if operands == "halves" then
FN int column_of(int result, int line, int columns)
//$ else
FN int column_of(int result, int line)
//$ end
{
    const int own = result + line % 8;

//$ if operands == "halves" then
    return own + line / 8 * (columns / 2);
//$ elseif interleave == 1 then
    return 2 * own + line / 8;
//$ else
    return own / APART * 2 * APART + own % APART + line / 8 * APART;
//$ end
}

//$ end
//$ local apart = two and "APART" or "8"

/* The position of the first of a thread's rows: in a stage, among the scales; its lines. */
struct rows {
    unsigned int codes, digits; /* without, and only the swizzle */
    int row;
    struct line line; /* of the lane's row, whose scales it asks for */
    int line_row;
    unsigned int skips;        /* a byte of each line's bits before its first scale */
    unsigned int scales[HELD]; /* a word for each row */
//$ if care then
    int beyond; /* may one of the warp's need care? */
//$ end
};

/* Ask for the scales that are needed SF_AHEAD steps after `x`; a lane for each line. */
FN void fetch_ahead(const struct memory *s, struct rows *r, int x, int lane)
{
    if (lane < LINES)
        fetch_next_b(s, &r->line, x + SF_AHEAD * TILE_K, r->line_row);
    copy_commit();
}

/* Before the first step. `columns` are D's, all of them. */
FN void rows_begin(struct rows *r, const struct memory *s, const struct scales *scales,
                   const struct tile *t, int first_row, int columns, int lane)
{
    const int warp_row = threadIdx.x / 32 % 4 * LINES;

//$ if two then
    const int code_row = first_operand((first_row + warp_row) / 2 + lane / 4);

//$ local of_halves = operands == "halves" and ", columns" or ""
    r->line = line_b(scales, t, column_of((t->column + warp_row) / 2, lane % LINES$(of_halves)),
                     columns);
//$ else
    r->line = line_b(scales, t, t->column + warp_row + lane % LINES, columns);
//$ end
    r->line_row = first_row + warp_row + lane % LINES;
    r->row = first_row + warp_row + lane / 4;
    r->codes = $(two and "code_row" or "r->row") * B_ROW + lane % 4$(four and "" or " * 2");
//$ if two then
    r->digits = code_row / (128 / B_ROW) % (B_ROW / 16) * 16;
//$ else
    r->digits = lane / $(four and 16 or 8) * 16;
//$ end
    r->skips = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        r->skips |= (unsigned int)__shfl_sync(~0u, r->line.skip, 8 * i + lane / 4) << (8 * i + 3);
    if (lane < LINES)
        fetch_b(s, &r->line, 0, r->line_row);
}

//$ if word_k > tile.k then
/* The scales of the step at `x`, if the steps before had others. */
//$ else
/* The scales of the step at `x`. */
//$ end
FN void load_scales(struct rows *r, const struct memory *s, int x)
{
//$ if word_k > tile.k then
    if (x % B_WORD_K != 0)
        return;
//$ end
#pragma unroll
    for (int i = 0; i < HELD; i++)
        r->scales[i] = word_b(s, r->skips >> 8 * i, x, r->row + 8 * i);
//$ if care then
    unsigned int beyond = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        beyond |= beyond_e8m0_apart(r->scales[i]);
    r->beyond = __ballot_sync(~0u, beyond) != 0;
//$ end
}

//$ local each = s.k < tile.k and s.k or tile.k -- steps of k with one scale
//$ -- the scale of block j of the step at x, in the lowest bits of a word
//$ local function code_at()
//$   local shift = word_k > tile.k and "(x / " .. s.k .. " + j) % " .. 4 // s.bytes or "j"
//$   if s.bytes == 4 then return "r->scales[i]" end
//$   return "r->scales[i] >> " .. 8 * s.bytes .. " * (" .. shift .. ")"
//$ end
//$ local mask = s.bytes == 1 and " & 255" or s.bytes == 2 and not s.zeros and " & 0xffff" or ""
//$ local factor = "factor_" .. s.type .. "(code" .. (s.zeros and " & 0xffff" or "") .. ")"
//$ local zero = s.zeros and ", zero_" .. b.type .. "(code)" or b.zero
//$ for _, form in ipairs(care and { "near", "any" } or { "all" }) do
//$ local name = form == "all" and "dequantize_block" or "dequantize_block_" .. form
//$ local short = integer and s.type ~= "f16" and "_short" or ""
//$ local by = wide and "_wide" or (form == "near" or twice and form == "all") and "_twice" or short
//$ local by_twice = form == "near" or twice and form == "all"
//$ local function value (byte)
//$   if not f16 then return "dequantize_" .. kind .. by .. "(" .. byte .. ", scale)" end
//$   if integer then
//$     local f16_by = wide and "_f16_wide" or "_f16"
//$     return "dequantize_" .. kind .. f16_by .. "(" .. byte .. ", scale)"
//$   end
//$   local bits = "bits_e2m1_half_byte(" .. byte .. ")"
//$   return (by_twice and "multiply_f16x2(" or "scale_e2m1_half(") .. bits .. ", scale)"
//$ end
//$ local which = form == "near" and ", which is no large one" or ""
/* The values of the thread's row i, those of scale j of its step at `x`$(which). */
FN void $(name)(struct fragment *f, const struct rows *r, unsigned int stage, int x, int i, int j)
{
    const unsigned int code = $(mask == "" and code_at() or "(" .. code_at() .. ")" .. mask);
//$ if integer or not by_twice then
//$ local of = "scale_of_" .. b.type .. of_f16
    const $(integer and "struct integer_scale" .. of_f16 or "float") scale =
        $(integer and of .. "(" .. factor .. zero .. ")" or factor);
//$ elseif care then
//$ local twice_e8m0 = f16 and "twice_e8m0_half(code)" or "twice_e8m0_apart(code * 0x10001)"
    const unsigned int scale = $(twice_e8m0);
//$ else
    const unsigned int scale = twice_e4m3_$(f16 and "half" or "apart")(code);
//$ end
    const unsigned int row = stage + r->codes + i * $(apart) * B_ROW;

    (void)x;
#pragma unroll
    for (int y = j * $(each); y < (j + 1) * $(each); y += 16) {
//$ if four then
        const unsigned int from = row + (y / 32 * 16 ^ r->digits) + y % 32 / 2;

        f->pair[i][y / 8] = $(value "load_shared_byte(from)");
        f->pair[i][y / 8 + 1] = $(value "load_shared_byte(from + 4)");
//$ else
        const unsigned int from = row + (y ^ r->digits);

        dequantize_$(f16 and b.type .. "_half" or kind .. by)(
            f->pair[i] + y / 8, permute(load_shared_half(from), load_shared_half(from + 8), 0x5410),
            scale);
//$ end
    }
}

//$ end
/* All values of the step at `x`, whose stage of B is at `stage`. */
FN void dequantize_step(struct fragment *f, const struct rows *r, unsigned int stage, int x)
{
//$ if care then
    if (r->beyond) {
#pragma unroll
        for (int i = 0; i < HELD; i++)
#pragma unroll
            for (int j = 0; j < $(blocks); j++)
                dequantize_block_any(f, r, stage, x, i, j);
        return;
    }
//$ end
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < $(blocks); j++)
            dequantize_block$(care and "_near" or "")(f, r, stage, x, i, j);
}
