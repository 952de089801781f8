/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_emit.c: `quern emit`: write CUDA C and the registry. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "gen.h"

static const struct argp_option options[] = {
    QN_OPTION_OUTPUT("Write into DIR (default quern-kernels); - prints the "
                     "one kernel that FILTER names"),
    QN_OPTION_ARCH,
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    {0},
};

static int emit(const struct qn_options *opt, struct qg *generator,
                const struct qg_selection *selection)
{
    const char *folder = opt->output ? opt->output : "quern-kernels";
    cJSON *object;
    int count, status;

    status = qn_source_emit(opt, generator, folder, selection, &count);
    if (status)
        return status;
    if (!opt->json) {
        printf("%d kernel%s in %s\n", count, count == 1 ? "" : "s", folder);
        return QN_EXIT_OK;
    }
    object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "folder", folder);
    cJSON_AddNumberToObject(object, "kernels", count);
    qn_table_json(object);
    return QN_EXIT_OK;
}

/* The text of the one kernel that is selected, on stdout. */
static int print(const struct qn_options *opt, struct qg *generator,
                 const struct qg_selection *selection)
{
    const struct quern_registry *registry = qg_registry(generator);
    const char *filter = selection->filter ? selection->filter : "";
    const char *name = NULL, *text;
    size_t length;
    int count = 0;

    if (opt->json)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "-o - prints CUDA C, and --json a count: one "
                               "of them is expected");
    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];
        if (!qg_selects(selection, kernel))
            continue;
        count++;
        if (!name || strcmp(kernel->name, filter) == 0)
            name = kernel->name;
    }
    if (!name || (count > 1 && strcmp(name, filter) != 0))
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "-o - prints one kernel, and %d match", count);
    if (qg_source(generator, name, &text, &length))
        return qn_message_text(opt, QN_EXIT_USAGE, "",
                               qg_diagnostics(generator));
    fwrite(text, 1, length, stdout);
    return QN_EXIT_OK;
}

static int run(const struct qn_options *opt)
{
    return qn_source_kernels(
        opt, opt->output && strcmp(opt->output, "-") == 0 ? print : emit);
}

const struct qn_command qn_cmd_emit = {
    .name = "emit",
    .arguments = "[FILTER...]",
    .summary = "Write the kernels as CUDA C, with their registry",
    .help = "Without FILTER all kernels are written; on an error in the specs, "
            "nothing is. A file whose text stays the same is not touched. "
            "Example:\n  quern emit -o out --arch sm_90a",
    .options = options,
    .run = run,
};
