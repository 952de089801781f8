/*
** gpu_cublaslt.c: the backend cublaslt: every layout, ragged axis, type and
** factor, with and without gaps between rows.
**
** Operands are small whole numbers, so that all sums are exact whatever their
** order, and D must be right to the bit: computed here, rounded once. What
** lies between rows and outside every group must stay as it was.
*/
#include "gpu.h"

#include <stdio.h>
#include <string.h>

#include "element.h"

enum { GROUPS = 5, TOTAL = 17, ELEMENTS = 1 << 16, ROLES = 4 };

static const int64_t base_sizes[GROUPS] = {3, 0, 1, 7, 4};
static const float alphas[GROUPS] = {0.5f, 2, 1.5f, -1, 1};
static const float betas[GROUPS] = {2, -1, 0.5f, 1, 0};

/* What varies. */
struct form {
    const char *recipe;
    int a_major, b_major, ragged, d_type;
    int alpha, beta, scalars; /* as in problem and args */
    int wide, scale;          /* gaps; every size times this */
};

/* An operand by the axes of the canonical product. */
struct operand {
    int axes[2]; /* row and column of the product's own matrix */
    int swapped; /* in memory, the second axis counts rows */
    int type;
    int64_t stride, group_stride;
    float *host; /* elements of `type` */
};

/* In the order a, b, c, d. */
static float host[ROLES][ELEMENTS], want[ELEMENTS];
static struct gpu_buffer buffers[ROLES], factors, workspace;

/* One form, laid out. */
struct product {
    const struct form *f;
    struct quern_problem p;
    int64_t sizes[GROUPS];
    struct operand x[ROLES];
    struct quern_args args;
};

static int64_t length_of(const struct quern_problem *p, int axis)
{
    return axis == QUERN_AXIS_M ? p->m : axis == QUERN_AXIS_N ? p->n : p->k;
}

/* In elements, of (i, j) of a group whose ragged axis begins at `start`. */
static size_t place(const struct operand *o, int ragged, int group,
                    int64_t start, int64_t i, int64_t j)
{
    int grouped = o->axes[0] != ragged && o->axes[1] != ragged;

    i += o->axes[0] == ragged ? start : 0;
    j += o->axes[1] == ragged ? start : 0;
    return (size_t)((grouped ? group * o->group_stride : 0) +
                    (o->swapped ? j * o->stride + i : i * o->stride + j));
}

static float load(const struct operand *o, size_t i)
{
    return qn_element_load(o->host, o->type, i);
}

static void fill(const struct operand *o, int most, uint64_t seed)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        qn_element_store(o->host, o->type, i,
                         (float)(qt_random_below(&seed, 2 * most + 1) - most));
}

/* Its place on the host and on the device. */
static void lay_out(struct product *r, int role, int first, int second,
                    int swapped, struct quern_tensor *tensor)
{
    const struct quern_problem *p = &r->p;
    const int wide = r->f->wide;
    struct operand *o = &r->x[role];
    int64_t rows = length_of(p, swapped ? second : first);

    *o = (struct operand){{first, second}, swapped, tensor->type, 0, 0,
                          host[role]};
    o->stride = length_of(p, swapped ? first : second) + (wide ? 3 : 0);
    o->group_stride = rows * o->stride + (wide ? 5 : 0);
    tensor->data = (void *)(uintptr_t)buffers[role].data;
    tensor->bytes = sizeof host[role];
    if (wide)
        tensor->stride = o->stride;
    if (wide && first != p->ragged && second != p->ragged)
        tensor->group_stride = o->group_stride;
    fill(o,
         role == 0   ? 2
         : role == 1 ? 1
                     : 3,
         gpu_options.seed + (unsigned)role);
    gpu_buffer_upload(&buffers[role], o->host);
}

/* The library's code for a problem that it does not take. */
static int prepare(struct product *r, const struct form *f)
{
    const int any = f->beta == QUERN_BETA_ANY;
    const gpu_address alpha = factors.data, beta = alpha + sizeof alphas;
    struct quern_description need;
    char text[96];
    int code;

    *r = (struct product){.f = f};
    snprintf(text, sizeof text, "wgrad %s g=%d m=%d n=%d k=%d", f->recipe,
             GROUPS, 18 * f->scale, 5 * f->scale, 7 * f->scale);
    code = quern_problem_parse(gpu_context, text, &r->p);
    if (code)
        return code;
    r->p.a_major = f->a_major;
    r->p.b_major = f->b_major;
    r->p.ragged = f->ragged;
    r->p.d_type = f->d_type;
    r->p.alpha = f->alpha;
    r->p.beta = f->beta;
    if (f->ragged)
        *(f->ragged == QUERN_AXIS_M   ? &r->p.m
          : f->ragged == QUERN_AXIS_N ? &r->p.n
                                      : &r->p.k) = TOTAL * f->scale;
    code = quern_describe(gpu_context, &r->p, &need);
    if (code)
        return code;
    r->args = need.args;
    lay_out(r, 0, QUERN_AXIS_M, QUERN_AXIS_K, f->a_major, &r->args.a);
    lay_out(r, 1, QUERN_AXIS_N, QUERN_AXIS_K, f->b_major, &r->args.b);
    if (any)
        lay_out(r, 2, QUERN_AXIS_M, QUERN_AXIS_N, 0, &r->args.c);
    lay_out(r, 3, QUERN_AXIS_M, QUERN_AXIS_N, 0, &r->args.d);
    for (int g = 0; g < GROUPS; g++)
        r->sizes[g] = base_sizes[g] * f->scale;
    r->args.host_sizes = f->ragged ? r->sizes : NULL;
    r->args.alpha = f->alpha ? (const float *)(uintptr_t)alpha : NULL;
    r->args.beta = any ? (const float *)(uintptr_t)beta : NULL;
    r->args.scalars = f->scalars;
    r->args.workspace = (void *)(uintptr_t)workspace.data;
    return QUERN_OK;
}

/* One value, from the definition. */
static float expected(const struct product *r, int group, int64_t start,
                      int64_t i, int64_t j, int64_t length)
{
    const struct form *f = r->f;
    const struct operand *x = r->x;
    int scalar = f->scalars > 1 ? group : 0, ragged = f->ragged;
    float sum = 0;

    for (int64_t k = 0; k < length; k++)
        sum += load(&x[0], place(&x[0], ragged, group, start, i, k)) *
               load(&x[1], place(&x[1], ragged, group, start, j, k));
    if (f->alpha)
        sum *= alphas[scalar];
    if (f->beta == QUERN_BETA_ONE)
        sum += load(&x[3], place(&x[3], ragged, group, start, i, j));
    if (f->beta == QUERN_BETA_ANY && betas[scalar] != 0)
        sum += betas[scalar] *
               load(&x[2], place(&x[2], ragged, group, start, i, j));
    return sum;
}

/* What D must become: only what belongs to a group changes. */
static void refer(const struct product *r)
{
    int64_t start = 0;

    memcpy(want, host[3], sizeof want);
    for (int g = 0; g < GROUPS; g++) {
        int64_t lengths[] = {1, r->p.m, r->p.n, r->p.k}; /* by the axis */

        lengths[r->f->ragged] = r->sizes[g];
        for (int64_t i = 0; i < lengths[QUERN_AXIS_M]; i++)
            for (int64_t j = 0; j < lengths[QUERN_AXIS_N]; j++)
                qn_element_store(
                    want, r->p.d_type,
                    place(&r->x[3], r->f->ragged, g, start, i, j),
                    expected(r, g, start, i, j, lengths[QUERN_AXIS_K]));
        start += r->sizes[g];
    }
}

/* NULL, or what is wrong with D or around it. */
static const char *compare(const struct product *r)
{
    const char *bad = gpu_buffer_guarded(&buffers[3], "d");
    const size_t count =
        sizeof want * 8 / (r->p.d_type == QUERN_F32 ? 32u : 16u);

    gpu_buffer_download(&buffers[3], host[3]);
    if (bad || !memcmp(host[3], want, sizeof want))
        return bad;
    for (size_t i = 0; i < count; i++) {
        float got = load(&r->x[3], i);
        float right = qn_element_load(want, r->p.d_type, i);

        if (memcmp(&got, &right, sizeof got))
            return gpu_text("element %zu of D is %g, not %g", i, (double)got,
                            (double)right);
    }
    return NULL;
}

/* Run it twice: the second time, algorithms are remembered. */
static const char *multiply(struct product *r, const struct quern_plan *plan)
{
    const char *bad = NULL;

    for (int turn = 0; turn < 2 && !bad; turn++) {
        if (r->f->beta == QUERN_BETA_ZERO)
            memset(host[3], QT_POISON, sizeof host[3]); /* D is not read */
        else
            fill(&r->x[3], 3, gpu_options.seed + 3);
        gpu_buffer_upload(&buffers[3], host[3]);
        refer(r);
        if (quern_run(plan, &r->args, NULL) ||
            quern_check(plan, &r->args, NULL))
            return gpu_text("%s", quern_errmsg(gpu_context));
        gpu_wait(NULL, "a product of cuBLASLt");
        bad = compare(r);
    }
    return bad;
}

/* 0 if the machine has no cuBLASLt. */
static int try_form(const struct form *f)
{
    static const struct quern_plan_options options = {
        .backend = QUERN_BACKEND_CUBLASLT};
    struct quern_plan_info info;
    struct quern_plan *plan = NULL;
    struct product r;
    const char *bad;
    char text[256];
    int code = prepare(&r, f);

    if (!code)
        code = quern_plan(gpu_context, &r.p, &options, &plan);
    if (code == QUERN_EMISSING)
        return 0;
    bad = code ? quern_errmsg(gpu_context) : NULL;
    if (!code) {
        quern_plan_info(plan, &info);
        if (info.workspace_bytes > workspace.bytes)
            gpu_lost("the workspace is larger than this test expects");
        bad = multiply(&r, plan);
    }
    quern_problem_print(&r.p, text, sizeof text);
    gpu_record(bad ? gpu_text("%s wide=%d scalars=%d: %s", text, f->wide,
                              f->scalars, bad)
                   : NULL);
    quern_plan_free(plan);
    return 1;
}

/* Layouts x ragged axes x types x factors x gaps x sizes. */
static void try_all(void)
{
    static const struct {
        const char *recipe;
        int d_type;
    } types[] = {{"bf16", QUERN_BF16},
                 {"bf16", QUERN_F32},
                 {"fp16", QUERN_F16},
                 {"fp16", QUERN_F32}};
    static const int scalars[][3] = {
        /* alpha, beta, how many */
        {0, QUERN_BETA_ZERO, 0},     {0, QUERN_BETA_ONE, 0},
        {0, QUERN_BETA_ANY, GROUPS}, {1, QUERN_BETA_ZERO, 1},
        {1, QUERN_BETA_ONE, GROUPS}, {1, QUERN_BETA_ANY, GROUPS},
    };
    const int step = gpu_options.quick ? 5 : 1;

    for (int i = 0; i < 4 * 4 * 4 * 6 * 2 * 2; i += step) {
        const int *scalar = scalars[i / 64 % 6];
        const struct form f = {
            .recipe = types[i / 16 % 4].recipe,
            .d_type = types[i / 16 % 4].d_type,
            .a_major = i & 1,
            .b_major = i >> 1 & 1,
            .ragged = i / 4 % 4,
            .alpha = scalar[0],
            .beta = scalar[1],
            .scalars = scalar[2],
            .wide = i / 384 % 2,
            .scale = i / 768 ? 8 : 1,
        };

        if (!try_form(&f)) {
            gpu_skip("needs libcublasLt.so.12 or .13");
            return;
        }
    }
}

void gpu_cublaslt(void)
{
    float values[2][GROUPS];

    memcpy(values[0], alphas, sizeof alphas);
    memcpy(values[1], betas, sizeof betas);
    for (int i = 0; i < ROLES; i++)
        gpu_buffer_make(&buffers[i], sizeof host[i], GPU_GUARD);
    gpu_buffer_make(&factors, sizeof values, GPU_GUARD);
    gpu_buffer_upload(&factors, values);
    gpu_buffer_make(&workspace, 34 << 20, GPU_GUARD);
    gpu_buffer_zero(&workspace);
    try_all();
    for (int i = 0; i < ROLES; i++)
        gpu_buffer_free(&buffers[i]);
    gpu_buffer_free(&factors);
    gpu_buffer_free(&workspace);
}
