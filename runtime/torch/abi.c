/* SPDX-License-Identifier: Apache-2.0 */
/*
** abi.c: look libtorch's functions up.
*/
#include "torch/abi.h"

#include <dlfcn.h>
#include <stdio.h>

struct qn_abi qn_abi;

/* 0: there is no such symbol. `function` is the address of a pointer. */
static int find(void *library, const char *name, void *function)
{
    *(void **)function = library ? dlsym(library, name) : NULL;
    return *(void **)function != NULL;
}

const char *qn_abi_find(void)
{
    static char error[160];
    void *cpu = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    void *cuda = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    const char *missing = NULL;

    if (!cpu)
        return "libtorch_cpu.so is not loaded: import torch first";
#define FIND(result, name, arguments)                                          \
    if (!find(cpu, #name, &qn_abi.name))                                       \
        missing = #name;
    QN_ABI_FUNCTIONS(FIND)
#undef FIND
#define FIND(result, name, arguments) find(cuda, #name, &qn_abi.name);
    QN_ABI_CUDA_FUNCTIONS(FIND)
#undef FIND
    if (!find(cpu, "_ZdlPv", &qn_abi.delete_value))
        missing = "_ZdlPv";
    if (!missing)
        return NULL;
    snprintf(error, sizeof error,
             "libtorch_cpu.so has no %s: torch 2.10 or later is needed",
             missing);
    return error;
}
