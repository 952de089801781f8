/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_launches.c: every launch of many problems, and what qn_why says of
** them, against golden files.
**
** The kernels are the real ones with cubins that only the fake driver takes;
** plans, parameters and workspaces are what a GPU would get. A difference is a
** change of what users run: if it is meant, make golden. $QUERN_LOG_WHOLE names
** a file for all launches with all of their parameters.
*/
#define _GNU_SOURCE
#include "devices.h"
#include "golden.h"
#include "lines.h"
#include "log.h"
#include "play.h"

#include <sha2.h>
#include <stdlib.h>

enum { QUEUE = 64 };

static void read_word(struct play *play, const char *word)
{
    struct how *how = &play->how;

    how->offsets |= !strcmp(word, "offsets");
    how->gaps |= !strcmp(word, "gaps");
    how->i64 |= !strcmp(word, "i64");
    how->fewer |= !strcmp(word, "fewer");
    how->strides |= !strcmp(word, "strides");
    how->noop |= !strcmp(word, "noop");
    if (!strncmp(word, "queue=", 6))
        how->queue = atoi(word + 6);
    if (!strncmp(word, "sms=", 4))
        how->sms = atoi(word + 4);
    for (int i = 1; i < DEVICES; i++)
        if (!strcmp(word, device_word(i)))
            how->device = i;
}

/* Take the words off the line, with `recipe` for its R. */
static void read_line(struct play *play, const char *line, const char *recipe)
{
    const char *name = recipe ? strstr(line, " R ") : NULL;
    char words[64] = "", *bar, *rest = words, *word;

    if (name)
        snprintf(play->line, sizeof play->line, "%.*s %s %s",
                 (int)(name - line), line, recipe, name + strlen(" R "));
    else
        snprintf(play->line, sizeof play->line, "%s", line);
    fprintf(play->log, "\n%s\n", play->line);
    fprintf(play->why, "\n== %s\n", play->line);
    bar = strchr(play->line, '|');
    if (bar) {
        snprintf(words, sizeof words, "%s", bar + 1);
        *bar = 0;
    }
    while ((word = strsep(&rest, " ")))
        read_word(play, word);
    play->ctx = device_use(play->how.device);
    play->options = (struct qn_plan_options){.backend = QUERN_BACKEND_AOT,
                                             .sms = play->how.sms};
}

/* ----------------------------------------------------------------- operands */

void *play_region(struct play *play, const char *name, size_t bytes)
{
    return log_region(name, play->part, bytes);
}

/* An axis along which the groups bad_size, or that of a columnwise tensor. */
static void halve(int64_t *length, int64_t total, int groups)
{
    const int64_t part = 128, padding = (part - 1) * groups;
    const int64_t padded = (total + padding) / part * part;

    if (*length == padded)
        *length = (total / 2 + padding) / part * part;
    else if (*length == total)
        *length = total / 2;
}

/* The product's total is no other axis' length. */
void play_tensor(struct play *play, const char *name, struct qn_tensor *t,
                 int pointers, int64_t total, int groups)
{
    char of[32];

    if (!t->ndim)
        return;
    for (int i = 0; play->how.fewer && i < t->ndim; i++)
        halve(&t->shape[i], total, groups);
    if (play->how.strides && !t->sf_bytes) {
        t->stride = t->shape[t->ndim - 1] + 64;
        t->bytes = 8 * (size_t)t->stride;
        for (int i = 0; i + 1 < t->ndim; i++)
            t->bytes *= (size_t)t->shape[i];
    }
    snprintf(of, sizeof of, "%s.%s", name, "pointers");
    if (pointers)
        t->pointers = play_region(play, of, (size_t)groups * sizeof(void *));
    else
        t->data = play_region(play, name, t->bytes);
    snprintf(of, sizeof of, "%s.sf", name);
    t->sf = t->sf_bytes ? play_region(play, of, t->sf_bytes) : NULL;
    snprintf(of, sizeof of, "%s.global", name);
    t->global = t->global_bytes ? play_region(play, of, t->global_bytes) : NULL;
}

struct sizes {
    const void **lengths, **offsets;
    int *type;
    const int64_t **host;
};

static void give_sizes(struct play *play, const struct sizes *s, int groups,
                       int64_t total, int on_host)
{
    static int64_t lengths[QUERN_MAX_GROUPS];
    const size_t bytes = ((size_t)groups + 1) * sizeof(int64_t);
    const struct how *how = &play->how;

    *s->type = how->i64 ? QUERN_I64 : QUERN_I32;
    if (on_host) {
        for (int i = 0; i < groups; i++)
            lengths[i] = total / groups / 2 + i % 3;
        *s->host = lengths;
        return;
    }
    if (!how->offsets)
        *s->lengths = play_region(play, "lengths", bytes);
    if (how->offsets || how->gaps)
        *s->offsets = play_region(play, "offsets", bytes);
}

float *play_floats(struct play *play, const char *name, int wanted,
                   int64_t count)
{
    return wanted ? play_region(play, name, (size_t)count * sizeof(float))
                  : NULL;
}

/* Keys of a product that descriptions do not state. */
static void give_more(struct play *play, const struct qn_problem *p,
                      const struct qn_description *need, struct qn_args *args)
{
    const int64_t columns = 2 * p->n * p->groups;

    args->bias = play_floats(play, "bias", p->bias, columns);
    args->probability = play_floats(play, "probability", p->probability, p->m);
    args->dbias = play_floats(play, "dbias", p->dbias, columns);
    args->dprob = play_floats(play, "dprob", p->dprob, p->m);
    args->scatter =
        p->scatter ? play_region(play, "scatter", (size_t)p->m * sizeof(int))
                   : NULL;
    args->gather = p->gather
                       ? play_region(play, "gather", (size_t)p->m * sizeof(int))
                       : NULL;
    args->alpha = play_floats(play, "alpha", p->alpha, 1);
    args->beta = play_floats(play, "beta", p->beta == QUERN_BETA_ANY, 1);
    args->scale = play_floats(play, "scale", need->history, 2);
    args->history = play_floats(play, "history", need->history, need->history);
    args->random = need->random ? play_region(play, "random", 16) : NULL;
    args->noop = play->how.noop ? play_region(play, "noop", 4) : NULL;
    args->workspace = play_region(play, "workspace", need->workspace_bytes);
}

static void give_product(struct play *play, const struct qn_problem *p,
                         const struct qn_description *need,
                         struct qn_args *args)
{
    const int64_t total = p->ragged == QUERN_AXIS_N   ? p->n
                          : p->ragged == QUERN_AXIS_K ? p->k
                                                      : p->m;
    struct qn_tensor *of = p->ragged == QUERN_AXIS_N ? &args->b
                           : p->gather               ? &args->d
                                                     : &args->a;
    const int major = of == &args->b ? p->b_major : p->a_major;
    const int is_last = (p->ragged == QUERN_AXIS_K) == (major == QUERN_MAJOR_K);
    const struct sizes sizes = {is_last ? &of->last_dims : &of->first_dims,
                                &of->offsets, &of->sizes_type,
                                &args->host_sizes};
    const int part = play->part, bits = p->pointers;

    *args = need->args;
    play_tensor(play, "a", &args->a, bits & QUERN_POINTERS_A, total, p->groups);
    play_tensor(play, "b", &args->b, bits & QUERN_POINTERS_B, total, p->groups);
    play_tensor(play, "in", &args->in, 0, total, p->groups);
    play_tensor(play, "column", &args->column, 0, total, p->groups);
    if (p->ragged != QUERN_AXIS_NONE)
        give_sizes(play, &sizes, p->groups, total, p->sizes);
    play->part = 0; /* products of a queue add to one D */
    play_tensor(play, "c", &args->c, bits & QUERN_POINTERS_C, total, p->groups);
    play_tensor(play, "d", &args->d, bits & QUERN_POINTERS_D, total, p->groups);
    play->part = part;
    play_tensor(play, "p", &args->p, 0, total, p->groups);
    play_tensor(play, "t", &args->t, 0, total, p->groups);
    give_more(play, p, need, args);
}

/* -------------------------------------------------------------------- plays */

/* A call's end; 1 if it failed, which is logged. */
int play_failed(struct play *play, const char *call, int code)
{
    static const char *const names[] = {
#define NAME(name, value, meaning) [value] = #name,
        QUERN_ERRORS(NAME)
#undef NAME
    };

    if (!code)
        return 0;
    fprintf(play->log, "  %s: %s\n", call, names[code]);
    if (getenv("QUERN_LOG_WHOLE"))
        fprintf(play->log, "    %s\n", quern_errmsg());
    return 1;
}

/* Without the numbers of specs' lines, so that a comment can be edited. */
static char *without_numbers(char *text)
{
    static const char before[] = ".lua:";
    char *end = text;

    for (char *at = text; *at;) {
        *end++ = *at++;
        if (end - text >= 5 && !memcmp(end - 5, before, 5))
            at += strspn(at, "0123456789");
    }
    *end = 0;
    return text;
}

/* The text of qn_why: for a short line its hash. */
void play_explain(struct play *play, int code, char **said)
{
    char *text = code ? NULL : without_numbers(*said);
    char hash[SHA256_DIGEST_STRING_LENGTH];

    if (code) {
        fprintf(play->why, "%s\n", quern_errmsg());
    } else if (play->is_short) {
        SHA256Data((const uint8_t *)text, strlen(text), hash);
        fprintf(play->why, "%.8s\n", hash);
    } else {
        fputs(text, play->why);
    }
    quern_free(text);
}

struct quern_queue *play_queue(struct play *play)
{
    struct quern_queue *queue;

    assert_int_equal(quern_queue_create(play->ctx, QUEUE, &queue), QUERN_OK);
    return queue;
}

void play_flush(struct play *play, struct quern_queue *queue)
{
    if (quern_queue_count(queue, QUERN_ALL_LAYERS))
        play_failed(play, "flush",
                    quern_queue_flush(queue, QUERN_ALL_LAYERS, 0, NULL));
    quern_queue_destroy(queue);
}

/* The first of a queue's products may overwrite; all of these are alike. */
static void run_product(struct play *play, const struct qn_problem *p,
                        const struct qn_description *need,
                        const struct qn_plan *plan)
{
    struct quern_queue *queue;
    struct qn_args args;

    if (!play->how.queue) {
        give_product(play, p, need, &args);
        play_failed(play, "run", qn_run(plan, &args, NULL));
        return;
    }
    queue = play_queue(play);
    for (; play->part < play->how.queue; play->part++) {
        struct qn_args next;

        give_product(play, p, need, &next);
        if (play->part)
            next.c = args.c, next.d = args.d;
        args = next;
        play_failed(play, "put", qn_queue_put(queue, plan, &args, 0));
    }
    play_flush(play, queue);
}

static void play_product(struct play *play)
{
    struct qn_description need;
    struct qn_problem p;
    struct qn_plan *plan;
    struct quern_plan_info info;
    char *why = NULL;

    if (play_failed(play, "parse",
                    qn_problem_parse(play->ctx, play->line, &p)) ||
        play_failed(play, "describe",
                    qn_problem_describe(play->ctx, &p, &need)))
        return;
    play_explain(play, qn_why(play->ctx, &p, &play->options, NULL, &why), &why);
    if (play_failed(play, "plan",
                    qn_plan(play->ctx, &p, &play->options, &plan)))
        return;
    qn_plan_info(plan, &info);
    fprintf(play->log, "  workspace %zu of %zu, microbatches %d\n",
            info.workspace_bytes, need.workspace_bytes, info.microbatches);
    run_product(play, &p, &need, plan);
    qn_plan_free(plan);
}

static void give_cast(struct play *play, const struct qn_quantization *q,
                      const struct qn_quantize_description *need,
                      struct qn_quantize_args *args)
{
    const struct sizes sizes = {&args->first_dims, &args->offsets,
                                &args->sizes_type, &args->host_sizes};
    const int64_t columns = q->k * q->groups;
    const int delayed = need->history && q->work != QUERN_DEQUANTIZE;
    const int part = play->part;

    *args = need->args;
    play_tensor(play, "in", &args->in, 0, q->m, q->groups);
    play_tensor(play, "saved", &args->saved, 0, q->m, q->groups);
    play_tensor(play, "row", &args->row, 0, q->m, q->groups);
    play_tensor(play, "column", &args->column, 0, q->m, q->groups);
    play_tensor(play, "out", &args->out, 0, q->m, q->groups);
    if (q->of != QN_W && q->work != QUERN_RESCALE)
        give_sizes(play, &sizes, q->groups, q->m, q->sizes);
    args->probability = play_floats(play, "probability", q->probability, q->m);
    args->bias = play_floats(
        play, "bias", q->work == QUERN_BIAS || (q->dprob && !q->activation),
        columns);
    play->part = 0;
    args->dbias = play_floats(play, "dbias", q->dbias, columns);
    play->part = part;
    args->dprob = play_floats(play, "dprob", q->dprob, q->m);
    args->scale = play_floats(play, "scale", delayed, 2);
    args->history = play_floats(play, "history", delayed, need->history);
    args->random = need->random ? play_region(play, "random", 16) : NULL;
    args->noop = play->how.noop ? play_region(play, "noop", 4) : NULL;
    args->workspace = play_region(play, "workspace", need->workspace_bytes);
}

static void run_cast(struct play *play, const struct qn_quantization *q,
                     const struct qn_quantize_description *need,
                     const struct qn_quantize_plan *plan)
{
    struct qn_quantize_args args;
    struct quern_queue *queue;
    float *dbias = NULL;

    if (!play->how.queue) {
        give_cast(play, q, need, &args);
        play_failed(play, "run", qn_quantize_run(plan, &args, NULL));
        return;
    }
    queue = play_queue(play);
    for (; play->part < play->how.queue; play->part++) {
        give_cast(play, q, need, &args);
        args.row.data = NULL;
        dbias = args.dbias = dbias ? dbias : args.dbias;
        play_failed(play, "put", qn_queue_put_dbias(queue, plan, &args, 0));
    }
    play_flush(play, queue);
}

static void play_cast(struct play *play)
{
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct qn_quantization q;
    char *why = NULL;

    if (play_failed(play, "parse",
                    qn_quantize_parse(play->ctx, play->line, &q)) ||
        play_failed(play, "describe", qn_quantize_needs(play->ctx, &q, &need)))
        return;
    play_explain(play, qn_quantize_why(play->ctx, &q, &play->options, &why),
                 &why);
    if (play_failed(play, "plan",
                    qn_quantize_plan(play->ctx, &q, &play->options, &plan)))
        return;
    fprintf(play->log, "  workspace %zu\n", need.workspace_bytes);
    run_cast(play, &q, &need, plan);
    qn_quantize_plan_free(plan);
}

void play_mlp_args(struct play *play, const struct qn_mlp *mlp,
                   const struct qn_mlp_description *need,
                   struct qn_mlp_args *args)
{
    const struct sizes sizes = {&args->first_dims, &args->offsets,
                                &args->sizes_type, &args->host_sizes};
    const int64_t wide = 2 * mlp->groups * (mlp->ffn + mlp->hidden);
    const size_t tensors = QUERN_MLP_TENSORS;
    const int grad = !mlp->forward_only;

#define GIVE_BY(word, field)                                                   \
    play_tensor(play, #field, &args->field, mlp->pointers &(word), mlp->m,     \
                mlp->groups)
#define GIVE(field) GIVE_BY(0, field)
    *args = need->args;
    if (play->how.fewer)
        args->rows = mlp->m / 2;
    GIVE(x), GIVE(y), GIVE(dy), GIVE(dx);
    GIVE(w1_row), GIVE(w1_column), GIVE(w2_row), GIVE(w2_column);
    GIVE_BY(QUERN_MLP_W, w1), GIVE_BY(QUERN_MLP_W, w2);
    GIVE_BY(QUERN_MLP_DW, dw1), GIVE_BY(QUERN_MLP_DW, dw2);
#undef GIVE
#undef GIVE_BY
    give_sizes(play, &sizes, mlp->groups, mlp->m, mlp->sizes);
    args->probability =
        play_floats(play, "probability", mlp->probability, mlp->m);
    args->dprob = play_floats(play, "dprob", grad && mlp->probability, mlp->m);
    args->b1 = play_floats(play, "b1", mlp->bias, wide);
    args->b2 = play_floats(play, "b2", mlp->bias, wide);
    args->db1 = play_floats(play, "db1", grad && mlp->bias, wide);
    args->db2 = play_floats(play, "db2", grad && mlp->bias, wide);
    args->scale = play_floats(play, "scale", need->history, 2 * tensors);
    args->history = play_floats(play, "history", need->history,
                                (int64_t)tensors * need->history);
    args->random =
        need->random ? play_region(play, "random", 16 * tensors) : NULL;
    if (need->saved_bytes)
        args->saved = play_region(play, "saved", need->saved_bytes);
    if (need->pending_bytes)
        args->pending = play_region(play, "pending", need->pending_bytes);
    args->workspace = play_region(play, "workspace", need->workspace_bytes);
}

/* Weights that backward makes, or later, or by a queue. */
static void run_mlp(struct play *play, const struct qn_mlp *mlp,
                    const struct qn_mlp_description *need,
                    const struct qn_mlp_plan *plan)
{
    struct qn_mlp_args args, without;
    struct quern_queue *queue;

    play_mlp_args(play, mlp, need, &args);
    without = args;
    without.dw1 = without.dw2 = (struct qn_tensor){.data = NULL};
    fprintf(play->log, "  - weights\n");
    play_failed(play, "weights",
                qn_mlp_run(plan, &args, QUERN_PHASE_WEIGHTS, NULL));
    fprintf(play->log, "  - forward\n");
    play_failed(play, "forward",
                qn_mlp_run(plan, &args, QUERN_PHASE_FORWARD, NULL));
    if (mlp->forward_only)
        return;
    fprintf(play->log, "  - backward with wgrad\n");
    play_failed(play, "backward",
                qn_mlp_run(plan, &args, QUERN_PHASE_BACKWARD, NULL));
    fprintf(play->log, "  - backward, then wgrad\n");
    play_failed(play, "backward",
                qn_mlp_run(plan, &without, QUERN_PHASE_BACKWARD, NULL));
    play_failed(play, "wgrad",
                qn_mlp_run(plan, &args, QUERN_PHASE_WGRAD, NULL));
    if (!play->how.queue)
        return;
    fprintf(play->log, "  - put and flush\n");
    queue = play_queue(play);
    for (; play->part < play->how.queue; play->part++) {
        const struct qn_mlp_args first = args;

        if (play->part)
            play_mlp_args(play, mlp, need, &args);
        args.dw1 = first.dw1, args.dw2 = first.dw2;
        play_failed(play, "put", qn_mlp_put(plan, &args, queue, 0));
    }
    play_flush(play, queue);
}

static void play_mlp(struct play *play)
{
    struct qn_mlp_description need;
    struct qn_mlp_plan *plan;
    struct qn_mlp mlp;
    char *why = NULL;

    if (play_failed(play, "parse", qn_mlp_parse(play->ctx, play->line, &mlp)) ||
        play_failed(play, "describe", qn_mlp_needs(play->ctx, &mlp, &need)))
        return;
    play_explain(play, qn_mlp_why(play->ctx, &mlp, &play->options, &why), &why);
    if (play_failed(play, "plan",
                    qn_mlp_plan(play->ctx, &mlp, &play->options, &plan)))
        return;
    fprintf(play->log, "  workspace %zu, saved %zu, pending %zu\n",
            need.workspace_bytes, need.saved_bytes, need.pending_bytes);
    run_mlp(play, &mlp, &need, plan);
    qn_mlp_plan_free(plan);
}

static void play(const char *line, const char *recipe, int is_short, FILE *log,
                 FILE *why)
{
    static const char *const casts[] = {"quantize ", "transpose ",
                                        "dequantize ", "rescale ", "bias "};
    struct play play = {.log = log, .why = why, .is_short = is_short};
    int cast = 0;

    read_line(&play, line, recipe);
    for (size_t i = 0; i < sizeof casts / sizeof casts[0]; i++)
        cast |= !strncmp(line, casts[i], strlen(casts[i]));
    log_begin(device_registry(), log, is_short && !getenv("QUERN_LOG_WHOLE"));
    if (cast)
        play_cast(&play);
    else if (!strncmp(line, "mlp ", 4))
        play_mlp(&play);
    else if (!strncmp(line, "moe ", 4))
        play_moe(&play);
    else
        play_product(&play);
    log_end();
    log_forget();
}

/* --------------------------------------------------------------------- test */

TEST(launches_as_accepted)
{
    const struct quern_registry *registry = &qn_registry_builtin;
    const char *whole = getenv("QUERN_LOG_WHOLE");
    size_t log_bytes, why_bytes;
    char *log_text, *why_text;
    FILE *log = open_memstream(&log_text, &log_bytes);
    FILE *why = open_memstream(&why_text, &why_bytes);
    int different = 0;

    for (int i = 0; launch_lines[i]; i++)
        play(launch_lines[i], NULL, 0, log, why);
    for (int i = 0; launch_patterns[i]; i++)
        for (int r = 0; r < registry->nrecipes; r++)
            play(launch_patterns[i], registry->recipes[r].name, 1, log, why);
    assert_int_equal(fclose(log) | fclose(why), 0);
    if (whole) {
        golden_write(whole, log_text);
    } else {
        different = golden_check("launches.txt", log_text);
        different |= golden_check("why.txt", why_text);
    }
    free(log_text);
    free(why_text);
    if (different)
        fail_msg("launches differ from the golden ones; if that is meant: make "
                 "golden, and read the difference");
}

TEST_MAIN("launches", device_set_up, device_tear_down)
