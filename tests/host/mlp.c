/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp.c: the grouped MLP through the public header: every recipe and
** activation against a chain in double, sizes that have broken kernels,
** phases apart and together, arguments.
*/
#include "host.h"

#include "oracle/layer.h"
#include "internal.h"
#include "base/types.h"

#include <math.h>
#include <stdio.h>

static const struct qn_options options = {.command = "test_host", .seed = 5};

/* The MLP of a line, with data; `sizes` may be NULL. With `apart` rows of x, y,
   dy and dx begin at the next multiple of 8 elements but one, and pre is
   computed again. */
static void begin_apart(struct qn_layer *l, const char *text,
                        const int64_t *sizes, int apart)
{
    struct qn_mlp mlp;
    int64_t gap = 0;

    if (qn_mlp_parse(host_ctx, text, &mlp))
        fail_msg("%s: %s", text, quern_errmsg());
    mlp.recompute |= apart;
    mlp.outside |= mlp.groups % 2;
    if (apart)
        gap = (mlp.hidden + 15) / 8 * 8 - mlp.hidden;
    if (qn_layer_begin(l, &options, host_ctx, &mlp, QUERN_BACKEND_HOST, sizes,
                       gap))
        fail_msg("%s: %s", text, quern_errmsg());
}

static void begin(struct qn_layer *l, const char *text, const int64_t *sizes)
{
    begin_apart(l, text, sizes, 0);
}

static void run(struct qn_layer *l, const char *text)
{
    if (qn_call_run(&l->call))
        fail_msg("%s: %s", text, quern_errmsg());
}

static void run_phase(struct qn_layer *l, int phase)
{
    l->call.args.phase = phase;
    if (quern_run(l->call.plan, &l->call.args, NULL))
        fail_msg("phase %d: %s", phase, quern_errmsg());
}

/* Backward without the weights' gradients. */
static void leave_gradients(struct qn_layer *l)
{
    const struct quern_args all = l->call.args;

    l->call.args.of[QUERN_ARG_DW1].data = NULL;
    l->call.args.of[QUERN_ARG_DW2].data = NULL;
    run_phase(l, QUERN_PHASE_BACKWARD);
    l->call.args = all;
}

/* As another microbatch does. */
static void use_workspace(struct qn_layer *l)
{
    struct qn_memory *m = &l->call.memory[QUERN_ARG_WORKSPACE];

    memset(m->data + 256, 0xA5, m->bytes - 256);
}

/* Everything that was computed is near the chain in double, and nothing else
   was touched. */
static void check(struct qn_layer *l, const char *text)
{
    struct qn_layer_verdict v;

    if (qn_layer_judge(l, 1 << 20, &v))
        fail_msg("%s: %s", text, quern_errmsg());
    for (int i = 0; v.results[i].name; i++)
        if (!(v.results[i].error <= v.results[i].tolerance))
            fail_msg("%s: %s is %.2e away (at most %.0e)", text,
                     v.results[i].name, v.results[i].error,
                     v.results[i].tolerance);
    if (!v.passed)
        fail_msg("%s: guards %d, untouched %d", text, v.guards, v.untouched);
}

/* Run it and judge; then with rows apart and pre computed again, twice, on
   poison: the same bytes, and nothing between the rows. */
static void try_line(const char *text, const int64_t *sizes)
{
    struct qn_layer one = {0}, two = {0};
    const char *where;

    begin(&one, text, sizes);
    begin_apart(&two, text, sizes, 1);
    run(&one, text);
    check(&one, text);
    run(&two, text);
    check(&two, text);
    assert_int_equal(qn_call_reset(&two.call), 0);
    run(&two, text);
    assert_int_equal(qn_layer_compare(&one, &two, &where), 0);
    if (where)
        fail_msg("%s: %s differs from run to run", text, where);
    qn_call_free(&one.call);
    qn_call_free(&two.call);
}

/* The i-th recipe with gradients; NULL past the last. */
static const struct qn_recipe *recipe_at(int i)
{
    for (int j = 0; j < qn_registry_builtin.nrecipes; j++)
        if (qn_registry_builtin.recipes[j].dy != QUERN_TYPE_NONE && i-- == 0)
            return &qn_registry_builtin.recipes[j];
    return NULL;
}

/* The i-th type that the recipe's products have, around and around. */
static int type_at(const struct qn_recipe *recipe, int i)
{
    int types[4], count = 0;

    for (int type = QUERN_BF16; type <= QUERN_F32; type++)
        if (recipe->d_types >> type & 1)
            types[count++] = type;
    return types[i % count];
}

/* Every recipe with every activation and biases; all else that a line may say,
   in turns. The second expert has no tokens, and some factors are 0. */
TEST(test_mlp_right)
{
    static const int64_t sizes[] = {0, 1, 33, 7};
    static const char *const interleaves[] = {"", " interleave=8",
                                              " interleave=1"};
    const struct qn_recipe *recipe;
    char text[256];

    for (int r = 0; (recipe = recipe_at(r)); r++)
        for (int i = 1; i < QUERN_ACTIVATION_COUNT; i++) {
            int n = r + i, delayed = recipe->scaling[0].history > 0;
            const int kept = recipe->scaling[QN_X].type == QUERN_TYPE_NONE;
            int type = kept ? recipe->x : type_at(recipe, n);

            if (delayed && i > 2)
                continue; /* clears 6 histories of 1024 slots each time */
            snprintf(text, sizeof text,
                     "mlp %s g=4 m=%d hidden=%d ffn=%d in=%s dw=%s beta=%d "
                     "activation=%s prob=%d bias=1%s",
                     recipe->name, 41 + n % 3, n % 4 == 3 ? 49 : 64,
                     n % 4 == 2 ? 136 : 40, qn_type_name(type),
                     qn_type_name(type_at(recipe, n / 2)), n % 2,
                     qn_activation_name(i), n % 3 > 0, interleaves[n % 3]);
            try_line(text, sizes);
        }
}

/* Sizes that have broken kernels, of one recipe of each kind. */
TEST(test_mlp_sizes)
{
    static const char *const names[] = {"bf16", "fp8_block", "mxfp8", "nvfp4"};
    char text[256];

    for (int i = 0; i < qt_npatterns; i++) {
        struct qt_case c = {.what = "sizes", .type = QUERN_BF16, .seed = 3};
        int many;

        qt_case_op(&c, QUERN_FPROP);
        qt_case_layout(&c, &qt_patterns[i]);
        many = c.groups > 100;
        for (int r = 0; r < 4; r++) {
            if (many ? r != i % 4 : r % 2 != i % 2)
                continue;
            snprintf(text, sizeof text,
                     "mlp %s g=%d m=%lld hidden=%d ffn=%d prob=1 bias=%d",
                     names[r], c.groups, (long long)c.m, many ? 8 : 24,
                     many ? 8 : 16, i / 2 % 2);
            try_line(text, c.length);
        }
    }
    try_line("mlp fp8_row g=3 m=0 hidden=40 ffn=24 prob=1 bias=1", NULL);
    try_line("mlp bf16 g=1 m=0 hidden=40 ffn=24 beta=1 dw=f32", NULL);
    try_line("mlp bf16 g=2 m=0 hidden=40 ffn=24 beta=1 bias=1", NULL);
    try_line("mlp bf16 g=2 m=0 hidden=40 ffn=24 bias=1 prob=1", NULL);
}

/* Gradients of the weights later, and forward only: the same bytes; with
   every other recipe of sizes in host_sizes, too. */
TEST(test_mlp_phases)
{
    const struct qn_recipe *recipe;
    char text[256], other[300];

    for (int r = 0; (recipe = recipe_at(r)); r++) {
        struct qn_layer whole = {0}, apart = {0};
        const char *where;

        snprintf(text, sizeof text,
                 "mlp %s g=4 m=150 hidden=64 ffn=24 prob=1 bias=1 beta=%d "
                 "split=skew",
                 recipe->name, r / 2 % 2);
        begin(&whole, text, NULL);
        snprintf(other, sizeof other, "%s%s", text, r % 2 ? " sizes=host" : "");
        begin(&apart, other, NULL);
        run(&whole, text);
        run_phase(&apart, QUERN_PHASE_WEIGHTS);
        run_phase(&apart, QUERN_PHASE_FORWARD);
        assert_memory_equal(apart.call.memory[QUERN_ARG_Y].data,
                            whole.call.memory[QUERN_ARG_Y].data,
                            whole.call.memory[QUERN_ARG_Y].bytes);
        leave_gradients(&apart);
        use_workspace(&apart);
        run_phase(&apart, QUERN_PHASE_WGRAD);
        assert_int_equal(qn_layer_compare(&whole, &apart, &where), 0);
        if (where)
            fail_msg("%s: %s differs from what one call makes", text, where);
        qn_call_free(&whole.call);
        qn_call_free(&apart.call);
    }
}

/* A recomputed pre is kept neither in `saved` nor in forward's workspace;
   nor are the values of scaled x. */
TEST(test_mlp_recompute)
{
    const struct qn_recipe *recipe;
    char text[256], other[300];

    for (int r = 0; (recipe = recipe_at(r)); r++) {
        struct qn_layer whole = {0}, again = {0};
        const char *where;

        snprintf(text, sizeof text,
                 "mlp %s g=4 m=150 hidden=64 ffn=40 prob=1 bias=%d split=skew",
                 recipe->name, r % 2);
        snprintf(other, sizeof other, "%s recompute=1%s", text,
                 r % 3 ? "" : " sizes=host");
        begin(&whole, text, NULL);
        begin(&again, other, NULL);
        assert_true(again.call.memory[QUERN_ARG_SAVED].bytes <
                    whole.call.memory[QUERN_ARG_SAVED].bytes);
        run(&whole, text);
        run_phase(&again, QUERN_PHASE_WEIGHTS);
        run_phase(&again, QUERN_PHASE_FORWARD);
        use_workspace(&again);
        if (recipe->scaling[QN_X].type != QUERN_TYPE_NONE)
            qn_memory_clear(&again.call.memory[QUERN_ARG_X], QN_MEMORY_POISON);
        run_phase(&again, QUERN_PHASE_BACKWARD);
        assert_int_equal(qn_layer_compare(&whole, &again, &where), 0);
        if (where)
            fail_msg("%s: %s differs from what saved pre gives", text, where);
        qn_call_free(&whole.call);
        qn_call_free(&again.call);
    }
}

/* The three numbers of clamped_swiglu reach h and dpre, made in a product's
   launch or by a cast. */
TEST(test_mlp_limits)
{
    static const char *const recipes[] = {"bf16", "fp8_block", "nvfp4"};

    for (int i = 0; i < 12; i++) {
        struct qn_layer usual = {0}, other = {0};
        char text[128];

        snprintf(text, sizeof text,
                 "mlp %s g=2 m=60 hidden=64 ffn=32 activation=clamped_swiglu",
                 recipes[i % 3]);
        begin(&usual, text, NULL);
        begin(&other, text, NULL);
        if (i / 3 == 1)
            other.call.args.limit = 0.25f;
        else if (i / 3 == 2)
            other.call.args.slope = 1;
        else if (i / 3 == 3)
            other.call.args.shift = 0.5f;
        run(&usual, text);
        run(&other, text);
        for (int k = 0; k < 2; k++) {
            const int arg = k ? QUERN_ARG_DX : QUERN_ARG_Y;

            if (!memcmp(usual.call.memory[arg].data,
                        other.call.memory[arg].data,
                        usual.call.memory[arg].bytes) != !(i / 3))
                fail_msg("%s: %s as before with other values (%d)", text,
                         qn_api_name(arg), i / 3);
        }
        qn_call_free(&usual.call);
        qn_call_free(&other.call);
    }
}

/* ------------------------------------------------------------------- queue */

/* All but the weights' gradients. */
static void run_back(struct qn_layer *l)
{
    run_phase(l, QUERN_PHASE_WEIGHTS);
    run_phase(l, QUERN_PHASE_FORWARD);
    leave_gradients(l);
    use_workspace(l);
}

/* fp32 of both, which one launch may have summed up in another order. */
static void compare_sums(const struct qn_memory *seen, const float *expected,
                         int merged, const char *text)
{
    const float *sums = (const float *)(const void *)seen->data;

    if (!merged && memcmp(sums, expected, seen->bytes))
        fail_msg("%s: other bytes than those of single calls", text);
    for (size_t i = 0; i < seen->bytes / sizeof(float); i++)
        if (!(fabsf(sums[i] - expected[i]) <= 2e-5f * (1 + fabsf(expected[i]))))
            fail_msg("%s: %g is %g after single calls", text, (double)sums[i],
                     (double)expected[i]);
}

/* Two microbatches, the second one added to the first, one after the other and
   by a queue, where both wait or none does. */
static void try_queue(const char *recipe, int microbatches)
{
    static const int made[] = {QUERN_ARG_DW1, QUERN_ARG_DW2};
    struct qn_layer first = {0}, second = {0};
    struct quern_queue *queue, *narrow;
    float *expected[2];
    char text[256];

    snprintf(text, sizeof text,
             "mlp %s g=4 m=150 hidden=64 ffn=24 prob=1 dw=f32 split=skew "
             "microbatches=%d",
             recipe, microbatches);
    begin(&first, text, NULL);
    snprintf(text + strlen(text), sizeof text - strlen(text), " beta=1");
    begin(&second, text, NULL);
    run_back(&first);
    run_back(&second);
    for (int i = 0; i < 2; i++)
        second.call.args.of[made[i]].data = first.call.args.of[made[i]].data;
    run_phase(&first, QUERN_PHASE_WGRAD);
    run_phase(&second, QUERN_PHASE_WGRAD);
    for (int i = 0; i < 2; i++) {
        struct qn_memory *dw = &first.call.memory[made[i]];

        expected[i] = malloc(dw->bytes);
        assert_non_null(expected[i]);
        memcpy(expected[i], dw->data, dw->bytes);
        qn_memory_clear(dw, QN_MEMORY_POISON);
    }
    assert_int_equal(quern_queue_create(host_ctx, 4, &queue), 0);
    assert_int_equal(quern_queue_create(host_ctx, 3, &narrow), 0);
    for (int i = 0; i < 2; i++) {
        const struct qn_call *c = i ? &second.call : &first.call;

        assert_int_equal(quern_queue_put(queue, c->plan, &c->args, 7), 0);
        assert_int_equal(quern_queue_count(queue, 7), 2 * (i + 1));
        assert_int_equal(quern_queue_put(narrow, c->plan, &c->args, 7),
                         i ? QUERN_EFULL : QUERN_OK);
        assert_int_equal(quern_queue_count(narrow, 7), 2);
    }
    assert_int_equal((unsigned char)*first.call.memory[QUERN_ARG_DW1].data,
                     QN_MEMORY_POISON);
    assert_int_equal(quern_queue_flush(queue, 7, 0, NULL), 0);
    for (int i = 0; i < 2; i++) {
        compare_sums(&first.call.memory[made[i]], expected[i], microbatches > 1,
                     text);
        free(expected[i]);
    }
    quern_queue_destroy(queue);
    quern_queue_destroy(narrow);
    qn_call_free(&first.call);
    qn_call_free(&second.call);
}

TEST(test_mlp_queue)
{
    const struct qn_recipe *recipe;

    for (int r = 0; (recipe = recipe_at(r)); r++)
        for (int microbatches = 1; microbatches <= 4; microbatches += 3)
            try_queue(recipe->name, microbatches);
}

/* ---------------------------------------------------------------- arguments */

/* Rules of the library's own arguments, of which some cannot be broken through
   quern.h. */
#define REFUSED(line, phase, change, says)                                     \
    do {                                                                       \
        struct qn_layer l = {0};                                               \
        union qn_given given;                                                  \
        struct qn_mlp_args *a = &given.mlp;                                    \
        begin(&l, line, NULL);                                                 \
        assert_int_equal(qn_api_given(l.call.plan, &l.call.args, &given), 0);  \
        change;                                                                \
        assert_int_equal(                                                      \
            qn_mlp_run(l.call.plan->of.mlp, a, QUERN_PHASE_##phase, NULL),     \
            QUERN_EINVAL);                                                     \
        if (!strstr(quern_errmsg(), says))                                     \
            fail_msg("'%s' lacks '%s'", quern_errmsg(), says);                 \
        qn_call_free(&l.call);                                                 \
    } while (0)

TEST(test_mlp_arguments)
{
    static const char scaled[] = "mlp nvfp4 g=4 m=60 hidden=32 ffn=16 prob=1";
    static const char plain[] = "mlp bf16 g=4 m=60 hidden=32 ffn=16";
    static const char biased[] =
        "mlp mxfp8 g=4 m=60 hidden=32 ffn=16 prob=1 bias=1";

    REFUSED(scaled, FORWARD, a->x.data = NULL, "x is NULL");
    REFUSED(scaled, FORWARD, a->w1_row.data = NULL, "w1_rowwise is NULL");
    REFUSED(scaled, FORWARD, a->saved = a->workspace, "overlaps");
    REFUSED(scaled, FORWARD, a->y.data = a->saved, "saved overlaps y");
    REFUSED(scaled, BACKWARD, a->random = (void *)a->dx.data,
            "dx overlaps random");
    REFUSED(scaled, BACKWARD, a->random = a->workspace,
            "workspace overlaps random");
    REFUSED(scaled, FORWARD, a->y.stride = 36, "at multiples of 16 bytes");
    REFUSED(biased, BACKWARD, a->db2 = a->dprob, "dprob overlaps db2");
    REFUSED(biased, BACKWARD, a->db1 = (float *)a->b1, "db1 overlaps b1");
    REFUSED(biased, FORWARD, a->y.data = (void *)a->b2, "y overlaps b2");
    REFUSED(biased, BACKWARD, a->db2 = (float *)a->b2, "db2 overlaps b2");
    REFUSED(biased, BACKWARD, a->db2 = (void *)a->dy.data, "db2 overlaps dy");
    REFUSED(scaled, WEIGHTS, a->w1.data = NULL, "w1 is NULL");
    REFUSED(plain, FORWARD, a->w1.data = NULL, "w1 is NULL");
    REFUSED(plain, WGRAD, a->dy.data = NULL, "dy is NULL");
    REFUSED("mlp nvfp4 g=4 m=60 hidden=32 ffn=16 recompute=1", BACKWARD,
            a->w1_row.data = NULL, "w1_rowwise is NULL");
    REFUSED("mlp bf16 g=4 m=60 hidden=32 ffn=16 recompute=1", BACKWARD,
            a->x.data = NULL, "x is NULL");
}

/* Each text, and a part of its message. */
static const struct {
    const char *text, *says;
} texts[] = {
    {"", "an MLP begins with mlp"},
    {"mlp", "a recipe is expected after 'mlp'"},
    {"mlp fp8_blok g=1", "did you mean 'fp8_block'?"},
    {"mlp bf16 g=1 m=1 hidden=8", "ffn= is missing"},
    {"mlp bf16 g=1 m=1 hiden=8", "did you mean 'hidden'?"},
    {"mlp bf16 g=1 m=1 hidden=8 ffn=0", "ffn=0"},
    {"mlp bf16 g=1 m=1 hidden=8 ffn=8 in=f32", "keeps x as bf16"},
    {"mlp bf16 g=1 m=1 hidden=8 ffn=8 dw=f16",
     "dw=f16: recipe bf16 writes bf16, f32"},
    {"mlp w4a16_mxfp4 g=1 m=1 hidden=32 ffn=32 dw=f16",
     "dw=f16: recipe w4a16_mxfp4 takes its dw from wgrad bf16, which writes "
     "bf16, f32"},
    {"mlp w4a8_mxfp4 g=1 m=1 hidden=32 ffn=32 grad=0 in=f16",
     "in=f16: recipe w4a8_mxfp4 writes bf16, f32"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 activation=swigloo",
     "did you mean 'swiglu'"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 activation=none", "an MLP has one"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 interleave=3", "does not divide"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 prob=2", "0 or 1"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 bias=2", "bias=2: 0 or 1"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 recompute=2", "recompute=2: 0 or 1"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 recomput=1", "did you mean 'recompute'"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 biass=1", "did you mean 'bias'"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 split=3", "split=3"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 grad=2", "grad=2: 0 or 1 is"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 grad=0 recompute=1",
     "recompute=1 is about backward, which grad=0 leaves out"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 grad=0 pointers=both",
     "pointers=dw is about backward"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 pointers=b",
     "pointers=b: none, w, dw or both is"},
    {"mlp mxfp8 g=1 m=1 hidden=8 ffn=8 microbatches=9",
     "microbatches=9: 1 to 8"},
};

TEST(test_mlp_texts)
{
    static const char *const right[] = {
        ("mlp fp8_block g=8 m=4096 hidden=7168 ffn=2048 in=bf16 dw=f32 beta=1 "
         "activation=swiglu prob=1 bias=1 recompute=1 microbatches=4 "
         "pointers=dw split=mild"),
        ("mlp bf16 g=1 m=0 hidden=8 ffn=8 in=bf16 dw=bf16 "
         "activation=squared_relu"),
        ("mlp nvfp4 g=2 m=9 hidden=64 ffn=64 in=f32 dw=f16 activation=geglu "
         "interleave=32 grad=0 pointers=w")};
    struct qn_mlp mlp;
    char text[512];

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(qn_mlp_parse(host_ctx, texts[i].text, &mlp),
                         QUERN_EINVAL);
        if (!strstr(quern_errmsg(), texts[i].says))
            fail_msg("%s: '%s' lacks '%s'", texts[i].text, quern_errmsg(),
                     texts[i].says);
    }
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        if (qn_mlp_parse(host_ctx, right[i], &mlp))
            fail_msg("%s: %s", right[i], quern_errmsg());
        qn_mlp_print(&mlp, text, sizeof text);
        assert_string_equal(text, right[i]);
    }
}

/* -------------------------------------------------------------- bad sizes */

/* The group is blamed, and nothing around the buffers is written. */
TEST(test_mlp_bad_sizes)
{
    static const int64_t bad[] = {-1, 301, INT64_MAX, INT64_MIN};
    const struct qn_recipe *recipe;
    char text[256], group[24];

    for (int r = 0; (recipe = recipe_at(r)); r++) {
        struct qn_layer l = {0};
        struct qn_layer_verdict v;

        snprintf(text, sizeof text,
                 "mlp %s g=4 m=300 hidden=40 ffn=24 prob=1 bias=1 "
                 "split=10,140,0,130",
                 recipe->name);
        begin(&l, text, NULL);
        for (int i = 0; i < 4; i++) {
            int64_t *size =
                (int64_t *)(void *)l.call.memory[QUERN_ARG_LENGTHS].data + i;

            *size = bad[i];
            assert_int_equal(qn_call_run(&l.call), QUERN_ESIZES);
            snprintf(group, sizeof group, "group %d", i);
            assert_non_null(strstr(quern_errmsg(), group));
            *size = l.sizes[i];
        }
        assert_int_equal(qn_call_reset(&l.call), 0);
        run(&l, text);
        assert_int_equal(qn_layer_judge(&l, 1 << 20, &v), 0);
        assert_true(v.passed);
        qn_call_free(&l.call);
    }
}
