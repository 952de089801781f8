/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_ptx.c: kernels as NVRTC compiles them, run by an interpreter of their
** PTX and checked by the program against the host's oracle. No GPU is needed.
**
** Run: build/bin/test_ptx      needs libnvrtc; else skipped
**   QUERN_SHARE             as share.h says
**   QUERN_PTX_SEEDS         of each problem (1)
**
** The same by hand, with the variables of machine/driver.c:
**
**   QUERN_CUDA=build/lib/fake_ptx.so QUERN_NVRTC=build/lib/fake_ptx.so
**   QUERN_CACHE=/tmp/ptx PTX_SEED=3 build/bin/quern run LINE --check
*/
#define _GNU_SOURCE
#include "cases.h"
#include "share.h"
#include "defects.h"
#include "lines.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/nvrtc.h"

static char folder[2048]; /* of this program */
static char cache[] = "/tmp/quern-ptx-XXXXXX";
static struct qn_nvrtc *compiler;
static char output[1 << 16];

static int open_all(void **state)
{
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);

    (void)state;
    if (share_open() || length <= 0 || !mkdtemp(cache))
        return -1;
    folder[length] = 0;
    *strrchr(folder, '/') = 0;
    qn_nvrtc_open(getenv("QUERN_NVRTC"), getenv("CUDA_HOME"), 0, &compiler);
    if (!compiler) /* the runner shows the reason */
        print_message("skip: %s\n", qn_errmsg(NULL));
    return 0;
}

static int close_all(void **state)
{
    char command[100];

    (void)state;
    qn_nvrtc_close(compiler);
    snprintf(command, sizeof command, "rm -rf %s", cache);
    share_print();
    return system(command);
}

struct run {
    const char *device, *line;
    int seed;
    const char *variable, *value; /* for the interpreter, or NULL */
};

/* The exit status of the program; its output is in `output`. */
static int run(const struct run *r)
{
    const char *real = getenv("QUERN_NVRTC");
    char command[8192];
    size_t length;
    FILE *pipe;
    int status;

    snprintf(command, sizeof command,
             "%s%s PTX_DEVICE=%.3s PTX_SEED=%d PTX_%s='%s' "
             "QUERN_CUDA=%s/../lib/fake_ptx.so "
             "QUERN_NVRTC=%s/../lib/fake_ptx.so QUERN_CACHE=%s "
             "timeout 300 %s/quern run %s --check 2>&1",
             real ? "PTX_NVRTC=" : "", real ? real : "", r->device, r->seed,
             r->variable ? r->variable : "NONE", r->value ? r->value : "",
             folder, folder, cache, folder, r->line);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = 0;
    status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A line on each device that it names. */
TEST(lines)
{
    static const struct {
        const char *devices, *line;
    } rows[] = {
#define ROW(devices, line) {devices, line},
        PTX_LINES(ROW)
#undef ROW
    };
    const char *given = getenv("QUERN_PTX_SEEDS");
    const int seeds = given ? atoi(given) : 1;
    int failed = 0, ran = 0, number = 0;

    if (!compiler)
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (const char *d = rows[i].devices; d; d = strchr(d + 1, ' '))
            for (int k = 0; k < seeds; k++) {
                const struct run r = {d + (*d == ' '), rows[i].line, ++number,
                                      NULL, NULL};

                if (!share_has(number))
                    continue;
                ran++;
                if (!run(&r) && strstr(output, "passed") &&
                    strstr(output, "PTX interpreter"))
                    continue;
                failed++;
                print_error("PTX_DEVICE=%.3s PTX_SEED=%d %s:\n%s\n", r.device,
                            r.seed, r.line, output);
            }
    print_message("  %d runs, %d wrong\n", ran, failed);
    assert_int_equal(failed, 0);
    assert_true(ran > 0);
}

static int is_caught(struct run *r)
{
    int status = 0;

    for (int seed = 2; seed < 6 && !status; seed++) {
        r->seed = seed;
        status = run(r);
        if (strstr(output, "changes nothing") || strstr(output, "is not known"))
            return 0;
    }
    return status == 1 || (status == 3 && strstr(output, "cuLaunchKernelEx"));
}

/* Each is seen with one of a few seeds. */
TEST(defects)
{
    static const struct run rows[] = {
#define ROW(device, line, variable, value) {device, line, 0, #variable, value},
        PTX_DEFECTS(ROW)
#undef ROW
    };
    int missed = 0, ran = 0;

    if (!compiler)
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run r = rows[i];

        if (!share_has((int)i))
            continue;
        ran++;
        if (is_caught(&r))
            continue;
        missed++;
        print_error("not seen: PTX_%s='%s' %s:\n%s\n", r.variable, r.value,
                    r.line, output);
    }
    print_message("  %d defects, %d not seen\n", ran, missed);
    assert_int_equal(missed, 0);
    assert_true(ran > 0);
}

TEST_MAIN("ptx", open_all, close_all)
