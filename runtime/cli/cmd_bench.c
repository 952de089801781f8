/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench.c: `quern bench`: time problems. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

#include "api/api.h"

static const struct argp_option options[] = {
    {"json", QN_KEY_JSON_FILE, "FILE", 0,
     "Also write JSON to FILE; - prints it instead of the table", 0},
    {"repeat", QN_KEY_REPEAT, "N", 0,
     "Launches to take the median of (default: about a second's)", 0},
    {"against", QN_KEY_AGAINST, "NAME", 0,
     "Also run this backend, in turn with the other, and compare", 0},
    {"overhead", QN_KEY_OVERHEAD, NULL, 0,
     "Time plans (cold, warm, again) and a launch on the host, next to the "
     "driver's own",
     0},
    QN_OPTION_BACKEND,
    QN_OPTION_KERNEL,
    QN_OPTION_STREAMS,
    QN_OPTION_SEED,
    QN_OPTION_SPECS,
    QN_OPTION_VERBOSE,
    {0},
};

/* --against: both in one run. */
static int compare(const struct qn_options *opt, const struct qn_subject *s,
                   struct qn_job *job, cJSON *rows)
{
    struct qn_job other = {0}, *const jobs[] = {job, &other};
    struct qn_job_time times[2];
    int status = qn_job_beside(&other, job, opt);
    int code = QUERN_OK;
    cJSON *row;

    if (!status) {
        code = qn_job_compare(jobs, 2, opt->repeat, times);
        if (code)
            status = qn_message_code(opt, code, quern_errmsg());
    }
    if (!status) {
        row = qn_subject_row(s, &times[0], NULL);
        qn_report_against(row, &times[0], &other, &times[1]);
        cJSON_AddItemToArray(rows, row);
    }
    qn_call_free(&other.call);
    return status;
}

/* One problem, as one row. */
static int time_one(const struct qn_options *opt, struct quern_context *ctx,
                    const char *text, cJSON *rows)
{
    struct qn_subject s;
    struct qn_job_time time;
    int code, status;

    if (opt->against && qn_line_of(text) != QN_LINE_PRODUCT &&
        qn_line_of(text) != QN_LINE_UNKNOWN)
        return qn_message_fail(
            opt, QN_EXIT_USAGE,
            "--against compares products, and '%s' is not one", text);
    status = qn_subject_begin(&s, opt, ctx, text);
    if (!status && opt->against)
        status = compare(opt, &s, &s.of.job, rows);
    else if (!status) {
        code = qn_subject_measure(&s, opt->repeat, &time);
        if (code)
            status = qn_message_code(opt, code, quern_errmsg());
        else
            cJSON_AddItemToArray(rows, qn_subject_row(&s, &time, NULL));
    }
    qn_subject_free(&s);
    return status;
}

/* --json FILE */
static int save(const struct qn_options *opt, const cJSON *rows)
{
    FILE *file = fopen(opt->json_file, "w");
    char *text = qn_table_text(rows);
    int failed = !file || !text || fprintf(file, "%s\n", text) < 0, plain = 0;
    int error = errno;
    struct stat st;

    if (file) /* remove half a file, but nothing that is not a file */
        plain = !fstat(fileno(file), &st) && S_ISREG(st.st_mode);
    if (file && fclose(file) != 0) {
        error = failed ? error : errno;
        failed = 1;
    }
    if (failed && plain)
        remove(opt->json_file);
    cJSON_free(text);
    return failed ? qn_message_fail(opt, QN_EXIT_UNABLE,
                                    "%s cannot be written: %s", opt->json_file,
                                    strerror(error))
                  : QN_EXIT_OK;
}

/* One of several that is wrong is told before the others take minutes. */
static int check_all(const struct qn_options *opt, struct quern_context *ctx,
                     const struct qn_texts *texts)
{
    char line[2048];
    struct qn_line known;
    int status = QN_EXIT_OK;

    for (int i = 0; i < texts->count && texts->count > 1 && !status; i++) {
        const char *text = texts->all[i];

        status = qn_source_expand(opt, &text, line, sizeof line);
        if (!status && qn_api_line(ctx, text, &known))
            status = qn_message_fail(opt, QN_EXIT_USAGE, "'%s': %s",
                                     texts->all[i], quern_errmsg());
    }
    return status;
}

static int time_all(const struct qn_options *opt, struct quern_context *ctx,
                    cJSON *rows)
{
    struct qn_texts texts;
    int status = qn_source_texts(opt, &texts);

    if (!status)
        status = check_all(opt, ctx, &texts);
    if (!status && opt->overhead)
        return qn_overhead_rows(opt, ctx, texts.all, texts.count, rows);
    for (int i = 0; !status && i < texts.count; i++)
        status = time_one(opt, ctx, texts.all[i], rows);
    return status;
}

static const struct qn_column *columns(const struct qn_options *opt)
{
    return opt->overhead  ? qn_overhead_columns
           : opt->against ? qn_report_against_columns
                          : qn_report_columns;
}

static int run(const struct qn_options *opt)
{
    struct qn_options timed = *opt;
    struct quern_context *ctx;
    cJSON *rows;
    int status = qn_source_context(opt, &ctx);

    if (status)
        return status;
    timed.alike = 1; /* power, and so time, depends on values: as of records */
    rows = cJSON_CreateArray();
    status = time_all(&timed, ctx, rows);
    if (!status && opt->json_file)
        status = save(opt, rows);
    qn_table_rows(opt, rows, columns(opt)); /* after an error, too */
    quern_close(ctx);
    return status;
}

const struct qn_command qn_cmd_bench = {
    .name = "bench",
    .arguments = "PROBLEM...",
    .summary = "Time problems: median, TFLOP/s, GB/s, share of the roofline",
    .help = "Several problems are quoted, one by one. A time is the median of "
            "launches, back to back, the caches as the last launch "
            "left them. The roofline is the chip at its highest "
            "clocks. With --against, ratio says how many times as long the "
            "other backend takes; both read the same operands, a few launches "
            "of one and then of the other. Example:\n"
            "  quern bench 'fprop bf16 g=8 m=32768 n=4096 k=7168 split=mild' "
            "\\\n    'fprop bf16 g=8 m=32768 n=4096 k=7168 split=skew' "
            "--json out.json",
    .options = options,
    .run = run,
};
