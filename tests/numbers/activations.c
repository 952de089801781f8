/* SPDX-License-Identifier: Apache-2.0 */
/*
** activations.c: activations and their gradients against double.
**
** Gradients are compared with the slope of the value in double, by a central
** difference, so that a wrong formula cannot agree with itself.
*/
#include "numbers.h"

#include <math.h>

/* Error allowed, of the value, and of the largest magnitude that takes part. */
static const double value_error = 0x1p-21, gradient_error = 0x1p-18;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double swiglu(double a, double b)
{
    return a * sigmoid(a) * b;
}

static double clamped_swiglu(double a, double b)
{
    double g = fmin(a, 7), u = fmax(fmin(b, 7), -7);

    return g * sigmoid(1.702 * g) * (u + 1);
}

static double situ(double a, double b)
{
    return 4 * tanh(a / 4) * sigmoid(a) * 25 * tanh(b / 25);
}

static double geglu(double a, double b)
{
    const double root = 0.79788456080286535588; /* sqrt(2 / pi) */

    return a / 2 * (1 + tanh(root * (a + 0.044715 * a * a * a))) * b;
}

static double reglu(double a, double b)
{
    return fmax(a, 0) * b;
}

static double squared_relu(double a, double b)
{
    (void)b;
    return fmax(a, 0) * fmax(a, 0);
}

static double relu(double a, double b)
{
    (void)b;
    return fmax(a, 0);
}

static double silu(double a, double b)
{
    (void)b;
    return a * sigmoid(a);
}

static double gelu(double a, double b)
{
    (void)b;
    return a / 2 * erfc(-a / sqrt(2));
}

static double gelu_tanh(double a, double b)
{
    (void)b;
    return geglu(a, 1);
}

static const struct {
    const char *name;
    double (*exact)(double a, double b);
} activations[] = {{"swiglu", swiglu}, {"clamped_swiglu", clamped_swiglu},
                   {"situ", situ},     {"geglu", geglu},
                   {"reglu", reglu},   {"squared_relu", squared_relu},
                   {"relu", relu},     {"silu", silu},
                   {"gelu", gelu},     {"gelu_tanh", gelu_tanh}};
enum { COUNT = sizeof activations / sizeof *activations };

static double slope(double (*f)(double, double), double a, double b, int of_b)
{
    const double h = 0x1p-17;

    if (of_b)
        return (f(a, b + h) - f(a, b - h)) / (2 * h);
    return (f(a + h, b) - f(a - h, b)) / (2 * h);
}

/* An error of the sigmoid's argument, at most about 2a or a^3 / 13, counts
   in full where the gate is nearly shut. There 1 + tanh(x) in double is off
   too. */
static double allowed_for(double value, double a)
{
    double shut = fmax(-a, 0);

    return fabs(value) * value_error * (2 + shut + shut * shut * shut / 13) +
           fabs(a) * 0x1p-48;
}

static void expect(const char *name, const float x[2], int part, float got,
                   double exact, double allowed)
{
    static const char *const parts[] = {"", " along a", " along b"};

    if (!(fabs((double)got - exact) <= allowed))
        fail_msg("%s(%a, %a)%s is %a, not %a", name, (double)x[0], (double)x[1],
                 parts[part], (double)got, exact);
}

/* No point is within a difference of a bend, at 0 or at 7. */
static float point(void)
{
    return (float)(rand() % 4001 - 2000) / 128 + 0x1p-9f;
}

TEST(test_activations)
{
    srand(4);
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < 20000; j++) {
            float x[2] = {point(), point()}, y[3];
            double (*f)(double, double) = activations[i].exact;
            double a = (double)x[0], b = (double)x[1];
            double size = (1 + fabs(a)) * (1 + fmax(fabs(a), fabs(b)));

            piece(ACTIVATIONS, activations[i].name)(x, y, 1);
            expect(activations[i].name, x, 0, y[0], f(a, b),
                   allowed_for(f(a, b), a));
            expect(activations[i].name, x, 1, y[1], slope(f, a, b, 0),
                   size * gradient_error);
            expect(activations[i].name, x, 2, y[2], slope(f, a, b, 1),
                   size * gradient_error);
        }
}

/* No difference of nearly equal numbers: where 1 - tanh^2 is near 0, its
   relative error stays small, but for denormals. */
TEST(test_situ_gradient)
{
    for (int i = -3200; i <= 3200; i++) {
        float x[2] = {(float)i / 16, (float)(i % 2 ? i : -i) / 16}, y[3];
        double a = (double)x[0], b = (double)x[1];
        double inner = sigmoid(a) * pow(cosh(a / 4), -2);
        double gate = 4 * tanh(a / 4) * sigmoid(a);
        double along_b = gate * pow(cosh(b / 25), -2);
        double outer = 25 * tanh(b / 25), shut = gate * sigmoid(-a);

        piece(ACTIVATIONS, "situ")(x, y, 1);
        expect("situ", x, 1, y[1], (inner + shut) * outer,
               (inner + fabs(shut)) * fabs(outer) * 0x1p-20 + 0x1p-142);
        expect("situ", x, 2, y[2], along_b,
               fabs(along_b) * (1 + fabs(a) / 16) * 0x1p-20 + 0x1p-142);
    }
}

/* Large operands: finite ones give no NaN, and where the gate is shut zero. */
static void check_large(const char *name, float a)
{
    float x[2] = {a, 2}, y[3];

    piece(ACTIVATIONS, name)(x, y, 1);
    for (int i = 0; i < 3; i++)
        assert_false(isnan(y[i]));
    if (a < 0)
        assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
}

static void check_nan(const char *name)
{
    float x[2] = {NAN, 1}, y[3];

    piece(ACTIVATIONS, name)(x, y, 1);
    assert_true(isnan(y[0]));
}

/* At the bends: the slope of relu at 0 is 0, at a limit that of the inside. */
static void check_bend(const char *name, float a, float b, float along_a,
                       float along_b)
{
    float x[2] = {a, b}, y[3];

    piece(ACTIVATIONS, name)(x, y, 1);
    expect(name, x, 1, y[1], (double)along_a, fabs((double)along_a) * 1e-6);
    expect(name, x, 2, y[2], (double)along_b, fabs((double)along_b) * 1e-6);
}

TEST(test_activation_ends)
{
    static const float large[] = {200, 1e13f, 1e14f, 0x1p64f, 0x1.fffffep127f};

    for (int i = 0; i < COUNT; i++) {
        for (size_t j = 0; j < sizeof large / sizeof *large; j++) {
            check_large(activations[i].name, large[j]);
            check_large(activations[i].name, -large[j]);
        }
        check_nan(activations[i].name);
    }
    check_bend("reglu", 0, 3, 0, 0);
    check_bend("squared_relu", 0, 3, 0, 0);
    check_bend("relu", 0, 3, 0, 0);
    check_bend("clamped_swiglu", 7, 7, 8.00058463f, 6.99995313f);
    check_bend("clamped_swiglu", 7.0000005f, 7.0000005f, 0, 0);
    check_bend("clamped_swiglu", 1, -7.0000005f, -6.40667764f, 0);
}
