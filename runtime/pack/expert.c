/* SPDX-License-Identifier: Apache-2.0 */
/* expert.c: layers whose experts have three tensors of codes each, by name:
   LAYER.EXPERT.ROLE.PART, where LAYER ends with ".experts". */
#define _GNU_SOURCE
#include "pack/format.h"

#include "base/error.h"
#include "base/text.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* As models name gate, up and down. */
static const char *const roles[][QN_PACK_ROLES] = {
    {"gate_proj", "up_proj", "down_proj"},
    {"w1", "w3", "w2"},
};
enum { NAMINGS = sizeof roles / sizeof roles[0] };

/* A layer's name in that of a tensor, and how it names roles. */
struct name {
    int length, naming, expert;
};

/* "123" and a dot; the rest, or NULL. */
static const char *read_expert(const char *text, int *expert)
{
    const char *at = text;

    for (*expert = 0; isdigit((unsigned char)*at); at++)
        if (*expert < QUERN_MAX_GROUPS)
            *expert = *expert * 10 + (*at - '0');
    return at > text && *at == '.' && (*text != '0' || at == text + 1) ? at + 1
                                                                       : NULL;
}

/* Is it a tensor of the part, of an expert? */
static int read_name(const char *text, const char *part, struct name *name)
{
    static const char experts[] = ".experts.";
    const char *at = NULL, *next = text, *rest;

    while ((next = strstr(next, experts)))
        at = next++;
    if (!at || !(rest = read_expert(at + strlen(experts), &name->expert)))
        return 0;
    name->length = (int)(at - text) + (int)strlen(experts) - 1;
    for (name->naming = 0; name->naming < NAMINGS; name->naming++)
        for (int i = 0; i < QN_PACK_ROLES; i++) {
            const char *role = roles[name->naming][i];
            const size_t length = strlen(role);

            if (!strncmp(rest, role, length) && rest[length] == '.' &&
                !strcmp(rest + length + 1, part))
                return 1;
        }
    return 0;
}

int qn_expert_has(const char *text, const char *part)
{
    struct name name;

    return read_name(text, part, &name);
}

int qn_expert_wanted(const struct qn_pack *pack, const char *layer)
{
    return !pack->experts_of || !fnmatch(pack->experts_of, layer, 0);
}

int qn_expert_layer(struct qn_pack *pack,
                    const struct qn_checkpoint_tensor *tensor, const char *name,
                    int experts, int64_t hidden, int64_t ffn,
                    const char *activation)
{
    const struct qn_checkpoint *c = pack->checkpoint;
    const struct qn_config *config = &c->config;
    struct qn_pack_layer *layer;

    if (c->configured &&
        (config->experts != experts || config->hidden != hidden ||
         config->ffn != ffn || !config->gated))
        return qn_checkpoint_wrong(
            c, tensor,
            "the layer has %d experts, hidden %lld, ffn %lld and a gate, and "
            "config.json says %d, %lld, %lld and %s",
            experts, (long long)hidden, (long long)ffn, config->experts,
            (long long)config->hidden, (long long)config->ffn,
            config->gated ? "a gate" : "no gate");
    layer = qn_pack_layer(pack, name);
    if (!layer)
        return QUERN_ENOMEM;
    layer->recipe = pack->recipe;
    layer->experts = experts;
    layer->hidden = hidden;
    layer->ffn = ffn;
    layer->activation = c->configured ? config->activation : activation;
    return QUERN_OK;
}

/* A layer that is planned. */
struct plan {
    struct qn_pack *pack;
    const char *layer;
    const char *const *roles;
    int experts;
};

/* Some tools write biases of layers that have none. */
static int check_bias(const struct plan *plan, const char *name)
{
    const struct qn_checkpoint_tensor *bias;
    struct qn_text text = {0};

    qn_text_add(&text, "%s.bias", name);
    if (text.failed)
        return qn_error_memory();
    bias = qn_checkpoint_find(plan->pack->checkpoint, text.data);
    qn_text_free(&text);
    return bias ? qn_pack_check_nothing(plan->pack, bias) : QUERN_OK;
}

static int get_piece(const struct plan *plan, int expert, int role,
                     struct qn_format_piece *piece)
{
    struct qn_text name = {0};
    int code;

    *piece = (struct qn_format_piece){0};
    qn_text_add(&name, "%s.%d.%s", plan->layer, expert, plan->roles[role]);
    code = name.failed
               ? qn_error_memory()
               : plan->pack->format->piece(plan->pack, name.data, piece);
    if (!code)
        code = check_bias(plan, name.data);
    qn_text_free(&name);
    return code;
}

/* All pieces of the layer have the sizes of the first one. */
static int check_sizes(const struct plan *plan,
                       const struct qn_format_piece *piece, int64_t rows,
                       int64_t k)
{
    if (piece->rows == rows && piece->k == k)
        return QUERN_OK;
    return qn_checkpoint_wrong(
        plan->pack->checkpoint, piece->codes,
        "it is a weight [%lld, %lld], and other experts' gates need [%lld, "
        "%lld]",
        (long long)piece->rows, (long long)piece->k, (long long)rows,
        (long long)k);
}

static int put_expert(const struct plan *plan, int expert,
                      const struct qn_weight *w1, const struct qn_weight *w2)
{
    struct qn_format_piece pieces[QN_PACK_ROLES];
    const int64_t ffn = w2->k, hidden = w1->k;
    int code = QUERN_OK;

    for (int i = 0; i < QN_PACK_ROLES && !code; i++) {
        code = get_piece(plan, expert, i, &pieces[i]);
        if (!code)
            code = check_sizes(plan, &pieces[i], i == 2 ? hidden : ffn,
                               i == 2 ? ffn : hidden);
    }
    if (!code)
        code = qn_weight_put(w1, 0, &pieces[0]);
    if (!code)
        code = qn_weight_put(w1, ffn, &pieces[1]);
    if (!code && pieces[0].global)
        code =
            qn_pack_check_same(plan->pack, pieces[1].global, pieces[0].global);
    return code ? code : qn_weight_put(w2, 0, &pieces[2]);
}

static int put_layer(const struct plan *plan)
{
    struct qn_format_piece first;
    struct qn_weight w1, w2;
    int code = get_piece(plan, 0, 0, &first);

    if (!code)
        code = qn_expert_layer(plan->pack, first.codes, plan->layer,
                               plan->experts, first.k, first.rows, "swiglu");
    if (!code)
        code = qn_weight_add(&w1, plan->pack, plan->layer, "w1", plan->experts,
                             2 * first.rows, first.k);
    if (!code)
        code = qn_weight_add(&w2, plan->pack, plan->layer, "w2", plan->experts,
                             first.k, first.rows);
    for (int e = 0; e < plan->experts && !code; e++)
        code = put_expert(plan, e, &w1, &w2);
    return code;
}

/* From tensor `i` on, all of whose layer follow. */
static int plan_layer(struct qn_pack *pack, int i, const struct name *first)
{
    const struct qn_checkpoint *c = pack->checkpoint;
    char *layer = strndup(c->tensors[i].t->name, (size_t)first->length);
    struct plan plan = {pack, layer, roles[first->naming], 0};
    int code = layer ? QUERN_OK : qn_error_memory();

    for (; !code && i < c->count; i++) {
        const char *text = c->tensors[i].t->name;
        struct name name;

        if (strncmp(text, layer, (size_t)first->length) ||
            text[first->length] != '.')
            break;
        if (!read_name(text, pack->format->codes, &name))
            continue;
        if (name.expert >= QUERN_MAX_GROUPS)
            code = qn_checkpoint_wrong(c, &c->tensors[i],
                                       "a layer has at most %d experts",
                                       QUERN_MAX_GROUPS);
        if (name.expert >= plan.experts)
            plan.experts = name.expert + 1;
    }
    if (!code && qn_expert_wanted(pack, layer))
        code = put_layer(&plan);
    free(layer);
    return code;
}

int qn_expert_plan(struct qn_pack *pack)
{
    const struct qn_checkpoint *c = pack->checkpoint;
    struct name name, last = {0};
    const char *before = NULL;
    int code = QUERN_OK;

    for (int i = 0; i < c->count && !code; i++) {
        const char *text = c->tensors[i].t->name;

        if (!read_name(text, pack->format->codes, &name) ||
            !pack->format->is(c, &c->tensors[i]))
            continue;
        if (before && name.length == last.length &&
            !strncmp(text, before, (size_t)name.length))
            continue;
        before = text;
        last = name;
        code = plan_layer(pack, i, &name);
    }
    return code;
}
