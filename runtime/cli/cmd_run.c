/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.c: `quern run`: one problem on this machine, with random data. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "base/types.h"
#include "problem/sizes.h"

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
     "Run nothing; print what the kernel takes of a multiprocessor", 0},
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

/* The result for people, or as JSON. `verdict` may be NULL. */
static void print(const struct qn_options *opt, const struct qn_job *job,
                  const struct qn_job_time *time,
                  const struct qn_verdict *verdict)
{
    const struct qn_sizes_range range =
        qn_sizes_range(job->sizes, job->problem.groups);
    char text[512];

    if (opt->json) {
        qn_table_json(qn_report_row(job, time, verdict));
        return;
    }
    qn_problem_print(&job->problem, text, sizeof text);
    printf("problem  %s\n"
           "%-8s %lld in %d groups, %lld to %lld, median %lld\n"
           "kernel   %s\nbackend  %s, %d %s%s%s\n"
           "time     %.3f ms, median of %d, %.3g TFLOP/s, %.3g GB/s\n",
           text,
           job->problem.ragged == QUERN_AXIS_NONE
               ? "m"
               : qn_axis_name(job->problem.ragged),
           (long long)job->rows, job->problem.groups, (long long)range.min,
           (long long)range.max, (long long)range.median, job->info.kernel,
           qn_backend_name(job->info.backend), job->info.sms,
           job->gpu ? "multiprocessors" : "threads", job->gpu ? " of " : "",
           job->gpu ? job->gpu->device.name : "", time->seconds * 1e3,
           time->runs, qn_job_flops(job) / time->seconds * 1e-12,
           qn_job_bytes(job) / time->seconds * 1e-9);
    if (!verdict)
        return;
    qn_oracle_print(verdict, text, sizeof text);
    printf("check    %s\n", text);
}

/* --routes: the sizes of the file, and their sum as the ragged axis. */
static int read_routes(const struct qn_options *opt, int64_t *sizes,
                       struct qn_problem *problem)
{
    int64_t total;
    char why[512];

    if (qn_sizes_routes(opt->routes, problem->groups, sizes, &total, why,
                        sizeof why))
        return qn_message_fail(opt, QN_EXIT_USAGE, "%s", why);
    if (problem->ragged == QUERN_AXIS_M)
        problem->m = total;
    else if (problem->ragged == QUERN_AXIS_K)
        problem->k = total;
    else
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--routes: tokens are the rows of a ragged m "
                               "or k, and this problem has neither");
    return QN_EXIT_OK;
}

/* The oracle of a GPU is the host backend, whose own is arithmetic here. */
static int run_job(const struct qn_options *opt, struct qn_job *job)
{
    struct qn_job_time time;
    struct qn_verdict verdict;
    int code = qn_job_measure(job, 0, &time);

    if (!code && opt->check)
        code = qn_oracle_judge(
            job, job->gpu ? QN_ORACLE_HOST : QN_ORACLE_FLOAT64, 0, &verdict);
    if (code)
        return qn_message_code(opt, code, qn_errmsg(job->ctx));
    print(opt, job, &time, opt->check ? &verdict : NULL);
    return opt->check && !verdict.passed ? QN_EXIT_FAILED : QN_EXIT_OK;
}

static int run_product(const struct qn_options *opt, struct quern_context *ctx)
{
    int64_t sizes[QUERN_MAX_GROUPS];
    struct qn_problem problem;
    struct qn_job job = {0};
    int status = qn_source_problem(opt, ctx, &problem);

    if (!status && opt->routes)
        status = read_routes(opt, sizes, &problem);
    if (!status)
        status =
            qn_job_begin(&job, opt, ctx, &problem, opt->routes ? sizes : NULL);
    if (!status)
        status = run_job(opt, &job);
    qn_job_free(&job);
    return status;
}

/* The kernel's code, in place of a run. */
static int show(const struct qn_options *opt)
{
    struct quern_context *ctx;
    int status = qn_source_context(opt, &ctx);

    if (!status) {
        status = qn_code_show(opt, ctx);
        qn_close(ctx);
    }
    return status;
}

static int run(const struct qn_options *opt)
{
    static const struct qn_line_commands commands = {
        run_product, qn_cast_command_run, qn_layer_command_run};

    if (opt->show && (opt->check || opt->routes))
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "%s needs a run, and --ptx, --sass and "
                               "--resources run nothing",
                               opt->check ? "--check" : "--routes");
    return opt->show ? show(opt) : qn_layer_line(opt, &commands);
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
        "before; an MLP, forward and backward, against a chain in double. "
        "--ptx, --sass and --resources show the kernel that would run, on a "
        "machine without a GPU the one for an H200, or the one that --kernel "
        "names. Example:\n"
        "  quern run fprop bf16 g=8 m=4096 n=2048 k=7168 split=skew "
        "--check\n"
        "  quern run quantize mxfp8 of=x g=8 m=4096 k=7168 --check\n"
        "  quern run mlp fp8_block g=8 m=512 hidden=512 ffn=256 prob=1 "
        "--check",
    .options = options,
    .run = run,
};
