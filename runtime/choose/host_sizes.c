/* SPDX-License-Identifier: Apache-2.0 */
/* host_sizes.c: the launches that load groups' sizes from the host. */
#include "choose/host_sizes.h"
#include "base/error.h"
#include "choose/session.h"
#include "choose/step.h"

/* ------------------------------------------------------------------- rules */

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
    return qn_step_load(session, QN_SIZES, QN_X, "loads sizes from the host",
                        recipe, backend, step);
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

/* One launch for the sizes in the words. */
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
