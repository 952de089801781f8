/* SPDX-License-Identifier: Apache-2.0 */
/* test_trial.c: the outcomes of trials, where they are kept, and who tells. */
#define _GNU_SOURCE
#include "trial_scene.h"

#include "code/cache.h"
#include "product/plan.h"

/* ----------------------------------------------------------------- outcomes */

TEST(trial_right)
{
    write_checker(RIGHT, WRONG, WRONG, WRONG);
    expect_twice("n_best", "n_best\n", "tried n_best on this GPU", 1);
    assert_int_equal(test_count_files("entries"), 1);
    assert_int_equal(test_verify(), 0); /* an entry as any other */
}

TEST(trial_wrong)
{
    write_checker(WRONG, RIGHT, WRONG, WRONG);
    expect_twice("n_next", "n_best\nn_next\n",
                 "n_best is not used: tried on this GPU, wrong: error 1 in a "
                 "row; n_next serves instead",
                 1);
}

TEST(trial_late)
{
    write_checker(LATE, LATE, RIGHT, WRONG);
    expect_twice("p_best", "n_best\nn_next\np_best\n",
                 "n_best is not used: tried on this GPU, late: it had not "
                 "ended after 0 s; p_best serves instead",
                 1);
}

TEST(trial_crashed)
{
    write_checker(CRASHED, FAILED, RIGHT, WRONG);
    expect_twice("p_best", "n_best\nn_next\np_best\n",
                 "tried on this GPU, failed: the program that tried it ended "
                 "early; p_best serves instead",
                 1);
}

/* Nothing runs: mma.sync as before, untried, and nothing is kept. */
TEST(trial_unable)
{
    write_checker(UNABLE, NOTHING, STUCK, WRONG);
    expect_twice("p_best", "n_best\nn_next\np_best\n",
                 "n_best is not used: it never ran on such a GPU and cannot be "
                 "tried here (out of memory); p_best serves instead",
                 0);
}

TEST(trial_missing)
{
    static const char *const paths[] = {"/nonexistent/quern", "/etc/passwd"};

    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    for (int i = 0; i < 2; i++) {
        setenv("QUERN_CHECKER", paths[i], 1);
        expect("p_best", "", "is not installed with the library");
    }
}

TEST(trial_of_a_folder)
{
    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    setenv("QUERN_CHECKER", "/", 1);
    expect("p_best", "", "cannot be started: Permission denied");
}

TEST(trial_without_processes)
{
    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    test_system.no_spawn = EAGAIN;
    expect("p_best", "", "cannot be started: Resource temporarily unavailable");
    test_system.no_spawn = 0;
    expect("n_best", "n_best\n", "tried n_best");
}

/* A kernel of mma.sync that was wrong never runs; one that was late may. */
TEST(trial_last_resort)
{
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    write_checker(WRONG, WRONG, LATE, WRONG);
    expect("p_best", "n_best\nn_next\np_best\np_next\n",
           "n_best is not used: tried on this GPU, wrong: error 1 in a row; "
           "p_best serves instead");
    test_wipe();
    write_checker(UNABLE, UNABLE, UNABLE, WRONG);
    expect("p_best", "n_best\nn_next\np_best\n", "p_best serves instead");
    write_checker(WRONG, WRONG, WRONG, WRONG);
    ctx = open_trial();
    p = test_problem(ctx, P);
    test_expect(qn_plan(ctx, &p, &aot, &plan), QUERN_ENOKERNEL,
                "p_next is not used: tried on this GPU, wrong: error 1 in a "
                "row; QUERN_TRUST=compiled uses it");
    qn_close(ctx);
}

/* -------------------------------------------------------------------- cache */

static void damage(void)
{
    test_shell("for f in %s/entries/*/object; do chmod u+w $f; echo right 1 "
               "> $f; done");
}

TEST(trial_poisoned)
{
    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    damage(); /* by words that a sum does not cover */
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    /* of others' folders nothing is believed */
    expect("n_next", "", "n_next serves");
    test_shell("chmod go+w %s");
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    test_shell("chmod go-w %s");
    expect("n_next", "", "n_next serves");
}

/* Another driver, another GPU, and a day later, if it was late. */
TEST(trial_expires)
{
    write_checker(LATE, RIGHT, RIGHT, RIGHT);
    expect("n_next", "n_best\nn_next\n", "n_next serves");
    expect("n_next", "", "n_next serves");
    test_system.clock = 25 * 3600;
    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    expect("n_best", "n_best\n", "tried n_best");
    test_system.clock = 3000L * 24 * 3600;
    expect("n_best", "", "");
    test_cuda->version = 13010;
    expect("n_best", "n_best\n", "tried n_best");
    test_cuda->minor = 3;
    write_checker(RIGHT, RIGHT, RIGHT, RIGHT);
    expect("p_best", "p_best\n", "tried p_best"); /* sm_100a is not its */
}

TEST(trial_without_cache)
{
    struct quern_context *ctx;

    setenv("QUERN_CACHE", "", 1);
    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    ctx = open_trial();
    for (int i = 0; i < 3; i++)
        test_expect_choice(ctx, P, &aot, "n_next", QUERN_BACKEND_AOT, 148);
    assert_string_equal(read_file("tried"), "n_best\nn_next\n");
    assert_null(strstr(strstr(test_messages, "serves") + 1, "serves"));
    qn_close(ctx);
}

/* --------------------------------------------------------------------- tune */

/* The tuner measures no kernel that is not right. */
TEST(trial_of_tuner)
{
    static const struct qn_tune_options options = {.backend =
                                                       QUERN_BACKEND_AOT};
    struct quern_tune_result r;
    struct quern_context *ctx;
    struct qn_problem p;
    int seen = 0;

    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    setenv("FAKE_CUDA_TIMES", "n_best=50,n_next=80,p_best=200,p_next=300", 1);
    ctx = open_trial();
    p = test_problem(ctx, "fprop bf16 g=4 m=8192 n=1024 k=256");
    test_expect(qn_tune(ctx, &p, &options, &r), QUERN_OK, "");
    assert_string_equal(r.kernel, "n_next");
    for (int i = 0; i < r.count; i++)
        seen += !strcmp(r.candidates[i].kernel, "n_best") &&
                strstr(r.candidates[i].reason,
                       "tried on this GPU, wrong: error 1 in a row") != NULL;
    assert_true(seen);
    quern_free(r.candidates);
    qn_close(ctx);
}

/* ---------------------------------------------------------------------- why */

static void expect_why(struct quern_context *ctx, const char *part)
{
    struct qn_problem p = test_problem(ctx, P);
    char *why;

    test_expect(qn_why(ctx, &p, &aot, NULL, &why), QUERN_OK, "");
    if (!strstr(why, part))
        fail_msg("lacks '%s':\n%s", part, why);
    quern_free(why);
}

TEST(trial_explained)
{
    struct quern_context *ctx;

    write_checker(WRONG, RIGHT, RIGHT, RIGHT);
    ctx = open_trial();
    expect_why(ctx, "its first use on such a GPU is tried by a program of ");
    expect_why(ctx, "> n_best (linked)\n");
    assert_string_equal(read_file("tried"), ""); /* explanations try nothing */
    test_expect_choice(ctx, P, &aot, "n_next", QUERN_BACKEND_AOT, 148);
    expect_why(ctx, "tried on this GPU\n  n_next: right\n"
                    "  n_best: wrong: error 1 in a row\n");
    expect_why(ctx, "n_best\n    tried on this GPU, wrong: error 1 in a row");
    expect_why(ctx, "> n_next (linked)\n");
    qn_close(ctx);
    ctx = open_trial(); /* of the cache */
    expect_why(ctx, "tried on this GPU\n  n_next: right\n"
                    "  n_best: wrong: error 1 in a row\n");
    expect_why(ctx, "n_best\n    tried on this GPU, wrong: error 1 in a row");
    expect_why(ctx, "> n_next (linked)\n");
    qn_close(ctx);
}
