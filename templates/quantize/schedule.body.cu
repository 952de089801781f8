//$ -- SPDX-License-Identifier: Apache-2.0
if (warp == 0) {
    struct scheduler w;
    //$ include "quantize/begin.body.cu"
    schedule.scheduler[lane] = w;
    __syncwarp();
    look_ahead(&schedule, 0, lane);
}
__syncthreads();
