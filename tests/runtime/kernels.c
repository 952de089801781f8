/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c: the tests' own registry in place of the generated one, and its
   host kernel. */
#include "test.h"

#include <pthread.h>

struct test_host test_host;
unsigned long long test_host_workers;

/* Note the worker; worker 0 keeps the parameters, the same for all. */
static void host_kernel(void *const *params, int worker, int workers)
{
    static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;

    __atomic_fetch_or(&test_host_workers, 1ull << worker, __ATOMIC_SEQ_CST);
    if (worker)
        return;
    pthread_mutex_lock(&noting);
    test_host = (struct test_host){
        .calls = test_host.calls + 1,
        .workers = workers,
        .a = *(const void *const *)params[0],
        .b = *(const void *const *)params[1],
        .d = *(void *const *)params[2],
        .a_stride = *(const long long *)params[3],
        .b_stride = *(const long long *)params[4],
        .d_stride = *(const long long *)params[5],
        .first_dims = *(const void *const *)params[6],
        .offsets = *(const void *const *)params[7],
        .sizes_bytes = *(const int *)params[8],
        .groups = *(const int *)params[9],
        .m = *(const int *)params[10],
        .n = *(const int *)params[11],
        .k = *(const int *)params[12],
        .error = *(unsigned *const *)params[13],
    };
    pthread_mutex_unlock(&noting);
}

static const struct qn_kernel kernels[] = {TEST_KERNELS(host_kernel)};

const struct quern_registry qn_registry_builtin = {
    .hash = "hash",
    .recipes = test_recipes,
    .nrecipes = sizeof test_recipes / sizeof test_recipes[0],
    .kernels = kernels,
    .nkernels = sizeof kernels / sizeof kernels[0],
    .rejected = test_rejected,
    .nrejected = 1,
};
