/* SPDX-License-Identifier: Apache-2.0 */
/* interpret.c: programs of the build, whose GPU is the interpreter. */
#define _GNU_SOURCE
#include "interpret.h"
#include "cases.h"
#include "share.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/driver.h"
#include "device/nvrtc.h"

/* Multiprocessors: many tiles for each CTA; and bands of more than one row of
   tiles, of which the model makes more with more CTAs. */
enum { FEW = 4, MORE = 8 };
enum { OUTPUT = 1 << 22, SECONDS = 900 };

char interpret_folder[] = "/tmp/quern-ptx-XXXXXX";
char interpret_output[OUTPUT];
static char programs[2048]; /* the folder of this one */
static struct qn_nvrtc *compiler;

int interpret_open(void **state)
{
    ssize_t length = readlink("/proc/self/exe", programs, sizeof programs - 1);

    (void)state;
    if (length <= 0 || !mkdtemp(interpret_folder))
        return -1;
    programs[length] = 0;
    *strrchr(programs, '/') = 0;
    qn_nvrtc_open(getenv("QUERN_NVRTC"), getenv("CUDA_HOME"), 0, &compiler);
    if (!compiler) /* the runner shows the reason */
        print_message("skip: %s\n", quern_errmsg());
    return 0;
}

int interpret_close(void **state)
{
    char command[100];

    (void)state;
    qn_nvrtc_close(compiler);
    snprintf(command, sizeof command, "rm -rf %s", interpret_folder);
    return system(command);
}

void interpret_need_compiler(void)
{
    if (!compiler)
        skip();
}

/* COUPLED: families */
const char *interpret_families(const char *kernel, const char *products)
{
    return strstr(kernel, "_gather_")   ? "gather"
           : strstr(kernel, "_lora")    ? "lora"
           : strstr(kernel, "_scatter") ? "scatter"
           : strstr(kernel, "_activate_") || strstr(kernel, "_gradient_") ||
                   strstr(kernel, "_copies_")
               ? "activate"
           : strstr(kernel, "_mainloop")  ? "fuse"
           : strstr(kernel, "_epilogue_") ? "epilogues"
           : strstr(kernel, "microbatch") ? "queue,torture,bad_sizes"
                                          : products;
}

int interpret(const struct interpret *how, const char *command)
{
    const char *real = getenv("QUERN_NVRTC");
    char text[8192];
    size_t length;
    FILE *pipe;
    int status;

    snprintf(text, sizeof text,
             "%s%s PTX_DEVICE=%.4s PTX_SEED=%d PTX_SMS=%d PTX_%s='%s' "
             "QUERN_TRUST=compiled QUERN_CUDA=%s/../lib/fake_ptx.so "
             "QUERN_NVRTC=%s/../lib/fake_ptx.so QUERN_CACHE=%s/cache "
             "timeout %d %s/%s 2>&1",
             real ? "PTX_NVRTC=" : "", real ? real : "", how->device, how->seed,
             how->seed % 2 ? FEW : MORE, how->variable ? how->variable : "NONE",
             how->value ? how->value : "", programs, programs, interpret_folder,
             SECONDS, programs, command);
    pipe = popen(text, "r");
    assert_non_null(pipe);
    length = fread(interpret_output, 1, OUTPUT - 1, pipe);
    interpret_output[length] = 0;
    status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static struct qn_driver *driver; /* started */

struct qn_driver *interpret_start(const char *variable, const char *value)
{
    struct cu_context *context;
    char path[sizeof programs + 30];

    if (!driver) {
        snprintf(path, sizeof path, "%s/../lib/fake_ptx.so", programs);
        assert_int_equal(qn_driver_open(path, &driver), 0);
        assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, 0), 0);
        assert_int_equal(driver->cuCtxPushCurrent_v2(context), 0);
    }
    setenv(variable, value, 1);
    assert_int_equal(driver->cuInit(0), 0);
    return driver;
}

int interpret_launch(const char *text, const struct cu_launch *shape,
                     void **params)
{
    struct cu_library *library;
    struct cu_kernel *kernel;
    struct cu_function *function;
    int code =
        driver->cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0);

    if (code)
        return code;
    assert_int_equal(driver->cuLibraryGetKernel(&kernel, library, "kernel"), 0);
    assert_int_equal(driver->cuKernelGetFunction(&function, kernel), 0);
    code = driver->cuLaunchKernelEx(shape, function, params, NULL);
    driver->cuLibraryUnload(library);
    return code;
}
