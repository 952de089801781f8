/* SPDX-License-Identifier: Apache-2.0 */
/*
** cublaslt_lanes.h: the streams over which a run spreads its products.
**
** Lane 0 is the stream that the caller gave. The others are the plan's own:
** forked from it by an event and joined to it again by one each, so that the
** caller sees one stream, and a graph that captures it the whole run.
*/
#pragma once

#include "internal.h"

#include <pthread.h>

struct cu_event;
struct cu_stream;
struct qn_driver;

#define QN_MAX_LANES QUERN_MAX_STREAMS

struct qn_cublaslt_lanes {
    struct qn_driver *driver;
    int count; /* with the caller's, at least 1 */
    struct cu_stream *streams[QN_MAX_LANES];
    struct cu_event *done[QN_MAX_LANES]; /* of the first: where others begin */
    /* locked from fork to join: the events serve one run */
    pthread_mutex_t lock;
};

/* The streams of a run; `streams[0]` is the caller's. */
struct qn_cublaslt_fork {
    int count;
    struct cu_stream *streams[QN_MAX_LANES];
    int64_t load[QN_MAX_LANES]; /* the work queued on each, in any unit */
};

/* Make count - 1 streams in the current context. After an error nothing is
   left. QUERN_ECUDA. */
int qn_cublaslt_lanes_open(struct qn_cublaslt_lanes *lanes,
                           struct qn_driver *driver, int count);
void qn_cublaslt_lanes_close(struct qn_cublaslt_lanes *lanes);

/* Up to `most` lanes after all that `stream` has been given. Only `stream`
   itself where a graph that captures another one holds the lanes: they are free
   again when that capture has ended. A join is due, even after an error. */
int qn_cublaslt_lanes_fork(struct qn_cublaslt_lanes *lanes, int most,
                           struct cu_stream *stream,
                           struct qn_cublaslt_fork *fork);

/* The caller's stream goes on when every lane is done. */
int qn_cublaslt_lanes_join(struct qn_cublaslt_lanes *lanes,
                           const struct qn_cublaslt_fork *fork);

/* The lane that has been given the least, which gets `load` more. */
int qn_cublaslt_lanes_next(struct qn_cublaslt_fork *fork, int64_t load);
