/* SPDX-License-Identifier: Apache-2.0 */
/* tune_folders.h: the folders with files of measured winners. */
#pragma once

struct quern_context;

typedef int qn_tune_visitor(void *user, const char *folder);

/* Call `visit` for each folder of the user, in the order of the search, until
   it returns nonzero, and return that; -1 if memory ran out. */
int qn_tune_each_own(struct quern_context *ctx, qn_tune_visitor *visit,
                     void *user);

/* And for those that came with the library, read-only. */
int qn_tune_each_folder(struct quern_context *ctx, qn_tune_visitor *visit,
                        void *user);
