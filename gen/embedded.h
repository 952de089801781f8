/* SPDX-License-Identifier: Apache-2.0 */
/* embedded.h: the specs and templates that a build packs into libquern_gen.
   gen/embed.c writes the definitions, sorted by path. */
#pragma once

#include <stddef.h>

struct qg_file {
    const char *path; /* "specs/recipes/bf16.lua", "templates/sm90/copy.cu" */
    const char *text;
    size_t length;
};

extern const struct qg_file qg_embedded[];
extern const int qg_embedded_count;
