//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "sm90/ptx.cu"

//$ if ragged ~= "none" then
//$ include "common/sizes.c"

//$ include("common/check_sizes.cu", { rolled = scheduler_rolled })

//$ end
//$ if microbatches > 1 then
//$ include "sm90/merged.cu"

//$ end
//$ include "sm90/scheduler.cu"

//$ include "sm90/wgmma.cu"

