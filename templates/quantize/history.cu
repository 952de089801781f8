//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Delayed scaling: the next scale of $(of) in $(recipe), from the largest magnitudes of the last
** $(scale.history) calls.
**
**   scale    [2]   the values' factor, and the stored scale
**   history  [$(scale.history)]  this call's first; afterwards it is the last, each other one entry
**            earlier, and the first is 0, as TransformerEngine rotates its amax_history
**
** One CTA.
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads), SLOTS = $(scale.history), EACH = (SLOTS + THREADS - 1) / THREADS };

//$ once "cast/arith.c"
/* From the largest magnitude. */
//$ rule "scale"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
$(name)(
    //$ include "common/params.cu"
)
{
    __shared__ unsigned int most;
    float kept[EACH];

    //$ include "common/enter.body.cu"
    if (threadIdx.x == 0)
        most = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int slot = i * THREADS + threadIdx.x;
        kept[i] = slot < SLOTS ? history[(slot + 1) % SLOTS] : 0;
//$ if scale.latest then
        if (slot == SLOTS - 1)
//$ end
            atomicMax(&most, bits_of(kept[i]));
    }
    __syncthreads(); /* all slots have been read */
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int slot = i * THREADS + threadIdx.x;
        if (slot < SLOTS)
            history[slot] = slot ? kept[i] : 0;
    }
    if (threadIdx.x == 0) {
        float stored;
        scale[0] = scale_of(float_of(most), scale[0], &stored);
        scale[1] = stored;
    }
}
