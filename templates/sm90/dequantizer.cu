//$ -- SPDX-License-Identifier: Apache-2.0
//$ local f16 = wide == "f16"
/*
** The warps between the copies and the products: each thread takes whole rows of a
** packed stage, TILE_K codes and their scales, and writes them as $(wide) into a stage of the ring,
** where the tensor cores expect them.
*/
//$ local in_order = a_strategy ~= "registers" and b_strategy ~= "registers"
//$ local all = { { "a", a, "m", tile.m, a_strategy }, { "b", b, "n", tile.n, b_strategy } }
//$ for _, x in ipairs(all) do
//$ local name, o, strategy = x[1], x[2], x[5]
//$ if strategy == "dequantized" then
//$ local stored = o.bits == 4 and 4 or 8 -- bits of a code: six have a byte
//$ local words = 64 * stored // 32
//$ local each = 32 // stored -- codes in a word
//$ local upper = name:upper()
//$ local kind = o.type .. (apart and stored == 4 and "_apart" or "") .. (f16 and "_f16" or "")
//$ if o.scale and o.scale.type == "f32" then kind = kind .. "_wide" end
/*
** Row `row` of the tile's $(upper): `codes` is where the packed rows begin, `to` the dequantized
** ones. 16 bytes of a row of $(8 * stored) are where the copy engine's swizzle puts them, so that
** the rows of neighbouring threads are in different banks.
//$ if not in_order then
** The order of k is that of the registers that A is multiplied from: see multiply_tile.
//$ end
*/
FN void dequantize_row_$(name)(unsigned int codes, unsigned int to, int row,
                         unsigned int scales$(f16 and ", unsigned int low" or ""))
{
    unsigned int word[$(words)], pair[32];
    $(f16 and "unsigned int" or "float") factor[$(64 > o.scale.k and 64 // o.scale.k or 1)];

//$ local turned = stored == 4 and "row / 4 % 2" or "row / 2 % 4"
#pragma unroll
    for (int i = 0; i < $(words // 4); i++)
        load_shared_x4(codes + row * $(8 * stored) + (i ^ $(turned)) * 16, word + 4 * i);
#pragma unroll
    for (int i = 0; i < $(64 > o.scale.k and 64 // o.scale.k or 1); i++)
//$ if f16 then
        factor[i] = twice_f16(permute(scales, 0, i * 0x0101 + 0x4040), low);
//$ else
//$ local bytes = o.scale.bytes
//$ local own = bytes == 4 and "scales" or bytes == 2 and "scales >> 16 * i & 0xffff"
//$             or "scales >> 8 * i & 255"
        factor[i] = factor_$(o.scale.type)($(own));
//$ end
//$ if o.scale.zeros then
    const unsigned int zero = zero_$(o.type)(scales);
//$ end
//$ if apart and stored == 8 then
#pragma unroll
    for (int i = 0; i < $(words); i += 2)
        codes_apart(word + i);
//$ end
//$ local at = "i * " .. each .. " / " .. o.scale.k
#pragma unroll
    for (int i = 0; i < $(words); i++)
        dequantize_$(kind)(pair + $(each // 2) * i, word[i], factor[$(at)]$(o.zero));
#pragma unroll
    for (int i = 0; i < 8; i++)
//$ if not in_order then
        store_shared_x4(to + row * 128 + (i ^ row % 8) * 16, pair[i], pair[8 + i], pair[16 + i],
                        pair[24 + i]);
//$ else
        store_shared_x4(to + row * 128 + (i ^ row % 8) * 16, pair[4 * i], pair[4 * i + 1],
                        pair[4 * i + 2], pair[4 * i + 3]);
//$ end
}

//$ end
//$ end
/* Dequantize all steps of one tile: `p` is the place of the packed stages, `q` of those of the
   ring. */
//$ local function made(strategy, o) return strategy == "dequantized" and o.scale end
//$ local ends = made(a_strategy, a) and ", int rows" or ""
//$ ends = ends .. (made(b_strategy, b) and ", int columns" or "")
FN void dequantize_tile(const struct memory *s, struct pipeline *p, struct pipeline *q,
                        const struct tile *t, const struct scales *scales$(ends), int k, int lane)
{
    const int thread = threadIdx.x % 128;
//$ for _, x in ipairs(all) do
//$ local name, tile_rows, strategy = x[1], x[4], x[5]
//$ if strategy == "dequantized" and x[2].scale then
    struct line $(name)_line[$((tile_rows + 127) // 128)];
//$ end
//$ end

    copy_wait(0); /* unneeded copies of the tile before may still land */
//$ -- a row for each thread, or for half of them
//$ for _, x in ipairs(all) do
//$ local name, tile_rows, strategy = x[1], x[4], x[5]
//$ if strategy == "dequantized" and x[2].scale then
#pragma unroll
    for (int i = 0; i < $((tile_rows + 127) // 128); i++) {
        const int row = thread + 128 * i;
//$ local place = name == "a" and "t->row" or "t->column"
//$ local most = name == "a" and "rows" or "columns"
        $(name)_line[i] = line_$(name)(scales, t, $(place) + row, $(most));
        if (row < $(tile_rows))
            fetch_$(name)(s, &$(name)_line[i], 0, row);
    }
//$ end
//$ end
#pragma unroll 1
    for (int x = -SF_AHEAD * TILE_K; x < k; x += TILE_K) {
        const int later = x + SF_AHEAD * TILE_K;
        const unsigned int packed = s->packed + p->stage * PACKED_BYTES;
        const unsigned int stage = s->ring + q->stage * STAGE_BYTES;

//$ for _, x in ipairs(all) do
//$ local name, tile_rows, strategy = x[1], x[4], x[5]
//$ local upper = name:upper()
//$ if strategy == "dequantized" and x[2].scale then
        if (later % $(upper)_WORD_K == 0)
#pragma unroll
            for (int i = 0; i < $((tile_rows + 127) // 128); i++)
                if (thread + 128 * i < $(tile_rows))
                    fetch_$(name)(s, &$(name)_line[i], later / $(upper)_WORD_K + 1,
                            thread + 128 * i);
//$ end
//$ end
        copy_commit();
        if (x < 0)
            continue;
        copy_wait(SF_AHEAD);
        barrier_wait(s->packed_full + p->stage * 8, p->parity);
        barrier_wait(s->empty + q->stage * 8, q->parity ^ 1);
//$ for _, x in ipairs(all) do
//$ local name, tile_rows, strategy = x[1], x[4], x[5]
//$ local low = f16 and ", scales->" .. name .. "_low" or ""
//$ local behind = name == "b" and { " + A_PACKED", " + A_BYTES" } or { "", "" }
//$ if strategy == "dequantized" then
#pragma unroll
        for (int i = 0; i < $((tile_rows + 127) // 128); i++) {
            const int row = thread + 128 * i;
            if (row < $(tile_rows))
                dequantize_row_$(name)(packed$(behind[1]), stage$(behind[2]), row,
                             scales_$(name)(s, 8 * $(name)_line[i].skip, x, row)$(low));
        }
//$ end
//$ end
        copy_engine_fence(); /* the tensor cores read as the copy engine does */
        __syncwarp();
        release_packed(s, p->stage, lane);
        if (lane == 0)
            barrier_arrive(s->full + q->stage * 8);
        pipeline_next(p, PACKED_STAGES);
        pipeline_next(q, STAGES);
    }
}
