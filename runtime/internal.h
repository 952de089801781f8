/* SPDX-License-Identifier: Apache-2.0 */
/*
** internal.h: problems, quantizations and MLPs as structs, their plans and
** runs. api/ maps the lines and operands of quern.h to them; the program, the
** oracle and tests use them directly.
**
** Contents: types, context, problem, infer, describe, plan, run, quantize,
** wgrad queue, mlp, tune.
*/
#ifndef QUERN_INTERNAL_H
#define QUERN_INTERNAL_H

#include "registry.h"

struct qn_plan; /* immutable after creation; may be shared by threads */

/* Added to a sizes_type: offsets are [G] inclusive sums, where groups end. */
enum { QN_SIZES_ENDS = 64 };

/*
** A grouped tensor. With the ragged axis it is one buffer, split along it:
**
**   first_dims  [G]    length of each group along the ragged axis, or NULL
**   last_dims   [G]    the same for a tensor ragged in its last axis, or NULL
**   offsets     [G+1]  exclusive starts along the ragged axis, or NULL; without
**                      lengths: length = next start - start; with lengths: gaps
**                      between groups are allowed, overlap is an error
**
** Without it the tensor is G matrices, in one buffer or allocated one by one:
**
**   pointers    [G]    the matrices' addresses; `data` is NULL, `bytes` unread
**
** The arrays are in device memory (host memory for the host backend); the first
** three hold `sizes_type`, int32 or int64. Without offsets the groups are
** contiguous. The caller owns the memory.
*/
struct qn_tensor {
    void *data;
    void *const *pointers; /* only with a group axis; NULL: use `data` */
    void *sf;              /* scale factors; NULL if the recipe has none */
    const void *first_dims, *last_dims, *offsets;
    int sizes_type; /* QUERN_I32 or QUERN_I64 */
    int type;       /* enum quern_type of the elements */
    int ndim;
    int64_t shape[QUERN_MAX_DIMS]; /* a ragged axis: its total, a bound */
    int64_t stride;       /* elements from one row to the next; 0: packed */
    int64_t group_stride; /* elements from one group's matrix to the next, only
                             with a group axis; 0: contiguous */
    size_t bytes;         /* of data; set by the caller if there is a stride */
    size_t alignment;     /* of data, in bytes; set by qn_problem_describe */
    void *global;         /* fp32 [G]: scales of the second level, or NULL */
    size_t sf_bytes, global_bytes; /* set by describe functions */
};

/* Operands, factors and scratch memory of one run. Factors are fp32, in the
   same memory as the operands (device or host), read when the run executes. */
struct qn_args {
    struct qn_tensor a, b;
    struct qn_tensor c; /* only with beta=any: as d; may be D itself */
    struct qn_tensor d;
    struct qn_tensor p;      /* pre-activation: with saved=1, or of dgrad */
    struct qn_tensor t;      /* with copies=both; data of p, t NULL: not made */
    struct qn_tensor in;     /* only with quantize=: [m, k] bf16, */
    struct qn_tensor column; /* made into a; its columnwise tensor */
    const float *bias, *probability; /* [G, n], [m] only with bias=1, prob=1 */
    float *dbias, *dprob;      /* [G, columns], [m] only with dbias=, .. */
    float limit, slope, shift; /* of clamped_swiglu: 7, 1.702 and 1 */
    const float *alpha, *beta; /* only with =any; beta 0: C is not read */
    int scalars;               /* in alpha, beta: groups; 0 or 1: one for all */
    float *scale, *history;    /* delayed scaling, with copies= */
    const uint64_t *random;    /* stochastic rounding, with copies= */
    const int *noop; /* on the device, or NULL: skip this run if *noop != 0 */
    void *workspace; /* one per concurrent run; the caller zeroes the
                        first QN_WORKSPACE_BYTES once */
    const int64_t *host_sizes; /* [G], not on the device: see qn_run */
};

/* ----------------------------------------------------------------- context */

/* quern_open, quern_close and so on, of the library's own. */
int qn_open(const struct quern_open_options *options,
            struct quern_context **ctx);
void qn_close(struct quern_context *ctx);
const char *qn_errmsg(const struct quern_context *ctx);
const char *qn_strerror(int code);
const char *qn_version(void);

/* ----------------------------------------------------------------- problem
** A variant plus the sizes known to the host. m, n and k are those of the
** canonical product; the ragged one is the total over the groups.
*/
struct qn_problem {
    char recipe[32];
    int op;               /* enum quern_op */
    int ragged;           /* enum quern_axis */
    int a_major, b_major; /* enum quern_major */
    int d_type;
    int alpha;     /* 0: 1.0, 1: args.alpha */
    int beta;      /* enum quern_beta */
    int alignment; /* 2, 4, 8, 16 bytes: of buffers and, with strides, of rows
                        and matrices; 0: 16, for TMA */
    int pointers;  /* enum quern_pointers; a kernel may take more of them */
    int microbatches; /* wgrads of one weight in a launch: 1 to 8; 0: 1 */
    int sizes;        /* enum quern_sizes */
    int outside;      /* enum quern_outside, of D and P */
    int bias;         /* 1: fprop adds a row per group */
    int activation;   /* enum quern_activation; dgrad applies its backward */
    int interleave;   /* as in struct qn_quantization */
    int probability;  /* 1: scale each row of the activation, or of the bias */
    int saved;        /* 1: runs may also write the pre-activation */
    int dbias, dprob; /* of dgrad, as in qn_quantization: of D, or of in */
    int copies;       /* enum quern_copies of the result; 0: not quantized */
    int dequantize;   /* enum quern_dequantize */
    int quantize;     /* enum quern_quantize: of fprop and dgrad */
    int groups;       /* 1 .. QUERN_MAX_GROUPS */
    int64_t m, n, k;  /* at least 1; the ragged one 0 to 2^30 */
    char split[256];  /* how tools draw group sizes; ignored by plans */
};

/*
** Parse one line, as the CLI takes it:
**
**   OP RECIPE g=G m=M n=N k=K [d=TYPE] [layout=tn|nn|nt|tt] [ragged=m|n|k|none]
**       [alpha=1|any] [beta=0|1|any] [align=2|4|8|16] [pointers=LETTERS]
**       [microbatches=1..8] [sizes=device|host|fixed] [outside=keep|zero]
**       [bias=0|1]
**       [activation=NAME] [interleave=N] [prob=0|1] [saved=0|1] [dbias=0|1|add]
**       [dprob=0|1] [copies=rowwise|both]
**       [dequantize=auto|mainloop|pass|fp8|f16] [quantize=pass|mainloop|auto]
**       [split=even|mild|skew|zipf|one|@FILE|LIST]
**
** Defaults follow from the op and the recipe. QUERN_EINVAL names the word, the
** rule and, for a misspelling, the nearest valid word.
*/
int qn_problem_parse(struct quern_context *ctx, const char *text,
                     struct qn_problem *problem);

/* Write it back as text, NUL-terminated; returns the length it needs. NULL is
   no problem: "". The buffer may be NULL, and is cut at `size`. */
int qn_problem_print(const struct qn_problem *problem, char *buffer,
                     size_t size);

/* ------------------------------------------------------------------- infer */

/* A grouped product of two tensors. */
struct qn_contraction {
    const char *recipe;
    int groups;
    struct quern_shape a, b, d;
    int alpha, beta, alignment, pointers; /* as in struct qn_problem */
};

/*
** Find the problem of a contraction: its op, m, n, k, layouts, and the ragged
** axis, which says how D is split. If types do not tell the op, it is the op
** that usually has this ragged axis and layout; b k-major: fprop. With
** columnwise tensors k is their bound. D, if given, must agree: QUERN_EINVAL
** names the conflict.
*/
int qn_infer(struct quern_context *ctx,
             const struct qn_contraction *contraction,
             struct qn_problem *problem);

/* ---------------------------------------------------------------- describe */

struct qn_description {
    struct qn_args args;    /* all but the addresses: type, shape, stride,
                               bytes and alignment of each operand */
    size_t workspace_bytes; /* for any backend but cublaslt; qn_plan_info has
                               the exact number of a plan */
    int history, random;    /* of copies=, as of qn_quantize_description */
};

/* What a caller must provide for the problem. Needs no GPU. QUERN_EINVAL. */
int qn_problem_describe(struct quern_context *ctx,
                        const struct qn_problem *problem,
                        struct qn_description *description);

/* -------------------------------------------------------------------- plan */

/* Zero or NULL in a field chooses the default. */
struct qn_plan_options {
    int backend;        /* enum quern_backend */
    int sms;            /* multiprocessors to use; 0: all */
    const char *kernel; /* registry name; NULL: the winner of qn_tune for
                           this size, else the model's choice */
    int tune_ms; /* above 0: if this size was not measured yet, run qn_tune
                    first, for about this many milliseconds */
    int streams; /* cublaslt only: a run spreads its groups over 1 to 8 streams;
                    0: 1. Each adds 32 MiB of workspace. */
};

/*
** Choose a kernel for the problem, compile or load it, set its attributes.
** `options` may be NULL. Uses the CUDA context that is current in the calling
** thread, else device 0's primary context. May allocate, compile and write the
** cache; must not be called while a stream of this thread captures. If tuning
** for tune_ms fails (no memory, a file that cannot be written), the log says so
** and the model chooses. QUERN_EINVAL; QUERN_ENOKERNEL (each candidate and why
** not); QUERN_ENODEVICE; QUERN_ECOMPILE; QUERN_ECUDA; QUERN_EMISSING;
** QUERN_ENOMEM.
*/
int qn_plan(struct quern_context *ctx, const struct qn_problem *problem,
            const struct qn_plan_options *options, struct qn_plan **plan);

/* Free a plan once no run uses it. NULL is allowed. */
void qn_plan_free(struct qn_plan *plan);

/* What a plan chose. For NULL: zeros and no name. */
void qn_plan_info(const struct qn_plan *plan, struct quern_plan_info *info);

/* Explain the choice for a problem: the measurements; each kernel of the
   variant with the model's figures, or the rule that excludes it, or the reason
   why it does not exist. qn_free frees `*text`. */
int qn_why(struct quern_context *ctx, const struct qn_problem *problem,
           const struct qn_plan_options *options, char **text);

/* Free memory that the library returned. NULL is allowed. */
void qn_free(void *memory);

/* --------------------------------------------------------------------- run */

/*
** Multiply each group, with the groups along the problem's ragged axis:
**           ragged=m      ragged=n      ragged=k      ragged=none
**   a       [m, k]        [G, m, k]     [m, k]        [G, m, k]
**   b       [G, n, k]     [n, k]        [n, k]        [G, n, k]
**   c, d    [m, n]        [m, n]        [G, m, n]     [G, m, n]
**
** If a or b is not k-major its last two axes are swapped: [k, m], [k, n].
** Memory outside every group is not written, but with outside=zero rows (of
** ragged=n columns) of d and p that belong to no group become zeros; dprob's do
** not. With ragged=k an empty group's matrix becomes zeros, or beta * C.
**
** With an activation d is [m, n / 2] (squared_relu: [m, n]) and p, the
** pre-activation alpha * product + bias, is [m, n] in d's type; the activation
** takes its fp32 value. d is rounded once, after the probability. dgrad applies
** the activation backward to alpha * product in fp32: it reads p; d and p are
** [m, 2 n]. With copies= the result is rounded to the problem's type and
** quantized as an x (dgrad: a dy): d is the rowwise tensor, t, if given, the
** columnwise one. If no kernel fuses this the plan has one launch more
** (qn_why).
**
** With scales a and b are tensors that qn_quantize_run made, layout=tn: for
** fprop x and w rowwise, for dgrad dy rowwise and w columnwise, for wgrad dy
** [m, T] and x [n, T] columnwise, with the sizes and offsets of these. An
** operand without scales is k-major, too. With quantize= the run also writes a
** and, if its data is not NULL, `column`, as qn_quantize_run does for `in`,
** and dbias if there is no activation. In the mainloop it may leave a
** unwritten: see qn_why.
**
** Along the ragged axis the operands may have fewer rows than the problem: the
** given number bounds this run. The sizes are the arrays of a; or of b, or of
** d, if a has none. The other ragged operands may repeat them. ragged=none
** takes none.
**
** Queued on `stream` (a CUstream; NULL is the default stream); neither
** allocates nor synchronizes nor reads device memory; may be captured, and the
** sizes may change before each replay. The host backend runs at once.
** QUERN_EINVAL (argument and rule), QUERN_ECUDA. qn_check reports group
** sizes that are negative, overlap or pass the buffer; memory outside the
** buffers is never touched. D and the workspace must not overlap any other
** argument (QUERN_EINVAL names both), except C equal to D.
**
** host_sizes are read and checked (QUERN_EINVAL names the group) before the
** call returns; the groups are contiguous. Small launches before the product
** pass them as parameters, 512 each. A graph would freeze them, so a capturing
** stream is refused (QUERN_ECAPTURE) without sizes=fixed.
**
** The backend cublaslt queues one product per group from host_sizes (the
** problem need not say so), on options.streams streams that start after
** `stream` and that `stream` waits for, in a capture too. With one stream,
** groups without scales go in one call if its layouts permit. FP8 needs n to be
** a multiple of 16 and fp32 scales per tensor, group or, from 12.9 on, row and
** (Hopper) fp8_block's, or e8m0 scales stored in tiles (Blackwell). Pointers
** are not supported. The plan's info names the choice.
*/
int qn_run(const struct qn_plan *plan, const struct qn_args *args,
           void *stream);

/* Wait for `stream`, then report and clear the errors of its runs: QUERN_ESIZES
   names the first group whose size or offset broke a rule. Synchronizes; must
   not be captured (QUERN_ECAPTURE). QUERN_ECUDA. */
int qn_check(const struct qn_plan *plan, const struct qn_args *args,
             void *stream);

struct qn_quantization {
    char recipe[32];
    int work;        /* enum quern_work */
    int of;          /* enum quern_of */
    int type;        /* of in or out: QUERN_BF16, QUERN_F16 or QUERN_F32 */
    int copies;      /* enum quern_copies to be made; dequantize: to be read */
    int activation;  /* enum quern_activation; of w none */
    int interleave;  /* length of alternating runs of a and b; 0: halves */
    int probability; /* 1: a factor per row of the result, or of dbias */
    int dbias;       /* enum quern_dbias: also sum over each group's rows */
    int dprob;       /* 1: of dy, also the gradient of each row's factor */
    int sizes;       /* enum quern_sizes */
    int groups;      /* 1 .. QUERN_MAX_GROUPS */
    int64_t m;       /* rows over all groups, 0 to 2^30; of w, rows of each */
    int64_t k;       /* features of what is quantized, 1 to 2^30 */
    char split[256]; /* how tools draw group sizes; ignored by plans */
};

/*
** Parse one line, as the CLI takes it:
**
**   quantize RECIPE of=x|w|dy g=G m=M k=K [in=TYPE]
**       [copies=rowwise|columnwise|both] [activation=NAME] [interleave=N]
**       [prob=0|1] [dbias=0|1|add] [dprob=0|1] [sizes=device|host|fixed]
**       [split=...]
**   transpose RECIPE of=x|w|dy g=G m=M k=K [sizes=..] [split=...]
**   dequantize RECIPE of=x|w|dy g=G m=M k=K [out=..] [copies=..] [sizes=..]
**   rescale RECIPE of=x|w|dy
**   bias RECIPE of=x g=G m=M k=K [in=TYPE] [prob=0|1] [sizes=..] [split=...]
**
** Defaults: bf16, copies=both (dequantize: row). A tensor without scales needs
** copies=rowwise and an activation, dbias, or (dy, prob=1) a weighted bias.
*/
int qn_quantize_parse(struct quern_context *ctx, const char *text,
                      struct qn_quantization *quantization);

/* Write it back as text, NUL-terminated; returns the length it needs. */
int qn_quantize_print(const struct qn_quantization *quantization, char *buffer,
                      size_t size);

/*
** The tensors of one run. Let T be (m + 127 G) / 128 * 128.
**
**   in      [m, k]      values; w: [G, m, k], or in.pointers to [m, k] each.
**                       With an activation x comes from [m, 2 k] and dy from
**                       [m, k / 2] (squared_relu: [m, k])
**   saved   [m, k]      dy's pre-activation; as wide as the result
**   row     [m, k]      rows padded with zeros to multiples of 16 bytes, see
**                       stride; w: [G, m, k]
**   column  [k, T]      transposed; each group begins at a multiple of 128,
**                       zeros fill the gaps; w: [G, k, m], rows padded as those
**                       of row
**   out     [m, k]      dequantize: values; w: [G, m, k]; bias: in place
**
** sf has sf_bytes, laid out as the recipe's `storage` says (specs/layouts). Per
** row: fp32 [m], columnwise [G, k]; per group: fp32 [G]; per tensor: fp32 [1].
** Blocks with "plain": [m][blocks of k], columnwise [k][blocks of T]. E2M1
** packs two values in a byte, low half first; E2M3 and E3M2 use a byte each.
*/
struct qn_quantize_args {
    struct qn_tensor in, saved, row, column, out;
    const void *first_dims, *offsets; /* as in struct qn_tensor; of w none */
    int sizes_type;
    const float *probability; /* [m] */
    const float *bias;        /* [G, k] of bias, and dprob without activation */
    float *dbias;             /* [G, k] */
    float *dprob;             /* [m] sums of dy * activation; += dy * bias */
    float *scale;             /* [2] delayed scaling: the factor of the values
                                 and its inverse; 1 and 1 at first */
    float *history;           /* [slots] delayed scaling: amax values, zeros at
                                 first. [0] collects; rescale moves it to
                                 the end, as TransformerEngine does */
    const uint64_t *random;   /* [2] stochastic rounding: seed and offset */
    const int *noop;          /* as in qn_args; for a w quantized before */
    float limit, slope, shift; /* of clamped_swiglu: 7, 1.702 and 1 */
    void *workspace;           /* as in struct qn_args */
    const int64_t *host_sizes; /* [G] instead of first_dims and offsets */
};

struct qn_quantize_description {
    struct qn_quantize_args args; /* all but the addresses */
    size_t workspace_bytes;
    int history; /* slots of args.history; 0: no delayed scaling */
    int random;  /* 1: args.random is needed */
};

/* What a caller must provide. Needs no GPU. QUERN_EINVAL. */
int qn_quantize_needs(struct quern_context *ctx,
                      const struct qn_quantization *quantization,
                      struct qn_quantize_description *description);

struct qn_quantize_plan; /* immutable after creation; may be shared */

/* As qn_plan: chooses, compiles or loads every kernel that a run launches.
   The backend cublaslt is refused (QUERN_EINVAL). */
int qn_quantize_plan(struct quern_context *ctx,
                     const struct qn_quantization *quantization,
                     const struct qn_plan_options *options,
                     struct qn_quantize_plan **plan);
void qn_quantize_plan_free(struct qn_quantize_plan *plan);

/* Names the kernel that makes the copies. */
void qn_quantize_plan_info(const struct qn_quantize_plan *plan,
                           struct quern_plan_info *info);

/*
** Make the copies. A copy with data NULL is skipped; its sf and global are then
** ignored. Outputs must not overlap other arguments, but both copies may share
** scales per group or tensor. Each byte of a group in a copy is written, with
** its padding; memory outside every group is not.
**
** One launch for all groups; one before it for the amax if a scale covers more
** than a block; one after it that adds up dbias; one more for dprob. Queued on
** `stream`; neither allocates nor synchronizes nor reads device memory; may be
** captured, and the sizes may change before each replay. The host backend runs
** at once. Same inputs, same bytes, on any backend. QUERN_EINVAL, QUERN_ECUDA.
*/
int qn_quantize_run(const struct qn_quantize_plan *plan,
                    const struct qn_quantize_args *args, void *stream);

/* As qn_check. */
int qn_quantize_run_check(const struct qn_quantize_plan *plan,
                          const struct qn_quantize_args *args, void *stream);

/* As qn_why. */
int qn_quantize_why(struct quern_context *ctx,
                    const struct qn_quantization *quantization,
                    const struct qn_plan_options *options, char **text);

/* ------------------------------------------------------------- wgrad queue
** Schedules that split the backward pass compute dgrad at once and the weight
** gradient later. A queue holds the deferred work:
**
**     qn_queue(ctx, 64, &queue);
**     qn_queue_put(queue, plan, &args, layer);     // each microbatch
**     qn_queue_flush(queue, layer, 0, stream);     // while it would wait
**
** A queue uses host memory only, of fixed size. One thread at a time may use
** it; different queues are independent.
*/
struct qn_queue;

/* A queue for `capacity` products, allocated here. QUERN_EINVAL, _ENOMEM. */
int qn_queue(struct quern_context *ctx, int capacity, struct qn_queue **queue);

/* Free it and drop pending work. NULL is allowed. */
void qn_queue_free(struct qn_queue *queue);

/*
** Defer qn_run(plan, args): makes the same checks, launches nothing. The
** plan is of a wgrad; `layer` is the caller's number, 0 or more. args are
** copied; the plan and the memory that args point to must stay valid until the
** launch that a flush queues has finished. Neither allocates nor synchronizes.
**
** Products for the same matrices (d.data or d.pointers) accumulate in the order
** of their puts. Only the first of them may have beta=0, so a layer needs two
** plans: one overwrites for its first microbatch, one accumulates for the
** others. With beta=any the rule holds per group.
**
** With microbatches=N up to N consecutive products become one launch if all but
** the first accumulate (beta=1) and they differ only in a, b, their sizes, and
** fewer tokens. Each element is then one sum over the tokens of the first
** product, the second, and so on, to which D is added once: deterministic, but
** not the bits of single launches. Invalid sizes are recorded in the first
** one's workspace.
**
** QUERN_EFULL; QUERN_EINVAL, also if d conflicts with pending work: another
** shape for the same matrices, an overwrite of it, or an overlap with its
** tensors.
*/
int qn_queue_put(struct qn_queue *queue, const struct qn_plan *plan,
                 const struct qn_args *args, int layer);

/*
** Defer the bias gradient of a microbatch likewise: qn_quantize_run(plan,
** args) of a quantization that makes only dbias, such as "quantize bf16 of=dy
** .. copies=rowwise dbias=1" without row.data. It overwrites dbias, or with
** dbias=add adds to it; puts for the same dbias run in order, so the bits are
** those of single runs. It counts as a product. QUERN_EFULL; QUERN_EINVAL, also
** if dbias would overwrite a pending one, has another shape, or overlaps a
** pending tensor.
*/
int qn_queue_put_dbias(struct qn_queue *queue,
                       const struct qn_quantize_plan *plan,
                       const struct qn_quantize_args *args, int layer);

/*
** Launch pending work of a layer or QUERN_ALL_LAYERS, oldest products first:
** `most` of them, or all if 0. Queued on `stream`; neither allocates nor
** synchronizes; may be captured, and sizes may change before each replay.
** Launched products leave the queue; if one fails, it and those after it stay.
** QUERN_EINVAL, also if a named layer has no pending work (it was flushed) or
** another layer's must come first; the errors of qn_run.
*/
int qn_queue_flush(struct qn_queue *queue, int layer, int most, void *stream);

/* Drop pending work of a layer, or all. QUERN_EINVAL as qn_queue_flush. */
int qn_queue_drop(struct qn_queue *queue, int layer);

/* Number of pending products of a layer, or of QUERN_ALL_LAYERS. */
int qn_queue_count(const struct qn_queue *queue, int layer);

/* --------------------------------------------------------------------- mlp
** The MLP of a layer, one expert per group, made of products and casts:
**
**     pre = x w1^T + b1                   h = activation(pre) * probability
**     y = h w2^T + b2 * probability       dh = dy w2
**     dpre = the gradient of pre          dx = dpre w1
**     dw2 = dy^T h    dw1 = dpre^T x      dprob = dh activation(pre) + dy b2
**     db2, db1 = sums over each group's rows of dy * probability, dpre
**
** If the recipe scales them, x, h, dy, dpre and the weights are quantized once
** each, into the copies that the products read. pre and dh are rounded to the
** type of x; h and dpre as quantize does. A kernel that makes pre and h, or dh
** and dpre, at once computes the latter from the unrounded former; it does not
** write dh, and pre only to args.saved. If a kernel cannot add the bias a
** launch after it does, to the rounded values (see qn_mlp_why).
*/
struct qn_mlp {
    char recipe[32];
    int type;         /* of x, y, their gradients and the weights: QUERN_BF16,
                        QUERN_F16 or QUERN_F32 */
    int dw_type;      /* of dw1 and dw2 */
    int dw_beta;      /* QUERN_BETA_ZERO, or _ONE: add to them, db1 and db2 */
    int activation;   /* enum quern_activation, not none */
    int interleave;   /* as in struct qn_quantization */
    int probability;  /* 1: each row of h has a factor */
    int bias;         /* 1: there are b1 and b2 */
    int recompute;    /* 1: save the quantized x instead of pre; backward
                        recomputes pre, bit-identical */
    int forward_only; /* 1: no backward, no wgrad */
    int microbatches; /* of dw1 and of dw2: as in struct qn_problem */
    int pointers;     /* enum quern_mlp_pointers: addresses of matrices */
    int sizes;        /* enum quern_sizes */
    int outside;      /* enum quern_outside, of y and dx */
    int groups;       /* 1 .. QUERN_MAX_GROUPS */
    int64_t m;        /* tokens over all groups, 0 to 2^30 */
    int64_t hidden;   /* features of x and y */
    int64_t ffn;      /* of h; pre has P: 2 ffn, or ffn for squared_relu */
    char split[256];  /* how tools draw group sizes; ignored by plans */
};

/*
**   mlp RECIPE g=G m=M hidden=H ffn=F [in=TYPE] [dw=TYPE] [beta=0|1]
**       [activation=NAME] [interleave=N] [prob=0|1] [bias=0|1] [recompute=0|1]
**       [grad=0|1] [microbatches=1..8] [pointers=none|w|dw|both]
**       [sizes=device|host|fixed] [outside=keep|zero] [split=...]
**
** As qn_problem_parse and qn_problem_print. Defaults: in=bf16, or the
** type of a recipe without scales; dw= the recipe's D; activation=swiglu;
** grad=1. With grad=0 only weights and forward run, and nothing is saved.
*/
int qn_mlp_parse(struct quern_context *ctx, const char *text,
                 struct qn_mlp *mlp);
int qn_mlp_print(const struct qn_mlp *mlp, char *buffer, size_t size);

/* Quantized tensors, in the order of args.scale, history and random. */
enum quern_mlp_tensor {
    QUERN_MLP_X,
    QUERN_MLP_H,
    QUERN_MLP_W1,
    QUERN_MLP_W2,
    QUERN_MLP_DY,
    QUERN_MLP_DPRE,
    QUERN_MLP_TENSORS
};

/* Tensors are as described; x, y, dy and dx may have a stride, in multiples of
   16 bytes; pointers= lets w1 and w2, or dw1 and dw2, have pointers instead of
   data. With scales forward reads the weights rowwise and backward columnwise
   (qn_mlp_weights, qn_quantize_run); else both read w. With recompute backward
   also reads w1_row and b1, and x if it has no scales. */
struct qn_mlp_args {
    struct qn_tensor x, y, dy, dx; /* [m, hidden]; dx.data NULL: no dx */
    struct qn_tensor w1, w2;       /* [G, P, hidden], [G, hidden, ffn] */
    struct qn_tensor w1_row, w1_column, w2_row, w2_column;
    struct qn_tensor dw1, dw2;        /* as w1, w2; data NULL: later */
    const void *first_dims, *offsets; /* as in struct qn_tensor */
    int sizes_type;
    int64_t rows; /* of this run, at most m, in place of m: of tensors, too */
    const float *probability;  /* [m] */
    float *dprob;              /* [m] */
    const float *b1, *b2;      /* [G, P], [G, hidden] only with bias=1 */
    float *db1, *db2;          /* as b1, b2: of backward, not of wgrad */
    float *scale;              /* [QUERN_MLP_TENSORS][2], and .. */
    float *history;            /* [QUERN_MLP_TENSORS][slots]: delayed scaling,
                                  as of qn_quantize_run, which rescales */
    const uint64_t *random;    /* [QUERN_MLP_TENSORS][2] */
    float limit, slope, shift; /* of clamped_swiglu: 7, 1.702 and 1 */
    void *saved;     /* kept from forward to backward to wgrad, one per
                        microbatch; NULL for inference */
    void *workspace; /* one per concurrent run; the caller zeroes the
                        first QN_WORKSPACE_BYTES once */
    const int64_t *host_sizes; /* [G] as in struct qn_quantize_args */
};

struct qn_mlp_description {
    struct qn_mlp_args args;             /* all but the addresses */
    size_t saved_bytes, workspace_bytes; /* at multiples of 16 */
    int history, random; /* slots for each tensor; 1: args.random is needed */
};

/* As qn_problem_describe. */
int qn_mlp_needs(struct quern_context *ctx, const struct qn_mlp *mlp,
                 struct qn_mlp_description *description);

struct qn_mlp_plan; /* immutable after creation; may be shared */

/* As qn_plan, for every step. A named kernel and cublaslt are refused. */
int qn_mlp_plan(struct quern_context *ctx, const struct qn_mlp *mlp,
                const struct qn_plan_options *options,
                struct qn_mlp_plan **plan);
void qn_mlp_plan_free(struct qn_mlp_plan *plan);

/* As qn_plan_info; names no kernel. */
void qn_mlp_plan_info(const struct qn_mlp_plan *plan,
                      struct quern_plan_info *info);

/*
** weights    make the copies of w1 and w2 whose data are not NULL
** forward    y, from x
** backward dx, dprob, db1, db2, from dy; dw1, dw2 too if their data are given
** wgrad      dw1 and dw2, any time later: x, dy (if they have no scales) and
**            `saved` must still be valid
** put        wgrad through the queue, dw2 and then dw1: both are queued, or
**            none. Sizes are on the device; parts: see qn_queue_put.
**            QUERN_EFULL
**
** Memory outside every group is neither read nor written, but with outside=zero
** rows of y and dx that belong to no group become zeros. Same inputs, same
** bytes, in any buffers. All arguments are checked before anything is queued on
** `stream`; nothing allocates, synchronizes or reads device memory; may be
** captured, and the sizes may change before each replay, but not between a
** forward and its backward. QUERN_EINVAL (argument and rule), QUERN_ECUDA.
*/
int qn_mlp_weights(const struct qn_mlp_plan *plan,
                   const struct qn_mlp_args *args, void *stream);
int qn_mlp_forward(const struct qn_mlp_plan *plan,
                   const struct qn_mlp_args *args, void *stream);
int qn_mlp_backward(const struct qn_mlp_plan *plan,
                    const struct qn_mlp_args *args, void *stream);
int qn_mlp_wgrad(const struct qn_mlp_plan *plan, const struct qn_mlp_args *args,
                 void *stream);
int qn_mlp_put(const struct qn_mlp_plan *plan, const struct qn_mlp_args *args,
               struct qn_queue *queue, int layer);
int qn_mlp_run_check(const struct qn_mlp_plan *plan,
                     const struct qn_mlp_args *args, void *stream);

/* Each step with its kernel and the model's figures; as qn_why. */
int qn_mlp_why(struct quern_context *ctx, const struct qn_mlp *mlp,
               const struct qn_plan_options *options, char **text);

/* -------------------------------------------------------------------- tune */

/* Zero or NULL in a field chooses the default. */
struct qn_tune_options {
    double seconds; /* upper limit, with compiling; 0: 20 */
    int backend;    /* as in qn_plan_options; not host, not cublaslt */
    int sms;
    int l2;        /* enum quern_l2 */
    int threads;   /* that compile; 0: all cores but one, at most 16 */
    int keep;      /* 0: write the file; 1: leave all files as they are */
    uint64_t seed; /* of sizes and data */
    const int64_t *sizes; /* [G] of the groups, host memory; NULL: of split */
    const struct qn_args *args; /* operands instead of random ones; D is
                                      overwritten, or added to many times */
    void *stream; /* CUstream; nothing else should run meanwhile */
    /* Called after each round; a result other than 0 ends the measuring. */
    int (*progress)(void *user, const struct quern_tune_progress *);
    void *user;
};

/* quern_tune of a problem. */
int qn_tune(struct quern_context *ctx, const struct qn_problem *problem,
            const struct qn_tune_options *options,
            struct quern_tune_result *result);

#endif
