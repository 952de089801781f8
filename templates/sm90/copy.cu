//$ -- SPDX-License-Identifier: Apache-2.0
//$ -- COUPLED: ragged map
/*
** The copies of A and B into the ring. A ragged operand is read through a plain map, since the copy
** engine reads that faster; elements that a tile reads past the end of its group end in rows of the
** sum that are never stored. Only a ragged k must end in zeros: its last step goes through a ragged
** map.
**
** A ragged map serves all groups. Its four dimensions are column, row counted down from 2^30, and
** two that lead the address back to the group's first row, so that a row at or past the group's
** length falls out of the map.
*/
//$ local pointers = b.ragged == "none" and ragged ~= "none"
//$ local follows = epilogue == "activate" or epilogue == "copies"
//$ local apart = follows and operands == "halves" -- two parts of B in a tile
struct maps {
//$ for _, p in ipairs(params) do
//$ if p.kind == "map" then
    const tensor_map *$(p.member);
//$ end
//$ end
//$ if ragged ~= "none" then
    const void *base; /* where the map by address begins */
//$ end
//$ if apart then
    int half; /* rows of B from one operand of a result to the other */
    int twice;
//$ end
//$ if microbatches > 1 then
    const struct microbatches *microbatches;
    const struct microbatch_maps *plain; /* of A and B */
    int part; /* that is copied */
    int groups;
//$ end
};

//$ -- COUPLED: pointer map
/* The coordinates of a matrix in a map of all memory, in steps of 16 bytes from its base. */
struct reach {
    int near, far;
};

FN struct reach reach_from(const void *base, const void *matrix)
{
    const u64 distance = (u64)matrix - (u64)base; /* may wrap, and then the map's address does */
    const struct reach r = { (int)(distance >> 4 & 0x7fffffff), (int)(distance >> 35) };
    return r;
}

/*
** The same for a map of RAGGED_ROW rows that is to end where row `end` of a buffer begins: the last
** `length` rows before it are those from RAGGED_ROW - length on.      COUPLED: tail map
*/
FN struct reach reach_tail(const void *base, const void *buffer, u64 pitch, u64 end)
{
    return reach_from(base, (const char *)buffer + (end - RAGGED_ROW) * pitch);
}

//$ -- of weights in registers, for few tokens: boxes of A that the tile's group lacks are left out
//$ local counted = (dequantize == "weights" or dequantize == "rebased") and a_box[2] < tile.m
//$ if counted then
/* Rows of A that a tile copies, whole boxes: the group's from the tile's first on. */
FN int copied_rows(const struct tile *t)
{
    const int left = (int)t->length - t->row;

    return left < TILE_M ? (left + $(a_box[2] - 1)) / $(a_box[2]) * $(a_box[2]) : TILE_M;
}

//$ end
//$ -- of two CTAs along m each tile says which operand is shared; pairs along m share B
//$ local turning = cluster.m > 1 and not pair
//$ local forms = { a = turning and { false, true } or { cluster.n > 1 },
//$                 b = turning and { false, true } or { cluster.m > 1 } }
//$ for name, o in pairs((quantize == "mainloop" or gather ~= "none") and { b = b }
//$                      or { a = a, b = b }) do
//$ for _, shared in ipairs(forms[name]) do
//$ local tile_mn = name == "a" and tile.m or tile.n
//$ local part = shared and tile_mn // (cluster.m * cluster.n) or tile_mn
//$ local by_address = pointers and name == "b"
//$ local cast = pair and "_pair" or shared and "_multicast" or ""
//$ local ctas = not pair and shared and ", (1 << CTAS) - 1" or ""
//$ local half = shared and turning and "_half" or ""
//$ if half ~= "" then
/* The same, but half of it, into both CTAs of the cluster: the other CTA loads the other half. */
//$ else
/* Fill a stage of $(name:upper()): TILE_K steps of k from `x`, rows from `mn`. */
//$ end
FN void load_$(name)$(half)(const struct maps *maps, unsigned int to, unsigned int full,
                   $(half == "" and "" or "     ")const struct tile *t, int x, int mn)
{
//$ if by_address then
    const struct reach r = reach_from(maps->base, t->matrix);
//$ end
//$ if name == "b" and apart then
    const int half = halved(maps->twice);
//$ end
//$ if shared and name == "b" and apart then
    mn += (int)cluster_rank() * half;
//$ elseif pair and shared then
    mn += (int)cluster_rank() * (spots_of(t) / 2);
//$ elseif shared then
    mn += (int)cluster_rank() * $(part);
//$ end
//$ if shared and not pair then
    to += cluster_rank() * $(part) * TILE_K * $(o.bytes);
//$ end
//$ -- the rows of one box, and how many boxes make a stage
//$ local rows = o.major == "mn" and (o.bits == 4 and b_box[1] or 64)
//$              or (name == "a" and a_box or b_box)[2]
//$ local boxes = part // rows
//$ -- two separate operands of an activation have a box each
//$ local next_row = name == "b" and apart and "half" or rows
//$ local packed = o.bits == 4 and o.major == "k" -- two values in a byte
//$ local along = packed and "x / 2" or "x"
//$ local as_bytes = packed and "/ 2" or "* " .. o.bits // 8
//$ local at = o.major == "k" and along .. ", mn" or (o.bits == 4 and "mn / 2, x" or "mn, x")
//$ local pad = boxes == 1 and "" or "    "
//$ local plain = microbatches > 1 and "&maps->plain->part[maps->part]." .. name or "maps->" .. name
//$ if microbatches > 1 and o.major == "mn" then
    const struct microbatch *part = &maps->microbatches->part[maps->part];
    const u64 pitch = (u64)part->$(name)_stride * $(o.bytes);
    const struct reach r =
        reach_tail(maps->base, part->$(name), pitch, (u64)t->start + t->length);
//$ end
//$ if boxes ~= 1 then
#pragma unroll$(name == "a" and counted and " 1" or "")
//$ local count = name == "a" and counted and "copied_rows(t) / " .. rows or boxes
    for (int i = 0; i < $(count); i++, mn += $(next_row), to += $(rows) * TILE_K $(as_bytes))
//$ end
//$ if o.ragged == "k" and o.major == "k" then
//$ local token = packed and "((int)t->start + x) / 2" or "(int)t->start + x"
    $(pad)load_box_2d$(cast)(to, $(plain), full, $(token), mn$(ctas));
//$ elseif o.ragged ~= "none" and o.major == "k" then
    $(pad)load_box_2d$(cast)(to, maps->$(name), full, $(along), (int)t->start + mn$(ctas));
//$ elseif o.ragged ~= "none" then
    $(pad)if (x + TILE_K <= (int)t->length)
        $(pad)load_box_2d$(cast)(to, $(plain), full, mn, (int)t->start + x$(ctas));
    $(pad)else
//$ if microbatches == 1 then
        $(pad)load_box_4d$(cast)(to, maps->$(name)_ragged, full, mn,
                    $(pad)RAGGED_ROW - (int)t->length + x, RAGGED_ROW,
                    $(pad)(int)(t->start + t->length)$(ctas));
//$ else
        $(pad)load_box_4d$(cast)(to, maps->$(name)_tail, full, mn,
                    $(pad)RAGGED_ROW - (int)t->length + x, r.near, r.far$(ctas));
//$ end
//$ elseif by_address then
    $(pad)if (t->matrix)
        $(pad)load_box_4d$(cast)(to, maps->b_pointer, full, $(at), r.near, r.far$(ctas));
    $(pad)else
        $(pad)load_box_3d$(cast)(to, maps->b, full, $(at), t->group$(ctas));
//$ else
    $(pad)load_box_3d$(cast)(to, maps->$(name), full, $(at), t->group$(ctas));
//$ end
}

//$ end
//$ end
//$ local of_blocks = factors == "squares" or factors == "lines"
//$ local wide = dequantize ~= "none" and dequantize ~= "rebased" and dequantize ~= "weights"
//$ local loaded = wide and "PACKED_BYTES" or "STAGE_BYTES"
//$ loaded = of_blocks and "STAGE_BYTES + SF_LOADED" or loaded
//$ local inline = quantize == "mainloop"
//$ local given = cluster.n > 1 and " + (CTAS - 1) * VALUE_ROWS * (TILE_K + 4)" or ""
//$ loaded = inline and "B_BYTES" .. given or gather ~= "none" and "B_BYTES" or loaded
//$ local swapped = dequantize == "swapped"
//$ loaded = swapped and "SPAN * PACKED_BYTES" or loaded
//$ loaded = counted and "B_BYTES + copied_rows(t) * (A_BYTES / TILE_M)" or loaded
//$ -- the ring that copies go into, and where B is in it
//$ local ring = wide and { "packed_", "packed", "PACKED_BYTES", "A_PACKED", "PACKED_STAGES" }
//$                    or { "", "ring", "STAGE_BYTES", "A_BYTES", "STAGES" }
//$ local loaded_at = swapped and loaded or ring[3] -- from one stage to the next
//$ if factors == "lines" then
/* The scales of a tile's rows of A and of B for one block of k. */
FN void load_sf(const struct maps *maps, unsigned int to, unsigned int full,
                const struct tile *t, int block)
{
//$ if microbatches > 1 then
    /* Blocks that the part's copies have room for: after them all, zeros. */
    const struct microbatch *part = &maps->microbatches->part[maps->part];
    const int blocks = (int)((part->k + (TILE_K - 1ll) * maps->groups) / TILE_K);
    const struct reach a = reach_tail(maps->base, part->a_sf, (u64)part->a_sf_stride * 4,
                                      (u64)blocks);
    const struct reach b = reach_tail(maps->base, part->b_sf, (u64)part->b_sf_stride * 4,
                                      (u64)blocks);

    block += (int)t->start / TILE_K + RAGGED_ROW - blocks;
    load_box_4d(to, maps->a_sf_tail, full, t->row, block, a.near, a.far);
    load_box_4d(to + TILE_M * 4, maps->b_sf_tail, full, t->column, block, b.near, b.far);
//$ else
    block += (int)t->start / TILE_K;
    load_box_2d(to, maps->a_sf, full, t->row, block);
    load_box_2d(to + TILE_M * 4, maps->b_sf, full, t->column, block);
//$ end
}

//$ elseif inline then
/* Fill a stage of values: TILE_K of each of this CTA's rows, in two boxes side by side. */
FN void load_values(const struct maps *maps, unsigned int to, unsigned int full,
                     const struct tile *t, int x)
{
//$ local mine = cluster.n > 1 and " + (int)cluster_rank() * VALUE_ROWS" or ""
    const int row = (int)t->start + t->row$(mine);

    load_box_2d(to, maps->in, full, x, row);
    load_box_2d(to + VALUE_BYTES / 2, maps->in, full, x + TILE_K / 2, row);
}

//$ elseif factors == "squares" then
/*
** The scales of a tile's rows of A for one block of k. The copy engine starts at multiples of 16
** bytes, a tile at any row: up to 3 scales of rows before it come along.
*/
FN void load_sf(const struct maps *maps, unsigned int to, unsigned int full,
                const struct tile *t, int block)
{
    const int first = ((int)t->start + t->row) & ~3;

    for (int i = 0; i < TILE_M; i += 128)
        load_box_2d(to + i * 4, maps->a_sf, full, first + i, block);
}

//$ end
/* Fill stages with the operands of one tile of D. Called by one thread. */
//$ if inline then
FN void load_tile(const struct memory *s, struct pipeline *p, struct pipeline *q,
                  const struct tile *t, const struct maps *maps, int k)
//$ else
FN void load_tile(const struct memory *s, struct pipeline *p, const struct tile *t,
                  const struct maps *maps, int k)
//$ end
{
//$ if rolled then
#pragma unroll 1
//$ end
    for (int x = 0; x < k; x += $(swapped and "SPAN * " or "")TILE_K) {
        const unsigned int full = s->$(pair and "both_" or ring[1])full + p->stage * 8;
        const unsigned int stage = s->$(ring[2]) + p->stage * $(loaded_at);

//$ if inline then
        barrier_wait(s->values_empty + q->stage * 8, q->parity ^ 1);
        barrier_expect(s->values_full + q->stage * 8, VALUE_BYTES);
        load_values(maps, s->values + q->stage * VALUE_BYTES, s->values_full + q->stage * 8, t,
                     x);
        pipeline_next(q, VALUE_STAGES);
//$ end
        barrier_wait(s->$(ring[1])empty + p->stage * 8, p->parity ^ 1);
//$ if pair then
        if (cluster_rank() == 0)
            barrier_expect(s->full + p->stage * 8, CTAS * $(loaded));
//$ else
        barrier_expect(full, $(loaded));
//$ end
//$ if turning then
        if (t->beside) {
            load_a_half(maps, stage, full, t, x, t->row);
            load_b(maps, stage + A_BYTES, full, t, x, t->column);
        } else {
            load_a(maps, stage, full, t, x, t->row);
            load_b_half(maps, stage + A_BYTES, full, t, x, t->column);
        }
//$ elseif swapped then
#pragma unroll
        for (int i = 0; i < SPAN; i++) { /* after k: zeros */
            const unsigned int to = stage + i * PACKED_BYTES;
            load_a(maps, to, full, t, x + i * TILE_K, t->row);
            load_b(maps, to + A_PACKED, full, t, x + i * TILE_K, t->column);
        }
//$ else
//$ if not inline and gather == "none" then
        load_a(maps, stage, full, t, x, t->row);
//$ end
        load_b(maps, stage + $(ring[4]), full, t, x, t->column$(apart and " / 2" or ""));
//$ end
//$ if of_blocks and not inline then
        load_sf(maps, s->sf + p->stage * SF_BYTES, full, t, x / TILE_K);
//$ end
        pipeline_next(p, $(ring[5]));
    }
}
