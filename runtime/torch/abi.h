/* SPDX-License-Identifier: Apache-2.0 */
/*
** abi.h: the part of LibTorch's stable C ABI that quern uses. torch's header of
** it is C++, so its functions are declared here, and found in the libtorch that
** the process has loaded: neither torch nor its headers are needed to build.
*/
#ifndef QUERN_TORCH_ABI_H
#define QUERN_TORCH_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct torch_tensor;
struct torch_library;

/* A value on the stack of an operator: a number, a tensor, a string, or the
   address of such a value that `new` made (0: none) where it is optional. */
typedef uint64_t qn_abi_value;
typedef void qn_abi_kernel(qn_abi_value *stack, uint64_t inputs,
                           uint64_t outputs);

/*
** X(result, name, arguments). All but the last group return 0, or another
** number after they printed an error. aoti_torch_check throws a C++ exception
** if its first argument is false.
*/
#define QN_ABI_FUNCTIONS(X)                                                    \
    X(int32_t, aoti_torch_library_init_fragment,                               \
      (const char *space, const char *file, uint32_t line,                     \
       struct torch_library **))                                               \
    X(int32_t, aoti_torch_library_init_impl,                                   \
      (const char *space, const char *key, const char *file, uint32_t line,    \
       struct torch_library **))                                               \
    X(int32_t, aoti_torch_library_def,                                         \
      (struct torch_library *, const char *schema))                            \
    X(int32_t, torch_library_impl,                                             \
      (struct torch_library *, const char *name, qn_abi_kernel *,              \
       uint64_t version))                                                      \
    X(int32_t, aoti_torch_get_data_ptr, (struct torch_tensor *, void **))      \
    X(int32_t, aoti_torch_get_dim, (struct torch_tensor *, int64_t *))         \
    X(int32_t, aoti_torch_get_sizes, (struct torch_tensor *, int64_t **))      \
    X(int32_t, aoti_torch_get_strides, (struct torch_tensor *, int64_t **))    \
    X(int32_t, aoti_torch_get_dtype, (struct torch_tensor *, int32_t *))       \
    X(int32_t, aoti_torch_get_device_type, (struct torch_tensor *, int32_t *)) \
    X(int32_t, aoti_torch_get_device_index,                                    \
      (struct torch_tensor *, int32_t *))                                      \
    X(int32_t, aoti_torch_empty_strided,                                       \
      (int64_t ndim, const int64_t *shape, const int64_t *strides,             \
       int32_t type, int32_t device, int32_t index, struct torch_tensor **))   \
    X(int32_t, aoti_torch_zero_, (struct torch_tensor *))                      \
    X(int32_t, aoti_torch_clone,                                               \
      (struct torch_tensor *, struct torch_tensor **))                         \
    X(int32_t, aoti_torch_delete_tensor_object, (struct torch_tensor *))       \
    X(int32_t, aoti_torch_as_strided,                                          \
      (struct torch_tensor *, const int64_t *shape, const int64_t *strides,    \
       struct torch_tensor **))                                                \
    X(int32_t, aoti_torch_new_tensor_handle,                                   \
      (struct torch_tensor *, struct torch_tensor **))                         \
    X(int32_t, aoti_torch_delete_library_object, (struct torch_library *))     \
    X(int32_t, torch_call_dispatcher,                                          \
      (const char *name, const char *overload, qn_abi_value *stack,            \
       uint64_t version))                                                      \
    X(int32_t, torch_new_string_handle,                                        \
      (const char *, size_t length, void **))                                  \
    X(int32_t, torch_string_c_str, (void *, const char **))                    \
    X(int32_t, torch_delete_string, (void *))                                  \
    X(uint64_t, aoti_torch_abi_version, (void))                                \
    X(int32_t, aoti_torch_device_type_cpu, (void))                             \
    X(int32_t, aoti_torch_device_type_cuda, (void))                            \
    X(int32_t, aoti_torch_dtype_bfloat16, (void))                              \
    X(int32_t, aoti_torch_dtype_float16, (void))                               \
    X(int32_t, aoti_torch_dtype_float32, (void))                               \
    X(int32_t, aoti_torch_dtype_int32, (void))                                 \
    X(int32_t, aoti_torch_dtype_int64, (void))                                 \
    X(int32_t, aoti_torch_dtype_uint8, (void))                                 \
    X(void, aoti_torch_check,                                                  \
      (bool, const char *function, const char *file, uint32_t line,            \
       const char *message))

/* Those of libtorch_cuda.so, NULL in a torch without CUDA. */
#define QN_ABI_CUDA_FUNCTIONS(X)                                               \
    X(int32_t, aoti_torch_get_current_cuda_stream, (int32_t device, void **))  \
    X(int32_t, aoti_torch_create_cuda_guard, (int32_t device, void **))        \
    X(int32_t, aoti_torch_delete_cuda_guard, (void *))

struct qn_abi {
#define QN_ABI_MEMBER(result, name, arguments) result(*name) arguments;
    QN_ABI_FUNCTIONS(QN_ABI_MEMBER)
    QN_ABI_CUDA_FUNCTIONS(QN_ABI_MEMBER)
#undef QN_ABI_MEMBER
    void (*delete_value)(void *); /* C++ delete */
};

extern struct qn_abi qn_abi;

/* Find them. NULL, or a sentence in static storage. */
const char *qn_abi_find(void);

#endif
