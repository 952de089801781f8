/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_compile.c: the system's C compiler, for host kernels of a user's specs.
**
** The compiler is run directly, never through a shell, in a fresh folder of
** our own that is removed afterwards.
*/
#define _GNU_SOURCE
#include "device/host.h"
#include "base/context.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "device/nvrtc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG_LIMIT    ((size_t)1 << 20)
#define OBJECT_LIMIT ((size_t)64 << 20)

extern char **environ;

/* Sums are promised to the bit: nothing may be fused or reordered. */
static const char *const options[] = {"-std=gnu11", "-O3", "-fPIC", "-shared",
                                      "-ffp-contract=off"};

#define NOPTIONS ((int)(sizeof options / sizeof options[0]))

const char *qn_host_options(void)
{
    return "-std=gnu11 -O3 -fPIC -shared -ffp-contract=off";
}

/* One program name, never split into words or given to a shell. */
static const char *compiler(const struct quern_context *ctx)
{
    return ctx->cc ? ctx->cc : "cc";
}

/* Run a program with its output in the file `log`. 0, or an error number. */
static int start(const char *const *arguments, const char *log, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);

    if (error)
        return error;
    error =
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_addopen(
            &actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (!error)
        error = posix_spawnp(child, arguments[0], &actions, NULL,
                             (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Run it to its end. QUERN_ECOMPILE unless it exits with 0. */
static int run(const char *const *arguments, const char *log)
{
    int status = 0;
    pid_t child, got;
    int error = start(arguments, log, &child);

    if (error)
        return qn_error_set(QUERN_EMISSING,
                            "the C compiler '%s' cannot be run: %s; set "
                            "QUERN_CC",
                            arguments[0], strerror(error));
    do
        got = waitpid(child, &status, 0);
    while (got < 0 && errno == EINTR);
    /* where SIGCHLD is ignored there is no status: then the output decides */
    if (got == child && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return qn_error_set(QUERN_ECOMPILE, "'%s' failed", arguments[0]);
    return QUERN_OK;
}

/* A folder that only we can enter, and the paths in it. */
struct scratch {
    char path[PATH_MAX - 32];
    char source[PATH_MAX], object[PATH_MAX], log[PATH_MAX];
    int folder;
};

/* In $TMPDIR, else /tmp; mkdtemp makes it 0700. */
static int make_place(const struct quern_context *ctx, struct scratch *scratch)
{
    const char *base = ctx->temporary ? ctx->temporary : "/tmp";
    int need =
        snprintf(scratch->path, sizeof scratch->path, "%s/quern-XXXXXX", base);

    scratch->folder = -1;
    if (need < 0 || (size_t)need >= sizeof scratch->path ||
        !mkdtemp(scratch->path))
        return qn_error_set(QUERN_EIO, "no folder can be made in '%s': %s",
                            base, strerror(errno));
    snprintf(scratch->source, sizeof scratch->source, "%s/kernel.c",
             scratch->path);
    snprintf(scratch->object, sizeof scratch->object, "%s/kernel.so",
             scratch->path);
    snprintf(scratch->log, sizeof scratch->log, "%s/log", scratch->path);
    scratch->folder = qn_file_folder(AT_FDCWD, scratch->path, 0);
    if (scratch->folder < 0) {
        rmdir(scratch->path);
        return qn_error_set(QUERN_EIO, "'%s' cannot be opened", scratch->path);
    }
    return QUERN_OK;
}

static void remove_place(struct scratch *scratch)
{
    if (scratch->folder < 0)
        return;
    close(scratch->folder);
    qn_file_remove(AT_FDCWD, scratch->path);
    scratch->folder = -1;
}

/* Source in, object and log out; all in the folder. */
static int compile_in(struct quern_context *ctx, struct scratch *scratch,
                      const struct qn_kernel *kernel, const char *source,
                      struct qn_compiled *out)
{
    const char *arguments[NOPTIONS + 5] = {compiler(ctx)};
    struct qn_file_text object, log;
    int code;

    memcpy(arguments + 1, options, sizeof options);
    arguments[NOPTIONS + 1] = "-o";
    arguments[NOPTIONS + 2] = scratch->object;
    arguments[NOPTIONS + 3] = scratch->source;
    if (!qn_file_write(scratch->folder, "kernel.c", source, strlen(source)))
        return qn_error_set(QUERN_EIO, "%s cannot be written: %s",
                            scratch->source, strerror(errno));
    code = run(arguments, scratch->log);
    qn_file_read(scratch->folder, "log", LOG_LIMIT, QN_TRUST_ALL, &log);
    out->log = log.data ? log.data : qn_text_copy("");
    if (code) {
        qn_error_add("%s: %s", kernel->name, out->log ? out->log : "");
        return code;
    }
    if (!out->log)
        return qn_error_memory();
    if (qn_file_read(scratch->folder, "kernel.so", OBJECT_LIMIT, QN_TRUST_ALL,
                     &object) != QN_FILE_OK)
        return qn_error_set(QUERN_ECOMPILE, "%s: '%s' wrote nothing usable",
                            kernel->name, compiler(ctx));
    out->object = object.data;
    out->bytes = object.bytes;
    return QUERN_OK;
}

int qn_host_compile(struct quern_context *ctx, const struct qn_kernel *kernel,
                    const char *source, struct qn_compiled *out)
{
    struct scratch scratch;
    int code = make_place(ctx, &scratch);

    memset(out, 0, sizeof *out);
    if (!code)
        code = compile_in(ctx, &scratch, kernel, source, out);
    remove_place(&scratch);
    return code;
}

/* The first line that `cc --version` prints, and the machine. A program
   without a version is no compiler. */
int qn_host_version(struct quern_context *ctx, char *text, size_t size)
{
    const char *arguments[] = {compiler(ctx), "--version", NULL};
    struct qn_file_text log = {NULL, 0};
    struct scratch scratch;
    int code = make_place(ctx, &scratch);

    if (!code)
        code = run(arguments, scratch.log);
    if (!code && qn_file_read(scratch.folder, "log", LOG_LIMIT, QN_TRUST_ALL,
                              &log) != QN_FILE_OK)
        code = QUERN_ECOMPILE;
    if (code == QUERN_ECOMPILE)
        code = qn_error_set(QUERN_EMISSING,
                            "'%s --version' fails, so that it is no C "
                            "compiler; set QUERN_CC",
                            arguments[0]);
    if (!code)
        snprintf(text, size, "%s %.*s", qn_host_machine(),
                 (int)strcspn(log.data, "\n"), log.data);
    free(log.data);
    remove_place(&scratch);
    return code;
}
