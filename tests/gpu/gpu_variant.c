/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_variant.c: the registry's kernels for this GPU, sorted by what they
   do. */
#include "gpu.h"

#include "base/context.h"
#include "choose/select.h"
#include "device/driver.h"
#include "choose/tensormap.h"
#include "problem/dequantize_rules.h"
#include "problem/fuse_rules.h"
#include "problem/scale.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct gpu_kernel gpu_kernels[GPU_MAX_KERNELS];
int gpu_nkernels;
struct gpu_variant gpu_variants[GPU_MAX_VARIANTS];
int gpu_nvariants;

const struct quern_registry *gpu_registry(void)
{
    return gpu_context->base;
}

int gpu_variant_wants(const struct qn_recipe *recipe)
{
    const char *file = strstr(recipe->spec, "/recipes/");
    const char *end = strrchr(recipe->spec, ':');
    char path[512];

    if (!gpu_options.specs || !file || !end)
        return 1;
    snprintf(path, sizeof path, "%s%.*s", gpu_options.specs, (int)(end - file),
             file);
    return access(path, R_OK) == 0;
}

const struct qn_recipe *gpu_variant_recipe(const struct qn_kernel *k)
{
    const struct qn_problem p = {.op = k->op};

    for (int i = 0; i < gpu_registry()->nrecipes; i++) {
        const struct qn_recipe *recipe = &gpu_registry()->recipes[i];

        if (!strcmp(recipe->name, k->recipe))
            return qn_scale_any(&p, recipe) ? recipe : NULL;
    }
    return NULL;
}

/* Does an earlier recipe have the same kernels but for their names? Its
   rules are other ones, which only casts use. */
static int is_twin(const struct qn_recipe *recipe)
{
    const struct qn_recipe *r = gpu_registry()->recipes;

    for (; recipe && r < recipe; r++)
        if (r->x == recipe->x && r->w == recipe->w && r->dy == recipe->dy &&
            r->promote == recipe->promote &&
            !memcmp(r->scaling, recipe->scaling, sizeof r->scaling))
            return 1;
    return 0;
}

/* Is it compiled for this GPU? */
static int serves(const struct qn_kernel *k)
{
    const struct qn_device device = {.major = gpu_device.major,
                                     .minor = gpu_device.minor};

    return qn_select_arch(k->arch, &device);
}

static int belongs(const struct gpu_variant *v, const struct qn_kernel *k)
{
    const struct qn_recipe *recipe = gpu_variant_recipe(k);

    return v->recipe == recipe && (!recipe || v->ops == 1u << k->op) &&
           v->type == k->a.type && v->d_type == k->d.type &&
           v->a_major == k->a.major && v->b_major == k->b.major &&
           v->ragged == k->ragged && v->epilogue == k->epilogue;
}

/* The kernel's variant, made if it is the first. */
static struct gpu_variant *variant_of(const struct qn_kernel *k)
{
    for (int i = 0; i < gpu_nvariants; i++)
        if (belongs(&gpu_variants[i], k))
            return &gpu_variants[i];
    if (gpu_nvariants == GPU_MAX_VARIANTS)
        return NULL;
    gpu_variants[gpu_nvariants] =
        (struct gpu_variant){.recipe = gpu_variant_recipe(k),
                             .type = k->a.type,
                             .ops = 1u << k->op,
                             .d_type = k->d.type,
                             .a_major = k->a.major,
                             .b_major = k->b.major,
                             .ragged = k->ragged,
                             .epilogue = k->epilogue};
    return &gpu_variants[gpu_nvariants++];
}

/* Under --only, what does not match does not exist. */
void gpu_variant_list(const char *only)
{
    for (int i = 0; i < gpu_registry()->nkernels; i++) {
        const struct qn_kernel *k = &gpu_registry()->kernels[i];
        struct gpu_variant *v;

        if (k->op > QUERN_WGRAD || k->epilogue >= QN_ACTIVATE ||
            qn_fuse_strategy(k) || qn_tensormap_takes(k, QN_PARAM_gather) ||
            qn_tensormap_takes(k, QN_PARAM_scatter) ||
            qn_tensormap_takes(k, QN_PARAM_extra_k) || !serves(k) ||
            (gpu_options.quick && !only && is_twin(gpu_variant_recipe(k))) ||
            (only && fnmatch(only, k->name, 0)))
            continue;
        v = variant_of(k);
        if (!v || v->count + 4 >= GPU_MAX_CHOICES ||
            gpu_nkernels == GPU_MAX_KERNELS)
            gpu_lost("more kernels than the suite has room for");
        gpu_kernels[gpu_nkernels].kernel = k;
        v->kernels[v->count++] = gpu_nkernels++;
        v->ops |= 1u << k->op;
    }
}

int gpu_variant_pick(int (*wanted)(const struct qn_kernel *), int every,
                     const struct qn_kernel **list, int most)
{
    const struct quern_registry *registry = gpu_registry();
    int count = 0, seen = 0;

    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *k = &registry->kernels[i];

        if (!wanted(k) || !serves(k) ||
            (gpu_options.only && fnmatch(gpu_options.only, k->name, 0)) ||
            (gpu_options.quick && seen++ % every))
            continue;
        if (count == most)
            gpu_lost("more kernels than a family has room for");
        list[count++] = k;
    }
    return count;
}

struct gpu_kernel *gpu_variant_kernel(const char *name)
{
    static struct gpu_kernel other;

    for (int i = 0; i < gpu_nkernels; i++)
        if (!strcmp(gpu_kernels[i].kernel->name, name))
            return &gpu_kernels[i];
    for (int i = 0; i < gpu_registry()->nkernels && gpu_options.only; i++) {
        other.kernel = &gpu_registry()->kernels[i];
        if (!strcmp(other.kernel->name, name))
            return &other;
    }
    return NULL;
}

int gpu_variant_alone(void)
{
    return gpu_options.only && !strpbrk(gpu_options.only, "*?[");
}

/* May the variant's op be dequantized that way? A product as f16 is D and no
   more. */
static int goes(const struct gpu_variant *v, int op, int strategy)
{
    const struct qn_problem p = {.op = op, .d_type = v->d_type};

    if (gpu_variant_alone() ||
        (strategy == QUERN_DEQUANTIZE_F16 && v->epilogue != QN_STORE))
        return 0;
    return v->ops >> op & 1 && v->recipe &&
           !qn_dequantize_wrong(gpu_context, &p, v->recipe, strategy);
}

int gpu_variant_dequantize(const struct qn_kernel *kernel)
{
    return qn_tensormap_takes(kernel, QN_PARAM_bases) ? QUERN_DEQUANTIZE_F16
                                                      : QUERN_DEQUANTIZE_AUTO;
}

int gpu_variant_choices(const struct gpu_variant *v, int models,
                        struct gpu_choice choices[GPU_MAX_CHOICES])
{
    static const char *const labels[] = {"the model's for fprop",
                                         "the model's for dgrad",
                                         "the model's for wgrad"};
    int count = 0;

    /* Under --only the model would choose among all. */
    for (int op = 0; op < 3 && models && !gpu_options.only; op++)
        if (v->ops >> op & 1)
            choices[count++] = (struct gpu_choice){labels[op], NULL, op, 0};
    for (int op = 0; op < 3 && models; op++) {
        if (goes(v, op, QUERN_DEQUANTIZE_PASS))
            choices[count++] = (struct gpu_choice){
                "dequantized in a pass", NULL, op, QUERN_DEQUANTIZE_PASS};
        if (goes(v, op, QUERN_DEQUANTIZE_FP8))
            choices[count++] = (struct gpu_choice){"encoded again", NULL, op,
                                                   QUERN_DEQUANTIZE_FP8};
        if (goes(v, op, QUERN_DEQUANTIZE_F16))
            choices[count++] =
                (struct gpu_choice){"as f16", NULL, op, QUERN_DEQUANTIZE_F16};
    }
    for (int i = 0; i < v->count; i++) {
        struct gpu_kernel *kernel = &gpu_kernels[v->kernels[i]];

        if (!kernel->dropped)
            choices[count++] = (struct gpu_choice){
                kernel->kernel->name, kernel, kernel->kernel->op,
                gpu_variant_dequantize(kernel->kernel)};
    }
    return count;
}

void gpu_variant_case(const struct gpu_variant *v, struct qt_case *c)
{
    c->recipe = v->recipe;
    while (v->recipe && !(v->ops >> c->op & 1))
        c->op++;
    c->type = v->type;
    c->d_type = v->d_type;
    c->a_major = v->a_major;
    c->b_major = v->b_major;
    c->ragged = v->ragged;
    c->alike = gpu_options.alike;
}

/* ORDER: the first two of qt_epilogues are those of QN_STORE and QN_ADD, those
   of QN_ALPHA the third and the last. */
const struct qt_epilogue *gpu_epilogue(int epilogue, int i)
{
    if (epilogue == QN_SCALE)
        return &qt_epilogues[i % qt_nepilogues];
    if (epilogue == QN_ALPHA)
        return &qt_epilogues[i % 2 ? qt_nepilogues - 1 : 2];
    return &qt_epilogues[epilogue == QN_ADD];
}

const struct qt_epilogue *gpu_variant_epilogue(const struct gpu_variant *v,
                                               int i)
{
    return gpu_epilogue(v->epilogue, i);
}

void gpu_variant_sides(struct qt_case *c, int64_t x, int64_t y, int64_t z)
{
    static const int axes[] = {QUERN_AXIS_N, QUERN_AXIS_K, QUERN_AXIS_M};
    const int64_t sides[] = {x, y, z};
    int next = 0;

    for (int i = 0; i < 3; i++)
        if (axes[i] != c->ragged)
            *qt_axis(c, axes[i]) = sides[next++];
}
