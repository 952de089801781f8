/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake_nvrtc.c: a run-time compiler that compiles "source of NAME" to "cubin of
** NAME". Words in the source make it fail or report what ptxas would:
**
**     ERROR   does not compile           SPILLS   spills registers
**
** $FAKE_NVRTC_DELAY is a pause in milliseconds, $FAKE_NVRTC_VERSION the minor
** version (or both, as 12.8), $FAKE_NVRTC_FAIL the name of a function that
** fails, $FAKE_NVRTC_REFUSE the name, or a part, of a kernel that does not
** compile.
*/
#include "fake.h"

#include <string.h>
#include <time.h>

struct program {
    char name[256], source[4096], log[512];
};

static _Atomic int number; /* of the version: 12090 for 12.9 */

/* Fail if the test asks for it. */
static int fails(const char *name)
{
    const char *wanted = getenv("FAKE_NVRTC_FAIL");

    return wanted && !strcmp(wanted, name);
}

FAKE_API int nvrtcVersion(int *major, int *minor);
int nvrtcVersion(int *major, int *minor)
{
    const char *version = getenv("FAKE_NVRTC_VERSION");

    /* asked once by its opener, which stays loaded */
    fake_log("nvrtc", "open", "");
    *major = 13;
    *minor = version ? atoi(version) : 0;
    if (version && strchr(version, '.'))
        sscanf(version, "%d.%d", major, minor);
    number = 1000 * *major + 10 * *minor;
    return fails(__func__);
}

FAKE_API int nvrtcCreateProgram(struct program **program, const char *source,
                                const char *name, int nheaders,
                                const char *const *headers,
                                const char *const *names);
int nvrtcCreateProgram(struct program **program, const char *source,
                       const char *name, int nheaders,
                       const char *const *headers, const char *const *names)
{
    (void)headers, (void)names;
    if (nheaders || fails(__func__))
        return 3;
    *program = calloc(1, sizeof **program);
    if (!*program)
        return 1;
    snprintf((*program)->name, sizeof(*program)->name, "%s", name);
    snprintf((*program)->source, sizeof(*program)->source, "%s", source);
    return 0;
}

FAKE_API int nvrtcDestroyProgram(struct program **program);
int nvrtcDestroyProgram(struct program **program)
{
    free(*program);
    *program = NULL;
    return 0;
}

static void pause_for(long milliseconds)
{
    struct timespec pause = {milliseconds / 1000,
                             milliseconds % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

/* Which names of architectures the version has. */
static int knows(const char *option)
{
    static const struct {
        const char *name;
        int since;
    } names[] = {{"sm_90a", 12000},
                 {"compute_90a", 12000},
                 {"sm_100", 12080},
                 {"sm_100a", 12080},
                 {"sm_100f", 12090}};
    const char *name = strchr(option, '=');

    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name + 1, names[i].name))
            return number >= names[i].since;
    return 0;
}

FAKE_API int nvrtcCompileProgram(struct program *program, int noptions,
                                 const char *const *options);
int nvrtcCompileProgram(struct program *program, int noptions,
                        const char *const *options)
{
    const char *delay = getenv("FAKE_NVRTC_DELAY");
    const char *refuse = getenv("FAKE_NVRTC_REFUSE");
    int arch = 0;

    fake_log("nvrtc", "compile", program->name);
    if (delay)
        pause_for(atol(delay));
    fake_log("nvrtc", "end", program->name);
    for (int i = 0; i < noptions; i++)
        arch |= knows(options[i]);
    if (!arch || strstr(program->source, "ERROR") ||
        (refuse && strstr(program->name, refuse)) || fails(__func__)) {
        strcpy(program->log, "line 1: the test's compile error\n");
        return 6;
    }
    snprintf(program->log, sizeof program->log,
             "ptxas info    : 0 bytes gmem\n"
             "    %d bytes stack frame, %d bytes spill stores, 0 bytes spill "
             "loads\n",
             0, strstr(program->source, "SPILLS") ? 100 : 0);
    return 0;
}

FAKE_API int nvrtcGetProgramLogSize(struct program *program, size_t *bytes);
int nvrtcGetProgramLogSize(struct program *program, size_t *bytes)
{
    *bytes = strlen(program->log) + 1;
    return fails(__func__);
}

FAKE_API int nvrtcGetProgramLog(struct program *program, char *log);
int nvrtcGetProgramLog(struct program *program, char *log)
{
    strcpy(log, program->log);
    return fails(__func__);
}

FAKE_API int nvrtcGetCUBINSize(struct program *program, size_t *bytes);
int nvrtcGetCUBINSize(struct program *program, size_t *bytes)
{
    *bytes = strlen(program->name) + 10;
    return fails(__func__);
}

FAKE_API int nvrtcGetCUBIN(struct program *program, char *cubin);
int nvrtcGetCUBIN(struct program *program, char *cubin)
{
    sprintf(cubin, "cubin of %s", program->name);
    return fails(__func__);
}

FAKE_API int nvrtcGetPTXSize(struct program *program, size_t *bytes);
int nvrtcGetPTXSize(struct program *program, size_t *bytes)
{
    *bytes = (size_t)snprintf(NULL, 0, "ptx of %s", program->name) + 1;
    return 0;
}

FAKE_API int nvrtcGetPTX(struct program *program, char *ptx);
int nvrtcGetPTX(struct program *program, char *ptx)
{
    sprintf(ptx, "ptx of %s", program->name);
    return 0;
}
