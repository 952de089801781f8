/*
** quern.h: grouped GEMM for mixture-of-experts training.
**
** A launch multiplies G independent groups (experts), each
**
**     D[m,n] = alpha * sum_k A[m,k] * B[n,k] + beta * C[m,n]
**
** and of fprop an activation's result. One axis (say m, the tokens) differs in
** length, which stays on the device: nothing is padded or read on the host.
**
**     struct quern_context *ctx;
**     struct quern_problem p;
**     struct quern_description need;
**     struct quern_plan *plan;
**     struct quern_args args;
**     quern_open(NULL, &ctx);
**     quern_problem_parse(ctx, "fprop bf16 g=8 m=4096 n=2048 k=7168", &p);
**     quern_describe(ctx, &p, &need);
**     quern_plan(ctx, &p, NULL, &plan);
**     args = need.args;
**     args.a.data = x;              args.a.first_dims = tokens_per_expert;
**     args.b.data = weights;        args.d.data = y;
**     args.workspace = zeroed_once; // need.workspace_bytes, device memory
**     quern_run(plan, &args, stream);
**     quern_check(plan, &args, stream);
**
** Every function returns QUERN_OK or one of the codes below, unless its
** comment says otherwise; quern_errmsg() then holds one sentence that names
** the argument and the rule. The library never prints, aborts or exits.
**
** Contents: errors, types, context, problem, infer, describe, plan, run,
** quantize, wgrad queue, mlp, tune.
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

#define QUERN_VERSION "0.1.0"

/* ------------------------------------------------------------------ errors
** X(name, value, meaning): the only list of the codes.
*/
#define QUERN_ERRORS(X)                                                        \
    X(OK, 0, "success")                                                        \
    X(EINVAL, 1, "an argument breaks a rule")                                  \
    X(ENOMEM, 2, "host memory ran out")                                        \
    X(ENOKERNEL, 3, "no kernel serves the problem")                            \
    X(ECUDA, 4, "the CUDA driver reported an error")                           \
    X(ENODEVICE, 5, "no CUDA driver or no GPU on this machine")                \
    X(ECOMPILE, 6, "a kernel could not be generated or compiled")              \
    X(EIO, 7, "a file could not be read or written")                           \
    X(ESIZES, 8, "the group sizes on the device break a rule")                 \
    X(ECAPTURE, 9, "not allowed while the stream captures a graph")            \
    X(EMISSING, 10, "a library that this needs is not on this machine")        \
    X(EFULL, 11, "a queue holds as much as it was made for")

enum quern_status {
#define QUERN_ERROR_ENUM(name, value, meaning) QUERN_##name = value,
    QUERN_ERRORS(QUERN_ERROR_ENUM)
#undef QUERN_ERROR_ENUM
        QUERN_STATUS_COUNT
};

/* ------------------------------------------------------------------- types */

enum quern_type {
    QUERN_TYPE_NONE,
    QUERN_BF16,
    QUERN_F16,
    QUERN_F32,
    QUERN_E4M3,
    QUERN_E5M2,
    QUERN_E2M3,
    QUERN_E3M2,
    QUERN_E2M1,
    QUERN_E8M0,
    QUERN_I8,
    QUERN_I32,
    QUERN_I64
};

enum quern_op { QUERN_FPROP, QUERN_DGRAD, QUERN_WGRAD };

/* A layer's tensors: activations, weights, gradients of the output. */
enum quern_of { QUERN_X, QUERN_W, QUERN_DY };

/* An axis of the canonical product; also names the ragged one. */
enum quern_axis { QUERN_AXIS_NONE, QUERN_AXIS_M, QUERN_AXIS_N, QUERN_AXIS_K };

/* Which axis of an operand is contiguous in memory. */
enum quern_major { QUERN_MAJOR_K, QUERN_MAJOR_MN };

/* Operands that come as an array of addresses, one matrix each: bits. */
enum quern_pointers {
    QUERN_POINTERS_A = 1,
    QUERN_POINTERS_B = 2,
    QUERN_POINTERS_C = 4,
    QUERN_POINTERS_D = 8
};

/* What becomes of what is in memory already. */
enum quern_beta {
    QUERN_BETA_ZERO, /* D = product; C is not read */
    QUERN_BETA_ONE,  /* D = D + product: C is D */
    QUERN_BETA_ANY   /* D = product + args.beta * args.c */
};

enum quern_backend {
    QUERN_BACKEND_AUTO,    /* aot, else jit, else host where there is no GPU */
    QUERN_BACKEND_HOST,    /* generated C on all cores; host memory; takes up
                              to 256 KiB of the calling thread's stack */
    QUERN_BACKEND_JIT,     /* NVRTC and the cubin cache */
    QUERN_BACKEND_AOT,     /* cubins linked with the registry */
    QUERN_BACKEND_CUBLASLT /* NVIDIA's, for each group; only if asked for */
};

/* Where groups' sizes are when a run is queued. */
enum quern_sizes {
    QUERN_SIZES_DEVICE, /* in the arrays of the tensors */
    QUERN_SIZES_HOST,   /* there, or in args.host_sizes: see quern_run */
    QUERN_SIZES_FIXED   /* the same, and what a graph captures never changes */
};

/* What codes under scales of blocks become for tensor cores, and where. */
enum quern_expand {
    QUERN_EXPAND_AUTO,   /* as was measured, or as the model says */
    QUERN_EXPAND_INSIDE, /* in the product's kernel */
    QUERN_EXPAND_AHEAD,  /* in launches before it, into the workspace */
    QUERN_EXPAND_FP8,    /* so as e4m3; as AHEAD if some value does not fit */
    QUERN_EXPAND_F16     /* f16 INSIDE; bf16 there if some value does not fit */
};
/* A's copy is there; or a run quantizes A: in the product's mainloop if a
   kernel can, else in a launch before it; or as the model thinks faster. */
enum quern_fusion { QUERN_APART, QUERN_INLINE, QUERN_FUSE_ANY };

#define QUERN_MAX_GROUPS  1024
#define QUERN_MAX_DIMS    4 /* of a tensor that is multiplied */
#define QUERN_MAX_RANK    8 /* of one that a problem is inferred from */
#define QUERN_MAX_PARTS   8 /* microbatches that one launch merges */
#define QUERN_MAX_STREAMS 8

struct quern_context;  /* one per process is enough; may be shared by threads */
struct quern_plan;     /* immutable after creation; may be shared by threads */
struct quern_registry; /* kernels linked by `quern build`: quern_kernels.h */

/*
** A grouped tensor. One with the ragged axis is one buffer, split along it:
**
**   first_dims  [G]    length of each group along the ragged axis, or NULL
**   last_dims   [G]    the same for a tensor ragged in its last axis, or NULL
**   offsets     [G+1]  exclusive starts along the ragged axis, or NULL;
**                      alone: length = next start - start; with lengths:
**                      gaps between groups are allowed, overlap is an error
**
** One that has not is G matrices, in one buffer or allocated one by one:
**
**   pointers    [G]    the matrices' addresses; `data` is NULL, `bytes` unread
**
** The arrays are in device memory (host memory for the host backend); the
** first three hold `sizes_type`, int32 or int64. Without offsets the groups
** lie one behind the other. The memory stays the caller's.
*/
struct quern_tensor {
    void *data;
    void *const *pointers; /* only with a group axis; NULL: all in `data` */
    void *sf;              /* scale factors; NULL where the recipe has none */
    const void *first_dims, *last_dims, *offsets;
    int sizes_type; /* QUERN_I32 or QUERN_I64 */
    int type;       /* enum quern_type of the elements */
    int ndim;
    int64_t shape[QUERN_MAX_DIMS]; /* a ragged axis: its total, a bound */
    int64_t stride;       /* elements from one row to the next; 0: packed */
    int64_t group_stride; /* elements from one group's matrix to the next, only
                             with a group axis; 0: one behind the other */
    size_t bytes;         /* of data; the caller's to state with a stride */
    size_t alignment;     /* of data, in bytes; stated by quern_describe */
    void *global;         /* fp32 [G]: scales of the second level, or NULL */
    size_t sf_bytes, global_bytes; /* as describe functions state them */
};

/* Operands, factors and scratch memory of one run. The factors are fp32, where
   the operands are (device or host), read when the run is executed. */
struct quern_args {
    struct quern_tensor a, b;
    struct quern_tensor c; /* only with beta=any: as d, D itself or apart */
    struct quern_tensor d;
    struct quern_tensor p;  /* with saved=1, or of dgrad: what was activated */
    struct quern_tensor t;  /* with copies=both; of p and t NULL: not wanted */
    struct quern_tensor in; /* only with quantize=: [m, k] bf16, */
    struct quern_tensor column;      /* of which a is made; its column copy */
    const float *bias, *probability; /* [G, n], [m] only with bias=1, prob=1 */
    float *dbias, *dprob;      /* [G, columns], [m] only with dbias=, .. */
    float limit, slope, shift; /* of clamped_swiglu: 7, 1.702 and 1 */
    const float *alpha, *beta; /* only with =any; a beta of 0: C is not read */
    int scalars;            /* values in alpha and in beta: 0 or 1 for one that
                          all groups share, else as many as groups */
    float *scale, *history; /* with copies=, where the recipe needs them: as */
    const uint64_t *random; /* in struct quern_quantize_args */
    const int *noop; /* on the device, or NULL: a run that finds no 0 is none */
    void *workspace; /* zeroed once by the caller; one per concurrent run */
    const int64_t *host_sizes; /* [G], not on the device: see quern_run */
};

/* ----------------------------------------------------------------- context */

enum quern_log_level { QUERN_LOG_ERROR = 1, QUERN_LOG_INFO, QUERN_LOG_DEBUG };

/* Zero or NULL in a field chooses the default. */
struct quern_open_options {
    const struct quern_registry *registry; /* kernels linked ahead of time */
    const char *const *specs;              /* folders with specs of your own */
    int specs_count;
    const char *cache; /* folders separated by ':'; "" for no cache; default
                          $QUERN_CACHE, else $XDG_CACHE_HOME/quern, else
                          ~/.cache/quern; all are read, and the first that
                          may be written takes what is new */
    void (*log)(void *user, int level, const char *line); /* by any thread
                          that is inside a call; NULL: nobody is told */
    void *log_user;
    int log_level;    /* what `log` is told; default $QUERN_LOG, else INFO */
    const char *tune; /* folders with files of quern_tune, separated by ':';
                         "" for none at all; default $QUERN_TUNE; see below */
};

/*
** Open the library. `options` may be NULL. Neither a GPU nor a compiler is
** needed: they are looked for when a plan first asks for them. Read from the
** environment, here and nowhere else, and by no set-user-id program:
**
**   QUERN_CACHE    see above; "" for no cache
**   QUERN_TUNE     see above; "" for the model alone
**   QUERN_CUDA     path of libcuda          QUERN_NVRTC   path of libnvrtc
**   QUERN_GEN      path of libquern_gen     QUERN_CC      C compiler, "cc"
**   QUERN_CUBLASLT path of libcublasLt
**   QUERN_THREADS  threads of the host backend, 1 to 256
**   QUERN_LOG      error, info or debug: see log_level
**   CUDA_HOME, XDG_CACHE_HOME, HOME, TMPDIR as usual
**
** A child of fork() opens the library anew. There the parent's contexts and
** plans plan, explain, run and check nothing (QUERN_EINVAL); to free or close
** them is allowed, and touches neither locks nor the driver.
**
** QUERN_EINVAL, QUERN_ENOMEM; QUERN_EMISSING or QUERN_ECOMPILE for bad specs.
*/
QUERN_API int quern_open(const struct quern_open_options *options,
                         struct quern_context **ctx);

/* Close it. NULL is allowed. Plans made from it must be freed before. */
QUERN_API void quern_close(struct quern_context *ctx);

/* The calling thread's last error, "" if a plan was made since; never NULL. */
QUERN_API const char *quern_errmsg(const struct quern_context *ctx);

/* The meaning of a code, "unknown code" for others; static storage. */
QUERN_API const char *quern_strerror(int code);

/* The runtime's version, QUERN_VERSION of its header. */
QUERN_API const char *quern_version(void);

/* ----------------------------------------------------------------- problem
** A variant plus the sizes that the host knows. m, n and k are those of the
** canonical product; the ragged one is the total over the groups.
*/
struct quern_problem {
    char recipe[32];
    int op;               /* enum quern_op */
    int ragged;           /* enum quern_axis */
    int a_major, b_major; /* enum quern_major */
    int d_type;
    int alpha;       /* 0: 1.0, 1: args.alpha */
    int beta;        /* enum quern_beta */
    int alignment;   /* bytes at whose multiples buffers and, with strides, rows
                        and matrices start: 2, 4, 8, 16; 0: 16, for TMA */
    int pointers;    /* enum quern_pointers; a kernel may take more of them */
    int parts;       /* products of the same matrices that a queue's flush may
                        merge into one launch: 1 .. QUERN_MAX_PARTS, 0 is 1 */
    int sizes;       /* enum quern_sizes */
    int bias;        /* 1: fprop adds a row for each group */
    int activation;  /* enum quern_activation; dgrad goes back through it */
    int interleave;  /* as in struct quern_quantization */
    int probability; /* 1: a row's number multiplies that; without, its bias */
    int saved;       /* 1: runs may also want what the activation was given */
    int dbias, dprob; /* of dgrad: as in quern_quantization, of D or of in */
    int copies;       /* enum quern_copies of the result; 0: it is numbers */
    int expand;       /* enum quern_expand */
    int quantize;     /* enum quern_fusion: of fprop and dgrad */
    int groups;       /* 1 .. QUERN_MAX_GROUPS */
    int64_t m, n, k;  /* at least 1; the ragged one 0 to 2^30 */
    char split[256];  /* how tools draw group sizes; plans ignore it */
};

/*
** Parse one line, as the CLI takes it:
**
**   OP RECIPE g=G m=M n=N k=K [d=TYPE] [layout=tn|nn|nt|tt] [ragged=m|n|k|none]
**       [alpha=1|any] [beta=0|1|any] [align=2|4|8|16] [pointers=LETTERS]
**       [parts=1..8] [sizes=device|host|fixed] [bias=0|1] [activation=NAME]
**       [interleave=N] [prob=0|1] [saved=0|1] [dbias=0|1|add] [dprob=0|1]
**       [copies=row|both] [expand=auto|inside|ahead|fp8|f16]
**       [quantize=apart|inline|any]
**       [split=even|mild|skew|zipf|one|@FILE|LIST]
**
** What is not given follows from the op and the recipe. QUERN_EINVAL names
** the word, the rule and, for a misspelling, the nearest right word.
*/
QUERN_API int quern_problem_parse(struct quern_context *ctx, const char *text,
                                  struct quern_problem *problem);

/* Write it back as text, NUL-terminated; returns the length it needs. NULL is
   no problem: "". The buffer may be NULL, and is cut at `size`. */
QUERN_API int quern_problem_print(const struct quern_problem *problem,
                                  char *buffer, size_t size);

/* ------------------------------------------------------------------- infer */

/*
** A tensor of any rank, as a front end has it. Its axes collapse to a matrix:
** the summed ones, side by side, and the others, all before or all behind them.
** One that has lengths or offsets is split among the groups, and these count
** rows (first_dims, and offsets alone) or columns (last_dims) of that matrix.
** One that has none is a matrix for each group, and its first axis counts them.
*/
struct quern_shape {
    int type; /* enum quern_type; of D also QUERN_TYPE_NONE: the recipe's */
    int ndim; /* 1 .. QUERN_MAX_RANK; of D also 0: as it follows */
    int64_t shape[QUERN_MAX_RANK];      /* a ragged axis: its total, a bound */
    int first_dims, last_dims, offsets; /* 1: the tensor has this array */
    int sum_begin, sum_end; /* axes begin <= axis < end are summed; none of D */
};

/* A grouped product of two tensors. */
struct quern_contraction {
    const char *recipe;
    int groups;
    struct quern_shape a, b, d;
    int alpha, beta, alignment, pointers; /* as in struct quern_problem */
};

/*
** Find the problem of a contraction: its op, m, n, k, layouts, and the ragged
** axis, which says how D is split. Where types do not tell the op, it is the
** one that usually has such a ragged axis and layout; b k-major: fprop. Column
** copies: k is their bound. D, if given, must agree. QUERN_EINVAL says which.
*/
QUERN_API int quern_infer(struct quern_context *ctx,
                          const struct quern_contraction *contraction,
                          struct quern_problem *problem);

/* ---------------------------------------------------------------- describe */

struct quern_description {
    struct quern_args args; /* all but the addresses: type, shape, stride,
                               bytes and alignment of each operand */
    size_t workspace_bytes; /* for any backend but cublaslt; quern_plan_info has
                               what that needs, and where a plan needs less */
    int history, random;    /* of copies=, as of quern_quantize_description */
};

/* What a caller must provide for the problem. Needs no GPU. QUERN_EINVAL. */
QUERN_API int quern_describe(struct quern_context *ctx,
                             const struct quern_problem *problem,
                             struct quern_description *description);

/* -------------------------------------------------------------------- plan */

/* Zero or NULL in a field chooses the default. */
struct quern_plan_options {
    int backend;        /* enum quern_backend */
    int sms;            /* multiprocessors to use; 0: all */
    const char *kernel; /* registry name; NULL: the fastest that quern_tune
                           found for this size, else the model chooses */
    int tune_ms; /* above 0: where nothing is known of this size, measure first,
                    for about so many milliseconds, as quern_tune does */
    int streams; /* cublaslt alone: over which a run spreads its groups, 1 to 8;
                    0: 1. Each needs 32 MiB of workspace more. */
};

/*
** Choose a kernel for the problem, compile or load it, set its attributes.
** `options` may be NULL. Uses the CUDA context that is current in the calling
** thread, else device 0's primary context. May allocate, compile and write
** the cache; must not be called while a stream of this thread captures. Where
** tune_ms asks for it and something is in the way (no room, a file that cannot
** be written), the log says so and the model chooses.
** QUERN_EINVAL; QUERN_ENOKERNEL (each candidate and why not); QUERN_ENODEVICE;
** QUERN_ECOMPILE; QUERN_ECUDA; QUERN_EMISSING; QUERN_ENOMEM.
*/
QUERN_API int quern_plan(struct quern_context *ctx,
                         const struct quern_problem *problem,
                         const struct quern_plan_options *options,
                         struct quern_plan **plan);

/* Free a plan that no run uses any more. NULL is allowed. */
QUERN_API void quern_plan_free(struct quern_plan *plan);

struct quern_plan_info {
    const char *kernel;     /* its name in the registry, or "cublasLt", version,
                           what scales, "grouped"; lives as the context */
    int backend;            /* enum quern_backend, never AUTO */
    int sms;                /* CTAs launched, or host threads */
    size_t workspace_bytes; /* of each run; see quern_describe */
    int parts;              /* products that one launch merges; 1: each product
                               of a queue is a launch of its own */
    int tuned;   /* 1: measured to be the fastest, 0: nothing is known */
    int streams; /* of the backend cublaslt; 0 for all others */
};

/* What a plan chose; of NULL, zeros and no name. */
QUERN_API void quern_plan_info(const struct quern_plan *plan,
                               struct quern_plan_info *info);

/* Explain the choice for a problem: what was measured; each kernel of the
   variant with the model's figures, or the rule that excludes it, or the reason
   why it does not exist. quern_free frees `*text`. */
QUERN_API int quern_why(struct quern_context *ctx,
                        const struct quern_problem *problem,
                        const struct quern_plan_options *options, char **text);

/* Free memory that the library returned. NULL is allowed. */
QUERN_API void quern_free(void *memory);

/* --------------------------------------------------------------------- run */

/*
** Multiply each group, with the groups along the problem's ragged axis:
**           ragged=m      ragged=n      ragged=k      ragged=none
**   a       [m, k]        [G, m, k]     [m, k]        [G, m, k]
**   b       [G, n, k]     [n, k]        [n, k]        [G, n, k]
**   c, d    [m, n]        [m, n]        [G, m, n]     [G, m, n]
**
** a and b that are not k-major have their last two axes the other way round:
** [k, m], [k, n]. What lies outside every group is not written. With ragged=k
** an empty group's matrix becomes zeros, or beta * C.
**
** With an activation d is [m, n / 2], of squared_relu [m, n], and p [m, n] as
** the type of d: alpha * product + bias, of which the activation takes the fp32
** value. d is rounded once, after the probability.
** dgrad goes back through it: d and p are [m, 2 n], p is read, and what is made
** is quantize's of p and of alpha * product, which is not rounded before.
** With copies d is the row copy that quern_quantize_run makes of this result,
** rounded to the problem's type, as an x, of dgrad as a dy, and t, if given,
** the other: by a launch behind the product where no kernel does (quern_why).
**
** With scales a and b are copies as quern_quantize_run made them, layout=tn: of
** fprop the row copies of x and w, of dgrad the row copy of dy and the column
** copy of w, of wgrad the column copies of dy [m, T] and x [n, T]. Sizes and
** offsets are those of the copies. What is not scaled is k-major, too. With
** quantize= a and, if its data is not NULL, `column` are written, too, as by
** quern_quantize_run of `in`, and without an activation dbias; inline, a may be
** left alone: see quern_why.
**
** Along the ragged axis the operands may have fewer rows than the problem's:
** what is given is the bound of this run, and of its copies' columns. The sizes
** are the arrays of a; or of b, or of d, if a has none. The other ragged
** operands may repeat the same arrays. ragged=none takes no arrays.
**
** Queued on `stream` (a CUstream; NULL is the default stream); neither
** allocates nor synchronizes nor reads device memory; may be captured, and
** the sizes may change before each replay. The host backend runs at once.
** QUERN_EINVAL (argument and rule), QUERN_ECUDA. Sizes that are negative,
** overlap or pass the buffer are reported by quern_check; nothing outside the
** buffers is touched. D and the workspace share no byte with anything else that
** is given: QUERN_EINVAL names both, except D with itself as C.
**
** host_sizes are read and checked (QUERN_EINVAL names the group) before the
** call returns, and the groups lie one behind the other. They travel as
** parameters of a small launch before the product's, 512 in each: no copy, no
** wait. A graph would freeze them, so a stream that captures is refused
** (QUERN_ECAPTURE) unless the problem says sizes=fixed.
**
** The backend cublaslt queues one product for each group, of host_sizes, which
** need no word in the problem, options.streams at once: on `stream` and on its
** own, which begin behind it and which it waits for, in a capture, too. With
** one, groups without scales go in one call where it has layouts for that. FP8
** copies, where n is a multiple of 16, have fp32 scales of tensors, groups or,
** from 12.9 on, rows and (Hopper) fp8_block's, or e8m0 scales stored in tiles
** (Blackwell). No operand has pointers. The plan's info says which.
*/
QUERN_API int quern_run(const struct quern_plan *plan,
                        const struct quern_args *args, void *stream);

/* Wait for `stream`, then report and clear what runs left in the workspace:
   QUERN_ESIZES names the first group whose size or offset broke a rule.
   Synchronizes; must not be captured (QUERN_ECAPTURE). QUERN_ECUDA. */
QUERN_API int quern_check(const struct quern_plan *plan,
                          const struct quern_args *args, void *stream);

/* ---------------------------------------------------------------- quantize
** A recipe's copies of a tensor: the row copy, scaled along k, for fprop (and,
** of dy, for dgrad); the column copy, scaled along the rows, for wgrad (and, of
** w, for dgrad). Both are made in one pass over the input.
**
**     struct quern_quantization q;
**     struct quern_quantize_description need;
**     quern_quantize_parse(ctx, "quantize mxfp8 of=x g=8 m=96 k=64", &q);
**     quern_quantize_describe(ctx, &q, &need);
**     quern_quantize_plan(ctx, &q, NULL, &plan);
**     need.args.in.data = x;            need.args.first_dims = tokens;
**     need.args.row.data = row;         need.args.row.sf = row_scales;
**     need.args.column.data = column;   need.args.column.sf = column_scales;
**     need.args.workspace = zeroed_once;
**     quern_quantize_run(plan, &need.args, stream);
*/
enum quern_work {
    QUERN_QUANTIZE,
    QUERN_REQUANTIZE, /* the row copy's values into a column copy */
    QUERN_DEQUANTIZE, /* a copy back into numbers, transformed if it is */
    QUERN_RESCALE,    /* delayed scaling: the next scale from the history */
    QUERN_BIAS /* args.bias, times the rows' numbers, added to args.out */
};

enum quern_copies { QUERN_ROW = 1, QUERN_COLUMN = 2 };

/* What x is the result of, or what dy goes back through. */
enum quern_activation {
    QUERN_NO_ACTIVATION,
    QUERN_SWIGLU,         /* a sigmoid(a) b */
    QUERN_CLAMPED_SWIGLU, /* the same within limits: args.limit and so on */
    QUERN_SITU,           /* 4 tanh(a/4) sigmoid(a) 25 tanh(b/25) */
    QUERN_GEGLU,          /* tanh form */
    QUERN_REGLU,          /* max(a, 0) b */
    QUERN_SQUARED_RELU    /* max(a, 0)^2: has no b */
};

enum quern_dbias {
    QUERN_NO_DBIAS,
    QUERN_DBIAS,    /* overwritten; of an empty group zeros */
    QUERN_DBIAS_ADD /* the sums are added to it; an empty group leaves it */
};

struct quern_quantization {
    char recipe[32];
    int work;        /* enum quern_work */
    int of;          /* enum quern_of */
    int type;        /* of the numbers: QUERN_BF16, QUERN_F16 or QUERN_F32 */
    int copies;      /* enum quern_copies to be made; dequantize: to be read */
    int activation;  /* enum quern_activation; of w none */
    int interleave;  /* length of runs of a and b in turns; 0: one half each */
    int probability; /* 1: a row's number multiplies its result, or dbias */
    int dbias;       /* enum quern_dbias: sums over each group's rows, too */
    int dprob;       /* 1: of dy, the gradient of each row's number, too */
    int sizes;       /* enum quern_sizes */
    int groups;      /* 1 .. QUERN_MAX_GROUPS */
    int64_t m;       /* rows over all groups, 0 to 2^30; of w, rows of each */
    int64_t k;       /* features of what is quantized, 1 to 2^30 */
    char split[256]; /* how tools draw group sizes; plans ignore it */
};

/*
** Parse one line, as the CLI takes it:
**
**   quantize RECIPE of=x|w|dy g=G m=M k=K [in=TYPE] [copies=row|column|both]
**       [activation=NAME] [interleave=N] [prob=0|1] [dbias=0|1|add]
**       [dprob=0|1] [sizes=device|host|fixed] [split=...]
**   requantize RECIPE of=x|w|dy g=G m=M k=K [sizes=..] [split=...]
**   dequantize RECIPE of=x|w|dy g=G m=M k=K [out=..] [copies=..] [sizes=..]
**   rescale RECIPE of=x|w|dy
**   bias RECIPE of=x g=G m=M k=K [in=TYPE] [prob=0|1] [sizes=..] [split=...]
**
** in= and out= are bf16 unless given, copies= both (dequantize: row). Of what
** the recipe keeps as it is, quantize makes an activation's result or dbias and
** no column copy (copies=row), or of dy with prob=1 a weighted bias' gradients.
** QUERN_EINVAL names the word, the rule and the nearest right word.
*/
QUERN_API int quern_quantize_parse(struct quern_context *ctx, const char *text,
                                   struct quern_quantization *quantization);

/* Write it back as text, NUL-terminated; returns the length it needs. */
QUERN_API int
quern_quantize_print(const struct quern_quantization *quantization,
                     char *buffer, size_t size);

/*
** The tensors of one run. Let T be (m + 127 G) / 128 * 128.
**
**   in      [m, k]      numbers; w: [G, m, k], or in.pointers to [m, k] each.
**                       With an activation x comes from [m, 2 k] and dy from
**                       [m, k / 2] (squared_relu: [m, k])
**   saved   [m, k]      dy's activation was given this; as wide as its result
**   row     [m, k]      rows padded with zeros to multiples of 16 bytes, see
**                       stride; w: [G, m, k]
**   column  [k, T]      transposed; group g begins at a multiple of 128, behind
**                       the groups before it, each with zeros up to the next
**                       multiple; w: [G, k, m], rows padded as those of row
**   out     [m, k]      dequantize: numbers again; w: [G, m, k]; bias: in place
**
** sf of a copy: what the recipe's `storage` says (specs/layouts), sf_bytes in
** all. Per row: fp32 [m], or of the column copy [G, k]; per group: fp32 [G];
** per tensor: fp32 [1]. Of blocks: with "plain" [m][blocks of k], or of the
** column copy [k][blocks of T]. E2M1 has two values in a byte, the even element
** in the low half; E2M3 and E3M2 have a byte each.
*/
struct quern_quantize_args {
    struct quern_tensor in, saved, row, column, out;
    const void *first_dims, *offsets; /* as in struct quern_tensor; of w none */
    int sizes_type;
    const float *probability; /* [m] */
    const float *bias;        /* [G, k] of bias, and dprob without activation */
    float *dbias;             /* [G, k] */
    float *dprob;             /* [m] sums of dy * activation; += dy * bias */
    float *scale;             /* [2] delayed scaling: what values are multiplied
                                 by, and its inverse; 1 and 1 at first */
    float *history;           /* [slots] delayed scaling: largest magnitudes,
                                 this call's first; zeros at first */
    const uint64_t *random;   /* [2] stochastic rounding: seed and offset */
    const int *noop;          /* as in quern_args: skips w quantized before */
    float limit, slope, shift; /* of clamped_swiglu: 7, 1.702 and 1 */
    void *workspace;           /* as in struct quern_args */
    const int64_t *host_sizes; /* [G] instead of first_dims and offsets */
};

struct quern_quantize_description {
    struct quern_quantize_args args; /* all but the addresses */
    size_t workspace_bytes;
    int history; /* slots of args.history; 0: no delayed scaling */
    int random;  /* 1: args.random is needed */
};

/* What a caller must provide. Needs no GPU. QUERN_EINVAL. */
QUERN_API int
quern_quantize_describe(struct quern_context *ctx,
                        const struct quern_quantization *quantization,
                        struct quern_quantize_description *description);

struct quern_quantize_plan; /* immutable after creation; may be shared */

/* As quern_plan: chooses, compiles or loads every kernel that a run launches.
   The backend cublaslt has none: QUERN_EINVAL. */
QUERN_API int quern_quantize_plan(struct quern_context *ctx,
                                  const struct quern_quantization *quantization,
                                  const struct quern_plan_options *options,
                                  struct quern_quantize_plan **plan);
QUERN_API void quern_quantize_plan_free(struct quern_quantize_plan *plan);

/* The kernel is the one that makes the copies. */
QUERN_API void quern_quantize_plan_info(const struct quern_quantize_plan *plan,
                                        struct quern_plan_info *info);

/*
** Make the copies. A NULL data leaves out the copy, whose sf and global are not
** looked at then. What is written shares no byte with anything else, but scales
** of groups or tensors may be one array for both. Each byte of a copy that is a
** group's is written, its padding too; what lies outside every group is not.
**
** One launch for all groups; where a scale depends on more than a block, one
** before it for the largest magnitudes; with dbias, one behind it that adds up
** what it has summed; with dprob, one more. Queued on `stream`; neither
** allocates nor synchronizes nor reads device memory; may be captured, and the
** sizes may change before each replay. The host backend runs at once. Same
** inputs, same bytes, on any backend. QUERN_EINVAL, QUERN_ECUDA.
*/
QUERN_API int quern_quantize_run(const struct quern_quantize_plan *plan,
                                 const struct quern_quantize_args *args,
                                 void *stream);

/* As quern_check. */
QUERN_API int quern_quantize_check(const struct quern_quantize_plan *plan,
                                   const struct quern_quantize_args *args,
                                   void *stream);

/* As quern_why. */
QUERN_API int quern_quantize_why(struct quern_context *ctx,
                                 const struct quern_quantization *quantization,
                                 const struct quern_plan_options *options,
                                 char **text);

/* ------------------------------------------------------------- wgrad queue
** Schedules that split the backward pass compute dgrad at once and the weight
** gradient later. A queue holds what was put off:
**
**     quern_queue(ctx, 64, &queue);
**     quern_queue_put(queue, plan, &args, layer);     // each microbatch
**     quern_queue_flush(queue, layer, 0, stream);     // while it would wait
**
** A queue holds host memory alone, as much as it was made with, and is used by
** one thread at a time; different queues are independent of each other.
*/
struct quern_queue;

#define QUERN_MAX_QUEUE  65536
#define QUERN_ALL_LAYERS (-1)

/* A queue for `capacity` products. Alone allocates. QUERN_EINVAL, _ENOMEM. */
QUERN_API int quern_queue(struct quern_context *ctx, int capacity,
                          struct quern_queue **queue);

/* Free it, and forget what waits. NULL is allowed. */
QUERN_API void quern_queue_free(struct quern_queue *queue);

/*
** Put off quern_run(plan, args): checks all that it checks, launches nothing.
** The plan is one of a wgrad, `layer` a number of the caller's, 0 or more. args
** are copied; the plan, and what args point to, stay the caller's until the
** launch that a flush queues has read them. Neither allocates nor synchronizes.
**
** Products for the same matrices (d.data or d.pointers) add up in the order of
** their puts. Only the first of them may have beta=0, so a layer needs two
** plans: one that overwrites for its first microbatch, one that accumulates for
** the others. A beta for each group (beta=any) says the same by group.
**
** Of plans made with parts=N up to N that follow each other in the queue become
** one launch, if all but the first accumulate (beta=1) and they differ in
** nothing but a, b, their sizes, and fewer tokens. Each element is then one sum
** over the tokens of the first product, the second, and so on, to which D is
** added once: fixed bits, but not those of single launches, which round D in
** between. Bad sizes are noted in the first one's workspace.
**
** QUERN_EFULL; QUERN_EINVAL: also where d has another shape than what waits for
** the same matrices, would overwrite it, or overlaps a tensor that waits.
*/
QUERN_API int quern_queue_put(struct quern_queue *queue,
                              const struct quern_plan *plan,
                              const struct quern_args *args, int layer);

/*
** Put off the bias gradient of a microbatch likewise: quern_quantize_run(plan,
** args) of a quantization that makes dbias alone, as "quantize bf16 of=dy ..
** copies=row dbias=1" does without row.data, of any dy of its type. It
** overwrites dbias, or of a plan with dbias=add adds to it; those for the same
** dbias run in the order of their puts, so the bits are those of single runs.
** It counts as a product. QUERN_EFULL; QUERN_EINVAL: also where dbias would
** overwrite one that waits, has another shape, or overlaps a tensor that waits.
*/
QUERN_API int quern_queue_put_dbias(struct quern_queue *queue,
                                    const struct quern_quantize_plan *plan,
                                    const struct quern_quantize_args *args,
                                    int layer);

/*
** Launch what waits for a layer, or for QUERN_ALL_LAYERS: the oldest products
** first, `most` of them or with 0 all. Queued on `stream`; neither allocates
** nor synchronizes; may be captured, and sizes may change before each replay.
** What was launched has left the queue; if one fails, it and those behind it
** stay. QUERN_EINVAL: also where nothing waits for a layer that is named, since
** it was flushed, or another layer's must come first; the errors of quern_run.
*/
QUERN_API int quern_queue_flush(struct quern_queue *queue, int layer, int most,
                                void *stream);

/* Forget what waits for a layer, or for all. QUERN_EINVAL as of a flush. */
QUERN_API int quern_queue_drop(struct quern_queue *queue, int layer);

/* How many products wait for a layer, or for QUERN_ALL_LAYERS. */
QUERN_API int quern_queue_count(const struct quern_queue *queue, int layer);

/* --------------------------------------------------------------------- mlp
** The MLP of a layer, an expert for each group, out of products and casts:
**
**     pre = x w1^T + b1                   h = activation(pre) * probability
**     y = h w2^T + b2 * probability       dh = dy w2
**     dpre = the gradient of pre          dx = dpre w1
**     dw2 = dy^T h    dw1 = dpre^T x      dprob = dh activation(pre) + dy b2
**     db2, db1 = sums over each group's rows of dy * probability, dpre
**
** Where the recipe scales them x, h, dy, dpre and the weights are quantized on
** the way, each once, into the copies that its products read. pre and dh are
** rounded to the type of x; h and dpre as quantize says. Where a kernel makes
** pre and h, or dh and dpre, at once the latter is of what is not rounded yet,
** dh is not written, and pre only into args.saved. Where a kernel adds no bias
** a launch behind it does, to what is rounded (see quern_mlp_why).
*/
struct quern_mlp {
    char recipe[32];
    int type;        /* of x, y, their gradients and the weights: QUERN_BF16,
                        QUERN_F16 or QUERN_F32; that of what is not scaled */
    int dw_type;     /* of dw1 and dw2 */
    int dw_beta;     /* QUERN_BETA_ZERO, or _ONE: they, db1, db2 are added to */
    int activation;  /* enum quern_activation, not none */
    int interleave;  /* as in struct quern_quantization */
    int probability; /* 1: each row of h is multiplied by a number */
    int bias;        /* 1: there are b1 and b2 */
    int recompute;   /* 1: pre is not saved, but x's row copy, of which backward
                        computes it again, the same bytes */
    int parts;       /* of dw1 and of dw2: as in struct quern_problem */
    int sizes;       /* enum quern_sizes */
    int groups;      /* 1 .. QUERN_MAX_GROUPS */
    int64_t m;       /* tokens over all groups, 0 to 2^30 */
    int64_t hidden;  /* features of x and y */
    int64_t ffn;     /* of h; pre has P, twice as many but for squared_relu */
    char split[256]; /* how tools draw group sizes; plans ignore it */
};

/*
**   mlp RECIPE g=G m=M hidden=H ffn=F [in=TYPE] [dw=TYPE] [beta=0|1]
**       [activation=NAME] [interleave=N] [prob=0|1] [bias=0|1] [recompute=0|1]
**       [parts=1..8] [sizes=device|host|fixed] [split=...]
**
** As quern_problem_parse and quern_problem_print. in= is bf16, of recipes
** without scales their type; dw= the recipe's usual D; activation= swiglu.
*/
QUERN_API int quern_mlp_parse(struct quern_context *ctx, const char *text,
                              struct quern_mlp *mlp);
QUERN_API int quern_mlp_print(const struct quern_mlp *mlp, char *buffer,
                              size_t size);

/* What may be quantized, in the order of args.scale, history and random. */
enum quern_mlp_tensor {
    QUERN_MLP_X,
    QUERN_MLP_H,
    QUERN_MLP_W1,
    QUERN_MLP_W2,
    QUERN_MLP_DY,
    QUERN_MLP_DPRE,
    QUERN_MLP_TENSORS
};

/* Tensors are as described; but x, y, dy and dx may have a stride, of multiples
   of 16 bytes. With scales forward reads row copies of the weights and backward
   column copies (quern_mlp_weights, quern_quantize_run); else both read w. With
   recompute backward reads w1_row and b1, too, and x where it has no scales. */
struct quern_mlp_args {
    struct quern_tensor x, y, dy, dx; /* [m, hidden]; dx.data NULL: no dx */
    struct quern_tensor w1, w2;       /* [G, P, hidden], [G, hidden, ffn] */
    struct quern_tensor w1_row, w1_column, w2_row, w2_column;
    struct quern_tensor dw1, dw2;     /* as w1, w2; data NULL: not now */
    const void *first_dims, *offsets; /* as in struct quern_tensor */
    int sizes_type;
    const float *probability;  /* [m] */
    float *dprob;              /* [m] */
    const float *b1, *b2;      /* [G, P], [G, hidden] only with bias=1 */
    float *db1, *db2;          /* as b1, b2: of backward, not of wgrad */
    float *scale;              /* [QUERN_MLP_TENSORS][2], and .. */
    float *history;            /* [QUERN_MLP_TENSORS][slots]: delayed scaling,
                                  as of quern_quantize_run, which rescales */
    const uint64_t *random;    /* [QUERN_MLP_TENSORS][2] */
    float limit, slope, shift; /* of clamped_swiglu: 7, 1.702 and 1 */
    void *saved;     /* what forward and backward leave for later: one for each
                        microbatch; of forward alone NULL, nothing is kept */
    void *workspace; /* zeroed once by the caller; one per concurrent run */
    const int64_t *host_sizes; /* [G] as in struct quern_quantize_args */
};

struct quern_mlp_description {
    struct quern_mlp_args args;          /* all but the addresses */
    size_t saved_bytes, workspace_bytes; /* at multiples of 256 */
    int history, random; /* slots for each tensor; 1: args.random is needed */
};

/* As quern_describe. */
QUERN_API int quern_mlp_describe(struct quern_context *ctx,
                                 const struct quern_mlp *mlp,
                                 struct quern_mlp_description *description);

struct quern_mlp_plan; /* immutable after creation; may be shared */

/* As quern_plan, for every step. A kernel, cublaslt: QUERN_EINVAL. */
QUERN_API int quern_mlp_plan(struct quern_context *ctx,
                             const struct quern_mlp *mlp,
                             const struct quern_plan_options *options,
                             struct quern_mlp_plan **plan);
QUERN_API void quern_mlp_plan_free(struct quern_mlp_plan *plan);

/*
** weights    make the copies of w1 and w2 whose data are not NULL
** forward    y, from x
** backward   dx, dprob, db1, db2, from dy; dw1, dw2 too where data are given
** wgrad      these alone, any time later: x, dy (where they have no scales) and
**            `saved` must still be there
** put        wgrad by the queue of these, dw2 and then dw1: both wait, or none.
**            Sizes are on the device; of parts see quern_queue_put. QUERN_EFULL
**
** What lies outside every group is neither read nor written. Same inputs, same
** bytes, whatever the buffers. All is checked before anything is queued on
** `stream`; nothing allocates, synchronizes or reads device memory; may be
** captured, and the sizes may change before each replay, though not from a
** forward to its backward. QUERN_EINVAL (argument and rule), QUERN_ECUDA.
*/
QUERN_API int quern_mlp_weights(const struct quern_mlp_plan *plan,
                                const struct quern_mlp_args *args,
                                void *stream);
QUERN_API int quern_mlp_forward(const struct quern_mlp_plan *plan,
                                const struct quern_mlp_args *args,
                                void *stream);
QUERN_API int quern_mlp_backward(const struct quern_mlp_plan *plan,
                                 const struct quern_mlp_args *args,
                                 void *stream);
QUERN_API int quern_mlp_wgrad(const struct quern_mlp_plan *plan,
                              const struct quern_mlp_args *args, void *stream);
QUERN_API int quern_mlp_put(const struct quern_mlp_plan *plan,
                            const struct quern_mlp_args *args,
                            struct quern_queue *queue, int layer);
QUERN_API int quern_mlp_check(const struct quern_mlp_plan *plan,
                              const struct quern_mlp_args *args, void *stream);

/* Each step with its kernel and the model's figures; as quern_why. */
QUERN_API int quern_mlp_why(struct quern_context *ctx,
                            const struct quern_mlp *mlp,
                            const struct quern_plan_options *options,
                            char **text);

/* -------------------------------------------------------------------- tune
** Measure which kernel is fastest for a problem on this GPU, and remember it:
** quern_plan then takes it for every problem of the same variant (op, recipe,
** layout, ragged axis, type of D, beta, what follows, pointers, ..), groups and
** multiprocessors whose axes are equal, but for the ragged one, which is in the
** same bucket: mean length of a group, rounded down to 1, 2, 3, 4, 6, 8, 12,
** 16, 24, .. (powers of 2 and the middles between them). What the groups' own
** lengths are no host knows; tune with those that are usual. Where a winner
** does not serve the model chooses. Casts have one kernel each.
**
** One text file for each GPU model holds a line for each of these, sorted, and
** names the registry; from any other registry it is refused as a whole, which
** the log and quern_why say. Read are, and the first line found counts: the
** folders of the options (or of $QUERN_TUNE), `tune` in each folder of the
** cache, and share/quern/tune beside the library's own folder, which is only
** read. The first of the others that may be written takes what is new.
*/
enum quern_l2 {                /* COUPLED: l2 */
                QUERN_L2_BOTH, /* the mean of a cold and a warm run */
                QUERN_L2_COLD, /* other data are in L2, as amid other work */
                QUERN_L2_WARM /* what the same kernel left there a moment ago */
};

/* One kernel, or one way to expand, as far as it was measured. */
struct quern_tune_candidate {
    const char *kernel; /* lives as the context */
    int band;           /* strips of tiles visited together; 0: as usual */
    int expand;         /* enum quern_expand from AHEAD on; else 0 */
    int rounds;         /* that it was measured in */
    double seconds;     /* median; 0: not measured */
    char reason[256];   /* why it is out: a rule, the model, the compiler, a
                           launch, or how much slower; "" if it is not */
};

struct quern_tune_progress {
    double elapsed;                          /* seconds */
    int candidates, compiling, left, rounds; /* left: in the race */
    const struct quern_tune_candidate *best; /* NULL: none yet */
};

/* Zero or NULL in a field chooses the default. */
struct quern_tune_options {
    double seconds; /* to spend at most, compiling included; 0: 20 */
    int backend;    /* as in struct quern_plan_options, but for the host and
                       cublaslt, which have nothing to choose from */
    int sms;
    int l2;        /* enum quern_l2 */
    int threads;   /* that compile; 0: all cores but one, at most 16 */
    int keep;      /* 0: write the file; 1: leave all files as they are */
    uint64_t seed; /* of sizes and data */
    const int64_t *sizes; /* [G] of the groups, host memory; NULL: of split */
    const struct quern_args *args; /* operands to measure on instead of random
                             ones; D is overwritten, or added to many times */
    void *stream; /* CUstream; nothing else should run meanwhile */
    /* Told after each round; a result other than 0 ends the measuring. */
    int (*progress)(void *user, const struct quern_tune_progress *);
    void *user;
};

struct quern_tune_result {
    const char *kernel; /* the fastest; lives as the context */
    int band, expand;   /* its own; expand 0: no ways were compared */
    double seconds;     /* median of its runs */
    const char *model;  /* what the model would have chosen */
    double model_seconds;
    double ratio; /* how many times as long the model's choice takes */
    int certain;  /* 0: time was up before the order was certain */
    int rounds;
    int clock_mhz;  /* of the SMs; 0: unknown, as within less than 5 seconds */
    size_t bytes;   /* of device memory that was taken, all given back */
    char file[512]; /* that has the line now; "" for none */
    struct quern_tune_candidate *candidates; /* freed with quern_free */
    int count;
};

/*
** Measure the kernels that serve the problem, the best by the model first,
** while threads compile the others; then, beside the fastest, the ways that
** expand=auto leaves open. Each round runs all that are left, in another order,
** so that all see the same clock; who is surely slower leaves. It is certain
** when none can be 0.5 % faster than the best; by less the model's choice wins.
**
** Runs on `stream` and waits for it; allocates device memory for operands of
** the problem's size and twice the L2 (QUERN_ECUDA says how many bytes where
** they are not free); must not be called while a stream of this thread
** captures. QUERN_EINVAL; QUERN_ENODEVICE; QUERN_ENOKERNEL; QUERN_ECOMPILE (no
** candidate could be measured: each one's reason); QUERN_ECUDA; QUERN_ESIZES of
** args; QUERN_EIO (measured, but not kept: `result` is complete); QUERN_ENOMEM.
*/
QUERN_API int quern_tune(struct quern_context *ctx,
                         const struct quern_problem *problem,
                         const struct quern_tune_options *options,
                         struct quern_tune_result *result);

#ifdef __cplusplus
}
#endif
#endif
