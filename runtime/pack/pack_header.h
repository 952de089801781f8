/* SPDX-License-Identifier: Apache-2.0 */
/* pack_header.h: how a packed file describes itself. */
#pragma once

#include "pack/pack.h"

#define QN_PACK_METADATA "quern"         /* of __metadata__: layers, as JSON */
#define QN_PACK_HEADER   "quern.header/" /* and a file's name: its header */

enum { QN_PACK_VERSION = 1 }; /* COUPLED: packed version */

/* The header in JSON, blanks up to a multiple of 64 bytes with its length; of
   malloc. */
int qn_pack_header(const struct qn_pack *, char **header, size_t *bytes);

/* Is it the name, without folders, of a file that readers of checkpoints find?
   Its header has one that begins with QN_PACK_HEADER. */
int qn_pack_names_file(const char *name);

/* A layer's recipe, sizes and activation. */
void qn_pack_add_sizes(cJSON *row, const struct qn_pack_layer *);

/* The options that the file was packed with; texts live as the JSON. */
int qn_pack_header_options(const cJSON *metadata, const char *path,
                           struct qn_pack_options *);
