/* SPDX-License-Identifier: Apache-2.0 */
/*
** trial_run.c: run the program that tries a kernel.
**
** The small problem: groups of 37, 0, T, T + 1, 1 and 129 rows, T being the
** kernel's tile along the ragged axis, so that tiles are whole, begin anywhere,
** end early or are not there, and rows after the last group that must stay as
** they are. The other axes have two tiles and a part of one; k has two steps
** more than the kernel has stages, so that its ring turns. That is at most 5e8
** products, for tiles of 4-bit codes: half a second of one core. The program
** runs it on two clusters, so that each CTA has several tiles, and on the whole
** GPU.
**
** The environment is made here, so that no variable for another purpose, or
** changed since the library was opened, alters the trial: of this process only
** the sockets of CUDA's MPS go into it. The GPU is named by its UUID; a driver
** without UUIDs needs CUDA's choice and order of devices, too.
*/
#define _GNU_SOURCE
#include "choose/trial.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "choose/select.h"
#include "choose/session.h"
#include "device/helper.h"
#include "device/library.h"
#include "problem/gather_rules.h"
#include "problem/problem.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GROUPS = 6 };

/* -------------------------------------------------------------- the problem */

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Steps of k: mma.sync has no stages, and some in flight all the same. */
static int64_t steps(const struct qn_kernel *kernel)
{
    return larger(kernel->stages, 4) + 2;
}

/* Groups along the ragged axis, and the total with room after the last. */
static int64_t fill_sizes(const struct qn_kernel *kernel, int ragged,
                          int64_t sizes[GROUPS])
{
    const int axis = ragged == QUERN_AXIS_NONE ? 0 : ragged - QUERN_AXIS_M;
    const int64_t tile = larger(kernel->tile[axis], 1);
    const int64_t lengths[GROUPS] = {
        37,       0, ragged == QUERN_AXIS_K ? tile * steps(kernel) : tile,
        tile + 1, 1, 129};
    int64_t total = 24;

    memcpy(sizes, lengths, sizeof lengths);
    for (int i = 0; i < GROUPS; i++)
        total += sizes[i];
    return (total + 127) / 128 * 128;
}

/* Do rules of lines and of the kernel allow it? */
static int is_served(const struct qn_session *s, const struct qn_kernel *kernel,
                     const struct qn_problem *p)
{
    const struct qn_recipe *recipe;

    return !qn_problem_check(s->ctx, p, &recipe) &&
           qn_select_fits(p, recipe, kernel);
}

/* The small problem for a kernel of the session's variant, and the lengths of
   its groups. 0: none obeys the kernel's rules. */
static int small_problem(const struct qn_session *s,
                         const struct qn_kernel *kernel, struct qn_problem *p,
                         int64_t sizes[GROUPS])
{
    static const int parts[] = {16, 32, 64, 128, 0}; /* of a tile */
    enum { PARTS = sizeof parts / sizeof parts[0] };
    int64_t total;

    *p = *s->problem;
    p->groups = GROUPS;
    p->microbatches = p->sizes = p->outside = 0;
    *p->split = 0;
    total = fill_sizes(kernel, p->ragged, sizes);
    for (int i = 0; i < PARTS * PARTS; i++) {
        p->m = 2 * larger(kernel->tile[0], 1) + parts[i / PARTS];
        p->n = 2 * larger(kernel->tile[1], 1) + parts[i / PARTS];
        p->k = steps(kernel) * larger(kernel->tile[2], 1) + parts[i % PARTS];
        if (p->ragged != QUERN_AXIS_NONE)
            *(p->ragged == QUERN_AXIS_M   ? &p->m
              : p->ragged == QUERN_AXIS_N ? &p->n
                                          : &p->k) = total;
        if (p->gather)
            p->tokens = total / qn_gather_topk(p);
        for (int g = 0; p->ragged == QUERN_AXIS_NONE && g < p->groups; g++)
            sizes[g] = p->m;
        if (is_served(s, kernel, p))
            return 1;
    }
    return 0;
}

/* -------------------------------------------------------------- the program */

static void set(struct qn_trial_result *result, int verdict, const char *format,
                ...) __attribute__((format(printf, 3, 4)));

static void set(struct qn_trial_result *result, int verdict, const char *format,
                ...)
{
    va_list list;

    result->verdict = verdict;
    va_start(list, format);
    vsnprintf(result->reason, sizeof result->reason, format, list);
    va_end(list);
    result->reason[strcspn(result->reason, "\n")] = 0;
}

/* QUERN_CHECKER, else `quern` as an installation, a wheel and a build have
   it. */
static int find_program(const struct quern_context *ctx, char *path,
                        size_t size)
{
    static const char *const places[] = {"/../bin/quern", "/../../bin/quern"};
    char folder[PATH_MAX - 32];

    if (ctx->checker) {
        snprintf(path, size, "%s", ctx->checker);
        return !access(path, X_OK);
    }
    if (!qn_library_folder(folder, sizeof folder))
        return 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, size, "%s%s", folder, places[i]);
        if (!access(path, X_OK))
            return 1;
    }
    return 0;
}

enum { VARIABLES = 16 };

/* The variables of the program, and the texts that they are in. */
struct setting {
    struct qn_text texts[VARIABLES];
    const char *all[VARIABLES + 1];
    int count, failed, ordinal;
};

static void add(struct setting *s, const char *name, const char *value)
{
    if (!value || s->count == VARIABLES)
        return;
    qn_text_add(&s->texts[s->count], "%s=%s", name, value);
    if (s->texts[s->count].failed) {
        s->failed = 1;
        return;
    }
    s->all[s->count] = s->texts[s->count].data;
    s->count++;
}

/* The library that this process has open, and its folder for those that it
   opens itself. */
static void add_driver(struct setting *s, const struct qn_driver *driver)
{
    Dl_info info;
    char folder[PATH_MAX];
    const char *slash;

    if (!dladdr((void *)(uintptr_t)driver->cuInit, &info) || !info.dli_fname)
        return;
    add(s, "QUERN_CUDA", info.dli_fname);
    slash = strrchr(info.dli_fname, '/');
    if (!slash)
        return;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - info.dli_fname),
             info.dli_fname);
    add(s, "LD_LIBRARY_PATH", folder);
}

/* Only this GPU, as number 0; by a driver without UUIDs, all as here. */
static void add_device(struct setting *s, struct qn_driver *driver, int ordinal)
{
    unsigned char id[16], part[16];
    char name[48];
    int length;

    s->ordinal = 0;
    if (!driver->cuDeviceGetUuid || driver->cuDeviceGetUuid(id, ordinal)) {
        s->ordinal = ordinal;
        add(s, "CUDA_VISIBLE_DEVICES", getenv("CUDA_VISIBLE_DEVICES"));
        add(s, "CUDA_DEVICE_ORDER", getenv("CUDA_DEVICE_ORDER"));
        return;
    }
    /* a part of a GPU has an id of its own */
    memcpy(part, id, sizeof part);
    if (driver->cuDeviceGetUuid_v2)
        driver->cuDeviceGetUuid_v2(part, ordinal);
    length = snprintf(name, sizeof name, "%s-",
                      memcmp(part, id, sizeof id) ? "MIG" : "GPU");
    for (int i = 0; i < 16; i++)
        length +=
            snprintf(name + length, sizeof name - (size_t)length, "%s%02x",
                     i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", part[i]);
    add(s, "CUDA_VISIBLE_DEVICES", name);
}

static void fill_setting(struct setting *s, const struct qn_session *session)
{
    const struct quern_context *ctx = session->ctx;

    add_driver(s, session->driver);
    add_device(s, session->driver, session->device.ordinal);
    add(s, "CUDA_MPS_PIPE_DIRECTORY", getenv("CUDA_MPS_PIPE_DIRECTORY"));
    add(s, "PATH", "/usr/local/bin:/usr/bin:/bin");
    add(s, "QUERN_CACHE", ctx->cache_list);
    add(s, "QUERN_CACHE_SIZE", ctx->cache_size);
    add(s, "QUERN_TUNE", "");
    add(s, "QUERN_TRUST", "compiled");
    add(s, "QUERN_NVRTC", ctx->nvrtc);
    add(s, "QUERN_GEN", ctx->gen);
    add(s, "QUERN_CC", ctx->cc);
    add(s, "CUDA_HOME", ctx->cuda_home);
}

static void free_setting(struct setting *s)
{
    for (int i = 0; i < VARIABLES; i++)
        qn_text_free(&s->texts[i]);
}

/* ------------------------------------------------------------- the verdict */

/* The rest of the last line that begins with the word, or NULL. */
static const char *find_line(const char *output, const char *word)
{
    const size_t length = strlen(word);
    const char *found = NULL;

    for (const char *at = output; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (!strncmp(at, word, length) && strchr(" \n", at[length]))
            found = at + length + (at[length] == ' ');
    }
    return found;
}

/* The program says "ready" before the first launch: a failure before it says
   nothing about the kernel. */
static void judge(const char *output, int late, double seconds,
                  struct qn_trial_result *result)
{
    const int ready = find_line(output, "ready") != NULL;
    const char *reason;

    if (find_line(output, "right"))
        set(result, QN_TRIAL_RIGHT, "%s", "");
    else if ((reason = find_line(output, "wrong")))
        set(result, QN_TRIAL_WRONG, "%s", reason);
    else if ((reason = find_line(output, "failed")) && ready)
        set(result, QN_TRIAL_FAILED, "%s", reason);
    else if (ready && (late || find_line(output, "late")))
        set(result, QN_TRIAL_LATE, "it had not ended after %.0f s", seconds);
    else if (ready)
        set(result, QN_TRIAL_FAILED, "the program that tried it ended early");
    else if ((reason = find_line(output, "unable")))
        set(result, QN_TRIAL_UNABLE, "%s", reason);
    else
        set(result, QN_TRIAL_UNABLE, "the program that tries it %s",
            late || find_line(output, "late") ? "was not ready in time"
                                              : "ended early");
}

/* Its code in memory, as a file. -1. */
static int open_code(const void *cubin, size_t bytes)
{
    const int file = memfd_create("quern", MFD_CLOEXEC);

    for (size_t at = 0; file >= 0 && at < bytes;) {
        const ssize_t got =
            pwrite(file, (const char *)cubin + at, bytes - at, (off_t)at);

        if (got <= 0 && errno != EINTR) {
            close(file);
            return -1;
        }
        at += got > 0 ? (size_t)got : 0;
    }
    return file;
}

static void print_sizes(const int64_t sizes[GROUPS], char *text, size_t size)
{
    size_t used = 0;

    for (int i = 0; i < GROUPS; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld",
                                 i ? "," : "", (long long)sizes[i]);
}

/* COUPLED: arguments of a trial */
static void execute(struct qn_session *s, const struct qn_kernel *kernel,
                    const char *program, int code, const struct qn_problem *p,
                    const int64_t *sizes, struct qn_trial_result *result)
{
    enum { FIXED = 9 };
    struct setting setting = {.count = 0};
    char lengths[128], line[512], limit[16], gpu[32], output[1024];
    const char *arguments[FIXED + 16 + 1] = {program,       QN_TRIAL_COMMAND,
                                             QUERN_VERSION, kernel->name,
                                             lengths,       gpu,
                                             limit,         line};
    struct qn_helper helper = {.arguments = arguments,
                               .variables = setting.all,
                               .input = code,
                               .seconds = 1.2 * s->ctx->trial_seconds + 1.5};
    int late, error;

    fill_setting(&setting, s);
    print_sizes(sizes, lengths, sizeof lengths);
    qn_problem_print(p, line, sizeof line);
    snprintf(limit, sizeof limit, "%g", s->ctx->trial_seconds);
    snprintf(gpu, sizeof gpu, "%d,%d", setting.ordinal,
             s->device.major * 10 + s->device.minor);
    for (int i = 0; i < s->ctx->nspecs && i < 16; i++)
        arguments[FIXED - 1 + i] = s->ctx->specs[i];
    error = setting.failed
                ? ENOMEM
                : qn_helper_run(&helper, output, sizeof output, &late);
    if (error)
        set(result, QN_TRIAL_UNABLE, "%s cannot be started: %s", program,
            strerror(error));
    else
        judge(output, late, s->ctx->trial_seconds, result);
    free_setting(&setting);
}

void qn_trial_run(struct qn_session *s, const struct qn_kernel *kernel,
                  const void *cubin, size_t bytes,
                  struct qn_trial_result *result)
{
    int64_t sizes[GROUPS];
    char program[PATH_MAX];
    struct qn_problem p;
    int code;

    if (getauxval(AT_SECURE)) {
        set(result, QN_TRIAL_UNABLE, "a set-user-id program starts no other");
    } else if (!find_program(s->ctx, program, sizeof program)) {
        set(result, QN_TRIAL_UNABLE,
            "the program 'quern', which tries it, is not installed with the "
            "library; set QUERN_CHECKER");
    } else if (!small_problem(s, kernel, &p, sizes)) {
        set(result, QN_TRIAL_UNABLE, "no small problem obeys its rules");
    } else if ((code = open_code(cubin, bytes)) < 0) {
        set(result, QN_TRIAL_UNABLE, "no memory for its code: %s",
            strerror(errno));
    } else {
        execute(s, kernel, program, code, &p, sizes, result);
        close(code);
    }
}
