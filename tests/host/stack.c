/* SPDX-License-Identifier: Apache-2.0 */
/* stack.c: what the library costs the threads of the program that holds it. */
#include "host.h"
#include "device/check.h"
#include "quantize/quantize_plan.h"

#include <pthread.h>

/*
** The stack that a call may use by quern.h. This also holds
** the thread's own copy of what libraries keep for each, which is less than 64
** KiB; sanitizers need more.                       COUPLED: stack
*/
#ifdef __SANITIZE_ADDRESS__
#define SMALL ((size_t)512 << 10)
#else
#define SMALL ((size_t)(256 + 64) << 10)
#endif

/* The cast that needs most: amax, the rowwise and the columnwise tensor,
   sums. */
static void *cast(void *code)
{
    const struct qn_plan_options one = {.backend = QUERN_BACKEND_HOST,
                                        .sms = 1};
    struct qn_quantization q;
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan = NULL;
    struct qn_quantize_args *args = &need.args;
    const int32_t sizes[] = {130, 70};
    int *failed = code;
    char *memory[9];
    size_t bytes[9];

    *failed = qn_quantize_parse(host_ctx,
                                "quantize nvfp4 of=dy g=2 m=200 k=160 "
                                "dbias=1",
                                &q) ||
              qn_quantize_needs(host_ctx, &q, &need) ||
              qn_quantize_plan(host_ctx, &q, &one, &plan);
    memcpy(bytes,
           (size_t[]){args->in.bytes, args->row.bytes, args->row.sf_bytes,
                      args->row.global_bytes, args->column.bytes,
                      args->column.sf_bytes, args->column.global_bytes,
                      (size_t)2 * 160 * 4, need.workspace_bytes},
           sizeof bytes);
    for (int i = 0; i < 9; i++)
        memory[i] = calloc(bytes[i] + 1, 1);
    args->in.data = memory[0];
    args->row.data = memory[1];
    args->row.sf = memory[2];
    args->row.global = memory[3];
    args->column.data = memory[4];
    args->column.sf = memory[5];
    args->column.global = memory[6];
    args->dbias = (float *)(void *)memory[7];
    args->workspace = memory[8];
    args->random = (const uint64_t[2]){1, 2};
    args->first_dims = sizes;
    args->sizes_type = QUERN_I32;
    *failed = *failed || qn_quantize_run(plan, args, NULL) ||
              qn_check_record(plan->driver, plan->context, args->workspace,
                              &args->in, "quern_check", NULL);
    qn_quantize_plan_free(plan);
    for (int i = 0; i < 9; i++)
        free(memory[i]);
    return NULL;
}

TEST(test_small_stack_of_thread)
{
    pthread_attr_t small;
    pthread_t thread;
    int failed = 1;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, SMALL);
    assert_int_equal(pthread_create(&thread, &small, cast, &failed), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&small);
    assert_int_equal(failed, 0);
}
