/* SPDX-License-Identifier: Apache-2.0 */
/*
** trial.c: `quern .trial`, with which libquern tries a kernel on its first use
** (choose/trial.h).
**
**     quern .trial VERSION KERNEL SIZES GPU,CAPABILITY SECONDS LINE [SPECS..]
**
** Standard input is the kernel's code. Standard output is "ready" before the
** first launch, then one of "right", "wrong WHY", "failed WHY", "late", "unable
** WHY", and a dot. A child computes; its parent never opens CUDA, so that it
** can end it, and end itself, also if the driver does not let the child go.
** Both end with the process that started them.
*/
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "choose/trial.h"
#include "cli.h"

enum { MOST_CODE = 64 << 20, SPECS = 8 };

/* A row has this many times the tolerance of all: one wrong value among some
   500 is then seen, if it is wrong by more than a sixth of the row's size. */
#define ROW 2.0

/* Without a buffer, for the process may end at any time. */
static void say(const char *word, const char *why)
{
    char line[400];
    int length =
        snprintf(line, sizeof line, "%s%s%.300s", word, *why ? " " : "", why);

    length = (int)strcspn(line, "\n");
    line[length++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(QN_EXIT_UNABLE);
}

/* One trial. */
struct trial {
    const char *name, *line;
    int64_t sizes[QUERN_MAX_GROUPS];
    int count, ordinal, capability;
    double seconds;
    struct qn_options opt;
    struct quern_context *ctx;
    struct qn_kernel kernel;      /* a copy, with its code */
    struct quern_registry linked; /* of that kernel alone */
    struct qn_driver_scope scope;
};

/* ---------------------------------------------------------------- arguments */

static int read_sizes(const char *text, struct trial *t)
{
    char *end;

    for (t->count = 0; t->count < QUERN_MAX_GROUPS; text = end + 1) {
        t->sizes[t->count++] = strtoll(text, &end, 10);
        if (*end != ',')
            return end > text && !*end;
    }
    return 0;
}

/* COUPLED: arguments of a trial */
static int read_arguments(int argc, char **argv, struct trial *t)
{
    if (argc < SPECS || argc - SPECS > QN_MAX_SPECS ||
        strcmp(argv[2], QUERN_VERSION) != 0)
        return 0;
    t->name = argv[3];
    t->line = argv[7];
    t->seconds = strtod(argv[6], NULL);
    t->opt = (struct qn_options){.command = "trial", .seed = 1};
    t->opt.kernel = t->name;
    for (int i = SPECS; i < argc; i++)
        t->opt.specs[t->opt.nspecs++] = argv[i];
    return t->seconds > 0 && read_sizes(argv[4], t) &&
           sscanf(argv[5], "%d,%d", &t->ordinal, &t->capability) == 2;
}

/* All of standard input, and a zero after it, as text ends. */
static void *read_code(size_t *bytes)
{
    char *code = malloc(MOST_CODE + 1);
    ssize_t got;

    *bytes = 0;
    if (!code)
        return NULL;
    while ((got = read(STDIN_FILENO, code + *bytes, MOST_CODE - *bytes)) > 0)
        *bytes += (size_t)got;
    code[*bytes] = 0;
    return code;
}

/* -------------------------------------------------------------------- child */

/* The kernel with the given code in the place of its row. */
static int place_code(struct trial *t)
{
    for (int i = 0; i < t->ctx->nkernels; i++) {
        struct qn_candidate *candidate = &t->ctx->kernels[i];

        if (strcmp(candidate->kernel->name, t->name) != 0)
            continue;
        t->kernel = *candidate->kernel;
        t->kernel.cubin = read_code(&t->kernel.cubin_bytes);
        candidate->kernel = &t->kernel;
        t->linked = (struct quern_registry){
            .hash = t->ctx->base->hash, .kernels = &t->kernel, .nkernels = 1};
        t->ctx->linked = &t->linked;
        return t->kernel.cubin ? QUERN_OK : qn_error_memory();
    }
    return qn_error_set(QUERN_ENOKERNEL, "this program has no kernel '%s'",
                        t->name);
}

/* The device that the caller names, which must be of the same kind. */
static int enter(struct trial *t)
{
    struct qn_device device;
    struct qn_driver *driver;
    int code = qn_driver_of(t->ctx, &driver);

    if (!code)
        code = qn_driver_enter_device(driver, t->ordinal, &t->scope);
    if (!code)
        code = qn_driver_device(driver, &device);
    if (!code && device.major * 10 + device.minor != t->capability)
        code =
            qn_error_set(QUERN_ENODEVICE, "GPU %d is sm_%d%d, not sm_%d",
                         t->ordinal, device.major, device.minor, t->capability);
    return code;
}

/* A job that is ready to run the kernel, and nothing else. */
static int begin(struct trial *t, struct qn_job *job)
{
    struct qn_problem p;
    int code = qn_problem_parse(t->ctx, t->line, &p);

    if (!code && p.groups != t->count)
        code = qn_error_set(QUERN_EINVAL, "%d sizes for %d groups", t->count,
                            p.groups);
    if (!code && qn_job_begin(job, &t->opt, t->ctx, &p, t->sizes) != QN_EXIT_OK)
        code = QUERN_ECUDA;
    if (!code && strcmp(job->call.info.kernel, t->name) != 0)
        code = qn_error_set(QUERN_ENOKERNEL, "the problem's plan is another");
    return code;
}

/* Run and compare. 1: right; else the end has been said. */
static int compare(struct qn_job *job)
{
    struct qn_verdict verdict;
    char text[400];
    int code = qn_call_queue(&job->call);

    if (!code)
        code = qn_call_check(&job->call);
    if (!code)
        code = qn_oracle_judge(job, QN_ORACLE_HOST, 0, &verdict);
    if (code) {
        say("failed", qn_error_text());
        return 0;
    }
    qn_oracle_print(&verdict, text, sizeof text);
    if (verdict.passed && !(verdict.row <= ROW * verdict.tolerance)) {
        snprintf(text, sizeof text, "error %.2e in a row (at most %.0e)",
                 verdict.row, ROW * verdict.tolerance);
        verdict.passed = 0;
    }
    if (!verdict.passed)
        say("wrong", text);
    return verdict.passed;
}

/* On two clusters, where each CTA has several tiles, then on all. */
static int try_both(struct trial *t)
{
    const int clusters[] = {2, 0};
    struct qn_job job = {0};
    int right = 1;

    for (int i = 0; i < 2 && right; i++) {
        const int size = t->kernel.cluster[0] * t->kernel.cluster[1];

        t->opt.sms = clusters[i] * (size > 1 ? size : 1);
        t->opt.seed = (uint64_t)i + 1;
        if (begin(t, &job)) {
            say(i ? "failed" : "unable", qn_error_text());
            right = 0;
        } else {
            if (!i)
                say("ready", "");
            right = compare(&job);
        }
        qn_call_free(&job.call);
    }
    return right;
}

/* A judge may plan another product: that is not tried in its turn. */
static void work(struct trial *t)
{
    setenv("QUERN_TRUST", "compiled", 1);
    if (qn_source_context(&t->opt, &t->ctx) || place_code(t) || enter(t))
        say("unable", qn_error_text());
    else if (try_both(t))
        say("right", "");
}

/* ------------------------------------------------------------------- parent */

/* Nothing that a user left open, no core files, and the end of the caller is
   ours. */
static void prepare(void)
{
    const struct rlimit none = {0, 0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    syscall(SYS_close_range, 3u, ~0u, 0u);
}

/* Until the child has ended or its time is up. 1: it has ended. */
static int wait_for(pid_t child, double seconds, int *status)
{
    const struct timespec pause = {0, 2000000};
    const double end = qn_clock_seconds() + seconds;

    while (!waitpid(child, status, WNOHANG)) {
        if (qn_clock_seconds() > end)
            return 0;
        nanosleep(&pause, NULL);
    }
    return 1;
}

static void supervise(pid_t child, double seconds)
{
    char text[64];
    int status = 0;

    if (!wait_for(child, seconds, &status)) {
        kill(child, SIGKILL);
        wait_for(child, 1, &status); /* a driver may hold it for longer */
        say("late", "");
    } else if (WIFSIGNALED(status)) {
        snprintf(text, sizeof text, "it was ended by signal %d",
                 WTERMSIG(status));
        say("failed", text);
    }
}

int qn_trial_serve(int argc, char **argv)
{
    static struct trial t;
    const pid_t self = getpid();
    pid_t child;

    if (!read_arguments(argc, argv, &t)) {
        say("unable", "the program 'quern' is of version " QUERN_VERSION
                      ", the library of another");
        say(".", "");
        return QN_EXIT_USAGE;
    }
    prepare();
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == self)
            work(&t);
        _exit(QN_EXIT_OK);
    }
    if (child < 0)
        say("unable", "no process can be made");
    else
        supervise(child, t.seconds);
    say(".", "");
    return QN_EXIT_OK;
}
