/* SPDX-License-Identifier: Apache-2.0 */
/* pack_write.c: a plan's parts, run forwards into the new file. */
#include "pack/pack.h"

#include "base/error.h"
#include "pack/pack_header.h"
#include "pack/safetensors_write.h"

#include <stdlib.h>

enum { CHUNK = 1 << 22 };

static int put_copy(const struct qn_pack *pack,
                    const struct qn_safetensors_out *out,
                    const struct qn_pack_output *output)
{
    unsigned char *chunk = malloc(CHUNK);
    int code = chunk ? QUERN_OK : qn_error_memory();

    for (uint64_t at = 0; at < output->bytes && !code; at += CHUNK) {
        const uint64_t left = output->bytes - at;
        const size_t count = left < CHUNK ? left : CHUNK;

        code = qn_checkpoint_read(pack->checkpoint, output->copied, at, chunk,
                                  count);
        if (!code)
            code = qn_safetensors_write(out, output->begin + at, chunk, count);
    }
    free(chunk);
    return code;
}

static int put_part(const struct qn_pack *pack, const struct qn_pack_part *part,
                    unsigned char *matrix)
{
    unsigned char *source = malloc(part->bytes + 1);
    int code = source ? qn_checkpoint_read(pack->checkpoint, part->from,
                                           part->at, source, part->bytes)
                      : qn_error_memory();

    if (!code)
        code = qn_pack_move(part, source, matrix, 0);
    free(source);
    return code;
}

static int put_matrices(const struct qn_pack *pack,
                        const struct qn_safetensors_out *out,
                        const struct qn_pack_output *output)
{
    const uint64_t bytes = output->bytes / (uint64_t)output->matrices;
    const int each = output->nparts / output->matrices;
    int code = QUERN_OK;

    for (int i = 0; i < output->matrices && !code; i++) {
        unsigned char *matrix = calloc(bytes + 1, 1); /* padding is zeros */

        if (!matrix)
            return qn_error_memory();
        for (int j = 0; j < each && !code; j++)
            code = put_part(pack, &output->parts[i * each + j], matrix);
        if (!code)
            code = qn_safetensors_write(
                out, output->begin + bytes * (uint64_t)i, matrix, bytes);
        free(matrix);
    }
    return code;
}

static int put_output(const struct qn_pack *pack,
                      const struct qn_safetensors_out *out,
                      const struct qn_pack_output *output)
{
    if (output->copied)
        return put_copy(pack, out, output);
    if (output->header)
        return qn_safetensors_write(out, output->begin, output->header->header,
                                    output->header->header_bytes);
    return put_matrices(pack, out, output);
}

int qn_pack_write(const struct qn_pack *pack, const char *path,
                  qn_pack_step *step, void *user)
{
    struct qn_safetensors_out out = {.file = -1};
    char *header;
    size_t bytes;
    int code = qn_pack_header(pack, &header, &bytes);

    if (!code)
        code = qn_safetensors_create(&out, path, header, bytes, pack->bytes);
    free(header);
    for (int i = 0; i < pack->noutputs && !code; i++) {
        if (step)
            step(user, pack->noutputs, pack->outputs[i].name);
        code = put_output(pack, &out, &pack->outputs[i]);
    }
    if (!code)
        code = qn_safetensors_publish(&out);
    qn_safetensors_discard(&out);
    return code;
}
