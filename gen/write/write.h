/* SPDX-License-Identifier: Apache-2.0 */
/* write.h: the texts of kernels and of the registry. */
#pragma once

#include "grid/grid.h"

/* include, once and rule of templates; each stands in the file of its name. */
int qg_include(lua_State *), qg_once(lua_State *), qg_rule(lua_State *);

/* --------------------------------------- template.c, source.c, registry*.c */

/* Push the compiled template. Returns 0, or 1 and noted. */
int qg_template_push(struct qg *, int file);
void qg_template_run(struct qg *); /* call the one on top of the stack */
/* Set the key, which needs all after the header. Returns 0, or 1 and noted. */
int qg_source_key(struct qg *, struct qg_point *);
/* The whole file, kept in point->source. Returns 0, or 1 and noted. */
int qg_source_keep(struct qg *, struct qg_point *);
/* One of both for each selected kernel, up to each template's first error. */
int qg_source_each(struct qg *, const struct qg_selection *,
                   int (*)(struct qg *, struct qg_point *));
/* Try one kernel of each statement and recipe that the build has not tried. */
void qg_source_try(struct qg *);
void qg_registry_build(struct qg *);
/* Write it into q->output. */
void qg_registry_write(struct qg *, const struct qg_selection *,
                       const struct qg_link *);

/* ------------------------------------------------------------- rule_text.c */

/* The rule's text in its spec, on one line; "" without scales. */
const char *qg_rule_source(struct qg *, const struct qg_scale *);

/* ---------------------------------------------------------------- output.c */

struct qg_output_file {
    const char *name, *text;
    size_t length;
    int written;
};

/* Write files into a folder, none of them half. Returns 0, or 1 and noted. */
int qg_output_write(struct qg *, const char *dir, struct qg_output_file *files,
                    int count);
