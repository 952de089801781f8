/* SPDX-License-Identifier: Apache-2.0 */
/*
** queue.c: queues by number, each with a lock, since backward passes put from
** autograd's threads.
*/
#include "torch/queue.h"
#include "binding/binding.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "torch/kept.h"
#include "torch/op.h"

enum { QUEUES = 4096 };

static struct quern_queue *queues[QUEUES]; /* of the number less 1 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char sentence[1024];

/* Note a sentence: NULL clears it. */
static int note(int code, const char *text)
{
    snprintf(sentence, sizeof sentence, "%s", code && text ? text : "");
    return code;
}

/* Take the lock, find a queue. NULL: there is none, and a sentence says so. */
static struct quern_queue *enter(int64_t queue)
{
    pthread_mutex_lock(&lock);
    if (queue > 0 && queue <= QUEUES && queues[queue - 1])
        return queues[queue - 1];
    note(QUERN_EINVAL, "queue: it does not exist, or was destroyed");
    return NULL;
}

static int leave(int code)
{
    pthread_mutex_unlock(&lock);
    return code;
}

const char *quern_torch_error(void)
{
    return sentence;
}

int64_t quern_torch_queue_create(int capacity)
{
    struct quern_context *ctx;
    int64_t i = 0;
    int code = qn_binding_open(&ctx);

    if (code) {
        note(code, quern_errmsg());
        return 0;
    }
    code = QUERN_EFULL;
    pthread_mutex_lock(&lock);
    while (i < QUEUES && queues[i])
        i++;
    if (i == QUEUES)
        note(code, "queue: 4096 queues exist already");
    else
        code =
            note(quern_queue_create(ctx, capacity, &queues[i]), quern_errmsg());
    return leave(code) ? 0 : i + 1;
}

void quern_torch_queue_destroy(int64_t queue)
{
    struct quern_queue *q = enter(queue);

    if (q) {
        quern_queue_destroy(q);
        queues[queue - 1] = NULL;
    }
    leave(QUERN_OK);
    if (q)
        qn_kept_drop(queue);
}

const char *qn_queue_put(int64_t queue, const struct quern_plan *plan,
                         const struct quern_args *args, int64_t layer)
{
    struct quern_queue *q = enter(queue);
    int code = QUERN_EINVAL;

    if (q && (layer < 0 || layer > INT32_MAX))
        note(code, "layer: a number from 0 is expected");
    else if (q)
        code = note(quern_queue_put(q, plan, args, (int)layer), quern_errmsg());
    return leave(code) ? sentence : NULL;
}

int quern_torch_queue_flush(int64_t queue, int layer, int most,
                            struct CUstream_st *stream)
{
    struct quern_queue *q = enter(queue);
    int code = QUERN_EINVAL;

    if (q)
        code = note(quern_queue_flush(q, layer, most, stream), quern_errmsg());
    return leave(code);
}

int quern_torch_queue_drop(int64_t queue, int layer)
{
    struct quern_queue *q = enter(queue);
    int code = QUERN_EINVAL;

    if (q)
        code = note(quern_queue_drop(q, layer), quern_errmsg());
    return leave(code);
}

int quern_torch_queue_count(int64_t queue, int layer)
{
    struct quern_queue *q = enter(queue);

    return leave(q ? quern_queue_count(q, layer) : -QUERN_EINVAL);
}
