/* SPDX-License-Identifier: Apache-2.0 */
/* driver_stream.c: streams, which do everything at once, events, and graphs: a
   list of what the streams of a capture were told, in this order. */
#include "driver_stream.h"
#include "build.h"

#include <stdlib.h>
#include <string.h>

#include "device/driver.h"
#include "oracle/gpu.h"

#define API                      __attribute__((visibility("default")))
#define DECLARE(name, arguments) API int name arguments;
QN_CU_FUNCTIONS(DECLARE)
QN_CU_OPTIONAL(DECLARE)
QN_GPU_FUNCTIONS(DECLARE)
#undef DECLARE

enum { INVALID = 1, NO_MEMORY = 2, NOT_CAPTURING = 901 };

struct graph {
    struct px_work *list;
    int count, room, owners;
};

struct cu_stream {
    struct cu_stream *next; /* of all streams */
    struct graph *graph;    /* that it captures */
};

struct cu_event {
    double at;
    struct graph *graph; /* in which it was recorded */
};

static struct cu_stream *streams;

/* Small numbers name streams that can't capture. */
static struct graph *graph_of(const struct cu_stream *stream)
{
    return (uintptr_t)stream > 16 ? stream->graph : NULL;
}

static int release(struct graph *graph)
{
    if (--graph->owners)
        return 0;
    for (int i = 0; i < graph->count; i++)
        free(graph->list[i].owned);
    free(graph->list);
    free(graph);
    return 0;
}

int px_stream_do(struct cu_stream *stream, const struct px_work *work,
                 size_t bytes)
{
    struct graph *graph = graph_of(stream);
    struct px_work made = *work;

    if (!graph)
        return made.run(&made);
    if (px_grow(&graph->list, graph->count, &graph->room, sizeof made))
        return NO_MEMORY;
    if (bytes) {
        made.owned = malloc(bytes);
        if (!made.owned)
            return NO_MEMORY;
        memcpy(made.owned, work->owned, bytes);
    }
    graph->list[graph->count++] = made;
    return 0;
}

/* ----------------------------------------------------------------- captures */

int cuStreamIsCapturing(struct cu_stream *stream, int *status)
{
    *status = graph_of(stream) ? QN_CU_CAPTURE_ACTIVE : QN_CU_CAPTURE_NONE;
    return 0;
}

int cuStreamGetCaptureInfo(struct cu_stream *stream, int *status, uint64_t *id)
{
    *id = (uintptr_t)graph_of(stream);
    return cuStreamIsCapturing(stream, status);
}

API int cuStreamBeginCapture_v2(struct cu_stream *stream, int mode);
API int cuStreamEndCapture(struct cu_stream *stream, void **graph);
API int cuGraphInstantiateWithFlags(void **made, void *graph,
                                    unsigned long long flags);
API int cuGraphLaunch(void *made, struct cu_stream *stream);
API int cuGraphExecDestroy(void *made);
API int cuGraphDestroy(void *graph);

int cuStreamBeginCapture_v2(struct cu_stream *stream, int mode)
{
    (void)mode;
    if ((uintptr_t)stream <= 16 || stream->graph)
        return INVALID;
    stream->graph = calloc(1, sizeof *stream->graph);
    if (!stream->graph)
        return NO_MEMORY;
    stream->graph->owners = 1;
    return 0;
}

/* Streams that joined leave with the first. */
int cuStreamEndCapture(struct cu_stream *stream, void **graph)
{
    struct graph *made = graph_of(stream);

    for (struct cu_stream *s = streams; s; s = s->next)
        if (made && s->graph == made)
            s->graph = NULL;
    *graph = made;
    return made ? 0 : NOT_CAPTURING;
}

int cuGraphInstantiateWithFlags(void **made, void *graph,
                                unsigned long long flags)
{
    (void)flags;
    ((struct graph *)graph)->owners++;
    *made = graph;
    return 0;
}

int cuGraphLaunch(void *made, struct cu_stream *stream)
{
    struct graph *graph = made;
    int code = 0;

    if (graph_of(stream))
        return INVALID;
    for (int i = 0; i < graph->count && !code; i++)
        code = graph->list[i].run(&graph->list[i]);
    return code;
}

int cuGraphExecDestroy(void *made)
{
    return release(made);
}

int cuGraphDestroy(void *graph)
{
    return release(graph);
}

/* ------------------------------------------------------- streams and events */

int cuStreamGetCtx(struct cu_stream *stream, struct cu_context **context)
{
    (void)stream;
    return cuCtxGetCurrent(context);
}

int cuStreamSynchronize(struct cu_stream *stream)
{
    (void)stream;
    return 0;
}

API int cuStreamQuery(struct cu_stream *stream);
int cuStreamQuery(struct cu_stream *stream)
{
    (void)stream;
    return 0;
}

int cuStreamCreate(struct cu_stream **stream, unsigned flags)
{
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    if (!*stream)
        return NO_MEMORY;
    (*stream)->next = streams;
    streams = *stream;
    return 0;
}

int cuStreamDestroy_v2(struct cu_stream *stream)
{
    struct cu_stream **at = &streams;

    while (*at && *at != stream)
        at = &(*at)->next;
    if (!*at)
        return INVALID;
    *at = stream->next;
    free(stream);
    return 0;
}

/* The stream joins the capture in which the event was recorded. */
int cuStreamWaitEvent(struct cu_stream *stream, struct cu_event *event,
                      unsigned flags)
{
    (void)flags;
    if (event->graph && (uintptr_t)stream > 16)
        stream->graph = event->graph;
    return 0;
}

int cuEventCreate(struct cu_event **event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return *event ? 0 : NO_MEMORY;
}

int cuEventDestroy_v2(struct cu_event *event)
{
    free(event);
    return 0;
}

int cuEventRecord(struct cu_event *event, struct cu_stream *stream)
{
    event->graph = graph_of(stream);
    event->at = 1e3 * (double)px_machine.launches;
    return 0;
}

int cuEventSynchronize(struct cu_event *event)
{
    (void)event;
    return 0;
}

int cuEventElapsedTime(float *ms, struct cu_event *from, struct cu_event *to)
{
    *ms = (float)(to->at - from->at);
    return 0;
}

int cuEventElapsedTime_v2(float *ms, struct cu_event *from, struct cu_event *to)
{
    return cuEventElapsedTime(ms, from, to);
}
