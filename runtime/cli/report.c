/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: a job's results, as a row for table.c. */
#include "cli.h"

#include <stdio.h>

#include "base/types.h"

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

void qn_report_against(cJSON *row, const struct qn_job_time *time,
                       const struct qn_job *other,
                       const struct qn_job_time *other_time)
{
    const double seconds = other_time->seconds;

    cJSON_AddStringToObject(row, "against",
                            qn_backend_name(other->call.info.backend));
    cJSON_AddStringToObject(row, "against_kernel", other->call.info.kernel);
    cJSON_AddNumberToObject(row, "against_ms", seconds * 1e3);
    cJSON_AddNumberToObject(row, "against_ms_least", other_time->least * 1e3);
    if (seconds > 0)
        cJSON_AddNumberToObject(row, "against_tflops",
                                qn_job_flops(other) / seconds * 1e-12);
    qn_report_load(row, "against_", &other_time->load);
    if (time->seconds > 0)
        cJSON_AddNumberToObject(row, "ratio", seconds / time->seconds);
}
