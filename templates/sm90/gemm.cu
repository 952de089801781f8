//$ -- SPDX-License-Identifier: Apache-2.0
/*
//$ include "sm90/about_product.body.cu"
//$ if factors ~= "none" and factors ~= "alpha" then
** a and b are the stored codes: times their scales (struct factors) they are the values.
//$ end
//$ if quantize == "mainloop" then
** a has bf16 values: their codes are made in shared memory.
//$ end
//$ if ragged == "m" then
** Rows of d outside every group are not written.
//$ end
**
** One persistent CTA per multiprocessor works on tiles of all groups, in the order of the scheduler
** (struct scheduler). Its first warpgroup copies tiles of A and B into a ring of STAGES stages; the
** two others multiply them:
//$ include "sm90/about_tiles.body.cu"
*/
enum {
    //$ include "sm90/constants_tile.body.cu"
    A_BYTES = TILE_M * TILE_K * $(bytes),
    B_BYTES = TILE_N * TILE_K * $(bytes),
    STAGE_BYTES = A_BYTES + B_BYTES,
//$ if quantize == "mainloop" then
    VALUE_ROWS = TILE_M$(cluster.n > 1 and " / CTAS" or ""), /* of A, that this CTA makes */
    VALUE_BYTES = VALUE_ROWS * TILE_K * 2, /* as they are copied */
    VALUE_STAGES = $(value_stages),
//$ end
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
//$ if quantize == "mainloop" then
//$ include "sm90/quantize_mainloop.cu"

//$ elseif gather ~= "none" then
//$ include "sm90/gather.cu"

//$ end
//$ local mainloop = whole and "promote_whole" or promote > 0 and "promote" or "multiply"
//$ include("sm90/" .. mainloop .. ".cu")

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
//$ if factors ~= "none" and factors ~= "lines" then
    struct factors factors;
//$ end
//$ if quantize == "mainloop" then
    struct pipeline q = { 0, 0 }; /* in the ring of values */
//$ end
    //$ include "sm90/setup.body.cu"
//$ for _, p in ipairs(params) do
//$ if p.kind == "sf" and factors ~= "lines" then
    factors.$(p.member) = $(p.name);
//$ end
//$ end
//$ if factors == "row" or factors == "squares" then
    factors.columns = n;
//$ end
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
//$ if quantize == "mainloop" then
        int unit = warp - 1;
        while (uniformly(warp > 0 && queue_read(&s, &sequence, &t, &p, lane)))
            quantize_tile(&s, &q, &p, &unit, (int)t.length - t.row, k, lane);
//$ elseif gather ~= "none" then
        //$ include "sm90/gather.body.cu"
//$ end
    } else {
        //$ include "sm90/sums.body.cu"

//$ local scales = factors == "squares" and "&factors, &t, " or ""
//$ local first = split == "m" and "part * ROWS, 0" or "0, part * COLUMNS"
        //$ include("sm90/multiply.body.cu", { args = "&p, " .. scales .. first })
    }
//$ if cluster.m * cluster.n > 1 then
    cluster_sync(); /* no CTA leaves while another may still arrive on its barriers */
//$ end
}
