/* SPDX-License-Identifier: Apache-2.0 */
/* pack_plan.c: the tensors of the new file. */
#include "pack/pack.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/text.h"
#include "pack/format.h"
#include "pack/pack_header.h"

#include <stdlib.h>
#include <string.h>

struct qn_pack_layer *qn_pack_layer(struct qn_pack *pack, const char *name)
{
    struct qn_pack_layer *rows =
        qn_grow(pack->layers, pack->nlayers, sizeof *rows);

    if (rows)
        pack->layers = rows;
    if (!rows || !(name = qn_text_copy(name))) {
        qn_error_memory();
        return NULL;
    }
    rows += pack->nlayers++;
    *rows = (struct qn_pack_layer){.name = (char *)name};
    return rows;
}

struct qn_pack_output *qn_pack_output(struct qn_pack *pack, const char *layer,
                                      const char *name)
{
    struct qn_pack_output *rows =
        qn_grow(pack->outputs, pack->noutputs, sizeof *rows);
    struct qn_text text = {0};

    if (rows)
        pack->outputs = rows;
    qn_text_add(&text, "%s%s", layer, name);
    if (!rows || text.failed) {
        qn_text_free(&text);
        qn_error_memory();
        return NULL;
    }
    rows += pack->noutputs++;
    *rows = (struct qn_pack_output){.name = qn_text_take(&text)};
    return rows;
}

int qn_pack_part(struct qn_pack_output *output, const struct qn_pack_part *part)
{
    struct qn_pack_part *parts;

    if (part->bytes > QN_PACK_MATRIX)
        return qn_error_set(QUERN_EINVAL,
                            "tensor '%s': a matrix has over 2 GiB",
                            part->from->t->name);
    parts = qn_grow(output->parts, output->nparts, sizeof *parts);
    if (!parts)
        return qn_error_memory();
    part->from->used = 1;
    output->parts = parts;
    parts[output->nparts++] = *part;
    return QUERN_OK;
}

/* Tensors that no operand has, and the files' headers. */
static int add_others(struct qn_pack *pack)
{
    struct qn_checkpoint *c = pack->checkpoint;
    struct qn_pack_output *output;

    for (int i = 0; i < c->count; i++) {
        const struct qn_safetensor *t = c->tensors[i].t;

        if (c->tensors[i].used)
            continue;
        if (!strncmp(t->name, QN_PACK_HEADER, strlen(QN_PACK_HEADER)))
            return qn_checkpoint_wrong(
                c, &c->tensors[i],
                "names that begin with " QN_PACK_HEADER
                " are those of headers that quern pack keeps");
        if (!(output = qn_pack_output(pack, "", t->name)))
            return QUERN_ENOMEM;
        output->type = t->type;
        output->ndim = t->ndim;
        memcpy(output->shape, t->shape, sizeof output->shape);
        output->bytes = t->bytes;
        output->copied = &c->tensors[i];
    }
    for (int i = 0; i < c->nfiles; i++) {
        const char *name = qn_checkpoint_name(&c->files[i]);

        if (!qn_text_valid(name))
            return qn_error_set(QUERN_EINVAL,
                                "%s: the name of a file that quern pack keeps "
                                "the header of must be valid UTF-8",
                                c->files[i].label);
        if (!qn_pack_names_file(name))
            return qn_error_set(QUERN_EINVAL,
                                "%s: the name of a file that quern pack can "
                                "write again ends with .safetensors and does "
                                "not begin with a dot",
                                c->files[i].label);
        output = qn_pack_output(pack, QN_PACK_HEADER, name);
        if (!output)
            return QUERN_ENOMEM;
        output->type = QN_ST_U8;
        output->ndim = 1;
        output->bytes = c->files[i].header_bytes;
        output->shape[0] = (int64_t)output->bytes;
        output->header = &c->files[i];
    }
    return QUERN_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct qn_pack_output *const *one = a, *const *two = b;

    return strcmp((*one)->name, (*two)->name);
}

static int check_names(const struct qn_pack *pack)
{
    const size_t count = (size_t)pack->noutputs;
    const struct qn_pack_output **names = malloc((count + 1) * sizeof *names);
    int code = QUERN_OK;

    if (!names)
        return qn_error_memory();
    for (size_t i = 0; i < count; i++)
        names[i] = &pack->outputs[i];
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i + 1 < count && !code; i++)
        if (!strcmp(names[i]->name, names[i + 1]->name))
            code = qn_error_set(QUERN_EINVAL,
                                "tensor '%s': an operand would have its name",
                                names[i]->name);
    free(names);
    return code;
}

/* The largest power of two up to 64 that the tensor's bytes are a multiple
   of. */
static int step_of(const struct qn_pack_output *output)
{
    return output->bytes ? (int)((output->bytes | 64) & -(output->bytes | 64))
                         : 64;
}

/* Tensors with many factors of two first, so that each begins at a multiple of
   its own: files have no gaps. */
static int place_all(struct qn_pack *pack)
{
    for (int step = 64; step; step /= 2)
        for (int i = 0; i < pack->noutputs; i++) {
            struct qn_pack_output *output = &pack->outputs[i];

            if (step_of(output) != step)
                continue;
            output->begin = pack->bytes;
            if (output->bytes > (UINT64_C(1) << 62) - pack->bytes)
                return qn_error_set(QUERN_EINVAL, "over 2^62 bytes");
            pack->bytes += output->bytes;
        }
    return QUERN_OK;
}

static void count_bytes(struct qn_pack *pack)
{
    for (int i = 0; i < pack->nlayers; i++) {
        struct qn_pack_layer *layer = &pack->layers[i];
        const size_t length = strlen(layer->name);

        for (int j = 0; j < pack->noutputs; j++) {
            const struct qn_pack_output *output = &pack->outputs[j];

            if (output->parts && !strncmp(output->name, layer->name, length) &&
                output->name[length] == '.')
                layer->bytes += output->bytes;
        }
    }
}

int qn_pack_plan(struct qn_pack *pack, struct quern_context *ctx,
                 struct qn_checkpoint *checkpoint,
                 const struct qn_pack_options *options)
{
    int code;

    *pack = (struct qn_pack){.ctx = ctx,
                             .checkpoint = checkpoint,
                             .experts_of = options->experts_of};
    for (int i = 0; i < checkpoint->nfiles; i++)
        if (qn_safetensors_metadata(&checkpoint->files[i], QN_PACK_METADATA))
            return qn_error_set(QUERN_EINVAL, "%s: it is packed already",
                                checkpoint->files[i].label);
    if (options->experts_of && !qn_text_valid(options->experts_of))
        return qn_error_set(QUERN_EINVAL,
                            "--experts-of '%s': it must be valid "
                            "UTF-8, as the new file keeps it",
                            options->experts_of);
    code = qn_format_find(checkpoint, options->format, &pack->format);
    pack->recipe = options->recipe;
    if (!code && !pack->recipe)
        code = qn_zeros_recipe(checkpoint, pack->format, &pack->recipe);
    if (code)
        return code;
    if ((code = pack->format->plan(pack)))
        return code;
    if (!pack->nlayers)
        return qn_error_set(QUERN_EINVAL,
                            "--experts-of '%s': no layer of %s has such a name",
                            options->experts_of, pack->format->name);
    count_bytes(pack);
    code = add_others(pack);
    if (!code)
        code = check_names(pack);
    return code ? code : place_all(pack);
}

void qn_pack_free(struct qn_pack *pack)
{
    for (int i = 0; i < pack->noutputs; i++) {
        free(pack->outputs[i].name);
        free(pack->outputs[i].parts);
    }
    for (int i = 0; i < pack->nlayers; i++)
        free(pack->layers[i].name);
    free(pack->outputs);
    free(pack->layers);
    free(pack->checks);
    *pack = (struct qn_pack){0};
}
