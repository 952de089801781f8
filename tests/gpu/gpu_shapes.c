/*
** gpu_shapes.c: families that run one problem after another, on every kernel.
*/
#include "gpu.h"

#include <string.h>

/* Fresh data for each problem, the same for the same --seed. */
static uint64_t seed_of(int index)
{
    return gpu_options.seed * 1000003 + (uint64_t)index;
}

/*
** Every pattern of group sizes, told in each way and in both types. n and k go
** around the edges of the tiles: parts of one, several, a part behind several.
*/
void gpu_torture(void)
{
    static const int nk[][2] = {{128, 64},  {256, 128}, {136, 72}, {8, 8},
                                {64, 200},  {200, 520}, {384, 64}, {120, 1000},
                                {264, 136}, {512, 256}, {72, 448}};
    const int count = sizeof nk / sizeof nk[0];
    int patterns = gpu_options.quick ? 4 : qt_npatterns, index = 0;

    for (int i = 0; i < patterns * QT_FORMS * 2; i++, index++) {
        struct gpu_case p = {0};

        p.c.what = qt_patterns[i / 6].name;
        p.c.form = i % QT_FORMS;
        p.c.sizes_type = i / 3 % 2 ? QUERN_I64 : QUERN_I32;
        p.c.n = nk[index % count][0];
        p.c.k = nk[index % count][1];
        p.c.fill = index % 3 == 2 ? QT_NORMAL : QT_INTEGER;
        p.c.seed = seed_of(index);
        qt_case_layout(&p.c, &qt_patterns[i / 6]);
        gpu_case_run_all(&p, index);
    }
}

/* n and k up to 512 and 1024 in steps of 8, rows up to about 2000. */
static void draw_problem(struct qt_case *c, uint64_t *state)
{
    struct qt_pattern pattern = {"random", 1, 0, {0}, 0};

    pattern.groups = 1 + (int)qt_random_below(state, 40);
    pattern.random = 1 + qt_random_below(state, 2000 / pattern.groups);
    c->what = pattern.name;
    c->form = (int)qt_random_below(state, QT_FORMS);
    c->sizes_type = qt_random_below(state, 2) ? QUERN_I64 : QUERN_I32;
    c->n = 8 * (1 + qt_random_below(state, 64));
    c->k = 8 * (1 + qt_random_below(state, 128));
    c->fill = qt_random_below(state, 2) ? QT_NORMAL : QT_INTEGER;
    c->a_pad = 8 * qt_random_below(state, 3);
    c->b_pad = 8 * qt_random_below(state, 3);
    c->d_pad = 8 * qt_random_below(state, 3);
    c->seed = qt_random(state);
    qt_case_layout(c, &pattern);
}

/* Problems that nobody thought of, with strides beyond the rows. */
void gpu_random(void)
{
    uint64_t state = seed_of(0) ^ 0xABCD;
    int count = gpu_options.quick ? 6 : 40;

    for (int i = 0; i < count; i++) {
        struct gpu_case p = {0};

        draw_problem(&p.c, &state);
        gpu_case_run_all(&p, i);
    }
}

/* Every n and k that a tile of 128 or 256 columns and 64 steps cuts. */
void gpu_tails(void)
{
    static const int ns[] = {8, 16, 56, 64, 72, 120, 128, 136, 192, 248, 264};
    static const int ks[] = {8, 16, 56, 64, 72, 120, 136, 192, 256, 520, 2048};

    for (int i = 0; i < 22; i++) {
        struct gpu_case p = {0};

        if (gpu_options.quick && i % 4)
            continue;
        p.c.what = "tails";
        p.c.form = i % QT_FORMS;
        p.c.sizes_type = QUERN_I32;
        p.c.n = ns[i % 11];
        p.c.k = ks[(i * 3 + i / 11) % 11];
        p.c.fill = i % 2 ? QT_NORMAL : QT_INTEGER;
        p.c.seed = seed_of(i);
        qt_case_layout(&p.c, &qt_patterns[4]);
        gpu_case_run_all(&p, i);
    }
}

/* Many tiles for each multiprocessor, and more than 32 groups at once. */
void gpu_large(void)
{
    static const struct qt_pattern patterns[] = {
        {"large, 16 groups", 16, 0, {0}, 500},
        {"large, 100 groups", 100, 0, {0}, 90},
        {"large, one group", 1, 1, {4100}, 0},
    };

    for (int i = 0; i < 3; i++) {
        struct gpu_case p = {0};

        if (gpu_options.quick && i)
            continue;
        p.c.what = patterns[i].name;
        p.c.form = i;
        p.c.sizes_type = QUERN_I64;
        p.c.n = 1160;
        p.c.k = i == 2 ? 1096 : 200;
        p.c.fill = i == 1 ? QT_INTEGER : QT_NORMAL;
        p.c.seed = seed_of(i);
        qt_case_layout(&p.c, &patterns[i]);
        gpu_case_run_all(&p, i);
    }
}

/* No rows at all: nothing to do, nothing to write, nothing wrong. */
void gpu_empty(void)
{
    for (int i = 0; i < 4; i++) {
        struct gpu_case p = {0};

        p.c.what = "m = 0";
        p.c.form = i < 2 ? QT_FIRST : QT_OFFSETS;
        p.c.sizes_type = i % 2 ? QUERN_I64 : QUERN_I32;
        p.c.groups = i % 2 ? 1 : 37;
        p.c.n = 128;
        p.c.k = 64;
        gpu_case_run_all(&p, i);
    }
}
