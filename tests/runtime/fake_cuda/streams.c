/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c: streams and events, which keep no order but note who asked for
   it. */
#include "driver.h"

struct cu_event {
    double at; /* milliseconds */
};

int cuEventCreate(struct cu_event **event, unsigned flags)
{
    (void)flags;
    ENTER();
    *event = calloc(1, sizeof **event);
    if (!*event)
        return 2;
    fake_add(&fake_state.events, 1);
    return 0;
}

int cuEventDestroy_v2(struct cu_event *event)
{
    BEGIN();
    free(event);
    fake_add(&fake_state.events, -1);
    return code_;
}

/* The order of streams, as far as there is room. */
static void order(char what, struct cu_stream *stream, struct cu_event *event)
{
    if (fake_state.orders < FAKE_ORDERS)
        fake_state.order[fake_state.orders++] =
            (struct fake_order){what, stream, event};
}

int cuEventRecord(struct cu_event *event, struct cu_stream *stream)
{
    ENTER();
    event->at = fake_state.now;
    order('r', stream, event);
    return 0;
}

int cuStreamWaitEvent(struct cu_stream *stream, struct cu_event *event,
                      unsigned flags)
{
    ENTER();
    if (!event || flags)
        return 1;
    order('w', stream, event);
    return 0;
}

int cuStreamCreate(struct cu_stream **stream, unsigned flags)
{
    ENTER();
    if (flags != QN_CU_STREAM_NON_BLOCKING)
        return 1;
    *stream = malloc(1);
    if (!*stream)
        return 2;
    fake_add(&fake_state.streams, 1);
    return 0;
}

int cuStreamDestroy_v2(struct cu_stream *stream)
{
    BEGIN();
    free(stream);
    fake_add(&fake_state.streams, -1);
    return code_;
}

int cuStreamGetCaptureInfo(struct cu_stream *stream, int *status, uint64_t *id)
{
    ENTER();
    *status = QN_CU_CAPTURE_NONE;
    for (int i = 0; i < 2; i++)
        if (fake_state.captured[i].id &&
            stream == fake_state.captured[i].stream) {
            *status = QN_CU_CAPTURE_ACTIVE;
            *id = fake_state.captured[i].id;
        }
    return 0;
}

int cuEventSynchronize(struct cu_event *event)
{
    (void)event;
    ENTER();
    return fake_state.broken ? 700 : 0;
}

int cuEventElapsedTime(float *ms, struct cu_event *from, struct cu_event *to)
{
    ENTER();
    *ms = (float)(to->at - from->at);
    return 0;
}

int cuStreamSynchronize(struct cu_stream *stream)
{
    (void)stream;
    ENTER();
    return fake_state.broken ? 700 : 0;
}

/* ------------------------------------- for programs that run what they plan */

int cuEventElapsedTime_v2(float *ms, struct cu_event *from, struct cu_event *to)
{
    *ms = (float)(to->at - from->at);
    return 0;
}

int cuCtxSynchronize(void)
{
    return fake_state.broken ? 700 : 0;
}
