/* SPDX-License-Identifier: Apache-2.0 */
/*
** files.h: the specs and templates that are read.
*/
#ifndef QUERN_GEN_LUA_FILES_H
#define QUERN_GEN_LUA_FILES_H

#include "qg.h"

void qg_files_load(struct qg *, const struct qg_options *);
int qg_files_template(const struct qg *, const char *name); /* -1: none */
const char *qg_files_line(const struct qg *, struct qg_location, int *length);
const char *qg_files_doc(struct qg *, struct qg_location);
const char *qg_files_print(struct qg *, struct qg_location);

#endif
