/* SPDX-License-Identifier: Apache-2.0 */
/* test_served.c: recipe x op x epilogue x architecture, and the host: a valid
   line has a plan, whose workspace is not more than was stated. */
#define _GNU_SOURCE
#include "devices.h"
#include "log.h"
#include "base/types.h"

#include <stdlib.h>

/* Activations, what comes with each, and types of D ("" is the recipe's). */
static const char *const runs[] = {"", " interleave=1", " interleave=8",
                                   " interleave=32"};
static const char *const results[] = {"", " d=f32", " d=f16"};

/* After "fprop R" and "dgrad R": what comes with an activation, and what is a
   line without one. */
static const char *const forward[] = {"",
                                      " bias=1 prob=1 saved=1",
                                      " copies=both saved=1",
                                      " alpha=any outside=zero saved=1",
                                      " sizes=host copies=rowwise",
                                      " bias=1 quantize=auto prob=1"};
static const char *const backward[] = {
    "",
    " prob=1 dbias=1 dprob=1",
    " copies=both dbias=add",
    " alpha=any prob=1 dprob=1",
    " sizes=host copies=rowwise prob=1 dbias=1 dprob=1",
    " quantize=auto"};
static const char *const plain[] = {
    "",
    " beta=1",
    " alpha=any beta=any",
    " copies=both",
    " quantize=auto",
    " sizes=host",
    " outside=zero",
    " dequantize=mainloop",
    " dequantize=pass",
    " quantize=auto dequantize=pass",
};
static const char *const biased[] = {
    " bias=1",
    " bias=1 prob=1 alpha=any",
    " bias=1 copies=both",
    " bias=1 sizes=host",
    " bias=1 quantize=auto outside=zero",
    " bias=1 dequantize=pass",
    " bias=1 prob=1 activation=geglu interleave=1 dequantize=pass",
};

/* A kernel that dequantizes in the mainloop leaves sums, if the recipe writes
   fp32. */
static const char *const mainloop[] = {
    " bias=1 dequantize=mainloop",
    " bias=1 prob=1 activation=swiglu dequantize=mainloop"};

/* A strategy that a line names may need what only Hopper's kernels have. */
static const char *const hopper[] = {" dequantize=fp8", " dequantize=f16",
                                     " bias=1 dequantize=fp8"};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { SHOWN = 20 };

static struct {
    struct quern_context *ctx;
    int device, own, valid, unserved, apart, ran;
} walk;

static void complain(const char *line, const char *what)
{
    if (walk.unserved++ < SHOWN)
        print_error("%s | %s: %s\n", line, device_word(walk.device), what);
}

/* The text of qn_why must name the launches. */
static void try_why(const char *line, const struct qn_problem *p,
                    const struct qn_plan_options *options)
{
    char *why = NULL;

    if (qn_why(walk.ctx, p, options, NULL, &why))
        complain(line, quern_errmsg());
    else if (!strstr(why, "\n> "))
        complain(line, "qn_why names no kernel");
    walk.apart += why && strstr(why, "_epilogue_") != NULL;
    quern_free(why);
}

/* Results are of Hopper GPUs only. */
static void check_evidence(const char *line, int evidence)
{
    if (evidence == QUERN_EVIDENCE_NONE)
        complain(line, "its plan has no evidence");
    if (evidence == QUERN_EVIDENCE_RUN && walk.device)
        complain(line, "its plan claims that it ran on such a GPU");
    walk.ran += evidence == QUERN_EVIDENCE_RUN;
}

static void try_plan(const char *line, const struct qn_problem *p,
                     const struct qn_description *need, int backend)
{
    const struct qn_plan_options options = {.backend = backend};
    struct quern_plan_info info;
    struct qn_plan *plan;

    if (qn_plan(walk.ctx, p, &options, &plan)) {
        complain(line, quern_errmsg());
        return;
    }
    qn_plan_info(plan, &info);
    if (info.workspace_bytes > need->workspace_bytes)
        complain(line, "its plan has a larger workspace than is described");
    if (backend == QUERN_BACKEND_AOT)
        check_evidence(line, info.evidence);
    qn_plan_free(plan);
    try_why(line, p, &options);
}

static void try_line(const char *line)
{
    struct qn_description need;
    struct qn_problem p;

    if (qn_problem_parse(walk.ctx, line, &p) ||
        qn_problem_describe(walk.ctx, &p, &need))
        return;
    walk.valid++;
    try_plan(line, &p, &need, QUERN_BACKEND_AOT);
    if (!walk.device && walk.own)
        try_plan(line, &p, &need, QUERN_BACKEND_HOST);
}

/* Sizes that fit every kernel's rules, and for bias and activation odd ones. */
static void try_product(const char *op, const char *recipe, const char *d,
                        const char *epilogue)
{
    static const char *const sizes[] = {"m=1000 n=512 k=512",
                                        "m=1000 n=520 k=576"};
    char line[256];

    for (int i = 0; i < COUNT(sizes); i++) {
        snprintf(line, sizeof line, "%s %s g=4 %s%s%s", op, recipe, sizes[i], d,
                 epilogue);
        try_line(line);
    }
}

/* One of them with all runs, each of the others with one. */
static void try_activations(const char *recipe, const char *d)
{
    char epilogue[128];

    for (int i = 0; i < (QUERN_ACTIVATION_COUNT - 1) * COUNT(runs); i++) {
        const int a = i / COUNT(runs), r = i % COUNT(runs);
        const char *activation = qn_activation_name(1 + a);

        for (int j = 0; j < COUNT(forward) && (!a || r == a % COUNT(runs));
             j++) {
            snprintf(epilogue, sizeof epilogue, " activation=%s%s%s",
                     activation, runs[r], forward[j]);
            try_product("fprop", recipe, d, epilogue);
            snprintf(epilogue, sizeof epilogue, " activation=%s%s%s",
                     activation, runs[r], backward[j]);
            try_product("dgrad", recipe, d, epilogue);
        }
    }
}

static void try_recipe(const char *recipe)
{
    static const char *const ops[] = {"fprop", "dgrad", "wgrad"};

    for (int d = 0; d < COUNT(results); d++) {
        for (int i = 0; i < COUNT(plain); i++)
            for (int op = 0; op < COUNT(ops); op++)
                try_product(ops[op], recipe, results[d], plain[i]);
        for (int i = 0; i < COUNT(biased); i++)
            try_product("fprop", recipe, results[d], biased[i]);
        for (int i = 0; i < COUNT(mainloop) && walk.own; i++)
            try_product("fprop", recipe, results[d], mainloop[i]);
        for (int i = 0; i < COUNT(hopper) && !walk.device; i++)
            for (int op = 0; op < COUNT(ops); op++)
                try_product(ops[op], recipe, results[d], hopper[i]);
        try_activations(recipe, results[d]);
    }
}

/* All recipes that write D in these types alone. quern's `own` write fp32, and
   have kernels for the host. */
static void try_recipes(unsigned d_types, int own)
{
    const struct quern_registry *registry = device_registry();

    memset(&walk, 0, sizeof walk);
    walk.own = own;
    for (; walk.device < DEVICES; walk.device++) {
        walk.ctx = device_use(walk.device);
        for (int r = 0; r < registry->nrecipes; r++)
            if (!(registry->recipes[r].d_types & ~d_types))
                try_recipe(registry->recipes[r].name);
    }
    print_message("  %d valid lines, %d with an epilogue of its own, %d of "
                  "kernels that ran\n",
                  walk.valid, walk.apart, walk.ran);
    if (walk.unserved)
        fail_msg("%d valid lines are not served", walk.unserved);
    assert_true(walk.apart > 0);
}

TEST(served_lines)
{
    try_recipes(~0u, 1);
}

/* Recipes that write no fp32: sums are those of dequantized operands. Their
   kernels for the host would have to be compiled. */
TEST(served_mixes)
{
    device_specs("tests/gpu/specs");
    try_recipes(~(1u << QUERN_F32), 0);
}
