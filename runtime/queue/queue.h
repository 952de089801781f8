/* SPDX-License-Identifier: Apache-2.0 */
/*
** queue.h: what other parts let wait in a queue.
*/
#ifndef QUERN_QUEUE_QUEUE_H
#define QUERN_QUEUE_QUEUE_H

#include "quern.h"

struct quern_plan;
struct quern_queue;

/* quern_queue_put of several products of one layer: all of them, or none. */
int qn_queue_put_all(struct quern_queue *queue,
                     const struct quern_plan *const *plans,
                     const struct quern_args *args, int count, int layer);

#endif
