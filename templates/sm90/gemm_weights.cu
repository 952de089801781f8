//$ -- SPDX-License-Identifier: Apache-2.0
//$ local rebased, activates = dequantize == "rebased", epilogue == "activate"
/*
//$ include "sm90/about_product.body.cu"
//$ if rebased then
** a and b are the stored codes: times their scales they are the values. Those of b become
** $(b.scale.as), exactly, and a's scales, one for each row, multiply the sums.
//$ else
** b is the stored codes: a code times the scale of its block, rounded to $(a.type), is multiplied.
//$ end
** Rows of d outside every group are not written.
**
** One persistent CTA per multiprocessor works on tiles of all groups, in the order of the scheduler
** (struct scheduler). Its first warpgroup copies tiles of A and B into a ring of STAGES stages; the
** two others multiply them: the rows of B are the tensor cores' rows, those of A their columns, and
//$ include "sm90/about_tiles.body.cu"
*/
enum {
    //$ include "sm90/constants_tile.body.cu"
    A_BYTES = TILE_M * TILE_K$(bytes > 1 and " * " .. bytes or ""),
    B_ROW = $(packed_row), /* bytes */
    B_BYTES = $(b.major == "k" and "TILE_N" or "TILE_K") * B_ROW,
    STAGE_BYTES = A_BYTES + B_BYTES,
    WORDS_BYTES = $(word_rows) * $(word_slots[2]) * 4, /* of scales */
    //$ include("sm90/constants_store.body.cu", { slab_columns = d_box[1] })
};

//$ include "sm90/base.cu"

//$ local type = d.bytes == 4 and "f32" or "16bit"
//$ include("sm90/store_" .. type .. (b.major == "k" and "_turned" or "_neighbours") .. ".cu")

//$ if rebased then
//$ include "sm90/factors_tokens.cu"

//$ once("dequantize/rebase_" .. b.type .. ".c")
//$ elseif factors ~= "none" then
//$ include "sm90/factors.cu"

//$ end
//$ include "common/scale_place.c"

//$ include "sm90/memory.cu"

//$ include "sm90/ring.cu"

//$ include "sm90/copy.cu"

//$ include "sm90/scale_words.cu"

//$ include("sm90/multiply_" .. dequantize .. ".cu")

//$ if params.extra_k then
//$ include "sm90/extra_weights.cu"

//$ end
//$ include "sm90/store.cu"

//$ include "sm90/barriers.cu"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
$(name)(
    //$ include "common/params.cu"
)
{
    const struct memory s = memory_layout();
    struct maps maps;
//$ if factors ~= "none" then
    const struct factors factors = { $(rebased and "a_sf" or "b_global") };
//$ end
    struct scales scales;
    //$ include "sm90/setup.body.cu"
    scales.b = (const unsigned char *)b_sf;
    scales.b_stride = b_sf_stride;
    scales.b_group_stride = b_sf_group_stride;
    scales.k = k;
//$ if activates then
    //$ include "sm90/epilogue.body.cu"
//$ end
    //$ include "sm90/scheduler_setup.body.cu"

    //$ include "sm90/start.body.cu"

    if (warpgroup == 0) {
        registers_release($(registers[1]));
        if (warp == 0) {
            //$ include "sm90/produce.body.cu"
        //$ include "sm90/check.body.cu"
        }
    } else {
        //$ include "sm90/sums.body.cu"

        //$ include("sm90/multiply.body.cu", { args = "&p, &scales, &t, part * COLUMNS, n" })
        copy_wait(0); /* nothing lands when the CTA is gone */
    }
}
