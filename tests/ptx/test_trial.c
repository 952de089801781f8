/* SPDX-License-Identifier: Apache-2.0 */
/* test_trial.c: `quern .trial`, with which the library tries a kernel on its
   first use, on kernels that are right and on damaged ones. */
#define _GNU_SOURCE
#include "cases.h"
#include "interpret.h"
#include "share.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"

#define KERNEL "quern_bf16_fprop_tn_m_bf16_scale_sm100f_tile64x64x32"
#define SMALL  "fprop bf16 g=2 m=64 n=64 k=64"

static char output[1 << 16];

/* A shell's command in which $quern is the program, and the GPU is the
   interpreter; returns the status. */
static int shell(const char *command)
{
    const char *real = getenv("QUERN_NVRTC");
    char folder[2048], text[8192];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    size_t read;
    FILE *pipe;

    assert_true(length > 0);
    folder[length] = 0;
    *strrchr(folder, '/') = 0;
    snprintf(text, sizeof text,
             "cd %s; export PTX_DEVICE=10.0 PTX_SEED=3 PTX_SMS=4; %s%s%s "
             "quern=%s/quern; export fake=%s/../lib/fake_ptx.so; "
             "export QUERN_CUDA=$fake QUERN_NVRTC=$fake QUERN_CACHE=; %s",
             interpret_folder, real ? "export PTX_NVRTC='" : "",
             real ? real : "", real ? "';" : "", folder, folder, command);
    pipe = popen(text, "r");
    assert_non_null(pipe);
    read = fread(output, 1, sizeof output - 1, pipe);
    output[read] = 0;
    return WEXITSTATUS(pclose(pipe));
}

static void expect(const char *command, const char *begin)
{
    shell(command);
    if (strncmp(output, begin, strlen(begin)) != 0)
        fail_msg("%s\ngives: %s\nnot: %s", command, output, begin);
}

/* The program itself, with a code that an editor has changed. */
#define TRIAL(version, kernel, sizes, gpu, seconds, edit)                      \
    "$quern run --ptx " SMALL " --kernel " KERNEL " > k.ptx; sed '" edit       \
    "' k.ptx | $quern .trial " version " " kernel " " sizes " " gpu            \
    " " seconds " 'fprop bf16 g=6 m=512 n=144 k=208' 2>/dev/null"
#define CODE(edit)                                                             \
    TRIAL(QUERN_VERSION, KERNEL, "37,0,64,65,1,129", "0,100", "60", edit)

TEST(trial_of_codes)
{
    static const struct {
        const char *command, *says;
    } rows[] = {
        {CODE(""), "ready\nright\n.\n"},
        {CODE("0,/mma.sync/{/mma.sync/d}"), "ready\nwrong FAILED: error "},
        {CODE("0,/st.global/{/st.global/d}"), "ready\nwrong FAILED: error "},
        {CODE("0,/ret;/s//trap;/"), "ready\nfailed "},
        {TRIAL(QUERN_VERSION, KERNEL, "37,0,64,65,1,129", "0,100", "4",
               "0,/ret;/s//$L_x: bra $L_x;/"),
         "ready\n"},
    };

    if (!share_has_first())
        return;
    interpret_need_compiler();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect(rows[i].command, rows[i].says);
    /* it ends, by the limit or by the interpreter's own */
    assert_null(strstr(output, "right"));
    assert_non_null(strstr(output, "\n.\n"));
}

/* A result as copies is compared with that of another kernel, which a step of
   its own quantizes. */
#define COPIES                                                                 \
    "quern_mxfp8_fprop_tn_m_bf16_copies_sm100f_swiglu_interleave0_"            \
    "tile128x128x128"
#define LINE "'fprop mxfp8 g=3 m=256 n=512 k=256 activation=swiglu copies=both'"
#define COPIED(edit)                                                           \
    "$quern run --ptx " LINE " --kernel " COPIES " > k.ptx; sed '" edit        \
    "' k.ptx | $quern .trial " QUERN_VERSION " " COPIES                        \
    " 37,129,1 0,100 60 " LINE " 2>/dev/null"

TEST(trial_of_copies)
{
    if (!share_has_first())
        return;
    interpret_need_compiler();
    expect(COPIED(""), "ready\nright\n.\n");
    expect(COPIED("0,/st.global/{/st.global/d}"),
           "ready\nwrong FAILED: error ");
}

TEST(trial_of_nothing)
{
    static const struct {
        const char *command, *says;
    } rows[] = {
        {TRIAL("0.0.1", KERNEL, "1,2,3,4,5,6", "0,100", "9", ""),
         "unable the program 'quern' is of version"},
        {TRIAL(QUERN_VERSION, "none", "1,2,3,4,5,6", "0,100", "9", ""),
         "unable this program has no kernel 'none'\n.\n"},
        {TRIAL(QUERN_VERSION, KERNEL, "1,2", "0,100", "9", ""),
         "unable 2 sizes for 6 groups\n.\n"},
        {TRIAL(QUERN_VERSION, KERNEL, "1,x", "0,100", "9", ""), "unable "},
        {TRIAL(QUERN_VERSION, KERNEL, "1,2,3,4,5,6", "0,90", "9", ""),
         "unable GPU 0 is sm_100, not sm_90\n.\n"},
        {TRIAL(QUERN_VERSION, KERNEL, "1,2,3,4,5,6", "7,100", "9", ""),
         "unable options.device is 7: -1 or 0 to 0 is expected\n.\n"},
        {TRIAL(QUERN_VERSION, KERNEL, "1,2,3,4,5,6", "0,100", "9", "s/mma/x/"),
         "unable cuLibraryLoadData: "},
        {"$quern .trial; echo; $quern .trial 1 2 3", "unable "},
    };

    if (!share_has_first())
        return;
    interpret_need_compiler();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect(rows[i].command, rows[i].says);
}

/* Drivers that give no GPU, or one that another process has for itself. */
TEST(trial_without_gpu)
{
    static const char trial[] =
        "$quern .trial " QUERN_VERSION " " KERNEL " 37,0,64,65,1,129 0,100 9 "
        "'fprop bf16 g=6 m=512 n=144 k=208' 2>/dev/null </dev/null";
    char text[1024];

    snprintf(text, sizeof text, "QUERN_CUDA=/none %s", trial);
    expect(text, "unable no CUDA driver: ");
    snprintf(text, sizeof text,
             "FAKE_CUDA_EXCLUSIVE=1 FAKE_DEVICE=10.0 "
             "QUERN_CUDA=${fake%%fake_ptx.so}fake_cuda.so %s",
             trial);
    expect(text, "unable cuDevicePrimaryCtxRetain: some error (CUDA error 46)\n"
                 ".\n");
}

/* A library that tries, by a program that a script stands before: CUDA's
   variables do not pass, and the interpreter needs its own. */
#define LIBRARY(edit)                                                          \
    "{ echo '#!/bin/sh'; echo \"export PTX_DEVICE=10.0 PTX_SEED=5 PTX_SMS=4\"" \
    "; echo \"" edit "exec $quern \\\"\\$@\\\"\"; } > checker; "               \
    "chmod +x checker; QUERN_CHECKER=$PWD/checker QUERN_LOG=info $quern "      \
    "run " SMALL " --check 2>&1"

TEST(trial_by_library)
{
    if (!share_has_first())
        return;
    interpret_need_compiler();
    assert_int_equal(shell(LIBRARY("")), 0);
    assert_non_null(strstr(output, "tried " KERNEL " on this GPU for the first "
                                   "time: right, in "));
    shell(LIBRARY("sed '0,/mma.sync/{/mma.sync/d}' | "));
    if (!strstr(output,
                KERNEL " is not used: tried on this GPU, wrong: FAILED: "
                       "error ") ||
        !strstr(output, " serves instead"))
        fail_msg("%s", output);
}
