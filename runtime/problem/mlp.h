/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp.h: shared declarations of the grouped MLP.
**
** It is made of tensors that may be quantized and of products of these, each
** named by its result. A phase is a list of steps, each a cast or a product:
** one kernel that does the work of two steps takes the place of one of them,
** and the other has no plan then.
*/
#ifndef QUERN_PROBLEM_MLP_H
#define QUERN_PROBLEM_MLP_H

#include "internal.h"

struct quern_context;

/* Launches of casts: those of tensors (enum quern_mlp_tensor), then b2's
   gradient from dy, and with a probability that one's; biases that the product
   before does not add; x's columnwise tensor, in backward; and dy's, if the
   rowwise one has tokens. */
enum {
    QN_MLP_B2 = QUERN_MLP_TENSORS,
    QN_MLP_ADD_B1,
    QN_MLP_ADD_B2,
    QN_MLP_X_LATER,
    QN_MLP_DY_LATER,
    QN_MLP_CASTS
};

/* And of products. */
enum qn_mlp_product {
    QN_MLP_PRE = QN_MLP_CASTS, /* x w1^T */
    QN_MLP_Y,                  /* h w2^T */
    QN_MLP_DH,                 /* dy w2 */
    QN_MLP_DX,                 /* dpre w1 */
    QN_MLP_DW2,                /* dy^T h */
    QN_MLP_DW1,                /* dpre^T x */
    QN_MLP_LAUNCHES
};

/* A tensor that runs make. Rows of x, h, dy and dpre are their rowwise
   tensors, columns their columnwise tensors. */
enum qn_mlp_slot {
    QN_MLP_PRE_SLOT,
    QN_MLP_DH_SLOT,
    QN_MLP_ROW, /* + enum quern_mlp_tensor */
    QN_MLP_COLUMN = QN_MLP_ROW + QUERN_MLP_TENSORS,
    QN_MLP_SLOTS = QN_MLP_COLUMN + QUERN_MLP_TENSORS
};

enum qn_mlp_buffer { QN_MLP_WORKSPACE, QN_MLP_SAVED, QN_MLP_PENDING };

/* One of them: all but the address, and its offset in the buffer. */
struct qn_mlp_slice {
    struct qn_tensor need; /* ndim 0: there is none */
    int buffer;            /* enum qn_mlp_buffer */
    size_t at;             /* then its scales, then those above these */
};

struct qn_mlp_space {
    struct qn_mlp_slice places[QN_MLP_SLOTS];
    size_t scratch;                   /* of the workspace, where they begin */
    size_t saved, pending, workspace; /* bytes */
    size_t sizes;    /* where in the workspace those from the host are */
    int without_pre; /* 1: no launch writes pre */
    int of_tokens, dy_of_tokens; /* 1: x's or dy's rowwise tensor has tokens,
                                    not rows */
};

extern const char *const qn_mlp_phase_names[QUERN_PHASES];
extern const int qn_mlp_phase_order[QUERN_PHASES]; /* weights come first */

struct qn_mlp_step {
    int phase;
    int index; /* of a launch */
    const char *name;
};
enum { QN_MLP_STEPS = 19 };
extern const struct qn_mlp_step qn_mlp_steps[QN_MLP_STEPS];

/* The step of a launch: the first, if two are it. */
const struct qn_mlp_step *qn_mlp_step_of(int index);

/* Is it one of backward that forward has, too: only with recompute, by the
   same plan, so that pre has the same bytes? */
int qn_mlp_again(const struct qn_mlp_step *step);

/* Features that the activation is given: of pre. */
int64_t qn_mlp_operands(const struct qn_mlp *mlp);

/* Does the MLP have the phase (enum quern_phase)? */
int qn_mlp_has(const struct qn_mlp *mlp, int phase);

/* QUERN_EINVAL: the phase that the caller asks for is none of a forward-only
   MLP's. */
int qn_mlp_refuse(const struct qn_mlp *mlp, int phase);

/* Does the recipe scale the tensor (enum quern_mlp_tensor)? */
int qn_mlp_scaled(const struct qn_recipe *recipe, int tensor);

/* Have weights only their rowwise tensors, which backward reads, too? */
int qn_mlp_packed(const struct qn_recipe *recipe);

/* Does backward make x's columnwise tensor? Not if the recipe rounds by chance,
   or scales by values of steps before. */
int qn_mlp_later(const struct qn_mlp *mlp, const struct qn_recipe *recipe);

/* The cast that makes a tensor's copies, or one of the others; 0: there is
   none. */
int qn_mlp_cast(const struct quern_context *ctx, const struct qn_mlp *mlp,
                const struct qn_recipe *recipe, int tensor,
                struct qn_quantization *q);

/* Tokens of a layer, each of which is topk of the MLP's. */
static inline int64_t qn_mlp_token_count(const struct qn_mlp *mlp)
{
    return mlp->m / mlp->topk;
}

/* The cast of x or dy becomes a rowwise one of tokens, in order. */
void qn_mlp_tokens(const struct qn_mlp *mlp,
                   struct qn_quantization *quantization);

/* The recipe of dw1 and dw2. Gradients of packed weights are those of their
   values, next to which nothing has scales. */
const struct qn_recipe *qn_mlp_gradients(const struct quern_context *ctx,
                                         const struct qn_recipe *recipe);

/* A product, and which tensors it multiplies. Returns its recipe. */
const struct qn_recipe *qn_mlp_product(const struct quern_context *ctx,
                                       const struct qn_mlp *mlp,
                                       const struct qn_recipe *recipe,
                                       int product, struct qn_problem *problem);
int qn_mlp_operand(int product, int role);

/* The product of pre that makes h, or its copies, in the same launch; 0: the
   recipe's scales are known only when all of h is, and no product makes it. */
int qn_mlp_fused(const struct quern_context *ctx, const struct qn_mlp *mlp,
                 const struct qn_recipe *recipe, struct qn_problem *problem);

/* Make it, or the plain product of pre or of dh, or dh's below, one that reads
   tokens of x or dy through indices; 0: there are rows only, or the recipe
   scales rows together. */
int qn_mlp_gather(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                  struct qn_problem *problem);

/* The product of dh that goes back through the activation in the same launch,
   and makes dpre, or its copies; 0: the recipe's scales are known only when all
   of dpre is. */
int qn_mlp_back(const struct quern_context *ctx, const struct qn_mlp *mlp,
                const struct qn_recipe *recipe, struct qn_problem *problem);

/* The first words of a line of this kind, "mlp" or "moe", and what follows from
   its recipe; `*text` is at the keys then. QUERN_EINVAL. */
int qn_mlp_begin(struct quern_context *ctx, const char **text, const char *kind,
                 struct qn_mlp *mlp);

/* All rules on an MLP. QUERN_EINVAL names field and rule. */
int qn_mlp_check(struct quern_context *ctx, const struct qn_mlp *mlp,
                 const struct qn_recipe **recipe);

/* The tensors of runs: the arguments without addresses, and slices for the
   others, of which `space` has scratch and without_pre. */
void qn_mlp_space_fill(const struct quern_context *ctx,
                       const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                       struct qn_mlp_args *args, struct qn_mlp_space *space);

/* And all that follows from it; the last two may be NULL. */
int qn_mlp_describe(struct quern_context *ctx, const struct qn_mlp *mlp,
                    struct qn_mlp_description *description,
                    struct qn_mlp_space *space,
                    const struct qn_recipe **recipe);

#endif
