/* SPDX-License-Identifier: Apache-2.0 */
/*
** handler.c: XLA's custom call of quern, for the CPU and for CUDA. Nothing here
** depends on a line's computation: a loop over the plan's operands serves all.
**
** XLA calls instantiate once for a call site; on CUDA initialize before each
** execution, outside of captures; then execute, which a command buffer may
** capture: it neither allocates nor waits nor makes a plan.
*/
#include <dlfcn.h>
#include <string.h>

#include "jax/site.h"

/* ----------------------------------------------------------------- metadata */

/* One for each platform: 0 until XLA assigns it. */
static struct qn_ffi_type_id types[2];

QUERN_API void *quern_jax_type(int is_cuda);
QUERN_API void *quern_jax_type_info(void);

void *quern_jax_type(int is_cuda)
{
    return &types[is_cuda != 0];
}

void *quern_jax_type_info(void)
{
    static struct qn_ffi_type_info info = {.size = sizeof info,
                                           .destroy = qn_site_destroy};
    return &info;
}

/* Before everything else XLA asks a handler about itself. 0: not this time. */
static int is_question(const struct qn_ffi_call *call,
                       struct qn_ffi_type_id state)
{
    const struct qn_ffi_version version = {
        .size = sizeof version, .major = QN_FFI_MAJOR, .minor = QN_FFI_MINOR};
    struct qn_ffi_metadata *metadata;

    if (!call->extension || call->extension->type != 1)
        return 0;
    metadata = ((struct qn_ffi_metadata_extension *)call->extension)->metadata;
    metadata->version = version;
    metadata->traits = QN_FFI_COMMAND_BUFFER_COMPATIBLE;
    metadata->state = state;
    return 1;
}

static struct qn_ffi_error *get_site(const struct qn_ffi_call *call,
                                     int is_cuda, struct qn_site **site)
{
    struct qn_ffi_state_args args = {.size = sizeof args,
                                     .context = call->context,
                                     .stage = QN_FFI_INSTANTIATE,
                                     .type = &types[is_cuda]};
    struct qn_ffi_error *error = call->api->get_state(&args);

    *site = args.state;
    return error;
}

/* ------------------------------------------------------------------- device */

static struct {
    int (*memset_async)(uint64_t, unsigned char, size_t, void *);
    int (*copy_async)(uint64_t to, uint64_t from, size_t, void *);
    int (*is_capturing)(void *stream, int *mode);
} driver;

/* jax's plugin has loaded the driver. */
static void find_driver(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    if (!cuda)
        return;
    *(void **)&driver.memset_async = dlsym(cuda, "cuMemsetD8Async");
    *(void **)&driver.copy_async = dlsym(cuda, "cuMemcpyDtoDAsync_v2");
    *(void **)&driver.is_capturing = dlsym(cuda, "cuStreamIsCapturing");
}

static struct qn_ffi_error *get_device(const struct qn_ffi_call *call,
                                       int *device)
{
    struct qn_ffi_ordinal_args args = {.size = sizeof args,
                                       .context = call->context};
    struct qn_ffi_error *error = call->api->get_ordinal(&args);

    *device = args.ordinal;
    if (!error && (*device < 0 || *device >= QN_SITE_DEVICES))
        error = qn_site_fail(call, QN_FFI_UNIMPLEMENTED,
                             "device %d: 0 to %d are supported", *device,
                             QN_SITE_DEVICES - 1);
    return error;
}

static struct qn_ffi_error *get_stream(const struct qn_ffi_call *call,
                                       struct CUstream_st **stream)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct qn_ffi_stream_args args = {.size = sizeof args,
                                      .context = call->context};
    struct qn_ffi_error *error = call->api->get_stream(&args);

    *stream = args.stream;
    pthread_once(&once, find_driver);
    if (!error &&
        (!driver.memset_async || !driver.copy_async || !driver.is_capturing))
        error = qn_site_fail(call, QN_FFI_UNAVAILABLE,
                             "the CUDA driver is not loaded");
    return error;
}

/* ------------------------------------------------------------------ buffers */

static int type_of(int type)
{
    switch (type) {
    case QUERN_BF16:
        return QN_FFI_BF16;
    case QUERN_F16:
        return QN_FFI_F16;
    case QUERN_F32:
        return QN_FFI_F32;
    case QUERN_I32:
    case QUERN_F16_ZERO:
    case QUERN_BF16_ZERO:
        return QN_FFI_S32;
    case QUERN_I64:
        return QN_FFI_S64;
    default:
        return QN_FFI_U8;
    }
}

static int is_sizes(int arg)
{
    return arg == QUERN_ARG_LENGTHS || arg == QUERN_ARG_STARTS ||
           arg == QUERN_ARG_ENDS;
}

static int has_shape(const struct qn_ffi_buffer *b,
                     const struct quern_operand *o, int64_t rows)
{
    int same = b->rank == o->ndim;

    for (int i = 0; same && i < o->ndim; i++)
        same = b->dims[i] == quern_extent(&o->shape[i], rows);
    return same;
}

/*
** A buffer is bytes, at least as many as the operand has, or has the operand's
** type and shape; so that no program can name memory that it does not have.
** Seeds, which are 64 bits wide, may also come as pairs of 32 bits.
*/
static struct qn_ffi_error *bind(const struct qn_ffi_call *call,
                                 const struct quern_operand *o, int64_t rows,
                                 const struct qn_ffi_buffer *from,
                                 struct quern_buffer *to)
{
    const int64_t bytes = quern_extent(&o->bytes, rows);
    int fits;

    if (is_sizes(o->arg)) {
        to->type = from->type == QN_FFI_S64 ? QUERN_I64 : QUERN_I32;
        fits = (from->type == QN_FFI_S32 || from->type == QN_FFI_S64) &&
               has_shape(from, o, rows);
    } else if (o->arg == QUERN_ARG_RANDOM && from->type == QN_FFI_U32) {
        fits = from->rank == 1 && from->dims[0] * 4 == bytes;
    } else if (from->type == QN_FFI_U8) {
        fits = from->rank == 1 && from->dims[0] >= bytes;
    } else {
        fits = from->type == type_of(o->type) && has_shape(from, o, rows);
    }
    if (!fits)
        return qn_site_fail(call, QN_FFI_INVALID_ARGUMENT,
                            "%s has not the type and shape of the line's "
                            "operand: %lld bytes, %d axes",
                            o->name, (long long)bytes, o->ndim);
    to->data = from->data;
    return NULL;
}

/* An operand that is a result too is written in place. XLA gives two buffers
   where it reads a slice of another array, although the call says that they are
   one. */
static struct qn_ffi_error *copy(const struct qn_ffi_call *call,
                                 const struct qn_site *site, void *to,
                                 const void *from, size_t bytes,
                                 struct CUstream_st *stream)
{
    if (!from || to == from)
        return NULL;
    if (!site->is_cuda)
        memcpy(to, from, bytes);
    else if (driver.copy_async((uint64_t)to, (uint64_t)from, bytes, stream))
        return qn_site_fail(call, QN_FFI_INTERNAL,
                            "the driver cannot copy an operand");
    return NULL;
}

/* XLA uses a workspace's memory for other things between two runs. */
static struct qn_ffi_error *zero(const struct qn_ffi_call *call,
                                 const struct qn_site *site, void *data,
                                 size_t bytes, struct CUstream_st *stream)
{
    if (!site->is_cuda)
        memset(data, 0, bytes);
    else if (driver.memset_async((uint64_t)data, 0, bytes, stream))
        return qn_site_fail(call, QN_FFI_INTERNAL,
                            "the driver cannot zero a workspace");
    return NULL;
}

static struct qn_ffi_error *fill(const struct qn_ffi_call *call,
                                 const struct qn_site *site,
                                 const struct quern_plan *plan,
                                 struct CUstream_st *stream,
                                 struct quern_args *args)
{
    struct qn_ffi_error *error = NULL;
    int count;
    const struct quern_operand *o = quern_plan_operands(plan, &count);

    for (; count > 0 && !error; count--, o++) {
        struct quern_buffer *to = &args->of[o->arg];
        const int operand = site->operand[o->arg];
        const int result = site->result[o->arg];

        const void *given = NULL;

        if (operand >= 0)
            error = bind(call, o, site->rows, call->operands.at[operand], to);
        if (!error && result >= 0) {
            given = to->data;
            error = bind(call, o, site->rows, call->results.at[result], to);
        }
        if (!error && given)
            error = copy(call, site, to->data, given,
                         (size_t)quern_extent(&o->bytes, site->rows), stream);
        if (!error && o->arg == QUERN_ARG_WORKSPACE && to->data)
            error = zero(call, site, to->data, o->zero_bytes, stream);
    }
    return error;
}

/* ------------------------------------------------------------------- stages */

static struct qn_ffi_error *instantiate(const struct qn_ffi_call *call,
                                        int is_cuda)
{
    struct qn_ffi_state_args args = {.size = sizeof args,
                                     .context = call->context,
                                     .stage = QN_FFI_INSTANTIATE,
                                     .type = &types[is_cuda]};
    struct qn_site *site;
    struct qn_ffi_error *error;

    if (is_question(call, types[is_cuda]))
        return NULL;
    error = qn_site_make(call, is_cuda, &site);
    if (error)
        return error;
    args.state = site;
    error = call->api->set_state(&args);
    if (error)
        qn_site_destroy(site);
    return error;
}

static int run_on_host(const struct quern_plan *plan,
                       const struct quern_args *args)
{
    int code = quern_run(plan, args, NULL);

    if (!code && args->of[QUERN_ARG_WORKSPACE].data)
        code = quern_check(plan, args, NULL);
    return code;
}

static struct qn_ffi_error *run(const struct qn_ffi_call *call,
                                const struct qn_site *site,
                                const struct quern_plan *plan,
                                struct CUstream_st *stream)
{
    struct quern_args args = site->args;
    struct qn_ffi_error *error;
    int code, captures = 0;

    if (call->operands.count != site->operands ||
        call->results.count != site->results)
        return qn_site_fail(call, QN_FFI_INVALID_ARGUMENT,
                            "%d operands and %d results are named",
                            site->operands, site->results);
    error = fill(call, site, plan, stream, &args);
    if (error)
        return error;
    code = site->is_cuda ? quern_run(plan, &args, stream)
                         : run_on_host(plan, &args);
    atomic_fetch_add(&qn_site_count[QN_SITE_RUNS], 1);
    if (site->is_cuda && !driver.is_capturing(stream, &captures) && captures)
        atomic_fetch_add(&qn_site_count[QN_SITE_CAPTURED], 1);
    return code ? qn_site_fail_library(call, code) : NULL;
}

static struct qn_ffi_error *execute(const struct qn_ffi_call *call, int is_cuda)
{
    const struct qn_ffi_type_id none = {0};
    struct CUstream_st *stream = NULL;
    struct qn_ffi_error *error;
    struct quern_plan *plan;
    struct qn_site *site;
    int device = 0;

    if (is_question(call, none))
        return NULL;
    error = get_site(call, is_cuda, &site);
    if (!error)
        error = is_cuda ? get_device(call, &device) : qn_site_renew(call, site);
    if (!error && is_cuda)
        error = get_stream(call, &stream);
    if (error)
        return error;
    plan = atomic_load_explicit(&site->plans[device], memory_order_acquire);
    if (!plan)
        return qn_site_fail(call, QN_FFI_FAILED_PRECONDITION,
                            "device %d has no plan for '%s': XLA did not call "
                            "initialize",
                            device, site->line);
    return run(call, site, plan, stream);
}

/* Each stage has a name of its own for each platform: Python registers them. */
typedef struct qn_ffi_error *handler(struct qn_ffi_call *call);
QUERN_API handler quern_jax_instantiate_cpu, quern_jax_instantiate_cuda,
    quern_jax_initialize_cuda, quern_jax_execute_cpu, quern_jax_execute_cuda;

struct qn_ffi_error *quern_jax_instantiate_cpu(struct qn_ffi_call *call)
{
    return instantiate(call, 0);
}

struct qn_ffi_error *quern_jax_instantiate_cuda(struct qn_ffi_call *call)
{
    return instantiate(call, 1);
}

struct qn_ffi_error *quern_jax_initialize_cuda(struct qn_ffi_call *call)
{
    const struct qn_ffi_type_id none = {0};
    struct qn_ffi_error *error;
    struct qn_site *site;
    int device;

    if (is_question(call, none))
        return NULL;
    error = get_site(call, 1, &site);
    if (!error)
        error = get_device(call, &device);
    return error ? error : qn_site_prepare(call, site, device);
}

struct qn_ffi_error *quern_jax_execute_cpu(struct qn_ffi_call *call)
{
    return execute(call, 0);
}

struct qn_ffi_error *quern_jax_execute_cuda(struct qn_ffi_call *call)
{
    return execute(call, 1);
}
