/* SPDX-License-Identifier: Apache-2.0 */
/* system.c: calls of the kernel that fail, end the process, or find no space,
   on request. The test program is linked with -Wl,--wrap for these, so that
   only the runtime's own and the tests' calls come here. The linker also reads
   what shared libraries need, so the names must be visible. */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <time.h>

struct test_system test_system;

/* 1 with errno set if this call must fail. */
static int fails(void)
{
    int call;

    if (!test_system.armed)
        return 0;
    call = __atomic_add_fetch(&test_system.calls, 1, __ATOMIC_SEQ_CST);
    if (call == test_system.kill_at)
        raise(SIGKILL);
    if (call != test_system.fail_at)
        return 0;
    errno = test_system.error;
    return 1;
}

/* X(name, parameters, arguments): those that return -1 when they fail. */
#define CALLS(X)                                                               \
    X(mkdirat, (int at, const char *path, mode_t mode), (at, path, mode))      \
    X(renameat, (int from, const char *a, int to, const char *b),              \
      (from, a, to, b))                                                        \
    X(unlinkat, (int at, const char *path, int flags), (at, path, flags))      \
    X(fstat, (int file, struct stat *st), (file, st))                          \
    X(fstatat, (int at, const char *path, struct stat *st, int flags),         \
      (at, path, st, flags))

#define WRAP(name, parameters, arguments)                                      \
    int __real_##name parameters;                                              \
    FAKE_API int __wrap_##name parameters;                                     \
    int __wrap_##name parameters                                               \
    {                                                                          \
        return fails() ? -1 : __real_##name arguments;                         \
    }
CALLS(WRAP)
#undef WRAP

int __real_openat(int at, const char *path, int flags, ...);
FAKE_API int __wrap_openat(int at, const char *path, int flags, ...);
int __wrap_openat(int at, const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list list;

    va_start(list, flags);
    if (flags & O_CREAT)
        mode = va_arg(list, mode_t);
    va_end(list);
    return fails() ? -1 : __real_openat(at, path, flags, mode);
}

/* The descriptor is gone even if closing it fails. */
int __real_close(int file);
FAKE_API int __wrap_close(int file);
int __wrap_close(int file)
{
    int failed = fails(), error = errno, result = __real_close(file);

    if (!failed)
        return result;
    errno = error;
    return -1;
}

ssize_t __real_read(int file, void *data, size_t bytes);
FAKE_API ssize_t __wrap_read(int file, void *data, size_t bytes);
ssize_t __wrap_read(int file, void *data, size_t bytes)
{
    return fails() ? -1 : __real_read(file, data, bytes);
}

/* A disk takes what still fits, and then nothing. */
ssize_t __real_write(int file, const void *data, size_t bytes);
FAKE_API ssize_t __wrap_write(int file, const void *data, size_t bytes);
ssize_t __wrap_write(int file, const void *data, size_t bytes)
{
    if (fails())
        return -1;
    if (test_system.armed && test_system.full) {
        if (test_system.space <= 0) {
            errno = ENOSPC;
            return -1;
        }
        if (bytes > (size_t)test_system.space)
            bytes = (size_t)test_system.space;
        test_system.space -= (int)bytes;
    }
    return __real_write(file, data, bytes);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument);
FAKE_API int __wrap_pthread_create(pthread_t *thread,
                                   const pthread_attr_t *attributes,
                                   void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument)
{
    return test_system.no_threads
               ? EAGAIN
               : __real_pthread_create(thread, attributes, run, argument);
}

int __real_flock(int file, int operation);
FAKE_API int __wrap_flock(int file, int operation);
int __wrap_flock(int file, int operation)
{
    if (test_system.no_locks) {
        errno = ENOLCK;
        return -1;
    }
    return fails() ? -1 : __real_flock(file, operation);
}

time_t __real_time(time_t *now);
FAKE_API time_t __wrap_time(time_t *now);
time_t __wrap_time(time_t *now)
{
    time_t is = __real_time(NULL) + test_system.clock;

    if (now)
        *now = is;
    return is;
}

/* No sleep if the test says so. */
int __real_nanosleep(const struct timespec *pause, struct timespec *left);
FAKE_API int __wrap_nanosleep(const struct timespec *pause,
                              struct timespec *left);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
    return test_system.no_waiting ? 0 : __real_nanosleep(pause, left);
}

/* As where no process can be made. */
int __real_posix_spawn(pid_t *child, const char *path,
                       const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes,
                       char *const *arguments, char *const *variables);
FAKE_API int __wrap_posix_spawn(pid_t *child, const char *path,
                                const posix_spawn_file_actions_t *actions,
                                const posix_spawnattr_t *attributes,
                                char *const *arguments, char *const *variables);
int __wrap_posix_spawn(pid_t *child, const char *path,
                       const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes,
                       char *const *arguments, char *const *variables)
{
    return test_system.no_spawn
               ? test_system.no_spawn
               : __real_posix_spawn(child, path, actions, attributes, arguments,
                                    variables);
}
