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
#include "cases.h"
#include "share.h"
#include "defects.h"
#include "interpret.h"
#include "lines.h"

#include <stdio.h>
#include <string.h>

struct run {
    const char *line;
    struct interpret how;
};

/* Run and check a line; returns the exit status. */
static int run(const struct run *r)
{
    char command[1024];

    snprintf(command, sizeof command, "quern run %s --check", r->line);
    return interpret(&r->how, command);
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

    interpret_need_compiler();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (const char *d = rows[i].devices; d; d = strchr(d + 1, ' '))
            for (int k = 0; k < seeds; k++) {
                const struct run r = {rows[i].line,
                                      {d + (*d == ' '), ++number, NULL, NULL}};

                if (!share_has(number))
                    continue;
                ran++;
                if (!run(&r) && strstr(interpret_output, "passed") &&
                    strstr(interpret_output, "PTX interpreter"))
                    continue;
                failed++;
                print_error("PTX_DEVICE=%.3s PTX_SEED=%d %s:\n%s\n",
                            r.how.device, r.how.seed, r.line, interpret_output);
            }
    print_message("  %d runs, %d wrong\n", ran, failed);
    assert_int_equal(failed, 0);
    assert_true(ran > 0);
}

static int is_caught(struct run *r)
{
    int status = 0;

    for (int seed = 2; seed < 6 && !status; seed++) {
        r->how.seed = seed;
        status = run(r);
        if (strstr(interpret_output, "changes nothing") ||
            strstr(interpret_output, "is not known"))
            return 0;
    }
    return status == 1 ||
           (status == 3 && strstr(interpret_output, "cuLaunchKernelEx"));
}

/* Each is seen with one of a few seeds. */
TEST(defects)
{
    static const struct run rows[] = {
#define ROW(device, line, variable, value)                                     \
    {line, {device, 0, #variable, value}},
        PTX_DEFECTS(ROW)
#undef ROW
    };
    int missed = 0, ran = 0;

    interpret_need_compiler();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run r = rows[i];

        if (!share_has((int)i))
            continue;
        ran++;
        if (is_caught(&r))
            continue;
        missed++;
        print_error("not seen: PTX_%s='%s' %s:\n%s\n", r.how.variable,
                    r.how.value, r.line, interpret_output);
    }
    print_message("  %d defects, %d not seen\n", ran, missed);
    assert_int_equal(missed, 0);
    assert_true(ran > 0);
}

/* Each step of another kind, with a line of the kernel's file. */
TEST_ONCE(trace)
{
    static const char *const parts[] = {
        "ptx: quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_",
        ".cu:",
        "mbarrier.try_wait.parity.shared::cta.b64: warp ",
        "cp.async.bulk.tensor",
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16: warp ",
        ": is done",
        "instructions of warps",
        "passed"};
    const struct run r = {
        "fprop bf16 g=1 m=8 n=64 k=64 --backend ptx --trace --kernel "
        "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x128x64_"
        "cluster1x1",
        {"9.0", 1, "SMS", "1"}};

    interpret_need_compiler();
    if (run(&r))
        fail_msg("%s", interpret_output);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(interpret_output, parts[i]))
            fail_msg("no '%s' in:\n%s", parts[i], interpret_output);
}

TEST_MAIN("ptx", interpret_open, interpret_close)
