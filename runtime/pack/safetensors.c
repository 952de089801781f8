/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c: the checked table of a file's tensors, and their bytes. */
#define _GNU_SOURCE
#include "pack/safetensors.h"

#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    int bits;
} types[] = {
#define ROW(name, text, bits) {text, bits},
    QN_SAFETENSORS_TYPES(ROW)
#undef ROW
};

const char *qn_safetensors_type(int type)
{
    return types[type].name;
}

int qn_safetensors_bits(int type)
{
    return types[type].bits;
}

const char *qn_safetensors_shape(const struct qn_safetensor *t, char *text,
                                 size_t size)
{
    size_t used =
        (size_t)snprintf(text, size, "%s [", qn_safetensors_type(t->type));

    for (int i = 0; i < t->ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld",
                                 i ? ", " : "", (long long)t->shape[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
    return text;
}

/* ------------------------------------------------------------ the header */

static int wrong(const struct qn_safetensors *file, const char *name,
                 const char *rule)
{
    return qn_error_set(QUERN_EINVAL, "%s: tensor '%s': %s", file->label, name,
                        rule);
}

static int wrong_file(const struct qn_safetensors *file, const char *rule)
{
    return qn_error_set(QUERN_EINVAL, "%s: %s", file->label, rule);
}

/* A whole number from 0 to 2^53, which doubles hold. */
static int whole(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        !(item->valuedouble <= 0x1p53))
        return 0;
    *value = (uint64_t)item->valuedouble;
    return (double)*value == item->valuedouble;
}

static int read_type(const cJSON *item, struct qn_safetensor *t)
{
    const char *text = cJSON_GetStringValue(item);

    for (t->type = 0; text && t->type < QN_ST_COUNT; t->type++)
        if (!strcmp(types[t->type].name, text))
            return 1;
    return 0;
}

/* The shape, and the bits of all values: 2^62 at most. */
static int read_shape(const cJSON *item, struct qn_safetensor *t,
                      uint64_t *bits)
{
    const cJSON *extent;
    uint64_t length;

    if (!cJSON_IsArray(item))
        return 0;
    *bits = (uint64_t)types[t->type].bits;
    cJSON_ArrayForEach(extent, item)
    {
        if (t->ndim == QN_SAFETENSORS_DIMS || !whole(extent, &length) ||
            (length && *bits > (UINT64_C(1) << 62) / length))
            return 0;
        t->shape[t->ndim++] = (int64_t)length;
        *bits *= length;
    }
    return 1;
}

static int read_offsets(const cJSON *item, uint64_t *begin, uint64_t *end)
{
    return cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2 &&
           whole(item->child, begin) && whole(item->child->next, end);
}

/* A field of a tensor, which occurs once; NULL otherwise. */
static const cJSON *field(const cJSON *item, const char *name)
{
    const cJSON *child, *found = NULL;

    cJSON_ArrayForEach(child, item)
    {
        if (strcmp(child->string, name))
            continue;
        if (found)
            return NULL;
        found = child;
    }
    return found;
}

static int read_tensor(const struct qn_safetensors *file, const cJSON *item,
                       struct qn_safetensor *t)
{
    uint64_t bits, end;

    t->name = item->string;
    if (!cJSON_IsObject(item) || cJSON_GetArraySize(item) != 3)
        return wrong(file, t->name,
                     "it must have dtype, shape and data_offsets");
    if (!read_type(field(item, "dtype"), t))
        return wrong(file, t->name, "its dtype is unknown");
    if (!read_shape(field(item, "shape"), t, &bits))
        return wrong(file, t->name,
                     "its shape must have at most 8 lengths, and 2^62 bits");
    if (!read_offsets(field(item, "data_offsets"), &t->begin, &end) ||
        end < t->begin)
        return wrong(file, t->name,
                     "its data_offsets must be two, the first one first");
    t->bytes = end - t->begin;
    if (bits % 8 || t->bytes != bits / 8)
        return wrong(file, t->name,
                     "its data_offsets are not as far from each other as its "
                     "shape needs");
    if (end > file->data_bytes)
        return wrong(file, t->name,
                     "it ends after the file's end: the file is truncated");
    return QUERN_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct qn_safetensor *one = a, *two = b;

    return strcmp(one->name, two->name);
}

static int by_begin(const void *a, const void *b)
{
    const struct qn_safetensor *one = a, *two = b;

    if (one->begin != two->begin)
        return one->begin < two->begin ? -1 : 1;
    return (one->bytes > two->bytes) - (one->bytes < two->bytes);
}

/* The tensors follow each other; they are sorted by their begin. */
static int check_gaps(struct qn_safetensors *file)
{
    uint64_t at = 0;

    for (int i = 0; i < file->count; i++) {
        const struct qn_safetensor *t = &file->tensors[i];

        if (t->begin < at)
            return wrong(file, t->name, "it overlaps another tensor");
        if (t->begin > at)
            return wrong(file, t->name, "there is a gap before it");
        at += t->bytes;
    }
    if (file->data_bytes == UINT64_MAX)
        file->data_bytes = at;
    if (at < file->data_bytes)
        return wrong_file(file, "it has bytes after its last tensor");
    return QUERN_OK;
}

static int check_names(const struct qn_safetensors *file)
{
    for (int i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;

        if (!*name)
            return wrong(file, name, "it has no name");
        if (i && !strcmp(file->tensors[i - 1].name, name))
            return wrong(file, name, "there are two of this name");
    }
    return QUERN_OK;
}

/* Texts by name, as the format has them. */
static int check_metadata(const struct qn_safetensors *file, const cJSON *all)
{
    const cJSON *item;

    if (!cJSON_IsObject(all))
        return wrong_file(file, "__metadata__ must be an object");
    cJSON_ArrayForEach(item, all)
    {
        if (!cJSON_IsString(item))
            return wrong_file(file, "__metadata__ must have texts only");
    }
    return QUERN_OK;
}

static int list_tensors(struct qn_safetensors *file)
{
    const int count = cJSON_GetArraySize(file->json);
    const cJSON *item;
    int code, metadata = 0;

    file->tensors = calloc((size_t)count + 1, sizeof *file->tensors);
    if (!file->tensors)
        return qn_error_memory();
    cJSON_ArrayForEach(item, file->json)
    {
        if (!strcmp(item->string, "__metadata__")) {
            if (metadata++)
                return wrong_file(file, "it has two __metadata__");
            code = check_metadata(file, item);
        } else {
            code = read_tensor(file, item, &file->tensors[file->count++]);
        }
        if (code)
            return code;
    }
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_begin);
    if ((code = check_gaps(file)))
        return code;
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_name);
    return check_names(file);
}

/* One JSON object, and blanks after it. */
static int parse_json(struct qn_safetensors *file)
{
    const char *end = NULL;

    if (strlen(file->header) != file->header_bytes || file->header[0] != '{')
        return wrong_file(file, "its header is no JSON object: it is no "
                                "safetensors file");
    if (!qn_text_valid(file->header))
        return wrong_file(file, "its header is not valid UTF-8");
    if (strstr(file->header, "\\u0000")) /* cJSON would end a name there */
        return wrong_file(file, "its header has a NUL character in a string");
    file->json = cJSON_ParseWithLengthOpts(file->header, file->header_bytes + 1,
                                           &end, 0);
    if (!file->json || !cJSON_IsObject(file->json))
        return wrong_file(file, "its header is no valid JSON");
    if (end[strspn(end, " ")])
        return wrong_file(file, "its header has text after the JSON object");
    return QUERN_OK;
}

int qn_safetensors_parse(struct qn_safetensors *file, const char *label,
                         char *header, size_t header_bytes, uint64_t data_bytes)
{
    int code;

    *file = (struct qn_safetensors){.label = qn_text_copy(label),
                                    .header = header,
                                    .header_bytes = header_bytes,
                                    .file = -1,
                                    .data = 8 + header_bytes,
                                    .data_bytes = data_bytes};
    if (!file->label)
        return qn_error_memory();
    code = parse_json(file);
    return code ? code : list_tensors(file);
}

/* -------------------------------------------------------------- the file */

/* Bytes of a file; 0 and errno, which is 0 at the file's end. */
static int read_at(int file, uint64_t at, void *buffer, size_t bytes)
{
    char *to = buffer;

    while (bytes) {
        const ssize_t got = pread(file, to, bytes, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            if (got == 0)
                errno = 0;
            return 0;
        }
        to += got;
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 1;
}

static int unreadable(const char *path)
{
    return qn_error_set(QUERN_EINVAL, "%s: %s", path,
                        errno ? strerror(errno)
                              : "it ends too early: the file is truncated");
}

/* The header's length, which the file has room for. */
static int read_length(int file, const char *path, uint64_t size,
                       uint64_t *length)
{
    unsigned char bytes[8];

    if (!read_at(file, 0, bytes, sizeof bytes))
        return unreadable(path);
    *length = 0;
    for (int i = 7; i >= 0; i--)
        *length = *length << 8 | bytes[i];
    if (*length > QN_SAFETENSORS_HEADER)
        return qn_error_set(QUERN_EINVAL,
                            "%s: its header would have %llu bytes, over %d: "
                            "it is no safetensors file",
                            path, (unsigned long long)*length,
                            QN_SAFETENSORS_HEADER);
    errno = 0;
    return *length > size - 8 ? unreadable(path) : QUERN_OK;
}

static int parse_file(struct qn_safetensors *result, int file, const char *path)
{
    struct stat st;
    uint64_t length = 0;
    char *header;
    int code;

    if (fstat(file, &st))
        return unreadable(path);
    if (!S_ISREG(st.st_mode))
        return qn_error_set(QUERN_EINVAL, "%s: it is no plain file", path);
    code = read_length(file, path, (uint64_t)st.st_size, &length);
    if (code)
        return code;
    header = malloc((size_t)length + 1);
    if (!header)
        return qn_error_memory();
    if (!read_at(file, 8, header, (size_t)length)) {
        free(header);
        return unreadable(path);
    }
    header[length] = 0;
    return qn_safetensors_parse(result, path, header, (size_t)length,
                                (uint64_t)st.st_size - 8 - length);
}

int qn_safetensors_open(struct qn_safetensors *result, const char *path)
{
    /* O_NONBLOCK: a planted fifo must not hang us */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int code;

    *result = (struct qn_safetensors){.file = -1};
    if (file < 0)
        return unreadable(path);
    code = parse_file(result, file, path);
    result->file = file;
    return code;
}

void qn_safetensors_close(struct qn_safetensors *file)
{
    if (file->file >= 0)
        close(file->file);
    cJSON_Delete(file->json);
    free(file->tensors);
    free(file->header);
    free(file->label);
    *file = (struct qn_safetensors){.file = -1};
}

const struct qn_safetensor *
qn_safetensors_find(const struct qn_safetensors *file, const char *name)
{
    const struct qn_safetensor wanted = {.name = name};

    return bsearch(&wanted, file->tensors, (size_t)file->count,
                   sizeof *file->tensors, by_name);
}

const char *qn_safetensors_metadata(const struct qn_safetensors *file,
                                    const char *name)
{
    const cJSON *all =
        cJSON_GetObjectItemCaseSensitive(file->json, "__metadata__");

    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(all, name));
}

int qn_safetensors_read(const struct qn_safetensors *file,
                        const struct qn_safetensor *t, uint64_t at,
                        void *buffer, size_t bytes)
{
    if (at > t->bytes || bytes > t->bytes - at)
        return wrong(file, t->name, "it has fewer bytes than were asked for");
    if (!read_at(file->file, file->data + t->begin + at, buffer, bytes))
        return unreadable(file->label);
    return QUERN_OK;
}
