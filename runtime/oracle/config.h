/* SPDX-License-Identifier: Apache-2.0 */
/* config.h: the mixture-of-experts layer of a model's config.json, as Hugging
   Face's transformers write it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct qn_recipe;

#define QN_CONFIG_MOST ((size_t)1 << 20) /* bytes of a file */

struct qn_config {
    int experts, choices; /* of a layer; of a token */
    int64_t hidden, ffn;
    const char *activation; /* of QUERN_ACTIVATIONS */
    int gated, bias, interleave;
};

/* Read text, which may be anything. 1; or 0 and the reason in `why`: not JSON,
   too deep, a key that is missing or out of its range. */
int qn_config_parse(const char *text, size_t bytes, struct qn_config *config,
                    char *why, size_t size);

/* Which of the layer's lines are wanted. */
struct qn_config_use {
    const struct qn_recipe *recipe;
    int groups;   /* experts of one rank */
    int64_t rows; /* that these get at most */
    int forward;  /* no gradients; always of a recipe without dy */
};

/* The i-th line of the layer: the whole MLP, its products and its casts. 0 past
   the last. */
int qn_config_line(const struct qn_config *config,
                   const struct qn_config_use *use, int i, char *line,
                   size_t size);
