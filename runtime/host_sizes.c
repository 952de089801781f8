/*
** host_sizes.c: groups' sizes that the host knows.
*/
#include "host_sizes.h"
#include "types.h"

/* ------------------------------------------------------------------- rules */

size_t qn_host_size_bytes(int sizes, int groups, int count)
{
    size_t bytes = (size_t)groups * (size_t)count * sizeof(int);

    if (sizes == QUERN_SIZES_DEVICE)
        return 0;
    return (bytes + QN_WORKSPACE_BYTES - 1) / QN_WORKSPACE_BYTES *
           QN_WORKSPACE_BYTES;
}

size_t qn_host_size_end(const struct quern_problem *p)
{
    return QN_WORKSPACE_BYTES +
           qn_host_size_bytes(p->sizes, p->groups, p->parts > 1 ? p->parts : 1);
}

int qn_host_size_problem(int sizes, int ragged)
{
    if (sizes < QUERN_SIZES_DEVICE || sizes > QUERN_SIZES_FIXED)
        return qn_error_set(QUERN_EINVAL,
                            "sizes is %d: not one of the values that quern.h "
                            "gives it",
                            sizes);
    if (sizes != QUERN_SIZES_DEVICE && !ragged)
        return qn_error_set(QUERN_EINVAL,
                            "sizes=%s: no axis is ragged, so that groups have "
                            "no sizes",
                            qn_sizes_name(sizes));
    return QUERN_OK;
}

int qn_host_size_word(int sizes)
{
    if (sizes != QUERN_SIZES_DEVICE)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "host_sizes is not NULL: the problem says "
                        "sizes=device; sizes=host takes them");
}

int qn_host_size_check(const int64_t *sizes, int groups, const char *axis,
                       int64_t total)
{
    int64_t left = total;

    if ((uintptr_t)sizes % sizeof *sizes)
        return qn_error_set(QUERN_EINVAL,
                            "host_sizes is %p: it must be a multiple of %zu",
                            (const void *)sizes, sizeof *sizes);
    for (int g = 0; g < groups; g++) {
        if (sizes[g] < 0)
            return qn_error_set(QUERN_EINVAL, "host_sizes[%d] is %lld: %s", g,
                                (long long)sizes[g],
                                "a group's size must not be negative");
        if (sizes[g] > left)
            return qn_error_set(QUERN_EINVAL,
                                "host_sizes[%d] is %lld: the groups pass "
                                "%s=%lld",
                                g, (long long)sizes[g], axis, (long long)total);
        left -= sizes[g];
    }
    return QUERN_OK;
}

int qn_host_size_rows(const int64_t *host, int sizes, int groups, int64_t m,
                      const void *first_dims, const void *offsets)
{
    if (qn_host_size_word(sizes))
        return QUERN_EINVAL;
    if (first_dims || offsets)
        return qn_error_set(QUERN_EINVAL,
                            "%s is not NULL: host_sizes are given, which say "
                            "it all",
                            first_dims ? "first_dims" : "offsets");
    return qn_host_size_check(host, groups, "m", m);
}

int qn_host_size_capture(struct qn_driver *driver, int sizes, void *stream)
{
    int code = sizes == QUERN_SIZES_FIXED
                   ? QUERN_OK
                   : qn_driver_no_capture(driver, stream, "this run");

    if (code == QUERN_ECAPTURE)
        qn_error_set(code, "the stream captures a graph: host_sizes would be "
                           "frozen into the graph; sizes=fixed in the problem "
                           "says that they never change");
    return code;
}

/* -------------------------------------------------------------------- load */

int qn_host_size_load(struct qn_session *session, const char *recipe,
                      int backend, struct qn_step *step)
{
    return qn_step_load(session, QN_SIZES, QUERN_X,
                        "brings sizes from the host", recipe, backend, step);
}

/* --------------------------------------------------------------------- put */

void qn_host_word_begin(struct qn_host_words *words, struct qn_driver *driver,
                        const struct qn_step *step, void *place, void *stream)
{
    words->driver = driver;
    words->step = step;
    words->place = place;
    words->stream = stream;
    words->batch.count = 0;
}

/* One launch of what the words hold. */
static int launch(struct qn_host_words *w)
{
    void *const values[QN_PARAM_COUNT] = {
        [QN_PARAM_host_sizes] = &w->batch, [QN_PARAM_device_sizes] = &w->place};

    return qn_step_launch(w->driver, w->step, values, w->stream);
}

int qn_host_word_flush(struct qn_host_words *w)
{
    int code = w->batch.count ? launch(w) : QUERN_OK;

    w->place += w->batch.count;
    w->batch.count = 0;
    return code;
}

int qn_host_word_put(struct qn_host_words *w, int word)
{
    w->batch.size[w->batch.count++] = word;
    return w->batch.count < QN_HOST_SIZES ? QUERN_OK : qn_host_word_flush(w);
}

int qn_host_size_put(struct qn_driver *driver, const struct qn_step *step,
                     int sizes, const int64_t *const *lists, int count,
                     int groups, void *place, void *stream)
{
    struct qn_host_words words;
    int code = qn_host_size_capture(driver, sizes, stream);

    qn_host_word_begin(&words, driver, step, place, stream);
    for (int i = 0; !code && i < count * groups; i++) {
        const int64_t *list = lists[i / groups];

        code = qn_host_word_put(&words, list ? (int)list[i % groups] : 0);
    }
    return code ? code : qn_host_word_flush(&words);
}
