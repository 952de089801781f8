/* SPDX-License-Identifier: Apache-2.0 */
/* test_tune_key.c: lines of measured winners whose kernels have changed. */
#include "tune_files.h"
#include "tuned/tune_key.h"
#include "tuned/tune_store.h"

/* A file without keys gives way, an unreadable one stays. */
TEST(keeps_what_others_wrote)
{
    struct quern_context *ctx;
    char file[512];

    test_tune_folders("one", "two");
    test_tune_put("one", "Fake.tune", OLD LINE LINE2);
    ctx = test_open();
    test_expect(test_tune_problem(ctx, PROBLEM, file), QUERN_OK, "");
    assert_non_null(strstr(file, "one/Fake.tune"));
    assert_int_equal(test_tune_lines("one", "Fake.tune"), 1);
    assert_int_equal(test_tune_used(ctx, PROBLEM, "k_small"), 1);
    assert_int_equal(test_tune_used(ctx, PROBLEM " sizes=host", "k_small"), 1);
    test_tune_put("one", "Fake.tune", HEAD "nonsense\n");
    test_expect(test_tune_problem(ctx, PROBLEM, file), QUERN_EIO,
                "one/Fake.tune:3: error: ");
    assert_string_equal(file, ""); /* no file has the line */
    qn_close(ctx);
    ctx = test_open();
    assert_int_equal(test_tune_used(ctx, PROBLEM, "k_small"), 0);
    qn_close(ctx);
}

#define STALE                                                                  \
    "fprop bf16 g=4 m=512 n=256 k=64 d=bf16 | sms=132 kernel=k_large "         \
    "key=key_of_k_old band=0 ns=1 model=k_small model_ns=2 ratio=2.000 "       \
    "mhz=0 certain=1\n"
#define GONE                                                                   \
    "fprop bf16 g=8 m=512 n=256 k=64 d=bf16 | sms=132 kernel=k_gone "          \
    "key=key_of_k_gone band=0 ns=1 model=k_small model_ns=2 ratio=2.000 "      \
    "mhz=0 certain=1\n"

static int count_words(const char *text, const char *words)
{
    int count = 0;

    for (; (text = strstr(text, words)); text++)
        count++;
    return count;
}

/* A line whose kernel has changed is named and skipped; the others of its file
   count, as does a later file's line of the bucket. */
TEST(stale_lines_are_skipped)
{
    struct quern_context *ctx;
    char *text;

    test_tune_folders("one", "two");
    test_tune_put("one", "Fake.tune", HEAD STALE LINE2);
    test_tune_put("two", "Fake.tune", HEAD GONE);
    ctx = test_open();
    for (int i = 0; i < 2; i++)
        assert_int_equal(test_tune_used(ctx, PROBLEM, "k_small"), 0);
    assert_int_equal(
        test_tune_used(ctx, "fprop bf16 g=8 m=512 n=256 k=64", "k_large"), 1);
    assert_int_equal(count_words(test_messages,
                                 "one/Fake.tune:3: k_large has changed since "
                                 "it was measured: the line is not used"),
                     1);
    text = test_tune_why(ctx);
    assert_non_null(strstr(text, "not used: "));
    assert_non_null(strstr(text, "one/Fake.tune:3: k_large has changed"));
    quern_free(text);
    qn_close(ctx);
    test_tune_put("two", "Fake.tune", HEAD LINE);
    ctx = test_open();
    assert_int_equal(test_tune_used(ctx, PROBLEM, "k_large"), 1);
    text = test_tune_why(ctx);
    assert_non_null(strstr(text, "two/Fake.tune\n"));
    assert_non_null(strstr(text, "one/Fake.tune:3: k_large has changed"));
    quern_free(text);
    qn_close(ctx);
}

/* Stale lines give way to slower ones that are not, and are not merged. */
TEST(stale_lines_are_replaced)
{
    struct quern_context *ctx;
    struct qn_tune_file file;
    char path[600], target[512];
    int stale;

    test_tune_folders("one", "two");
    test_tune_put("one", "Fake.tune", HEAD STALE);
    test_tune_put("two", "Fake.tune", HEAD GONE LINE);
    ctx = test_open();
    snprintf(path, sizeof path, "%s/two/Fake.tune", test_folder);
    test_expect(qn_tune_store_read(ctx, path, &file), QUERN_OK, "");
    test_expect(qn_tune_key_count(ctx, &file, &stale), QUERN_OK, "");
    assert_int_equal(file.count, 2);
    assert_int_equal(stale, 1);
    test_expect(qn_tune_store_add(ctx, &file, 0, target, sizeof target),
                QUERN_OK, "");
    qn_tune_file_free(&file);
    assert_int_equal(test_tune_lines("one", "Fake.tune"), 1);
    assert_int_equal(test_tune_used(ctx, PROBLEM, "k_large"), 1);
    test_tune_put("one", "Fake.tune", HEAD STALE);
    test_expect(test_tune_problem(ctx, PROBLEM, target), QUERN_OK, "");
    assert_int_equal(test_tune_used(ctx, PROBLEM, "k_small"), 1);
    qn_close(ctx);
}
