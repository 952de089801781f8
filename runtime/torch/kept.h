/* SPDX-License-Identifier: Apache-2.0 */
/*
** kept.h: small workspaces on GPUs that outlive the call. torch's allocator
** cannot give them: inside a graph pool it refuses allocations that stay, and
** each call would launch a memset for a temporary. They come from the driver,
** one for each plan, stream and capture, or plan and queue, since runs that may
** overlap need one each. Those of a queue end with it, all others stay.
*/
#ifndef QUERN_TORCH_KEPT_H
#define QUERN_TORCH_KEPT_H

#include "quern.h"

#define QN_KEPT_BYTES ((size_t)256 << 10) /* the largest that is kept */

/* Make `device`'s primary context current if this thread has none: autograd's
   threads begin without. *other becomes 1 if another device's is. NULL, or a
   sentence. */
const char *qn_kept_enter(int device, int *other);

struct qn_kept;

/*
** Find or make the workspace of a run and set it in args; its first bytes are
** zero. `queue` 0: the run is on `stream`, which may capture. Threads that
** share a stream would mix the launches of their runs, so that the caller has
** it until qn_kept_release. NULL, or a sentence.
*/
const char *qn_kept(const struct quern_plan *plan, int device,
                    struct CUstream_st *stream, int64_t queue, size_t bytes,
                    size_t zero_bytes, struct quern_args *args,
                    struct qn_kept **kept);
void qn_kept_release(struct qn_kept *kept); /* or NULL */

/* Free those of a queue whose launches have finished. */
void qn_kept_drop(int64_t queue);

/* Zero device memory in the order of the stream. 0, or the driver's code. */
int qn_kept_zero(void *data, size_t bytes, struct CUstream_st *stream);

#endif
