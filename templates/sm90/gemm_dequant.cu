//$ -- SPDX-License-Identifier: Apache-2.0
/*
//$ local either = wide == "either"
//$ local swapped = dequantize == "swapped"
//$ include "sm90/about_product.body.cu"
//$ if wide == "f16" then
** a and b are the stored codes: a code times the scale of its block, exactly, relative to a power
** of two that the operand's scales have in common, is multiplied as f16. `bases` has the largest
** codes of a's scales and of b's. Whether all values fit was looked at before: noop says so.
//$ elseif either then
** a and b are the stored codes: a code times the scale of its block is multiplied, exactly: as f16,
** relative to powers of two that a tile's scales have in common, or if one does not fit as bf16.
//$ else
** a and b are the stored codes: a code times the scale of its block, rounded to bf16, is
** multiplied.
//$ end
//$ if ragged == "m" then
** Rows of d outside every group are not written.
//$ end
**
** One persistent CTA per multiprocessor works on tiles of all groups, in the order of the scheduler
//$ local into = a_strategy == "dequantized" and "those of A" or "those of B"
//$ if a_strategy == b_strategy then into = "both" end
//$ local met = { registers = " by what they dequantize themselves", copied = " by packed codes" }
//$ local by = met[a_strategy] or met[b_strategy] or ""
** (struct scheduler). Its first warpgroup copies tiles of A and B into PACKED_STAGES packed
** stages. Its last one dequantizes $(into) into a ring of STAGES stages; the two others
** multiply those stages$(by):
//$ if swapped then
** the rows of B that they dequantize are the tensor cores' rows, those of A their columns, and
//$ end
//$ include "sm90/about_tiles.body.cu"
*/
enum {
    //$ include "sm90/constants_tile.body.cu"
    A_BYTES = $(a_strategy == "dequantized" and "TILE_M * TILE_K * 2" or "0"), /* as they are
                                                                             multiplied */
    B_BYTES = $(b_strategy == "dequantized" and "TILE_N * TILE_K * 2" or "0"),
    STAGE_BYTES = A_BYTES + B_BYTES,
    A_PACKED = TILE_M * $(packed_row[1]), /* as they are copied */
    B_PACKED = TILE_N * $(packed_row[2]),
    PACKED_BYTES = A_PACKED + B_PACKED,
    PACKED_STAGES = $(packed_stages),
    SPAN = $(span), /* steps of k in a stage of either ring, each with an A and a B */
    WORDS_BYTES = (TILE_M * $(word_slots[1]) + TILE_N * $(word_slots[2])) * 4, /* of scales */
//$ local slab_columns = swapped and tile.n // 8 or 128 // d.bytes
    //$ include("sm90/constants_store.body.cu", { slab_columns = slab_columns })
};

//$ include "sm90/base.cu"

//$ local turned = swapped and "_turned" or ""
//$ include("sm90/store_" .. (d.bytes == 4 and "f32" or "16bit") .. turned .. ".cu")

//$ if factors ~= "none" then
//$ include "sm90/factors.cu"

//$ end
//$ include "sm90/dequantize.cu"

//$ include "common/scale_place.c"

//$ include "sm90/memory.cu"

//$ include "sm90/ring.cu"

/* The same of a packed stage. */
FN void release_packed(const struct memory *s, int stage, int lane)
{
    if (lane == 0)
        barrier_arrive(s->packed_empty + stage * 8);
}

//$ include "sm90/copy.cu"

//$ include "sm90/scale_words.cu"

//$ if either then
//$ include "sm90/narrow.cu"

//$ end
//$ include(swapped and "sm90/dequantizer_swapped.cu" or "sm90/dequantizer.cu")

//$ local mainloops = { shared = "multiply", registers = "multiply_registers",
//$                     swapped = "multiply_swapped" }
//$ include("sm90/" .. mainloops[dequantize] .. ".cu")

//$ if params.extra_k then
//$ include "sm90/extra_swapped.cu"

//$ end
//$ if addend == "read" then
//$ include "sm90/scale.cu"

//$ end
//$ include "sm90/store.cu"

//$ include "sm90/barriers.cu"

//$ local k_length = ragged == "k" and "k_length(&t)" or "k"
//$ local d_rows = ragged == "m" and "(int)t.length" or "m"
extern "C" __global__ void __launch_bounds__(THREADS, 1)
$(name)(
    //$ include "common/params.cu"
)
{
    const struct memory s = memory_layout();
    struct maps maps;
//$ if factors ~= "none" then
    struct factors factors;
//$ end
    struct scales scales;
    struct pipeline q = { 0, 0 }; /* in the ring of dequantized stages; p is in the packed one */
    //$ include "sm90/setup.body.cu"
//$ for _, p in ipairs(params) do
//$ local scale = p.operand == "a" and a.scale or p.operand == "b" and b.scale
//$ if p.kind == "global" and factors == "global" then
    factors.$(p.member) = $(p.name);
//$ elseif p.kind == "sf" and scale then
    scales.$(p.member) = $(p.pointer and "(const unsigned char *)" or "")$(p.name);
//$ end
//$ end
    scales.k = k;
//$ if wide == "f16" then
    scales.a_low = low_f16(bases[0]);
    scales.b_low = low_f16(bases[1]);
    factors.unit = unit_f16(scales.a_low, scales.b_low);
    scales.a_low *= 0x10001;
    scales.b_low *= 0x10001;
//$ end
    //$ include "sm90/epilogue.body.cu"
    //$ include "sm90/scheduler_setup.body.cu"

//$ if either then
    marks_clear(&s);
//$ end
    //$ include "sm90/start.body.cu"

    if (warpgroup == 0) {
        registers_release($(registers[1]));
        if (warp == 0) {
            //$ include "sm90/produce.body.cu"
        //$ include "sm90/check.body.cu"
        }
    } else if (warpgroup == 3) {
//$ local function made(strategy, o) return strategy == "dequantized" and o.scale end
//$ local ends = (swapped or made(a_strategy, a)) and ", " .. d_rows or ""
//$ ends = ends .. (not swapped and made(b_strategy, b) and ", n" or "")
//$ local extra = params.extra_k
        registers_release($(registers[3]));
//$ if either then
        while (tile_read(&s, &sequence, &t, &p, lane))
            if (t.as != AS_NOTHING)
                dequantize_tile(&s, &p, &q, &t, &scales$(ends), $(k_length), lane);
//$ else
        while (uniformly(queue_read(&s, &sequence, &t, &p, lane)))$(extra and " {" or "")
            dequantize_tile(&s, &p, &q, &t, &scales$(ends), $(k_length), lane);
//$ if extra then
#pragma unroll 1
            for (int x = 0; x < extra_k; x += TILE_K)
#pragma unroll 1
                for (int part = 0; part < TILE_N; part += COLUMNS)
                    pass_extra(&s, &p, lane);
        }
//$ end
//$ end
        copy_wait(0); /* nothing lands when the CTA is gone */
    } else {
        //$ include "sm90/sums.body.cu"

//$ local args = (a_strategy == "copied" or b_strategy == "copied") and "&p, &q, " or "&q, "
//$ args = args .. (split == "m" and "part * ROWS, 0" or "0, part * COLUMNS")
//$ if swapped then
//$   args = "&p, &q, &scales, &t, part * COLUMNS, n"
//$ elseif dequantize == "registers" then
//$   args = "&p, &q, &scales, &t, part * ROWS, " .. d_rows
//$ end
        //$ include("sm90/multiply.body.cu", { args = args })
//$ if dequantize ~= "shared" then
        copy_wait(0); /* nothing lands when the CTA is gone */
//$ end
    }
}
