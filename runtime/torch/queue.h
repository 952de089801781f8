/* SPDX-License-Identifier: Apache-2.0 */
/*
** queue.h: queues of deferred weight gradients, by number, for Python.
*/
#ifndef QUERN_TORCH_QUEUE_H
#define QUERN_TORCH_QUEUE_H

#include "quern.h"

/* quern_queue_put. NULL, or a sentence. */
const char *qn_queue_put(int64_t queue, const struct quern_plan *plan,
                         const struct quern_args *args, int64_t layer);

/*
** Functions for Python. `queue` is a number of quern_torch_queue_create, which
** gives 0 if it fails; the others give a code of enum quern_status or, count, a
** negative one. quern_torch_error has the thread's last sentence then. A queue
** may be used by several threads.
*/
QUERN_API int64_t quern_torch_queue_create(int capacity);
QUERN_API void quern_torch_queue_destroy(int64_t queue);
QUERN_API int quern_torch_queue_flush(int64_t queue, int layer, int most,
                                      struct CUstream_st *stream);
QUERN_API int quern_torch_queue_drop(int64_t queue, int layer);
QUERN_API int quern_torch_queue_count(int64_t queue, int layer);
QUERN_API const char *quern_torch_error(void);

/* Errors that kernels left in a device's kept workspaces; nothing may run there
   meanwhile. NULL, or the first one's sentence. Clears them. */
QUERN_API const char *quern_torch_check(int device);

#endif
