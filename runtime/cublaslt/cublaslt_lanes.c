/* SPDX-License-Identifier: Apache-2.0 */
/*
** cublaslt_lanes.c: the streams over which a run spreads its products.
**
** A stream that waits for an event of a capturing one belongs to that capture
** until it ends, joined or not. Runs outside of it, and those of others, must
** not touch it then: they stay on the caller's stream. Which stream a product
** is on changes nothing about its result.
*/
#include "cublaslt/cublaslt_lanes.h"
#include "device/driver.h"

#include <string.h>

int qn_cublaslt_lanes_open(struct qn_cublaslt_lanes *lanes,
                           struct qn_driver *driver, int count)
{
    int code = QUERN_OK;

    memset(lanes, 0, sizeof *lanes);
    lanes->driver = driver;
    lanes->count = count;
    pthread_mutex_init(&lanes->lock, NULL);
    for (int i = 0; !code && count > 1 && i < count; i++) {
        if (i)
            code = QN_CU(driver, cuStreamCreate, &lanes->streams[i],
                         QN_CU_STREAM_NON_BLOCKING);
        if (!code)
            code = QN_CU(driver, cuEventCreate, &lanes->done[i],
                         QN_CU_EVENT_DISABLE_TIMING);
    }
    if (code)
        qn_cublaslt_lanes_close(lanes);
    return code;
}

/* Work still queued on a stream runs all the same. */
void qn_cublaslt_lanes_close(struct qn_cublaslt_lanes *lanes)
{
    if (!lanes->driver)
        return;
    for (int i = 0; i < QN_MAX_LANES; i++) {
        if (lanes->done[i])
            lanes->driver->cuEventDestroy_v2(lanes->done[i]);
        if (lanes->streams[i])
            lanes->driver->cuStreamDestroy_v2(lanes->streams[i]);
    }
    pthread_mutex_destroy(&lanes->lock);
    lanes->driver = NULL;
}

/* 0: none. */
static int capture_of(struct qn_driver *driver, struct cu_stream *stream,
                      uint64_t *capture)
{
    int status = QN_CU_CAPTURE_NONE;
    int code = QN_CU(driver, cuStreamGetCaptureInfo, stream, &status, capture);

    if (!code && status == QN_CU_CAPTURE_NONE)
        *capture = 0;
    return code;
}

/* All lanes are captured together, so the first of ours speaks for them. */
static int may_fork(struct qn_cublaslt_lanes *lanes, struct cu_stream *stream,
                    int *may)
{
    uint64_t ours = 0, callers = 0;
    int code = capture_of(lanes->driver, lanes->streams[1], &ours);

    *may = !ours;
    if (code || !ours)
        return code;
    code = capture_of(lanes->driver, stream, &callers);
    *may = ours == callers;
    return code;
}

int qn_cublaslt_lanes_fork(struct qn_cublaslt_lanes *lanes, int most,
                           struct cu_stream *stream,
                           struct qn_cublaslt_fork *fork)
{
    const int wanted = most < lanes->count ? most : lanes->count;
    struct qn_driver *driver = lanes->driver;
    int code, may = 0;

    *fork = (struct qn_cublaslt_fork){.count = 1, .streams = {stream}};
    pthread_mutex_lock(&lanes->lock);
    if (wanted <= 1)
        return QUERN_OK;
    code = may_fork(lanes, stream, &may);
    if (!may)
        return code;
    code = QN_CU(driver, cuEventRecord, lanes->done[0], stream);
    for (int i = 1; !code && i < wanted; i++) {
        code = QN_CU(driver, cuStreamWaitEvent, lanes->streams[i],
                     lanes->done[0], 0);
        if (!code)
            fork->streams[fork->count++] = lanes->streams[i];
    }
    return code;
}

/* Every lane, so that none stays in a capture; the first error counts. */
int qn_cublaslt_lanes_join(struct qn_cublaslt_lanes *lanes,
                           const struct qn_cublaslt_fork *fork)
{
    struct qn_driver *driver = lanes->driver;
    int first = QUERN_OK;

    for (int i = 1; i < fork->count; i++) {
        int code =
            QN_CU(driver, cuEventRecord, lanes->done[i], fork->streams[i]);

        if (!code)
            code = QN_CU(driver, cuStreamWaitEvent, fork->streams[0],
                         lanes->done[i], 0);
        first = first ? first : code;
    }
    pthread_mutex_unlock(&lanes->lock);
    return first;
}

int qn_cublaslt_lanes_next(struct qn_cublaslt_fork *fork, int64_t load)
{
    int least = 0;

    for (int i = 1; i < fork->count; i++)
        if (fork->load[i] < fork->load[least])
            least = i;
    fork->load[least] += load;
    return least;
}
