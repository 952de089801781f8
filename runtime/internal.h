/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h: problems, quantizations and MLPs as structs, their plans and
   runs, as docs/ says of lines and operands. api/ maps the text and operands
   of quern.h to them; the program, the oracle and tests use them directly. */
#ifndef QUERN_INTERNAL_H
#define QUERN_INTERNAL_H

#include "registry.h"

struct qn_plan; /* immutable after creation; may be shared by threads */
struct qn_why_facts;

/* Added to a sizes_type: offsets are [G] inclusive sums, where groups end. */
enum { QN_SIZES_ENDS = 64 };

/* A grouped tensor: one buffer split along its ragged axis, or G matrices. The
   arrays are in the memory of the operands. */
struct qn_tensor {
    void *data;
    void *const *pointers; /* only with a group axis; NULL: use `data` */
    void *sf;              /* scale factors; NULL if the recipe has none */
    const void *first_dims, *last_dims; /* [G] lengths along the ragged axis,
                                           if it is the first or the last */
    const void *offsets; /* [G + 1] exclusive starts, or NULL: contiguous */
    int sizes_type;      /* of these: QUERN_I32 or QUERN_I64 */
    int type;            /* enum quern_type of the elements */
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
    float limit, slope, shift; /* of clamped_swiglu */
    const int *gather;         /* [m] indices, with gather= */
    const int *scatter;        /* [m] with scatter=1: row i is row scatter[i]
                                  of D, or is not written if there is none */
    const uint64_t *addresses; /* [m] of these rows, 0: none, in place of D's;
                                  or NULL */
    struct qn_tensor lora_a, lora_b; /* only with lora=: [G, rank, features of
                                        x], [G, features of y, rank] */
    struct qn_tensor lora_t;         /* [m, rank], made by the run */
    const float *lora_scale;         /* [1], or NULL for 1 */
    const float *alpha, *beta;       /* only with =any; beta 0: C is not read */
    int scalars;            /* in alpha, beta: groups; 0 or 1: one for all */
    float *scale, *history; /* delayed scaling, with copies= */
    const uint64_t *random; /* stochastic rounding, with copies= */
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
    int gather;       /* enum quern_gather: of fprop and dgrad */
    int topk;         /* index args.gather[i] is row gather[i] / topk; 0: 1 */
    int64_t tokens;   /* rows of the operand that is gathered */
    int scatter;      /* 1: rows of D are written through args.scatter */
    int lora;         /* rank of adapters next to B: 1 to 256; 0: none */
    int groups;       /* 1 .. QUERN_MAX_GROUPS */
    int64_t m, n, k;  /* at least 1; the ragged one 0 to 2^30 */
    char split[256];  /* how tools draw group sizes; ignored by plans */
};

/* Parse a line. QUERN_EINVAL names the word, the rule and, for a misspelling,
   the nearest valid word. */
int qn_problem_parse(struct quern_context *ctx, const char *text,
                     struct qn_problem *problem);

/* Write it back as text, NUL-terminated; returns the length it needs. The
   buffer may be NULL, and the text is cut at `size`. */
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

/* The problem of a contraction; D, if given, must agree: as quern_infer. */
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

/* The requirements of the problem for its caller. Needs no GPU.
   QUERN_EINVAL. */
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
    int same_sums; /* 1: only kernels that add along k in one order, so that the
                      number of rows changes no bit */
};

/* Choose a kernel for the problem, compile or load it: as quern_plan_create, on
   the CUDA context that is current in the calling thread, else device 0's
   primary context. If tuning for tune_ms fails the log says so and the model
   chooses. `options` may be NULL. */
int qn_plan(struct quern_context *ctx, const struct qn_problem *problem,
            const struct qn_plan_options *options, struct qn_plan **plan);

/* Free a plan once no run uses it. NULL is allowed. */
void qn_plan_free(struct qn_plan *plan);

/* A plan's choices. */
void qn_plan_info(const struct qn_plan *plan, struct quern_plan_info *info);

/* Explain the choice for a problem, as quern_why; quern_free frees `*text`.
   `facts` of product/why.h, or NULL, are told, too. */
int qn_why(struct quern_context *ctx, const struct qn_problem *problem,
           const struct qn_plan_options *options, struct qn_why_facts *facts,
           char **text);

/* --------------------------------------------------------------------- run */

/*
** Queues on `stream`; neither allocates nor synchronizes nor reads device
** memory. The caller has checked the arguments by the line's table of operands,
** as quern_run does; strides, sizes from the host, overlaps and what only a
** backend or a kernel forbids are checked here. The ragged operands may have
** fewer rows than the problem. The sizes are the arrays of a; or of b, or of d,
** if a has none; the other ragged operands may repeat them.
** host_sizes are read and checked before the call returns. With outside=zero
** rows (of ragged=n columns) of d and p outside the groups become zeros.
** QUERN_EINVAL, QUERN_ECAPTURE, QUERN_ECUDA.
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

/* Wait for `stream`, then report and clear the errors of its runs, as
   quern_check. */
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
    int64_t k;       /* features of the quantized tensor, 1 to 2^30 */
    char split[256]; /* how tools draw group sizes; ignored by plans */
};

/* As qn_problem_parse and qn_problem_print. */
int qn_quantize_parse(struct quern_context *ctx, const char *text,
                      struct qn_quantization *quantization);
int qn_quantize_print(const struct qn_quantization *quantization, char *buffer,
                      size_t size);

/* The tensors of one run: in, row, column and out are input, rowwise,
   columnwise and output of docs/c-api.md, saved is pre. */
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
    float limit, slope, shift; /* of clamped_swiglu */
    void *workspace;           /* as in struct qn_args */
    const int64_t *host_sizes; /* [G] instead of first_dims and offsets */
    const int *gather; /* only of a layer's casts: [m], row i is that of token
                          gather[i] / topk of `in`; or NULL */
    int topk;
};

struct qn_quantize_description {
    struct qn_quantize_args args; /* all but the addresses */
    size_t workspace_bytes;
    int history; /* slots of args.history; 0: no delayed scaling */
    int random;  /* 1: args.random is needed */
};

/* The requirements for a caller. Needs no GPU. QUERN_EINVAL. */
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
** Make the copies, as quern_run. A copy with data NULL is skipped; its sf and
** global are then ignored. The rowwise and the columnwise tensor may share
** scales per group or tensor. One launch for all groups; one before it for the
** amax if a scale covers more than a block; one after it that adds up dbias;
** one more for dprob.
*/
int qn_quantize_run(const struct qn_quantize_plan *plan,
                    const struct qn_quantize_args *args, void *stream);

/* As qn_why. */
int qn_quantize_why(struct quern_context *ctx,
                    const struct qn_quantization *quantization,
                    const struct qn_plan_options *options, char **text);

/* ------------------------------------------------------------- wgrad queue */

/*
** Defer qn_run(plan, args) of a wgrad, as quern_queue_put: makes the same
** checks, launches nothing, neither allocates nor synchronizes.
**
** Products for the same matrices (d.data or d.pointers) accumulate in the order
** of their puts. Only the first of them may have beta=0; with beta=any the rule
** holds per group. With microbatches=N up to N consecutive products become one
** launch if all but the first accumulate (beta=1) and they differ only in a, b,
** their sizes, and fewer tokens. Invalid sizes are recorded in the first one's
** workspace. QUERN_EFULL; QUERN_EINVAL, also if d conflicts with pending work:
** another shape for the same matrices, an overwrite of it, or an overlap with
** its tensors.
*/
int qn_queue_put(struct quern_queue *queue, const struct qn_plan *plan,
                 const struct qn_args *args, int layer);

/* Defer qn_quantize_run of a quantization that makes only dbias likewise; the
   bits are those of single runs. It counts as a product. */
int qn_queue_put_dbias(struct quern_queue *queue,
                       const struct qn_quantize_plan *plan,
                       const struct qn_quantize_args *args, int layer);

/* --------------------------------------------------------------------- mlp
** The MLP of a layer, one expert per group, made of products and casts:
** docs/problem-line.md. A kernel that makes pre and h, or dh and dpre, at once
** does not write dh, and pre only if backward reads it. If a kernel cannot add
** the bias a launch after it does, to the rounded values (see qn_mlp_why).
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
    int x_later;      /* 1: backward makes x's columnwise tensor, if that has
                        forward's bytes: of a layer, whose x is there then */
    int dy_later;     /* 1: rows of dy are tokens of a layer */
    int tokens;       /* enum quern_tokens: of a layer, whose x and dy are
                         there */
    int topk;         /* of it: x has m / topk tokens then */
    int scatter_y, scatter_dx; /* 1: of a layer whose tokens have addresses,
                                  those of one row at most */
    int groups;                /* 1 .. QUERN_MAX_GROUPS */
    int64_t m;                 /* tokens over all groups, 0 to 2^30 */
    int64_t hidden;            /* features of x and y */
    int64_t ffn;     /* of h; pre has P: 2 ffn, or ffn without a gate */
    char split[256]; /* how tools draw group sizes; ignored by plans */
};

/* As qn_problem_parse and qn_problem_print. With grad=0 only weights and
   forward run, and nothing is saved. */
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
   (QUERN_PHASE_WEIGHTS, qn_quantize_run); else both read w. With recompute
   backward also reads w1_row and b1, and x if it has no scales. */
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
    float limit, slope, shift; /* of clamped_swiglu */
    void *saved;     /* forward leaves it for backward and wgrad, and ... */
    void *pending;   /* backward for wgrad; one of each per microbatch */
    void *workspace; /* one per concurrent run; the caller zeroes the
                        first QN_WORKSPACE_BYTES once */
    const int64_t *host_sizes; /* [G] as in struct qn_quantize_args */
    const void *index;         /* only of a layer from tokens: [m, topk], and */
    struct qn_tensor residual; /* [m, hidden]; rows, x to dx, probability and
                                  dprob are of tokens then */
    const int *gather_x, *gather_dy; /* as qn_quantize_args.gather: only where
                                        a layer lets casts, or pre's product,
                                        read tokens */
    int topk;
    const int *scatter;      /* [m] only where a layer lets products write rows
                                at addresses: the token of each */
    struct qn_tensor tokens; /* x for that product, which does not scale it; x
                                has rows for wgrad */
    const int *count;        /* [1] tokens, for a cast of them */
    const uint64_t
        *y_addresses; /* only of a layer with scatter=1: [m] addresses
                                 of tokens of y, 0: none, and .. */
    const uint64_t *dx_addresses; /* of dx, in place of these */
    void *errors; /* QN_WORKSPACE_BYTES, as the workspace's, that note bad
                     indices in their place; or NULL */
};

struct qn_mlp_description {
    struct qn_mlp_args args; /* all but the addresses */
    size_t saved_bytes, pending_bytes, workspace_bytes; /* at multiples of 16 */
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
** Run a phase:
**
** weights    make the copies of w1 and w2 whose data are not NULL
** forward    y, from x
** backward   dx, dprob, db1, db2, from dy; dw1, dw2 too if their data are given
** wgrad      dw1 and dw2, any time later: x, dy (if they have no scales),
**            `saved` and `pending` must still be valid
** put        wgrad through the queue, dw2 and then dw1: both are queued, or
**            none; sizes are on the device
**
** As quern_run: same inputs, same bytes, in any buffers. With outside=zero
** rows of y and dx that belong to no group become zeros.
*/
int qn_mlp_run(const struct qn_mlp_plan *plan, const struct qn_mlp_args *args,
               int phase, void *stream);
int qn_mlp_put(const struct qn_mlp_plan *plan, const struct qn_mlp_args *args,
               struct quern_queue *queue, int layer);

/* Each step with its kernel and the model's figures; as qn_why. */
int qn_mlp_why(struct quern_context *ctx, const struct qn_mlp *mlp,
               const struct qn_plan_options *options, char **text);

/* -------------------------------------------------------------------- tune */

/* Zero or NULL in a field chooses the default. */
struct qn_tune_options {
    double seconds; /* upper limit, with compiling; 0: 20 */
    int backend;    /* as in qn_plan_options; not host, not cublaslt */
    int sms;
    int l2;               /* enum quern_l2 */
    int threads;          /* that compile; 0: all cores but one, at most 16 */
    int keep;             /* as in quern_tune_options */
    uint64_t seed;        /* of sizes and data */
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
