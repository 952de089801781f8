//$ -- SPDX-License-Identifier: Apache-2.0
/*
//$ include "sm90/about_product.body.cu"
//$ if ragged == "m" then
** Rows of d outside every group are not written.
//$ end
**
** One persistent CTA per multiprocessor works on tiles of all groups, in the order of the scheduler
** (struct scheduler). Its first warpgroup
** copies tiles of A and B into a ring of STAGES stages; the two others multiply them:
//$ include "sm90/about_tiles.body.cu"
*/
enum {
    //$ include "sm90/constants_tile.body.cu"
    A_BYTES = TILE_M * TILE_K * $(bytes),
    B_BYTES = TILE_N * TILE_K * $(bytes),
    STAGE_BYTES = A_BYTES + B_BYTES,
    //$ include("sm90/constants_store.body.cu", { slab_columns = d_box[1] })
};

//$ include "sm90/base.cu"

//$ include("sm90/store_" .. (d.bytes == 4 and "f32" or "16bit") .. ".cu")

//$ if factors ~= "none" then
//$ include "sm90/factors.cu"

//$ end
//$ include "sm90/memory.cu"

//$ include "sm90/ring.cu"

//$ include "sm90/copy.cu"

//$ if params.extra_k then
//$ include "sm90/extra.cu"

//$ end
//$ if gather ~= "none" then
//$ include "sm90/gather.cu"

//$ end
//$ include "sm90/multiply.cu"

//$ if addend == "read" then
//$ include "sm90/scale.cu"

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
    struct factors factors;
//$ end
    //$ include "sm90/setup.body.cu"
//$ if gather ~= "none" then
    //$ include "sm90/gather_setup.body.cu"
//$ end
    //$ include "sm90/epilogue.body.cu"
    //$ include "sm90/scheduler_setup.body.cu"
//$ if params.extra_k then
    const int all_k = with_extra(k, extra_k);
//$ end

    //$ include "sm90/start.body.cu"

    if (warpgroup == 0) {
        registers_release($(registers[1]));
        if (warp == 0) {
            //$ include "sm90/produce.body.cu"
        //$ include "sm90/check.body.cu"
        }
//$ if gather ~= "none" then
        //$ include "sm90/gather.body.cu"
//$ end
    } else {
        //$ include "sm90/sums.body.cu"

//$ local first = split == "m" and "part * ROWS, 0" or "0, part * COLUMNS"
        //$ include("sm90/multiply.body.cu", { args = "&p, " .. first })
    }
//$ if cluster.m * cluster.n > 1 then
    cluster_sync(); /* no CTA leaves while another may still arrive on its barriers */
//$ end
}
