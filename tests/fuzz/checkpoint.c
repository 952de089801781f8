/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c: headers of safetensors files, and plans for their experts. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "internal.h"
#include "pack/pack.h"
#include "pack/pack_header.h"

static struct quern_context *context(void)
{
    static const struct quern_open_options options = {.cache = ""};
    static struct quern_context *ctx;

    if (!ctx)
        FUZZ_HOLDS(qn_open(&options, &ctx) == QUERN_OK);
    return ctx;
}

static void has_sentence(void)
{
    FUZZ_HOLDS(strchr(qn_error_text(), ' '));
}

/* All bytes of the new file are those of one tensor. */
static void check_plan(const struct qn_pack *pack)
{
    struct qn_safetensors packed;
    size_t bytes;
    char *header;

    FUZZ_HOLDS(qn_pack_header(pack, &header, &bytes) == QUERN_OK);
    FUZZ_HOLDS(qn_safetensors_parse(&packed, "packed", header, bytes,
                                    pack->bytes) == QUERN_OK);
    FUZZ_HOLDS(packed.count == pack->noutputs);
    qn_safetensors_close(&packed);
}

/* The text is the header of a file whose data are not there. */
void fuzz_checkpoint(const char *text, size_t length)
{
    static const struct qn_pack_options options;
    struct qn_safetensors *file = calloc(1, sizeof *file);
    struct qn_checkpoint c = {.files = file, .nfiles = 1};
    struct qn_pack pack = {0};
    char *header = malloc(length + 1);

    FUZZ_HOLDS(file && header);
    memcpy(header, text, length);
    header[length] = 0;
    if (qn_safetensors_parse(file, "fuzz", header, length, UINT64_MAX) ||
        qn_checkpoint_list(&c) || qn_pack_plan(&pack, context(), &c, &options))
        has_sentence();
    else
        check_plan(&pack);
    qn_pack_free(&pack);
    qn_checkpoint_close(&c);
}
