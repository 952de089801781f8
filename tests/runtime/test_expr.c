/* SPDX-License-Identifier: Apache-2.0 */
/* test_expr.c: the expressions of `requires`. */
#include "test.h"

#include "base/expr.h"

static const struct qn_expr_values values = {
    .m = 100, .n = 20, .k = 7, .groups = 3};

TEST(computes_as_c_does)
{
#define SAME(expression)                                                       \
    do {                                                                       \
        const int64_t m = 100, n = 20, k = 7, groups = 3;                      \
        int64_t result, expected = (expression);                               \
        const char *error = qn_expr_eval(#expression, &values, &result);       \
        (void)m, (void)n, (void)k, (void)groups;                               \
        assert_null(error);                                                    \
        if (result != expected)                                                \
            print_error("%s\n", #expression);                                  \
        assert_int_equal(result, expected);                                    \
    } while (0)
    SAME(m % 8 == 0);
    SAME(m % 10 == 0);
    SAME(m);
    SAME(1 + 2 * 3);
    SAME((1 + 2) * 3);
    SAME(100 / 7 / 2);
    SAME(100 - 7 - 2);
    SAME(-m % 7);
    SAME(-m / 7);
    SAME(- -m);
    SAME(!m);
    SAME(!!m);
    SAME(!(m == n));
    SAME(m != n);
    SAME((m < n) == 0);
    SAME(m <= 100);
    SAME(m >= 101);
    SAME(m > 99);
    SAME((k && n) || groups);
    SAME(0 || (k && 0));
    SAME((1 || 0) && 0);
    SAME(m * n * k * groups);
    SAME(m % 8 == 0 || (n % 4 == 0 && k > 5));
    SAME(9223372036854775807);
    SAME(-9223372036854775807 - 1);
#undef SAME
}

TEST(says_what_is_wrong)
{
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"", "it ends too early"},
        {"m +", "it ends too early"},
        {"m n",
         "an operator of C is expected, such as * / % + - == != < <= && ||"},
        {"(m", "a ')' is missing"},
        {"m)",
         "an operator of C is expected, such as * / % + - == != < <= && ||"},
        {"* 3", "a value is expected"},
        {"m = 3",
         "an operator of C is expected, such as * / % + - == != < <= && ||"},
        {"m & 3",
         "an operator of C is expected, such as * / % + - == != < <= && ||"},
        {"x % 8", "unknown name; m, n, k and groups are known"},
        {"mm", "unknown name; m, n, k and groups are known"},
        {"8k", "a number runs into a name"},
        {"m / 0", "division by zero"},
        {"m % (n - 20)", "division by zero"},
        {"9223372036854775808", "a number is too large"},
        {"9223372036854775807 + 1", "overflow"},
        {"-9223372036854775807 - 2", "overflow"},
        {"9223372036854775807 * 2", "overflow"},
        {"(-9223372036854775807 - 1) / -1", "overflow"},
        {"(-9223372036854775807 - 1) % -1", "overflow"},
        {"-(-9223372036854775807 - 1)", "overflow"},
        {"m ? 1 : 2",
         "an operator of C is expected, such as * / % + - == != < <= && ||"},
        {"m;",
         "an operator of C is expected, such as * / % + - == != < <= && ||"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t result;
        const char *error = qn_expr_eval(rows[i].text, &values, &result);

        if (!error)
            print_error("%s has a value\n", rows[i].text);
        assert_non_null(error);
        assert_string_equal(error, rows[i].error);
    }
}

/* && and || skip what cannot matter, but it must still be well formed. */
TEST(skips_what_cannot_matter)
{
    int64_t result;

    assert_null(qn_expr_eval("0 && 1 / 0", &values, &result));
    assert_int_equal(result, 0);
    assert_null(qn_expr_eval("1 || 1 / 0", &values, &result));
    assert_int_equal(result, 1);
    assert_null(qn_expr_eval("1 || (0 && 1 % 0)", &values, &result));
    assert_int_equal(result, 1);
    assert_non_null(qn_expr_eval("0 || 1 / 0", &values, &result));
    assert_non_null(qn_expr_eval("0 && x", &values, &result));
}

TEST(bounds_depth)
{
    char text[20001];
    int64_t result;

    memset(text, '(', 10000);
    text[10000] = 0;
    assert_string_equal(qn_expr_eval(text, &values, &result),
                        "nested too deeply");
    memset(text, '-', 10000);
    assert_string_equal(qn_expr_eval(text, &values, &result),
                        "nested too deeply");
    memset(text, '!', 10000);
    assert_string_equal(qn_expr_eval(text, &values, &result),
                        "nested too deeply");
    /* long is not deep */
    for (int i = 0; i < 10000; i++)
        memcpy(text + 2 * i, i == 9999 ? "1" : "1+", 2);
    assert_null(qn_expr_eval(text, &values, &result));
    assert_int_equal(result, 10000);
}
