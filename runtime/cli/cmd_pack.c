/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_pack.c: `quern pack`: experts of checkpoints as operands, and back. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli.h"
#include "pack/format.h"
#include "pack/pack.h"
#include "pack/pack_header.h"

static const struct argp_option options[] = {
    {"to", 'o', "PATH", 0,
     "The new file, or with --undo the folder of the files; they must not "
     "exist",
     0},
    {"format", QN_KEY_FORMAT, "NAME", 0,
     "auto, gpt-oss, gpt-oss-original, deepseek, nvfp4, gptq, awq or "
     "compressed-tensors (default auto)",
     0},
    {"experts-of", QN_KEY_EXPERTS, "PATTERN", 0,
     "Only layers with such names, e.g. 'model.layers.1.*'; others stay as "
     "they "
     "are",
     0},
    {"recipe", QN_KEY_RECIPES, "NAME", 0,
     "The operands' recipe (default: the format's)", 0},
    {"dry-run", 'n', NULL, 0, "Check and list the experts, write nothing", 0},
    {"undo", QN_KEY_UNDO, NULL, 0,
     "Write the files again from which the file was packed", 0},
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    {0},
};

static const struct qn_column columns[] = {
    {"layer", "layer", "s"},        {"recipe", "recipe", "s"},
    {"experts", "experts", "%.0f"}, {"hidden", "hidden", "%.0f"},
    {"ffn", "ffn", "%.0f"},         {"activation", "activation", "s"},
    {"bytes", "bytes", "%.0f"},     {0},
};

static cJSON *layers_of(const struct qn_pack *pack)
{
    cJSON *rows = cJSON_CreateArray();

    for (int i = 0; i < pack->nlayers; i++) {
        const struct qn_pack_layer *layer = &pack->layers[i];
        cJSON *row = cJSON_CreateObject();

        cJSON_AddStringToObject(row, "layer", layer->name);
        qn_pack_add_sizes(row, layer);
        cJSON_AddNumberToObject(row, "bytes", (double)layer->bytes);
        cJSON_AddItemToArray(rows, row);
    }
    return rows;
}

static void report(const struct qn_options *opt, const struct qn_pack *pack)
{
    int packed = 0, copied = 0;
    cJSON *object;

    for (int i = 0; i < pack->checkpoint->count; i++)
        packed += pack->checkpoint->tensors[i].used;
    copied = pack->checkpoint->count - packed;
    if (!opt->json) {
        qn_table_print(opt, layers_of(pack), columns);
        printf(
            "%s: %d tensors %s operands, %d stay as they are, %llu bytes%s\n",
            pack->format->title, packed, opt->dry_run ? "become" : "became",
            copied, (unsigned long long)pack->bytes,
            opt->dry_run ? "; nothing is written" : "");
        return;
    }
    object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "format", pack->format->name);
    cJSON_AddItemToObject(object, "layers", layers_of(pack));
    cJSON_AddNumberToObject(object, "packed", packed);
    cJSON_AddNumberToObject(object, "copied", copied);
    cJSON_AddNumberToObject(object, "bytes", (double)pack->bytes);
    cJSON_AddBoolToObject(object, "written", !opt->dry_run);
    qn_table_json(object);
}

/* Tens of thousands of lines are no progress to read. */
static void step(void *user, int total, const char *name)
{
    struct qn_progress *progress = user;

    progress->total = total;
    if (progress->terminal)
        qn_progress_step(progress, name);
}

/* Sentences of the files are the caller's to mend. */
static int failed(const struct qn_options *opt, int code)
{
    return qn_message_code(opt, code, qn_error_text());
}

static int write_plan(const struct qn_options *opt, const struct qn_pack *pack)
{
    struct qn_progress progress;
    int code = qn_pack_check(pack);

    if (code || opt->dry_run)
        return code;
    qn_progress_begin(&progress, "packing", pack->noutputs);
    code = qn_pack_write(pack, opt->output, step, &progress);
    qn_progress_end(&progress);
    return code;
}

static int pack(const struct qn_options *opt, struct quern_context *ctx)
{
    const struct qn_pack_options wanted = {.format = opt->format,
                                           .experts_of = opt->experts_of,
                                           .recipe = opt->recipes};
    struct qn_checkpoint checkpoint;
    struct qn_pack plan = {0};
    int code = qn_checkpoint_open(&checkpoint, opt->words, opt->nwords);

    if (!code)
        code = qn_pack_plan(&plan, ctx, &checkpoint, &wanted);
    if (!code)
        code = write_plan(opt, &plan);
    if (!code)
        report(opt, &plan);
    code = code ? failed(opt, code) : QN_EXIT_OK;
    qn_pack_free(&plan);
    qn_checkpoint_close(&checkpoint);
    return code;
}

static int undo(const struct qn_options *opt, struct quern_context *ctx)
{
    struct qn_progress progress;
    uint64_t bytes;
    int files, code;
    cJSON *object;

    qn_progress_begin(&progress, "unpacking", 0);
    code = qn_pack_undo(ctx, opt->words[0], opt->output, &files, &bytes, step,
                        &progress);
    qn_progress_end(&progress);
    if (code)
        return failed(opt, code);
    if (!opt->json) {
        printf("%d file%s in %s, %llu bytes\n", files, files == 1 ? "" : "s",
               opt->output, (unsigned long long)bytes);
        return QN_EXIT_OK;
    }
    object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "folder", opt->output);
    cJSON_AddNumberToObject(object, "files", files);
    cJSON_AddNumberToObject(object, "bytes", (double)bytes);
    qn_table_json(object);
    return QN_EXIT_OK;
}

/* Which words are wrong; NULL: none. */
static const char *misused(const struct qn_options *opt)
{
    if (!opt->nwords)
        return opt->undo ? "a packed file is missing"
                         : "a model's folder, or its safetensors files, are "
                           "missing";
    if (!opt->output && !opt->dry_run)
        return opt->undo ? "--to DIR is missing: where the files are written"
                         : "--to FILE is missing: the new file";
    if (opt->undo && opt->nwords > 1)
        return "--undo takes one packed file";
    if (opt->undo &&
        (opt->dry_run || opt->format || opt->experts_of || opt->recipes))
        return "--undo takes --to only: the file says how it was packed";
    return NULL;
}

static int run(const struct qn_options *opt)
{
    const char *wrong = misused(opt);
    struct quern_context *ctx;
    int status;

    if (wrong)
        return qn_message_fail(opt, QN_EXIT_USAGE, "%s", wrong);
    status = qn_source_context(opt, &ctx);
    if (status)
        return status;
    status = opt->undo ? undo(opt, ctx) : pack(opt, ctx);
    quern_close(ctx);
    return status;
}

const struct qn_command qn_cmd_pack = {
    .name = "pack",
    .arguments = "MODEL_DIR|FILE...",
    .summary = "Turn the experts of a checkpoint into operands, and back",
    .help = "Reads safetensors files of gpt-oss, DeepSeek-V3, ModelOpt's "
            "NVFP4, GPTQ, AWQ or compressed-tensors. The new file has w1, w2, "
            "their scales and biases for each layer, as `quern describe` tells "
            "them, and all other tensors. No bit is lost: --undo writes the "
            "same files again. Nothing is written unless all of it can be. "
            "Examples:\n"
            "  quern pack gpt-oss-20b --to gpt-oss-20b.quern.safetensors\n"
            "  quern pack --undo gpt-oss-20b.quern.safetensors --to again",
    .options = options,
    .run = run,
};
