/* SPDX-License-Identifier: Apache-2.0 */
/*
** quern.h: grouped GEMM for mixture-of-experts models.
**
** A *line* of text describes a computation: a product of G groups (experts), a
** quantization, an MLP, a layer from tokens, or the routes of its tokens. A
** *plan* is a line made ready for one device. A run fills in the addresses:
**
**     struct quern_args args = QUERN_ARGS_INIT;
**     struct quern_context *ctx;
**     struct quern_plan *plan;
**     quern_open(NULL, &ctx);
**     quern_plan_create(ctx, "fprop bf16 g=8 m=4096 n=2048 k=7168", NULL,
**                       &plan);
**     args.of[QUERN_ARG_A].data = x;                     // [4096, 7168]
**     args.of[QUERN_ARG_B].data = weights;               // [8, 2048, 7168]
**     args.of[QUERN_ARG_D].data = y;                     // [4096, 2048]
**     args.of[QUERN_ARG_LENGTHS].data = tokens;          // [8] int32
**     args.of[QUERN_ARG_WORKSPACE].data = zeroed_once;
**     quern_run(plan, &args, stream);
**
** The lengths of the groups stay on the device: nothing is padded, and nothing
** is read on the host. quern_plan_operands lists a plan's operands. The lines
** are in docs/problem-line.md, their operands in docs/c-api.md.
**
** Every function returns QUERN_OK or another code below unless its comment says
** otherwise; quern_errmsg() then holds one sentence that names the argument and
** the rule, and a plan, text or table that was to be made is NULL. The library
** never prints, aborts or exits.
*/
#ifndef QUERN_H
#define QUERN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define QUERN_API __attribute__((visibility("default")))
#else
#define QUERN_API
#endif

#define QUERN_VERSION_MAJOR 0
#define QUERN_VERSION_MINOR 2
#define QUERN_VERSION_PATCH 0

#define QUERN_VERSION "0.2.0"

/* Changes whenever a struct of this header changes; quern_open compares it. */
#define QUERN_ABI 4

/* ------------------------------------------------------------------ errors
** Lists: X(NAME, ..) makes QUERN_NAME. Types have the word of lines, bits in
** memory, bits, the largest and the smallest positive value.
*/
#define QUERN_ENUM(name, ...) QUERN_##name,
#define QUERN_ERRORS(X)                                                        \
    X(OK, 0, "success")                                                        \
    X(EINVAL, 1, "an argument breaks a rule")                                  \
    X(ENOMEM, 2, "host memory ran out")                                        \
    X(ENOKERNEL, 3, "no kernel serves the problem")                            \
    X(ECUDA, 4, "the CUDA driver reported an error")                           \
    X(ENODEVICE, 5, "no CUDA driver or no GPU on this machine")                \
    X(ECOMPILE, 6, "a kernel could not be generated or compiled")              \
    X(EIO, 7, "a file could not be read or written")                           \
    X(ESIZES, 8, "sizes or indices on the device break a rule")                \
    X(ECAPTURE, 9, "not allowed while the stream captures a graph")            \
    X(EMISSING, 10, "a library that this needs is not on this machine")        \
    X(EFULL, 11, "a queue holds as much as it was made for")

enum quern_status { QUERN_ERRORS(QUERN_ENUM) QUERN_STATUS_COUNT };

/* ------------------------------------------------------------------- types */

#define QUERN_WIDE_TYPES(X)                                                    \
    X(BF16, "bf16", 16, 16, 0x1.fep127, 0x1p-133)                              \
    X(F16, "f16", 16, 16, 65504, 0x1p-24)                                      \
    X(F32, "f32", 32, 32, 0x1.fffffep127, 0x1p-149)
#define QUERN_NARROW_TYPES(X)                                                  \
    X(E4M3, "e4m3", 8, 8, 448, 0x1p-9)                                         \
    X(E5M2, "e5m2", 8, 8, 57344, 0x1p-16)                                      \
    X(E2M3, "e2m3", 8, 6, 7.5, 0.125)                                          \
    X(E3M2, "e3m2", 8, 6, 28, 0.0625)                                          \
    X(E2M1, "e2m1", 4, 4, 6, 0.5)
#define QUERN_INTEGER_TYPES(X) /* a recipe gives u4 and u8 their zero */       \
    X(I4, "i4", 4, 4, 7, 1) X(U4, "u4", 4, 4, 15, 1) X(U8, "u8", 8, 8, 255, 1)
#define QUERN_ZERO_TYPES(X) /* words: a scale, and its zero from bit 16 on */  \
    X(F16_ZERO, "f16_zero", 32, 32, 0, 0)                                      \
    X(BF16_ZERO, "bf16_zero", 32, 32, 0, 0)
#define QUERN_TYPES(X)                                                         \
    QUERN_WIDE_TYPES(X)                                                        \
    QUERN_NARROW_TYPES(X)                                                      \
    X(E8M0, "e8m0", 8, 8, 0x1p127, 0x1p-127)                                   \
    X(I8, "i8", 8, 8, 127, 1)                                                  \
    X(I32, "i32", 32, 32, 0, 0)                                                \
    X(I64, "i64", 64, 64, 0, 0)                                                \
    QUERN_INTEGER_TYPES(X) QUERN_ZERO_TYPES(X)
enum quern_type { QUERN_TYPE_NONE, QUERN_TYPES(QUERN_ENUM) QUERN_TYPE_COUNT };

#define QUERN_BACKENDS(X)                                                      \
    X(BACKEND_AUTO, "auto") /* aot, else jit, else host without a GPU */       \
    X(BACKEND_HOST, "host") /* C on all cores, host memory, 256 KiB stack */   \
    X(BACKEND_JIT, "jit")   /* NVRTC and the cubin cache */                    \
    X(BACKEND_AOT, "aot")   /* cubins linked with the registry */              \
    X(BACKEND_CUBLASLT, "cublaslt") /* NVIDIA's, per group; only on request */
enum quern_backend { QUERN_BACKENDS(QUERN_ENUM) QUERN_BACKEND_COUNT };

/* How it is known that kernels work on a GPU. */
#define QUERN_EVIDENCES(X)                                                     \
    X(EVIDENCE_NONE, "none")               /* not known: cublaslt's */         \
    X(EVIDENCE_COMPILED, "compiled")       /* not run on such a GPU */         \
    X(EVIDENCE_INTERPRETED, "interpreted") /* by an interpreter of PTX */      \
    X(EVIDENCE_RUN, "run")                 /* by the GPU suite, or the host */
enum quern_evidence { QUERN_EVIDENCES(QUERN_ENUM) QUERN_EVIDENCE_COUNT };

/* The part of an MLP that a run computes. */
enum quern_phase {
    QUERN_PHASE_FORWARD,  /* y; products and quantizations have this one only */
    QUERN_PHASE_BACKWARD, /* dx, dprob, db1, db2; dw1 and dw2 too if given */
    QUERN_PHASE_WGRAD,    /* dw1 and dw2, at any later time */
    QUERN_PHASE_WEIGHTS,  /* the quantized weights that are given */
    QUERN_PHASES
};

#define QUERN_MAX_GROUPS 1024
#define QUERN_MAX_DIMS   4 /* of an operand */
#define QUERN_MAX_RANK   8 /* of a tensor that quern_infer reads */

struct CUstream_st;   /* *CUstream and cudaStream_t; NULL: the default stream */
struct quern_context; /* one serves all GPUs of a process and all threads */
struct quern_plan;    /* immutable; may be shared by threads */
struct quern_registry; /* kernels linked by `quern build`: quern_kernels.h */

/* ----------------------------------------------------------------- context */

enum quern_log_level { QUERN_LOG_ERROR = 1, QUERN_LOG_INFO, QUERN_LOG_DEBUG };

/* Begin with QUERN_OPEN_OPTIONS_INIT; zero or NULL chooses the default. */
struct quern_open_options {
    size_t size;                           /* of this struct */
    const struct quern_registry *registry; /* linked, or $QUERN_KERNELS */
    const char *const *specs;              /* folders with specs of your own */
    int specs_count;
    int log_level;     /* of `log`; default $QUERN_LOG, else INFO */
    const char *cache; /* folders separated by ':', "" for none; default
                           $QUERN_CACHE, else $XDG_CACHE_HOME/quern, else
                           ~/.cache/quern; new entries go to the first
                           writable one */
    const char *tune;  /* folders with files of quern_tune, as `cache`; default
                           $QUERN_TUNE */
    /* From any thread, and while locks are held: it calls nothing of quern. */
    void (*log)(void *user, int level, const char *line);
    void *log_user;
};

#define QUERN_OPEN_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct quern_open_options), NULL, NULL, 0, 0, NULL, NULL, NULL, \
            NULL                                                               \
    }

/*
** Open the library. `options` may be NULL. Neither a GPU nor a compiler is
** needed until the first plan that uses it. The library reads the environment
** only here, and none of set-user-id programs (docs/environment.md has the
** variables). Programs that it starts, a C compiler and the one that tries
** kernels, get PATH and their own variables from that moment's environment.
**
** A child of fork() must open the library again. The parent's contexts and
** plans are refused there (QUERN_EINVAL), but may be destroyed.
**
** QUERN_EINVAL, also if the program was compiled with the header of another
** ABI; QUERN_ENOMEM; QUERN_EMISSING or QUERN_ECOMPILE for bad specs or kernels.
*/
#define quern_open(options, ctx)                                               \
    quern_open_abi(options, ctx, QUERN_ABI, sizeof(struct quern_args),         \
                   sizeof(struct quern_operand))
QUERN_API int quern_open_abi(const struct quern_open_options *options,
                             struct quern_context **ctx, int abi,
                             size_t args_size, size_t operand_size);

/* Close it and destroy the plans of quern_plan_get; destroy all other plans and
   the queues before. NULL is allowed. */
QUERN_API void quern_close(struct quern_context *ctx);

/* The calling thread's last error, "" if it made a plan since; never NULL,
   valid until the thread's next call. */
QUERN_API const char *quern_errmsg(void);

/* The meaning of a code, and QUERN_VERSION of the library; static storage. */
QUERN_API const char *quern_strerror(int code);
QUERN_API const char *quern_version(void);

QUERN_API void quern_free(void *memory); /* from the library; or NULL */

/* ---------------------------------------------------------------- operands
** ARG(name, "text"): the arrays that a run may read or write. Scaled operands
** have scale factors, `.sf`, and may have a second level, `.global`, fp32 [G].
*/
#define QUERN_SCALED(ARG, name, text)                                          \
    ARG(name, text)                                                            \
    ARG(name##_SF, text ".sf") ARG(name##_GLOBAL, text ".global")
/* clang-format off */
#define QUERN_ARGS(ARG)                                                        \
    ARG(LENGTHS, "lengths") /* [G] lengths of the groups */                    \
    ARG(STARTS, "starts")   /* [G + 1] exclusive starts, the end last; */      \
                            /* with lengths: gaps between groups */            \
    ARG(ENDS, "ends")       /* [G] inclusive sums: where each group ends */    \
    ARG(WORKSPACE, "workspace") /* one for each concurrent run */              \
    ARG(NOOP, "noop")           /* int32 [1]: skip the run if it is not 0 */   \
    ARG(ALPHA, "alpha")         /* fp32 [1] or [G]: see args.scalars */        \
    ARG(BETA, "beta")           /* as alpha */                                 \
    ARG(BIAS, "bias") ARG(PROB, "prob") ARG(DBIAS, "dbias")                    \
    ARG(DPROB, "dprob")                                                        \
    ARG(SCALE, "scale") /* delayed scaling: factor and inverse, 1 at first */  \
    ARG(HISTORY, "history") /* delayed scaling: amax values, 0 at first */     \
    ARG(RANDOM, "random")   /* stochastic rounding: seed and offset */         \
    QUERN_SCALED(ARG, A, "a")                                                  \
    QUERN_SCALED(ARG, B, "b")                                                  \
    ARG(C, "c")                                                                \
    QUERN_SCALED(ARG, D, "d")                                                  \
    QUERN_SCALED(ARG, D_COLUMNWISE, "d_columnwise")                            \
    QUERN_SCALED(ARG, A_COLUMNWISE, "a_columnwise")                            \
    ARG(PRE, "pre") ARG(INPUT, "input") ARG(OUTPUT, "output")                  \
    QUERN_SCALED(ARG, ROWWISE, "rowwise")                                      \
    QUERN_SCALED(ARG, COLUMNWISE, "columnwise")                                \
    ARG(X, "x") ARG(Y, "y") ARG(DY, "dy") ARG(DX, "dx")                        \
    ARG(W1, "w1") ARG(W2, "w2")                                                \
    QUERN_SCALED(ARG, W1_ROWWISE, "w1_rowwise")                                \
    QUERN_SCALED(ARG, W1_COLUMNWISE, "w1_columnwise")                          \
    QUERN_SCALED(ARG, W2_ROWWISE, "w2_rowwise")                                \
    QUERN_SCALED(ARG, W2_COLUMNWISE, "w2_columnwise")                          \
    ARG(DW1, "dw1") ARG(DW2, "dw2") ARG(B1, "b1") ARG(B2, "b2")                \
    ARG(DB1, "db1") ARG(DB2, "db2")                                            \
    ARG(SAVED, "saved")     /* of an MLP: forward to backward and wgrad */     \
    ARG(PENDING, "pending") /* of an MLP: backward to wgrad */                 \
    ARG(INDEX, "index")     /* [m, topk] experts of each token */              \
    ARG(GATHER, "gather")   /* [rows] row -> token * topk + k */               \
    ARG(INVERSE, "inverse") /* [m, topk] the row of each pair; -1: none */     \
    ARG(ROWS, "rows")       /* [m * topk, k] in the order of experts */        \
    ARG(ERRORS, "errors")   /* of a layer, in place of the workspace's */      \
    ARG(LORA_A, "lora_a") ARG(LORA_B, "lora_b") /* adapters of lora= */        \
    ARG(LORA_T, "lora_t") ARG(LORA_SCALE, "lora_scale") /* fp32 [1] or none */ \
    ARG(Y_ADDRESSES, "y_addresses") ARG(DX_ADDRESSES, "dx_addresses")          \
    ARG(SCATTER, "scatter") ARG(D_ADDRESSES, "d_addresses")
/* clang-format on */

enum quern_arg {
#define QUERN_ARG_ENUM(name, text) QUERN_ARG_##name,
    QUERN_ARGS(QUERN_ARG_ENUM)
#undef QUERN_ARG_ENUM
        QUERN_ARGS_COUNT
};

/* A length that may depend on the rows of a run:
       base + step * ((rows + add) / unit), rounding down. */
struct quern_extent {
    int64_t base, step, add, unit;
};

/* One array that runs use; read, written, optional: 1 << enum quern_phase. */
struct quern_operand {
    int arg;          /* enum quern_arg: its index in args.of */
    const char *name; /* static storage */
    int read, written;
    int optional; /* phases that do without it */
    int type;     /* enum quern_type */
    int ndim;     /* 0: bytes of workspace, saved, pending */
    struct quern_extent shape[QUERN_MAX_DIMS];
    struct quern_extent pitch; /* elements between rows if stride is 0 */
    struct quern_extent bytes; /* with that pitch */
    size_t alignment;          /* of the address, in bytes */
    size_t zero_bytes; /* the first ones, that must be zero before the first
                          run; runs leave them zero, and may fill all others */
    int strided;       /* 1: args may give a stride */
    int pointers;      /* 1: args may give the matrices' addresses instead */
    int tiled; /* 0: a group begins at its first row, else after `tiled` for
                  each tile of 128 rows of all groups before: docs/c-api.md */
};

/* The value of an extent. */
static inline int64_t quern_extent(const struct quern_extent *e, int64_t rows)
{
    return e->unit ? e->base + e->step * ((rows + e->add) / e->unit) : e->base;
}

/* -------------------------------------------------------------------- plan */

/* Begin with QUERN_PLAN_OPTIONS_INIT; zero or NULL chooses the default. */
struct quern_plan_options {
    size_t size;        /* of this struct */
    int device;         /* ordinal; -1: the thread's CUDA context, else 0 */
    int backend;        /* enum quern_backend */
    int sms;            /* multiprocessors to use; 0: all */
    int tune_ms;        /* above 0: run quern_tune first for about so many ms if
                           this size was not measured; products only */
    int streams;        /* cublaslt: a run spreads its groups over 1 to 8 */
    const char *kernel; /* registry name; NULL: the measured winner, else the
                           model's choice; products only */
};
#define QUERN_PLAN_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct quern_plan_options), -1, 0, 0, 0, 0, NULL                \
    }

/*
** Read a line, choose kernels for it, compile or load them. May allocate,
** compile and write the cache; must not be called while a stream of this thread
** captures. `options` may be NULL. QUERN_EINVAL names the word of the line, the
** rule and the nearest valid word; QUERN_ENOKERNEL each candidate and why not;
** QUERN_ENODEVICE; QUERN_ECOMPILE; QUERN_ECUDA; QUERN_EMISSING; QUERN_ENOMEM.
*/
QUERN_API int quern_plan_create(struct quern_context *ctx, const char *line,
                                const struct quern_plan_options *options,
                                struct quern_plan **plan);

/* Destroy a plan once no run uses it. NULL is allowed; a plan of
   quern_plan_get is left to quern_close. */
QUERN_API void quern_plan_destroy(struct quern_plan *plan);

/*
** The context's plan for a line, made on first use and kept until quern_close.
** Its rows are rounded up to a power of 2 or the middle of two: 61 plans at
** most for all rows. Its runs must give args.rows. Errors of quern_plan_create;
** QUERN_ECAPTURE if `stream` captures and there is no plan.
*/
QUERN_API int quern_plan_get(struct quern_context *ctx, const char *line,
                             const struct quern_plan_options *options,
                             struct CUstream_st *stream,
                             struct quern_plan **plan);

/* The operands of a plan; they live as the plan. NULL and 0 of no plan. */
QUERN_API const struct quern_operand *
quern_plan_operands(const struct quern_plan *plan, int *count);

/* The same of a line, without a GPU and for any backend but cublaslt; the
   workspace is an upper bound. quern_free frees it. QUERN_EINVAL, _ENOMEM. */
QUERN_API int quern_describe(struct quern_context *ctx, const char *line,
                             struct quern_operand **table, int *count);

/* A plan's choices. QUERN_EINVAL. */
struct quern_plan_info {
    const char *kernel;     /* lives as the context; "" of an MLP */
    int backend;            /* enum quern_backend, never AUTO */
    int sms;                /* multiprocessors used, or threads */
    size_t workspace_bytes; /* of each run */
    int microbatches;       /* products that one launch merges; 1: none */
    int tuned;              /* 1: measured to be the fastest, 0: not measured */
    int streams;            /* of the backend cublaslt; else 0 */
    int evidence;           /* enum quern_evidence: the least of a kernel's */
};
QUERN_API int quern_plan_info(const struct quern_plan *plan,
                              struct quern_plan_info *info);

/* Write a line with its words in the usual order and without defaults. It is
   NUL-terminated and cut at `size`; `*length` is its own. QUERN_EINVAL. */
QUERN_API int quern_format(struct quern_context *ctx, const char *line,
                           char *buffer, size_t size, size_t *length);

/* Explain the choice for a line: the launches, each kernel with the model's
   figures or the rule that excludes it. quern_free frees `*text`. Errors of
   quern_plan_create. */
QUERN_API int quern_why(struct quern_context *ctx, const char *line,
                        const struct quern_plan_options *options, char **text);

/* --------------------------------------------------------------------- run */

/* An array of a run: the caller's, on the device (host backend: the host). */
struct quern_buffer {
    void *data;
    void *const *pointers; /* [G] addresses of the groups' matrices, themselves
                              in that memory; data is NULL */
    int64_t stride;        /* elements from one row to the next; 0: packed */
    int64_t group_stride;  /* from one group's matrix to the next; 0: packed */
    int type;              /* of lengths, starts, ends: QUERN_I32 or _I64 */
};

/* Begin with QUERN_ARGS_INIT. */
struct quern_args {
    size_t size;               /* of this struct */
    int64_t rows;              /* of this run along the ragged axis, at most the
                                  line's; -1: the line's; of an MLP the same in
                                  forward, backward and wgrad */
    int phase;                 /* enum quern_phase, of MLPs */
    int scalars;               /* in alpha and beta: 0 or 1: one for all; G */
    float limit, slope, shift; /* of clamped_swiglu */
    const int64_t *host_sizes; /* [G] lengths, with sizes=host or fixed only */
    struct quern_buffer of[QUERN_ARGS_COUNT]; /* by enum quern_arg */
};
#define QUERN_ARGS_INIT                                                        \
    {                                                                          \
        sizeof(struct quern_args), -1, 0, 0, 7.0f, 1.702f, 1.0f, NULL,         \
        {                                                                      \
            {                                                                  \
                NULL, NULL, 0, 0, 0                                            \
            }                                                                  \
        }                                                                      \
    }

/*
** Check all arguments, then queue a run on `stream`, of the plan's device.
** Neither allocates nor synchronizes nor reads device memory; may be captured,
** and the sizes may change before each replay. The host backend runs at once.
**
** Memory outside every group is not written; with outside=zero D, a written
** pre-activation, and y and dx of an MLP are zero there. Groups that are
** negative, overlap or pass the buffer are reported by quern_check; memory
** outside the buffers is never touched. Outputs and the workspace must not
** overlap other arguments. Same inputs, same bytes.
**
** host_sizes are read before the call returns. A graph would freeze them, so a
** capturing stream is refused (QUERN_ECAPTURE) without sizes=fixed.
**
** QUERN_EINVAL (argument and rule), QUERN_ECUDA.
*/
QUERN_API int quern_run(const struct quern_plan *plan,
                        const struct quern_args *args,
                        struct CUstream_st *stream);

/* Wait for `stream`, then report and clear errors of its runs: args gives their
   workspace or errors, and names for sizes. QUERN_ESIZES has the first group,
   or token and k, and the rule. Not in a capture (QUERN_ECAPTURE). _ECUDA. */
QUERN_API int quern_check(const struct quern_plan *plan,
                          const struct quern_args *args,
                          struct CUstream_st *stream);

/* ------------------------------------------------------------- wgrad queue
** Schedules that split the backward pass compute dgrad at once and the weight
** gradient later. A queue holds the deferred runs. It uses host memory only, of
** fixed size. One thread at a time may use it; queues are independent.
*/
struct quern_queue;

#define QUERN_MAX_QUEUE  65536
#define QUERN_ALL_LAYERS (-1)

/* A queue for `capacity` products, allocated here. QUERN_EINVAL, _ENOMEM. */
QUERN_API int quern_queue_create(struct quern_context *ctx, int capacity,
                                 struct quern_queue **queue);

/* Drop its work, destroy it. NULL is allowed. */
QUERN_API void quern_queue_destroy(struct quern_queue *queue);

/*
** Defer quern_run(plan, args) of a wgrad, of a quantization that makes only
** dbias, or of an MLP's wgrad (dw2 and then dw1: both are queued or none).
** Makes the same checks, launches nothing, neither allocates nor synchronizes.
** `layer` is the caller's number, 0 or more. args are copied; the plan and the
** memory must stay valid until the launch that a flush queues has finished.
**
** Runs for the same d or dbias accumulate in the order of their puts; only the
** first may overwrite. With microbatches=N up to N consecutive products that
** accumulate become one launch: deterministic, but not the bits of single ones.
**
** QUERN_EFULL; QUERN_EINVAL, also if d conflicts with pending work.
*/
QUERN_API int quern_queue_put(struct quern_queue *queue,
                              const struct quern_plan *plan,
                              const struct quern_args *args, int layer);

/*
** Launch pending work of a layer or QUERN_ALL_LAYERS, oldest products first:
** `most` of them, or all if 0. Queued on `stream` as by quern_run. Launched
** products leave the queue; if one fails, it and those after it stay.
** QUERN_EINVAL, also if a named layer has no pending work or another layer's
** must come first; the errors of quern_run.
*/
QUERN_API int quern_queue_flush(struct quern_queue *queue, int layer, int most,
                                struct CUstream_st *stream);

/* Drop pending work of a layer, or all. Errors as of quern_queue_flush. */
QUERN_API int quern_queue_drop(struct quern_queue *queue, int layer);
/* How many products of a layer, or all, wait; 0 of no queue. */
QUERN_API int quern_queue_count(const struct quern_queue *queue, int layer);

/* ------------------------------------------------------------------- infer
** A tensor of any rank, as a front end has it. Its axes collapse to a matrix:
** the summed axes must be adjacent, and all other axes come before or after
** them. A tensor with lengths or offsets is split among the groups: they count
** rows (first_dims, or only offsets) or columns (last_dims) of that matrix. A
** tensor without them has one matrix per group, along its first axis.
*/
struct quern_shape {
    int type; /* enum quern_type; D: QUERN_TYPE_NONE for the recipe's */
    int ndim; /* 1 .. QUERN_MAX_RANK; D: 0 to infer it */
    int64_t shape[QUERN_MAX_RANK];      /* a ragged axis: its total, a bound */
    int first_dims, last_dims, offsets; /* 1: the tensor has this array */
    int sum_begin, sum_end; /* begin <= axis < end are summed; D has none */
};

/* A grouped product of two tensors. */
struct quern_contraction {
    const char *recipe;
    int groups;
    struct quern_shape a, b, d;
    const char *keys; /* more words of the line, such as "beta=1"; or NULL */
};

/*
** Write the line of a contraction: its op, m, n, k, layouts, and the ragged
** axis, which says how D is split. If types do not tell the op, it is the op
** that usually has this ragged axis and layout. D, if given, must agree:
** QUERN_EINVAL names the conflict. The line is cut at `size`.
*/
QUERN_API int quern_infer(struct quern_context *ctx,
                          const struct quern_contraction *contraction,
                          char *line, size_t size, size_t *length);

/* -------------------------------------------------------------------- tune
** Measure which kernel is fastest for a product on this GPU, and remember it.
** Plans then use it for every line of the same variant and groups whose mean
** group length is in the same bucket: docs/tuning.md.
*/
#define QUERN_L2S(X)                                                           \
    X(L2_BOTH, "both") /* the mean of a cold and a warm run */                 \
    X(L2_COLD, "cold") /* other data are in L2 */                              \
    X(L2_WARM, "warm") /* L2 holds the last run's data */
enum quern_l2 { QUERN_L2S(QUERN_ENUM) QUERN_L2_COUNT };

/* One kernel, or one dequantize strategy, and its measurements. */
struct quern_tune_candidate {
    const char *kernel; /* lives as the context */
    int band;           /* strips of tiles visited together; 0: the default */
    int dequantize;     /* 0: the kernel; 2: a pass, 3: to FP8, 4: to f16 */
    int rounds;         /* number of rounds with it */
    double seconds;     /* median; 0: not measured */
    char reason[256];   /* why it was dropped, or how much slower it was */
};

struct quern_tune_progress {
    double elapsed;                          /* seconds */
    int candidates, compiling, left, rounds; /* left: in the race */
    const struct quern_tune_candidate *best; /* NULL: none yet */
};

/* Begin with QUERN_TUNE_OPTIONS_INIT; zero or NULL chooses the default. */
struct quern_tune_options {
    size_t size;    /* of this struct */
    double seconds; /* upper limit, with compiling; 0: 20 */
    int device;     /* as in quern_plan_options */
    int backend;    /* as in quern_plan_options; not host, not cublaslt */
    int sms;
    int l2;        /* enum quern_l2 */
    int threads;   /* that compile; 0: all cores but one, at most 16 */
    int keep;      /* 0: write the file; 1: do not; 2: if it lacks the line */
    uint64_t seed; /* of sizes and data */
    const int64_t *sizes;          /* [G] lengths, host memory; NULL: drawn */
    const struct quern_args *args; /* operands instead of random ones; D is
                                      overwritten, or added to many times */
    struct CUstream_st *stream;    /* nothing else should run meanwhile */
    /* Called after each round; a result other than 0 ends the measuring. */
    int (*progress)(void *user, const struct quern_tune_progress *);
    void *user;
};

#define QUERN_TUNE_OPTIONS_INIT                                                \
    {                                                                          \
        sizeof(struct quern_tune_options), 0, -1, 0, 0, 0, 0, 0, 0, NULL,      \
            NULL, NULL, NULL, NULL                                             \
    }

struct quern_tune_result {
    const char *kernel;   /* the fastest; lives as the context */
    int band, dequantize; /* its own; 0: not compared */
    double seconds;       /* median of its runs */
    const char *model;    /* the model's choice */
    double model_seconds;
    double ratio; /* time of the model's choice over the winner's */
    int certain;  /* 0: the time ended before the result was certain */
    int rounds;
    int clock_mhz;  /* of the SMs; 0: unknown, in under 5 seconds */
    size_t bytes;   /* of device memory used meanwhile */
    char file[512]; /* the file with the new line; "" for none */
    struct quern_tune_candidate *candidates; /* freed with quern_free */
    int count;
};

/*
** Measure the kernels that support the product, then the strategies that
** dequantize=auto allows. Each round runs all remaining candidates, in another
** order; a candidate is dropped once it is significantly slower. The result is
** certain when no other can be 0.5 % faster than the best.
**
** Runs on `stream` and waits for it; allocates device memory for operands of
** the problem's size and twice the L2; must not be called while a stream of
** this thread captures. QUERN_EINVAL; QUERN_ENODEVICE; QUERN_ENOKERNEL;
** QUERN_ECOMPILE (each candidate's reason); QUERN_ECUDA; QUERN_ESIZES of args;
** QUERN_EIO (measured, but not saved: `result` is complete); QUERN_ENOMEM.
*/
QUERN_API int quern_tune(struct quern_context *ctx, const char *line,
                         const struct quern_tune_options *options,
                         struct quern_tune_result *result);

#ifdef __cplusplus
}
#endif
#endif
