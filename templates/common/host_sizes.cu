//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Sizes that the host knows, to where the kernels of $(recipe) read them: they come as parameters,
** so that nothing is copied and nothing waits.
**
**   device_sizes  [count]  int32
**
** One CTA.
*/
enum { THREADS = $(threads), MOST = 512 };

/* As the runtime has it. COUPLED: host sizes */
struct host_sizes {
    int count, size[MOST];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
$(name)(
    //$ include "common/params.cu"
)
{
    //$ include "common/wait.body.cu"
    for (int i = threadIdx.x; i < host_sizes.count; i += THREADS)
        device_sizes[i] = host_sizes.size[i];
}
