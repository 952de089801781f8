/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: a job's results, as a row for table.c. */
#include "cli.h"

#include <math.h>
#include <stdio.h>

#include "base/types.h"
#include "problem/geometry.h"
#include "problem/sizes.h"

const struct qn_column qn_report_columns[] = {
    {"problem", "problem", "s"},
    {"backend", "backend", "s"},
    {"ms", "ms", "%.3f"},
    {"tflops", "TFLOP/s", "%.3g"},
    {"gbps", "GB/s", "%.3g"},
    {"roofline", "of roofline", "%.2f"},
    {"sm_clock", "SM MHz", "%.0f"},
    {"watts", "W", "%.0f"},
    {"error", "error", "%.1e"},
    {"kernel", "kernel", "s"},
    {0},
};

const struct qn_column qn_report_against_columns[] = {
    {"problem", "problem", "s"},
    {"backend", "backend", "s"},
    {"ms", "ms", "%.3f"},
    {"tflops", "TFLOP/s", "%.3g"},
    {"roofline", "of roofline", "%.2f"},
    {"sm_clock", "SM MHz", "%.0f"},
    {"watts", "W", "%.0f"},
    {"against", "against", "s"},
    {"against_ms", "ms", "%.3f"},
    {"against_tflops", "TFLOP/s", "%.3g"},
    {"against_sm_clock", "SM MHz", "%.0f"},
    {"against_watts", "W", "%.0f"},
    {"ratio", "ratio", "%.3f"},
    {"kernel", "kernel", "s"},
    {0},
};

void qn_report_load(cJSON *row, const char *prefix,
                    const struct qn_gpu_load *load)
{
    char key[32];

    snprintf(key, sizeof key, "%ssm_clock", prefix);
    if (load->clock > 0)
        cJSON_AddNumberToObject(row, key, load->clock);
    snprintf(key, sizeof key, "%swatts", prefix);
    if (load->watts > 0)
        cJSON_AddNumberToObject(row, key, load->watts);
}

/* The chip at its highest clocks could not be faster than this. */
static double roofline(const struct qn_job *job, double seconds)
{
    const struct qn_gpu *gpu = job->gpu;
    const int bits = qn_type_bits(job->operands[QN_ROLE_A].type);
    double least;

    if (!gpu || gpu->peak_flops <= 0 || gpu->peak_bytes <= 0 || seconds <= 0)
        return 0;
    least = fmax(qn_job_flops(job) / qn_gpu_peak(gpu, bits),
                 qn_job_bytes(job) / gpu->peak_bytes);
    return least / seconds;
}

/* Rates that follow from the time. */
static void add_time(cJSON *row, const struct qn_job *job,
                     const struct qn_job_time *time)
{
    const double share = roofline(job, time->seconds);

    cJSON_AddNumberToObject(row, "ms", time->seconds * 1e3);
    cJSON_AddNumberToObject(row, "ms_least", time->least * 1e3);
    cJSON_AddNumberToObject(row, "runs", time->runs);
    if (time->seconds > 0) {
        cJSON_AddNumberToObject(row, "tflops",
                                qn_job_flops(job) / time->seconds * 1e-12);
        cJSON_AddNumberToObject(row, "gbps",
                                qn_job_bytes(job) / time->seconds * 1e-9);
    }
    if (share > 0)
        cJSON_AddNumberToObject(row, "roofline", share);
    qn_report_load(row, "", &time->load);
}

static void add_verdict(cJSON *row, const struct qn_verdict *verdict)
{
    cJSON_AddNumberToObject(row, "error", verdict->error);
    cJSON_AddNumberToObject(row, "tolerance", verdict->tolerance);
    cJSON_AddNumberToObject(row, "rows_compared", (double)verdict->rows);
    cJSON_AddStringToObject(row, "oracle", verdict->oracle);
    cJSON_AddBoolToObject(row, "passed", verdict->passed);
}

cJSON *qn_report_row(const struct qn_job *job, const struct qn_job_time *time,
                     const struct qn_verdict *verdict)
{
    const struct qn_sizes_range range =
        qn_sizes_range(job->sizes, job->problem.groups);
    cJSON *row = cJSON_CreateObject();
    char text[512];

    qn_problem_print(&job->problem, text, sizeof text);
    cJSON_AddStringToObject(row, "problem", text);
    cJSON_AddStringToObject(row, "kernel", job->info.kernel);
    cJSON_AddStringToObject(row, "backend", qn_backend_name(job->info.backend));
    cJSON_AddStringToObject(row, "device",
                            job->gpu ? job->gpu->device.name : "host");
    cJSON_AddNumberToObject(row, "rows_min", (double)range.min);
    cJSON_AddNumberToObject(row, "rows_median", (double)range.median);
    cJSON_AddNumberToObject(row, "rows_max", (double)range.max);
    if (time)
        add_time(row, job, time);
    if (verdict)
        add_verdict(row, verdict);
    return row;
}

void qn_report_against(cJSON *row, const struct qn_job_time *time,
                       const struct qn_job *other,
                       const struct qn_job_time *other_time)
{
    const double seconds = other_time->seconds;

    cJSON_AddStringToObject(row, "against",
                            qn_backend_name(other->info.backend));
    cJSON_AddStringToObject(row, "against_kernel", other->info.kernel);
    cJSON_AddNumberToObject(row, "against_ms", seconds * 1e3);
    cJSON_AddNumberToObject(row, "against_ms_least", other_time->least * 1e3);
    if (seconds > 0)
        cJSON_AddNumberToObject(row, "against_tflops",
                                qn_job_flops(other) / seconds * 1e-12);
    qn_report_load(row, "against_", &other_time->load);
    if (time->seconds > 0)
        cJSON_AddNumberToObject(row, "ratio", seconds / time->seconds);
}
