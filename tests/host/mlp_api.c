/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_api.c: the grouped MLP through quern.h: matrices given by their
** addresses, phases, buffers and operand tables.
*/
#include "host.h"

#include "api/api.h"
#include "oracle/layer.h"
#include "internal.h"
#include "mlp/mlp_plan.h"

#include <stdio.h>

static const struct qn_options options = {.command = "test_host", .seed = 7};

/* An MLP with data, and a plan and arguments to change. */
struct api {
    char text[256];
    struct qn_layer l;
    struct quern_plan *plan;
    struct quern_args args;
};

static void begin(struct api *a, const char *recipe, const char *rest)
{
    struct quern_plan_options host = QUERN_PLAN_OPTIONS_INIT;
    struct qn_mlp mlp;

    memset(a, 0, sizeof *a);
    host.backend = QUERN_BACKEND_HOST;
    snprintf(a->text, sizeof a->text, "mlp %s g=4 %s", recipe, rest);
    if (qn_mlp_parse(host_ctx, a->text, &mlp) ||
        qn_layer_begin(&a->l, &options, host_ctx, &mlp, QUERN_BACKEND_HOST,
                       NULL, 0) ||
        quern_plan_create(host_ctx, a->text, &host, &a->plan))
        fail_msg("%s: %s", a->text, quern_errmsg());
    a->args = a->l.call.args;
}

static void end(struct api *a)
{
    quern_plan_destroy(a->plan);
    qn_call_free(&a->l.call);
}

static void run(struct api *a, int phase)
{
    a->args.phase = phase;
    if (quern_run(a->plan, &a->args, NULL))
        fail_msg("%s: phase %d: %s", a->text, phase, quern_errmsg());
}

static void run_to_backward(struct api *a)
{
    if (a->args.of[QUERN_ARG_W1_ROWWISE].data)
        run(a, QUERN_PHASE_WEIGHTS);
    run(a, QUERN_PHASE_FORWARD);
    run(a, QUERN_PHASE_BACKWARD);
}

static void refuse(struct api *a, int phase, const char *says)
{
    a->args.phase = phase;
    assert_int_equal(quern_run(a->plan, &a->args, NULL), QUERN_EINVAL);
    if (!strstr(quern_errmsg(), says))
        fail_msg("%s: '%s' lacks '%s'", a->text, quern_errmsg(), says);
}

static void same(const struct api *x, const struct api *y, const char *what)
{
    const char *where;

    assert_int_equal(qn_layer_compare(&x->l, &y->l, &where), 0);
    if (where)
        fail_msg("%s: %s differs, %s", y->text, where, what);
}

static const struct quern_operand *operand(const struct api *a, int arg)
{
    int count;
    const struct quern_operand *o = quern_plan_operands(a->plan, &count);

    for (int i = 0; i < count; i++)
        if (o[i].arg == arg)
            return &o[i];
    return NULL;
}

static const char *recipe_at(int i)
{
    for (int j = 0; j < qn_registry_builtin.nrecipes; j++)
        if (qn_registry_builtin.recipes[j].dy != QUERN_TYPE_NONE && i-- == 0)
            return qn_registry_builtin.recipes[j].name;
    return NULL;
}

/* -------------------------------------------------------------- addresses */

enum { MATRICES = 4 }; /* operands; each of four groups */
static const int given[MATRICES] = {QUERN_ARG_W1, QUERN_ARG_W2, QUERN_ARG_DW1,
                                    QUERN_ARG_DW2};

/* Each in memory of its own, the last group first. */
struct matrices {
    void *at[MATRICES][4];
};

static size_t matrix_bytes(const struct api *a, int i)
{
    return a->l.call.memory[given[i]].bytes / 4;
}

static void scatter(struct api *a, struct matrices *m)
{
    for (int i = 0; i < MATRICES; i++) {
        const size_t bytes = matrix_bytes(a, i);

        for (int g = 3; g >= 0; g--) {
            m->at[i][g] = aligned_alloc(16, (bytes + 15) / 16 * 16);
            assert_non_null(m->at[i][g]);
            memcpy(m->at[i][g],
                   a->l.call.memory[given[i]].data + (size_t)g * bytes, bytes);
        }
        a->args.of[given[i]].data = NULL;
        a->args.of[given[i]].pointers = m->at[i];
    }
}

/* Gradients to where others compare them, poison in their place. */
static void gather(struct api *a, struct matrices *m)
{
    for (int i = 2; i < MATRICES; i++)
        for (int g = 0; g < 4; g++) {
            const size_t bytes = matrix_bytes(a, i);

            memcpy(a->l.call.memory[given[i]].data + (size_t)g * bytes,
                   m->at[i][g], bytes);
            memset(m->at[i][g], QN_MEMORY_POISON, bytes);
        }
}

static void free_matrices(struct matrices *m)
{
    for (int i = 0; i < MATRICES; i++)
        for (int g = 0; g < 4; g++)
            free(m->at[i][g]);
}

/* In one call, in a wgrad of its own and through a queue. */
TEST(test_mlp_pointers)
{
    const char *recipe;

    for (int r = 0; (recipe = recipe_at(r)); r++) {
        struct api one, many;
        struct matrices m;
        struct quern_queue *queue;

        begin(&one, recipe, "m=150 hidden=64 ffn=24 bias=1 split=skew");
        begin(&many, recipe,
              "m=150 hidden=64 ffn=24 bias=1 split=skew pointers=both");
        run_to_backward(&one);
        scatter(&many, &m);
        run_to_backward(&many);
        gather(&many, &m);
        same(&one, &many, "backward with pointers");
        run(&many, QUERN_PHASE_WGRAD);
        gather(&many, &m);
        same(&one, &many, "wgrad with pointers");
        assert_int_equal(quern_queue_create(host_ctx, 4, &queue), 0);
        assert_int_equal(quern_queue_put(queue, many.plan, &many.args, 0), 0);
        assert_int_equal(quern_queue_count(queue, 0), 2);
        assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), 0);
        gather(&many, &m);
        same(&one, &many, "a queue with pointers");
        quern_queue_destroy(queue);
        free_matrices(&m);
        end(&one);
        end(&many);
    }
}

/* Each operand has pointers where the line says so, and only there. */
TEST(test_mlp_pointers_refused)
{
    static const struct {
        const char *recipe, *word;
        int arg, phase;
    } rows[] = {
        {"bf16", "dw", QUERN_ARG_W1, QUERN_PHASE_FORWARD},
        {"bf16", "none", QUERN_ARG_W2, QUERN_PHASE_FORWARD},
        {"mxfp8", "dw", QUERN_ARG_W1, QUERN_PHASE_WEIGHTS},
        {"bf16", "w", QUERN_ARG_DW1, QUERN_PHASE_BACKWARD},
        {"bf16", "w", QUERN_ARG_DW2, QUERN_PHASE_WGRAD},
        {"fp8_block", "none", QUERN_ARG_DW1, QUERN_PHASE_BACKWARD},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *matrices[4] = {NULL};
        char rest[128], says[64];
        struct quern_queue *queue;
        struct api a;

        snprintf(rest, sizeof rest, "m=60 hidden=32 ffn=16 pointers=%s",
                 rows[i].word);
        begin(&a, rows[i].recipe, rest);
        for (int j = 0; j < MATRICES; j++)
            assert_int_equal(operand(&a, given[j])->pointers,
                             !strcmp(rows[i].word, j < 2 ? "w" : "dw"));
        a.args.of[rows[i].arg].data = NULL;
        a.args.of[rows[i].arg].pointers = matrices;
        snprintf(says, sizeof says, "%s.pointers is not NULL",
                 qn_api_name(rows[i].arg));
        refuse(&a, rows[i].phase, says);
        assert_int_equal(quern_queue_create(host_ctx, 4, &queue), 0);
        if (rows[i].phase == QUERN_PHASE_WGRAD)
            assert_int_equal(quern_queue_put(queue, a.plan, &a.args, 0),
                             QUERN_EINVAL);
        quern_queue_destroy(queue);
        a.l.call.args.of[rows[i].arg] = a.args.of[rows[i].arg];
        assert_int_equal(qn_call_run(&a.l.call), QUERN_EINVAL);
        assert_non_null(strstr(quern_errmsg(), says));
        end(&a);
    }
}

/* A wgrad that would compute nothing; one of both is enough. */
TEST(test_mlp_wgrad_of_nothing)
{
    struct quern_queue *queue;
    struct api a;

    begin(&a, "bf16", "m=60 hidden=32 ffn=16");
    assert_int_equal(quern_queue_create(host_ctx, 4, &queue), 0);
    run_to_backward(&a);
    a.args.of[QUERN_ARG_DW1].data = NULL;
    run(&a, QUERN_PHASE_WGRAD);
    a.args.of[QUERN_ARG_DW2].data = NULL;
    refuse(&a, QUERN_PHASE_WGRAD, "dw1 and dw2 are NULL");
    assert_int_equal(quern_queue_put(queue, a.plan, &a.args, 0), QUERN_EINVAL);
    assert_non_null(strstr(quern_errmsg(), "dw1 and dw2 are NULL"));
    run(&a, QUERN_PHASE_BACKWARD);
    quern_queue_destroy(queue);
    end(&a);
}

/* ------------------------------------------------------------ forward only */

/* The bits of a whole MLP's forward, without any operand, kernel or byte that
   only gradients need. */
static int64_t bytes_of(const struct api *a, int arg)
{
    return quern_extent(&operand(a, arg)->bytes, 150);
}

TEST(test_mlp_forward_only)
{
    static const int gone[] = {QUERN_ARG_DY,
                               QUERN_ARG_DX,
                               QUERN_ARG_DW1,
                               QUERN_ARG_DW2,
                               QUERN_ARG_DB1,
                               QUERN_ARG_DB2,
                               QUERN_ARG_DPROB,
                               QUERN_ARG_W1_COLUMNWISE,
                               QUERN_ARG_W2_COLUMNWISE,
                               QUERN_ARG_SAVED,
                               QUERN_ARG_PENDING};
    const char *recipe;

    for (int r = 0; (recipe = recipe_at(r)); r++) {
        struct api whole, a;
        struct qn_layer_verdict v;
        const struct qn_memory *y = &a.l.call.memory[QUERN_ARG_Y];

        begin(&whole, recipe,
              "m=150 hidden=64 ffn=40 prob=1 bias=1 split=skew");
        begin(&a, recipe,
              "m=150 hidden=64 ffn=40 prob=1 bias=1 grad=0 split=skew");
        for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
            assert_null(operand(&a, gone[i]));
        assert_true(bytes_of(&a, QUERN_ARG_WORKSPACE) <
                    bytes_of(&whole, QUERN_ARG_WORKSPACE) +
                        bytes_of(&whole, QUERN_ARG_SAVED));
        for (int i = 0; i < QN_MLP_LAUNCHES; i++)
            if (i >= QN_MLP_DH || i == QUERN_MLP_DY || i == QUERN_MLP_DPRE)
                assert_true(!a.plan->of.mlp->launches[i].product &&
                            !a.plan->of.mlp->launches[i].cast);
        run_to_backward(&whole);
        if (a.args.of[QUERN_ARG_W1_ROWWISE].data)
            run(&a, QUERN_PHASE_WEIGHTS);
        run(&a, QUERN_PHASE_FORWARD);
        if (memcmp(y->data, whole.l.call.memory[QUERN_ARG_Y].data, y->bytes) !=
            0)
            fail_msg("%s: y differs from a whole MLP's", recipe);
        refuse(&a, QUERN_PHASE_BACKWARD, "backward is not possible: grad=0");
        refuse(&a, QUERN_PHASE_WGRAD, "wgrad is not possible: grad=0");
        if (qn_call_run(&a.l.call) || qn_layer_judge(&a.l, 1 << 20, &v))
            fail_msg("%s: %s", a.text, quern_errmsg());
        assert_true(v.passed);
        a.l.call.args.of[QUERN_ARG_SAVED].data =
            a.l.call.memory[QUERN_ARG_WORKSPACE].data;
        assert_int_equal(qn_call_run(&a.l.call), QUERN_EINVAL);
        assert_non_null(strstr(quern_errmsg(), "saved is not NULL"));
        end(&whole);
        end(&a);
    }
}

/* ------------------------------------------------------------------- rows */

/* The operands of a run of 150 rows in buffers of a plan for more: of the bytes
   that its table says for 150, all poison but those that must be zero. */
static void move(const struct api *from, struct api *to, char *memory[3])
{
    static const int buffers[] = {QUERN_ARG_WORKSPACE, QUERN_ARG_SAVED,
                                  QUERN_ARG_PENDING};

    to->args = from->args;
    to->args.rows = 150;
    for (int i = 0; i < 3; i++) {
        const struct quern_operand *o = operand(to, buffers[i]);
        const size_t bytes = (size_t)quern_extent(&o->bytes, 150);

        memory[i] = aligned_alloc(16, (bytes + 15) / 16 * 16);
        assert_non_null(memory[i]);
        memset(memory[i], QN_MEMORY_POISON, bytes);
        memset(memory[i], 0, o->zero_bytes);
        to->args.of[buffers[i]].data = memory[i];
    }
}

enum { RESULTS = 7 };
static const int made[RESULTS] = {QUERN_ARG_DW1,  QUERN_ARG_DW2, QUERN_ARG_DB1,
                                  QUERN_ARG_DB2,  QUERN_ARG_Y,   QUERN_ARG_DX,
                                  QUERN_ARG_DPROB};

/* Other results than before, to see that they are made again. */
static void forget(struct api *a)
{
    for (int i = 0; i < RESULTS; i++)
        qn_memory_clear(&a->l.call.memory[made[i]], QN_MEMORY_POISON);
}

/* Results of `a` as they are now. */
static void keep(const struct api *a, char *results[RESULTS])
{
    for (int i = 0; i < RESULTS; i++) {
        results[i] = malloc(a->l.call.memory[made[i]].bytes + 1);
        assert_non_null(results[i]);
        memcpy(results[i], a->l.call.memory[made[i]].data,
               a->l.call.memory[made[i]].bytes);
    }
}

static void compare(const struct api *a, char *const results[RESULTS],
                    const char *what)
{
    for (int i = 0; i < RESULTS; i++)
        if (memcmp(results[i], a->l.call.memory[made[i]].data,
                   a->l.call.memory[made[i]].bytes) != 0)
            fail_msg("%s: %s differs, %s", a->text, qn_api_name(made[i]), what);
}

/* A plan for 300 rows runs 150 of them: the bits of a plan for these. */
TEST(test_mlp_rows)
{
    static const char *const more[] = {"", " recompute=1", " sizes=host"};
    const char *recipe;

    for (int r = 0; (recipe = recipe_at(r)); r++)
        for (int i = 0; i < 3; i++) {
            char rest[2][128], *memory[3], *results[RESULTS];
            struct quern_queue *queue;
            struct api exact, large;

            for (int k = 0; k < 2; k++)
                snprintf(rest[k], sizeof rest[k],
                         "m=%d hidden=64 ffn=24 prob=1 bias=1 split=skew%s",
                         k ? 300 : 150, more[i]);
            begin(&exact, recipe, rest[0]);
            begin(&large, recipe, rest[1]);
            if (i == 2) {
                exact.args.of[QUERN_ARG_LENGTHS].data = NULL;
                exact.args.host_sizes = exact.l.sizes;
            }
            run_to_backward(&exact);
            keep(&exact, results);
            forget(&exact);
            move(&exact, &large, memory);
            run_to_backward(&large);
            compare(&exact, results, "of a plan for more rows");
            qn_memory_clear(&exact.l.call.memory[QUERN_ARG_DW1],
                            QN_MEMORY_POISON);
            qn_memory_clear(&exact.l.call.memory[QUERN_ARG_DW2],
                            QN_MEMORY_POISON);
            assert_int_equal(quern_queue_create(host_ctx, 4, &queue), 0);
            if (i == 2) {
                run(&large, QUERN_PHASE_WGRAD);
            } else {
                assert_int_equal(
                    quern_queue_put(queue, large.plan, &large.args, 0), 0);
                assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), 0);
            }
            compare(&exact, results, "of a wgrad of its own");
            large.args.rows = 301;
            refuse(&large, QUERN_PHASE_FORWARD, "args.rows is 301");
            quern_queue_destroy(queue);
            for (int k = 0; k < RESULTS; k++)
                free(results[k]);
            for (int part = 0; part < 3; part++)
                free(memory[part]);
            end(&exact);
            end(&large);
        }
}

/* The table of a line holds for lines with fewer rows, but for the workspace,
   which is the plan's, and the other buffers, where it is an upper bound. */
TEST(test_mlp_table)
{
    static const int64_t rows[] = {0, 1, 150, 777, 1000};
    const char *recipe;

    for (int r = 0; (recipe = recipe_at(r)); r++) {
        struct api a;

        begin(&a, recipe, "m=1000 hidden=64 ffn=24 prob=1 bias=1");
        for (int i = 0; i < 5; i++) {
            struct quern_operand *table;
            char line[128];
            int count;

            snprintf(line, sizeof line,
                     "mlp %s g=4 m=%d hidden=64 ffn=24 prob=1 bias=1", recipe,
                     (int)rows[i]);
            assert_int_equal(quern_describe(host_ctx, line, &table, &count), 0);
            for (int k = 0; k < count; k++) {
                const struct quern_operand *o = operand(&a, table[k].arg);
                const int64_t bytes = quern_extent(&o->bytes, rows[i]),
                              exact = quern_extent(&table[k].bytes, rows[i]);

                if (o->arg == QUERN_ARG_WORKSPACE)
                    assert_true(rows[i] < 1000 || bytes <= exact);
                else if (o->arg == QUERN_ARG_SAVED ||
                         o->arg == QUERN_ARG_PENDING)
                    assert_true(bytes >= exact);
                else
                    assert_int_equal(bytes, exact);
            }
            quern_free(table);
        }
        end(&a);
    }
}

/* Lines of about as many rows share a plan of quern_plan_get. */
TEST(test_mlp_plan_shared)
{
    struct quern_plan_options host = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plans[3];

    host.backend = QUERN_BACKEND_HOST;
    for (int i = 0; i < 3; i++) {
        char line[128];

        snprintf(line, sizeof line, "mlp mxfp8 g=4 m=%d hidden=64 ffn=32",
                 i < 2 ? 700 + i : 900);
        assert_int_equal(quern_plan_get(host_ctx, line, &host, NULL, &plans[i]),
                         0);
    }
    assert_ptr_equal(plans[0], plans[1]);
    assert_ptr_not_equal(plans[0], plans[2]);
}

/* ---------------------------------------------------------------- buffers */

/* At 16 bytes, as the operand table says, and no less. */
TEST(test_mlp_alignment)
{
    static const int args[] = {QUERN_ARG_WORKSPACE, QUERN_ARG_SAVED,
                               QUERN_ARG_PENDING};
    const char *recipe;

    for (int r = 0; (recipe = recipe_at(r)); r++) {
        struct api usual, moved;
        char *memory[3];

        begin(&usual, recipe, "m=150 hidden=64 ffn=24 prob=1 split=skew");
        begin(&moved, recipe, "m=150 hidden=64 ffn=24 prob=1 split=skew");
        for (int i = 0; i < 3; i++) {
            const struct quern_operand *o = operand(&moved, args[i]);
            const size_t bytes = (size_t)quern_extent(&o->bytes, 150);

            assert_int_equal(o->alignment, 16);
            assert_int_equal(o->zero_bytes, i ? 0 : 256);
            memory[i] = aligned_alloc(256, bytes / 256 * 256 + 512);
            assert_non_null(memory[i]);
            memset(memory[i], 0xFF, bytes + 16);
            memset(memory[i] + 16, 0, o->zero_bytes);
            moved.args.of[args[i]].data = memory[i] + 16;
        }
        run_to_backward(&usual);
        run_to_backward(&moved);
        same(&usual, &moved, "with buffers at 16 bytes");
        moved.args.of[QUERN_ARG_SAVED].data = memory[1] + 8;
        refuse(&moved, QUERN_PHASE_FORWARD, "it must be a multiple of 16");
        for (int i = 0; i < 3; i++)
            free(memory[i]);
        end(&usual);
        end(&moved);
    }
}
