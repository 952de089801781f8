/* SPDX-License-Identifier: Apache-2.0 */
/* run.c: plans on the host backend, and memory for them between canaries. */
#include "api.h"
#include "api/api_use.h"

#include "base/types.h"
#include "support/case.h"

enum { CANARY = 0xA5, UNSET = 0xFF };

/* --------------------------------------------------------------- numbers */

/* A finite number of the type, of modest size. */
static uint64_t number(int type, uint64_t *seed)
{
    const uint64_t r = qt_random(seed);
    float value = (float)((int)(r & 1023) - 511) / 256;
    uint32_t bits;

    switch (type) {
    case QUERN_BF16:
        return qt_bf16(value);
    case QUERN_F16:
        return qt_f16(value);
    case QUERN_F32:
        memcpy(&bits, &value, sizeof bits);
        return bits;
    case QUERN_E4M3:
        return (r & 0x80) | r % 0x58;
    case QUERN_E5M2:
        return (r & 0x80) | r % 0x40;
    case QUERN_E8M0:
        return 124 + r % 5;
    case QUERN_E2M3:
    case QUERN_E3M2:
        return r & 0x3F;
    default:
        return r;
    }
}

static void fill(const struct quern_operand *o, unsigned char *to, size_t bytes)
{
    const size_t width = (size_t)(qn_type_bits(o->type) + 7) / 8;
    const float one = 1;
    uint64_t seed = (uint64_t)o->arg, n;

    memset(to, UNSET, bytes);
    memset(to, 0, o->zero_bytes);
    if (!o->read || !o->type)
        return;
    for (size_t i = 0; i + width <= bytes; i += width) {
        n = number(o->type, &seed);
        if (o->arg == QUERN_ARG_NOOP || o->arg == QUERN_ARG_HISTORY ||
            o->arg == QUERN_ARG_Y_ADDRESSES ||
            o->arg == QUERN_ARG_DX_ADDRESSES ||
            o->arg ==
                QUERN_ARG_D_ADDRESSES) /* no address: nothing is written */
            n = 0;
        if (o->arg == QUERN_ARG_INDEX) /* the last is a dropped one's */
            n %= API_GROUPS + 1;
        if (o->arg == QUERN_ARG_SCALE)
            memcpy(&n, &one, sizeof one);
        memcpy(to + i, &n, width);
    }
}

/* ------------------------------------------------------------------ memory */

static const struct quern_operand *find_operand(const struct api_run *run,
                                                int arg)
{
    for (int i = 0; i < run->count; i++)
        if (run->table[i].arg == arg)
            return &run->table[i];
    return NULL;
}

static unsigned char *reserve(size_t bytes)
{
    const size_t all = (bytes + 255) / 256 * 256 + 2 * API_GUARD;
    unsigned char *memory = aligned_alloc(256, all);

    assert_non_null(memory);
    memset(memory, CANARY, all);
    return memory + API_GUARD;
}

static void provide(struct api_run *run, const struct quern_operand *o,
                    int64_t rows)
{
    const size_t bytes = (size_t)quern_extent(&o->bytes, rows < 0 ? 0 : rows);
    struct quern_buffer *b = &run->args.of[o->arg];
    const int groups = (int)o->shape[0].base;

    run->memory[o->arg] = reserve(bytes);
    run->bytes[o->arg] = bytes;
    fill(o, run->memory[o->arg], bytes);
    b->data = run->memory[o->arg];
    if (!o->pointers)
        return;
    run->pointers[o->arg] = malloc((size_t)groups * sizeof(void *));
    for (int g = 0; g < groups; g++)
        run->pointers[o->arg][g] =
            run->memory[o->arg] + (size_t)g * bytes / (size_t)groups;
    b->data = NULL;
    b->pointers = run->pointers[o->arg];
}

void api_run_open(struct api_run *run, struct quern_context *ctx,
                  const char *line)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    const struct quern_args args = QUERN_ARGS_INIT;

    memset(run, 0, sizeof *run);
    run->ctx = ctx;
    run->text = line;
    run->args = args;
    options.backend = QUERN_BACKEND_HOST;
    test_expect(quern_plan_create(ctx, line, &options, &run->plan), QUERN_OK,
                "");
    run->table = quern_plan_operands(run->plan, &run->count);
    for (int i = 0; i < run->count; i++)
        if (run->table[i].arg > QUERN_ARG_ENDS)
            provide(run, &run->table[i], run->plan->rows);
}

void api_run_close(struct api_run *run)
{
    for (int i = 0; i < QUERN_ARGS_COUNT; i++) {
        if (run->memory[i])
            free(run->memory[i] - API_GUARD);
        free(run->pointers[i]);
    }
    quern_plan_destroy(run->plan);
}

/* ---------------------------------------------------------------- canaries */

static int is_canary(const unsigned char *at)
{
    for (int i = 0; i < API_GUARD; i++)
        if (at[i] != CANARY)
            return 0;
    return 1;
}

void api_run_guarded(const struct api_run *run)
{
    for (int i = 0; i < QUERN_ARGS_COUNT; i++)
        if (run->memory[i] && (!is_canary(run->memory[i] - API_GUARD) ||
                               !is_canary(run->memory[i] + run->bytes[i])))
            fail_msg("%s: written around %s", run->text, qn_api_name(i));
}

uint64_t api_run_digest(const struct api_run *run)
{
    uint64_t hash = 14695981039346656037u;

    for (int i = 0; i < QUERN_ARGS_COUNT; i++)
        for (size_t j = 0; run->memory[i] && j < run->bytes[i]; j++)
            hash = (hash ^ run->memory[i][j]) * 1099511628211u;
    return hash;
}

/* ------------------------------------------------------------------- sizes */

/* One of an array, if it is given. */
static void put(struct api_run *run, int arg, int index, int64_t value)
{
    const struct quern_buffer *b = &run->args.of[arg];

    if (b->data && b->type == QUERN_I64)
        ((int64_t *)b->data)[index] = value;
    else if (b->data)
        ((int32_t *)b->data)[index] = (int32_t)value;
}

static void give_array(struct api_run *run, int arg, int type)
{
    if (!run->memory[arg])
        run->memory[arg] = reserve(run->bytes[arg] = 8 * (API_GROUPS + 1));
    run->args.of[arg].data = run->memory[arg];
    run->args.of[arg].type = type;
}

void api_run_sizes(struct api_run *run, const int64_t *lengths, int form,
                   int type)
{
    int64_t start = form == API_BOTH ? 1 : 0;

    memset(run->args.of, 0, 3 * sizeof run->args.of[0]);
    if (!find_operand(run, QUERN_ARG_LENGTHS))
        return;
    memcpy(run->host_sizes, lengths, sizeof run->host_sizes);
    if (strstr(run->text, " sizes=")) {
        run->args.host_sizes = run->host_sizes;
        return;
    }
    if (form == API_LENGTHS || form == API_BOTH)
        give_array(run, QUERN_ARG_LENGTHS, type);
    if (form == API_STARTS || form == API_BOTH)
        give_array(run, QUERN_ARG_STARTS, type);
    if (form == API_ENDS)
        give_array(run, QUERN_ARG_ENDS, type);
    for (int g = 0; g <= API_GROUPS; g++) {
        put(run, QUERN_ARG_STARTS, g, start);
        if (g == API_GROUPS)
            break;
        put(run, QUERN_ARG_LENGTHS, g, lengths[g]);
        start += lengths[g];
        put(run, QUERN_ARG_ENDS, g, start);
        start += form == API_BOTH;
    }
}

void api_run_usual(struct api_run *run)
{
    const int64_t lengths[API_GROUPS] = {0, 1, 7, 20};

    api_run_sizes(run, lengths, API_LENGTHS, QUERN_I32);
}

int api_run_phases(const struct api_run *run)
{
    static const int phases[] = {QUERN_PHASE_WEIGHTS, QUERN_PHASE_FORWARD,
                                 QUERN_PHASE_BACKWARD, QUERN_PHASE_WGRAD};
    struct quern_args args = run->args;
    int code = QUERN_OK;

    for (int i = 0; i < QUERN_PHASES && !code; i++) {
        args.phase = phases[i];
        if (qn_api_phases(&run->plan->line) >> phases[i] & 1)
            code = quern_run(run->plan, &args, NULL);
    }
    return code;
}
