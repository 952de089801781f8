/* SPDX-License-Identifier: Apache-2.0 */
/* test_tune_file.c: files of measured winners: written lines are read, wrong
   ones are refused by number, and no process loses another's lines. */
#include "test.h"
#include "base/context.h"
#include "base/text.h"
#include "device/cuda_api.h"
#include "product/plan.h"
#include "tuned/tune_file.h"
#include "tuned/tune_store.h"
#include "tune_files.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define DIGITS "012345678901234567890123456789012345678901234567"

static int parse(struct quern_context *ctx, const char *text, size_t bytes,
                 struct qn_tune_file *file)
{
    *file = (struct qn_tune_file){.gpu = "Fake"};
    return qn_tune_file_parse(ctx, "F", text, bytes, file);
}

static void expect_text(const struct qn_tune_file *file, const char *expected)
{
    struct qn_text text = {0};

    qn_tune_file_print(file, &text);
    assert_string_equal(text.data, expected);
    qn_text_free(&text);
}

/* ------------------------------------------------------------------ parsing */

TEST(buckets_are_half_octaves)
{
    static const int64_t edges[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
    struct qn_problem p = {
        .ragged = QUERN_AXIS_K, .groups = 3, .m = 5, .n = 7, .k = 3 * 100 + 2};

    for (size_t i = 0; i + 1 < sizeof edges / sizeof edges[0]; i++) {
        for (int64_t rows = edges[i]; rows < edges[i + 1]; rows++)
            assert_int_equal(qn_tune_file_bucket(rows), edges[i]);
        assert_int_equal(qn_tune_file_next(edges[i]), edges[i + 1]);
    }
    assert_int_equal(qn_tune_file_bucket(-5), 0);
    assert_true(qn_tune_file_bucket(INT64_MAX) == (int64_t)3 << 61);
    strcpy(p.split, "zipf");
    qn_tune_file_canonical(&p, &p);
    assert_true(p.k == 3 * 96 && p.m == 5 && p.n == 7 && !p.split[0]);
    p.ragged = QUERN_AXIS_NONE;
    p.k = 100;
    qn_tune_file_canonical(&p, &p);
    assert_true(p.k == 100);
    /* separate launches change no kernel */
    p.sizes = QUERN_SIZES_HOST;
    p.dbias = QUERN_DBIAS_ADD;
    p.dprob = 1;
    p.probability = 1;
    qn_tune_file_canonical(&p, &p);
    assert_true(p.sizes == QUERN_SIZES_DEVICE && !p.dbias && !p.dprob);
    assert_int_equal(p.probability, 1);
}

TEST(reads_what_it_writes)
{
    struct quern_context *ctx = test_open();
    struct qn_tune_file file;

    test_expect(parse(ctx, HEAD, strlen(HEAD), &file), QUERN_OK, "");
    assert_int_equal(file.count, 0);
    expect_text(&file, HEAD);
    /* in any order, and values too; they are sorted when written */
    test_expect(parse(ctx, HEAD LINE2 LINE, strlen(HEAD LINE2 LINE), &file),
                QUERN_OK, "");
    expect_text(&file, HEAD LINE LINE2);
    assert_non_null(qn_tune_file_find(
        &file, "fprop bf16 g=8 m=512 n=256 k=64 d=bf16", 132));
    assert_null(qn_tune_file_find(
        &file, "fprop bf16 g=8 m=512 n=256 k=64 d=bf16", 131));
    assert_null(qn_tune_file_find(&file, "fprop", 132));
    qn_tune_file_free(&file);
    qn_close(ctx);
}

static const struct {
    const char *text, *says;
} wrong[] = {
    {"", "F:1: error: the file ends; 'quern tune ...' is expected"},
    {"quern tune 2", "F:1: error: the file ends in the middle of a line"},
    {"quern tune 3\n", "F:1: error: format 3: this library knows format 2"},
    {OLD LINE, "F:1: error: format 1 has no keys of kernels: tune again"},
    {"quern tuna 2\n", "F:1: error: 'quern tuna 2': 'quern tune ...'"},
    {"quern tune 2\n", "F:2: error: the file ends; 'gpu ...'"},
    {"quern tune 2\ngpu Fact\n",
     "F:2: error: measured on 'Fact', not on 'Fake'"},
    {"quern tune 2\ngpu \n", "F:2: error: gpu: a name of 1 to 95 characters"},
    {"quern tune 2\ngpu " DIGITS DIGITS "\n", "F:2: error: gpu: a name of 1"},
    {HEAD "\n", "F:3: error: 'PROBLEM | sms=... kernel=...' is expected"},
    {HEAD "fprop bf16 | " VALUES, "F:3: error: g= is missing"},
    {HEAD LINE LINE, "F:4: error: line 3 has this bucket already"},
    {HEAD "fprop bf61 g=4 m=512 n=256 k=64 d=bf16 | " VALUES,
     "F:3: error: recipe 'bf61' is unknown"},
    {HEAD "fprop bf16 g=4 m=513 n=256 k=64 d=bf16 | " VALUES,
     "F:3: error: this bucket is written 'fprop bf16 g=4 m=512 n=256 k=64 "
     "d=bf16'"},
    {HEAD "fprop  bf16 g=4 m=512 n=256 k=64 | " VALUES,
     "F:3: error: this bucket is written"},
    {HEAD "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 split=one | " VALUES,
     "F:3: error: this bucket is written"},
    {HEAD "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 | sms=1\n",
     "F:3: error: kernel= is missing"},
    {HEAD "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 | smx=1\n",
     "F:3: error: 'smx' is unknown; did you mean 'sms'?"},
    {HEAD
     "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 | sms=132 kernel=k key=k band=0 "
     "ns=1 model=k model_ns=1 ratio=1,25 mhz=0 certain=1\n",
     "F:3: error: ratio=1,25: a number like 1.083"},
    {HEAD
     "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 | sms=132 kernel=k key=k band=0 "
     "ns=1 model=k model_ns=1 ratio=.250 mhz=0 certain=1\n",
     "F:3: error: ratio=.250"},
    {HEAD
     "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 | sms=132 kernel=k key=k band=0 "
     "ns=1 model=k model_ns=1 ratio=1.250 mhz=0 certain=2\n",
     "F:3: error: certain=2: at most 1"},
    {HEAD
     "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 | sms=132 kernel=k key=k band=0 "
     "ns=99999999999999999999 model=k model_ns=1 ratio=1.250 mhz=0 "
     "certain=1\n",
     "F:3: error: ns=99999999999999999999: a whole number"},
    {HEAD
     "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 | sms=0 kernel=k key=k band=0 "
     "ns=1 model=k model_ns=1 ratio=1.250 mhz=0 certain=1\n",
     "F:3: error: sms= and ns= are at least 1"},
    {HEAD "fprop bf16 \x1b[31m | " VALUES,
     "F:3: error: byte 0x1b: only printable ASCII"},
    {HEAD "fprop bf16 \xc3\xa4 | " VALUES, "F:3: error: byte 0xc3"},
};

TEST(refuses_what_is_wrong)
{
    struct quern_context *ctx = test_open();
    struct qn_tune_file file;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        test_expect(parse(ctx, wrong[i].text, strlen(wrong[i].text), &file),
                    QUERN_EINVAL, wrong[i].says);
        assert_null(file.lines);
        assert_int_equal(file.count, 0);
    }
    test_expect(parse(ctx, HEAD "a\0b\n", strlen(HEAD) + 4, &file),
                QUERN_EINVAL, "F:3: error: byte 0x00");
    qn_close(ctx);
}

/* Each byte changed, each length cut: no crash, and an error names the
   source location. The text is at the end of its memory, so that ASan sees a
   step too far. */
TEST(survives_each_change)
{
    static const char text[] = HEAD LINE LINE2;
    static const char bytes[] = {0, '\n', ' ', '|', '=', '9', 'z', '\x80'};
    const size_t size = sizeof text - 1;
    struct quern_context *ctx = test_open();
    struct qn_tune_file file;
    int refused = 0;

    for (size_t cut = 0; cut < size; cut++) {
        char *copy = malloc(cut + !cut);

        memcpy(copy, text, cut);
        refused += parse(ctx, copy, cut, &file) != QUERN_OK;
        qn_tune_file_free(&file);
        free(copy);
    }
    assert_int_equal(refused, (int)size - 2); /* only whole lines are read */
    for (size_t i = 0; i < size * sizeof bytes; i++) {
        char *copy = malloc(size);

        memcpy(copy, text, size);
        copy[i / sizeof bytes] = bytes[i % sizeof bytes];
        if (parse(ctx, copy, size, &file))
            assert_non_null(strstr(quern_errmsg(), ": error: "));
        qn_tune_file_free(&file);
        free(copy);
    }
    qn_close(ctx);
}

TEST(refuses_what_is_huge)
{
    const size_t size = QN_TUNE_MOST + 1;
    struct quern_context *ctx = test_open();
    char *text = malloc(size);
    struct qn_tune_file file;

    assert_non_null(text);
    memset(text, 'a', size);
    test_expect(parse(ctx, text, size, &file), QUERN_EINVAL,
                "F:1: error: a file has at most 1048576 bytes, not 1048577");
    text[2000] = '\n';
    test_expect(parse(ctx, text, QN_TUNE_MOST, &file), QUERN_EINVAL,
                "F:1: error: a line has at most 1000 characters, not 2000");
    memcpy(text, HEAD, strlen(HEAD));
    memset(text + strlen(HEAD), '\n', QN_TUNE_MOST - strlen(HEAD));
    test_expect(parse(ctx, text, QN_TUNE_MOST, &file), QUERN_EINVAL,
                "F:3: error:");
    free(text);
    qn_close(ctx);
}

/* The faster of two measurements stays, in any order. */
TEST(merges_in_any_order)
{
    struct quern_context *ctx = test_open();
    struct qn_tune_file one, two, sum;

    test_expect(parse(ctx, HEAD LINE LINE2, strlen(HEAD LINE LINE2), &one),
                QUERN_OK, "");
    test_expect(parse(ctx, HEAD LINE, strlen(HEAD LINE), &two), QUERN_OK, "");
    two.lines[0].ns = 79999;
    for (int turn = 0; turn < 2; turn++) {
        const struct qn_tune_file *both[] = {turn ? &one : &two,
                                             turn ? &two : &one};

        test_expect(parse(ctx, HEAD, strlen(HEAD), &sum), QUERN_OK, "");
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < both[i]->count; j++)
                test_expect(qn_tune_file_add(&sum, &both[i]->lines[j], 0),
                            QUERN_OK, "");
        assert_int_equal(sum.count, 2);
        assert_int_equal(sum.lines[0].ns, 79999);
        assert_int_equal(sum.lines[1].ns, 80000);
        qn_tune_file_free(&sum);
    }
    /* newer lines replace */
    test_expect(qn_tune_file_add(&two, &one.lines[0], 1), QUERN_OK, "");
    assert_int_equal(two.lines[0].ns, 80000);
    qn_tune_file_free(&one);
    qn_tune_file_free(&two);
    qn_close(ctx);
}

/* ------------------------------------------------------------------ folders */

/* The first folder that has a line counts; one that is refused does not. */
TEST(searches_in_order)
{
    struct quern_context *ctx;
    char *text;

    test_tune_folders("one", "two");
    test_tune_put("one", "Fake.tune", HEAD LINE2);
    test_tune_put("two", "Fake.tune", HEAD LINE LINE2);
    ctx = test_open();
    assert_int_equal(test_tune_used(ctx, PROBLEM, "k_large"), 1);
    qn_close(ctx);
    test_tune_put("one", "Fake.tune", OLD LINE);
    ctx = test_open();
    assert_int_equal(test_tune_used(ctx, PROBLEM, "k_large"), 1);
    assert_non_null(strstr(test_messages, "format 1 has no keys"));
    text = test_tune_why(ctx);
    assert_non_null(strstr(text, "tuned: 1.25 x the model's choice"));
    assert_non_null(strstr(text, "two/Fake.tune\n"));
    assert_non_null(strstr(text, "one/Fake.tune:1: error: format 1 has"));
    quern_free(text);
    qn_close(ctx);
}

/* A folder that was asked for and is not there is told once, and is no error:
   tuning makes it. The usual ones may be missing. */
TEST(tells_missing_folders)
{
    struct quern_context *ctx;
    char *text, *said;

    test_tune_folders("none", "two");
    test_tune_put("two", "Fake.tune", HEAD LINE);
    ctx = test_open();
    assert_int_equal(test_tune_used(ctx, PROBLEM, "k_large"), 1);
    assert_int_equal(test_tune_used(ctx, PROBLEM, "k_large"), 1);
    said = strstr(test_messages, "/none: No such file or directory: the folder "
                                 "is not used");
    assert_non_null(said);
    assert_null(strstr(said + 1, "/none: "));
    text = test_tune_why(ctx);
    assert_non_null(strstr(text, "not used: "));
    assert_non_null(strstr(text, "/none: No such file or directory\n"));
    quern_free(text);
    qn_close(ctx);
    unsetenv("QUERN_TUNE");
    ctx = test_open();
    text = test_tune_why(ctx);
    assert_null(strstr(text, "not used: "));
    quern_free(text);
    qn_close(ctx);
}

/* By its rules, by its name, or since it is for others. */
TEST(winners_that_do_not_serve)
{
    static const struct {
        const char *kernel, *says;
    } cases[] = {
        {"k_hungry", "but k_hungry does not serve this problem: takes 300000"},
        {"k_next", "does not serve this problem: made for sm_100a"},
        {"k_sum", "the variant has no kernel of that name"},
    };

    test_tune_folders("one", "two");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct quern_context *ctx;
        char line[600], *text;

        snprintf(line, sizeof line,
                 HEAD PROBLEM
                 " d=bf16 | sms=132 kernel=%s key=key_of_%s band=0 "
                 "ns=5 model=k_small model_ns=6 ratio=1.200 "
                 "mhz=0 certain=1\n",
                 cases[i].kernel, cases[i].kernel);
        test_tune_put("one", "Fake.tune", line);
        ctx = test_open();
        assert_int_equal(test_tune_used(ctx, PROBLEM, "k_small"), 0);
        text = test_tune_why(ctx);
        assert_non_null(strstr(text, cases[i].says));
        quern_free(text);
        qn_close(ctx);
    }
}

/* A file where a folder should be, and a folder that is read-only. */
TEST(needs_a_folder)
{
    struct quern_context *ctx;

    setenv("QUERN_TUNE", "/dev/null/none", 1);
    setenv("QUERN_CACHE", "", 1);
    ctx = test_open();
    test_expect(test_tune_problem(ctx, PROBLEM, NULL), QUERN_EIO,
                "$QUERN_TUNE names one");
    qn_close(ctx);
    setenv("QUERN_TUNE", "", 1);
    ctx = test_open();
    test_expect(test_tune_problem(ctx, PROBLEM, NULL), QUERN_EIO, "no folder");
    qn_close(ctx);
}

enum { PROCESSES = 4, EACH = 6 };

/* Problems of one process; all write the same file. */
static void tune_some(int process)
{
    struct quern_context *ctx = test_open();

    for (int i = 0; i < EACH; i++) {
        char text[128];

        snprintf(text, sizeof text, "fprop bf16 g=%d m=512 n=%d k=64",
                 process + 1, 64 * (i + 1));
        if (test_tune_problem(ctx, text, NULL))
            exit(1);
    }
    qn_close(ctx);
    exit(0);
}

TEST(processes_lose_nothing)
{
    struct quern_context *ctx;
    struct qn_tune_file file;
    pid_t children[PROCESSES];
    char path[600];
    int status;

    test_tune_folders("one", "two");
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (!children[i])
            tune_some(i);
    }
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    ctx = test_open();
    snprintf(path, sizeof path, "%s/one/Fake.tune", test_folder);
    test_expect(qn_tune_store_read(ctx, path, &file), QUERN_OK, "");
    assert_int_equal(file.count, PROCESSES * EACH);
    qn_tune_file_free(&file);
    snprintf(path, sizeof path, "%s/absent", test_folder);
    test_expect(qn_tune_store_read(ctx, path, &file), QUERN_EIO,
                "/absent: no such file");
    qn_close(ctx);
}

/* -------------------------------------------------------------------- plans */

#define TIMES "k_small=100,k_large=80,k_cluster=150"

TEST(a_plan_may_tune_first)
{
    const struct qn_plan_options options = {.tune_ms = 2000};
    struct quern_context *ctx = test_open();
    struct quern_plan_info info;
    struct qn_plan *plan;
    int launches;

    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    for (int i = 0; i < 2; i++) {
        plan = test_plan(ctx, PROBLEM, &options);
        qn_plan_info(plan, &info);
        assert_string_equal(info.kernel, "k_large");
        qn_plan_free(plan);
        launches = i ? launches : test_cuda->launches;
    }
    assert_true(launches > 5);
    assert_int_equal(test_cuda->launches, launches);
    /* a blocked path is no error */
    test_cuda->free_bytes = 1000;
    plan = test_plan(ctx, "fprop bf16 g=4 m=6000 n=256 k=64", &options);
    qn_plan_free(plan);
    assert_non_null(strstr(test_messages, "not tuned: measuring takes"));
    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    launches = test_cuda->launches;
    {
        struct qn_problem p = test_problem(ctx, PROBLEM);

        test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_ECAPTURE, "");
    }
    assert_int_equal(test_cuda->launches, launches);
    qn_close(ctx);
}

static void *plan_in_thread(void *ctx)
{
    const struct qn_plan_options options = {.tune_ms = 2000};

    qn_plan_free(test_plan(ctx, PROBLEM, &options));
    return NULL;
}

/* The others wait, and find the line. */
TEST(threads_measure_once)
{
    struct quern_context *ctx = test_open();
    pthread_t threads[4];
    char file[512];
    int launches;

    setenv("FAKE_CUDA_TIMES", TIMES, 1);
    test_expect(test_tune_problem(ctx, PROBLEM, file), QUERN_OK, "");
    launches = test_cuda->launches;
    assert_int_equal(unlink(file), 0);
    qn_close(ctx);
    ctx = test_open();
    test_cuda->launches = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, plan_in_thread, ctx),
                         0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(test_cuda->launches < 2 * launches);
    qn_close(ctx);
}
