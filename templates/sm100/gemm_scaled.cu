//$ -- SPDX-License-Identifier: Apache-2.0
//$ local k_length = ragged == "k" and "k_length(&t)" or "k"
//$ local d_rows = ragged == "m" and "(int)t.length" or "m"
//$ local squares = epilogue == "copies" and a.scale.k == 128
//$ local who = squares and "eight warps" or "four warps"
/*
//$ include "sm90/about_product.body.cu"
//$ if ragged == "m" then
** Rows of d outside every group are not written.
//$ end
**
** One persistent CTA per multiprocessor works on tiles of all groups, in the order of the scheduler
** (struct scheduler). Its first warp copies tiles of A and B into a ring of STAGES stages, four
** load their scales, one thread of the second has the tensor cores multiply them, and $(who)
** store the sums, while the next tile is multiplied.
//$ if gather ~= "none" then
** A's rows come one by one, by two more warps: see sm90/gather.cu.
//$ end
//$ if cluster.n > 1 then
** Two CTAs side by side along n are a pair: each has its columns of B with their scales, half of
** the rows of A and the scales of all; the first one's thread multiplies all of it for both, and
** each stores its own columns of D.
//$ elseif cluster.m > 1 then
** Two CTAs, one above the other, are a pair: each has its rows of A with their scales, half of the
** columns of B and the scales of all; the first one's thread multiplies all of it for both, and
** each stores its own rows of D.
//$ end
//$ if turned then
** The tensor cores' 128 lines are columns of D: rows of D, of which a group's last tile may have
** few, are what each line has as many of as needed.
//$ end
*/
enum {
    //$ include "sm100/constants.body.cu"
};

//$ include "sm100/base.cu"
//$ include "common/scale_place.c"

//$ include "common/four_scales.cu"

//$ include "sm100/scales.cu"

//$ include "sm100/multiply_scaled.cu"

//$ if addend == "read" then
//$ include "sm90/scale.cu"

//$ end
//$ include "sm90/store.cu"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
$(name)(
    //$ include "common/params.cu"
)
{
    const struct memory s = memory_layout();
    unsigned int sums;
    struct maps maps;
//$ if factors ~= "none" then
    struct factors factors;
//$ end
    struct stored scales;
    //$ include "sm90/setup.body.cu"
//$ for _, p in ipairs(params) do
//$   if p.kind == "global" and factors == "global" then
    factors.$(p.member) = $(p.name);
//$   elseif p.kind == "sf" then
    scales.$(p.member) = $(p.name);
//$   end
//$ end
    scales.k = k;
//$ if gather ~= "none" then
    //$ include "sm90/gather_setup.body.cu"
    scales.gather = &g;
//$ end
    //$ include "sm90/epilogue.body.cu"
    //$ include "sm90/scheduler_setup.body.cu"

    //$ include "sm100/start.body.cu"

//$ -- of a warpgroup that copies and multiplies, of one that loads scales, and of two that store
//$ local registers = epilogue == "gradient_copies" and { 72, 104, 168 }
//$                   or squares and (gather == "none" and { 64, 80, 184 } or { 80, 80, 176 })
//$ if registers then
    if (warpgroup == 0)
        registers_release($(registers[1]));
//$ end
    if (warp == 0) {
        //$ include "sm90/produce.body.cu"
    } else if (warp == 1) {
        //$ include "sm100/multiply.body.cu"
    } else if (warp >= $(threads // 32 - 4)) {
//$ if registers then
        registers_release($(registers[2]));
//$ end
        while (uniformly(queue_read(&s, &sequence, &t, &p, lane)))
            scale_tile(&s, &p, &t, &scales, $(d_rows), n, $(k_length), lane);
    } else if (warp >= 4) {
//$ if registers then
        registers_take($(registers[3]));
//$ end
        //$ include "sm100/store.body.cu"
//$ if gather ~= "none" then
    } else {
        //$ include "sm100/gather.body.cu"
//$ else
    //$ include "sm90/check.body.cu"
//$ end
    }
    //$ include "sm100/end.body.cu"
}
