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
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG_LIMIT    ((size_t)1 << 20)
#define OBJECT_LIMIT ((size_t)64 << 20)

extern char **environ;

/* Sums are promised to the bit: nothing may be fused or reordered. */
static const char *const options[] = {"-std=gnu11", "-O2", "-fPIC", "-shared",
                                      "-ffp-contract=off"};

#define NOPTIONS ((int)(sizeof options / sizeof options[0]))

const char *qn_host_options(void)
{
    return "-std=gnu11 -O2 -fPIC -shared -ffp-contract=off";
}

/* One program name, never split into words or given to a shell. */
static const char *compiler(const struct quern_context *ctx)
{
    return ctx->cc ? ctx->cc : "cc";
}

/* The compiler's variables are ours, but for two: its temporary files are to be
   in our folder, which goes with them, and without a PATH it would not find its
   own parts. Freed with free; NULL if memory ran out. */
static const char **make_variables(const char *folder, char *temporary,
                                   size_t size)
{
    const char **copy;
    size_t count = 0, used = 0;

    while (environ && environ[count])
        count++;
    copy = calloc(count + 3, sizeof *copy);
    if (!copy)
        return NULL;
    if (folder) {
        snprintf(temporary, size, "TMPDIR=%s", folder);
        copy[used++] = temporary;
    }
    for (size_t i = 0; i < count; i++)
        if (!folder || strncmp(environ[i], "TMPDIR=", 7))
            copy[used++] = environ[i];
    if (!getenv("PATH"))
        copy[used] = "PATH=/usr/local/bin:/usr/bin:/bin";
    return copy;
}

/* Run a program with its output in an open file. 0, or an error number. */
static int start(const char *const *arguments, const char **variables, int log,
                 pid_t *child)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);

    if (error)
        return error;
    error =
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, log, 1);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, log, 2);
    if (!error)
        error =
            posix_spawnp(child, arguments[0], &actions, NULL,
                         (char *const *)arguments, (char *const *)variables);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* To its end. QUERN_ECOMPILE unless it exits with 0. */
static int run_into(const char *const *arguments, const char *folder, int log)
{
    char temporary[PATH_MAX + 8];
    const char **variables =
        make_variables(folder, temporary, sizeof temporary);
    int error, status = 0;
    pid_t child, got;

    if (!variables)
        return qn_error_memory();
    error = start(arguments, variables, log, &child);
    free(variables);
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

/* The beginning of an open file; NULL if memory ran out. */
static char *read_back(int file)
{
    char *text = calloc(1, LOG_LIMIT + 1);
    ssize_t got = text ? pread(file, text, LOG_LIMIT, 0) : -1;
    char *fitting = got < 0 ? NULL : realloc(text, (size_t)got + 1);

    if (!fitting && got >= 0)
        return text;
    if (got < 0)
        free(text);
    return fitting;
}

/* Run a program, which keeps its temporary files in `folder` (NULL: where it
   likes). Its output, freed with free, is told after a failure, too. */
static int run(const char *const *arguments, const char *folder, char **output)
{
    int log, code;

    *output = NULL;
    if (getauxval(AT_SECURE))
        return qn_error_set(QUERN_EMISSING,
                            "a set-user-id program starts no C compiler");
    log = memfd_create("quern", MFD_CLOEXEC);
    if (log < 0)
        return qn_error_set(QUERN_EIO, "no memory for the output of '%s': %s",
                            arguments[0], strerror(errno));
    code = run_into(arguments, folder, log);
    if (code != QUERN_EMISSING && !(*output = read_back(log)))
        code = qn_error_memory();
    close(log);
    return code;
}

/* A folder that only we can enter, and the paths in it. */
struct scratch {
    char path[PATH_MAX - 32];
    char source[PATH_MAX], object[PATH_MAX];
    int folder;
};

/* mkdtemp makes it 0700. */
static int make_place(const char *base, struct scratch *scratch)
{
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
    struct qn_file_text object;
    int code;

    memcpy(arguments + 1, options, sizeof options);
    arguments[NOPTIONS + 1] = "-o";
    arguments[NOPTIONS + 2] = scratch->object;
    arguments[NOPTIONS + 3] = scratch->source;
    if (!qn_file_write(scratch->folder, "kernel.c", source, strlen(source)))
        return qn_error_set(QUERN_EIO, "%s cannot be written: %s",
                            scratch->source, strerror(errno));
    code = run(arguments, scratch->path, &out->log);
    if (code) {
        qn_error_add("%s: %s", kernel->name, out->log ? out->log : "");
        return code;
    }
    if (qn_file_read(scratch->folder, "kernel.so", OBJECT_LIMIT, QN_TRUST_ALL,
                     &object) != QN_FILE_OK)
        return qn_error_set(QUERN_ECOMPILE, "%s: '%s' wrote nothing usable",
                            kernel->name, compiler(ctx));
    out->object = object.data;
    out->bytes = object.bytes;
    return QUERN_OK;
}

static int compile_below(struct quern_context *ctx, const char *base,
                         const struct qn_kernel *kernel, const char *source,
                         struct qn_compiled *out)
{
    struct scratch scratch;
    int code = make_place(base, &scratch);

    memset(out, 0, sizeof *out);
    if (!code)
        code = compile_in(ctx, &scratch, kernel, source, out);
    remove_place(&scratch);
    return code;
}

/* A folder that is full, or gone, is no reason to fail. */
int qn_host_compile(struct quern_context *ctx, const char *folder,
                    const struct qn_kernel *kernel, const char *source,
                    struct qn_compiled *out)
{
    int code =
        folder ? compile_below(ctx, folder, kernel, source, out) : QUERN_EIO;

    if (code != QUERN_EIO)
        return code;
    return compile_below(ctx, ctx->temporary ? ctx->temporary : "/tmp", kernel,
                         source, out);
}

/* The first line that `cc --version` prints, and the machine. A program
   without a version is no compiler. */
int qn_host_version(struct quern_context *ctx, char *text, size_t size)
{
    const char *arguments[] = {compiler(ctx), "--version", NULL};
    char *output;
    int code = run(arguments, NULL, &output);

    if (code == QUERN_ECOMPILE)
        code = qn_error_set(QUERN_EMISSING,
                            "'%s --version' fails, so that it is no C "
                            "compiler; set QUERN_CC",
                            arguments[0]);
    if (!code)
        snprintf(text, size, "%s %.*s", qn_host_machine(),
                 (int)strcspn(output, "\n"), output);
    free(output);
    return code;
}
