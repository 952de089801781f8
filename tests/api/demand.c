/* SPDX-License-Identifier: Apache-2.0 */
/* demand.c: a run needs the operands that its table says, and no other. */
#include "api.h"
#include "api/api_use.h"

enum { ROWS = 40, FEATURES = 64 };

/* Parts of one tensor go together: without the values there are no scales, and
   no copies of weights are made. */
static void drop(struct api_run *run, const struct quern_operand *o)
{
    const size_t length = strlen(o->name);
    const int making = run->args.phase == QUERN_PHASE_WEIGHTS;

    for (int i = 0; i < run->count; i++) {
        const char *name = run->table[i].name;

        if (strncmp(name, o->name, length) ||
            !strchr(making ? "._" : ".", name[length]))
            continue;
        run->args.of[run->table[i].arg].data = NULL;
        run->args.of[run->table[i].arg].pointers = NULL;
    }
}

/* An operand of a tensor that this phase may do without: its scales are needed
   if it is there. */
static int is_needed(const struct api_run *run, const struct quern_operand *o,
                     int phase)
{
    const int bit = 1 << phase;

    if (!((o->read | o->written) & bit) || !run->bytes[o->arg])
        return 0;
    return !(o->optional & bit) || strchr(o->name, '.');
}

static void try_drop(struct api_run *run, const struct quern_operand *o,
                     int phase)
{
    const struct quern_args all = run->args;
    const int needed = is_needed(run, o, phase);
    const uint64_t before = needed ? api_run_digest(run) : 0;
    int code;

    drop(run, o);
    code = quern_run(run->plan, &run->args, NULL);
    if (code != (needed ? QUERN_EINVAL : QUERN_OK))
        fail_msg("%s, phase %d: without %s, which is %s: %d, %s", run->text,
                 phase, o->name, needed ? "needed" : "not", code,
                 quern_errmsg());
    if (needed && strncmp(quern_errmsg(), o->name, strlen(o->name)))
        fail_msg("%s: without %s: %s", run->text, o->name, quern_errmsg());
    if (needed && api_run_digest(run) != before)
        fail_msg("%s: without %s something is written", run->text, o->name);
    run->args = all;
}

static int has_phase(const struct api_run *run, int phase)
{
    return qn_api_phases(&run->plan->line) >> phase & 1;
}

/* Backward with the gradients of the weights needs what these need, too. */
static void leave_gradients(struct api_run *run, const struct quern_args *all,
                            int leave)
{
    const struct quern_buffer none = {NULL, NULL, 0, 0, 0};

    for (int arg = QUERN_ARG_DW1; arg <= QUERN_ARG_DW2; arg++)
        run->args.of[arg] = leave ? none : all->of[arg];
}

static void drops_each(struct api_run *run)
{
    const struct quern_args all = run->args;

    for (int phase = 0; phase < QUERN_PHASES; phase++) {
        if (!has_phase(run, phase))
            continue;
        run->args = all;
        run->args.phase = phase;
        leave_gradients(run, &all, phase == QUERN_PHASE_BACKWARD);
        test_expect(quern_run(run->plan, &run->args, NULL), QUERN_OK, "");
        for (int i = 0; i < run->count; i++)
            if (run->table[i].arg > QUERN_ARG_ENDS)
                try_drop(run, &run->table[i], phase);
    }
    run->args = all;
}

/* A run makes at least something. */
static int is_last(const struct api_run *run, const struct quern_operand *o)
{
    return run->plan->line.kind == QN_LINE_CAST
               ? o->arg == QUERN_ARG_ROWWISE
               : run->args.phase == QUERN_PHASE_WGRAD &&
                     o->arg == QUERN_ARG_DW1;
}

/* Nothing but what is needed. */
static void runs_with_least(struct api_run *run)
{
    const struct quern_args all = run->args;

    for (int phase = 0; phase < QUERN_PHASES; phase++) {
        if (!has_phase(run, phase))
            continue;
        run->args = all;
        run->args.phase = phase;
        for (int i = 0; i < run->count; i++) {
            const struct quern_operand *o = &run->table[i];
            const int used = (o->read | o->written) & 1 << phase;

            if (o->arg > QUERN_ARG_ENDS && !strchr(o->name, '.') &&
                !is_last(run, o) && (!used || o->optional & used))
                drop(run, o);
        }
        if (quern_run(run->plan, &run->args, NULL))
            fail_msg("%s, phase %d, with the least: %s", run->text, phase,
                     quern_errmsg());
    }
    run->args = all;
}

TEST(needs_what_it_says)
{
    struct quern_context *ctx = api_open();
    struct api_line line = {.index = 0};

    (void)state;
    while (api_line_next(ctx, API_GROUPS, ROWS, FEATURES, &line)) {
        struct api_run run;

        api_run_open(&run, ctx, line.text);
        api_run_usual(&run);
        drops_each(&run);
        runs_with_least(&run);
        api_run_guarded(&run);
        api_run_close(&run);
    }
    api_line_enough(&line);
    quern_close(ctx);
}

/* ------------------------------------------------------------ what is written
** Hashes of the operands before a phase.
*/
static void hash(const struct api_run *run, uint64_t hashes[QUERN_ARGS_COUNT])
{
    for (int i = 0; i < run->count; i++) {
        const int arg = run->table[i].arg;

        hashes[arg] = 14695981039346656037u;
        for (size_t j = 0; run->memory[arg] && j < run->bytes[arg]; j++)
            hashes[arg] = (hashes[arg] ^ run->memory[arg][j]) * 1099511628211u;
    }
}

static void judge(const struct api_run *run, const struct quern_operand *o,
                  int changed)
{
    const int bit = 1 << run->args.phase;
    const int scratch =
        o->arg == QUERN_ARG_WORKSPACE || o->arg == QUERN_ARG_SAVED ||
        o->arg == QUERN_ARG_PENDING || o->arg == QUERN_ARG_SCALE ||
        o->arg == QUERN_ARG_HISTORY || o->arg == QUERN_ARG_ERRORS;

    const struct quern_buffer *b = &run->args.of[o->arg];
    const int may = b->data || b->pointers ? o->written & bit : 0;

    if (changed && !may)
        fail_msg("%s, phase %d: %s is written", run->text, run->args.phase,
                 o->name);
    if (!changed && may && !scratch && run->bytes[o->arg])
        fail_msg("%s, phase %d: %s is not written", run->text, run->args.phase,
                 o->name);
    for (size_t i = 0; i < o->zero_bytes; i++)
        if (run->memory[o->arg][i])
            fail_msg("%s, phase %d: byte %zu of %s is not zero any more",
                     run->text, run->args.phase, i, o->name);
}

TEST(writes_what_it_says)
{
    static const int order[] = {QUERN_PHASE_WEIGHTS, QUERN_PHASE_FORWARD,
                                QUERN_PHASE_BACKWARD, QUERN_PHASE_WGRAD};
    uint64_t before[QUERN_ARGS_COUNT], after[QUERN_ARGS_COUNT];
    struct quern_context *ctx = api_open();
    struct api_line line = {.index = 0};

    (void)state;
    while (api_line_next(ctx, API_GROUPS, ROWS, FEATURES, &line)) {
        struct api_run run;

        api_run_open(&run, ctx, line.text);
        api_run_usual(&run);
        const struct quern_args all = run.args;
        for (int i = 0; i < QUERN_PHASES; i++) {
            if (!has_phase(&run, order[i]))
                continue;
            run.args.phase = order[i];
            leave_gradients(&run, &all, order[i] == QUERN_PHASE_BACKWARD);
            hash(&run, before);
            test_expect(quern_run(run.plan, &run.args, NULL), QUERN_OK, "");
            hash(&run, after);
            for (int j = 0; j < run.count; j++)
                judge(&run, &run.table[j],
                      before[run.table[j].arg] != after[run.table[j].arg]);
        }
        api_run_close(&run);
    }
    api_line_enough(&line);
    quern_close(ctx);
}
