/* SPDX-License-Identifier: Apache-2.0 */
/* math.c: sigmoid, tanh and fma against double. */
#include "numbers.h"

#include <math.h>

enum { CHUNK = 1 << 16 };

static float in[3 * CHUNK], out[CHUNK];

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static const struct {
    const char *name;
    double (*exact)(double);
    double ulps; /* at most this far off */
} functions[] = {{"sigmoid", sigmoid, 2}, {"tanh", tanh, 2}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Distance in units in the last place (ulp) of fp32 at the exact result. */
static double distance(float got, double exact)
{
    int exponent;
    double unit;

    if (fabs(exact) >= 0x1.ffffffp127) /* rounds to infinity */
        return (double)got == copysign(INFINITY, exact) ? 0 : INFINITY;
    frexp(exact, &exponent);
    unit = ldexp(1, exponent < -125 ? -149 : exponent - 24);
    return fabs((double)got - exact) / unit;
}

/* Every QUERN_FLOAT_STEP-th float, by default each 509th; 1 takes minutes. */
TEST(test_math)
{
    const char *given = getenv("QUERN_FLOAT_STEP");
    uint64_t step = given ? strtoull(given, NULL, 10) : 509;

    assert_true(step > 0);
    for (int f = 0; f < FUNCTIONS; f++) {
        each_fn *run = piece(MATH, functions[f].name);
        double worst = 0;
        uint64_t bits = 0;

        while (bits < (uint64_t)1 << 32) {
            long count = 0;

            for (; count < CHUNK && bits < (uint64_t)1 << 32; bits += step)
                in[count++] = float_from((uint32_t)bits);
            run(in, out, count);
            for (long i = 0; i < count; i++) {
                double off = 0;

                if (isnan(in[i])) {
                    assert_true(isnan(out[i]));
                    continue;
                }
                off = distance(out[i], functions[f].exact((double)in[i]));
                if (!(off <= functions[f].ulps))
                    fail_msg("%s(%a) is %a: %g ulp off", functions[f].name,
                             (double)in[i], (double)out[i], off);
                worst = off > worst ? off : worst;
            }
        }
        print_message("  %s: at most %.3f ulp off\n", functions[f].name, worst);
    }
}

/* Ends of the results: zero, one, infinity, denormals. */
TEST(test_math_ends)
{
    static const struct {
        const char *name;
        float x, y;
    } rows[] = {
        {"sigmoid", 0, 0.5f},
        {"sigmoid", INFINITY, 1},
        {"sigmoid", -INFINITY, 0},
        {"sigmoid", 0x1.fffffep127f, 1},
        {"sigmoid", -0x1.fffffep127f, 0},
        {"sigmoid", -103.5f, 0x1p-149f},
        {"tanh", 0, 0},
        {"tanh", -0.0f, -0.0f},
        {"tanh", 0x1p-149f, 0x1p-149f},
        {"tanh", -0x1p-127f, -0x1p-127f},
        {"tanh", 20, 1},
        {"tanh", INFINITY, 1},
        {"tanh", -INFINITY, -1},
        {"tanh", -0x1.fffffep127f, -1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float y;

        piece(MATH, rows[i].name)(&rows[i].x, &y, 1);
        if (bits_from(y) != bits_from(rows[i].y))
            fail_msg("%s(%a) is %a, not %a", rows[i].name, (double)rows[i].x,
                     (double)y, (double)rows[i].y);
    }
}

/* Operands of random bits, then such whose sums cancel, underflow or tie. */
static void make_operands(int hard)
{
    for (int i = 0; i < 3 * CHUNK; i++)
        in[i] = float_from((uint32_t)rand() << 1 ^ (uint32_t)rand());
    for (int i = 0; hard && i < CHUNK; i++) {
        float *x = in + 3 * i;

        x[0] = ldexpf(1 + (float)(rand() % 4096) / 4096, rand() % 120 - 90);
        x[1] = ldexpf(1 + (float)(rand() % 8192) / 4096, rand() % 120 - 90);
        x[2] = -x[0] * x[1] * ldexpf(1, rand() % 2 ? 0 : rand() % 50 - 25);
    }
}

TEST(test_fma)
{
    srand(3);
    for (int round = 0; round < 16; round++) {
        make_operands(round % 2);
        piece(MATH, "fma")(in, out, CHUNK);
        for (int i = 0; i < CHUNK; i++) {
            const float *x = in + 3 * i;
            float expected = fmaf(x[0], x[1], x[2]);

            if (isnan(expected) ? !isnan(out[i])
                                : bits_from(out[i]) != bits_from(expected))
                fail_msg("fma(%a, %a, %a) is %a, not %a", (double)x[0],
                         (double)x[1], (double)x[2], (double)out[i],
                         (double)expected);
        }
    }
}
