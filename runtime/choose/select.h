/* SPDX-License-Identifier: Apache-2.0 */
/* select.h: which kernels serve a problem, and which of them is best. */
#pragma once

#include "internal.h"

struct qn_candidate;
struct qn_device;
struct quern_context;

/* The model's estimate of a kernel; model.c has the formulas. */
struct qn_figures {
    double tiles, waves;
    double real; /* share of the tiles' rows and columns that D has */
    double math, copy, store; /* of one tile on one multiprocessor */
    double tile_cycles;       /* these together */
    double again; /* bytes of A and B that memory reads more than once */
    double memory_cycles;   /* for these, and for all operands once */
    double cycles;          /* of the launch, and of one that quantizes */
    double quantize_cycles; /* of that one; 0: nothing is quantized */
};

struct qn_choice {
    const struct qn_candidate *candidate;
    int fits;
    struct qn_figures figures; /* if it fits */
    int wanted;                /* the problem asks for such a kernel */
    char reason[256];          /* if it does not */
};

/* The use of the kernels. */
struct qn_demand {
    const struct qn_problem *problem;
    const struct qn_recipe *recipe;
    const struct qn_device *device; /* NULL: the host's kernels */
    int backend;                    /* HOST, JIT or AOT */
    int sms;                        /* to be used */
    const char *kernel;             /* the only one wanted, or NULL */
    int same_sums;                  /* as of qn_plan_options */
};

/* Strips of tiles that so many CTAs should visit together, at least 1. */
int qn_select_band(const struct qn_problem *problem,
                   const struct qn_kernel *kernel, int ctas);

/* May runs of the kernel get the operand (enum qn_role) by addresses? */
int qn_select_pointers(const struct qn_problem *problem,
                       const struct qn_kernel *kernel, int role);

/* Do the kernel's rules hold? 0 and the reason where one does not. */
int qn_select_requires(const struct qn_problem *problem,
                       const struct qn_kernel *kernel, char *reason,
                       size_t size);

/* 1 if the tensor cores take values as they are, with their scales if they have
   some: nothing is dequantized first. */
int qn_select_takes_codes(const struct qn_kernel *kernel);

/* The order in which the kernel adds along k: kernels of a variant with the
   same number give the same bits (docs/layers.md). */
int qn_select_sums(const struct qn_kernel *kernel);

/* How many products of the problem a launch of the kernel merges, at least
   1. */
int qn_select_microbatches(const struct qn_problem *problem,
                           const struct qn_kernel *kernel);

/* Does the kernel serve the problem's variant: op, layout, ragged axis, types,
   recipe, alpha and beta? */
int qn_select_variant(const struct qn_problem *problem,
                      const struct qn_kernel *kernel);

/* Is there a GPU on which the kernel serves the problem, by sizes, pointers and
   maps? The kernel is one of the problem's variant. */
int qn_select_fits(const struct qn_problem *problem,
                   const struct qn_recipe *recipe,
                   const struct qn_kernel *kernel);

/* All kernels of the variant, those that fit first and the best of them at
   the head; freed with free. QUERN_ENOMEM. */
int qn_select_list(struct quern_context *ctx, const struct qn_demand *demand,
                   struct qn_choice **list, int *count);

/* The backends to try, in order, for the one that is asked for: AUTO with a GPU
   are kernels that the program links, if any, and those that can be compiled.
   Returns how many, 1 or 2. */
int qn_select_backends(const struct quern_context *ctx, int backend,
                       int backends[2]);

/* The first of them, where AUTO asks the backends in the order in which plans
   do. 1; 0: none fits; -1: memory ran out. */
int qn_select_best(struct quern_context *ctx, const struct qn_demand *demand,
                   struct qn_choice *best);

/* Does one serve another problem on the same machine? Its cycles are added.
   QUERN_ENOMEM. */
int qn_select_cycles(struct quern_context *ctx, const struct qn_demand *demand,
                     const struct qn_problem *problem, int *served,
                     double *cycles);

/* Set the message for a problem that nothing serves; QUERN_ENOKERNEL. */
int qn_select_none(struct quern_context *ctx, const struct qn_demand *demand,
                   const struct qn_choice *list, int count);

/* 1 if code for `arch` ("sm_90a", "sm_100f", "sm_90") runs on the device. */
int qn_select_arch(const char *arch, const struct qn_device *device);

/* Are op, recipe, layout and ragged axis of the kernel the problem's? */
int qn_select_product(const struct qn_problem *problem,
                      const struct qn_kernel *kernel);
