//$ -- SPDX-License-Identifier: Apache-2.0
//$ local zero = scale.zeros and ", int zero" or ""
//$ local across, down = scale.k > 0 and scale.k or 128, scale.rows > 0 and scale.rows or 1
/*
** A tile of one copy, as lines of 128 values. The same code makes both tensors: lines are rows
** of the rowwise tensor and features of the columnwise tensor.
*/
struct lines {
    const struct copy *copy;
    const struct scales *scales;
    int line, value; /* of the tile, inside the group */
    int count;       /* lines that there are, from the tile's first on */
    int end;         /* values of a line that are stored, zeros past the group included */
    long long at;    /* of the tile's first value in the copy */
    long long first; /* of the tile's first line, among those of all groups */
};

/* Value `at` of the copy, counted from its first one. */
static void store(const struct work *w, const struct lines *lines, long long at, float x$(zero))
{
//$ if scale.stochastic then
    const struct philox random = philox(w->random[0], w->random[1] + (unsigned long long)at / 16);
    const unsigned code = to_$(element.type)_stochastic(x, random_byte(&random, (int)(at % 16)));
//$ else
    const unsigned code = to_$(element.type)(x$(element.zero));
//$ end
    unsigned char *data = lines->copy->data;

//$ if not scale.stochastic then
    (void)w;
//$ end
//$ if element.bits == 4 then
    if (at % 2) /* no other worker has the first one: tiles begin at even values */
        data[at / 2] = (unsigned char)(data[at / 2] | code << 4);
    else
        data[at / 2] = (unsigned char)code;
//$ else
    data[at] = (unsigned char)code;
//$ end
}

//$ if scale.span == "block" then
//$ include "quantize/store_sf.c"

//$ if scale.zeros then
//$ include "quantize/span.c"

/* The factor of block (i, j), and its zero point. */
static float scale_block(const struct work *w, const struct lines *lines, int i, int j,
                         float tile[TILE][TILE], int *zero)
{
    struct span span = { 0, 0 };
    unsigned int sf;
    float factor;

    for (int at = j * ACROSS; at < (j + 1) * ACROSS; at++)
        widen(&span, tile[i][at]);
    (void)w;
//$ local input = scale.by_input and "w->input, " or ""
    factor = scale_of($(input)add_rn(span.below, span.above), &sf);
    *zero = zero_point(&span, factor);
    store_sf(lines->copy->sf, lines->scales, lines->line + i, lines->value / ACROSS + j,
             sf | (unsigned int)*zero << 16);
    return factor;
}
//$ else
/* The factor of block (i, j). */
static float scale_block(const struct work *w, const struct lines *lines, int i, int j,
                         float tile[TILE][TILE]$(scale.global and ", float global" or ""))
{
    $(scale.type == "f32" and "float" or "unsigned int") sf;
    unsigned int amax = 0;
    float factor;

    for (int line = i * DOWN; line < (i + 1) * DOWN; line++) {
        const unsigned int found = amax_of(tile[line] + j * ACROSS, ACROSS);
        amax = found > amax ? found : amax;
    }
//$ if scale.as then
    /* None is further below the largest of 128 values of k than e4m3 reaches. COUPLED: as */
    const float least = mul_rn(float_of(amax_of(tile[i], TILE)), 0x1p-14f);

    if (lines->copy == &w->row && bits_of(least) > amax)
        amax = bits_of(least);
//$ end
    (void)w;
//$ local input, global = scale.by_input and "w->input, " or "", scale.global and ", global" or ""
    factor = scale_of($(input)float_of(amax)$(global), &sf);
    for (int line = i * DOWN; line < (i + 1) * DOWN; line += SF_LINES)
        store_sf(lines->copy->sf, lines->scales, (lines->line + line) / SF_LINES,
                 lines->value / ACROSS + j, (sf_element)sf);
    return factor;
}
//$ end
//$ else
/* The factor of a line, from the maxima found before; its scale is stored with its first tile. */
static float scale_line(const struct work *w, const struct group *g, const struct lines *lines,
                        int line)
{
//$ if scale.span == "row" then
    const long long at = lines->first + line;
//$ else
    const long long at = $(scale.span == "group" and "g->number" or "0");
//$ end
    $(scale.type == "f32" and "float" or "unsigned int") sf;
    float factor;

    (void)g;
//$ if scale.delayed then
    factor = w->delayed[0];
    sf = w->delayed[1];
//$ else
    (void)w;
    factor = scale_of($(scale.by_input and "w->input, " or "")float_of(lines->copy->amax[at]), &sf);
//$ end
    if (lines->value == 0$(scale.span == "row" and "" or " && lines->line == 0 && line == 0"))
        lines->copy->sf[at] = (sf_element)sf;
    return factor;
}
//$ end

/* The whole tile. */
static void quantize_lines(const struct work *w, const struct group *g, const struct lines *lines,
                           float tile[TILE][TILE])
{
//$ if scale.span == "block" then
    float factor[TILE / DOWN][TILE / ACROSS];
//$ if scale.zeros then
    int zero[TILE / DOWN][TILE / ACROSS];
//$ end
//$ if scale.global then
    float stored;
    const float global = global_of(float_of(lines->copy->amax[g->number]), &stored);

    lines->copy->global[g->number] = stored;
//$ else

    (void)g;
//$ end
    for (int i = 0; i < TILE / DOWN; i++)
        for (int j = 0; j < TILE / ACROSS; j++)
//$ if scale.zeros then
            factor[i][j] = scale_block(w, lines, i, j, tile, &zero[i][j]);
//$ else
            factor[i][j] = scale_block(w, lines, i, j, tile$(scale.global and ", global" or ""));
//$ end
//$ end
    for (int line = 0; line < TILE && line < lines->count; line++) {
//$ if scale.span ~= "block" then
        const float factor = scale_line(w, g, lines, line);
//$ end
        for (int i = 0; i < TILE && i < lines->end; i++)
            store(w, lines, lines->at + line * lines->copy->stride + i,
//$ if scale.zeros then
                  mul_rn(tile[line][i], factor[line][i / ACROSS]), zero[line][i / ACROSS]);
//$ elseif scale.span == "block" then
                  mul_rn(tile[line][i], factor[line / DOWN][i / ACROSS]));
//$ else
                  mul_rn(tile[line][i], factor));
//$ end
    }
}
