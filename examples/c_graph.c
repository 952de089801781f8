/* SPDX-License-Identifier: Apache-2.0 */
/*
** c_graph.c: a product in a CUDA graph that is replayed with other group sizes.
**
**   cc c_graph.c $(pkg-config --cflags --libs quern) -I/usr/local/cuda/include
**      -L/usr/local/cuda/lib64 -lcudart
**
** Every x and w is 1, so each element of a group's rows of y is K; rows outside
** the groups keep their zeros. Needs a GPU.
*/
#include <cuda_runtime_api.h>

#include "example.h"

enum { GROUPS = 4, ROWS = 256, N = 128, K = 64 };

static void must_cuda(cudaError_t error)
{
    if (!error)
        return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    exit(1);
}

/* Device memory with the same byte pair everywhere. */
static void *device(size_t bytes, uint16_t value)
{
    uint16_t *host = (uint16_t *)malloc(bytes);
    void *memory = NULL;

    if (!host)
        exit(1);
    for (size_t i = 0; i < bytes / 2; i++)
        host[i] = value;
    must_cuda(cudaMalloc(&memory, bytes));
    must_cuda(
        cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, NULL));
    must_cuda(cudaStreamSynchronize(NULL));
    free(host);
    return memory;
}

/* Operands by name would do as well: quern_plan_operands lists them. */
static void provide(struct quern_args *args, size_t workspace)
{
    args->of[QUERN_ARG_A].data = device(ROWS * K * 2, to_bf16(1));
    args->of[QUERN_ARG_B].data = device(GROUPS * N * K * 2, to_bf16(1));
    args->of[QUERN_ARG_D].data = device(ROWS * N * 2, 0);
    args->of[QUERN_ARG_LENGTHS].data = device(GROUPS * 4, 0);
    args->of[QUERN_ARG_WORKSPACE].data = device(workspace, 0);
}

static void give_back(struct quern_args *args)
{
    must_cuda(cudaFree(args->of[QUERN_ARG_A].data));
    must_cuda(cudaFree(args->of[QUERN_ARG_B].data));
    must_cuda(cudaFree(args->of[QUERN_ARG_D].data));
    must_cuda(cudaFree(args->of[QUERN_ARG_LENGTHS].data));
    must_cuda(cudaFree(args->of[QUERN_ARG_WORKSPACE].data));
}

/* Rows of y that are K. */
static int count_rows(const void *y, cudaStream_t stream)
{
    static uint16_t copy[ROWS * N];
    int count = 0;

    must_cuda(
        cudaMemcpyAsync(copy, y, sizeof copy, cudaMemcpyDeviceToHost, stream));
    must_cuda(cudaStreamSynchronize(stream));
    for (int row = 0; row < ROWS; row++)
        count += from_bf16(copy[row * N]) == K;
    return count;
}

int main(void)
{
    static const int32_t sizes[2][GROUPS] = {{16, 0, 1, 63}, {100, 40, 80, 36}};
    struct quern_args args = QUERN_ARGS_INIT;
    struct quern_plan_info info;
    struct quern_context *ctx;
    struct quern_plan *plan;
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t replay = NULL;

    must(quern_open(NULL, &ctx));
    must_cuda(cudaStreamCreate(&stream));
    must(quern_plan_create(ctx, "fprop bf16 g=4 m=256 n=128 k=64", NULL,
                           &plan)); /* before the capture: it may compile */
    must(quern_plan_info(plan, &info));
    provide(&args, info.workspace_bytes);

    must_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    must(quern_run(plan, &args, stream));
    must_cuda(cudaStreamEndCapture(stream, &graph));
    must_cuda(cudaGraphInstantiate(&replay, graph, 0));

    for (int i = 0; i < 2; i++) {
        must_cuda(cudaMemcpyAsync(args.of[QUERN_ARG_LENGTHS].data, sizes[i],
                                  sizeof sizes[i], cudaMemcpyHostToDevice,
                                  stream));
        must_cuda(cudaGraphLaunch(replay, stream));
        must(quern_check(plan, &args, stream));
        printf("replay %d: %d rows\n", i + 1,
               count_rows(args.of[QUERN_ARG_D].data, stream));
    }
    must_cuda(cudaGraphExecDestroy(replay));
    must_cuda(cudaGraphDestroy(graph));
    must_cuda(cudaStreamDestroy(stream));
    give_back(&args);
    quern_plan_destroy(plan);
    quern_close(ctx);
    return 0;
}
