//$ -- SPDX-License-Identifier: Apache-2.0
if (warp == 0) {
    struct walk w;
    //$ include "quantize/begin.cu"
    agenda.walk[lane] = w;
    __syncwarp();
    look_ahead(&agenda, 0, lane);
}
__syncthreads();
