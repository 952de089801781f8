//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "sm90/ptx.cu"

//$ include "sm100/ptx.cu"

//$ if ragged ~= "none" then
//$ include "common/sizes.c"

//$ include("common/check_sizes.cu", { rolled = scheduler_rolled })

//$ end
//$ if microbatches > 1 then
//$ include "sm90/merged.cu"

//$ end
//$ include "sm90/scheduler.cu"

//$ local form = (d.bytes == 4 and "f32" or "16bit") .. (turned and "_turned" or "")
//$ include("sm90/store_" .. form .. ".cu")

//$ if factors ~= "none" then
//$ include "sm90/factors.cu"

//$ end
//$ include "sm100/memory.cu"

//$ include "sm90/ring.cu"

//$ include "sm100/sums.cu"

//$ include "sm90/copy.cu"

//$ if params.extra_k then
//$ include "sm90/extra.cu"

//$ end
//$ if gather ~= "none" then
//$ include "sm90/gather.cu"

//$ end
