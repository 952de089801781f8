/* SPDX-License-Identifier: Apache-2.0 */
/* test_process.c: the surroundings of the library: other CUDA contexts,
   children of fork(), many threads, the environment. */
#include "scene.h"

#include <pthread.h>
#include <sys/wait.h>

#define PROBLEM "fprop bf16 g=8 m=1000 n=512 k=256"
#define CAST    "quantize group of=dy g=3 m=200 k=96"

/* ----------------------------------------------------------------- contexts */

/* Current contexts at the time of the plan and of the run. NULL: none; popped:
   destroyed by then. */
static const struct {
    const char *name;
    int plan, run, popped; /* which context, 0: none */
} moments[] = {
    {"the primary context, where none is current", 0, 0, 0},
    {"one that is current later", 0, 1, 0},
    {"a foreign one", 1, 1, 0},
    {"a foreign one that another replaced", 1, 2, 0},
    {"a foreign one that was popped", 1, 0, 0},
    {"a foreign one that was destroyed", 1, 2, 1},
};

/* Run and check; all that a thread had current is so again. */
static void run_in(const struct qn_plan *plan, const struct qn_args *args,
                   int code, const char *says)
{
    void *current = test_cuda->current;
    int launches = test_cuda->launches;

    test_expect(qn_run(plan, args, NULL), code, says);
    assert_int_equal(test_cuda->launches, launches + !code);
    test_expect(qn_check(plan, args, NULL), code, says);
    assert_int_equal(test_cuda->depth, 0);
    assert_ptr_equal(test_cuda->current, current);
}

TEST(runs_where_it_was_planned)
{
    char places[3], *const contexts[] = {NULL, &places[1], &places[2]};

    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        struct quern_context *ctx = test_open();
        struct qn_args args = test_args(ctx, PROBLEM);
        struct qn_plan *plan, *other;
        int gone = moments[i].popped;

        test_cuda->current = contexts[moments[i].plan];
        plan = test_plan(ctx, PROBLEM, NULL);
        test_cuda->current = contexts[moments[i].run];
        test_cuda->destroyed = gone ? contexts[moments[i].plan] : NULL;
        run_in(plan, &args, gone ? QUERN_ECUDA : QUERN_OK,
               gone ? "cuCtxPushCurrent_v2" : "");
        if (!gone)
            assert_ptr_equal(test_cuda->launch_context,
                             moments[i].plan ? (void *)contexts[moments[i].plan]
                                             : (void *)&test_cuda->primaries);
        /* in the current context a new plan runs, even if the old one is
           lost */
        other = test_plan(ctx, PROBLEM, NULL);
        run_in(other, &args, QUERN_OK, "");
        test_cuda->current = test_cuda->destroyed = NULL;
        qn_plan_free(plan);
        qn_plan_free(other);
        test_args_free(&args);
        qn_close(ctx);
        assert_int_equal(test_cuda->primaries, 0);
    }
}

/* --------------------------------------------------------------------- fork */

/* Objects of the parent, which a child must not use. */
struct heritage {
    struct quern_context *ctx;
    struct qn_plan *plan, *host, *products;
    struct qn_quantize_plan *cast;
    struct qn_args args;
    struct qn_quantize_args cast_args;
};

static int refused(int code)
{
    return code == QUERN_EINVAL &&
           strstr(quern_errmsg(), "was made before fork()");
}

/* In the child, whose exit status is the number of failures. */
static int refuse_all(const struct heritage *h)
{
    struct qn_problem p;
    struct qn_quantization q;
    struct qn_plan *plan;
    struct qn_quantize_plan *cast;
    char *text;

    if (!refused(qn_run(h->plan, &h->args, NULL)) ||
        !refused(qn_run(h->host, &h->args, NULL)) ||
        !refused(qn_run(h->products, &h->args, NULL)) ||
        !refused(qn_check(h->plan, &h->args, NULL)) ||
        !refused(qn_quantize_run(h->cast, &h->cast_args, NULL)))
        return 1;
    if (qn_problem_parse(h->ctx, PROBLEM, &p) ||
        qn_quantize_parse(h->ctx, CAST, &q))
        return 2; /* these need nothing of the parent's */
    if (!refused(qn_plan(h->ctx, &p, NULL, &plan)) || plan ||
        !refused(qn_why(h->ctx, &p, NULL, NULL, &text)) || text ||
        !refused(qn_quantize_plan(h->ctx, &q, NULL, &cast)) || cast ||
        !refused(qn_quantize_why(h->ctx, &q, NULL, &text)))
        return 3;
    qn_plan_free(h->plan);
    qn_plan_free(h->products);
    qn_quantize_plan_free(h->cast);
    qn_close(h->ctx);
    return 0;
}

/* The host computes in a child; the driver does not work there. */
static int open_anew(void)
{
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    if (qn_open(NULL, &ctx) || qn_problem_parse(ctx, PROBLEM, &p))
        return 4;
    if (qn_plan(ctx, &p, NULL, &plan) != QUERN_ECUDA ||
        !strstr(quern_errmsg(), "cuInit: initialization error") ||
        !strstr(quern_errmsg(), "a child of fork() has no CUDA"))
        return 5;
    if (qn_plan(ctx, &p, &host, &plan))
        return 6;
    qn_plan_free(plan);
    qn_close(ctx);
    return 0;
}

static int in_child(int (*body)(const struct heritage *),
                    const struct heritage *h)
{
    pid_t child;
    int status;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        alarm(20); /* a child that hangs is an error, too */
        status = body(h);
        _exit(status ? status : open_anew());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void make_heritage(struct heritage *h)
{
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST},
                                 lt = {.backend = QUERN_BACKEND_CUBLASLT};
    struct qn_quantize_description need;
    struct qn_quantization q;

    h->ctx = test_open();
    h->plan = test_plan(h->ctx, PROBLEM, NULL);
    h->host = test_plan(h->ctx, PROBLEM, &host);
    h->products = test_plan(h->ctx, PROBLEM, &lt);
    h->args = test_args(h->ctx, PROBLEM);
    test_expect(qn_quantize_parse(h->ctx, CAST, &q), QUERN_OK, "");
    test_expect(qn_quantize_needs(h->ctx, &q, &need), QUERN_OK, "");
    test_expect(qn_quantize_plan(h->ctx, &q, NULL, &h->cast), QUERN_OK, "");
    h->cast_args = need.args;
}

TEST(refuses_children)
{
    struct heritage h;

    make_heritage(&h);
    assert_int_equal(in_child(refuse_all, &h), 0);
    /* the parent goes on */
    test_expect(qn_run(h.plan, &h.args, NULL), QUERN_OK, "");
    test_expect(qn_run(h.host, &h.args, NULL), QUERN_OK, "");
    qn_plan_free(h.plan);
    qn_plan_free(h.host);
    qn_plan_free(h.products);
    qn_quantize_plan_free(h.cast);
    test_args_free(&h.args);
    qn_close(h.ctx);
}

/* With a kernel that no other thread has asked for. */
static void *plan_slowly(void *user)
{
    const struct qn_plan_options options = {.kernel = "k_cluster"};
    struct qn_problem p;
    struct qn_plan *plan = NULL;
    int code = qn_problem_parse(user, PROBLEM, &p);

    if (!code)
        code = qn_plan(user, &p, &options, &plan);
    qn_plan_free(plan);
    return (void *)(intptr_t)code;
}

/* Forked while another thread compiles, with the generator's lock or without:
   no lock of the child's copy will ever be released. */
TEST(children_of_threads_go_on)
{
    struct heritage h;
    pthread_t thread;
    void *code;

    make_heritage(&h);
    setenv("FAKE_NVRTC_DELAY", "300", 1);
    assert_int_equal(pthread_create(&thread, NULL, plan_slowly, h.ctx), 0);
    while (!test_count("nvrtc compile k_cluster"))
        usleep(1000);
    assert_int_equal(in_child(refuse_all, &h), 0);
    pthread_join(thread, &code);
    assert_null(code);
    qn_plan_free(h.plan);
    qn_plan_free(h.host);
    qn_plan_free(h.products);
    qn_quantize_plan_free(h.cast);
    test_args_free(&h.args);
    qn_close(h.ctx);
}

/* ------------------------------------------------------------------ threads */

enum { THREADS = 32, ROUNDS = 3 };

struct worker {
    pthread_t thread;
    struct quern_context *ctx;
    const struct scene *scene;
    struct scene_memory *memory;
    int code;
};

static void *play_often(void *user)
{
    struct worker *w = user;

    for (int i = 0; i < ROUNDS && !w->code; i++)
        w->code = test_play_in(w->scene, 0, w->ctx, w->memory);
    return NULL;
}

/* All scenes at once in one context, each thread with memory of its own. */
TEST(serves_many_threads)
{
    const struct quern_open_options options =
        test_scene_options(&test_scenes[2]);
    struct worker workers[THREADS] = {{.code = 0}};
    struct quern_context *ctx;

    setenv("QUERN_THREADS", "3", 1);
    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    for (int i = 0; i < THREADS; i++) {
        struct worker *w = &workers[i];

        w->ctx = ctx;
        w->scene = &test_scenes[i % test_scenes_count];
        w->memory = test_scene_memory();
        assert_int_equal(pthread_create(&w->thread, NULL, play_often, w), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].code, QUERN_OK);
        test_scene_memory_free(workers[i].memory);
    }
    qn_close(ctx);
    assert_int_equal(test_cuda->libraries, 0);
    assert_int_equal(test_cuda->depth, 0);
    assert_int_equal(test_cuda->primaries, 0);
}

/* Opened, used and closed by one thread. */
static void *play_apart(void *user)
{
    struct worker *w = user;

    for (int i = 0; i < ROUNDS && !w->code; i++) {
        struct quern_context *ctx;

        w->code = qn_open(NULL, &ctx);
        if (!w->code)
            w->code = test_play_in(w->scene, 0, ctx, w->memory);
        qn_close(ctx);
    }
    return NULL;
}

/* A context for each thread: they share the cache on disk. */
TEST(serves_a_context_for_each_thread)
{
    struct worker workers[THREADS] = {{.code = 0}};

    for (int i = 0; i < THREADS; i++) {
        struct worker *w = &workers[i];

        w->scene = &test_scenes[0];
        w->memory = test_scene_memory();
        assert_int_equal(pthread_create(&w->thread, NULL, play_apart, w), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].code, QUERN_OK);
        test_scene_memory_free(workers[i].memory);
    }
    assert_int_equal(test_count("nvrtc compile"), 4);
}

/* -------------------------------------------------------------- environment */

/* Invalid values of variables, with the result of a plan on the host and on
   the GPU. Harmless ones are not reported. */
static const struct {
    const char *variable, *value;
    int host, gpu;
    const char *says;
} nonsense[] = {
    {"QUERN_THREADS", "many", QUERN_EINVAL, QUERN_OK, "QUERN_THREADS=many: a "},
    {"QUERN_THREADS", "0", QUERN_EINVAL, QUERN_OK, "from 1 to 256"},
    {"QUERN_THREADS", "-1", QUERN_EINVAL, QUERN_OK, "QUERN_THREADS=-1"},
    {"QUERN_THREADS", "99999999999999999999", QUERN_EINVAL, QUERN_OK, "256"},
    {"QUERN_THREADS", "3 ", QUERN_EINVAL, QUERN_OK, "QUERN_THREADS=3 :"},
    {"QUERN_CUDA", "/etc/passwd", QUERN_OK, QUERN_ENODEVICE, "/etc/passwd"},
    {"QUERN_CUDA", "\n", QUERN_OK, QUERN_ENODEVICE, "no CUDA driver"},
    {"QUERN_CUDA", "%s%n%d", QUERN_OK, QUERN_ENODEVICE, "%s%n%d"},
    {"QUERN_NVRTC", "/", QUERN_OK, QUERN_EMISSING, "QUERN_NVRTC: /"},
    {"QUERN_GEN", "/dev/null", QUERN_OK, QUERN_EMISSING, "/dev/null"},
    {"QUERN_CACHE", "/dev/null", QUERN_OK, QUERN_OK, ""},
    {"QUERN_CACHE", ":::", QUERN_OK, QUERN_OK, ""},
    {"QUERN_CACHE", "relative/\nfolder\t%s", QUERN_OK, QUERN_OK, ""},
    {"QUERN_CACHE_SIZE", "12K", QUERN_OK, QUERN_OK, ""},
    {"QUERN_CC", "/dev/null", QUERN_OK, QUERN_OK, ""},
    {"TMPDIR", "/dev/null", QUERN_OK, QUERN_OK, ""},
};

static void plan_for(int backend, int code, const char *says)
{
    const struct qn_plan_options options = {.backend = backend};
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    test_expect(qn_open(NULL, &ctx), QUERN_OK, "");
    p = test_problem(ctx, PROBLEM);
    test_expect(qn_plan(ctx, &p, &options, &plan), code, code ? says : "");
    qn_plan_free(plan);
    qn_close(ctx);
}

TEST(survives_the_environment)
{
    char *folder = getcwd(NULL, 0);

    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        test_teardown(state);
        test_setup(state);
        assert_int_equal(chdir(test_folder), 0); /* of relative paths */
        setenv(nonsense[i].variable, nonsense[i].value, 1);
        plan_for(QUERN_BACKEND_HOST, nonsense[i].host, nonsense[i].says);
        plan_for(QUERN_BACKEND_JIT, nonsense[i].gpu, nonsense[i].says);
        assert_int_equal(chdir(folder), 0);
    }
    free(folder);
}

TEST(refuses_sizes_of_the_cache)
{
    static const char *const wrong[] = {"4 G", "9999999T", "-1", "G", "4Gi"};
    struct quern_context *ctx;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("QUERN_CACHE_SIZE", wrong[i], 1);
        test_expect(qn_open(NULL, &ctx), QUERN_EINVAL,
                    "a number of bytes is expected, as 500M or 4G");
        assert_null(ctx);
    }
}

/* Folders of an open context are those of then, wherever the program goes. */
TEST(stays_where_it_was_opened)
{
    const struct quern_open_options open = {.cache = ":below:",
                                            .tune = "tuned"};
    const struct qn_tune_options options = {.seconds = 2};
    char *folder = getcwd(NULL, 0), path[512];
    struct quern_tune_result result;
    struct quern_context *ctx;
    struct qn_problem p;

    assert_int_equal(chdir(test_folder), 0);
    test_expect(qn_open(&open, &ctx), QUERN_OK, "");
    assert_int_equal(chdir("/proc"), 0); /* where no folder can be made */
    p = test_problem(ctx, PROBLEM);
    test_expect(qn_tune(ctx, &p, &options, &result), QUERN_OK, "");
    assert_int_equal(strncmp(result.file, test_folder, strlen(test_folder)), 0);
    assert_non_null(strstr(result.file, "/tuned/"));
    assert_int_equal(access(result.file, R_OK), 0);
    snprintf(path, sizeof path, "%s/below/entries", test_folder);
    assert_int_equal(access(path, R_OK), 0);
    quern_free(result.candidates);
    qn_close(ctx);
    assert_int_equal(chdir(folder), 0);
    free(folder);
}

/* Options longer than any path, a kernel's name longer than a message. */
TEST(survives_long_strings)
{
    const size_t bytes = 100000;
    char *text = malloc(bytes);
    const struct quern_open_options open = {.cache = text};
    const struct qn_plan_options options = {.kernel = text};
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    assert_non_null(text);
    memset(text, 'x', bytes);
    text[0] = '/';
    text[bytes - 1] = 0;
    test_expect(qn_open(&open, &ctx), QUERN_OK, "");
    plan = test_plan(ctx, PROBLEM, NULL);
    qn_plan_free(plan);
    p = test_problem(ctx, PROBLEM);
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_EINVAL,
                "options.kernel: there is no kernel '/xxx");
    test_expect(qn_problem_parse(ctx, text, &p), QUERN_EINVAL,
                "is too long: a word has at most");
    qn_close(ctx);
    free(text);
}
