/* SPDX-License-Identifier: Apache-2.0 */
/*
** trial.c: which kernels are tried on their first use, and the outcomes that
** are known.
**
** An outcome is an entry of the cache, so that the cache's rules hold: other
** users cannot have written it, and a damaged one is none. Its key is a sum
** over the code, the GPU and the driver, and that day, where it counts for one
** only; its object is one line,
**
**     WORD REASON
**
** A context remembers all of them, also without a cache.
*/
#define _GNU_SOURCE
#include "choose/trial.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "base/guess.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/evidence.h"
#include "choose/select.h"
#include "choose/session.h"
#include "choose/tensormap.h"
#include "code/cache.h"
#include "code/entry.h"
#include "code/jit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_FAILED = 4, DAY = 24 * 3600 };

#define ROW(name, word, days) {word, days},
static const struct {
    const char *word;
    int days;
} outcomes[QN_TRIAL_COUNT] = {QN_TRIALS(ROW)};
#undef ROW

/* ------------------------------------------------------------------ context */

int qn_trial_open(struct quern_context *ctx)
{
    struct qn_guess guess = {.word = ctx->trust_wanted};
    char hint[64];

    ctx->trust = QUERN_EVIDENCE_RUN;
    if (!ctx->trust_wanted)
        return QUERN_OK;
    for (int e = QUERN_EVIDENCE_COMPILED; e <= QUERN_EVIDENCE_RUN; e++) {
        ctx->trust = e;
        if (!strcmp(qn_evidence_name(e), ctx->trust_wanted))
            return QUERN_OK;
        qn_guess_try(&guess, qn_evidence_name(e));
    }
    return qn_error_set(
        QUERN_EINVAL,
        "QUERN_TRUST=%s: compiled, interpreted or run is expected%s",
        ctx->trust_wanted, qn_guess_text(&guess, hint, sizeof hint));
}

void qn_trial_close(struct quern_context *ctx)
{
    while (ctx->trials) {
        struct qn_trial_result *result = ctx->trials;

        ctx->trials = result->next;
        free(result);
    }
}

/* Must the kernel be tried before the session's GPU runs it? No for a kernel
   that the options name, and for evidence that QUERN_TRUST trusts. */
static int is_needed(const struct qn_session *s, const struct qn_kernel *kernel)
{
    const int capability = qn_session_capability(s);

    return s->driver && s->device.present && !s->demand.kernel &&
           !qn_evidence_measured(capability) &&
           qn_evidence(kernel, capability) < s->ctx->trust;
}

/* Needs ctx->trying. */
static struct qn_trial_result *recall(const struct qn_session *s,
                                      const struct qn_kernel *kernel)
{
    for (struct qn_trial_result *r = s->ctx->trials; r; r = r->next)
        if (r->kernel == kernel && r->device == s->device.ordinal)
            return r;
    return NULL;
}

/* -------------------------------------------------------------------- cache */

/* One trial: a kernel's code, and where its outcome is kept. */
struct trial {
    struct qn_session *session;
    const struct qn_candidate *candidate;
    const void *code;
    size_t bytes;
    struct qn_cache_object object; /* the code, unless it is linked */
    struct qn_cache *cache;
    char key[QN_KEY_SIZE], today[QN_KEY_SIZE];
};

/* The driver: its version of CUDA, and where the system tells, its own. */
static void print_driver(const struct qn_driver *driver, char *text,
                         size_t size)
{
    const int file =
        open("/proc/driver/nvidia/version", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char own[256] = "";
    const ssize_t got = file < 0 ? -1 : read(file, own, sizeof own - 1);

    if (file >= 0)
        close(file);
    own[got > 0 ? got : 0] = 0;
    own[strcspn(own, "\n")] = 0;
    snprintf(text, size, "%d %s", driver->version, own);
}

/* All that an outcome depends on; with the day, where it counts for one. 0 if
   memory ran out. */
static int make_key(const struct trial *t, long long day, char key[QN_KEY_SIZE])
{
    const struct qn_session *s = t->session;
    char code[QN_KEY_SIZE], driver[300];
    struct qn_text text = {0};
    int whole;

    qn_entry_sum(t->code, t->bytes, code);
    print_driver(s->driver, driver, sizeof driver);
    qn_text_add(&text, "quern trial 1\n%s\n%s\n%s\n%d.%d\n%s\n%lld\n",
                t->candidate->kernel->name, code, s->device.name,
                s->device.major, s->device.minor, driver, day);
    whole = !text.failed;
    if (whole)
        qn_entry_sum(text.data, text.length, key);
    qn_text_free(&text);
    return whole;
}

/* The code: with `make` compiled if need be. QUERN_OK with no code: there is
   none yet. QN_REJECTED and all other errors of qn_jit_object. */
static int begin(struct trial *t, int backend, int make)
{
    const struct qn_kernel *kernel = t->candidate->kernel;
    struct quern_context *ctx = t->session->ctx;
    int found = 1, code = qn_cache_of(ctx, &t->cache);

    t->object.data = NULL;
    if (!code && backend == QUERN_BACKEND_AOT) {
        t->code = kernel->cubin;
        t->bytes = kernel->cubin_bytes;
    } else if (!code) {
        code = make ? qn_jit_object(ctx, t->candidate, &t->object)
                    : qn_jit_look(ctx, t->candidate, &t->object, &found);
        t->code = !code && found ? t->object.data : NULL;
        t->bytes = t->object.bytes;
    }
    if (!code && t->code &&
        (!make_key(t, -1, t->key) ||
         !make_key(t, (long long)time(NULL) / DAY, t->today)))
        code = qn_error_memory();
    return code;
}

/* A line of the cache, which may be anything. 1 if it is an outcome that its
   entry can have. */
static int parse(const char *text, size_t bytes, int days,
                 struct qn_trial_result *result)
{
    char line[256];
    size_t length;

    if (bytes >= sizeof line)
        return 0;
    memcpy(line, text, bytes);
    line[bytes] = 0;
    length = strcspn(line, " \n");
    for (int v = QN_TRIAL_RIGHT; v < QN_TRIAL_COUNT; v++) {
        if (outcomes[v].days != days || strlen(outcomes[v].word) != length ||
            strncmp(outcomes[v].word, line, length) != 0)
            continue;
        result->verdict = v;
        length += line[length] == ' ';
        snprintf(result->reason, sizeof result->reason, "%.*s",
                 (int)strcspn(line + length, "\n"), line + length);
        return 1;
    }
    return 0;
}

/* 1: the cache has an outcome that counts. */
static int load(struct trial *t, struct qn_trial_result *result)
{
    int good = 0;

    for (int days = -1; days <= 1 && !good; days += 2) {
        struct qn_cache_object object;

        if (!qn_cache_load(t->cache, days < 0 ? t->key : t->today, 0, 0,
                           &object))
            continue;
        good = parse(object.data, object.bytes, days, result);
        free(object.data);
    }
    return good;
}

static void keep(struct trial *t, const struct qn_trial_result *result)
{
    const struct qn_kernel *kernel = t->candidate->kernel;
    const char *word = outcomes[result->verdict].word;
    const int days = outcomes[result->verdict].days;
    char text[256], where[96];
    const int bytes =
        snprintf(text, sizeof text, "%s %s\n", word, result->reason);
    const struct qn_cache_item item = {.source = kernel->name,
                                       .log = result->reason,
                                       .object = text,
                                       .bytes = (size_t)bytes,
                                       .kernel = kernel->name,
                                       .arch = kernel->arch,
                                       .compiler = where};

    snprintf(where, sizeof where, "%s on %.70s", word, t->session->device.name);
    if (days)
        qn_cache_store(t->cache, days < 0 ? t->key : t->today, &item);
}

/* --------------------------------------------------------------- one kernel */

/* Other processes wait for the outcome at the key's lock. */
static void try_now(struct trial *t, struct qn_trial_result *result)
{
    const struct qn_kernel *kernel = t->candidate->kernel;
    const int lock = qn_cache_lock(t->cache, t->key);
    double start;

    if (load(t, result)) {
        qn_cache_unlock(lock);
        return;
    }
    start = qn_clock_seconds();
    qn_trial_run(t->session, kernel, t->code, t->bytes, result);
    if (result->verdict == QN_TRIAL_RIGHT)
        qn_context_log(t->session->ctx, QUERN_LOG_INFO,
                       "tried %s on this GPU for the first time: right, in "
                       "%.1f s",
                       kernel->name, qn_clock_seconds() - start);
    keep(t, result);
    qn_cache_unlock(lock);
}

/* The outcome that is known, or with `make` found out. Needs ctx->trying.
   QUERN_OK with NULL: nothing is known. Errors of qn_jit_object. */
static int find(struct qn_session *s, const struct qn_candidate *candidate,
                int backend, int make, struct qn_trial_result **out)
{
    struct trial t = {.session = s, .candidate = candidate};
    struct qn_trial_result *result;
    int code;

    *out = recall(s, candidate->kernel);
    if (*out)
        return QUERN_OK;
    code = begin(&t, backend, make);
    if (code || !t.code)
        return code;
    result = calloc(1, sizeof *result);
    if (!result)
        code = qn_error_memory();
    else if (!load(&t, result) && make)
        try_now(&t, result);
    free(t.object.data);
    if (!result || !result->verdict) {
        free(result);
        return code;
    }
    result->kernel = candidate->kernel;
    result->device = s->device.ordinal;
    result->next = s->ctx->trials;
    s->ctx->trials = *out = result;
    return QUERN_OK;
}

/* The last resort: mma.sync, without tensor maps, of 16-bit values. Codes that
   it takes with their scales are as new as all that is tried here. */
static int is_plain(const struct qn_kernel *kernel)
{
    return !qn_select_takes_codes(kernel) && !qn_tensormap_any(kernel);
}

/* ------------------------------------------------------------------ in line */

static const char *print_fault(const struct qn_trial_result *result, char *text,
                               size_t size)
{
    if (result->verdict == QN_TRIAL_UNABLE)
        snprintf(text, size,
                 "it never ran on such a GPU and cannot be tried here (%s)",
                 result->reason);
    else
        snprintf(text, size, "tried on this GPU, %s: %s",
                 outcomes[result->verdict].word, result->reason);
    return text;
}

static int refuse(struct qn_trial_line *line, struct qn_trial_result *result)
{
    char fault[300];

    line->failed++;
    if (!line->first)
        line->first = result;
    return qn_error_set(
        QN_REJECTED, "%s is not used: %s; QUERN_TRUST=compiled uses it",
        result->kernel->name, print_fault(result, fault, sizeof fault));
}

/* After several failures only mma.sync is tried. */
int qn_trial_next(struct qn_session *s, struct qn_trial_line *line,
                  const struct qn_candidate *candidate, int backend)
{
    const struct qn_kernel *kernel = candidate->kernel;
    struct qn_trial_result *result;
    const int plain = is_plain(kernel);
    int code;

    if (!is_needed(s, kernel))
        return QUERN_OK;
    if (line->failed >= MOST_FAILED && !plain) {
        line->failed++;
        return qn_error_set(QN_REJECTED, "%s is not tried: others failed",
                            kernel->name);
    }
    pthread_mutex_lock(&s->ctx->trying);
    code = find(s, candidate, backend, 1, &result);
    if (!code && result->verdict == QN_TRIAL_UNABLE && plain) {
        if (!line->first)
            line->first = result;
    } else if (!code && result->verdict != QN_TRIAL_RIGHT) {
        if (plain && result->verdict != QN_TRIAL_WRONG && !line->spare)
            line->spare = candidate;
        code = refuse(line, result);
    }
    pthread_mutex_unlock(&s->ctx->trying);
    return code;
}

void qn_trial_tell(const struct qn_session *s, const struct qn_trial_line *line,
                   const struct qn_kernel *serves)
{
    struct qn_trial_result *first = line->first;
    char fault[300];
    int told;

    if (!first)
        return;
    pthread_mutex_lock(&s->ctx->trying);
    told = first->told++;
    pthread_mutex_unlock(&s->ctx->trying);
    if (told)
        return;
    print_fault(first, fault, sizeof fault);
    if (first->kernel == serves)
        qn_context_log(s->ctx, QUERN_LOG_INFO, "%s serves as a last resort: %s",
                       serves->name, fault);
    else
        qn_context_log(s->ctx, QUERN_LOG_INFO,
                       "%s is not used: %s; %s serves instead",
                       first->kernel->name, fault, serves->name);
}

/* ------------------------------------------------------------- explanations */

/* The outcome, NONE where it is not known. */
static int look(struct qn_session *s, const struct qn_candidate *candidate,
                int backend, char *reason, size_t size)
{
    struct qn_trial_result *result = NULL;
    int verdict = QN_TRIAL_NONE;

    pthread_mutex_lock(&s->ctx->trying);
    if (!find(s, candidate, backend, 0, &result) && result) {
        verdict = result->verdict;
        snprintf(reason, size, "%s", result->reason);
    }
    pthread_mutex_unlock(&s->ctx->trying);
    return verdict;
}

/* Why load_best would pass it over, as far as is known; 0: it would not. */
static int is_refused(struct qn_session *s, struct qn_choice *choice,
                      int *verdict)
{
    const struct qn_kernel *kernel = choice->candidate->kernel;
    char reason[200];

    *verdict = QN_TRIAL_NONE;
    if (!choice->fits || !is_needed(s, kernel))
        return 0;
    *verdict =
        look(s, choice->candidate, s->demand.backend, reason, sizeof reason);
    if (*verdict == QN_TRIAL_NONE || *verdict == QN_TRIAL_RIGHT ||
        (*verdict == QN_TRIAL_UNABLE && is_plain(kernel)))
        return 0;
    snprintf(choice->reason, sizeof choice->reason, "tried on this GPU, %s: %s",
             outcomes[*verdict].word, reason);
    return 1;
}

/* They follow all that may be used; the spare comes first if none may. */
void qn_trial_mark(struct qn_session *s, struct qn_choice *list, int count)
{
    int used = 0, spare = -1;

    for (int i = 0; i < count; i++) {
        struct qn_choice choice = list[i];
        int verdict;

        if (!choice.fits)
            break;
        choice.fits = !is_refused(s, &choice, &verdict);
        if (spare < 0 && verdict != QN_TRIAL_WRONG &&
            is_plain(choice.candidate->kernel))
            spare = i;
        list[i] = choice;
    }
    for (int i = 0; i < count; i++) {
        const struct qn_choice choice = list[i];

        if (!choice.fits)
            continue;
        memmove(&list[used + 1], &list[used],
                (size_t)(i - used) * sizeof *list);
        list[used++] = choice;
    }
    if (!used && spare >= 0) {
        const struct qn_choice choice = list[spare];

        memmove(&list[1], &list[0], (size_t)spare * sizeof *list);
        list[0] = choice;
        list[0].fits = 1;
    }
}

/* For a GPU that is not there, the rule. */
static void add_rule(const struct qn_session *s, const struct qn_choice *list,
                     int count, struct qn_text *text)
{
    const int capability = qn_session_capability(s);

    if (count && list[0].fits && !s->demand.kernel &&
        s->demand.backend != QUERN_BACKEND_HOST &&
        !qn_evidence_measured(capability) &&
        qn_evidence(list[0].candidate->kernel, capability) < s->ctx->trust)
        qn_text_add(text,
                    "its first use on such a GPU is tried by a program of "
                    "its own (docs/blackwell.md)\n\n");
}

void qn_trial_why(struct qn_session *s, const struct qn_choice *list, int count,
                  struct qn_text *text)
{
    char reason[200];
    int lines = 0;

    for (int i = 0; i < count; i++) {
        const struct qn_candidate *candidate = list[i].candidate;
        int verdict = QN_TRIAL_NONE;

        if (is_needed(s, candidate->kernel))
            verdict =
                look(s, candidate, s->demand.backend, reason, sizeof reason);
        if (verdict == QN_TRIAL_NONE)
            continue;
        if (!lines++)
            qn_text_add(text, "tried on this GPU\n");
        qn_text_add(text, "  %s: %s%s%s\n", candidate->kernel->name,
                    outcomes[verdict].word, *reason ? ": " : "", reason);
    }
    if (lines)
        qn_text_add(text, "\n");
    else
        add_rule(s, list, count, text);
}
