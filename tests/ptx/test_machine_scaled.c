/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_machine_scaled.c: mma.sync with a .kind: codes and scales placed in
** lanes as the ISA has them, with every selector, against sums in fp64.
*/
#define _GNU_SOURCE
#include "cases.h"
#include "interpret.h"

#include <math.h>
#include <stdio.h>

#include "device/driver.h"
#include "support/case.h"

static struct qn_driver *driver;

/* Another start of the machine, with other variables. */
static void start(const char *variable, const char *value)
{
    driver = interpret_start(variable, value);
}

/* A lane's operands and its result. */
struct lane {
    uint32_t a[4], b[2], scale_a, scale_b;
    float c[4], d[4];
};

/* D = (A * scales) * (B * scales) + C, by codes. */
struct matrices {
    uint8_t a[16][64], b[64][8], scale_a[16][4], scale_b[8][4];
    float c[16][8];
};

struct element {
    const char *name;
    int exponent, mantissa, shift; /* in its byte */
};

/* mma.sync of a .kind; byte and thread select scales of A and of B. */
struct scaled {
    const char *kind, *scale; /* NULL: none */
    int k, blocks;
    const struct element *a, *b;
    int byte[2], thread[2];
};

static const struct element elements[] = {
    {"e4m3", 4, 3, 0}, {"e5m2", 5, 2, 0}, {"e3m2", 3, 2, 0},
    {"e2m3", 2, 3, 0}, {"e2m1", 2, 1, 2},
};

static const char scaled_text[] =
    ".version 8.7\n.target sm_120a\n.address_size 64\n"
    ".visible .entry kernel(.param .u64 lanes)\n.maxntid 32, 1, 1\n{\n"
    ".reg .b32 %%r<12>;\n.reg .f32 %%f<8>;\n.reg .b64 %%rd<4>;\n"
    ".reg .b16 %%rs<4>;\n"
    "ld.param.u64 %%rd0, [lanes];\nmov.u32 %%r8, %%tid.x;\n"
    "mul.wide.u32 %%rd1, %%r8, 64;\nadd.s64 %%rd0, %%rd0, %%rd1;\n"
    "ld.global.v4.u32 {%%r0, %%r1, %%r2, %%r3}, [%%rd0];\n"
    "ld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%rd0+16];\n"
    "ld.global.v4.f32 {%%f0, %%f1, %%f2, %%f3}, [%%rd0+32];\n"
    "mov.u16 %%rs0, %d;\nmov.u16 %%rs1, %d;\n"
    "%s {%%f4, %%f5, %%f6, %%f7}, {%%r0, %%r1, %%r2, %%r3}, {%%r4, %%r5}, "
    "{%%f0, %%f1, %%f2, %%f3}%s;\n"
    "st.global.v4.f32 [%%rd0+48], {%%f4, %%f5, %%f6, %%f7};\nret;\n}\n";

/* The words of a name in one of the two orders, selectors of A in registers. */
static void write_scaled(const struct scaled *s, int order, char *text,
                         size_t size)
{
    char name[320], kind[80] = "", scales[80] = "", shape[40];

    snprintf(kind, sizeof kind, ".kind::%s", s->kind);
    snprintf(shape, sizeof shape, ".m16n8k%d.row.col", s->k);
    if (s->scale) {
        snprintf(kind, sizeof kind, ".kind::%s.block_scale.scale_vec::%dX",
                 s->kind, s->blocks);
        snprintf(scales, sizeof scales,
                 ", %%r6, {%%rs0, %%rs1}, %%r7, {%d, %d}", s->byte[1],
                 s->thread[1]);
    }
    snprintf(name, sizeof name, "mma.sync.aligned%s%s.f32.%s.%s.f32%s%s",
             order ? kind : shape, order ? shape : kind, s->a->name, s->b->name,
             s->scale ? "." : "", s->scale ? s->scale : "");
    snprintf(text, size, scaled_text, s->byte[0], s->thread[0], name, scales);
}

/* 0, with the lanes' d, or an error's code. */
static int launch_scaled(const char *text, struct lane lanes[32])
{
    const struct cu_launch shape = {.grid = {1, 1, 1}, .block = {32, 1, 1}};
    const size_t bytes = 32 * sizeof *lanes;
    uint64_t memory;
    void *params[] = {&memory};
    int code;

    assert_int_equal(driver->cuMemAlloc_v2(&memory, bytes), 0);
    memcpy((void *)memory, lanes, bytes);
    code = interpret_launch(text, &shape, params);
    memcpy(lanes, (void *)memory, bytes);
    driver->cuMemFree_v2(memory);
    return code;
}

static double decoded(int exponent, int mantissa, unsigned code)
{
    const unsigned fraction = code & ((1u << mantissa) - 1);
    const int power = (int)(code >> mantissa) & ((1 << exponent) - 1);
    const int bias = (1 << (exponent - 1)) - 1;
    const double size =
        power ? ldexp((1 << mantissa) + fraction, power - bias - mantissa)
              : ldexp(fraction, 1 - bias - mantissa);

    return code >> (exponent + mantissa) & 1 ? -size : size;
}

static double scale_of(const struct scaled *s, unsigned code)
{
    if (!strcmp(s->scale, "ue8m0"))
        return code == 255 ? NAN : ldexp(1, (int)code - 127);
    return (code & 127) == 127 ? NAN : decoded(4, 3, code & 127);
}

/* A number's. */
static uint8_t random_code(const struct element *e, uint64_t *state)
{
    const unsigned most = e->mantissa == 3 ? 0x7f : 0x7c; /* of 8 bits */
    const int bits = 1 + e->exponent + e->mantissa;
    unsigned code;

    do
        code = (unsigned)qt_random_below(state, 1 << bits);
    while (bits == 8 && (code & 0x7f) >= most);
    return (uint8_t)code;
}

static uint8_t random_scale(const struct scaled *s, uint64_t *state)
{
    if (!s->scale)
        return 0;
    if (!strcmp(s->scale, "ue8m0"))
        return (uint8_t)(117 + qt_random_below(state, 20));
    return (uint8_t)(qt_random_below(state, 127) | qt_random_below(state, 2)
                                                       << 7); /* no sign */
}

/* In each fourth product a scale of A is NaN, in others one of B. */
static void fill(struct matrices *m, const struct scaled *s, uint64_t number)
{
    uint64_t state = number + 1;

    for (int i = 0; i < 16 * 64; i++)
        m->a[i / 64][i % 64] = random_code(s->a, &state);
    for (int i = 0; i < 64 * 8; i++)
        m->b[i / 8][i % 8] = random_code(s->b, &state);
    for (int i = 0; i < 16 * 4; i++)
        m->scale_a[i / 4][i % 4] = random_scale(s, &state);
    for (int i = 0; i < 8 * 4; i++)
        m->scale_b[i / 4][i % 4] = random_scale(s, &state);
    for (int i = 0; i < 16 * 8; i++)
        m->c[i / 8][i % 8] = (float)qt_random_below(&state, 100);
    if (number % 4 == 0)
        m->scale_a[number / 4 % 16][0] = 255;
    if (number % 4 == 1 && s->blocks)
        m->scale_b[number / 4 % 8][s->blocks - 1] = 255;
}

static void set_byte(uint32_t *word, int at, uint8_t code)
{
    *word = (*word & ~(255u << 8 * at)) | (uint32_t)code << 8 * at;
}

/* Element i, by the ISA's count, of a lane's fragment, in its word. */
static uint32_t element(const struct scaled *s, const struct element *e, int i,
                        uint8_t code)
{
    return (uint32_t)code << (s->k == 64 ? i % 8 * 4 : i % 4 * 8 + e->shift);
}

/* Scales elsewhere are NaN. */
static void place(struct lane lanes[32], const struct matrices *m,
                  const struct scaled *s)
{
    const int n = s->k / 8;

    memset(lanes, 0, 32 * sizeof *lanes);
    for (int x = 0; x < 32; x++) {
        struct lane *l = &lanes[x];

        l->scale_a = l->scale_b = 0xffffffff;
        for (int i = 0; i < 4 * n; i++)
            l->a[i / n] |=
                element(s, s->a, i,
                        m->a[x / 4 + i / n % 2 * 8]
                            [x % 4 * n + i % n + (i < 2 * n ? 0 : s->k / 2)]);
        for (int i = 0; i < 2 * n; i++)
            l->b[i / n] |= element(
                s, s->b, i,
                m->b[x % 4 * n + i % n + (i < n ? 0 : s->k / 2)][x / 4]);
        for (int i = 0; i < 4; i++)
            l->c[i] = m->c[x / 4 + i / 2 * 8][x % 4 * 2 + i % 2];
    }
    for (int v = 0; v < s->blocks; v++) {
        for (int row = 0; row < 16; row++)
            set_byte(&lanes[row % 8 * 4 + s->thread[0] * 2 + row / 8].scale_a,
                     s->byte[0] + v, m->scale_a[row][v]);
        for (int column = 0; column < 8; column++)
            set_byte(&lanes[column * 4 + s->thread[1]].scale_b, s->byte[1] + v,
                     m->scale_b[column][v]);
    }
}

/* Whether d is the sum of a row and a column, but for fp32's roundings. */
static int is_sum(const struct matrices *m, const struct scaled *s, int row,
                  int column, float d)
{
    double sum = m->c[row][column], size = fabs(sum);

    for (int k = 0; k < s->k; k++) {
        double term = decoded(s->a->exponent, s->a->mantissa, m->a[row][k]) *
                      decoded(s->b->exponent, s->b->mantissa, m->b[k][column]);

        if (s->scale)
            term *= scale_of(s, m->scale_a[row][k * s->blocks / s->k]) *
                    scale_of(s, m->scale_b[column][k * s->blocks / s->k]);
        sum += term;
        size += fabs(term);
    }
    return sum != sum ? d != d : fabs(d - sum) <= ldexp(size, -19);
}

/* How many elements of a product are wrong. */
static int wrong_in(const struct scaled *s, int number)
{
    struct lane lanes[32];
    struct matrices m;
    const char *why;
    char text[2000];
    int code, wrong = 0;

    fill(&m, s, (uint64_t)number);
    place(lanes, &m, s);
    write_scaled(s, number % 2, text, sizeof text);
    code = launch_scaled(text, lanes);
    if (code) {
        driver->cuGetErrorString(code, &why);
        fail_msg("%d %s:\n%s", code, why, text);
    }
    for (int i = 0; i < 4 * 32; i++)
        wrong += !is_sum(&m, s, i / 16 + i / 2 % 2 * 8, i / 4 % 4 * 2 + i % 2,
                         lanes[i / 4].d[i % 4]);
    return wrong;
}

/* Each kind with all selectors that it has, and all pairs of types. */
static int wrong_products(void)
{
    static const struct scaled kinds[] = {
        {.kind = "f8f6f4", .k = 32},
        {.kind = "mxf8f6f4", .scale = "ue8m0", .k = 32, .blocks = 1},
        {.kind = "mxf4", .scale = "ue8m0", .k = 64, .blocks = 2},
        {.kind = "mxf4nvf4", .scale = "ue8m0", .k = 64, .blocks = 2},
        {.kind = "mxf4nvf4", .scale = "ue8m0", .k = 64, .blocks = 4},
        {.kind = "mxf4nvf4", .scale = "ue4m3", .k = 64, .blocks = 4},
    };
    int wrong = 0, ran = 0;

    for (int i = 0; i < 6 * 128; i++) {
        const int x = i % 128, is_4_bits = kinds[i / 128].k == 64;
        struct scaled s = kinds[i / 128];

        s.a = &elements[is_4_bits ? 4 : x % 5];
        s.b = &elements[is_4_bits ? 4 : x / 5 % 5];
        s.byte[0] = x % 4;
        s.byte[1] = x / 4 % 4;
        s.thread[0] = x / 64;
        s.thread[1] = x / 16 % 4;
        if (s.blocks ? s.byte[0] % s.blocks || s.byte[1] % s.blocks : x >= 25)
            continue;
        wrong += wrong_in(&s, ran++) > 0;
    }
    assert_int_equal(ran, 25 + 128 + 2 * 32 + 2 * 8);
    return wrong;
}

TEST_ONCE(scaled)
{
    start("PTX_SEED", "1");
    assert_int_equal(wrong_products(), 0);
}

/* How many products each makes wrong: all with scales, those that select a byte
   or a lane other than 0, those with several scales of a row. */
TEST_ONCE(scaled_misread)
{
    static const struct {
        const char *name;
        int wrong;
    } rows[] = {
        {"scale_rows", 128 + 2 * 32 + 2 * 8},
        {"scale_type", 128 + 2 * 32 + 2 * 8},
        {"scale_bytes", 128 - 8 + 2 * (32 - 8)},
        {"scale_lanes", 128 - 16 + 2 * (32 - 4) + 2 * (8 - 1)},
        {"scale_blocks", 2 * 32 + 2 * 8},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start("PTX_MISREAD", rows[i].name);
        if (wrong_products() != rows[i].wrong)
            fail_msg("%s: not %d products wrong", rows[i].name, rows[i].wrong);
    }
    unsetenv("PTX_MISREAD");
    start("PTX_SEED", "1");
}

static void check_refused(const struct scaled *s, uint32_t bits,
                          const char *expected)
{
    struct lane lanes[32];
    const char *why = "";
    char text[2000];
    int code;

    memset(lanes, 0, sizeof lanes);
    lanes[5].b[1] = bits;
    write_scaled(s, 0, text, sizeof text);
    code = launch_scaled(text, lanes);
    if (code)
        driver->cuGetErrorString(code, &why);
    if (!strstr(why, expected))
        fail_msg("%d \"%s\", not \"%s\":\n%s", code, why, expected, text);
}

/* Selectors and bits that the ISA leaves undefined; names that it has not. */
TEST_ONCE(scaled_refused)
{
#define E4M3_BY &elements[0], &elements[0]
#define E2M1_BY &elements[4], &elements[4]
    static const struct {
        struct scaled s;
        uint32_t bits; /* of B */
        const char *why;
    } rows[] = {
        {{"mxf4", "ue8m0", 64, 2, E2M1_BY, {1, 0}, {0, 0}},
         0,
         "no byte-id-a 1"},
        {{"mxf4nvf4", "ue4m3", 64, 4, E2M1_BY, {0, 2}, {0, 0}},
         0,
         "no byte-id-b 2"},
        {{"mxf8f6f4", "ue8m0", 32, 1, E4M3_BY, {0, 0}, {2, 0}},
         0,
         "no thread-id-a 2"},
        {{"mxf8f6f4", "ue8m0", 32, 1, E4M3_BY, {0, 0}, {0, 4}},
         0,
         "no thread-id-b 4"},
        {{"mxf8f6f4", "ue8m0", 32, 1, E2M1_BY, {0, 0}, {0, 0}},
         0x00000200,
         "lane 5: 0x00000200 of B: bits that pad"},
        {{"f8f6f4", NULL, 32, 0, &elements[0], &elements[2], {0, 0}, {0, 0}},
         0x80000000,
         "0x80000000 of B: bits that pad"},
        {{"mxf4", "ue4m3", 64, 4, E2M1_BY, {0, 0}, {0, 0}}, 0, "is not known"},
        {{"mxf4", "ue8m0", 64, 2, E4M3_BY, {0, 0}, {0, 0}}, 0, "is not known"},
    };

    start("PTX_SEED", "1");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_refused(&rows[i].s, rows[i].bits, rows[i].why);
    start("PTX_EDIT", "mov.u16 %rs1, 0;=>cvt.u16.u32 %rs1, %r8;");
    check_refused(&rows[4].s, 0, "lane 1: thread-id-a is not lane 0's");
    unsetenv("PTX_EDIT");
}
