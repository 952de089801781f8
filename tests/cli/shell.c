/* SPDX-License-Identifier: Apache-2.0 */
/* shell.c: commands of a shell, and their output. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_cli.h"

char test_output[1 << 23];

const char *test_own_folder(void)
{
    static char quoted[2048];
    char folder[1024];
    size_t used = 0;
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);

    assert_true(length > 0);
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    for (const char *at = folder; *at; at++) {
        assert_true(used + 5 < sizeof quoted);
        used +=
            (size_t)sprintf(quoted + used, *at == '\'' ? "'\\''" : "%c", *at);
    }
    return quoted;
}

/* A report of a sanitizer, not its warning of much memory, is a failure
   whatever the test expects. */
static void check_sanitizers(const char *command)
{
    if (strstr(test_output, "Sanitizer:") ||
        strstr(test_output, ": runtime error: "))
        fail_msg("%s\n%s", command, test_output);
}

int test_shell(const char *format, ...)
{
    char command[4096];
    size_t length;
    va_list list;
    FILE *pipe;
    int status;

    va_start(list, format);
    assert_in_range(vsnprintf(command, sizeof command, format, list), 1,
                    sizeof command - 1);
    va_end(list);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    length = fread(test_output, 1, sizeof test_output - 1, pipe);
    test_output[length] = '\0';
    status = pclose(pipe);
    check_sanitizers(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
