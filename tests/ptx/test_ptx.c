/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_ptx.c: kernels as NVRTC compiles them, run by an interpreter of their
** PTX and checked by the program against the host's oracle. No GPU is needed.
**
** Run: build/bin/test_ptx      needs libnvrtc; else skipped
**   QUERN_SHARE             as share.h says
*/
#define _GNU_SOURCE
#include "cases.h"
#include "share.h"

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

/* The exit status of the program on a line; its output is in `output`. */
static int run(const char *device, int seed, const char *line)
{
    const char *real = getenv("QUERN_NVRTC");
    char command[8192];
    size_t length;
    FILE *pipe;
    int status;

    snprintf(command, sizeof command,
             "%s%s PTX_DEVICE=%s PTX_SEED=%d QUERN_CUDA=%s/../lib/ptx.so "
             "QUERN_NVRTC=%s/../lib/ptx.so QUERN_CACHE=%s %s/quern run %s "
             "--check 2>&1",
             real ? "PTX_NVRTC=" : "", real ? real : "", device, seed, folder,
             folder, cache, folder, line);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = 0;
    status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct line {
    const char *device, *line;
    int seeds;
};

static const struct line casts[] = {
    {"8.0", "quantize fp8_block of=x g=2 m=256 k=512", 1},
    {"8.0", "quantize fp8_row of=x g=3 m=200 k=256 split=skew", 1},
    {"9.0", "quantize mxfp8 of=x g=3 m=300 k=256 split=skew", 1},
    {"9.0", "quantize fp8_block of=w g=2 m=256 k=256", 1},
    {"9.0", "quantize nvfp4 of=dy g=2 m=256 k=256", 1},
};

static const struct line products[] = {
    {"8.0", "fprop bf16 g=3 m=200 n=128 k=128 split=skew", 2},
    {"8.0", "wgrad fp16 g=3 m=128 n=64 k=200 split=skew", 1},
    {"9.0", "fprop bf16 g=3 m=300 n=256 k=128 split=skew", 4},
    {"9.0", "dgrad bf16 g=3 m=300 n=256 k=128 split=skew", 4},
    {"9.0", "wgrad bf16 g=3 m=256 n=256 k=300 split=skew", 4},
    {"9.0", "fprop fp8_block g=3 m=300 n=256 k=256 split=skew", 4},
};

static void run_lines(const struct line *lines, size_t count)
{
    int failed = 0, ran = 0, seed = 0;

    if (!compiler)
        skip();
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < lines[i].seeds; k++) {
            const struct line *l = &lines[i];

            if (!share_has(seed++))
                continue;
            ran++;
            if (!run(l->device, seed, l->line) && strstr(output, "passed"))
                continue;
            failed++;
            print_error("PTX_DEVICE=%s PTX_SEED=%d %s:\n%s\n", l->device, seed,
                        l->line, output);
        }
    print_message("  %d runs, %d wrong\n", ran, failed);
    assert_int_equal(failed, 0);
}

TEST(some_casts)
{
    run_lines(casts, sizeof casts / sizeof casts[0]);
}

TEST(some_products)
{
    run_lines(products, sizeof products / sizeof products[0]);
}

TEST_MAIN("ptx", open_all, close_all)
