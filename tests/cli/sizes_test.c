/* SPDX-License-Identifier: Apache-2.0 */
/* sizes_test.c: group sizes from names, lists, files and routed tokens. */
#include <stdio.h>
#include <unistd.h>

#include "internal.h"
#include "problem/sizes.h"
#include "test_cli.h"

static int64_t sizes[QUERN_MAX_GROUPS];
static char why[512];

static int draw(const char *split, int groups, int64_t total)
{
    memset(sizes, 0x55, sizeof sizes);
    why[0] = '\0';
    return qn_sizes_draw(split, groups, total, 1, sizes, why, sizeof why);
}

static int64_t sum(int groups)
{
    int64_t all = 0;

    for (int i = 0; i < groups; i++) {
        assert_true(sizes[i] >= 0);
        all += sizes[i];
    }
    return all;
}

TEST(test_even_differs_by_one)
{
    for (int groups = 1; groups <= 67; groups += 3) {
        struct qn_sizes_range range;
        assert_int_equal(draw("even", groups, 1003), 0);
        assert_int_equal(sum(groups), 1003);
        range = qn_sizes_range(sizes, groups);
        assert_true(range.max - range.min <= 1);
    }
}

TEST(test_splits_add_up)
{
    static const char *const names[] = {"",     "even", "mild",
                                        "skew", "zipf", "one"};
    static const int groups[] = {1, 2, 7, 8, 60, 1024};
    static const int64_t totals[] = {0, 1, 511, 9736, INT64_C(1) << 30};

    for (int n = 0; n < 6; n++)
        for (int g = 0; g < 6; g++)
            for (int t = 0; t < 5; t++) {
                assert_int_equal(draw(names[n], groups[g], totals[t]), 0);
                assert_int_equal(sum(groups[g]), totals[t]);
            }
}

/* skew is zipf in another order, with an empty group. */
TEST(test_zipf_descends)
{
    int empty = 0;

    assert_int_equal(draw("zipf", 16, 100000), 0);
    for (int i = 1; i < 16; i++)
        assert_true(sizes[i] <= sizes[i - 1]);
    assert_true(sizes[0] > 15 * sizes[15]);
    assert_int_equal(draw("skew", 16, 100000), 0);
    for (int i = 0; i < 16; i++)
        empty += sizes[i] == 0;
    assert_int_equal(empty, 1);
}

static void write_file(char *path, const char *text)
{
    const int file = mkstemp(path);

    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (int)strlen(text));
    close(file);
}

TEST(test_lists_and_files)
{
    char path[] = "/tmp/quern-sizes-XXXXXX", split[64];

    assert_int_equal(draw("3,0,5", 3, 10), 0);
    assert_int_equal(sum(3), 8);
    write_file(path, "# rows\n3 0,\n5 # the last\n");
    snprintf(split, sizeof split, "@%s", path);
    assert_int_equal(draw(split, 3, 8), 0);
    assert_int_equal(sizes[0], 3);
    assert_int_equal(sizes[1], 0);
    assert_int_equal(sizes[2], 5);
    unlink(path);
}

TEST(test_bad_splits_say_why)
{
    static const struct {
        const char *split, *sentence;
    } bad[] = {
        {"zpf", "did you mean 'zipf'?"},
        {"nothing-like-it", "it must be even, mild, skew, zipf, one"},
        {"1,2", "split lists 2 groups; the problem has g=3"},
        {"1,2,3,4", "split lists 4 groups; the problem has g=3"},
        {"1,x,3", "split: 'x' is no number of rows"},
        {"1,-2,3", "split: '-2' is no number of rows"},
        {"1,2.5,3", "split: '2.5' is no number of rows"},
        {"1,99999999999999999999,3", "split: '99999999999999999999' is no"},
        {"9,1,1", "over 10 rows"},
        {"999999999999999999,999999999999999999,2", "over 10 rows"},
        {"@/no/such/file", "/no/such/file: No such file"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(draw(bad[i].split, 3, 10), 1);
        if (!strstr(why, bad[i].sentence))
            fail_msg("%s: '%s' lacks '%s'", bad[i].split, why, bad[i].sentence);
    }
}

/* A file's errors name it, and the line. */
TEST(test_bad_files_say_where)
{
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        {"3\r\n0.0\r\n5\r\n", ":2: '0.0' is no number of rows"},
        {"# rows\n3\n\n1e0\n", ":4: '1e0' is no number of rows"},
        {"3\n+1\n5", ":2: '+1' is no number of rows"},
        {"3\n0\n", " lists 2 groups; the problem has g=3"},
        {"3\n0\n8", ": the groups have over 10 rows"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char path[] = "/tmp/quern-sizes-XXXXXX", split[64], sentence[128];

        write_file(path, bad[i].text);
        snprintf(split, sizeof split, "@%s", path);
        snprintf(sentence, sizeof sentence, "%s%s", path, bad[i].sentence);
        assert_int_equal(draw(split, 3, 10), 1);
        if (!strstr(why, sentence))
            fail_msg("'%s' lacks '%s'", why, sentence);
        unlink(path);
    }
    assert_int_equal(draw("@/dev/zero", 3, 10), 1);
    assert_string_equal(why, "/dev/zero: it has over 1048576 bytes");
    assert_int_equal(draw("@/tmp", 3, 10), 1);
    assert_string_equal(why, "/tmp: Is a directory");
}

TEST(test_files_are_text)
{
    char path[] = "/tmp/quern-sizes-XXXXXX", split[64];
    const int file = mkstemp(path);

    assert_int_equal(write(file, "3\n0\n5\n\0 7", 9), 9);
    close(file);
    snprintf(split, sizeof split, "@%s", path);
    assert_int_equal(draw(split, 3, 10), 1);
    assert_non_null(strstr(why, ": it is no text: it holds a zero byte"));
    unlink(path);
}

/* The sum of a file's values, with any separators; -1 if bad. */
static int64_t sum_file(const char *text)
{
    char path[] = "/tmp/quern-sum-XXXXXX";
    int64_t total;
    int failed;

    write_file(path, text);
    failed = qn_sizes_sum(path, &total, why, sizeof why);
    unlink(path);
    return failed ? -1 : total;
}

TEST(test_file_sums)
{
    assert_int_equal(sum_file("3,0,5\n7 # and 100 more\n"), 15);
    assert_int_equal(sum_file(""), 0);
    assert_int_equal(sum_file("\357\273\2773\n0\n5\n"), 8); /* UTF-8's mark */
    assert_int_equal(sum_file("2147483647 2147483647"), 4294967294);
    assert_int_equal(sum_file("3,x"), -1);
    assert_non_null(strstr(why, "'x' is no number of rows"));
    assert_int_equal(sum_file("3,-1"), -1);
    assert_int_equal(sum_file("9223372036854775807"), -1);
}

static int read_routes(const char *text, int groups, int64_t *total)
{
    char path[] = "/tmp/quern-routes-XXXXXX";
    int failed;

    write_file(path, text);
    failed = qn_sizes_routes(path, groups, sizes, total, why, sizeof why);
    unlink(path);
    return failed;
}

TEST(test_routes)
{
    int64_t total;

    assert_int_equal(read_routes("token,expert0,expert1,weight0,weight1\n"
                                 "0,3,1,0.5,0.5\n1,1,0,0.9,0.1\n",
                                 4, &total),
                     0);
    assert_int_equal(total, 4);
    assert_int_equal(sizes[0], 1);
    assert_int_equal(sizes[1], 2);
    assert_int_equal(sizes[2], 0);
    assert_int_equal(sizes[3], 1);
    qn_sizes_scale(sizes, 4, 400);
    assert_int_equal(sizes[1], 200);
    assert_int_equal(sum(4), 400);
}

/* The same two tokens, as programs write them. */
TEST(test_routes_of_other_programs)
{
    static const char *const texts[] = {
        ",expert0,expert1\n0,3,3\n1,3,1\n", /* an index without a name */
        "token,expert0_weight,expert0,expert1,expert\n0,1,3,3,\n1,1,3,1,2\n",
        "\357\273\277expert0,x,expert1\r\n3,,3\r\n\r\n3,,1\r\n",
        "expert0, expert1\n3, 3\n3 ,1\n",
    };
    int64_t total;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (read_routes(texts[i], 4, &total))
            fail_msg("%s: %s", texts[i], why);
        assert_int_equal(total, 4);
        assert_int_equal(sizes[1], 1);
        assert_int_equal(sizes[3], 3);
        assert_int_equal(sum(4), 4);
    }
}

TEST(test_bad_routes_say_where)
{
    static const struct {
        const char *text, *sentence;
    } bad[] = {
        {"", ":1: the header must name columns expert0"},
        {"token,weight0\n0,1\n", ":1: the header"},
        {"expert0\n3\n4\n", ":3: each expert must be from 0 to 3"},
        {"expert0\n-1\n", ":2: each expert"},
        {"expert0,expert1\n1\n", ":2: each expert"},
        {"expert0\nsome\n", ":2: each expert"},
        {",expert0\n3,\n", ":2: each expert"},
        {"expert0_weight,expert,expert1x\n1,1,1\n", ":1: the header"},
    };
    int64_t total;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(read_routes(bad[i].text, 4, &total), 1);
        if (!strstr(why, bad[i].sentence))
            fail_msg("'%s' lacks '%s'", why, bad[i].sentence);
    }
}
