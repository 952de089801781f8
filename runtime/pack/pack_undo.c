/* SPDX-License-Identifier: Apache-2.0 */
/* pack_undo.c: a plan's parts, run backwards into the checkpoint's files. */
#include "pack/pack.h"

#include "base/error.h"
#include "base/text.h"
#include "pack/pack_header.h"
#include "pack/safetensors_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 22 };

struct undo {
    struct qn_safetensors packed;
    struct qn_checkpoint checkpoint; /* without files on disk */
    struct qn_pack pack;
    cJSON *metadata;
    struct qn_safetensors_out *outs; /* one for each file */
    int made;                        /* the folder */
};

static int add_header(struct undo *u, const struct qn_safetensor *t)
{
    struct qn_checkpoint *c = &u->checkpoint;
    const char *name = t->name + strlen(QN_PACK_HEADER);
    char *text;

    if (!qn_pack_names_file(name) || t->bytes > QN_SAFETENSORS_HEADER)
        return qn_error_set(QUERN_EINVAL,
                            "%s: tensor '%s': its name must end with that of a "
                            "safetensors file",
                            u->packed.label, t->name);
    text = malloc((size_t)t->bytes + 1);
    if (!text)
        return qn_error_memory();
    text[t->bytes] = 0;
    if (qn_safetensors_read(&u->packed, t, 0, text, (size_t)t->bytes)) {
        free(text);
        return QUERN_EINVAL;
    }
    return qn_safetensors_parse(&c->files[c->nfiles++], name, text,
                                (size_t)t->bytes, UINT64_MAX);
}

/* The checkpoint as its headers tell it. */
static int read_headers(struct undo *u)
{
    int code = QUERN_OK;

    u->checkpoint.files =
        calloc((size_t)u->packed.count + 1, sizeof *u->checkpoint.files);
    if (!u->checkpoint.files)
        return qn_error_memory();
    for (int i = 0; i < u->packed.count && !code; i++)
        if (!strncmp(u->packed.tensors[i].name, QN_PACK_HEADER,
                     strlen(QN_PACK_HEADER)))
            code = add_header(u, &u->packed.tensors[i]);
    return code ? code : qn_checkpoint_list(&u->checkpoint);
}

/* The tensor of an output, in the packed file. */
static const struct qn_safetensor *packed_of(const struct undo *u,
                                             const struct qn_pack_output *o)
{
    const struct qn_safetensor *t = qn_safetensors_find(&u->packed, o->name);
    const int same =
        t && t->type == o->type && t->ndim == o->ndim && t->bytes == o->bytes;

    for (int i = 0; same && i < o->ndim; i++)
        if (t->shape[i] != o->shape[i])
            return NULL;
    return same ? t : NULL;
}

static int check_outputs(const struct undo *u)
{
    if (u->packed.count != u->pack.noutputs)
        return qn_error_set(QUERN_EINVAL,
                            "%s: it has %d tensors, and its headers tell of %d",
                            u->packed.label, u->packed.count, u->pack.noutputs);
    for (int i = 0; i < u->pack.noutputs; i++)
        if (!packed_of(u, &u->pack.outputs[i]))
            return qn_error_set(
                QUERN_EINVAL,
                "%s: tensor '%s': it is missing, or differs from "
                "the file's headers",
                u->packed.label, u->pack.outputs[i].name);
    return QUERN_OK;
}

static int plan(struct undo *u, struct quern_context *ctx, const char *path)
{
    struct qn_pack_options options;
    const char *text;
    int code = qn_safetensors_open(&u->packed, path);

    if (code)
        return code;
    text = qn_safetensors_metadata(&u->packed, QN_PACK_METADATA);
    u->metadata = text ? cJSON_Parse(text) : NULL;
    code = qn_pack_header_options(u->metadata, path, &options);
    if (!code)
        code = read_headers(u);
    u->checkpoint.zeros_as_they_are = options.zeros_as_they_are;
    if (!code)
        code = qn_pack_plan(&u->pack, ctx, &u->checkpoint, &options);
    return code ? code : check_outputs(u);
}

/* ------------------------------------------------------------------ writing */

static int take_copy(const struct undo *u, const struct qn_pack_output *output)
{
    const struct qn_safetensor *t = packed_of(u, output);
    const struct qn_checkpoint_tensor *to = output->copied;
    unsigned char *chunk = malloc(CHUNK);
    int code = chunk ? QUERN_OK : qn_error_memory();

    for (uint64_t at = 0; at < output->bytes && !code; at += CHUNK) {
        const uint64_t left = output->bytes - at;
        const size_t count = left < CHUNK ? left : CHUNK;

        code = qn_safetensors_read(&u->packed, t, at, chunk, count);
        if (!code)
            code = qn_safetensors_write(&u->outs[to->file], to->t->begin + at,
                                        chunk, count);
    }
    free(chunk);
    return code;
}

static int take_part(const struct undo *u, const struct qn_pack_part *part,
                     unsigned char *matrix)
{
    unsigned char *source = calloc(part->bytes + 1, 1);
    int code =
        source ? qn_pack_move(part, source, matrix, 1) : qn_error_memory();

    if (!code)
        code = qn_safetensors_write(&u->outs[part->from->file],
                                    part->from->t->begin + part->at, source,
                                    part->bytes);
    free(source);
    return code;
}

static int take_matrices(const struct undo *u,
                         const struct qn_pack_output *output)
{
    const struct qn_safetensor *t = packed_of(u, output);
    const uint64_t bytes = output->bytes / (uint64_t)output->matrices;
    const int each = output->nparts / output->matrices;
    unsigned char *matrix = malloc(bytes + 1);
    int code = matrix ? QUERN_OK : qn_error_memory();

    for (int i = 0; i < output->matrices && !code; i++) {
        code = qn_safetensors_read(&u->packed, t, bytes * (uint64_t)i, matrix,
                                   bytes);
        for (int j = 0; j < each && !code; j++)
            code = take_part(u, &output->parts[i * each + j], matrix);
    }
    free(matrix);
    return code;
}

static int begin_files(struct undo *u, const char *folder)
{
    struct qn_checkpoint *c = &u->checkpoint;
    int code = QUERN_OK;

    u->made = !mkdir(folder, 0777);
    if (!u->made && errno != EEXIST)
        return qn_error_set(QUERN_EINVAL, "%s: it cannot be made: %s", folder,
                            strerror(errno));
    u->outs = calloc((size_t)c->nfiles + 1, sizeof *u->outs);
    if (!u->outs)
        return qn_error_memory();
    for (int i = 0; i < c->nfiles && !code; i++) {
        const struct qn_safetensors *file = &c->files[i];
        struct qn_text path = {0};

        qn_text_add(&path, "%s/%s", folder, file->label);
        code =
            path.failed
                ? qn_error_memory()
                : qn_safetensors_create(&u->outs[i], path.data, file->header,
                                        file->header_bytes, file->data_bytes);
        qn_text_free(&path);
    }
    return code;
}

static int write_all(struct undo *u, qn_pack_step *step, void *user)
{
    int code = QUERN_OK;

    for (int i = 0; i < u->pack.noutputs && !code; i++) {
        const struct qn_pack_output *output = &u->pack.outputs[i];

        if (step)
            step(user, u->pack.noutputs, output->name);
        code = output->header   ? QUERN_OK
               : output->copied ? take_copy(u, output)
                                : take_matrices(u, output);
    }
    for (int i = 0; i < u->checkpoint.nfiles && !code; i++)
        code = qn_safetensors_publish(&u->outs[i]);
    return code;
}

/* On an error nothing of the checkpoint is left. */
static void end(struct undo *u, const char *folder, int code)
{
    for (int i = 0; u->outs && i < u->checkpoint.nfiles; i++) {
        if (code)
            qn_safetensors_withdraw(&u->outs[i]);
        qn_safetensors_discard(&u->outs[i]);
    }
    if (code && u->made)
        rmdir(folder);
    free(u->outs);
    qn_pack_free(&u->pack);
    qn_checkpoint_close(&u->checkpoint);
    cJSON_Delete(u->metadata);
    qn_safetensors_close(&u->packed);
}

int qn_pack_undo(struct quern_context *ctx, const char *path,
                 const char *folder, int *files, uint64_t *bytes,
                 qn_pack_step *step, void *user)
{
    struct undo u = {.packed.file = -1};
    int code = plan(&u, ctx, path);

    if (!code)
        code = begin_files(&u, folder);
    if (!code)
        code = write_all(&u, step, user);
    *files = u.checkpoint.nfiles;
    *bytes = 0;
    for (int i = 0; i < *files; i++)
        *bytes += u.checkpoint.files[i].data + u.checkpoint.files[i].data_bytes;
    end(&u, folder, code);
    return code;
}
