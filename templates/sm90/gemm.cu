//$ -- SPDX-License-Identifier: Apache-2.0
/*
//$ local shapes = {
//$   m = { "[m, k]", b.major == "k" and "[groups, n, k]" or "[groups, k, n]", "[m, n]" },
//$   k = a.major == "k" and { "[m, k], groups from multiples of 128", "[n, k], likewise",
//$                            "[groups, m, n]" }
//$                      or { "[k, m]", "[k, n]", "[groups, m, n]" },
//$   none = { a.major == "k" and "[groups, m, k]" or "[groups, k, m]",
//$            b.major == "k" and "[groups, n, k]" or "[groups, k, n]", "[groups, m, n]" },
//$ }
//$ local formulas = { store = "a * b", add = "d + a * b", alpha = "alpha * a * b",
//$                    scale = "alpha * a * b + beta * c",
//$                    activate = "activation(alpha * a * b + bias) * probability",
//$                    gradient = "alpha * a * b * probability * activation'(p)" }
//$ formulas.copies = formulas.activate
//$ local follows = epilogue == "activate" or epilogue == "copies"
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local copies = epilogue == "copies" or epilogue == "gradient_copies"
//$ formulas.gradient_copies = formulas.gradient
//$ local f16 = expand ~= "none" and wide == "f16"
//$ local either = expand ~= "none" and wide == "either"
//$ local shape = shapes[ragged]
//$ if follows and operands ~= "one" then
//$   shape[3] = "[m, n / 2]"
//$ elseif back and operands ~= "one" then
//$   shape[3] = "[m, 2 n]"
//$ end
** d = $(formulas[epilogue]) for each group, summed over k.
//$ if ragged ~= "none" then
** The groups' lengths along $(ragged) are read on the device.
//$ end
//$ if parts > 1 then
** Up to PARTS products are one: each group's sum goes over its tokens in the first, then over those
** in the second, and so on, and d is touched once.
//$ end
**
**   a  $(shape[1])   $(a.type)
**   b  $(shape[2])   $(b.type)
//$ local made = copies and ", of which copies are made at once: see sm90/copies.cu" or ""
**   d  $(shape[3])   $(d.type)$(made)
//$ if back then
**   p  $(shape[3])   $(d.type), what the activation was given
//$ end
//$ if f16 then
** a and b are what is stored: a code times the scale of its block, exactly, relative to a power of
** two that the operand's scales have in common, is multiplied as f16. `bases` has the largest codes
** of a's scales and of b's. Whether all values fit was looked at before: noop says so.
//$ elseif either then
** a and b are what is stored: a code times the scale of its block is multiplied, exactly: as f16,
** relative to powers of two that a tile's scales have in common, or if one does not fit as bf16.
//$ elseif expand ~= "none" then
** a and b are what is stored: a code times the scale of its block, rounded to bf16, is multiplied.
//$ elseif factors ~= "none" and factors ~= "alpha" then
** a and b are what is stored: times their scales (struct factors) they are the numbers meant.
//$ end
//$ if quantize == "inline" then
** Of a there are numbers in bf16: what is stored of them is made on the way, in shared memory.
//$ end
//$ if ragged == "m" then
** Rows of d outside every group are not written.
//$ end
**
** One CTA per multiprocessor walks over the tiles of all groups (struct walk). Its first warpgroup
//$ if expand ~= "none" then
//$ local into = a_way == b_way and "both" or a_way == "expanded" and "those of A" or "those of B"
//$ local met = { registers = " by what they expand themselves", copied = " by what lies packed" }
//$ local by = met[a_way] or met[b_way] or ""
** copies tiles of A and B into PACKED_STAGES packed stages. Its last one expands $(into) into
** a ring of STAGES stages; the two others multiply what lies there$(by):
//$ if expand == "swapped" then
** the rows of B that they expand are the tensor cores' rows, those of A their columns, and
//$ end
//$ else
** copies tiles of A and B into a ring of STAGES stages; the two others multiply them:
//$ end
//$ if schedule == "cooperative" then
** they share each tile of D by $(split == "m" and "rows" or "columns").
//$ else
** each has tiles of its own, and one stores while the other multiplies.
//$ end
//$ if cluster.n > 1 then
** $(cluster.n) CTAs side by side along n share the rows of A: each loads a part for all.
//$ elseif cluster.m > 1 then
** Two CTAs one above the other share the columns of B: each loads a half for both. Where a group's
** last row of tiles has none below it, they stand side by side and share the rows of A.
//$ end
*/
//$ local rows = split == "m" and tile.m // 2 or tile.m
//$ local columns = split == "n" and tile.n // 2 or tile.n
//$ local of_blocks = factors == "squares" or factors == "lines"
//$ local inline = quantize == "inline"
//$ local of_group = factors == "group" or factors == "global" or factors == "alpha" or
//$                  factors == "bases"
//$ local storer = store == "warps" and "warp" or "warpgroup"
//$ local swapped = expand == "swapped"
//$ local step_of = { k = 32, mn = 16 * 128 }
enum {
    THREADS = $(threads),
    TILE_M = $(tile.m),
    TILE_N = $(tile.n),
    TILE_K = $(tile.k),
    CTAS = $(cluster.m * cluster.n), /* of a cluster */
    STAGES = $(stages),
    ROWS = $(rows), /* of D, in one math warpgroup */
    COLUMNS = $(columns),
    SUMS = ROWS * COLUMNS / 128, /* in each of its threads */
    MMA_N = $(mma_n), /* of one instruction */
    MMA_K = $(32 // bytes),
//$ if expand ~= "none" then
    A_BYTES = $(a_way == "expanded" and "TILE_M * TILE_K * 2" or "0"), /* as they are multiplied */
    B_BYTES = $(b_way == "expanded" and "TILE_N * TILE_K * 2" or "0"),
    STAGE_BYTES = A_BYTES + B_BYTES,
    A_PACKED = TILE_M * $(packed_row[1]), /* as they are copied */
    B_PACKED = TILE_N * $(packed_row[2]),
    PACKED_BYTES = A_PACKED + B_PACKED,
    PACKED_STAGES = $(packed_stages),
    SPAN = $(span), /* steps of k in a stage of either ring, each with an A and a B */
    WORDS_BYTES = (TILE_M * $(word_slots[1]) + TILE_N * $(word_slots[2])) * 4, /* of scales */
//$ else
    A_BYTES = TILE_M * TILE_K * $(bytes),
    B_BYTES = TILE_N * TILE_K * $(bytes),
    STAGE_BYTES = A_BYTES + B_BYTES,
//$ end
//$ if inline then
    NUMBER_ROWS = TILE_M$(cluster.n > 1 and " / CTAS" or ""), /* of A, that this CTA makes */
    NUMBER_BYTES = NUMBER_ROWS * TILE_K * 2, /* as they are copied */
    NUMBER_STAGES = $(number_stages),
//$ end
    A_STEP = $(step_of[a.major]), /* bytes from MMA_K steps of k to the next */
    B_STEP = $(step_of[b.major]),
    SLAB_COLUMNS = $(swapped and tile.n // 8 or 128 // d.bytes),
    SLAB_ROWS = $(store == "warps" and 16 or 64),
    SLAB_BYTES = SLAB_ROWS * SLAB_COLUMNS * $(d.bytes), /* what one $(storer) stores at a time */
    SLABS = $(slabs), /* of each */
    ALL_SLABS_BYTES = $(store == "warps" and 8 or 2) * SLABS * SLAB_BYTES,
    ROW_SLABS = COLUMNS / SLAB_COLUMNS,
//$ if copies then
    TURNED_BYTES = 2 * 128 * 64, /* a tile's column copy, of each warpgroup's rows */
    MAXIMA_BYTES = 2 * 8 * 256,  /* of each warp's columns, of this tile and the one before */
    COLUMNS_BYTES = 2 * 512,     /* what columns are multiplied by, for each warpgroup */
//$ end
    BOARD = 4, /* tiles announced at a time */
    NOTE_BYTES = $(ragged == "k" and 48 or 32),
//$ if parts > 1 then
    PARTS = $(parts),
//$ end
    TURNS = $(schedule == "pingpong" and 2 or 1), /* warpgroups that take the tiles in turn */
    RAGGED_ROW = 1 << 30
};

//$ include "sm90/ptx.cu"

//$ if ragged ~= "none" then
//$ include "common/sizes.c"

//$ include("common/check_sizes.cu", { rolled = walk_rolled })

//$ end
//$ if parts > 1 then
//$ include "sm90/parts.cu"

//$ end
//$ include "sm90/walk.cu"

//$ include "sm90/wgmma.cu"

//$ local turned = swapped and "_turned" or ""
//$ include("sm90/store_" .. (d.bytes == 4 and "f32" or "16bit") .. turned .. ".cu")

//$ if factors ~= "none" then
//$ include "sm90/factors.cu"

//$ end
//$ if expand ~= "none" then
//$ include "sm90/expand.cu"

//$ include "common/scale_place.c"

//$ end
//$ include "sm90/memory.cu"

/* A place in a ring; `parity` flips with every round. */
struct place {
    int stage;
    unsigned int parity;
};

DEVICE void place_next(struct place *p, int stages)
{
    if (++p->stage == stages) {
        p->stage = 0;
        p->parity ^= 1;
    }
}

//$ include "sm90/board.cu"

//$ if either then
//$ include "sm90/narrow_tiles.cu"

//$ end
/* A math warp is done with a stage: tell every CTA that writes into it. */
DEVICE void release(const struct memory *s, int stage, int lane)
{
//$ if cluster.m * cluster.n > 1 then
    if (lane < CTAS)
        barrier_arrive_at(s->empty + stage * 8, lane);
//$ else
    if (lane == 0)
        barrier_arrive(s->empty + stage * 8);
//$ end
}

//$ if expand ~= "none" then
/* The same of a packed stage. */
DEVICE void release_packed(const struct memory *s, int stage, int lane)
{
    if (lane == 0)
        barrier_arrive(s->packed_empty + stage * 8);
}

//$ end
//$ include "sm90/copy.cu"

//$ if expand ~= "none" then
//$ include "sm90/scale_words.cu"

//$ if either then
//$ include "sm90/narrow.cu"

//$ end
//$ include(swapped and "sm90/expander_swapped.cu" or "sm90/expander.cu")

//$ end
//$ if inline then
//$ include "sm90/inline.cu"

//$ end
//$ local direct = whole and "promote_whole" or promote > 0 and "promote" or "multiply"
//$ local ways = { none = direct, shared = "multiply",
//$                registers = "multiply_registers", swapped = "multiply_swapped" }
//$ include("sm90/" .. ways[expand] .. ".cu")

//$ if addend == "read" then
//$ include "sm90/scale.cu"

//$ end
//$ include "sm90/store.cu"

//$ include "sm90/barriers.cu"

//$ local k_length = ragged == "k" and "k_length(&t)" or "k"
//$ local extra = addend == "read" and " &scale, added," or ""
//$ local finishes = follows or back
//$ extra = finishes and " &finish," or extra
//$ local of_tile = of_blocks and " &factors, &t," or ""
//$ local first = split == "m" and "part * ROWS, 0" or "0, part * COLUMNS"
//$ local d_rows = ragged == "m" and "(int)t.length" or "m"
//$ local places = expand == "none" and "&p," or "&q,"
//$ if expand == "registers" then
//$   places, first = "&p, &q, &scales, &t,", "part * ROWS, " .. d_rows
//$ elseif swapped then
//$   places, first = "&p, &q, &scales, &t,", "part * COLUMNS, n"
//$ elseif expand ~= "none" and (a_way == "copied" or b_way == "copied") then
//$   places = "&p, &q,"
//$ end
//$ if ragged == "k" then
/* An empty group is one step of zeros, from behind its end. */
DEVICE int k_length(const struct tile *t)
{
    return t->length > 0 ? (int)t->length : 1;
}
//$ if parts > 1 then

/* Of one part's share in a tile; that step is the first part's. */
DEVICE int share_length(const struct tile *t, const struct tile *share, int part)
{
    return part == 0 && t->length == 0 ? 1 : (int)share->length;
}
//$ end

//$ end
extern "C" __global__ void __launch_bounds__(THREADS, 1)
$(name)(
    //$ include "common/params.cu"
)
{
    const struct memory s = memory_layout();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warpgroup = uniform(warp / 4);
    const unsigned int clusters = gridDim.x / CTAS, cluster = blockIdx.x / CTAS;
    struct maps maps;
//$ if factors ~= "none" then
    struct factors factors;
//$ end
//$ if expand ~= "none" then
    struct scales scales;
    struct place q = { 0, 0 }; /* in the ring of what is multiplied; p is in the packed one */
//$ elseif inline then
    struct place q = { 0, 0 }; /* in the ring of numbers */
//$ end
    struct walk w;
    struct place p = { 0, 0 };
    unsigned int note = 0; /* of the board, on and on */
    struct tile t;

    //$ include "common/noop.c"
//$ for _, p in ipairs(params) do
//$ if p.kind == "map" then
    maps.$(p.member) = &$(p.name);
//$ end
//$ end
//$ if ragged ~= "none" then
    maps.base = error;
//$ end
//$ if parts > 1 then
    maps.parts = &parts;
    maps.plain = &part_maps;
    maps.groups = groups;
    w.parts = &parts;
    w.count = part_count;
//$ end
//$ for _, p in ipairs(params) do
//$ local of = p.operand == "a" and a or b
//$ if p.kind == "global" and factors == "global" or p.kind == "sf" and expand == "none" then
    factors.$(p.member) = $(p.name);
//$ elseif p.kind == "sf" and expand ~= "none" and of.scale then
    scales.$(p.member) = $(p.pointer and "(const unsigned char *)" or "")$(p.name);
//$ end
//$ end
//$ if expand ~= "none" then
    scales.k = k;
//$ end
//$ if f16 then
    scales.a_low = low_f16(bases[0]);
    scales.b_low = low_f16(bases[1]);
    factors.unit = unit_f16(scales.a_low, scales.b_low);
    scales.a_low *= 0x10001;
    scales.b_low *= 0x10001;
//$ end
//$ if factors == "row" or factors == "squares" then
    factors.columns = n;
//$ end
    //$ include "sm90/epilogue.cu"
//$ if ragged ~= "none" and parts == 1 then
    w.first_dims = first_dims;
    w.offsets = offsets;
    w.sizes_bytes = sizes_bytes;
    w.total = (unsigned int)$(ragged);
//$ end
    w.groups = groups;
    w.band = (unsigned int)band;
//$ if ragged ~= "none" then
    w.pointers = $(ragged == "m" and "b_pointers" or "(const void *const *)d_pointers");
//$ end
//$ if ragged ~= "m" then
    w.tile_rows = (unsigned int)((m + TILE_M - 1) / TILE_M);
//$ end
//$ if cluster.n > 1 then
    w.tile_columns = (unsigned int)((n + CTAS * TILE_N - 1) / (CTAS * TILE_N));
//$ else
    w.tile_columns = (unsigned int)((n + TILE_N - 1) / TILE_N);
//$ end

//$ if either then
    marks_clear(&s);
//$ end
    if (threadIdx.x == 0) {
        barriers_make(&s);
//$ for _, p in ipairs(params) do
//$ if p.kind == "map" then
        prefetch_map(&$(p.name));
//$ end
//$ end
//$ if parts > 1 then
        for (int i = 0; i < part_count; i++) {
            prefetch_map(&part_maps.part[i].a);
            prefetch_map(&part_maps.part[i].b);
        }
//$ end
    }
//$ if cluster.m * cluster.n > 1 then
    cluster_sync();
//$ else
    __syncthreads();
//$ end

    if (warpgroup == 0) {
        registers_release($(registers[1]));
        if (warp == 0) {
            //$ include "sm90/produce.cu"
//$ if parts > 1 then
        } else if (warp == 1 && blockIdx.x == 0) {
            check_parts(&parts, part_count, groups, error, lane);
//$ elseif ragged ~= "none" then
        } else if (warp == 1 && blockIdx.x == 0) {
            check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)$(ragged), error,
                        lane);
//$ end
        }
//$ if inline then
        int unit = warp - 1;
        while (uniformly(warp > 0 && board_read(&s, &note, &t, &p, lane)))
            quantize_tile(&s, &q, &p, &unit, $(d_rows) - t.row, k, lane);
//$ end
//$ if expand ~= "none" then
    } else if (warpgroup == 3) {
        registers_release($(registers[3]));
//$ if either then
        while (tile_read(&s, &note, &t, &p, lane))
            if (t.as != AS_NOTHING)
                expand_tile(&s, &p, &q, &t, &scales, $(d_rows), n, $(k_length), lane);
//$ else
        while (uniformly(board_read(&s, &note, &t, &p, lane)))
            expand_tile(&s, &p, &q, &t, &scales, $(d_rows), n, $(k_length), lane);
//$ end
        copy_wait(0); /* nothing lands when the CTA is gone */
//$ end
    } else {
        registers_take($(registers[2]));
//$ local which = store == "warps" and "(warp - 4)" or "(warpgroup - 1)"
        struct slabs slabs = { s.slabs + $(which) * SLABS * SLAB_BYTES, 0 };
        float sum[SUMS];
//$ if addend == "read" then
        struct raw_slab added[AHEAD + 1];
//$ elseif addend == "fetch" then
        slabs.arrived = s.arrived + (warp - 4) * SLABS * 8;
//$ end
//$ if schedule == "cooperative" then

//$ if either then
        for (; tile_read(&s, &note, &t, &p, lane); note = (unsigned int)uniform((int)note)) {
            if (tile_is_none(&t, lane))
                continue;
//$ else
        while (uniformly(board_read(&s, &note, &t, &p, lane))) {
//$ end
            const int part = warpgroup - 1; /* the warpgroup's, of the tile */
//$ if split == "m" then
            const int row = t.row + part * ROWS + warp % 4 * 16;

//$ else
            const int row = t.row$(swapped and "" or " + warp % 4 * 16");

            t.column += part * COLUMNS;
//$ end
//$ if factors == "row" then
            factors_prefetch(&factors, &t, row, $(d_rows), lane);
//$ elseif of_group then
            const struct group_scale group_scale = scale_of_group(&factors, &t);
//$ end
//$ if addend == "read" then
            const struct scale scale = scale_of(&addend, &t);
            read_ahead(added, &scale, &t, row, $(d_rows), lane);
//$ elseif addend == "fetch" then
            fetch_ahead(&slabs, &maps, &t,$(finishes and " n," or "") row, $(d_rows), lane);
//$ end
//$ if finishes then
            const struct finish finish = finish_of(&follow, &t, row, $(d_rows), lane);
//$ end
            multiply_tile(sum, &s, $(places)$(of_tile) $(first), $(k_length), lane);
//$ if of_group then
            scale_sums(sum, &group_scale);
//$ elseif factors == "row" then
            scale_sums(sum, &factors, &t, row, $(d_rows), lane);
//$ end
//$ local late = rolled and epilogue == "activate" and "lane_again()" or "lane"
            store_tile(sum, &slabs, &t, &maps,$(extra) row, $(d_rows), $(late));
        }
//$ else

        if (warpgroup == 2)
            named_arrive(1, 256);
        note = warpgroup - 1;
        while (uniformly(board_read(&s, &note, &t, &p, lane))) {
//$ if addend == "read" then
            const struct scale scale = scale_of(&addend, &t);
            read_ahead(added, &scale, &t, t.row + warp % 4 * 16, $(d_rows), lane);
//$ elseif addend == "fetch" then
            fetch_ahead(&slabs, &maps, &t,$(finishes and " n," or "") t.row + warp % 4 * 16,
                        $(d_rows), lane);
//$ end
//$ if finishes then
            const struct finish finish =
                finish_of(&follow, &t, t.row + warp % 4 * 16, $(d_rows), lane);
//$ end
//$ if factors == "row" then
            factors_prefetch(&factors, &t, t.row + warp % 4 * 16, $(d_rows), lane);
//$ elseif of_group then
            const struct group_scale group_scale = scale_of_group(&factors, &t);
//$ end
            /* Named barriers 1 and 2, one for each of the two, pass the tensor cores on. */
            named_wait(threadIdx.x / 128, 256);
            multiply_tile(sum, &s, &p, 0, 0, $(k_length), lane, 3 - threadIdx.x / 128);
//$ if of_group then
            scale_sums(sum, &group_scale);
//$ elseif factors == "row" then
            scale_sums(sum, &factors, &t, t.row + warp % 4 * 16, $(d_rows), lane);
//$ end
            store_tile(sum, &slabs, &t, &maps,$(extra) t.row + warp % 4 * 16, $(d_rows), lane);
        }
//$ end
        if (lane == 0)
            store_wait(0);
//$ if expand == "registers" or swapped then
        copy_wait(0); /* nothing lands when the CTA is gone */
//$ end
    }
//$ if cluster.m * cluster.n > 1 then
    cluster_sync(); /* no CTA leaves while another may still arrive on its barriers */
//$ end
}
