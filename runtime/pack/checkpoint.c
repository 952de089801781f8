/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c: the tensors of a model in one or more files. */
#define _GNU_SOURCE
#include "pack/checkpoint.h"

#include "base/error.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MOST = 4096 };

const char *qn_checkpoint_name(const struct qn_safetensors *file)
{
    const char *last = strrchr(file->label, '/');

    return last ? last + 1 : file->label;
}

static int by_name(const void *a, const void *b)
{
    const struct qn_checkpoint_tensor *one = a, *two = b;

    return strcmp(one->t->name, two->t->name);
}

struct qn_checkpoint_tensor *qn_checkpoint_find(const struct qn_checkpoint *c,
                                                const char *name)
{
    const struct qn_safetensor t = {.name = name};
    const struct qn_checkpoint_tensor wanted = {.t = &t};

    return bsearch(&wanted, c->tensors, (size_t)c->count, sizeof *c->tensors,
                   by_name);
}

int qn_checkpoint_wrong(const struct qn_checkpoint *c,
                        const struct qn_checkpoint_tensor *tensor,
                        const char *format, ...)
{
    char rule[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(rule, sizeof rule, format, list);
    va_end(list);
    return qn_error_set(QUERN_EINVAL, "%s: tensor '%s': %s",
                        c->files[tensor->file].label, tensor->t->name, rule);
}

int qn_checkpoint_read(const struct qn_checkpoint *c,
                       const struct qn_checkpoint_tensor *tensor, uint64_t at,
                       void *buffer, size_t bytes)
{
    return qn_safetensors_read(&c->files[tensor->file], tensor->t, at, buffer,
                               bytes);
}

/* ------------------------------------------------------------------ opening */

static int add_file(struct qn_checkpoint *c, const char *path)
{
    struct qn_safetensors *more;
    const char *name;
    int code;

    if (c->nfiles == FILES_MOST)
        return qn_error_set(QUERN_EINVAL, "%s: over %d files", path,
                            FILES_MOST);
    more = realloc(c->files, ((size_t)c->nfiles + 1) * sizeof *c->files);
    if (!more)
        return qn_error_memory();
    c->files = more;
    more += c->nfiles++;
    code = qn_safetensors_open(more, path);
    if (code)
        return code;
    name = qn_checkpoint_name(more);
    for (int i = 0; i + 1 < c->nfiles; i++)
        if (!strcmp(name, qn_checkpoint_name(&c->files[i])))
            return qn_error_set(QUERN_EINVAL,
                                "%s and %s: files must have different names",
                                c->files[i].label, path);
    return QUERN_OK;
}

static int is_wanted(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');

    return end && end > entry->d_name && !strcmp(end, ".safetensors");
}

static int add_folder(struct qn_checkpoint *c, const char *folder)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_wanted, alphasort);
    int code = QUERN_OK;

    if (count < 0)
        code = qn_error_set(QUERN_EINVAL, "%s: %s", folder, strerror(errno));
    else if (!count)
        code =
            qn_error_set(QUERN_EINVAL, "%s: it has no *.safetensors", folder);
    for (int i = 0; i < count; i++) {
        struct qn_text path = {0};

        qn_text_add(&path, "%s/%s", folder, entries[i]->d_name);
        if (!code)
            code = path.failed ? qn_error_memory() : add_file(c, path.data);
        qn_text_free(&path);
        free(entries[i]);
    }
    free(entries);
    return code;
}

static int is_folder(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* A small text, perhaps of a link as hubs have them; NULL and errno, 0 if the
   file is too large. */
static char *read_text(const char *path, size_t most, size_t *bytes)
{
    /* O_NONBLOCK: a planted fifo must not hang us */
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = opened < 0 ? NULL : fdopen(opened, "r");
    struct stat st = {0};
    char *text;

    if (!file) {
        if (opened >= 0)
            close(opened);
        return NULL;
    }
    errno = 0;
    text = !fstat(fileno(file), &st) && S_ISREG(st.st_mode) &&
                   (uint64_t)st.st_size <= most
               ? malloc((size_t)st.st_size + 1)
               : NULL;
    if (text) {
        *bytes = fread(text, 1, (size_t)st.st_size, file);
        text[*bytes] = 0;
    }
    fclose(file);
    return text;
}

/* Is there nothing by this name, not even a link whose file is missing? */
static int is_absent(const char *path)
{
    struct stat st;

    return lstat(path, &st) && errno == ENOENT;
}

/* A file next to the tensors, or in their folder; *text NULL: there is none. */
static int read_sibling(const char *path, const char *name, size_t most,
                        char **text, size_t *bytes)
{
    const char *last = strrchr(path, '/');
    struct qn_text whole = {0};
    int code = QUERN_OK;

    *text = NULL;
    if (is_folder(path))
        qn_text_add(&whole, "%s/%s", path, name);
    else
        qn_text_add(&whole, "%.*s%s", last ? (int)(last - path) + 1 : 0, path,
                    name);
    if (whole.failed)
        return qn_error_memory();
    *text = read_text(whole.data, most, bytes);
    if (!*text && errno == ENOENT && !is_absent(whole.data))
        code = qn_error_set(QUERN_EINVAL,
                            "%s: the file that this link names is missing",
                            whole.data);
    else if (!*text && errno != ENOENT)
        code = qn_error_set(QUERN_EINVAL,
                            "%s: it is no plain file of at most %zu bytes",
                            whole.data, most);
    qn_text_free(&whole);
    return code;
}

/* The keys that qn_config does not have. */
static int read_more(struct qn_checkpoint *c, const char *path,
                     const char *text)
{
    cJSON *root = cJSON_Parse(text);
    const cJSON *limit = cJSON_GetObjectItemCaseSensitive(root, "swiglu_limit");
    const cJSON *how =
        cJSON_GetObjectItemCaseSensitive(root, "quantization_config");
    const char *format = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(how, "checkpoint_format"));
    int code = QUERN_OK;

    if (cJSON_IsNumber(limit) && limit->valuedouble > 1e-30 &&
        limit->valuedouble < 1e30)
        c->limit = limit->valuedouble;
    else if (limit && !cJSON_IsNull(limit))
        code = qn_error_set(QUERN_EINVAL,
                            "%s: config.json: swiglu_limit: a number between "
                            "1e-30 and 1e30 is expected",
                            path);
    c->zeros_as_they_are = format && !strcmp(format, "gptq_v2");
    cJSON_Delete(root);
    return code;
}

static int read_config(struct qn_checkpoint *c, const char *path)
{
    char *text, why[256];
    size_t bytes;
    int code = read_sibling(path, "config.json", QN_CONFIG_MOST, &text, &bytes);

    if (code || !text)
        return code;
    c->configured = qn_config_parse(text, bytes, &c->config, why, sizeof why);
    if (!c->configured)
        code = qn_error_set(QUERN_EINVAL, "%s: config.json: %s", path, why);
    else
        code = read_more(c, path, text);
    free(text);
    return code;
}

static int has_file(const struct qn_checkpoint *c, const char *name)
{
    for (int i = 0; i < c->nfiles; i++)
        if (!strcmp(qn_checkpoint_name(&c->files[i]), name))
            return 1;
    return 0;
}

/* A line of an index: the tensor is in the file that it names. */
static int check_place(const struct qn_checkpoint *c, const char *folder,
                       const char *index, const cJSON *item)
{
    const char *file = cJSON_GetStringValue(item);
    const int there = file && has_file(c, file);
    const struct qn_checkpoint_tensor *t =
        there ? qn_checkpoint_find(c, item->string) : NULL;

    if (t && !strcmp(qn_checkpoint_name(&c->files[t->file]), file))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "%s: tensor '%s': %s has it in '%s', %s",
                        folder, item->string, index, file ? file : "?",
                        there ? "which has no such tensor"
                              : "which is missing");
}

/* Each file of a folder's index is there, with the tensors that it names. */
static int check_index(const struct qn_checkpoint *c, const char *folder)
{
    static const char name[] = "model.safetensors.index.json";
    const cJSON *item, *map;
    char *text;
    size_t bytes;
    cJSON *root;
    int code = read_sibling(folder, name, QN_SAFETENSORS_HEADER, &text, &bytes);

    if (code || !text)
        return code;
    root = cJSON_ParseWithLengthOpts(text, bytes + 1, NULL, 1);
    free(text);
    if (!root)
        return qn_error_set(QUERN_EINVAL, "%s/%s: it is no JSON", folder, name);
    map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    if (!cJSON_IsObject(map))
        code = qn_error_set(QUERN_EINVAL,
                            "%s/%s: weight_map: an object of tensors and their "
                            "files is expected",
                            folder, name);
    cJSON_ArrayForEach(item, map)
    {
        if (!code)
            code = check_place(c, folder, name, item);
    }
    cJSON_Delete(root);
    return code;
}

int qn_checkpoint_list(struct qn_checkpoint *c)
{
    size_t count = 0;

    for (int i = 0; i < c->nfiles; i++)
        count += (size_t)c->files[i].count;
    c->tensors = calloc(count + 1, sizeof *c->tensors);
    if (!c->tensors)
        return qn_error_memory();
    for (int i = 0; i < c->nfiles; i++)
        for (int j = 0; j < c->files[i].count; j++)
            c->tensors[c->count++] = (struct qn_checkpoint_tensor){
                .t = &c->files[i].tensors[j], .file = i};
    qsort(c->tensors, count, sizeof *c->tensors, by_name);
    for (int i = 0; i + 1 < c->count; i++)
        if (!by_name(&c->tensors[i], &c->tensors[i + 1]))
            return qn_checkpoint_wrong(c, &c->tensors[i + 1],
                                       "%s has a tensor of this name, too",
                                       c->files[c->tensors[i].file].label);
    return QUERN_OK;
}

int qn_checkpoint_open(struct qn_checkpoint *c, char *const *paths, int count)
{
    int code = QUERN_OK;

    *c = (struct qn_checkpoint){0};
    for (int i = 0; i < count && !code; i++)
        code = is_folder(paths[i]) ? add_folder(c, paths[i])
                                   : add_file(c, paths[i]);
    if (!code)
        code = qn_checkpoint_list(c);
    for (int i = 0; i < count && !code; i++)
        if (is_folder(paths[i]))
            code = check_index(c, paths[i]);
    return code ? code : read_config(c, paths[0]);
}

void qn_checkpoint_close(struct qn_checkpoint *c)
{
    for (int i = 0; i < c->nfiles; i++)
        qn_safetensors_close(&c->files[i]);
    free(c->files);
    free(c->tensors);
    *c = (struct qn_checkpoint){0};
}
