/* SPDX-License-Identifier: Apache-2.0 */
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

/* Only scales can bring extremes back into a type's range; F16 has little. */
static int fill_of(const struct gpu_variant *v, int index)
{
    if (v->recipe && v->d_type != QUERN_F16 && v->recipe->x != QUERN_F16 &&
        index % 4 == 3)
        return QT_EXTREME;
    return index % 3 == 2 ? QT_NORMAL : QT_INTEGER;
}

/* Shared by all problems of one number. */
static void begin(struct gpu_case *p, const struct gpu_variant *v,
                  const char *what, int index)
{
    memset(p, 0, sizeof *p);
    gpu_variant_case(v, &p->c);
    p->c.what = what;
    p->c.epilogue = gpu_variant_epilogue(v, index);
    p->c.form = index % QT_FORMS;
    p->c.sizes_type = index / 3 % 2 ? QUERN_I64 : QUERN_I32;
    p->c.fill = fill_of(v, index);
    p->c.outside = index % 4 == 1;
    p->c.unwritten = gpu_variant_alone();
    p->c.unread = p->c.epilogue->beta == QUERN_BETA_ANY;
    p->c.seed = seed_of(index);
}

/* Arrays of pointers, in turns: B and D, which any kernel may take, and A. */
static void use_pointers(struct qt_case *c, int index)
{
    c->pointers[QT_B] = index % 2;
    c->pointers[QT_C] = index % 4 == 1;
    c->pointers[QT_D] = index % 3 == 1;
    c->pointers[QT_A] = index % 6 == 5;
}

/* Gaps between rows and between matrices, of each operand in turns: of A and B
   no kernel may read them, of C and D none may write them. */
static void use_gaps(struct qt_case *c, int index)
{
    for (int role = 0; role < QT_ROLES; role++) {
        c->pad[role] = 8 * ((index / 2 + role) % 3);
        c->gap[role] = 64 * ((index / 3 + role) % 2);
    }
}

/*
** Every pattern of group sizes, in each form and both types. The other sides go
** around the edges of the tiles: parts of one, several, a part after several.
*/
void gpu_torture(void)
{
    static const int sides[][2] = {
        {128, 64}, {256, 128},  {136, 72},  {8, 8},     {64, 200}, {200, 520},
        {384, 64}, {120, 1000}, {264, 136}, {512, 256}, {72, 448}};
    static const int small[][2] = {{8, 16}, {72, 24}, {136, 8}};
    int patterns = gpu_options.quick ? 3 : qt_npatterns;

    for (int i = 0; i < gpu_nvariants; i++)
        for (int j = 0; j < patterns * QT_FORMS; j++) {
            const struct qt_pattern *pattern = &qt_patterns[j / QT_FORMS];
            const int *side =
                pattern->groups > 64 ? small[j % 3] : sides[(i + j) % 11];
            struct gpu_case p;

            begin(&p, &gpu_variants[i], pattern->name, i + j);
            gpu_variant_sides(&p.c, side[0], side[1], 8 * (j + 1));
            use_pointers(&p.c, j);
            use_gaps(&p.c, j);
            qt_case_layout(&p.c, pattern);
            gpu_case_run_all(&p, &gpu_variants[i], j);
        }
}

/*
** Every side that a tile cuts; and such as put rows at odd multiples of an
** element, which not every kernel takes.
*/
void gpu_tails(void)
{
    static const int xs[] = {8, 16, 56, 64, 72, 120, 128, 136, 192, 248, 264};
    static const int ys[] = {8, 16, 56, 64, 72, 120, 136, 192, 256, 520, 2048};
    static const int odd[] = {1, 7, 33, 61, 127, 129, 255, 257};

    for (int i = 0; i < gpu_nvariants; i++)
        for (int j = 0; j < 19; j++) {
            struct gpu_case p;
            int at = i + j;

            if (gpu_options.quick && at % 4)
                continue;
            begin(&p, &gpu_variants[i], "tails", at);
            if (j < 11)
                gpu_variant_sides(&p.c, xs[j], ys[(at * 3) % 11], xs[at % 11]);
            else
                gpu_variant_sides(&p.c, odd[j - 11], odd[(at * 3) % 8],
                                  odd[at % 8]);
            use_pointers(&p.c, j < 11 ? at : 0);
            qt_case_layout(&p.c, &qt_patterns[4]);
            gpu_case_run_all(&p, &gpu_variants[i], at);
        }
}

/*
** As many groups as a warp reads the sizes of at a time, and one more; with
** --quick one of both, by the seed.
*/
void gpu_many(void)
{
    static const struct qt_pattern patterns[] = {
        {"32 groups", 32, 0, {0}, 40},
        {"33 groups", 33, 0, {0}, 40},
    };
    enum { PATTERNS = sizeof patterns / sizeof *patterns };

    for (int i = 0; i < gpu_nvariants; i++)
        for (int j = 0; j < PATTERNS; j++) {
            struct gpu_case p;

            if (gpu_variants[i].ragged == QUERN_AXIS_NONE ||
                (gpu_options.quick && seed_of(i + j) % PATTERNS))
                continue;
            begin(&p, &gpu_variants[i], patterns[j].name, i + j);
            gpu_variant_sides(&p.c, 72, 24, 0);
            qt_case_layout(&p.c, &patterns[j]);
            gpu_case_run_all(&p, &gpu_variants[i], i + j);
        }
}

/*
** Many tiles for each multiprocessor, and more than 32 groups at once. Short
** ones for every kernel: who hands a stage back too early is soonest seen where
** tiles meet.
*/
void gpu_large(void)
{
    static const struct qt_pattern brief = {"large, brief", 24, 0, {0}, 45};
    static const struct qt_pattern alike = {"large, alike", 3, 0, {0}, 0};
    static const struct qt_pattern patterns[] = {
        {"large, 16 groups", 16, 0, {0}, 400},
        {"large, 100 groups", 100, 0, {0}, 60},
        {"large, one group", 1, 1, {4100}, 0},
    };

    for (int i = 0; i < gpu_nvariants; i++) {
        const int kind = gpu_options.only ? 2 : i % 3;
        struct gpu_case p;

        begin(&p, &gpu_variants[i], brief.name, i);
        gpu_variant_sides(&p.c, 712, 1032, 264);
        qt_case_layout(
            &p.c, gpu_variants[i].ragged == QUERN_AXIS_NONE ? &alike : &brief);
        gpu_case_run_all(&p, &gpu_variants[i], i);
        if (gpu_options.quick && i % 5)
            continue;
        /* One kernel alone gets many bands of tiles, and few steps. */
        begin(&p, &gpu_variants[i], patterns[kind].name, i);
        if (gpu_options.only)
            gpu_variant_sides(&p.c, 200, 72, 4104);
        else
            gpu_variant_sides(&p.c, kind == 1 ? 328 : 712,
                              kind == 2 ? 520 : 200, 264);
        qt_case_layout(&p.c, &patterns[kind]);
        gpu_case_run_all(&p, &gpu_variants[i], i);
    }
}

/* No rows at all: nothing to do, or zeros to write, and nothing wrong. */
void gpu_empty(void)
{
    for (int i = 0; i < gpu_nvariants * 2; i++) {
        const struct gpu_variant *v = &gpu_variants[i / 2];
        struct gpu_case p;

        if (v->ragged == QUERN_AXIS_NONE)
            continue;
        begin(&p, v, "no rows", i);
        p.c.form = i % 2 ? QT_FIRST : QT_OFFSETS;
        p.c.groups = i % 2 ? 1 : 37;
        gpu_variant_sides(&p.c, 128, 64, 0);
        gpu_case_run_all(&p, v, i);
    }
}

/* ------------------------------------------------------------------ random */

/* A side: mostly what every kernel takes, else anything. */
static int64_t draw_side(uint64_t *state, int odd, int64_t most)
{
    return odd ? 1 + qt_random_below(state, most)
               : 8 * (1 + qt_random_below(state, most / 8));
}

/* Lengths, sides, distances, addresses, factors: all that a problem has. */
static void draw_problem(struct qt_case *c, uint64_t *state)
{
    struct qt_pattern pattern = {"random", 1, 0, {0}, 0};
    int odd = qt_random_below(state, 4) == 0;
    int64_t most = qt_random_below(state, 4) ? 256 : 640;

    pattern.groups = 1 + (int)qt_random_below(state, 40);
    if (c->ragged == QUERN_AXIS_NONE)
        pattern.groups = 1 + pattern.groups / 8;
    pattern.random = 1 + qt_random_below(state, 1500 / pattern.groups);
    c->what = pattern.name;
    c->form = (int)qt_random_below(state, QT_FORMS);
    c->sizes_type = qt_random_below(state, 2) ? QUERN_I64 : QUERN_I32;
    c->align = odd ? 2 : 0;
    c->outside = (int)qt_random_below(state, 2);
    gpu_variant_sides(c, draw_side(state, odd, most),
                      draw_side(state, odd, most), draw_side(state, odd, most));
    for (int role = 0; role < QT_ROLES; role++) {
        c->pad[role] = qt_random_below(state, 3) * (odd ? 1 : 8);
        c->gap[role] = qt_random_below(state, 3) * (odd ? 4 : 64);
        c->pointers[role] = !odd && qt_random_below(state, 4) == 0;
    }
    c->seed = qt_random(state);
    qt_case_layout(c, &pattern);
}

/* The model's choice for one of the ops, and one of the kernels. */
static void run_two(struct gpu_case *p, const struct gpu_variant *v,
                    uint64_t *state)
{
    struct gpu_choice choices[GPU_MAX_CHOICES];
    int all = gpu_variant_choices(v, 1, choices);
    int models = 0;

    while (models < all && !choices[models].kernel)
        models++;
    gpu_case_open(p, GPU_GUARD);
    if (models)
        gpu_case_run(p, &choices[qt_random_below(state, models)], 0);
    if (all > models)
        gpu_case_run(p, &choices[models + qt_random_below(state, all - models)],
                     (int)qt_random_below(state, 2) * 6);
    gpu_case_close(p);
}

/* Random problems. */
void gpu_random(void)
{
    uint64_t state = seed_of(0) ^ 0xABCD;
    int count =
        gpu_options.quick ? gpu_options.random / 10 : gpu_options.random;

    for (int i = 0; i < count && gpu_nvariants; i++) {
        const struct gpu_variant *v =
            &gpu_variants[qt_random_below(&state, gpu_nvariants)];
        struct gpu_case p = {0};

        gpu_variant_case(v, &p.c);
        p.c.epilogue =
            gpu_variant_epilogue(v, (int)qt_random_below(&state, 64));
        draw_problem(&p.c, &state);
        p.c.fill = fill_of(v, (int)qt_random_below(&state, 12));
        run_two(&p, v, &state);
    }
}
