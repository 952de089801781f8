/* SPDX-License-Identifier: Apache-2.0 */
/* check.c: the records of runs about group sizes that break a rule. */
#include "device/check.h"
#include "base/error.h"
#include "device/driver.h"
#include "internal.h"

#include <stdio.h>
#include <string.h>

/* The error record of registry.h. */
struct record {
    uint32_t code, group, low, high, part, unused;
    uint32_t pair, no_row; /* an index, the complement of its place; or 0 */
};

/* The array entries that the offending value may be. COUPLED: errors */
static void name_entry(const struct qn_tensor *sizes, int code, unsigned group,
                       char *text, size_t size)
{
    const int lengths = sizes->first_dims || sizes->last_dims;
    const int ends = (sizes->sizes_type & QN_SIZES_ENDS) != 0;
    const char *starts = ends ? "ends" : "starts";
    const unsigned next = group + !ends;
    enum { NEGATIVE = 1, PAST_END, OVERLAP };

    if (!lengths && !sizes->offsets)
        snprintf(text, size, "host_sizes[%u]", group);
    else if (ends && group == 0)
        snprintf(text, size, "ends[0]");
    else if (code == OVERLAP)
        snprintf(text, size, "%s[%u]", starts, next - 1);
    else if (!lengths)
        snprintf(text, size, "%s[%u] - %s[%u]%s%s", starts, next, starts,
                 next - 1, code == NEGATIVE ? " or " : "",
                 code == NEGATIVE ? "the latter" : "");
    else if (sizes->offsets)
        snprintf(text, size, "lengths[%u] or starts[%u]", group, group);
    else
        snprintf(text, size, "lengths[%u]", group);
}

/* One sentence: the entry, its value, the rule. */
static int report(const struct qn_tensor *sizes, const struct record *record)
{
    static const struct {
        unsigned code;
        const char *meaning;
    } errors[] = {
#define ROW(name, value, text) {value, text},
        QN_SIZE_ERRORS(ROW)
#undef ROW
    };
    const char *meaning = "the error record is not one that kernels write";
    char entry[128];

    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == record->code)
            meaning = errors[i].meaning;
    name_entry(sizes, (int)record->code, record->group, entry, sizeof entry);
    qn_error_set(QUERN_ESIZES, "group %u: %s is %lld: %s", record->group, entry,
                 (long long)((uint64_t)record->high << 32 | record->low),
                 meaning);
    if (record->part)
        qn_error_add("  in product %u of a launch that merges several, counted "
                     "from 0",
                     record->part);
    return QUERN_ESIZES;
}

/* Likewise, of a route. */
static int report_index(const struct record *record, int topk, int experts)
{
    return qn_error_set(
        QUERN_ESIZES,
        "token %u, k %u: index is %lld: at most %d is expected, or %d of a "
        "dropped one",
        record->group / (unsigned)topk, record->group % (unsigned)topk,
        (long long)((uint64_t)record->high << 32 | record->low), experts - 1,
        experts);
}

/* Likewise, of rows that a product gathers. */
static int report_row(const struct record *record)
{
    return qn_error_set(QUERN_ESIZES,
                        "gather[%u] is %d: it names none of a's rows, the "
                        "product of zeros stands for it; 0 to tokens * topk - "
                        "1 is expected",
                        ~record->no_row, (int)record->pair);
}

/* Wait, copy the record, and clear it if it holds something. */
static int fetch(struct qn_driver *driver, void *workspace, const char *call,
                 struct cu_stream *stream, struct record *record)
{
    uint64_t address = (uint64_t)(uintptr_t)workspace;
    int code = qn_driver_no_capture(driver, stream, call);

    if (!code)
        code = QN_CU(driver, cuMemcpyDtoHAsync_v2, record, address,
                     sizeof *record, stream);
    if (!code)
        code = QN_CU(driver, cuStreamSynchronize, stream);
    if (!code && (record->code || record->no_row))
        code =
            QN_CU(driver, cuMemsetD8Async, address, 0, sizeof *record, stream);
    return code;
}

/* In the plan's context, for any thread's. */
static int fetch_from_gpu(struct qn_driver *driver, struct cu_context *context,
                          void *workspace, const char *call, void *stream,
                          struct record *record)
{
    struct qn_driver_scope scope;
    int code = qn_driver_enter(driver, context, &scope);

    if (!code)
        code = fetch(driver, workspace, call, stream, record);
    qn_driver_leave(driver, &scope);
    return code;
}

static int take(struct qn_driver *driver, struct cu_context *context,
                void *workspace, const char *call, void *stream,
                struct record *record)
{
    if (driver)
        return fetch_from_gpu(driver, context, workspace, call, stream, record);
    memcpy(record, workspace, sizeof *record);
    if (record->code || record->no_row)
        memset(workspace, 0, sizeof *record);
    return QUERN_OK;
}

int qn_check_record(struct qn_driver *driver, struct cu_context *context,
                    void *workspace, const struct qn_tensor *sizes,
                    const char *call, void *stream)
{
    struct record record = {.code = 0};
    int code = take(driver, context, workspace, call, stream, &record);

    if (!code && record.code)
        return report(sizes, &record);
    return code || !record.no_row ? code : report_row(&record);
}

int qn_check_route(struct qn_driver *driver, struct cu_context *context,
                   void *workspace, int topk, int experts, void *stream)
{
    static const struct qn_tensor lengths = {.first_dims = ""};
    struct record record = {.code = 0};
    int code = take(driver, context, workspace, "quern_check", stream, &record);

    if (code || !record.code)
        return code;
    return record.code == QN_INDEX_ERROR ? report_index(&record, topk, experts)
                                         : report(&lengths, &record);
}
