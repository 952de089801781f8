/* SPDX-License-Identifier: Apache-2.0 */
/*
** registry.h: the generator's description of each kernel for the runtime.
**
** The generator fills these structures, in memory (libquern_gen) or as C text
** (registry.c); the runtime only reads them. It never parses a kernel's name
** and never knows a recipe by name.
*/
#ifndef QUERN_REGISTRY_H
#define QUERN_REGISTRY_H

#include "quern.h"

/* ------------------------------------------------- values of lines' words */

/* ------------------------------------------------------------------- types */

#define QUERN_MAX_MICROBATCHES 8 /* that one launch merges */
#define QUERN_MAX_STREAMS      8 /* of cublaslt */

#define QN_ENUM(name, ...) QN_##name,
#define QUERN_OPS(X)       X(FPROP, "fprop") X(DGRAD, "dgrad") X(WGRAD, "wgrad")
enum quern_op { QUERN_OPS(QUERN_ENUM) QUERN_OP_COUNT };

/* A layer's tensors: activations, weights, gradients of the output. */
#define QN_OFS(O) O(X, "x") O(W, "w") O(DY, "dy")
enum quern_of { QN_OFS(QN_ENUM) QN_OFS_COUNT };

/* An axis of the canonical product; also names the ragged one. COUPLED: axes */
#define QUERN_AXES(X)                                                          \
    X(AXIS_NONE, "none") X(AXIS_M, "m") X(AXIS_N, "n") X(AXIS_K, "k")
enum quern_axis { QUERN_AXES(QUERN_ENUM) QUERN_AXIS_COUNT };

/* Which axis of an operand is contiguous in memory. */
#define QUERN_MAJORS(X) X(MAJOR_K, "k") X(MAJOR_MN, "mn")
enum quern_major { QUERN_MAJORS(QUERN_ENUM) QUERN_MAJOR_COUNT };

/* Operands that come as an array of addresses, one matrix each: bits. */
enum quern_pointers {
    QUERN_POINTERS_A = 1,
    QUERN_POINTERS_B = 2,
    QUERN_POINTERS_C = 4,
    QUERN_POINTERS_D = 8
};

/* The tensors of an MLP for which this holds. */
#define QUERN_MLP_POINTERS(X)                                                  \
    X(MLP_ONE_BUFFER, "none")                                                  \
    X(MLP_W, "w") X(MLP_DW, "dw") X(MLP_W_DW, "both")
enum quern_mlp_pointers {
    QUERN_MLP_POINTERS(QUERN_ENUM) QUERN_MLP_POINTERS_COUNT
};

/* How the result combines with the values already in memory. */
#define QUERN_BETAS(X)                                                         \
    X(BETA_ZERO, "0")  /* D = product; C is not read */                        \
    X(BETA_ONE, "1")   /* D = D + product: C is D */                           \
    X(BETA_ANY, "any") /* D = product + args.beta * args.c */
enum quern_beta { QUERN_BETAS(QUERN_ENUM) QUERN_BETA_COUNT };

/* Location of the group sizes when a run is queued. */
#define QUERN_SIZES(X)                                                         \
    X(SIZES_DEVICE, "device") /* in the arrays of the tensors */               \
    X(SIZES_HOST, "host")     /* or in args.host_sizes: see quern_run */       \
    X(SIZES_FIXED, "fixed")   /* as HOST; a graph keeps its sizes */
enum quern_sizes { QUERN_SIZES(QUERN_ENUM) QUERN_SIZES_COUNT };

/* The content after a run of rows, or columns, of D and P outside every
   group. */
#define QUERN_OUTSIDES(X)                                                      \
    X(OUTSIDE_KEEP, "keep") /* the old content */                              \
    X(OUTSIDE_ZERO, "zero")
enum quern_outside { QUERN_OUTSIDES(QUERN_ENUM) QUERN_OUTSIDE_COUNT };

/* The operand whose rows a product reads through indices. */
#define QUERN_GATHERS(X) X(GATHER_NONE, "none") X(GATHER_A, "a")
enum quern_gather { QUERN_GATHERS(QUERN_ENUM) QUERN_GATHER_COUNT };

/* Whether a layer's first product reads tokens of x through indices. */
#define QUERN_TOKENS(X)                                                        \
    X(TOKENS_AUTO, "auto") /* where it was measured to pay, or should */       \
    X(TOKENS_NONE, "none") /* x is permuted */                                 \
    X(TOKENS_X, "x")       /* if a kernel can */                               \
    X(TOKENS_ALL, "all")   /* and of dy, too */
enum quern_tokens { QUERN_TOKENS(QUERN_ENUM) QUERN_TOKENS_COUNT };

/* How block-scaled operands are dequantized for the tensor cores. */
#define QUERN_DEQUANTIZES(X)                                                   \
    X(DEQUANTIZE_AUTO, "auto")         /* measured, else the model's choice */ \
    X(DEQUANTIZE_MAINLOOP, "mainloop") /* to 16 bits */                        \
    X(DEQUANTIZE_PASS, "pass")         /* in a pass; any d of 16-bit values */ \
    X(DEQUANTIZE_FP8, "fp8")           /* pass to e4m3, else as without */     \
    X(DEQUANTIZE_F16, "f16")           /* mainloop; bf16 on misfit */
enum quern_dequantize { QUERN_DEQUANTIZES(QUERN_ENUM) QUERN_DEQUANTIZE_COUNT };

/* Who quantizes A; in the mainloop if a kernel can, else in a launch before. */
#define QUERN_QUANTIZES(X)                                                     \
    X(QUANTIZE_PASS, "pass")         /* the caller */                          \
    X(QUANTIZE_MAINLOOP, "mainloop") /* this run */                            \
    X(QUANTIZE_AUTO, "auto")         /* this run, as the model chooses */
enum quern_quantize { QUERN_QUANTIZES(QUERN_ENUM) QUERN_QUANTIZE_COUNT };

#define QUERN_WORKS(X)                                                         \
    X(QUANTIZE, "quantize")                                                    \
    X(TRANSPOSE, "transpose")   /* a rowwise tensor into a columnwise one */   \
    X(DEQUANTIZE, "dequantize") /* to high-precision values */                 \
    X(RESCALE, "rescale")       /* delayed scaling: next scale from history */ \
    X(BIAS, "bias")             /* args.out += args.bias * probability */
enum quern_work { QUERN_WORKS(QUERN_ENUM) QUERN_WORK_COUNT };

/* Lines about the routes of tokens to experts. */
#define QUERN_ROUTINGS(X)                                                      \
    X(ROUTE, "route")     /* the order of rows */                              \
    X(PERMUTE, "permute") /* tokens to rows */                                 \
    X(COMBINE, "combine") /* rows to tokens */
enum quern_routing { QUERN_ROUTINGS(QUERN_ENUM) QUERN_ROUTING_COUNT };

/* The values of a layer that the probabilities of its pairs multiply. */
#define QUERN_WEIGHTINGS(X)                                                    \
    X(WEIGHTS_NONE, "none")                                                    \
    X(WEIGHTS_X, "x") /* tokens */                                             \
    X(WEIGHTS_H, "h") /* activations */                                        \
    X(WEIGHTS_Y, "y") /* results of experts */
enum quern_weighting { QUERN_WEIGHTINGS(QUERN_ENUM) QUERN_WEIGHTING_COUNT };

#define QUERN_COPIES(X)                                                        \
    X(NO_COPIES, "none")                                                       \
    X(ROWWISE, "rowwise") X(COLUMNWISE, "columnwise") X(BOTH_COPIES, "both")
enum quern_copies { QUERN_COPIES(QUERN_ENUM) QUERN_COPIES_COUNT };

/* The activation that made x, or whose backward gives dy, and how many
   operands it takes: a and b, or only a. */
#define QUERN_ACTIVATIONS(X)                                                   \
    X(NO_ACTIVATION, "none", 1)                                                \
    X(SWIGLU, "swiglu", 2)                 /* a sigmoid(a) b */                \
    X(CLAMPED_SWIGLU, "clamped_swiglu", 2) /* args.limit, slope, shift */      \
    X(SITU, "situ", 2)   /* 4 tanh(a/4) sigmoid(a) 25 tanh(b/25) */            \
    X(GEGLU, "geglu", 2) /* tanh form */                                       \
    X(REGLU, "reglu", 2) /* max(a, 0) b */                                     \
    X(SQUARED_RELU, "squared_relu", 1) /* max(a, 0)^2 */                       \
    X(RELU, "relu", 1)                                                         \
    X(SILU, "silu", 1)                                                         \
    X(GELU, "gelu", 1) /* a/2 (1 + erf(a / sqrt(2))) */                        \
    X(GELU_TANH, "gelu_tanh", 1)
enum quern_activation { QUERN_ACTIVATIONS(QUERN_ENUM) QUERN_ACTIVATION_COUNT };

#define QUERN_DBIASES(X)                                                       \
    X(NO_DBIAS, "0")                                                           \
    X(DBIAS, "1")       /* overwritten; zeros for an empty group */            \
    X(DBIAS_ADD, "add") /* added to; an empty group leaves it */
enum quern_dbias { QUERN_DBIASES(QUERN_ENUM) QUERN_DBIAS_COUNT };

/* ------------------------------------------------------------- parameters */

/*
** Parameters a kernel may declare: X(name, type in generated code, meaning).
** A kernels spec lists names; the template prints the signature from them and
** the runtime passes an address of each value, in the order of the list, to
** cuLaunchKernelEx or to the host kernel.            COUPLED: params
** A _map covers the operand's buffer as it is: [rows, inner], or [groups,
** rows, inner] where it has a group axis. A _ragged_map is cut to one group by
** its coordinates, and a _pointer_map is moved to one group's matrix by them,
** wherever that is (tensormap.c). An _sf_map covers fp32 scales that are
** column by column: [lines, rows with padding]. A _tail_map is moved to the end
** of one group's rows by coordinates, of any of the parts.
**
** A line of scales is contiguous: a row of the matrix, of order "columns" a
** column, of order "tiles" 128 rows. The stride of lines is 0 where it differs
** from group to group. Scales of rows have a stride of 1, and a group's matrix
** of them is as long as the operand has rows; those of groups have a stride of
** 1 between groups, the tensor's one has strides of 0. The stride of groups is
** 0, too, for an operand with the ragged axis: its position follows from the
** groups' sizes.                            COUPLED: scales
**
** The type may carry attributes, as designated fields that follow its string:
** templates find parameters by them, not by their names. `kind` is "map", "sf"
** or "global" (scales of blocks and of the second level), `operand` is whose
** scales these are, `member` the field that kernels keep the parameter in.
*/
#define QN_MAP(m)                                                              \
    "const __grid_constant__ tensor_map", .kind = "map", .member = #m
#define QN_SF(type, o, m) type, .kind = "sf", .operand = #o, .member = #m
#define QN_GLOBAL(o)                                                           \
    "const float *", .kind = "global", .operand = #o, .member = #o

#define QN_PARAMS(X)                                                           \
    X(a_map, QN_MAP(a), "A: global -> shared")                                 \
    X(a_ragged_map, QN_MAP(a_ragged), "A, cut to a group")                     \
    X(b_map, QN_MAP(b), "B: global -> shared")                                 \
    X(b_ragged_map, QN_MAP(b_ragged), "B, cut to a group")                     \
    X(b_pointer_map, QN_MAP(b_pointer), "B, by address")                       \
    X(d_map, QN_MAP(d), "D: shared -> global")                                 \
    X(d_ragged_map, QN_MAP(d_ragged), "D, cut to a group")                     \
    X(d_pointer_map, QN_MAP(d_pointer), "D, by address")                       \
    X(p_map, QN_MAP(p), "P: shared -> global")                                 \
    X(p_ragged_map, QN_MAP(p_ragged), "P, cut to a group")                     \
    X(a_tail_map, QN_MAP(a_tail), "A, wherever it is")                         \
    X(b_tail_map, QN_MAP(b_tail), "B, wherever it is")                         \
    X(a_sf_tail_map, QN_MAP(a_sf_tail), "A's scales, too")                     \
    X(b_sf_tail_map, QN_MAP(b_sf_tail), "B's scales, too")                     \
    X(a_sf_map, QN_MAP(a_sf), "A's scales -> shared")                          \
    X(b_sf_map, QN_MAP(b_sf), "B's scales -> shared")                          \
    X(in_map, QN_MAP(in), "numbers -> shared")                                 \
    X(microbatch_maps, "const __grid_constant__ struct microbatch_maps",       \
      "of each microbatch")                                                    \
    X(microbatches, "const __grid_constant__ struct microbatches",             \
      "operands and sizes")                                                    \
    X(noop, "const int *", "a launch does nothing if this is not 0; or null")  \
    X(microbatch_count, "int", "microbatches of this launch; 0: not merged")   \
    X(a, "const void *", "A's first element")                                  \
    X(b, "const void *", "B's first element")                                  \
    X(c, "const void *", "C's first element")                                  \
    X(d, "void *", "D's first element")                                        \
    X(a_pointers, "const void *const *", "[groups] A's matrices, or null")     \
    X(b_pointers, "const void *const *", "[groups] B's matrices, or null")     \
    X(c_pointers, "const void *const *", "[groups] C's matrices, or null")     \
    X(d_pointers, "void *const *", "[groups] D's matrices, or null")           \
    X(a_stride, "long long", "elements from one row of A to the next")         \
    X(b_stride, "long long", "elements from one row of B to the next")         \
    X(c_stride, "long long", "elements from one row of C to the next")         \
    X(d_stride, "long long", "elements from one row of D to the next")         \
    X(a_group_stride, "long long", "elements from one group's A to the next")  \
    X(b_group_stride, "long long", "elements from one group's B to the next")  \
    X(c_group_stride, "long long", "elements from one group's C to the next")  \
    X(d_group_stride, "long long", "elements from one group's D to the next")  \
    X(a_sf, QN_SF("const float *", a, a),                                      \
      "A's scales; their type is the recipe's")                                \
    X(b_sf, QN_SF("const float *", b, b),                                      \
      "B's scales; their type is the recipe's")                                \
    X(a_sf_stride, QN_SF("long long", a, a_stride),                            \
      "scales from one line of A's to the next")                               \
    X(b_sf_stride, QN_SF("long long", b, b_stride),                            \
      "scales from one line of B's to the next")                               \
    X(a_sf_group_stride, QN_SF("long long", a, a_group_stride),                \
      "scales from one group's A to the next")                                 \
    X(b_sf_group_stride, QN_SF("long long", b, b_group_stride),                \
      "scales from one group's B to the next")                                 \
    X(a_global, QN_GLOBAL(a), "[groups] A's scales of the second level")       \
    X(b_global, QN_GLOBAL(b), "[groups] B's scales of the second level")       \
    X(alpha, "const float *", "factor of the product, or null for 1")          \
    X(beta, "const float *", "factor of C, or null for 1")                     \
    X(scalar_step, "int", "0: one alpha and beta, 1: one for each group")      \
    X(bias, "const float *", "[groups, n] added to the product, or null")      \
    X(first_dims, "const void *", "[groups] length of each group, or null")    \
    X(offsets, "const void *", "[groups + 1] starts of the groups, or null")   \
    X(sizes_bytes, "int", "4 or 8: int32 or int64; -4, -8: offsets are ends")  \
    X(ragged, "int", "axis that the groups split: 0 none, 1 m, 2 n, 3 k")      \
    X(a_major, "int", "A is contiguous along: 0 k, 1 m")                       \
    X(b_major, "int", "B is contiguous along: 0 k, 1 n")                       \
    X(groups, "int", "number of groups")                                       \
    X(m, "int", "rows of the canonical product, over all groups if ragged")    \
    X(n, "int", "columns of the canonical product")                            \
    X(k, "int", "length of the summed axis, over all groups if ragged")        \
    X(band, "int", "strips of tiles that are visited together, about")         \
    X(error, "unsigned int *", "error record in the workspace")                \
    X(in, "const void *",                                                      \
      "the source of quantization, or the rowwise tensor of it")               \
    X(in_pointers, "const void *const *", "[groups] w's matrices, or null")    \
    X(in_stride, "long long", "elements from one row of it to the next")       \
    X(in_group_stride, "long long", "elements from one matrix to the next")    \
    X(saved, "const void *", "the pre-activation P, or null")                  \
    X(saved_stride, "long long", "elements from one row of it to the next")    \
    X(probability, "const float *", "[m] factor of each row, or null")         \
    X(row, "unsigned char *", "rowwise tensor, or null")                       \
    X(row_stride, "long long", "elements from one row to the next")            \
    X(row_sf, "void *", "its scales")                                          \
    X(row_global, "float *", "[groups] its scales of the second level")        \
    X(column, "unsigned char *", "columnwise tensor, or null")                 \
    X(column_stride, "long long", "elements from one feature to the next")     \
    X(column_sf, "void *", "its scales")                                       \
    X(column_global, "float *", "[groups] its scales of the second level")     \
    X(row_amax, "unsigned int *",                                              \
      "bits of the largest magnitudes, rowwise tensor")                        \
    X(column_amax, "unsigned int *", "the same, columnwise tensor")            \
    X(out, "void *", "values again: [m, k]")                                   \
    X(out_stride, "long long", "elements from one row to the next")            \
    X(out_sf, "float *", "scales of the requantized tensor")                   \
    X(dbias, "float *", "[groups, k] sums over rows, or null")                 \
    X(dbias_add, "int", "1: dbias is added to, 0: overwritten")                \
    X(partials, "float *", "sums over 32 rows each, in the workspace")         \
    X(row_partials, "float *", "[n / 64][m] sums of rows, in the workspace")   \
    X(dprob, "float *", "[m] gradient of each row's probability")              \
    X(input, "int",                                                            \
      "type before the cast: enum quern_type; 0: rowwise tensor")              \
    X(form, "int", "the source of quantization: enum qn_form")                 \
    X(activation, "int", "which one: enum quern_activation")                   \
    X(interleave, "int", "run of features of one half; 0: halves")             \
    X(limit, "float", "constant of the clamped activation")                    \
    X(slope, "float", "constant of the clamped activation")                    \
    X(shift, "float", "constant of the clamped activation")                    \
    X(scale, "float *", "delayed scaling: factor, and its inverse")            \
    X(history, "float *", "delayed scaling: largest magnitudes, newest last")  \
    X(flags, "unsigned int *", "flags for later launches, in the workspace")   \
    X(random, "const unsigned long long *", "seed and offset of the rounding") \
    X(host_sizes, "const __grid_constant__ struct host_sizes", "by value")     \
    X(device_sizes, "int *", "where these go, in the workspace")               \
    X(factors, "float *", "[2][groups] alpha and beta, or null")               \
    X(align, "int", "rows of a group are padded to multiples of so many")      \
    X(bases, "const unsigned int *",                                           \
      "[2] largest codes of A's and B's scales")                               \
    X(d_bytes, "int", "bytes of an element of D")                              \
    X(index, "const void *", "[m, topk] experts of each token")                \
    X(topk, "int", "experts of each token")                                    \
    X(tokens, "int", "rows of A that gather chooses from")                     \
    X(experts, "int", "experts of all ranks")                                  \
    X(first_expert, "int", "the one that is group 0")                          \
    X(lengths, "int *", "[groups] rows of each expert, or null")               \
    X(starts, "int *", "[groups + 1] where they begin, or null")               \
    X(gather, "int *", "[m * topk] row -> token * topk + k, or null")          \
    X(inverse, "int *", "[m, topk] its inverse, or null; -1: no row")          \
    X(rows, "const void *", "[m * topk, k] of dprob, or null")                 \
    X(rows_stride, "long long", "elements from one row to the next")           \
    X(scatter, "const int *",                                                  \
      "[m] the row of D that has each; or null: in order")                     \
    X(addresses, "const unsigned long long *",                                 \
      "[m] addresses of tokens, 0: none; or null: rows of out")                \
    X(pair_numbers, "float *", "[m, topk] moved with the rows, or null")       \
    X(row_numbers, "float *", "[m * topk] the same in their order, or null")   \
    X(counters, "unsigned int *",                                              \
      "[chunks][groups + 1] of a route, in the workspace")                     \
    X(extra_a_map, QN_MAP(extra_a), "[m, extra_k], more columns of A")         \
    X(extra_b_map, QN_MAP(extra_b), "more steps of k of B")                    \
    X(extra_a, "const void *", "[m, extra_k], more columns of A")              \
    X(extra_b, "const void *", "[groups] matrices, more steps of k of B")      \
    X(extra_k, "int", "steps of k that follow those of A and B")               \
    X(token_count, "int *", "[1] m, or null")

enum qn_param {
#define QN_PARAM_ENUM(name, type, meaning) QN_PARAM_##name,
    QN_PARAMS(QN_PARAM_ENUM)
#undef QN_PARAM_ENUM
        QN_PARAM_COUNT
};

/*
** Work that is no product. Values go on where enum quern_op ends.
*/
#define QN_CASTS(X)                                                            \
    X(QUANTIZE, "quantize")                                                    \
    X(AMAX, "amax") /* the largest magnitudes that quantize then needs */      \
    X(DEQUANTIZE, "dequantize") /* a quantized tensor back to values */        \
    X(HISTORY, "history")       /* delayed scaling: the next scale */          \
    X(SUM, "sum")               /* dbias, from quantize's partial sums */      \
    X(DPROB, "dprob")           /* the gradient of each row's probability */   \
    X(SIZES, "sizes")     /* from the host to where the others read them */    \
    X(FACTORS, "factors") /* and sizes of operands dequantized in a pass */    \
    X(BIAS, "bias")       /* of each group, added to values */                 \
    X(REQUANTIZE, "requantize")   /* a copy as one of FP8 in blocks */         \
    X(SUM_ROWS, "sum_rows")       /* dprob, from a product's partial sums */   \
    X(RANGE, "range")             /* whether two operands' values fit f16 */   \
    X(EPILOGUE, "epilogue")       /* of sums that a product left */            \
    X(OUTSIDE, "outside")         /* zeros outside the groups */               \
    X(ROUTE_COUNT, "route_count") /* rows of each expert, by chunks */         \
    X(ROUTE_SORT, "route_sort")   /* and the order that follows */             \
    X(ROUTE_PERMUTE, "route_permute") /* both, and tokens to rows, of few */   \
    X(PERMUTE_ROWS, "permute") X(COMBINE_ROWS, "combine")
enum qn_cast_op { QN_CASTS_BEGIN = QUERN_WGRAD, QN_CASTS(QN_ENUM) QN_OP_COUNT };

/* The source of quantization: values as they are, an activation's result, or
   the gradient of its input; or values if only the rowwise tensor is wanted, of
   which a kernel reads whole rows. COUPLED: forms */
#define QN_FORMS(X)                                                            \
    X(PLAIN, "plain")                                                          \
    X(FORWARD, "forward") X(BACKWARD, "backward") X(ROWS, "rows")
enum qn_form { QN_FORMS(QN_ENUM) QN_FORM_COUNT };

/*
** The error record, eight 32-bit words at the start of the workspace. Group
** checks run in order, and the first that fails is recorded:
**   [0] code   [1] group   [2] low and [3] high word of the offending value
**   [4] part, of a merged launch
** and at [6] and [7], as one word of 64 bits, an index that a product gathers
** rows by and that names no row: index, complement of its place
**                                              COUPLED: errors
*/
#define QN_SIZE_ERRORS(X)                                                      \
    X(NEGATIVE, 1, "a group's size is negative")                               \
    X(PAST_END, 2, "a group ends past the rows of the buffer")                 \
    X(OVERLAP, 3, "a group starts before the previous one ends")

/* The code of a route's record: [1] is token * topk + k, [2] and [3] its
   index. */
enum { QN_INDEX_ERROR = 4 };

/* Chunks of pairs (token, k) that a route counts: at most so many, of at least
   so many pairs. COUPLED: chunks */
enum { QN_ROUTE_CHUNKS = 256, QN_ROUTE_LEAST = 1024 };

/* Pairs of which every CTA makes the maps by itself. COUPLED: few pairs */
enum { QN_FEW_PAIRS = 2048 };

/* The first page of the workspace: the record, from word 16 on the counters of
   range checks for f16. It must be zero before the first run, and launches
   leave it so; no other byte is read before it is written. */
#define QN_WORKSPACE_BYTES 256

/* Words that say which of two products runs: the flag of the one that is tried,
   of the one after it; then, of f16, the largest codes of A's scales and of
   B's. COUPLED: f16 */
enum { QN_F16_BASES = 2, QN_FLAGS = 4 };

/*
** A kernel's use of the product. A problem with alpha, or with any beta,
** needs SCALE, which serves the others too: see QN_PARAMS for its nulls; where
** beta is 0 ALPHA will do. One with a bias or an activation needs ACTIVATE, or
** where copies are wanted of the result COPIES; one whose result goes back
** through an activation needs GRADIENT or GRADIENT_COPIES. These serve no
** other.
*/
#define QN_EPILOGUES(X)                                                        \
    X(STORE, "store")       /* D = A*B */                                      \
    X(ADD, "add")           /* D += A*B: C is D, beta is 1 */                  \
    X(ALPHA, "alpha")       /* D = alpha*A*B */                                \
    X(SCALE, "scale")       /* D = alpha*A*B + beta*C */                       \
    X(ACTIVATE, "activate") /* P = alpha*A*B + bias, D = act(P) * prob */      \
    X(COPIES, "copies")     /* the same, D as the copies of an x */            \
    X(GRADIENT, "gradient") /* D = alpha*A*B * prob * act'(P) */               \
    X(GRADIENT_COPIES, "gradient_copies") /* the same, D as copies of a dy */
enum qn_epilogue { QN_EPILOGUES(QN_ENUM) QN_EPILOGUE_COUNT };

/* GPUs by compute capability: major, minor. Committed results of the GPU suite
   show on which of them a kernel ran. */
#define QN_GPUS(X)                                                             \
    X(SM_80, "sm_80", 8, 0)                                                    \
    X(SM_86, "sm_86", 8, 6)                                                    \
    X(SM_89, "sm_89", 8, 9)                                                    \
    X(SM_90, "sm_90", 9, 0)                                                    \
    X(SM_100, "sm_100", 10, 0)                                                 \
    X(SM_103, "sm_103", 10, 3)                                                 \
    X(SM_120, "sm_120", 12, 0)
enum qn_gpu_model { QN_GPUS(QN_ENUM) QN_GPU_COUNT };

/* An operand of the canonical product as one kernel takes it. */
struct qn_operand {
    int type;   /* enum quern_type */
    int major;  /* enum quern_major */
    int ragged; /* enum quern_axis; none: the operand has a group axis */
    /* tensor map, for kernels with the operand's _map parameter */
    int box[2];  /* elements along the contiguous axis, rows */
    int swizzle; /* bytes: 0, 32, 64 or 128 */
    /* the same for its scales and _sf_map; never swizzled */
    int sf_box[2]; /* rows, blocks of k */
};

/* A rule on the problem; the text is an expression for expr.c. */
struct qn_requires {
    const char *text;   /* e.g. "k % 8 == 0" */
    const char *reason; /* the user's message when it fails */
};

/* The values that share a scale. */
#define QN_SPANS(X)                                                            \
    X(SPAN_ROW, "row") X(SPAN_GROUP, "group") X(SPAN_TENSOR, "tensor")
enum qn_span { QN_SPAN_BLOCK, QN_SPANS(QN_ENUM) QN_SPAN_COUNT };

/* How a matrix of scales is: row by row, column by column, or in tiles of
   128 x 4 as Blackwell reads them. */
#define QN_ORDERS(X)                                                           \
    X(ORDER_ROWS, "rows") X(ORDER_COLUMNS, "columns") X(ORDER_TILES, "tiles")
enum qn_order { QN_ORDERS(QN_ENUM) QN_ORDER_COUNT };

/*
** How a tensor is scaled. Row i, column j of its scales is block j of row i of
** the rowwise tensor; of the columnwise tensor, block j (along the rows) of
** feature i. COUPLED: scaling
*/
struct qn_scaling {
    int type;                  /* enum quern_type; none: no scales */
    int span;                  /* enum qn_span */
    int rows, k;               /* of a block: rows, values along k */
    int order;                 /* enum qn_order */
    int pad_rows, pad_columns; /* the matrix is padded to multiples */
    int apart;                 /* each group's matrix by itself */
    int global;                /* a second level: fp32, one for each group */
    int stochastic;            /* rounding by chance */
    int hadamard;              /* the columnwise tensor's values are
                                  transformed */
    int history;               /* slots of delayed scaling; 0: none */
    int zero;                  /* the code that stands for 0, of u4 and u8 */
    int packed; /* of w: no columnwise tensor; dgrad reads the rowwise one */
    int as;     /* enum quern_type that holds values of w, too, relative to the
                   largest scale within 128 values of k; 0: none must */
};

enum { QN_TENSORS = 3 }; /* x, w, dy: enum quern_of */

/* How one recipe stores the tensors of a layer. */
struct qn_recipe {
    const char *name;
    const char *doc;  /* the spec file's leading comment, one line */
    const char *spec; /* file:line */
    int x, w, dy;     /* enum quern_type; dy NONE: fprop only */
    unsigned d_types; /* bit (1 << enum quern_type); default_d is one */
    int default_d;
    int scaled;        /* 0: values as they are, no sf anywhere */
    const char *scale; /* one line for people: "none", "e8m0 per 1x32" */
    const char *rule;  /* of x, for people; "" without scales */
    int promote;       /* values of k summed separately; 0: all together */
    struct qn_scaling scaling[QN_TENSORS]; /* by enum quern_of */
};

struct qn_kernel {
    const char *name;          /* symbol = file name = name in the registry */
    const char *spec;          /* file:line of the kernels spec */
    const char *template_path; /* below templates/ */
    const char *key;           /* sha256 of the source, in hex; see gen/gen.h */
    const char *recipe;
    const char *arch; /* "sm_90a", "host" */
    int op;           /* enum quern_op, enum qn_cast_op */
    int of;           /* enum quern_of, of a cast */
    int input;        /* enum quern_type, of a cast; NONE: the rowwise tensor */
    int form;         /* enum qn_form, of a cast */
    int ragged;       /* enum quern_axis */
    int epilogue;     /* enum qn_epilogue */
    struct qn_operand a, b, d;
    int tile[3];    /* m, n, k */
    int cluster[2]; /* CTAs along m, along n */
    int stages;
    const char *schedule;   /* "cooperative", "pingpong", "overlapped" or "" */
    const char *addend;     /* how C arrives: "reduce", "read", "fetch", .. */
    const char *dequantize; /* where codes become values: "shared", "registers";
                               "swapped": registers, and D turned; "weights":
                               the same next to A as it is copied; "few": by
                               mma.sync, for few rows of A; "rebased": in
                               FP8, relative to a row's largest scale */
    const char *becomes;    /* their type when dequantized: "bf16", "f16" (with
                               QN_PARAM_bases next to codes), or "either", by
                               tiles */
    const char *quantize; /* "mainloop": the mainloop quantizes A; "pass", "" or
                             NULL: A's copy is there */
    const char *activation; /* of these: the one they make; "any": that of
                               its parameter, and any interleave */
    int interleave;
    int threads;
    int microbatches;            /* that a launch may merge, at least
                                    1 */
    int ctas;                    /* persistent ones, on a multiprocessor */
    int smem;                    /* bytes of dynamic shared memory */
    int shipped;                 /* named by specs/kernels/shipped.lua */
    const unsigned char *params; /* enum qn_param */
    int nparams;
    const struct qn_requires *rules;
    int nrules;
    unsigned short ran;         /* on these of QN_GPUS: bits */
    unsigned short interpreted; /* 1: right in the interpreter of PTX */
    /* The kernels that a build linked in; NULL otherwise. */
    const void *cubin;
    size_t cubin_bytes;
    void (*host)(void *const *params, int worker, int workers);
};

/* A point of a kernels spec that a `reject` excluded. */
struct qn_rejected {
    const char *name; /* the name that the kernel would have had */
    const char *spec;
    const char *recipe;
    int op, of, input, form;
    int ragged, epilogue;
    int a_major, b_major;
    int d_type;
    const char *activation;
    int interleave;
    const char *quantize;
    const char *reason;
};

/* A number that differs between versions of these structures or of
   QN_PARAMS. */
#define QN_REGISTRY_LAYOUT                                                     \
    ((uint64_t)QN_PARAM_COUNT << 48 |                                          \
     (uint64_t)sizeof(struct qn_kernel) << 32 |                                \
     (uint64_t)sizeof(struct qn_recipe) << 16 |                                \
     (uint64_t)sizeof(struct qn_rejected))

struct quern_registry {
    uint64_t layout; /* QN_REGISTRY_LAYOUT as the generated code saw it; 0 where
                        it was not generated. Stays the first field. */
    const char *hash; /* sha256 of all specs and templates, in hex */
    const struct qn_recipe *recipes;
    int nrecipes;
    const struct qn_kernel *kernels;
    int nkernels;
    const struct qn_rejected *rejected;
    int nrejected;
};

/* The registry of the embedded specs; host kernels are linked in. Exported by
   libquern.so for the program quern of the same build, not for users. */
QUERN_API extern const struct quern_registry qn_registry_builtin;

#endif
