/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_protocol_runs.c: launches over many group sizes.
**
** Sizes are around those of tiles and steps, where the code decides something.
** All other properties of a launch are drawn from its number, so that it comes
** out the same each time and each kernel meets all of it.
*/
#include "test_protocol.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static char wrong[600]; /* the result of the last run */

static uint64_t random_state;

void twin_draw_from(int number)
{
    random_state = 20240229 + (uint64_t)number;
}

static int draw(int below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (unsigned)below);
}

static int starts_room[MAX_GROUPS];

/* The error of a launch, and the launch; "" if none. */
static const char *check(const struct twin *twin, const struct shape *s)
{
    unsigned int error[4];
    const char *what = twin_launch(twin, s, error);

    if (!*what && !error[0])
        return "";
    snprintf(wrong, sizeof wrong,
             "%s: groups=%d m=%d n=%d k=%d clusters=%d gaps=%d apart=%d "
             "addend=%d seed=%llu: %s (code %u)",
             twin->kernel->name, s->groups, s->m, s->n, s->k, s->clusters,
             s->gaps, s->apart, (int)s->addend, (unsigned long long)s->seed,
             what, error[0]);
    return wrong;
}

/* Whole runs, or the kernel's own rule; rows of D at 16 bytes. */
static int step_of(const struct qn_kernel *kernel)
{
    for (int i = 0; i < kernel->nrules; i++)
        if (!strcmp(kernel->rules[i].text, "n % 256 == 0"))
            return 256;
    return kernel->interleave > 8 ? 2 * kernel->interleave : 16;
}

/* The ragged axis is `length`, the others are two of a few. */
static void set_axes(const struct qn_kernel *kernel, struct shape *s,
                     int length, int x, int y)
{
    static const int m[] = {8, 136, 264, 72}, n[] = {8, 128, 264, 520},
                     k[] = {8, 64, 136, 520};

    s->m = kernel->ragged == QUERN_AXIS_M ? length : m[x % 4];
    s->n = n[(kernel->ragged == QUERN_AXIS_M ? x : y) % 4];
    if (kernel->epilogue == QN_ACTIVATE) {
        const int step = step_of(kernel);
        s->n = (s->n + step - 1) / step * step;
    }
    s->k = kernel->ragged == QUERN_AXIS_K   ? length
           : kernel->ragged == QUERN_AXIS_M ? k[y % 4]
                                            : k[(x + y) % 4];
}

/* Group after group, `tail` rows of no group after them; returns the total. */
static int set_lengths(struct shape *s, const int *lengths, int groups,
                       int tail)
{
    int end = 0;

    for (int g = 0; g < groups; g++) {
        starts_room[g] = end;
        end += lengths[g];
    }
    s->groups = groups;
    s->first_dims = s->lengths = lengths;
    s->sizes_bytes = 4;
    s->starts = starts_room;
    return end + tail;
}

/* All that a launch can vary in besides its sizes. */
static void set_manner(struct shape *s, int i)
{
    const unsigned int mixed = ((unsigned int)i + 1) * 2654435761u >> 16;

    s->seed = (uint64_t)i + 1;
    s->clusters = (int)(1 + mixed % 3);
    s->gaps = mixed / 3 % 2;
    s->apart = mixed / 6 % 2;
    s->addend = (enum addend)(mixed / 12 % C_KINDS);
}

static const int LENGTHS[] = {0,   1,   7,   63,  64,  65,
                              127, 128, 129, 255, 256, 257};

/* Three groups, each pair of lengths with a fourth of the thirds. */
const char *twin_run_small_sizes(const struct twin *twin, int first, int step)
{
    const int count = COUNT(LENGTHS);

    for (int i = first; i < count * count * 4; i += step) {
        const int x = i % count, y = i / count % count, z = i / count / count;
        const int lengths[] = {LENGTHS[x], LENGTHS[y],
                               LENGTHS[(x * 5 + y + z) % count]};
        struct shape s = {0};
        const int total = set_lengths(&s, lengths, 3, z % 2 * 5);

        set_axes(twin->kernel, &s, total, x + z, y + z);
        set_manner(&s, i);
        if (*check(twin, &s))
            return wrong;
    }
    return "";
}

/* Around 32, since so many are read at a time; and as many as may be. */
const char *twin_run_many_groups(const struct twin *twin)
{
    static const int groups[] = {1, 32, 33, 65, 1024};
    static int lengths[MAX_GROUPS];

    for (int i = 0; i < COUNT(groups); i++) {
        const int most = groups[i] > 100 ? 20 : 200;
        struct shape s = {0};

        for (int g = 0; g < groups[i]; g++)
            lengths[g] = draw(3) ? draw(most) : 0;
        set_axes(twin->kernel, &s, set_lengths(&s, lengths, groups[i], 3), 0,
                 groups[i] > 100 ? 1 : 2);
        set_manner(&s, i);
        s.clusters = 5;
        if (*check(twin, &s))
            return wrong;
    }
    return "";
}

/* Enough tiles that each CTA has several, and work on all of them at once. */
const char *twin_run_crowd(const struct twin *twin, int times)
{
    static int lengths[24];

    for (int seed = 1; seed <= times; seed++) {
        struct shape s = {0};

        for (int g = 0; g < COUNT(lengths); g++)
            lengths[g] = draw(4) ? draw(140) : 0;
        set_axes(twin->kernel, &s, set_lengths(&s, lengths, COUNT(lengths), 9),
                 3, 3 + seed % 2);
        set_manner(&s, seed);
        s.clusters = 2;
        if (*check(twin, &s))
            return wrong;
    }
    return "";
}

/* All in one group, at either end or in the middle; none at all. */
const char *twin_run_one_group_holds_all(const struct twin *twin)
{
    for (int holder = -1; holder < 65; holder += 13) {
        int lengths[65] = {0};
        struct shape s = {0};

        if (holder >= 0)
            lengths[holder] = 1000;
        set_axes(twin->kernel, &s,
                 set_lengths(&s, lengths, 65, holder < 0 ? 0 : 24), 0, 1);
        set_manner(&s, holder + 13);
        s.clusters = 4;
        if (*check(twin, &s))
            return wrong;
    }
    return "";
}

/* Groups of one band of row tiles and of several, with and without a rest. */
const char *twin_run_bands(const struct twin *twin)
{
    static const int tiles[] = {23, 24, 41}, rest[] = {0, 40, 100};

    for (int i = 0; i < COUNT(tiles) * COUNT(rest); i++) {
        const int rows = tiles[i % 3] * 128 + rest[i / 3];
        const int lengths[] = {twin->kernel->ragged == QUERN_AXIS_K ? 9 : rows,
                               5};
        struct shape s = {0};

        set_axes(twin->kernel, &s, set_lengths(&s, lengths, 2, 0), 2, 2);
        set_manner(&s, i);
        s.m = twin->kernel->ragged == QUERN_AXIS_M ? s.m : rows / 8 * 8;
        if (twin->kernel->ragged != QUERN_AXIS_K)
            s.k = 64; /* one step, since bands are of tiles */
        s.clusters = 3;
        if (*check(twin, &s))
            return wrong;
    }
    return "";
}

/* int64 lengths with int64 offsets that leave gaps between the groups. */
const char *twin_run_gaps(const struct twin *twin, int times)
{
    for (int seed = 1; seed <= times; seed++) {
        long long wide[40], offsets[41];
        int lengths[40], starts[40], end = 0;
        struct shape s = {0};

        for (int g = 0; g < 40; g++) {
            wide[g] = lengths[g] = draw(4) ? draw(150) : 0;
            offsets[g] = starts[g] = end;
            end += lengths[g] + draw(30);
        }
        offsets[40] = end;
        set_lengths(&s, lengths, 40, 0);
        set_axes(twin->kernel, &s, end, 1, 2);
        set_manner(&s, seed);
        s.first_dims = wide;
        s.offsets = offsets;
        s.starts = starts;
        s.sizes_bytes = 8;
        if (*check(twin, &s))
            return wrong;
        s.first_dims = NULL; /* now the gaps belong to the groups */
        for (int g = 0; g < 40; g++)
            lengths[g] = (int)(offsets[g + 1] - offsets[g]);
        if (*check(twin, &s))
            return wrong;
    }
    return "";
}

/* One of 36 groups is: in its length, or where it starts, or both. */
static const char *check_lie(const struct twin *twin, int i, long long lie)
{
    const int liar = draw(36), with_offsets = i % 4;
    long long lengths[36], offsets[37];
    struct shape s = {.groups = 36, .sizes_bytes = 8};
    unsigned int error[4];
    const char *what;

    for (int g = 0; g < 37; g++) {
        offsets[g] = 27 * g;
        if (g < 36)
            lengths[g] = 27;
    }
    (with_offsets % 2 ? offsets : lengths)[liar] = lie;
    set_axes(twin->kernel, &s, 1000, 0, 1);
    set_manner(&s, i);
    s.first_dims = with_offsets == 1 ? NULL : lengths;
    s.offsets = with_offsets ? offsets : NULL;
    what = twin_launch(twin, &s, error);
    if (!*what && error[0] >= 1 && error[0] <= 3 && (int)error[1] >= liar - 1 &&
        (int)error[1] <= liar + 1)
        return "";
    snprintf(wrong, sizeof wrong, "%s: lie %lld at %d: %s (code %u, group %u)",
             twin->kernel->name, lie, liar, what, error[0], error[1]);
    return wrong;
}

const char *twin_run_lies(const struct twin *twin)
{
    static const long long lies[] = {
        -1,
        -2147483648ll,
        2147483647ll,
        1ll << 40,
        -(1ll << 62),
        9223372036854775807ll,
        -9223372036854775807ll - 1,
    };

    for (int i = 0; i < 4 * COUNT(lies); i++)
        if (*check_lie(twin, i, lies[i / 4]))
            return wrong;
    return "";
}
