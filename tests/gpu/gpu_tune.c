/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_tune.c: the tuner on this GPU: it measures several kernels, gives back
   all memory, keeps a line, and plans that read it compute what they should. */
#define _GNU_SOURCE
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Small enough to be done in seconds, large enough to tell kernels apart. */
static const char *const problems[] = {
    "fprop bf16 g=8 m=4096 n=2048 k=2048 split=skew",
    "dgrad bf16 g=8 m=4096 n=2048 k=2048 split=mild",
    "wgrad bf16 g=8 m=2048 n=2048 k=4096 d=f32 beta=1 split=mild",
    "fprop bf16 g=64 m=1024 n=512 k=256 pointers=b alpha=any beta=any",
    "fprop fp8_block g=8 m=4096 n=2048 k=2048 split=mild",
    "wgrad mxfp8 g=4 m=512 n=512 k=2048 split=one",
    "fprop nvfp4 g=4 m=512 n=512 k=512",
    "fprop mxfp8 g=4 m=8192 n=2048 k=2048 split=mild",
    "dgrad mxfp4 g=4 m=8192 n=2048 k=2048 split=mild",
};

/* Free device memory; what a kernel needs to be loaded stays taken. */
static size_t free_memory(void)
{
    size_t unused = 0, total;

    gpu_must(cu.memory_info(&unused, &total), "cuMemGetInfo");
    return unused;
}

/* NULL, or the result's error. */
static const char *judge(const struct quern_tune_result *r)
{
    int measured = 0;

    for (int i = 0; i < r->count; i++) {
        measured += r->candidates[i].rounds > 0;
        if (!r->candidates[i].rounds && !r->candidates[i].reason[0])
            return gpu_text("%s was not measured, and nothing says why",
                            r->candidates[i].kernel);
    }
    if (measured == 0 || r->rounds < 2 || r->seconds <= 0)
        return "nothing was measured";
    if (r->ratio < 0.994)
        return gpu_text("the winner is %.3f x as fast as the model's choice",
                        r->ratio);
    return r->file[0] ? NULL : "no file was written";
}

/* A context that reads the line takes the winner. */
static const char *replan(const char *folder, const char *line,
                          const char *kernel)
{
    const struct quern_open_options open = {.cache = gpu_options.cache,
                                            .tune = folder};
    struct quern_context *ctx;
    struct qn_problem problem;
    struct qn_plan *plan = NULL;
    struct quern_plan_info info = {0};
    const char *bad = NULL;

    if (qn_open(&open, &ctx))
        return gpu_text("qn_open: %s", quern_errmsg());
    if (qn_problem_parse(ctx, line, &problem) ||
        qn_plan(ctx, &problem, NULL, &plan))
        bad = gpu_text("%s", quern_errmsg());
    qn_plan_info(plan, &info);
    if (!bad && (!info.tuned || strcmp(info.kernel, kernel)))
        bad =
            gpu_text("the plan has %s, not the winner %s", info.kernel, kernel);
    qn_plan_free(plan);
    qn_close(ctx);
    return bad;
}

static const char *tune(struct quern_context *ctx, const char *folder,
                        const char *line)
{
    const struct qn_tune_options options = {.seconds = 10, .seed = 1};
    struct quern_tune_result r;
    struct qn_problem problem;
    const char *bad;

    if (qn_problem_parse(ctx, line, &problem))
        return gpu_text("%s", quern_errmsg());
    if (qn_tune(ctx, &problem, &options, &r)) {
        bad = gpu_text("%s", quern_errmsg());
    } else {
        bad = judge(&r);
        if (!bad)
            bad = replan(folder, line, r.kernel);
        printf(
            "# %s: %s, dequantize %d, %.1f us, %.3f x, %d rounds, %s, %d MHz\n",
            line, r.kernel, r.dequantize, r.seconds * 1e6, r.ratio, r.rounds,
            r.certain ? "certain" : "time was up", r.clock_mhz);
    }
    quern_free(r.candidates);
    return bad;
}

void gpu_tune(void)
{
    char folder[] = "/tmp/quern-tune-XXXXXX", file[512] = "";
    const struct quern_open_options open = {.cache = gpu_options.cache,
                                            .tune = folder};
    struct quern_context *ctx;
    size_t before;

    if (!mkdtemp(folder) || qn_open(&open, &ctx))
        gpu_lost("no folder, or no library");
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        const char *bad = tune(ctx, folder, problems[i]);

        gpu_record(bad ? gpu_text("%s: %s", problems[i], bad) : NULL);
    }
    /* kernels are loaded by now: a second time takes and leaves nothing */
    before = free_memory();
    gpu_record(tune(ctx, folder, problems[0]));
    gpu_record(free_memory() == before ? NULL : "device memory was not freed");
    qn_close(ctx);
    snprintf(file, sizeof file, "rm -r %s", folder);
    if (system(file))
        printf("# %s is left behind\n", folder);
}
