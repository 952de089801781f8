/* SPDX-License-Identifier: Apache-2.0 */
/*
** helper.c: a program that may crash or hang in place of this process.
**
** A process descriptor, where the system has them, makes sure that no other
** process is killed whose number is that of a child which somebody else has
** waited for.
*/
#define _GNU_SOURCE
#include "device/helper.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Signals as a new session has them. */
static int set_signals(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    int error;

    sigemptyset(&none);
    sigfillset(&all);
    error = posix_spawnattr_setsigmask(attributes, &none);
    if (!error)
        error = posix_spawnattr_setsigdefault(attributes, &all);
    if (!error)
        error = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                                         POSIX_SPAWN_SETSIGDEF);
    return error;
}

/* A caller may have closed 0 to 2, and new files take their place. */
enum { FIRST_FREE = 3 };

static int set_files(posix_spawn_file_actions_t *actions, int input, int output)
{
    int error = posix_spawn_file_actions_adddup2(actions, input, 0);

    if (!error)
        error = posix_spawn_file_actions_adddup2(actions, output, 1);
    if (!error)
        error = posix_spawn_file_actions_addopen(actions, 2, "/dev/null",
                                                 O_WRONLY, 0);
    return error;
}

static int start(const struct qn_helper *h, const int files[2], pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);

    if (error)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        error = set_signals(&attributes);
        if (!error)
            error = set_files(&actions, files[0], files[1]);
        if (!error)
            error = posix_spawn(child, h->arguments[0], &actions, &attributes,
                                (char *const *)h->arguments,
                                (char *const *)h->variables);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Does the text end with a line that is a dot? */
static int is_over(const char *text, size_t length)
{
    return length >= 2 && !memcmp(text + length - 2, ".\n", 2) &&
           (length == 2 || text[length - 3] == '\n');
}

/* To a dot or the end: 0; 1: the time is up. The rest of a long text is
   dropped. */
static int read_all(int from, double end, char *output, size_t size)
{
    struct pollfd wait = {.fd = from, .events = POLLIN};
    size_t length = 0;
    char rest[256];

    output[0] = 0;
    while (!is_over(output, length)) {
        const double left = end - qn_clock_seconds();
        const int full = length + 1 >= size;
        ssize_t got;

        if (left <= 0)
            return 1;
        if (poll(&wait, 1, (int)(left * 1e3) + 1) <= 0)
            continue; /* a signal, or the time is up */
        got = full ? read(from, rest, sizeof rest)
                   : read(from, output + length, size - 1 - length);
        if (got == 0)
            return 0;
        if (got < 0 && errno != EINTR)
            return 0;
        if (got > 0 && !full)
            length += (size_t)got;
        output[length] = 0;
    }
    return 0;
}

/* End it and wait for that: it holds nothing that outlives a signal. */
static void end(pid_t child, int descriptor)
{
    int status;

    if (descriptor >= 0)
        syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, NULL, 0);
    else
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (descriptor >= 0)
        close(descriptor);
}

int qn_helper_run(const struct qn_helper *h, char *output, size_t size,
                  int *late)
{
    const double until = qn_clock_seconds() + h->seconds;
    int ends[2], files[2], error;
    pid_t child;

    *late = 0;
    output[0] = 0;
    if (pipe2(ends, O_CLOEXEC))
        return errno;
    files[0] = fcntl(h->input, F_DUPFD_CLOEXEC, FIRST_FREE);
    files[1] = fcntl(ends[1], F_DUPFD_CLOEXEC, FIRST_FREE);
    error = files[0] < 0 || files[1] < 0 ? errno : start(h, files, &child);
    for (int i = 0; i < 2; i++)
        if (files[i] >= 0)
            close(files[i]);
    close(ends[1]);
    if (!error) {
        const int descriptor = (int)syscall(SYS_pidfd_open, child, 0);

        *late = read_all(ends[0], until, output, size);
        end(child, descriptor);
    }
    close(ends[0]);
    return error;
}
