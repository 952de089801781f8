/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_sizes.h: groups' sizes that the host knows.
**
** A kernel of their own takes them as parameters, by value, and leaves them as
** int32 in the workspace, after the error record, where the kernels after it
** read sizes as ever: sizes on the device cost nothing more than without this.
*/
#pragma once

#include "choose/values.h"

struct qn_driver;
struct qn_session;
struct qn_step;

/* QUERN_ECAPTURE where a graph would freeze sizes that are not `fixed`. */
int qn_host_size_capture(struct qn_driver *driver, int sizes, void *stream);

/* Load the kernel, in the current context. Errors are those of qn_plan. */
int qn_host_size_load(struct qn_session *session, const char *recipe,
                      int backend, struct qn_step *step);

/* Words of 32 bits on their way to `place` on the device, as parameters of
   launches that are queued whenever so many are together. In the current
   context; nothing allocates or synchronizes. QUERN_ECUDA. */
struct qn_host_words {
    struct qn_driver *driver;
    const struct qn_step *step;
    void *stream;
    int *place; /* of the first that is not queued yet */
    struct qn_host_sizes batch;
};

void qn_host_word_begin(struct qn_host_words *words, struct qn_driver *driver,
                        const struct qn_step *step, void *place, void *stream);
int qn_host_word_put(struct qn_host_words *words, int word);
int qn_host_word_flush(struct qn_host_words *words);

/* Queue the sizes of `count` lists (at most QUERN_MAX_MICROBATCHES, not all of
   them NULL) on their way to `place`, list by list: zeros for a list that is
   NULL. In the current context; neither allocates nor synchronizes. `sizes` is
   the problem's: QUERN_ECAPTURE as of qn_host_size_capture. */
int qn_host_size_put(struct qn_driver *driver, const struct qn_step *step,
                     int sizes, const int64_t *const *lists, int count,
                     int groups, void *place, void *stream);
