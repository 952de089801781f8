/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h: entries of other parts in a queue. */
#pragma once

#include "internal.h"

struct qn_plan;
struct quern_queue;

/* qn_queue_put of several products of one layer: all of them, or none. */
int qn_queue_put_all(struct quern_queue *queue,
                     const struct qn_plan *const *plans,
                     const struct qn_args *args, int count, int layer);
