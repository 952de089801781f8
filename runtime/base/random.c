/* SPDX-License-Identifier: Apache-2.0 */
/* random.c: data that are the same for a seed on every machine. */
#include "base/random.h"
#include "base/element.h"

#include <pthread.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, MAX_WORKERS = 64, SIDE = 128, HALVES = 64 };

uint64_t qn_random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* The sum of four uniform variates, near enough to normal within 3.4. */
static float normal(uint64_t bits)
{
    const uint32_t sum = (uint32_t)(bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                         (bits >> 32 & 0xFFFF) + (uint32_t)(bits >> 48);

    return ((float)sum - 131070.0f) * (1.7320508f / 65536.0f);
}

/* Up to HALVES values of a row, from a multiple of that on. */
struct piece {
    float factor;
    uint64_t halves; /* a bit for each column: half of that */
};

static uint64_t hash_of(uint64_t seed, uint64_t kind, uint64_t x, uint64_t y)
{
    uint64_t state = seed + kind;

    state = qn_random_next(&state) ^ x;
    state = qn_random_next(&state) ^ y;
    return qn_random_next(&state);
}

static struct piece piece_at(uint64_t seed, uint64_t row, uint64_t column)
{
    const uint64_t square = hash_of(seed, 1, row / SIDE, column / SIDE) % 4;
    const uint64_t line = hash_of(seed, 2, row, column / SIDE) % 2;

    return (struct piece){2.0f / (float)(1 << (square + line)),
                          hash_of(seed, 3, row / SIDE, column / HALVES)};
}

static float factor_in(const struct piece *p, uint64_t column)
{
    return p->halves >> column % HALVES & 1 ? p->factor / 2 : p->factor;
}

float qn_random_factor(uint64_t seed, uint64_t row, uint64_t column)
{
    const struct piece p = piece_at(seed, row, column);

    return factor_in(&p, column);
}

struct worker {
    char *data;
    int type;
    size_t count, columns, first, step; /* chunks first, first + step, ... */
    uint64_t seed;
    float scale;
};

/* Elements from `at` on, of one piece of a row at most. Returns where the next
   ones begin. */
static size_t fill_piece(const struct worker *w, size_t at, size_t end,
                         uint64_t *state)
{
    struct piece p = {1, 0};
    size_t column = 0, stop = end;

    if (w->columns) {
        const size_t row = at / w->columns;
        size_t last;

        column = at % w->columns;
        last = column / HALVES * HALVES + HALVES;
        last = last < w->columns ? last : w->columns;
        stop = end - at < last - column ? end : at + last - column;
        p = piece_at(w->seed, row, column);
    }
    for (size_t i = at; i < stop; i++)
        qn_element_store(w->data, w->type, i,
                         normal(qn_random_next(state)) * w->scale *
                             factor_in(&p, column++));
    return stop;
}

/* Each chunk has its own sequence, so that the number of workers is free. */
static void *fill(void *user)
{
    const struct worker *w = user;

    for (size_t at = w->first * CHUNK; at < w->count; at += w->step * CHUNK) {
        uint64_t seed = w->seed ^ (at / CHUNK * UINT64_C(0xD1342543DE82EF95));
        uint64_t state = qn_random_next(&seed);
        const size_t end = w->count - at < CHUNK ? w->count : at + CHUNK;
        for (size_t i = at; i < end;)
            i = fill_piece(w, i, end, &state);
    }
    return NULL;
}

int qn_random_fill(void *data, int type, size_t count, size_t columns,
                   uint64_t seed, float scale)
{
    struct worker workers[MAX_WORKERS];
    pthread_t threads[MAX_WORKERS];
    int started[MAX_WORKERS] = {0};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (!qn_element_known(type))
        return 1;
    cores = cores < 1 ? 1 : cores > MAX_WORKERS ? MAX_WORKERS : cores;
    for (long i = cores - 1; i >= 0; i--) {
        workers[i] = (struct worker){data,      type,          count, columns,
                                     (size_t)i, (size_t)cores, seed,  scale};
        if (i > 0)
            started[i] =
                pthread_create(&threads[i], NULL, fill, &workers[i]) == 0;
        if (!started[i])
            fill(&workers[i]);
    }
    for (long i = 1; i < cores; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
    return 0;
}
