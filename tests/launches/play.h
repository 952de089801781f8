/* SPDX-License-Identifier: Apache-2.0 */
/* play.h: a line that is played: its launches go to a log. */
#pragma once

#include "cases.h"

#include <stdio.h>

#include "internal.h"

/* How a run is called: the words after a line's bar. */
struct how {
    int offsets, gaps, i64, fewer, strides, noop, queue, sms, device;
};

/* A line that is played. */
struct play {
    char line[256];
    struct how how;
    struct quern_context *ctx;
    struct qn_plan_options options;
    FILE *log, *why;
    int is_short;
    int part; /* of a queue, from 0 */
};

/* Memory of the fake device, by the name of an argument. */
void *play_region(struct play *play, const char *name, size_t bytes);
float *play_floats(struct play *play, const char *name, int wanted,
                   int64_t count);

/* The address of a tensor, or of its matrices, if there is such a tensor; and
   with fewer rows or with strides, if the play says so. */
void play_tensor(struct play *play, const char *name, struct qn_tensor *t,
                 int pointers, int64_t total, int groups);
void play_mlp_args(struct play *play, const struct qn_mlp *mlp,
                   const struct qn_mlp_description *need,
                   struct qn_mlp_args *args);

/* The end of a call; 1 if it failed, which is logged. */
int play_failed(struct play *play, const char *call, int code);

/* The text of an explanation, freed then, or the error in its place. */
void play_explain(struct play *play, int code, char **said);

struct quern_queue *play_queue(struct play *play);
void play_flush(struct play *play, struct quern_queue *queue);

/* play_moe.c: describe, explain, plan and run it. */
void play_moe(struct play *play);
