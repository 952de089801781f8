//$ -- SPDX-License-Identifier: Apache-2.0
//$ local widest = b.scale and b.scale.bytes or 1 -- a's never have more
//$ local some = widest == 1 and "four" or widest == 2 and "two" or "one"
//$ -- Bytes of a scale, and scales in a word: more than one byte only where rows are in order.
//$ local function size_of(s) return s.bytes, 4 // s.bytes end
/*
** Scales of blocks for the warps that dequantize: $(some) of a row in a word, by copies that do not
** hold a thread up, SF_AHEAD steps of k before they are needed. A thread that dequantizes whole
** rows fetches and reads their scales itself, so nothing waits for anybody.
**
** A line is a row's scales for all of its group's k. It begins at any byte, words at multiples of
** four: the scales needed at a time are in two neighbouring words.
*/
//$ local all = { { "a", a, "m" }, { "b", b, "n" } }
//$ local tile_of = { a = tile.m, b = tile.n }
enum {
    SF_AHEAD = $(ahead),
//$ for _, x in ipairs(all) do
//$ local name, o = x[1], x[2]
//$ if o.scale and o.scale.of_values then
//$ local bytes, each = size_of(o.scale)
    $(name:upper())_WORD_K = $(each) * $(o.scale.k), /* steps of k that a word of scales is for */
    $(name:upper())_SLOTS = $(word_slots[name == "a" and 1 or 2]), /* words of a row in flight */
    $(name:upper())_WORDS = $(name == "a" and "0" or word_slots[1] .. " * TILE_M * 4"), /* where */
//$ end
//$ end
};

/* The scales, as the caller gave them. */
struct scales {
//$ for _, x in ipairs(all) do
//$ if x[2].scale and x[2].scale.of_values then
    const unsigned char *$(x[1]);
    long long $(x[1])_stride, $(x[1])_group_stride;
//$ end
//$ end
    int k; /* of a rowwise tensor */
//$ if params.bases then
    unsigned int a_low, b_low; /* the scales' base, in both halves: see twice_f16 */
//$ end
};

struct line {
    const unsigned char *first; /* the word that holds its first scale */
    int bytes;                  /* from there to its end; 0: nothing needs the row */
    int skip;                   /* bytes of that word before its first scale */
};

FN struct scale_group group_of(const struct scales *s, const struct tile *t)
{
//$ local runs = ragged == "k" and "t->start / ALIGNED" or a_runs and "t->runs" or "0"
    const struct scale_group g = { t->group, t->start, t->length, $(runs), s->k };
    return g;
}

/* Bytes `word` of a line into shared memory, zeros past its end. */
FN void fetch_word(unsigned int to, const struct line *l, int word, int step)
{
    const int left = l->bytes - 4 * word;

    copy_word(to, l->first + (left > 0 ? word * step : 0), left < 0 ? 0 : left > 4 ? 4 : left);
}

//$ for _, x in ipairs(all) do
//$ local name, o, lines = x[1], x[2], x[3]
//$ if o.scale and o.scale.of_values then
//$ local s, upper = o.scale, name:upper()
//$ local rows = s.lines
//$ local bytes, each = size_of(s)
//$ local sized = bytes > 1 and function (n) return "(" .. n .. ") * " .. bytes end
//$               or function (n) return n end
/* The line of a row of $(upper), counted in the group, which has `rows` of them. */
FN struct line line_$(name)(const struct scales *s, const struct tile *t, int row, int rows)
{
    const struct scale_group g = group_of(s, t);
    const struct scale_place p =
        place_$(name)(&g, rows, s->$(name)_stride, s->$(name)_group_stride);
    const long long i = p.row + row$(rows > 1 and " / " .. rows or "");
//$ if s.order == "rows" then
    const unsigned char *first = s->$(name) + $(sized("p.base + i * p.stride + p.column"));
//$ else
    /* tiles of 128 x 4 */
    const unsigned char *first =
        s->$(name) + p.base + i / 128 * p.stride + i % 32 * 16 + i % 128 / 32 * 4;
//$ end
    const int skip = (int)((u64)first & 3);
//$ if ragged == "k" then
    const int blocks = ((int)t->length + ALIGNED - 1) / ALIGNED * (ALIGNED / $(s.k));
//$ elseif bytes > 1 then
    const int blocks = (s->k + $(s.k - 1)) / $(s.k) * $(bytes); /* in bytes */
//$ else
    const int blocks = (s->k + $(s.k - 1)) / $(s.k);
//$ end
    const struct line line = { first - skip, row < rows ? skip + blocks : 0, skip };

    return line;
}

/* The address of word `word` of the line of the tile's row `row`. */
FN unsigned int slot_$(name)(const struct memory *s, int word, int row)
{
    return s->words + $(upper)_WORDS + (word % $(upper)_SLOTS * $(tile_of[name]) + row) * 4;
}

FN void fetch_$(name)(const struct memory *s, const struct line *l, int word, int row)
{
    fetch_word(slot_$(name)(s, word, row), l, word, $(s.order == "tiles" and 512 or 4));
}

//$ if dequantize == "swapped" or dequantize == "weights" or dequantize == "few" then
//$ local words = span * tile.k // (each * s.k) -- that a stage needs
/* All words but the first for the stage that begins at `x`, which the one before needs. */
FN void fetch_next_$(name)(const struct memory *s, const struct line *l, int x, int row)
{
//$ if words > 1 and dequantize == "few" then
    const int word = x / $(upper)_WORD_K;

    if (l->bytes >= 4 * (word + 1 + $(words))) /* they are whole */
        for (int i = 1; i <= $(words); i++)
            copy_word(slot_$(name)(s, word + i, row), l->first + 4 * (word + i), 4);
    else
        for (int i = 1; i <= $(words); i++)
            fetch_$(name)(s, l, word + i, row);
//$ elseif words > 1 then
    for (int i = 1; i <= $(words); i++)
        fetch_$(name)(s, l, x / $(upper)_WORD_K + i, row);
//$ elseif words == 1 then
    fetch_$(name)(s, l, x / $(upper)_WORD_K + 1, row);
//$ else
    if (x % $(upper)_WORD_K == 0)
        fetch_$(name)(s, l, x / $(upper)_WORD_K + 1, row);
//$ end
}

//$ end
//$ local some = each == 4 and "four scales" or each == 2 and "two scales" or "scale"
/* The $(some) that step `x` has its own among; `bits` is 8 times the line's skip, of 32. */
FN unsigned int word_$(name)(const struct memory *s, unsigned int bits, int x, int row)
{
    const int word = x / $(upper)_WORD_K;
    const unsigned int near = load_shared_word(slot_$(name)(s, word, row));
    const unsigned int far = load_shared_word(slot_$(name)(s, word + 1, row));

    return __funnelshift_r(near, far, bits);
}

/* The scales of TILE_K steps from `x` on, the first in the lowest byte. */
FN unsigned int scales_$(name)(const struct memory *s, unsigned int bits, int x, int row)
{
//$ if each == 4 then
    return word_$(name)(s, bits, x, row) >> x / $(s.k) % 4 * 8;
//$ else
    return word_$(name)(s, bits, x, row)$(each == 2 and " >> x / " .. s.k .. " % 2 * 16" or "");
//$ end
}

//$ end
//$ end
