/* SPDX-License-Identifier: Apache-2.0 */
/*
** types.c: names and sizes of the enums in quern.h, as tables.
*/
#include "base/types.h"
#include "internal.h"

#include <string.h>

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

static const struct {
    const char *name;
    int bits;
} types[] = {
    [QUERN_TYPE_NONE] = {"none", 0}, [QUERN_BF16] = {"bf16", 16},
    [QUERN_F16] = {"f16", 16},       [QUERN_F32] = {"f32", 32},
    [QUERN_E4M3] = {"e4m3", 8},      [QUERN_E5M2] = {"e5m2", 8},
    [QUERN_E2M3] = {"e2m3", 8},      [QUERN_E3M2] = {"e3m2", 8},
    [QUERN_E2M1] = {"e2m1", 4},      [QUERN_E8M0] = {"e8m0", 8},
    [QUERN_I8] = {"i8", 8},          [QUERN_I32] = {"i32", 32},
    [QUERN_I64] = {"i64", 64},
};

/* Products, then casts: COUPLED: ops */
static const char *const ops[] = {
    "fprop",      "dgrad",    "wgrad", "quantize", "amax",    "dequantize",
    "history",    "sum",      "dprob", "sizes",    "factors", "bias",
    "requantize", "sum_rows", "range", "epilogue"};
static const char *const works[] = {"quantize", "transpose", "dequantize",
                                    "rescale", "bias"};
static const char *const ofs[] = {"x", "w", "dy"};
static const char *const copies[] = {"none", "rowwise", "columnwise", "both"};
static const char *const activations[] = {
    "none",  "swiglu", "clamped_swiglu", "situ",
    "geglu", "reglu",  "squared_relu"}; /* COUPLED: activations */
static const char *const axes[] = {"none", "m", "n", "k"};
static const char *const betas[] = {"0", "1", "any"};
static const char *const sizes[] = {"device", "host", "fixed"};
static const char *const dequantizes[] = {"auto", "mainloop", "pass", "fp8",
                                          "f16"};
static const char *const strategies[] = {"pass", "mainloop", "auto"};
static const char *const epilogues[] = {
    "store",    "add",    "alpha",    "scale",
    "activate", "copies", "gradient", "gradient_copies"};
/* COUPLED: backends */
static const char *const backends[] = {"auto", "host", "jit", "aot",
                                       "cublaslt"};

/* cuBLAS's letters: first B, where t is k-major; then A, where n is. */
static const struct {
    const char *name;
    int a_major, b_major;
} layouts[] = {
    {"tn", QUERN_MAJOR_K, QUERN_MAJOR_K},
    {"nn", QUERN_MAJOR_K, QUERN_MAJOR_MN},
    {"nt", QUERN_MAJOR_MN, QUERN_MAJOR_MN},
    {"tt", QUERN_MAJOR_MN, QUERN_MAJOR_K},
};

static const char *name_at(const char *const *names, int count, int i)
{
    return i >= 0 && i < count ? names[i] : "?";
}

/* Tables are short: a search is as good as anything. */
static int name_find(const char *const *names, int count, const char *name,
                     int *value)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name)) {
            *value = i;
            return 1;
        }
    return 0;
}

const char *qn_type_name(int type)
{
    return type >= 0 && type < COUNT(types) ? types[type].name : "?";
}

int qn_type_bits(int type)
{
    return type >= 0 && type < COUNT(types) ? types[type].bits : 0;
}

int qn_type_find(const char *name, int *type)
{
    for (int i = 1; i < COUNT(types); i++)
        if (!strcmp(types[i].name, name)) {
            *type = i;
            return 1;
        }
    return 0;
}

const char *qn_op_name(int op)
{
    return name_at(ops, COUNT(ops), op);
}

int qn_op_find(const char *name, int *op)
{
    return name_find(ops, QUERN_WGRAD + 1, name, op);
}

const char *qn_op_at(int i)
{
    return i <= QUERN_WGRAD ? ops[i] : NULL;
}

/* One function for each list that quantizations name words of. */
#define WORDS(what, list)                                                      \
    const char *qn_##what##_name(int value)                                    \
    {                                                                          \
        return name_at(list, COUNT(list), value);                              \
    }                                                                          \
    int qn_##what##_find(const char *name, int *value)                         \
    {                                                                          \
        return name_find(list, COUNT(list), name, value);                      \
    }                                                                          \
    const char *qn_##what##_at(int i)                                          \
    {                                                                          \
        return i < COUNT(list) ? list[i] : NULL;                               \
    }
WORDS(work, works)
WORDS(of, ofs)
WORDS(copies, copies)
WORDS(activation, activations)
WORDS(dequantize, dequantizes)
WORDS(strategy, strategies)
#undef WORDS

const char *qn_axis_name(int axis)
{
    return name_at(axes, COUNT(axes), axis);
}

int qn_axis_find(const char *name, int *axis)
{
    return name_find(axes, COUNT(axes), name, axis);
}

const char *qn_backend_name(int backend)
{
    return name_at(backends, COUNT(backends), backend);
}

const char *qn_beta_name(int beta)
{
    return name_at(betas, COUNT(betas), beta);
}

const char *qn_epilogue_name(int epilogue)
{
    return name_at(epilogues, COUNT(epilogues), epilogue);
}

const char *qn_sizes_name(int value)
{
    return name_at(sizes, COUNT(sizes), value);
}

int qn_sizes_find(const char *name, int *value)
{
    return name_find(sizes, COUNT(sizes), name, value);
}

int qn_beta_find(const char *name, int *beta)
{
    return name_find(betas, COUNT(betas), name, beta);
}

const char *qn_layout_name(int a_major, int b_major)
{
    for (int i = 0; i < COUNT(layouts); i++)
        if (layouts[i].a_major == a_major && layouts[i].b_major == b_major)
            return layouts[i].name;
    return "?";
}

const char *qn_layout_at(int i)
{
    return i < COUNT(layouts) ? layouts[i].name : NULL;
}

int qn_layout_find(const char *name, int *a_major, int *b_major)
{
    for (int i = 0; i < COUNT(layouts); i++)
        if (!strcmp(layouts[i].name, name)) {
            *a_major = layouts[i].a_major;
            *b_major = layouts[i].b_major;
            return 1;
        }
    return 0;
}
