/* SPDX-License-Identifier: Apache-2.0 */
/* scene.h: a program that calls every function of the library, on every backend
   that the fakes can play. */
#pragma once

#include "test.h"

struct scene {
    const char *name;
    int backend;      /* enum quern_backend */
    int linked;       /* its kernels are linked: a registry with cubins */
    const char *cast; /* a quantization to make too; NULL: none */
    const char *problem;
    const char *cache; /* of qn_open; NULL: the environment's */
};

extern const struct scene test_scenes[];
extern const int test_scenes_count;

/*
** Play it: open, parse, print, infer, describe, plan, why, run, check, free,
** close. The first error ends it, and is returned. With `retry` each call that
** fails is made once more, must succeed then, and the play goes on; the first
** error is still what is returned.
**
** A call that fails must leave what it should have made NULL, launch nothing,
** and write nothing. Afterwards the driver has all back, and no file is open
** that was not open before.
*/
int test_play(const struct scene *scene, int retry);

/* The message of this thread's last play's first error. */
extern _Thread_local char test_said[8192];

/* The same on an open context, which stays open; `memory` is the thread's. */
struct scene_memory;
struct scene_memory *test_scene_memory(void);
void test_scene_memory_free(struct scene_memory *memory);
int test_play_in(const struct scene *scene, int retry,
                 struct quern_context *ctx, struct scene_memory *memory);

/* The options with which it opens. */
struct quern_open_options test_scene_options(const struct scene *scene);
