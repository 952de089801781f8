/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_list.c: `quern list`: the variants that the specs can express. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "gen.h"
#include "base/types.h"
#include "choose/evidence.h"

static const struct argp_option options[] = {
    {"kernels", 'k', NULL, 0, "One row for each kernel, not each variant", 0},
    QN_OPTION_ARCH,
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    {0},
};

/* The kernel's evidence, as text and for each GPU that its code serves. */
static void add_evidence(cJSON *row, const struct qn_kernel *kernel)
{
    cJSON *gpus = cJSON_CreateObject();
    char text[256];

    qn_evidence_print(kernel, text, sizeof text);
    cJSON_AddStringToObject(row, "evidence", text);
    for (int i = 0; i < QN_GPU_COUNT; i++) {
        const char *name;
        const int evidence = qn_evidence_on(kernel, i, &name);

        if (evidence != QUERN_EVIDENCE_NONE)
            cJSON_AddStringToObject(gpus, name, qn_evidence_name(evidence));
    }
    cJSON_AddItemToObject(row, "gpus", gpus);
}

/* One kernel, with its tuning choices. */
static void add_kernel(cJSON *rows, const struct qn_kernel *kernel)
{
    cJSON *row = cJSON_CreateObject();
    char tile[64], cluster[32];

    snprintf(tile, sizeof tile, "%dx%dx%d", kernel->tile[0], kernel->tile[1],
             kernel->tile[2]);
    snprintf(cluster, sizeof cluster, "%dx%d", kernel->cluster[0],
             kernel->cluster[1]);
    cJSON_AddStringToObject(row, "kernel", kernel->name);
    cJSON_AddStringToObject(row, "arch", kernel->arch);
    cJSON_AddStringToObject(row, "tile", tile);
    cJSON_AddStringToObject(row, "cluster", cluster);
    cJSON_AddNumberToObject(row, "stages", kernel->stages);
    cJSON_AddNumberToObject(row, "smem", kernel->smem);
    cJSON_AddBoolToObject(row, "shipped", kernel->shipped);
    add_evidence(row, kernel);
    cJSON_AddStringToObject(row, "spec", kernel->spec);
    cJSON_AddItemToArray(rows, row);
}

/* The kernels of one variant, the first of them for all. */
struct variant {
    const struct qn_kernel *kernel;
    int count, shipped, ran;
};

/* Do both serve the same problems? */
static int same_variant(const struct qn_kernel *a, const struct qn_kernel *b)
{
    return a->op == b->op && a->ragged == b->ragged &&
           a->epilogue == b->epilogue && a->a.major == b->a.major &&
           a->b.major == b->b.major && a->d.type == b->d.type &&
           strcmp(a->recipe, b->recipe) == 0 && strcmp(a->arch, b->arch) == 0;
}

/* The position of the kernel's variant: kernels are sorted by name, so that
   those of a variant are close to each other. */
static int find_variant(const struct variant *all, int count,
                        const struct qn_kernel *kernel)
{
    for (int i = count - 1; i >= 0; i--)
        if (same_variant(all[i].kernel, kernel))
            return i;
    return count;
}

static cJSON *describe_variant(const struct variant *variant)
{
    const struct qn_kernel *kernel = variant->kernel;
    cJSON *row = cJSON_CreateObject();

    qn_table_variant(row, kernel);
    cJSON_AddNumberToObject(row, "kernels", variant->count);
    cJSON_AddNumberToObject(row, "shipped", variant->shipped);
    cJSON_AddNumberToObject(row, "ran", variant->ran);
    return row;
}

/* A row for each variant, in the order of their first kernels. */
static void add_variants(cJSON *rows, const struct quern_registry *registry,
                         const struct qg_selection *selection)
{
    struct variant *all = calloc((size_t)registry->nkernels + 1, sizeof *all);
    int count = 0;

    for (int i = 0; all && i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];
        int at;

        if (!qg_selects(selection, kernel))
            continue;
        at = find_variant(all, count, kernel);
        if (at == count)
            all[count++].kernel = kernel;
        all[at].count++;
        all[at].shipped += kernel->shipped;
        all[at].ran += kernel->ran != 0;
    }
    for (int i = 0; i < count; i++)
        cJSON_AddItemToArray(rows, describe_variant(&all[i]));
    free(all);
}

/* A row for each kernel. */
static void add_kernels(cJSON *rows, const struct quern_registry *registry,
                        const struct qg_selection *selection)
{
    for (int i = 0; i < registry->nkernels; i++)
        if (qg_selects(selection, &registry->kernels[i]))
            add_kernel(rows, &registry->kernels[i]);
}

static int print(const struct qn_options *opt, struct qg *generator,
                 const struct qg_selection *selection)
{
    static const struct qn_column variants[] = {
        {"op", "op", "s"},
        {"recipe", "recipe", "s"},
        {"layout", "layout", "s"},
        {"ragged", "ragged", "s"},
        {"d", "d", "s"},
        {"epilogue", "epilogue", "s"},
        {"arch", "arch", "s"},
        {"kernels", "kernels", "%.0f"},
        {"shipped", "shipped", "%.0f"},
        {"ran", "ran", "%.0f"},
        {0},
    };
    static const struct qn_column kernels[] = {
        {"kernel", "kernel", "s"},    {"arch", "arch", "s"},
        {"tile", "tile", "s"},        {"cluster", "cluster", "s"},
        {"stages", "stages", "%.0f"}, {"smem", "smem", "%.0f"},
        {"shipped", "shipped", "s"},  {"evidence", "evidence", "s"},
        {"spec", "spec", "s"},        {0},
    };
    const struct quern_registry *registry = qg_registry(generator);
    cJSON *rows = cJSON_CreateArray();

    if (opt->kernels)
        add_kernels(rows, registry, selection);
    else
        add_variants(rows, registry, selection);
    if (cJSON_GetArraySize(rows) == 0) {
        cJSON_Delete(rows);
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "no kernel matches; quern list -k shows all");
    }
    qn_table_print(opt, rows, opt->kernels ? kernels : variants);
    return QN_EXIT_OK;
}

static int run(const struct qn_options *opt)
{
    return qn_source_kernels(opt, print);
}

const struct qn_command qn_cmd_list = {
    .name = "list",
    .arguments = "[FILTER...]",
    .summary = "Show the variants that the specs can express",
    .help =
        "FILTER is a part of a kernel's name, or a pattern with * and ?; of "
        "several, one must match. With -k, evidence says where a kernel is "
        "known to work: run by the GPU suite, interpreted, or only compiled. "
        "Example:\n  quern list -k '*fprop*f32*'",
    .options = options,
    .run = run,
};
