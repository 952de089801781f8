/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.c: `quern run`: one problem on this machine, with random data. */
#include <stdlib.h>

#include "cli.h"

static const struct argp_option options[] = {
    {"check", QN_KEY_CHECK, NULL, 0,
     "Compare a sample of rows with the oracle; exit status 1 if it differs",
     0},
    {"ptx", QN_KEY_PTX, NULL, 0,
     "Run nothing; print the kernel's PTX, as NVRTC makes it", 0},
    {"sass", QN_KEY_SASS, NULL, 0,
     "Run nothing; print the kernel's machine code (needs cuobjdump or "
     "nvdisasm)",
     0},
    {"resources", QN_KEY_RESOURCES, NULL, 0,
     "Run nothing; print the kernel's share of a multiprocessor", 0},
    {"trace", QN_KEY_TRACE, NULL, 0,
     "With --backend ptx: print each barrier, copy and product on the standard "
     "error output, with its line of the kernel",
     0},
    QN_OPTION_ROUTES,
    QN_OPTION_BACKEND,
    QN_OPTION_KERNEL,
    QN_OPTION_STREAMS,
    QN_OPTION_SEED,
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    QN_OPTION_VERBOSE,
    {0},
};

/* The kernel's code, in place of a run. */
static int show(const struct qn_options *opt)
{
    struct quern_context *ctx;
    int status = qn_source_context(opt, &ctx);

    if (!status) {
        status = qn_code_show(opt, ctx);
        quern_close(ctx);
    }
    return status;
}

static int run(const struct qn_options *opt)
{
    if (opt->show && (opt->check || opt->routes))
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "%s needs a run, and --ptx, --sass and "
                               "--resources run nothing",
                               opt->check ? "--check" : "--routes");
    if (opt->trace && (!opt->interprets || setenv("PTX_TRACE", "1", 1)))
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--trace needs --backend ptx");
    return opt->show ? show(opt) : qn_subject_run(opt);
}

const struct qn_command qn_cmd_run = {
    .name = "run",
    .arguments = "PROBLEM",
    .summary = "Run a problem on this machine, with random data",
    .help =
        "With --routes, g= must name the number of experts, and the rows "
        "of the file replace m=, or the k= of wgrad, which may be left out. "
        "m=@FILE, n=@FILE or k=@FILE gives the lengths of the groups and their "
        "sum at once. C, alpha and beta are random, too. A quantization is "
        "checked against the host's bytes, on the host against the values "
        "before; an MLP or a layer, forward and backward, against a chain in "
        "double; a route or a move against the host's bytes, on the host "
        "against an order that is found pair by pair. "
        "--ptx, --sass and --resources show the kernel that would run, on a "
        "machine without a GPU the one for an H200, or the one that --kernel "
        "names. Example:\n"
        "  quern run fprop bf16 g=8 m=4096 n=2048 k=7168 split=skew "
        "--check\n"
        "  quern run quantize mxfp8 of=x g=8 m=4096 k=7168 --check\n"
        "  quern run mlp fp8_block g=8 m=512 hidden=512 ffn=256 prob=1 "
        "--check\n"
        "  quern run route g=8 m=4096 topk=2 --check",
    .options = options,
    .run = run,
};
