/* SPDX-License-Identifier: Apache-2.0 */
/* plan_scene.h: a plan, its arguments and memory for them, and what a run of
   it launches. ROOM, ROOMS and WORKSPACE are the includer's, in bytes and
   buffers. */
#pragma once

#include <stdlib.h>

struct fixture {
    struct quern_context *ctx;
    struct qn_plan *plan;
    struct quern_plan_info info;
    struct qn_description need;
    struct qn_args args;
    char *memory, *workspace;
    int used;
};

static void *room(struct fixture *f)
{
    assert_in_range(f->used, 0, ROOMS - 1);
    return f->memory + f->used++ * ROOM;
}

static void give(struct fixture *f, struct qn_tensor *t)
{
    assert_in_range(t->bytes, 1, ROOM);
    t->data = room(f);
    t->sf = t->sf_bytes ? room(f) : NULL;
    t->global = t->global_bytes ? room(f) : NULL;
}

/* The plan of `text`, with A, B and D and a workspace in the fixture. */
static struct fixture plan_with(const struct quern_registry *known,
                                const char *text,
                                const struct qn_plan_options *options)
{
    struct fixture f = {.used = 0};
    struct qn_problem p;

    f.ctx = test_open_with(known);
    p = test_problem(f.ctx, text);
    test_expect(qn_problem_describe(f.ctx, &p, &f.need), QUERN_OK, "");
    test_expect(qn_plan(f.ctx, &p, options, &f.plan), QUERN_OK, "");
    qn_plan_info(f.plan, &f.info);
    assert_true(f.info.workspace_bytes <= f.need.workspace_bytes);
    assert_in_range(f.need.workspace_bytes, 256, WORKSPACE);
    f.memory = aligned_alloc(256, ROOMS * ROOM);
    f.workspace = aligned_alloc(256, WORKSPACE);
    assert_true(f.memory && f.workspace);
    f.args = f.need.args;
    give(&f, &f.args.a), give(&f, &f.args.b), give(&f, &f.args.d);
    f.args.workspace = f.workspace;
    test_cuda->launches = 0;
    test_cuda->trailed = FAKE_TRAILED;
    return f;
}

static void end(struct fixture *f)
{
    test_cuda->trailed = 0;
    qn_plan_free(f->plan);
    qn_close(f->ctx);
    free(f->memory);
    free(f->workspace);
}

/* The launches since the last run or call, by name. */
static void launched(const char *const *names)
{
    int i = 0;

    for (; names[i] && i < test_cuda->launches; i++)
        assert_string_equal(test_cuda->trail[i].kernel, names[i]);
    assert_null(names[i]);
    assert_int_equal(test_cuda->launches, i);
    test_cuda->launches = 0;
}

#define LAUNCHED(...) launched((const char *const[]){__VA_ARGS__, NULL})

static char *param(int launch, int which)
{
    return (char *)(uintptr_t)test_cuda->trail[launch].params[which];
}
