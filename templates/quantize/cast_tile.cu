//$ -- SPDX-License-Identifier: Apache-2.0
//$ local bits = element.bits == 4 and 4 or 8 -- in memory
//$ local cast = "to_" .. element.type .. "_x2"
//$ local power = scale.powers and input.bits == 16 -- 16 bits pack a product, too
//$ if element.type == "e2m1" and power and arch ~= "sm_80" then
//$   cast = cast .. "_of_f16"
//$ end
/*
//$ if scale.hadamard then
** All of a thread's values into the rowwise tensor, and their sums.
//$ else
** All of a thread's values into the rowwise and the columnwise tensor, and their sums: 16 rows are
** read, and their codes take their place, until the rowwise tensor's part is stored, and
** later the columnwise tensor's.
//$ end
** `stored` rows of the rowwise tensor are, `rows` are in the group; the others are zeros. `at` is
** where the first value is that the thread stores. FULL: all of them, of either.
*/
template <int FULL>
//$ local lines = scale.span == "row" or (scale.span == "block" and scale.rows == 1)
//$ local drawn = scale.stochastic and not scale.hadamard
//$ local random = drawn and ", const struct copy *column, long long along" or ""
//$ local shares = (lines or scale.stochastic) and "struct shared *shared, " or ""
//$ local given = (not lines or not scale.hadamard) and "const struct factors *f, " or ""
FN void cast_rows($(shares)const struct coord *p, const struct copy *row,
                  packed *tile, $(given)int rows, int stored, long long at, float sum[2]$(random))
{
//$ local direct, half = scale.hadamard, bits == 4 and " / 2" or ""
//$ if direct then
    unsigned char *to = kept(row->data + at$(half));
//$ else
    unsigned char *to = row->data + at$(half);
//$ end
    const long long step = row->stride$(half);
    const packed *const v = tile + first_value(p);
    int negative[2] = { 0, 0 }; /* rows of -0 */

    sum[0] = sum[1] = -0.0f; /* to which -0 may be added */
//$ if bits == 4 then
#pragma unroll 1 /* the code is long */
//$ else
#pragma unroll
//$ end
    for (int first = 0; first < ROWS; first += 16) {
//$ if not direct then
        const float factors[2] = { column_factor(f, 0, first), column_factor(f, 1, first) };
        packed here[16];
        unsigned made[16]; /* codes of the rowwise tensor */
        unsigned words[2][WORDS];
        float before[2] = { 0, 0 }; /* the row above, times the columns' factors */
//$ if scale.stochastic then
        const struct philox drawn[2] = { draw_line(column, along + first),
                                         draw_line(column, along + column->stride + first) };
//$ end

#pragma unroll
        for (int i = 0; i < 16; i++)
            here[i] = value(v, first + i);
//$ end

#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int r = first + i;
//$ local value = direct and "value(v, r)" or "here[i]"
            const float lo = lo_of($(value)), hi = hi_of($(value));
            const float factor = row_factor($(lines and "shared, p" or "f"), r);
            const float a = mul_rn(lo, factor), b = mul_rn(hi, factor);
//$ if scale.stochastic then
            const unsigned codes = round_two(drawn_bytes(shared, p, r), a, b);
//$ else
            const unsigned codes = $(cast)(a, b$(element.zero));
//$ end
//$ if direct then
            store_codes(to + step * i, codes, FULL ? stored > 0 : r < stored);
//$ else
            made[i] = codes;
//$ end
            sum[0] = add_rn(sum[0], lo);
            sum[1] = add_rn(sum[1], hi);
            if (!FULL) {
                negative[0] += bits_of(lo) == 0x80000000u;
                negative[1] += bits_of(hi) == 0x80000000u;
            }
//$ if not direct then
            const float c = mul_rn(lo, factors[0]), d = mul_rn(hi, factors[1]);
            if (i % 2 == 0) {
                before[0] = c;
                before[1] = d;
            } else {
//$ if scale.stochastic then
                gather(words[0], i - 1, round_two(drawn_rows(&drawn[0], i - 1), before[0], c));
                gather(words[1], i - 1, round_two(drawn_rows(&drawn[1], i - 1), before[1], d));
//$ else
                gather(words[0], i - 1, $(cast)(before[0], c$(element.zero)));
                gather(words[1], i - 1, $(cast)(before[1], d$(element.zero)));
//$ end
            }
//$ end
        }
//$ if not direct then
//$ local two = bits == 4 and "unsigned char" or "unsigned short"
        __syncwarp(); /* all lanes have read these rows */
#pragma unroll
        for (int i = 0; i < 16; i++)
            (($(two) *)staged_row(tile, p, first, i))[p->lane] = ($(two))made[i];
        stage_rows(tile, p, first, words); /* whether it is wanted or not: costs least */
        __syncwarp();
        store_rows(tile, p, first, to, step, stored - first);
//$ end
        to += step * 16;
    }
    /* The zeros after the group's rows are positive: only a sum of nothing but -0 would differ. */
    if (!FULL && negative[0] == rows)
        sum[0] = -0.0f;
    if (!FULL && negative[1] == rows)
        sum[1] = -0.0f;
}

//$ local from = scale.stochastic and ", const struct copy *column, long long at" or ""
//$ if scale.hadamard then
/* Sixteen values of a line of the columnwise tensor, of which `at` is the number of the first. */
FN void cast_line(unsigned words[WORDS], const float c[16], float factor$(from))
{
//$ if scale.stochastic then
    const struct philox drawn = draw_line(column, at);

//$ end
#pragma unroll
    for (int r = 0; r < 16; r += 2) {
        const float lo = mul_rn(c[r], factor), hi = mul_rn(c[r + 1], factor);
//$ if scale.stochastic then
        gather(words, r, round_two(drawn_rows(&drawn, r), lo, hi));
//$ else
        gather(words, r, to_$(element.type)_x2(lo, hi$(element.zero)));
//$ end
    }
}

//$ end
//$ local sf_type = scale.type == "f32" and "float" or "unsigned int"
//$ local blockwise = scale.span == "block" and scale.k <= 32 -- else a factor is known before
//$ if scale.hadamard and blockwise then
//$ local shape = scale.words and "" or "const struct shape *all, "
/*
** The columnwise tensor of values that are transformed first, block after block: $(scale.k) rows of
** a feature are transformed, scaled and cast while they are in registers.
*/
FN void cast_transformed(struct shared *shared, const struct coord *p, const struct group *g,
                    const struct tile *t, $(shape)const struct copy *column,
                    packed *tile$(scale.stochastic and ", long long at" or ""))
{
    const packed *const v = tile + first_value(p);
//$ if scale.global then
    const float global = global_factor(column->amax, column->global, g, t);

//$ end
#pragma unroll 1
    for (int first = 0; first < ROWS; first += ACROSS) {
        unsigned words[ACROSS / 16][2][WORDS];

#pragma unroll
        for (int second = 0; second < 2; second++) {
            float c[ACROSS], most = 0, factor;
            $(sf_type) sf;

#pragma unroll
            for (int i = 0; i < ACROSS; i += 16)
                transform(v + (first + i) * LINE, second, c + i);
#pragma unroll
            for (int i = 0; i < ACROSS; i++)
                most = larger(most, fabsf(c[i]));
            factor = scale_of(most$(scale.global and ", global" or ""), &sf);
//$ local place = scale.words and "shared, p" or "p, g, t, all, column"
            store_column_sf($(place), second, first, (sf_element)sf);
#pragma unroll
            for (int i = 0; i < ACROSS; i += 16)
//$ local random = ", column, at + second * column->stride + first + i"
                cast_line(words[i / 16][second], c + i, factor$(scale.stochastic and random or ""));
        }
        __syncwarp(); /* all lanes have read these rows */
#pragma unroll
        for (int i = 0; i < ACROSS; i += 16)
            stage_rows(tile, p, first + i, words[i / 16]);
    }
}

//$ elseif scale.hadamard then
/* The columnwise tensor of values that are transformed first. */
FN void cast_transformed(const struct coord *p, packed *tile,
                    const struct factors *f$(from))
{
    const packed *const v = tile + first_value(p);

#pragma unroll
    for (int first = 0; first < ROWS; first += 16) {
        unsigned words[2][WORDS];

#pragma unroll
        for (int second = 0; second < 2; second++) {
            float c[16];
            transform(v + first * LINE, second, c);
//$ local random = ", column, at + second * column->stride + first"
            cast_line(words[second], c,
                      column_factor(f, second, first)$(scale.stochastic and random or ""));
        }
        __syncwarp(); /* all lanes have read these rows */
        stage_rows(tile, p, first, words);
    }
}

//$ end
//$ local all = of == "w" and "all, " or ""
//$ local sums = of ~= "w" and ", float *partials" or ""
/*
//$ if of ~= "w" then
** A tile: the rowwise and the columnwise tensor, and each thread's sums if there is room for them.
//$ else
** A tile: the rowwise and the columnwise tensor.
//$ end
** All threads come here together, and may leave before all of the columnwise tensor has been
** stored.
*/
FN void cast_tile(struct shared *shared, const struct coord *p, const struct group *g,
                  const struct tile *t, const struct shape *all, const struct copy *row,
                  const struct copy *column, packed *tile$(sums))
{
    const int rows = g->length - t->row - ROWS * p->part;
//$ local stores = scale.hadamard and "2 * p->lane" or "p->lane % ROW_PIECES * " .. 128 // bits
    /* The first that the thread stores. */
    const int feature = 64 * p->half + $(stores);
    const int stored = row->data && t->column + feature < row->stride ? rows : 0;
    const long long at = row_at(row, p, g, t, $(all)feature);
//$ if scale.stochastic then
    const long long along = column_at(column, g, $(all)t) +
                            (64 * p->half + 2 * p->lane) * column->stride + ROWS * p->part;
//$ end
    const packed *const v = tile + first_value(p);
//$ local factored = not (lines and scale.hadamard and scale.span == "block" and scale.k <= 32)
//$ if factored then
    struct factors f = { { 0 }, { { 0 } } };
//$ end
    float sum[2];

//$ if scale.stochastic then
    if (row->data)
        draw_rows(shared, p, row, row_at(row, p, g, t, $(all)64 * p->half + 2 * p->lane));
//$ end
//$ local shares = shares ~= "" and "shared, " or ""
//$ local given = given ~= "" and "&f, " or ""
//$ local random = drawn and ", column, along" or ""
//$ local found = "g, t, row, column, &f"
//$ if scale.rows > 1 then
//$   found = (scale.k > 32 and "shared, " or "") .. "p, g, t, all, row, column, v, &f"
//$ elseif lines and scale.span == "block" and scale.k < 128 then
//$   local tile = scale.words and (scale.global and "g, t, " or "") or "g, t, all, "
//$   found = "shared, p, " .. tile .. "row, " .. (factored and "column, &f, " or "") .. "v"
//$ elseif lines then
//$   local values = scale.span == "block" and "v, " or ""
//$   found = "shared, p, g, t, all, row, column, " .. values .. "&f"
//$ end
    find_factors($(found));
    if (rows >= ROWS)
        cast_rows<1>($(shares)p, row, tile, $(given)rows, stored, at, sum$(random));
    else
        cast_rows<0>($(shares)p, row, tile, $(given)rows, stored, at, sum$(random));
//$ if of ~= "w" then
    if (partials)
        sum_part(partials, p, g, t, all, sum);
//$ end
//$ if scale.hadamard then
    if (column->data)
//$ if blockwise then
//$ local shape, along = scale.words and "" or "all, ", scale.stochastic and ", along" or ""
        cast_transformed(shared, p, g, t, $(shape)column, tile$(along));
//$ else
        cast_transformed(p, tile, &f$(scale.stochastic and ", column, along" or ""));
//$ end
//$ end
    __syncthreads();
    if (column->data)
        store_stage(tile, column, g, t, all);
//$ if scale.words then
    store_line_scales(shared, p, g, t, all, row, column);
//$ end
}
