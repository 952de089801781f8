/* SPDX-License-Identifier: Apache-2.0 */
/* config.c: the mixture-of-experts layer of a model's config.json. */
#include "oracle/config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { DEEPEST = 64, LONGEST = 1 << 20 };

static int refuse(char *why, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(char *why, size_t size, const char *format, ...)
{
    va_list rest;

    va_start(rest, format);
    vsnprintf(why, size, format, rest);
    va_end(rest);
    return 0;
}

/* Brackets inside one another, outside of strings: the parser recurses. */
static int depth_of(const char *text, size_t bytes)
{
    int depth = 0, most = 0, quoted = 0;

    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];

        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '[') && ++depth > most)
            most = depth;
        else if (!quoted && (c == '}' || c == ']'))
            depth--;
    }
    return most;
}

/* The first of the keys that the object has; its name in *key. Several are
   separated by blanks. */
static const cJSON *find(const cJSON *object, const char *keys, char key[40])
{
    const cJSON *item = NULL;

    while (*keys && !item) {
        const int length = (int)strcspn(keys, " ");

        snprintf(key, 40, "%.*s", length, keys);
        item = cJSON_GetObjectItemCaseSensitive(object, key);
        if (cJSON_IsNull(item))
            item = NULL;
        keys += length + (keys[length] == ' ');
    }
    return item;
}

/* None of the keys is there. */
static int refuse_keys(const char *keys, char *why, size_t size)
{
    char list[160];
    size_t used = 0;

    if (!strchr(keys, ' '))
        return refuse(why, size, "%s is missing", keys);
    for (const char *at = keys; *at && used < sizeof list - 2; at++) {
        if (*at == ' ')
            list[used++] = ',';
        list[used++] = *at;
    }
    list[used] = '\0';
    return refuse(why, size, "one of %s is expected", list);
}

/* A whole number from 1 to `most`. */
static int read_number(const cJSON *object, const char *keys, int64_t most,
                       int64_t *value, char *why, size_t size)
{
    char key[40];
    const cJSON *item = find(object, keys, key);

    if (!item)
        return refuse_keys(keys, why, size);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1) ||
        !(item->valuedouble <= (double)most) ||
        floor(item->valuedouble) != item->valuedouble)
        return refuse(why, size,
                      "%s: a whole number from 1 to %lld is expected", key,
                      (long long)most);
    *value = (int64_t)item->valuedouble;
    return 1;
}

/* Hugging Face's name of the function that gates, or stands by itself. */
static const struct {
    const char *name, *activation;
    int gated;
} activations[] = {
    {"silu", "swiglu", 1},
    {"swish", "swiglu", 1},
    {"gelu_pytorch_tanh", "geglu", 1},
    {"gelu_new", "geglu", 1},
    {"relu", "reglu", 1},
    {"relu2", "squared_relu", 0},
};

static const char activation_keys[] =
    "hidden_act hidden_activation mlp_hidden_act";

static int read_activation(const cJSON *object, struct qn_config *config,
                           char *why, size_t size)
{
    char key[40];
    const char *name = cJSON_GetStringValue(find(object, activation_keys, key));

    if (!name)
        return refuse(why, size, "hidden_act is missing, or no string");
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (strcmp(activations[i].name, name) == 0) {
            config->activation = activations[i].activation;
            config->gated = activations[i].gated;
            return 1;
        }
    return refuse(why, size,
                  "%s is '%.32s'; known are silu, swish, gelu_pytorch_tanh, "
                  "gelu_new, relu and relu2",
                  key, name);
}

/* The file next to gpt-oss's first weights names neither a type nor an
   activation, but the limit of its own. */
static int is_gpt_oss(const cJSON *object)
{
    const char *type = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(object, "model_type"));
    char key[40];

    if (type)
        return !strcmp(type, "gpt_oss");
    return !find(object, activation_keys, key) &&
           cJSON_IsNumber(
               cJSON_GetObjectItemCaseSensitive(object, "swiglu_limit"));
}

/* gpt-oss clamps the gate, interleaves it, and adds biases. */
static void be_gpt_oss(struct qn_config *config)
{
    config->activation = "clamped_swiglu";
    config->gated = 1;
    config->interleave = 1;
    config->bias = 1;
}

/* The experts of the text's layers, where other parts have configurations. */
static const cJSON *find_layers(const cJSON *root, const char *experts)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(root, "text_config");
    char key[40];

    return cJSON_IsObject(text) && !find(root, experts, key) ? text : root;
}

static int read_layers(const cJSON *root, struct qn_config *config, char *why,
                       size_t size)
{
    static const char experts[] =
        "num_experts num_local_experts n_routed_experts";
    const cJSON *object = find_layers(root, experts);
    int64_t count = 0, choices = 0;

    if (!cJSON_IsObject(root))
        return refuse(why, size, "an object is expected");
    if (!read_number(object, experts, QUERN_MAX_GROUPS, &count, why, size) ||
        !read_number(object, "num_experts_per_tok experts_per_token", count,
                     &choices, why, size) ||
        !read_number(object, "hidden_size", LONGEST, &config->hidden, why,
                     size) ||
        !read_number(object, "moe_intermediate_size intermediate_size", LONGEST,
                     &config->ffn, why, size) ||
        (!is_gpt_oss(object) && !read_activation(object, config, why, size)))
        return 0;
    config->experts = (int)count;
    config->choices = (int)choices;
    if (is_gpt_oss(object))
        be_gpt_oss(config);
    return 1;
}

int qn_config_parse(const char *text, size_t bytes, struct qn_config *config,
                    char *why, size_t size)
{
    const char *end = text + bytes, *rest = NULL;
    cJSON *root;
    int read;

    memset(config, 0, sizeof *config);
    if (bytes > QN_CONFIG_MOST)
        return refuse(why, size, "over %zu bytes", QN_CONFIG_MOST);
    if (depth_of(text, bytes) > DEEPEST)
        return refuse(why, size, "over %d objects and arrays inside each other",
                      DEEPEST);
    root = cJSON_ParseWithLengthOpts(text, bytes, &rest, 0);
    while (root && rest < end && *rest && strchr(" \t\r\n", *rest))
        rest++;
    if (!root || rest < end) {
        cJSON_Delete(root);
        return refuse(why, size, "it is no JSON");
    }
    read = read_layers(root, config, why, size);
    cJSON_Delete(root);
    return read;
}

/* ------------------------------------------------------------------- lines */

enum { TRAINING = 1, SCALED = 2, BIAS = 4 };

/* Lengths: rows, hidden, ffn, and the wide one of the first product. */
static const struct row {
    const char *op, *keys;
    char m, n, k;
    int when; /* bits: for training only, of scaled tensors only, with bias */
} rows[] = {
    {"fprop", "", 'r', 'w', 'h', BIAS},
    {"fprop", "", 'r', 'h', 'f', BIAS},
    {"dgrad", "", 'r', 'h', 'w', TRAINING},
    {"dgrad", "", 'r', 'f', 'h', TRAINING},
    {"wgrad", "", 'w', 'h', 'r', TRAINING},
    {"wgrad", "", 'h', 'f', 'r', TRAINING},
    {"wgrad", " d=f32 beta=1", 'w', 'h', 'r', TRAINING},
    {"wgrad", " d=f32 beta=1", 'h', 'f', 'r', TRAINING},
    {"quantize", " of=x", 'r', 0, 'h', SCALED},
    {"quantize", " of=x", 'r', 0, 'f', SCALED},
    {"quantize", " of=w", 'w', 0, 'h', SCALED},
    {"quantize", " of=w", 'h', 0, 'f', SCALED},
    {"quantize", " of=dy", 'r', 0, 'w', SCALED | TRAINING},
    {"quantize", " of=dy", 'r', 0, 'h', SCALED | TRAINING},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static int is_forward(const struct qn_config_use *use)
{
    return use->forward || use->recipe->dy == QUERN_TYPE_NONE;
}

static int64_t length_of(const struct qn_config *config,
                         const struct qn_config_use *use, char letter)
{
    return letter == 'r'   ? use->rows
           : letter == 'h' ? config->hidden
           : letter == 'f' ? config->ffn
                           : config->ffn * (1 + config->gated);
}

/* With and without a probability for each row: the layers of frameworks have
   one, and rows that belong to no expert. */
static void print_mlp(const struct qn_config *config,
                      const struct qn_config_use *use, int routed, char *line,
                      size_t size)
{
    snprintf(line, size,
             "mlp %s g=%d m=%lld hidden=%lld ffn=%lld activation=%s%s%s%s%s",
             use->recipe->name, use->groups, (long long)use->rows,
             (long long)config->hidden, (long long)config->ffn,
             config->activation, config->interleave ? " interleave=1" : "",
             config->bias ? " bias=1" : "", is_forward(use) ? " grad=0" : "",
             routed ? " prob=1 outside=zero" : "");
}

static void print_row(const struct qn_config *config,
                      const struct qn_config_use *use, const struct row *row,
                      char *line, size_t size)
{
    int used =
        snprintf(line, size, "%s %s g=%d m=%lld", row->op, use->recipe->name,
                 use->groups, (long long)length_of(config, use, row->m));

    if (row->n)
        used += snprintf(line + used, size - (size_t)used, " n=%lld",
                         (long long)length_of(config, use, row->n));
    snprintf(line + used, size - (size_t)used, " k=%lld%s%s%s",
             (long long)length_of(config, use, row->k), row->keys,
             row->when & SCALED && is_forward(use) ? " copies=rowwise" : "",
             row->when & BIAS && config->bias ? " bias=1" : "");
}

int qn_config_line(const struct qn_config *config,
                   const struct qn_config_use *use, int i, char *line,
                   size_t size)
{
    if (i < 2) {
        print_mlp(config, use, i, line, size);
        return 1;
    }
    i -= 2;
    for (int at = 0; at < ROWS; at++) {
        const int when = rows[at].when;

        if ((when & TRAINING && is_forward(use)) ||
            (when & SCALED && !use->recipe->scaled) || i-- > 0)
            continue;
        print_row(config, use, &rows[at], line, size);
        return 1;
    }
    return 0;
}
