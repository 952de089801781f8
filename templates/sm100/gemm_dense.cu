//$ -- SPDX-License-Identifier: Apache-2.0
/*
//$ include "sm90/about_product.body.cu"
//$ if ragged == "m" then
** Rows of d outside every group are not written.
//$ end
**
** One persistent CTA per multiprocessor works on tiles of all groups, in the order of the scheduler
** (struct scheduler). Its first warp copies tiles of A and B into a ring of STAGES stages, one
** thread of the second has the tensor cores multiply them, and four warps store the sums, while the
** next tile is multiplied.
//$ if gather ~= "none" then
** A's rows come one by one, by two more warps: see sm90/gather.cu.
//$ end
//$ if cluster.n > 1 then
** Two CTAs side by side along n are a pair: each has its columns of B and half of the rows of A,
** the first one's thread multiplies all of it for both, and each stores its own columns of D.
//$ elseif cluster.m > 1 then
** Two CTAs, one above the other, are a pair: each has its rows of A and half of the columns of B,
** the first one's thread multiplies all of it for both, and each stores its own rows of D.
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
//$ include "sm100/multiply.cu"

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
    //$ include "sm90/setup.body.cu"
//$ for _, p in ipairs(params) do
//$   if p.kind == "sf" then
    factors.$(p.member) = $(p.name);
//$   end
//$ end
//$ if factors == "row" then
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

    //$ include "sm100/start.body.cu"

    if (warp == 0) {
        //$ include "sm90/produce.body.cu"
    } else if (warp == 1) {
        //$ include "sm100/multiply.body.cu"
    } else if (warp >= 4) {
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
