/* SPDX-License-Identifier: Apache-2.0 */
/*
** registry.h: what the generator tells the runtime about each kernel.
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

enum quern_op { QUERN_FPROP, QUERN_DGRAD, QUERN_WGRAD };

/* A layer's tensors: activations, weights, gradients of the output. */
enum quern_of { QN_X, QN_W, QN_DY };

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

/* How the result combines with the values already in memory. */
enum quern_beta {
    QUERN_BETA_ZERO, /* D = product; C is not read */
    QUERN_BETA_ONE,  /* D = D + product: C is D */
    QUERN_BETA_ANY   /* D = product + args.beta * args.c */
};

/* Location of the group sizes when a run is queued. */
enum quern_sizes {
    QUERN_SIZES_DEVICE, /* in the arrays of the tensors */
    QUERN_SIZES_HOST,   /* as DEVICE, or in args.host_sizes: see qn_run */
    QUERN_SIZES_FIXED   /* as HOST; a captured graph keeps its sizes */
};

/* How block-scaled operands are dequantized for the tensor cores. */
enum quern_dequantize {
    QUERN_DEQUANTIZE_AUTO, /* the measured winner, else the model's choice */
    QUERN_DEQUANTIZE_MAINLOOP, /* to bf16 in the mainloop */
    QUERN_DEQUANTIZE_PASS,     /* to bf16 in a separate pass; any d of bf16 */
    QUERN_DEQUANTIZE_FP8,      /* pass to e4m3; bf16 on misfit */
    QUERN_DEQUANTIZE_F16       /* mainloop to f16; bf16 on misfit */
};

/* A is quantized already; or by this run, in the mainloop if a kernel can, else
   in a launch before it; or as the model chooses. */
enum quern_quantize {
    QUERN_QUANTIZE_PASS,
    QUERN_QUANTIZE_MAINLOOP,
    QUERN_QUANTIZE_AUTO
};

/* ---------------------------------------------------------------- quantize
** Quantized tensors of a recipe: rowwise, scaled along k, for fprop (dy: for
** dgrad); columnwise, scaled along the rows, for wgrad (w: for dgrad). Both are
** made in one pass over the input.
**
**     struct qn_quantization q;
**     struct qn_quantize_description need;
**     qn_quantize_parse(ctx, "quantize mxfp8 of=x g=8 m=96 k=64", &q);
**     qn_quantize_needs(ctx, &q, &need);
**     qn_quantize_plan(ctx, &q, NULL, &plan);
**     need.args.in.data = x;            need.args.first_dims = tokens;
**     need.args.row.data = row;         need.args.row.sf = row_scales;
**     need.args.column.data = column;   need.args.column.sf = column_scales;
**     need.args.workspace = zeroed_once;
**     qn_quantize_run(plan, &need.args, stream);
*/
enum quern_work {
    QUERN_QUANTIZE,
    QUERN_TRANSPOSE,  /* a rowwise tensor into a columnwise one */
    QUERN_DEQUANTIZE, /* back to high-precision values */
    QUERN_RESCALE,    /* delayed scaling: the next scale from the history */
    QUERN_BIAS        /* args.out += args.bias * probability of the row */
};

enum quern_copies { QUERN_ROWWISE = 1, QUERN_COLUMNWISE = 2 };

/* The activation that made x, or whose backward gives dy. */
enum quern_activation {
    QUERN_NO_ACTIVATION,
    QUERN_SWIGLU,         /* a sigmoid(a) b */
    QUERN_CLAMPED_SWIGLU, /* with args.limit, slope and shift */
    QUERN_SITU,           /* 4 tanh(a/4) sigmoid(a) 25 tanh(b/25) */
    QUERN_GEGLU,          /* tanh form */
    QUERN_REGLU,          /* max(a, 0) b */
    QUERN_SQUARED_RELU    /* max(a, 0)^2: has no b */
};

enum quern_dbias {
    QUERN_NO_DBIAS,
    QUERN_DBIAS,    /* overwritten; zeros for an empty group */
    QUERN_DBIAS_ADD /* added to; an empty group leaves it */
};

/* ------------------------------------------------------------- parameters */

/*
** Parameters a kernel may declare: X(name, type in generated code, meaning).
** A kernels spec lists names; the template prints the signature from them and
** the runtime passes an address of each value, in the order of the list, to
** cuLaunchKernelEx or to the host kernel.            COUPLED: params
** A _map covers the operand's buffer as it is: [rows, inner], or [groups,
** rows, inner] where it has a group axis. A _ragged_map is cut to one group by
** its coordinates, and a _pointer_map is moved to one group's matrix by them,
** wherever that lies (tensormap.c). An _sf_map covers fp32 scales that lie
** column by column: [lines, rows with padding]. A _tail_map is moved to the end
** of one group's rows by coordinates, of any of the parts.
**
** A line of scales is what lies side by side: a row of the matrix, of order
** "columns" a column, of order "tiles" 128 rows. The stride of lines is 0 where
** it differs from group to group. Scales of rows are 1 apart, and a group's
** matrix of them is as long as the operand has rows; those of groups are 1
** apart from group to group, the tensor's one has strides of 0. The stride of
** groups is 0, too, for an operand with the ragged axis: its place follows from
** the groups' sizes.                        COUPLED: scales
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
    X(in, "const void *", "what is quantized, or the rowwise tensor of it")    \
    X(in_pointers, "const void *const *", "[groups] w's matrices, or null")    \
    X(in_stride, "long long", "elements from one row of it to the next")       \
    X(in_group_stride, "long long", "elements from one matrix to the next")    \
    X(saved, "const void *", "what the activation was given; P, or null")      \
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
    X(out_sf, "float *", "scales of what is encoded again")                    \
    X(dbias, "float *", "[groups, k] sums over rows, or null")                 \
    X(dbias_add, "int", "1: dbias is added to, 0: overwritten")                \
    X(partials, "float *", "sums over 32 rows each, in the workspace")         \
    X(row_partials, "float *", "[n / 64][m] sums of rows, in the workspace")   \
    X(dprob, "float *", "[m] gradient of each row's probability")              \
    X(input, "int",                                                            \
      "type before the cast: enum quern_type; 0: rowwise tensor")              \
    X(form, "int", "what is quantized: enum qn_form")                          \
    X(activation, "int", "which one: enum quern_activation")                   \
    X(interleave, "int", "run of features of one half; 0: halves")             \
    X(limit, "float", "constant of the clamped activation")                    \
    X(slope, "float", "constant of the clamped activation")                    \
    X(shift, "float", "constant of the clamped activation")                    \
    X(scale, "float *", "delayed scaling: factor, and its inverse")            \
    X(history, "float *", "delayed scaling: largest magnitudes, newest first") \
    X(flags, "unsigned int *", "flags for later launches, in the workspace")   \
    X(random, "const unsigned long long *", "seed and offset of the rounding") \
    X(host_sizes, "const __grid_constant__ struct host_sizes", "by value")     \
    X(device_sizes, "int *", "where these go, in the workspace")               \
    X(factors, "float *", "[2][groups] alpha and beta, or null")               \
    X(align, "int", "rows of a group are padded to multiples of so many")      \
    X(bases, "const unsigned int *", "[2] largest codes of A's and B's scales")

enum qn_param {
#define QN_PARAM_ENUM(name, type, meaning) QN_PARAM_##name,
    QN_PARAMS(QN_PARAM_ENUM)
#undef QN_PARAM_ENUM
        QN_PARAM_COUNT
};

/*
** Work that is no product. Values go on where enum quern_op ends.
*/
enum qn_cast_op {
    QN_QUANTIZE = QUERN_WGRAD + 1,
    QN_AMAX,       /* the largest magnitudes that quantize then needs */
    QN_DEQUANTIZE, /* a copy back to numbers */
    QN_HISTORY,    /* delayed scaling: the next scale */
    QN_SUM,        /* dbias, from what quantize has summed */
    QN_DPROB,      /* the gradient of each row's probability */
    QN_SIZES,      /* sizes from the host to where the others read them */
    QN_FACTORS,    /* factors and sizes of what was dequantized in a pass */
    QN_BIAS,       /* a bias of each group, added to numbers */
    QN_REQUANTIZE, /* a copy as one of FP8 in blocks */
    QN_SUM_ROWS,   /* dprob, from what a product has summed */
    QN_RANGE,      /* whether two operands' values fit f16 */
    QN_EPILOGUE    /* bias and activation, of sums that a product left */
};

/* What is quantized: numbers as they are, an activation's result, or the
   gradient of what the activation was given; or numbers where nothing but the
   rowwise tensor is wanted, of which a kernel reads whole rows.
                                                     COUPLED: forms */
enum qn_form { QN_PLAIN, QN_FORWARD, QN_BACKWARD, QN_ROWS };

/*
** The error record, four 32-bit words at the start of the workspace. Group
** checks run in order, and the first that fails is recorded:
**   [0] code   [1] group   [2] low and [3] high word of the offending value
**   [4] part, of a merged launch
**                                              COUPLED: errors
*/
#define QN_SIZE_ERRORS(X)                                                      \
    X(NEGATIVE, 1, "a group's size is negative")                               \
    X(PAST_END, 2, "a group ends past the rows of the buffer")                 \
    X(OVERLAP, 3, "a group starts before the previous one ends")

#define QN_WORKSPACE_BYTES 256

/* Words that say which of two products runs: the flag of the one that is tried,
   of the one behind it; then, of f16, the largest codes of A's scales and of
   B's. COUPLED: f16 */
enum { QN_F16_BASES = 2, QN_FLAGS = 4 };

/*
** What a kernel does with the product. A problem with alpha, or with any beta,
** needs SCALE, which serves the others too: see QN_PARAMS for its nulls; where
** beta is 0 ALPHA will do. One with a bias or an activation needs ACTIVATE, or
** where copies are wanted of the result COPIES; one whose result goes back
** through an activation needs GRADIENT or GRADIENT_COPIES. These serve no
** other.
*/
enum qn_epilogue {
    QN_STORE,    /* D = A*B */
    QN_ADD,      /* D += A*B: C is D, beta is 1 */
    QN_ALPHA,    /* D = alpha*A*B */
    QN_SCALE,    /* D = alpha*A*B + beta*C */
    QN_ACTIVATE, /* P = alpha*A*B + bias, D = activation(P) * probability */
    QN_COPIES,   /* the same, D as the copies of an x that quantize makes */
    QN_GRADIENT, /* D = alpha*A*B * probability * activation'(P) */
    QN_GRADIENT_COPIES /* the same, D as copies of a dy */
};

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
    const char *reason; /* what the user reads when it fails */
};

/* What shares a scale. */
enum qn_span { QN_SPAN_BLOCK, QN_SPAN_ROW, QN_SPAN_GROUP, QN_SPAN_TENSOR };

/* How a matrix of scales lies: row by row, column by column, or in tiles of
   128 x 4 as Blackwell reads them. */
enum qn_order { QN_ORDER_ROWS, QN_ORDER_COLUMNS, QN_ORDER_TILES };

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
};

enum { QN_TENSORS = 3 }; /* x, w, dy: enum quern_of */

/* How one recipe stores the tensors of a layer. */
struct qn_recipe {
    const char *name;
    const char *doc;  /* the spec file's leading comment, one line */
    const char *spec; /* file:line */
    int x, w, dy;     /* enum quern_type */
    unsigned d_types; /* bit (1 << enum quern_type); default_d is one */
    int default_d;
    int scaled;        /* 0: values as they are, no sf anywhere */
    const char *scale; /* one line for people: "none", "e8m0 per 1x32" */
    const char *rule;  /* of x, for people; "" without scales */
    int promote;       /* values of k summed apart; 0: all together */
    struct qn_scaling scaling[QN_TENSORS]; /* by enum quern_of */
};

struct qn_kernel {
    const char *name;     /* symbol = file name = name in the registry */
    const char *spec;     /* file:line of the kernels spec */
    const char *template; /* path below templates/ */
    const char *key;      /* sha256 of the source, in hex; see gen/gen.h */
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
    const char *schedule;   /* "cooperative", "pingpong", "" */
    const char *addend;     /* how C arrives: "reduce", "read", "fetch", .. */
    const char *dequantize; /* where codes become bf16: "shared", "registers";
                               "swapped": registers, and D turned */
    const char *becomes;    /* what they become: "bf16", "f16" with
                               QN_PARAM_bases, or "either", by tiles */
    const char *quantize; /* "mainloop": the mainloop quantizes A; "pass", "" or
                             NULL: A's copy is there */
    const char *activation; /* of these: the one they make; "any": that of
                               its parameter, and any interleave */
    int interleave;
    int threads;
    int microbatches;            /* that a launch may merge, at least
                                    1 */
    int ctas;                    /* on a multiprocessor, of persistent casts */
    int smem;                    /* bytes of dynamic shared memory */
    int shipped;                 /* named by specs/kernels/shipped.lua */
    const unsigned char *params; /* enum qn_param */
    int nparams;
    const struct qn_requires *requires;
    int nrequires;
    /* What a build linked in; NULL otherwise. */
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

/* What a program that was built with another version of these structures or of
   QN_PARAMS has another number for. */
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

/* The registry of the embedded specs; host kernels are linked in. */
extern const struct quern_registry qn_registry_builtin;

#endif
