/* SPDX-License-Identifier: Apache-2.0 */
/* pack_header.c: the header of a packed file. */
#include "pack/pack_header.h"

#include "base/error.h"
#include "pack/format.h"

#include <stdlib.h>
#include <string.h>

int qn_pack_names_file(const char *name)
{
    const size_t length = strlen(name), end = strlen(".safetensors");

    return length > end && name[0] != '.' && !strchr(name, '/') &&
           !strcmp(name + length - end, ".safetensors");
}

void qn_pack_add_sizes(cJSON *row, const struct qn_pack_layer *layer)
{
    cJSON_AddStringToObject(row, "recipe", layer->recipe);
    cJSON_AddNumberToObject(row, "experts", layer->experts);
    cJSON_AddNumberToObject(row, "hidden", (double)layer->hidden);
    cJSON_AddNumberToObject(row, "ffn", (double)layer->ffn);
    cJSON_AddStringToObject(row, "activation", layer->activation);
    cJSON_AddNumberToObject(row, "interleave", layer->interleave);
}

/* A layer as loaders read it. COUPLED: packed layers */
static void add_layer(cJSON *layers, const struct qn_pack *pack,
                      const struct qn_pack_layer *layer)
{
    cJSON *row = cJSON_CreateObject();
    const int clamped = !strcmp(layer->activation, "clamped_swiglu");
    const double limit = pack->checkpoint->limit;

    cJSON_AddStringToObject(row, "name", layer->name);
    qn_pack_add_sizes(row, layer);
    if (clamped) {
        cJSON_AddNumberToObject(row, "limit", limit > 0 ? limit : 7);
        cJSON_AddNumberToObject(row, "slope", 1.702);
        cJSON_AddNumberToObject(row, "shift", 1);
    }
    cJSON_AddItemToArray(layers, row);
}

/* One text, as the format's metadata must be. */
static int add_metadata(cJSON *header, const struct qn_pack *pack)
{
    cJSON *all = cJSON_AddObjectToObject(header, "__metadata__");
    cJSON *about = cJSON_CreateObject(), *layers;
    char *text;

    cJSON_AddNumberToObject(about, "version", QN_PACK_VERSION);
    cJSON_AddStringToObject(about, "format", pack->format->name);
    cJSON_AddStringToObject(about, "recipe", pack->recipe);
    if (pack->checkpoint->zeros_as_they_are)
        cJSON_AddTrueToObject(about, "zeros_as_they_are");
    if (pack->experts_of)
        cJSON_AddStringToObject(about, "experts_of", pack->experts_of);
    layers = cJSON_AddArrayToObject(about, "layers");
    for (int i = 0; i < pack->nlayers; i++)
        add_layer(layers, pack, &pack->layers[i]);
    text = cJSON_PrintUnformatted(about);
    cJSON_Delete(about);
    cJSON_AddStringToObject(all, "format", "pt");
    if (text)
        cJSON_AddStringToObject(all, QN_PACK_METADATA, text);
    cJSON_free(text);
    return text != NULL;
}

static void add_tensor(cJSON *header, const struct qn_pack_output *output)
{
    cJSON *row = cJSON_CreateObject(), *list;

    cJSON_AddStringToObject(row, "dtype", qn_safetensors_type(output->type));
    list = cJSON_AddArrayToObject(row, "shape");
    for (int i = 0; i < output->ndim; i++)
        cJSON_AddItemToArray(list,
                             cJSON_CreateNumber((double)output->shape[i]));
    list = cJSON_AddArrayToObject(row, "data_offsets");
    cJSON_AddItemToArray(list, cJSON_CreateNumber((double)output->begin));
    cJSON_AddItemToArray(
        list, cJSON_CreateNumber((double)(output->begin + output->bytes)));
    cJSON_AddItemToObject(header, output->name, row);
}

/* cJSON leaves out what memory has no room for. */
static int is_whole(const struct qn_pack *pack, const char *header,
                    size_t bytes)
{
    struct qn_safetensors read;
    char *copy = malloc(bytes + 1);
    int whole;

    if (!copy)
        return 0;
    memcpy(copy, header, bytes + 1);
    whole = !qn_safetensors_parse(&read, "", copy, bytes, pack->bytes) &&
            read.count == pack->noutputs;
    qn_safetensors_close(&read);
    return whole;
}

/* A text in blanks up to a multiple of 64 bytes with its length. */
static char *padded(const char *text, size_t *bytes)
{
    const size_t length = strlen(text);
    char *header;

    *bytes = (8 + length + 63) / 64 * 64 - 8;
    header = malloc(*bytes + 1);
    if (!header)
        return NULL;
    memset(header, ' ', *bytes);
    memcpy(header, text, length);
    header[*bytes] = 0;
    return header;
}

int qn_pack_header(const struct qn_pack *pack, char **header, size_t *bytes)
{
    cJSON *json = cJSON_CreateObject();
    const int made = json && add_metadata(json, pack);
    char *text = NULL;

    *header = NULL;
    for (int i = 0; made && i < pack->noutputs; i++)
        add_tensor(json, &pack->outputs[i]);
    if (made)
        text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    if (text)
        *header = padded(text, bytes);
    cJSON_free(text);
    if (!*header || !is_whole(pack, *header, *bytes))
        return qn_error_memory();
    return *bytes <= QN_SAFETENSORS_HEADER
               ? QUERN_OK
               : qn_error_set(QUERN_EINVAL,
                              "the new file's header would have %zu bytes, "
                              "over %d; pack fewer files",
                              *bytes, QN_SAFETENSORS_HEADER);
}

int qn_pack_header_options(const cJSON *metadata, const char *path,
                           struct qn_pack_options *options)
{
    const cJSON *version =
        cJSON_GetObjectItemCaseSensitive(metadata, "version");

    *options = (struct qn_pack_options){
        .format = cJSON_GetStringValue(
            cJSON_GetObjectItemCaseSensitive(metadata, "format")),
        .recipe = cJSON_GetStringValue(
            cJSON_GetObjectItemCaseSensitive(metadata, "recipe")),
        .experts_of = cJSON_GetStringValue(
            cJSON_GetObjectItemCaseSensitive(metadata, "experts_of")),
        .zeros_as_they_are = cJSON_IsTrue(
            cJSON_GetObjectItemCaseSensitive(metadata, "zeros_as_they_are")),
    };
    if (!cJSON_IsNumber(version) || version->valuedouble != QN_PACK_VERSION ||
        !options->format || !options->recipe)
        return qn_error_set(QUERN_EINVAL,
                            "%s: it was not written by this version of "
                            "quern pack",
                            path);
    return QUERN_OK;
}
