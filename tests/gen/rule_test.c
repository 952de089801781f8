/* SPDX-License-Identifier: Apache-2.0 */
/* rule_test.c: a rule's C gives the bits that its formula does. */
#include "test_gen.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NUMERICS of MX formats, written again without the generator's nodes. */
static unsigned int e8m0_up(float v)
{
    unsigned int u, e, f;

    memcpy(&u, &v, sizeof u);
    if (isnan(v))
        return 0xff;
    if (isinf(v))
        return 0xfe;
    e = u >> 23 & 0xff;
    f = u & 0x7fffff;
    if (f > 0 && e != 0xfe && !(e == 0 && f <= 0x400000))
        return e + 1;
    return e;
}

/* 1 / 448 is rounded to fp32 before the product. */
static unsigned int mxfp8(float amax)
{
    return e8m0_up(amax * (float)(1 / 448.0));
}

/* floor(log2(v)) + 127, from the library's own exponent. */
static unsigned int mxfp8_floor(float amax)
{
    float v = amax * 0x1p-8f;

    if (isnan(v))
        return 0xff;
    if (isinf(v))
        return 0xfe;
    return v < 0x1p-126f ? 0 : (unsigned int)(ilogbf(v) + 127);
}

/* The common fp32 scale, a power of two; its inverse is stored. */
static unsigned int fp8_block(float amax)
{
    /* Else gcc 14 concludes from an infinite quotient that amax is 0. */
    volatile float quotient = 448.0f / amax;
    float scale = quotient, result;
    unsigned int u;

    if (scale > 0x1.fffffep127f)
        scale = 0x1.fffffep127f;
    memcpy(&u, &scale, sizeof u);
    u &= 0x7f800000;
    memcpy(&scale, &u, sizeof u);
    if (amax == 0 || isinf(amax) || isnan(amax))
        scale = 1;
    result = 1 / scale;
    memcpy(&u, &result, sizeof u);
    return u;
}

static const struct {
    const char *recipe;
    int is_float;
    unsigned int (*expect)(float amax);
} rules[] = {
    {"mxfp8", 0, mxfp8},
    {"mxfp8_floor", 0, mxfp8_floor},
    {"fp8_block", 1, fp8_block},
};

enum { COUNT = sizeof rules / sizeof *rules };

/* The recipes of the golden folder: their text is checked there. */
static struct qg *open_scales(void)
{
    struct files files = {.count = 0};
    struct qg *q;

    files_read(&files, "tests/gen/golden/scales/specs", "specs");
    q = open_files(&files);
    assert_string_equal(qg_diagnostics(q), "");
    files_free(&files);
    return q;
}

/* Functions that rules call, from templates/cast/arith.c. */
static const char helpers[] =
    "static inline unsigned int bits_of(float value)\n{\n"
    "    union { float value; unsigned int bits; } u = {value};\n"
    "    return u.bits;\n}\n"
    "static inline float float_of(unsigned int bits)\n{\n"
    "    union { unsigned int bits; float value; } u = {bits};\n"
    "    return u.value;\n}\n";

/* Each rule with the function that makes it visible, one file each. */
static void write_sources(struct qg *q, const char *folder)
{
    for (int i = 0; i < COUNT; i++) {
        const char *sf = rules[i].is_float ? "float" : "unsigned int";
        char path[128], *all;
        const char *text;
        size_t length;

        assert_int_equal(
            qg_rule_text(q, rules[i].recipe, QN_X, QG_C, &text, &length), 0);
        snprintf(path, sizeof path, "%s/%d.c", folder, i);
        all = malloc(length + 1024);
        assert_non_null(all);
        sprintf(all,
                "%s%s\nfloat call%d(float x, %s *sf);\n"
                "float call%d(float x, %s *sf)\n{\n"
                "    return %s_scale(x, sf);\n}\n",
                helpers, text, i, sf, i, sf, rules[i].recipe);
        file_write(path, all);
        free(all);
    }
}

/* As libquern compiles its host kernels: nothing is fused. */
static void *compile(const char *folder)
{
    char command[512], path[128];

    snprintf(path, sizeof path, "%s/rules.so", folder);
    snprintf(command, sizeof command,
             "cc -std=c99 -Wall -Wextra -Werror -O2 -ffp-contract=off -shared "
             "-fPIC -o %s %s/*.c",
             path, folder);
    assert_int_equal(system(command), 0);
    return dlopen(path, RTLD_NOW);
}

/* The stored scale's bits, of any type, and the factor's. */
static unsigned int call(void *library, int rule, float amax,
                         unsigned int *factor_bits)
{
    char name[16];
    void *symbol;
    float factor;
    union {
        float value;
        unsigned int bits;
    } sf;

    snprintf(name, sizeof name, "call%d", rule);
    symbol = dlsym(library, name);
    assert_non_null(symbol);
    factor = ((float (*)(float, void *))(uintptr_t)symbol)(amax, &sf);
    memcpy(factor_bits, &factor, sizeof factor);
    return sf.bits;
}

/* The values' factor, from the stored scale: 2^(127 - code). */
static unsigned int factor_of_e8m0(unsigned int code)
{
    return code == 0xfe   ? 0x400000
           : code == 0xff ? 0x7fffffff
                          : (0xfe - code) << 23;
}

/* Powers of two have exact inverses, but for the largest ones. */
static void check_factor(int rule, unsigned int sf, unsigned int factor)
{
    float stored, value;

    if (!rules[rule].is_float) {
        assert_int_equal(factor, factor_of_e8m0(sf));
        return;
    }
    memcpy(&stored, &sf, sizeof stored);
    memcpy(&value, &factor, sizeof value);
    assert_true(stored == 1 / value);
}

/* All exponents, with the fractions where something happens around them. */
static void check_rule(void *library, int rule)
{
    static const unsigned int fractions[] = {
        0,        1,        2,        0x3fffff, 0x400000, 0x400001, 0x5fffff,
        0x600000, 0x600001, 0x7ffffe, 0x7fffff, 0x2aaaaa, 0x155555};
    enum { N = sizeof fractions / sizeof *fractions };

    for (unsigned int e = 0; e < 256; e++)
        for (int i = 0; i < N; i++) {
            unsigned int u = e << 23 | fractions[i], got, expected, factor;
            float amax;

            memcpy(&amax, &u, sizeof amax);
            got = call(library, rule, amax, &factor);
            check_factor(rule, got, factor);
            expected = rules[rule].expect(amax);
            if (got != expected)
                fail_msg("%s of %a: %x instead of %x", rules[rule].recipe,
                         (double)amax, got, expected);
        }
}

TEST(rule_in_c)
{
    char folder[64];
    void *library;
    struct qg *q;

    if (system("cc --version >/dev/null 2>&1")) {
        printf("skip: needs a C compiler called cc\n");
        skip();
    }
    q = open_scales();
    write_sources(q, folder_make(folder));
    library = compile(folder);
    assert_non_null(library);
    for (int i = 0; i < COUNT; i++)
        check_rule(library, i);
    dlclose(library);
    folder_remove(folder);
    qg_close(q);
}

/* hex() and printed constants: exact, for any exponent. */
TEST(rule_constants)
{
    static const struct {
        const char *lua, *text;
    } values[] = {{"1 / 3", "0x1.555556p-2f"},
                  {"1", "0x1p+0f"},
                  {"-448.0", "-0x1.cp+8f"},
                  {"0.0", "0x0p+0f"},
                  {"f32.max", "0x1.fffffep+127f"},
                  {"0x1p-126", "0x1p-126f"},
                  {"0x1p-149", "0x1p-149f"},
                  {"0x1.8p-148", "0x1.8p-148f"},
                  {"0x1.fffffcp-127", "0x1.fffffcp-127f"},
                  {"1e-60", "0x0p+0f"}};

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct files files = {.count = 0};
        char text[128];
        struct qg *q;

        snprintf(text, sizeof text,
                 "assert(hex(%s) == \"%s\", hex(%s)) shipped {}", values[i].lua,
                 values[i].text, values[i].lua);
        files_put(&files, "specs/recipes/x.lua", text, strlen(text));
        q = open_files(&files);
        assert_string_equal(qg_diagnostics(q), "");
        qg_close(q);
        files_free(&files);
    }
}

/* The rule of x of a recipe `x`, whose body is given, in C. The caller frees
   it. */
static char *rule_of(const char *body)
{
    struct files files = {.count = 0};
    char spec[2048], *copy;
    const char *text;
    size_t length;
    struct qg *q;

    files_read(&files, "tests/gen/golden/scales/specs", "specs");
    snprintf(spec, sizeof spec,
             "local wide, none = true, nil\n"
             "recipe \"x\" {\n"
             "  element = { x = e2m1, w = e4m3, dy = e4m3 }, d = bf16,\n"
             "  scale = blocked { type = f32, per = { k = 32 },\n"
             "    rule = function (amax, of)\n"
             "      local s = select(eq(amax, 0), 1, amax / 12)\n%s\n"
             "      return s, min(1 / s, f32.max)\n    end },\n}\n",
             body);
    files_put(&files, "specs/recipes/x.lua", spec, strlen(spec));
    q = open_files(&files);
    assert_string_equal(qg_diagnostics(q), "");
    assert_int_equal(qg_rule_text(q, "x", QN_X, QG_C, &text, &length), 0);
    copy = strdup(text);
    assert_non_null(copy);
    qg_close(q);
    files_free(&files);
    return copy;
}

/* Constants of the spec may decide, as Lua does. */
TEST(rule_decides_by_constants)
{
    static const char *const same[] = {
        "if of.element.bits == 4 then s = s * 2 end",
        "if of.element == e2m1 then s = s * 2 else s = s * 3 end",
        "if of.element ~= e2m1 then s = s * 3 elseif wide then s = s * 2 end",
        "if not (of.element.bits ~= 4) and wide then s = s * 2 end",
        "s = s * (of.element.bits == 8 and 3 or 2)",
        "s = s * (none or wide and 2 or 3)",
        "s = wide and s * 2 or 3", /* a value may be chosen */
        "s = s * (not none == true and 2 or 3)",
        "s = s * (1 + 1 == 2 == true and 2 or 3)",
        "s = s * (of.element.bits < 8 == true and 2 or 3)",
        "local t <const> = { 3, 2 }\ns = s * t[of.element.name == 'e2m1' and 2 "
        "or 1]",
        "local f = function (n) if n == nil or n ~= 2 then return 3 end\n"
        "  return n end -- a == b\ns = s * f(2)",
        "for i = 1, 3 do if i == 2 and not none then s = s * i end end",
        "s = s * (2 ^ -2 ^ 0 == 0.5 and not not wide and 2 or 3)",
        "s = s * (\"a == \\z\n  b\" == 'a == b' and 2 or 3)",
    };
    char *expected = rule_of("s = s * 2");

    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char *text = rule_of(same[i]);

        if (strcmp(text, expected))
            fail_msg("%s:\n%s", same[i], text);
        free(text);
    }
    free(expected);
}

/* A rule sees the largest magnitude of both signs: codes have none. */
TEST(rule_sees_both_signs)
{
    static const struct {
        const char *element, *zero, *max;
    } rows[] = {{"u4", "8", "7"},         {"u4", "3", "3"},
                {"u4", "12", "3"},        {"u8", "128", "127"},
                {"u4", "'stored'", "15"}, {"u8", "'stored'", "255"},
                {"i4", "nil", "7"},       {"e2m1", "nil", "6"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct files files = {.count = 0};
        char spec[1024];
        struct qg *q;

        files_read(&files, "tests/gen/golden/scales/specs", "specs");
        snprintf(spec, sizeof spec,
                 "recipe \"x\" {\n"
                 "  element = { x = bf16, w = %s, dy = bf16 }, d = bf16,\n"
                 "  scale = { x = \"none\", dy = \"none\", w = blocked {\n"
                 "    type = bf16, per = { k = 64 }, zero = %s,\n"
                 "    copies = \"rowwise\", rule = function (amax, of)\n"
                 "      assert(of.element == %s and of.element.max == %s)\n"
                 "      local b = to_bf16(amax * (1 / of.element.max))\n"
                 "      return b, min(1 / from_bf16(b), f32.max)\n"
                 "    end } },\n}\n",
                 rows[i].element, rows[i].zero, rows[i].element, rows[i].max);
        files_put(&files, "specs/recipes/x.lua", spec, strlen(spec));
        q = open_files(&files);
        assert_string_equal(qg_diagnostics(q), "");
        qg_close(q);
        files_free(&files);
    }
}

/* --------------------------------------- conditions that look at constants */

static unsigned int draw(unsigned int below)
{
    static uint64_t state = 7;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned int)(state >> 33) % below;
}

/* An expression of constants, `depth` operators deep at most. */
static void put_expression(FILE *out, int depth)
{
    static const char *const constants[] = {
        "1", "2", "nil", "true", "false", "'a == b'", "-- and\n2"};
    static const char *const binary[] = {
        " and ", " or ", "==", " ~= ", "\n  and not ", " or not not "};
    static const char *const around[][2] = {
        {"(", ")"},
        {"not ", ""},
        {"({ 1, a = ", ", 2 }).a"},
        {"(function (...) if ", " then return ... elseif ... == 1 then return "
                                "2 end while true do break end end)(1)"},
        {"(function () repeat local x <const> = ", " until x ~= 2 or 1 == 1 "
                                                   "return 1 end)()"},
        {"({ [true] = 1, 2 })[", " ~= nil]"}};
    unsigned int i = draw(depth ? 12 : 1);

    if (i < 2) {
        fputs(constants[draw(sizeof constants / sizeof *constants)], out);
    } else if (i < 8) {
        put_expression(out, depth - 1);
        fputs(binary[i - 2], out);
        put_expression(out, depth - 1);
    } else {
        i = draw(sizeof around / sizeof *around);
        fputs(around[i][0], out);
        put_expression(out, depth - 1);
        fputs(around[i][1], out);
    }
}

/* The text of the error of a spec; the caller frees it. */
static char *said_by(const char *spec)
{
    struct files files = {.count = 0};
    const char *at;
    char *copy;
    struct qg *q;

    files_put(&files, "specs/recipes/x.lua", spec, strlen(spec));
    q = open_files(&files);
    at = strstr(qg_diagnostics(q), "error: ");
    assert_non_null(at);
    copy = strndup(at, strcspn(at, "\n"));
    assert_non_null(copy);
    qg_close(q);
    files_free(&files);
    return copy;
}

/* A file in which `blocked` is named is compiled with calls around operands:
   nothing else may change. */
TEST(rule_conditions_keep_their_meaning)
{
    for (int i = 0; i < 300; i++) {
        char *text = NULL, *plain, *checked;
        size_t length;
        FILE *out = open_memstream(&text, &length);

        assert_non_null(out);
        fputs("local unblock, t = nil, {}\n", out);
        for (int j = 1; j <= 12; j++) {
            fprintf(out, "t[%d] = tostring((", j);
            put_expression(out, 5);
            fputs("))\n", out);
        }
        fputs("local s = ''\nfor i = 1, 12 do s = s .. ' ' .. t[i] end\n"
              "error(s)\n",
              out);
        fclose(out);
        plain = said_by(text);
        memcpy(text + strlen("local "), "blocked", strlen("blocked"));
        checked = said_by(text);
        if (strcmp(plain, checked) || strstr(plain, "near") ||
            strstr(plain, "attempt"))
            fail_msg("%s\n%s\n%.600s", plain, checked, text);
        free(plain);
        free(checked);
        free(text);
    }
}

/* Tensor cores that take powers of two serve recipes whose rules store nothing
   else: no rule of another one may seem to. */
TEST(rule_stores_powers)
{
    const struct quern_registry *r;
    int powers = 0, any = 0;
    struct qg *q;

    assert_int_equal(qg_open(NULL, 0, &q), 0);
    r = qg_registry(q);
    for (int i = 0; i < r->nkernels; i++) {
        const struct qn_kernel *k = &r->kernels[i];

        if (strcmp(k->template_path, "sm100/gemm_scaled.cu") != 0)
            continue;
        powers += !strcmp(k->recipe, "fp8_block");
        any += !strcmp(k->recipe, "fp8_block_any");
    }
    assert_true(powers > 0);
    assert_int_equal(any, 0);
    qg_close(q);
}
