/*
** quantize.h: what the parts of quantization share.
*/
#ifndef QUERN_QUANTIZE_H
#define QUERN_QUANTIZE_H

#include "plan.h"

struct qn_session;

/* Where the parts of the workspace lie, behind the error record. What is
   cleared before each run ends where the partial sums begin. */
struct qn_quantize_space {
    size_t row_amax, column_amax, partials, sizes, end;
};

/* One launch of a run. */
struct qn_quantize_step {
    const struct qn_kernel *kernel;
    qn_host_function *function;
    struct cu_function *handle;
    struct cu_launch launch;
};

enum { QN_QUANTIZE_STEPS = 4 };

struct quern_quantize_plan {
    struct quern_context *ctx;
    struct quern_quantization q;
    struct quern_quantize_description need;
    const struct qn_recipe *recipe;
    struct qn_quantize_space space;
    int backend, workers;
    struct qn_quantize_step steps[QN_QUANTIZE_STEPS];
    int nsteps;
    struct qn_values values;  /* complete but for what a run brings */
    struct qn_driver *driver; /* NULL for the host */
    struct cu_context *context;
    struct qn_step size_step;
};

/* Are the scales of a row and a column copy the same numbers, so that both may
   lie in one place? Those of blocks and rows follow the copy's own axis. */
int qn_quantize_same_sf(const struct qn_scaling *scaling);

/* How the recipe scales the tensor. */
const struct qn_scaling *qn_quantize_scaling(const struct quern_quantization *q,
                                             const struct qn_recipe *recipe);

/* The type of its values. */
int qn_quantize_element(const struct quern_quantization *q,
                        const struct qn_recipe *recipe);

/* Is the largest magnitude needed before the first value can be quantized? */
int qn_quantize_needs_amax(const struct quern_quantization *q,
                           const struct qn_scaling *scaling);

/* Is there args.bias: to be added, or what probabilities multiply? */
int qn_quantize_has_bias(const struct quern_quantization *q);

/* Columns of args.in, for k columns of a result. */
int64_t qn_quantize_in_columns(const struct quern_quantization *q);

/* Values of the tensor, all groups together. */
double qn_quantize_values(const struct quern_quantization *q);

/* Tiles of 128 rows that the groups have at most. */
int64_t qn_quantize_tiles(const struct quern_quantization *q);

/* The most rows of which a column copy has so many columns; -1: of none. */
int64_t qn_quantize_tokens(int64_t columns, int groups);

/* Blocks of `size` in a length, and the length of as many whole ones. */
int64_t qn_quantize_ceil_div(int64_t length, int64_t size);
int64_t qn_quantize_round_up(int64_t length, int64_t size);

/*
** Rows, or columns, of scales that a matrix of its own has for each 128 of the
** group's: padded, so that where it begins follows from the groups before.
*/
int64_t qn_quantize_tile_rows(const struct qn_scaling *scaling);
int64_t qn_quantize_tile_columns(const struct qn_scaling *scaling);

/* 0 if some size of it could pass 64 bits. Lengths are at most 2^31. */
int qn_quantize_fits(const struct quern_quantization *q);

/* A copy (enum quern_copies) and its scales: all of `tensor` but addresses. */
void qn_quantize_copy(const struct quern_quantization *q,
                      const struct qn_recipe *recipe, int copy,
                      struct quern_tensor *tensor);

/*
** Are the sizes of ragged groups given, of a type they can have and aligned to
** it? QUERN_EINVAL.
*/
int qn_quantize_check_sizes(const void *first_dims, const void *offsets,
                            int sizes_type);

/* Are a copy's scales given, of both levels, as `need` describes them? `name`
   is the tensor's. QUERN_EINVAL. */
int qn_quantize_check_sf(const char *name, const struct quern_tensor *given,
                         const struct quern_tensor *need);

/* All rules on a quantization. QUERN_EINVAL names field and rule. */
int qn_quantize_check(struct quern_context *ctx,
                      const struct quern_quantization *q,
                      const struct qn_recipe **recipe);

/* What its runs need of the workspace. */
void qn_quantize_lay_out(const struct quern_quantization *q,
                         const struct qn_recipe *recipe,
                         struct qn_quantize_space *space);

/* And all that follows from it; any of the last three may be NULL. */
int qn_quantize_describe(struct quern_context *ctx,
                         const struct quern_quantization *q,
                         struct quern_quantize_description *description,
                         struct qn_quantize_space *space,
                         const struct qn_recipe **recipe);

/* The plan for a run of `m` rows, which may be fewer: itself, or what is made
   of it in `room`, which owns nothing. */
int qn_quantize_fit(const struct quern_quantize_plan *plan, int64_t m,
                    struct quern_quantize_plan *room,
                    const struct quern_quantize_plan **fitted);

/* All rules of quern_quantize_run. QUERN_EINVAL names argument and rule. */
int qn_quantize_args_given(const struct quern_quantize_plan *plan,
                           const struct quern_quantize_args *args);
int qn_quantize_args(const struct quern_quantize_plan *plan,
                     const struct quern_quantize_args *args);

/* quern_quantize_run of arguments that were checked, in the plan's context.
   QUERN_ECUDA. */
int qn_quantize_launch(const struct quern_quantize_plan *plan,
                       const struct quern_quantize_args *args, void *stream);

/* A copy that becomes numbers again, packed, without its scales of the second
   level: these are left to whoever reads the numbers. */
struct qn_expansion {
    const struct quern_quantization *q; /* the plan's, of as many rows */
    const struct quern_tensor *copy;
    void *out;
    const void *first_dims, *offsets; /* none of w */
    int sizes_bytes;
    int align; /* as the kernels' parameter; 0 of w and of row copies */
    const int *noop;
    void *error;
};

/* Queue it, of arguments that were checked, by a plan of dequantize, in the
   plan's context. Neither allocates nor synchronizes; the host runs it at once.
   QUERN_ECUDA. */
int qn_quantize_expand(const struct quern_quantize_plan *plan,
                       const struct qn_expansion *expansion, void *stream);

/* Kernels of some ops (enum qn_cast_op) alone, and one launch of them, or where
   the host computes one run, of values that are the caller's. */
int qn_quantize_steps(struct qn_session *session,
                      const struct quern_quantization *q, int backend,
                      const int *ops, int count,
                      struct quern_quantize_plan **plan);
int qn_quantize_step_run(const struct quern_quantize_plan *plan, int step,
                         struct qn_values *values, void *stream);

/* Does the kernel do this op (enum qn_cast_op) of the quantization? */
int qn_quantize_serves(const struct quern_quantization *q, int op,
                       const struct qn_kernel *kernel);

/* The kernel of an op (enum qn_cast_op) on the session's machine; NULL: there is
   none. */
const struct qn_candidate *
qn_quantize_candidate(const struct qn_session *session,
                      const struct quern_quantization *q, int op);

/* The kernel that makes the result on the session's machine. QUERN_ENOKERNEL */
int qn_quantize_find(const struct qn_session *session,
                     const struct quern_quantization *q,
                     const struct qn_candidate **out);

/* The op that makes the result. */
int qn_quantize_op(const struct quern_quantization *q);

#endif
