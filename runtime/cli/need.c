/* SPDX-License-Identifier: Apache-2.0 */
/*
** need.c: the kernels that plans of a line can need on an architecture.
**
** A plan's choice depends on the rows, and on the GPU's multiprocessors and
** memory. So the line is planned for many numbers of rows up to its own, as on
** each of the architecture's usual GPUs, and as on those whose winners were
** measured.
*/
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "api/api_kernels.h"
#include "device/chip.h"
#include "device/driver.h"
#include "tuned/tune_store.h"

struct need {
    struct quern_context *ctx;
    struct qn_line line;
    struct qn_device device;
    unsigned char *marks;
    int served; /* one of the plans was made */
    int code;   /* the last plan's */
};

static int plan(struct need *need, int64_t rows)
{
    int64_t *at = qn_api_rows(&need->line);
    const int64_t most = at ? *at : 0;

    if (at)
        *at = rows;
    need->code =
        qn_api_kernels(need->ctx, &need->line, &need->device, need->marks);
    if (at)
        *at = most;
    need->served |= !need->code;
    return need->code == QUERN_ENOMEM ? need->code : QUERN_OK;
}

static int64_t next(int64_t length)
{
    return length < 64 ? 1 : length / 16;
}

/* For fewer rows than groups, and mean lengths of the groups up to the line's,
   each one or a sixteenth apart: of 1,500 others, on each of 12 lines, none
   took another kernel. The totals are multiples of the groups, and one less;
   last come all rows. A route has one kernel for all. */
static int plan_all(struct need *need)
{
    int64_t *rows = qn_api_rows(&need->line);
    const int64_t most = rows ? *rows : 0;
    const int groups =
        qn_api_has_mlp(need->line.kind)   ? need->line.of.mlp.groups
        : need->line.kind == QN_LINE_CAST ? need->line.of.cast.groups
                                          : need->line.of.product.groups;
    int code = QUERN_OK;

    if (need->line.kind == QN_LINE_ROUTE)
        return plan(need, most);
    for (int64_t few = 1; rows && !code && few < groups && few < most;
         few += next(few))
        code = plan(need, few);
    for (int64_t mean = 1; rows && !code && mean * groups < most;
         mean += next(mean)) {
        code = plan(need, mean * groups);
        if (!code && mean * groups + groups - 1 < most)
            code = plan(need, mean * groups + groups - 1);
    }
    return code ? code : plan(need, most);
}

/* A file of winners, as if the architecture were that of its GPU: winners of
   another one do not fit, and the cost model chooses. */
static int plan_tuned(void *user, const char *path, struct qn_tune_file *file)
{
    struct need *need = user;
    struct qn_device *device = &need->device;
    int64_t sms = 0;
    int code = QUERN_OK;

    (void)path;
    snprintf(device->name, sizeof device->name, "%s", file->gpu);
    device->present = 1;
    for (int i = 0; i < file->count && !code; i++) {
        if (file->lines[i].sms == sms)
            continue;
        sms = file->lines[i].sms;
        device->sms = (int)sms;
        code = plan_all(need);
    }
    device->present = 0;
    return code;
}

/* As on the GPUs that the user asked for; one that no row has is small. */
static int plan_machines(struct need *need, const char *asked)
{
    struct qn_device chip, own = {.shared_bytes = 101376, .sms = 64};
    int number, found = 0, code = QUERN_OK;

    if (sscanf(asked, "sm_%d", &number) != 1)
        return QUERN_OK;
    for (int i = 0; !code && qn_chip(i, &chip); i++) {
        if (chip.major * 10 + chip.minor != number)
            continue;
        need->device = chip; /* the last one stays for the winners */
        code = plan_all(need);
        found = 1;
    }
    if (!found) {
        own.major = number / 10;
        own.minor = number % 10;
        qn_chip_complete(&own);
        need->device = own;
        code = plan_all(need);
    }
    return code ? code : qn_tune_store_each(need->ctx, plan_tuned, need);
}

int qn_need_mark(const struct qn_options *opt, struct quern_context *ctx,
                 const struct qn_archs *archs, const char *text,
                 unsigned char *marks)
{
    struct need need = {.ctx = ctx, .marks = marks};
    int code = qn_api_line(ctx, text, &need.line), any = 0;

    for (int i = 0; i < archs->count && !code; i++) {
        if (!archs->at[i].code)
            continue;
        need.served = 0;
        code = plan_machines(&need, archs->at[i].asked);
        any |= need.served;
        if (!code && !need.served && !opt->json)
            fprintf(stderr, "quern %s: %s: %s: %s\n", opt->command,
                    archs->at[i].asked, text, quern_errmsg());
    }
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    return any ? QN_EXIT_OK
               : qn_message_fail(opt, QN_EXIT_USAGE,
                                 "no architecture of --arch serves '%s'%s%s",
                                 text, opt->json ? ": " : "",
                                 opt->json ? quern_errmsg() : "");
}
