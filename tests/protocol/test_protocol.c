/*
** The device code's protocol, run on the host: each Hopper kernel is generated
** with shim.h in place of the instructions, compiled as plain C and launched
** over many group sizes. Every tile must be stored exactly once, every
** coordinate must lie in its group, and nothing may wait for ever.
*/
#include "embedded.h"
#include "gen.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

/* COUPLED: twin -> twin.h */
struct twin_launch {
    const void *first_dims, *offsets;
    int sizes_bytes, groups, m, n, k;
    int clusters;
    uint64_t seed;
    unsigned int error[4];
};

typedef const char *twin_run_fn(struct twin_launch *, const int *);

/* ------------------------------------------------------- making a twin */

static char folder[] = "/tmp/quern-protocol-XXXXXX";

/* A change to a template that breaks the protocol. */
struct defect {
    const char *file, *from, *to;
};

static const char *twin_text(const struct qg_file *file)
{
    if (strcmp(file->path, "templates/sm90/ptx.cu") == 0)
        return "#include \"shim.h\"\n";
    if (strcmp(file->path, "templates/sm90/wgmma.cu") == 0 ||
        strncmp(file->path, "templates/sm90/store_", 21) == 0)
        return "";
    return file->text;
}

/* `text` with the first `from` replaced; NULL if there is none. */
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    const size_t room = strlen(text) + strlen(to) + 1;
    char *made;

    if (!at || !(made = malloc(room)))
        return NULL;
    snprintf(made, room, "%.*s%s%s", (int)(at - text), text, to,
             at + strlen(from));
    return made;
}

static struct qg *open_generator(const struct defect *defect)
{
    struct qg_file *files = calloc((size_t)qg_embedded_count, sizeof *files);
    struct qg_options options = {.files = files,
                                 .files_count = qg_embedded_count};
    struct qg *gen;
    char *broken = NULL;

    assert_non_null(files);
    for (int i = 0; i < qg_embedded_count; i++) {
        files[i].path = qg_embedded[i].path;
        files[i].text = twin_text(&qg_embedded[i]);
        if (defect && strcmp(files[i].path, defect->file) == 0) {
            broken = replaced(files[i].text, defect->from, defect->to);
            assert_non_null(broken); /* else the defect is out of date */
            files[i].text = broken;
        }
        files[i].length = strlen(files[i].text);
    }
    if (qg_open_with(&options, &gen))
        fail_msg("%s", gen ? qg_diagnostics(gen) : "no memory");
    free(files);
    free(broken);
    return gen;
}

static void write_twin(struct qg *gen, const char *kernel, const char *path)
{
    const char *text;
    size_t length;
    char *plain;
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    if (qg_source(gen, kernel, &text, &length))
        fail_msg("%s", qg_diagnostics(gen));
    plain = replaced(text, "extern \"C\" ", "");
    assert_non_null(plain);
    fprintf(f, "%s\n#include \"twin.h\"\n", plain);
    free(plain);
    assert_int_equal(fclose(f), 0);
}

static void compile(const char *kernel, const char *c, const char *so)
{
    char define[256];
    char *argv[] = {"cc",      "-std=gnu11", "-O1",     "-w",
                    "-shared", "-fPIC",      define,    "-Itests/protocol",
                    "-o",      (char *)so,   (char *)c, NULL};
    pid_t pid;
    int status;

    snprintf(define, sizeof define, "-DKERNEL=%s", kernel);
    assert_int_equal(posix_spawnp(&pid, "cc", NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Generate, compile and load; lives until the program ends. */
static twin_run_fn *make_twin(struct qg *gen, const char *kernel)
{
    static int count;
    char c[300], so[300];
    void *library;
    twin_run_fn *run;

    snprintf(c, sizeof c, "%s/%d.c", folder, count);
    snprintf(so, sizeof so, "%s/%d.so", folder, count++);
    write_twin(gen, kernel, c);
    compile(kernel, c, so);
    library = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    run = (twin_run_fn *)dlsym(library, "twin_run");
    assert_non_null(run);
    unlink(c);
    unlink(so);
    return run;
}

/* The first kernel of this form; every schedule and cluster has one. */
static const struct qn_kernel *find_kernel(struct qg *gen, const char *schedule,
                                           int tile_n, int cluster_n)
{
    const struct quern_registry *r = qg_registry(gen);

    for (int i = 0; i < r->nkernels; i++) {
        const struct qn_kernel *k = &r->kernels[i];
        if (strcmp(k->template, "sm90/gemm.cu") == 0 &&
            strcmp(k->schedule, schedule) == 0 && k->tile[1] == tile_n &&
            k->cluster[1] == cluster_n)
            return k;
    }
    fail_msg("no %s kernel with tile n %d, cluster n %d", schedule, tile_n,
             cluster_n);
    return NULL;
}

/* ------------------------------------------------------------ launches */

enum { MAX_GROUPS = 1024, MAX_ROWS = 1 << 17 };

static int group_of_row[MAX_ROWS];

static uint64_t random_state = 20240229;

static int draw(int below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (unsigned)below);
}

/* Rows of group after group, `tail` rows of nobody behind them. */
static int label_rows(const int *sizes, int groups, int tail)
{
    int row = 0;

    for (int g = 0; g < groups; g++)
        for (int i = 0; i < sizes[g]; i++)
            group_of_row[row++] = g;
    while (tail-- > 0)
        group_of_row[row++] = -1;
    return row;
}

static void expect_right(twin_run_fn *run, struct twin_launch launch)
{
    const char *error = run(&launch, group_of_row);

    if (*error || launch.error[0])
        fail_msg("groups=%d m=%d n=%d k=%d clusters=%d seed=%llu: %s (code %u)",
                 launch.groups, launch.m, launch.n, launch.k, launch.clusters,
                 (unsigned long long)launch.seed, error, launch.error[0]);
}

static const int LENGTHS[] = {0,   1,   7,   63,  64,  65,
                              127, 128, 129, 255, 256, 257};
enum { NLENGTHS = sizeof LENGTHS / sizeof LENGTHS[0] };

/* Three groups, each pair of lengths, a fourth of the thirds; n, k vary. */
static void run_small_sizes(twin_run_fn *run, int step)
{
    static const int n[] = {8, 128, 264, 520}, k[] = {8, 64, 136, 520};

    for (int i = 0; i < NLENGTHS * NLENGTHS * 4; i += step) {
        const int x = i % NLENGTHS, y = i / NLENGTHS % NLENGTHS;
        const int z = i / NLENGTHS / NLENGTHS;
        const int sizes[] = {LENGTHS[x], LENGTHS[y],
                             LENGTHS[(x * 5 + y + z) % NLENGTHS]};
        struct twin_launch launch = {
            .first_dims = sizes,
            .sizes_bytes = 4,
            .groups = 3,
            .n = n[(x + z) % 4],
            .k = k[(y + z) % 4],
            .clusters = 1 + (x + y + z) % 3,
            .seed = (uint64_t)i + 1,
        };
        launch.m = label_rows(sizes, 3, z % 2 * 5);
        expect_right(run, launch);
    }
}

static void run_many_groups(twin_run_fn *run)
{
    static const int groups[] = {1, 31, 32, 33, 65, 256, 1024};
    static int sizes[MAX_GROUPS];

    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        const int most = groups[i] > 100 ? 40 : 300;
        struct twin_launch launch = {
            .first_dims = sizes,
            .sizes_bytes = 4,
            .groups = groups[i],
            .n = 264,
            .k = 72,
            .clusters = 5,
            .seed = i + 1,
        };
        for (int g = 0; g < groups[i]; g++)
            sizes[g] = draw(3) ? draw(most) : 0;
        launch.m = label_rows(sizes, groups[i], 3);
        expect_right(run, launch);
    }
}

/* All in one group, at either end or in the middle; none at all. */
static void run_one_group_holds_all(twin_run_fn *run)
{
    for (int holder = -1; holder < 65; holder += 13) {
        int sizes[65] = {0};
        struct twin_launch launch = {
            .first_dims = sizes,
            .sizes_bytes = 4,
            .groups = 65,
            .n = 136,
            .k = 64,
            .clusters = 4,
            .seed = 7,
        };
        if (holder >= 0)
            sizes[holder] = 1000;
        launch.m = label_rows(sizes, 65, 24);
        expect_right(run, launch);
    }
}

/* int64 lengths with int64 offsets that leave gaps between the groups. */
static void run_gaps(twin_run_fn *run)
{
    for (int seed = 1; seed <= 20; seed++) {
        long long lengths[40], offsets[41];
        int row = 0;
        struct twin_launch launch = {
            .first_dims = lengths,
            .offsets = offsets,
            .sizes_bytes = 8,
            .groups = 40,
            .n = 200,
            .k = 96,
            .clusters = 3,
            .seed = (uint64_t)seed,
        };
        for (int g = 0; g < 40; g++) {
            const int gap = draw(30);
            lengths[g] = draw(4) ? draw(150) : 0;
            offsets[g] = row;
            for (int i = 0; i < lengths[g]; i++)
                group_of_row[row++] = g;
            for (int i = 0; i < gap; i++)
                group_of_row[row++] = -1;
        }
        offsets[40] = launch.m = row;
        expect_right(run, launch);
        launch.first_dims = NULL; /* now the gaps belong to the groups */
        for (int g = 0, i = 0; g < 40; g++)
            while (i < offsets[g + 1])
                group_of_row[i++] = g;
        expect_right(run, launch);
    }
}

/* Whatever the sizes say, the twin checks bounds; the first lie is named. */
static void run_lies(twin_run_fn *run)
{
    static const long long lies[] = {
        -1,
        -2147483648ll,
        2147483647ll,
        1ll << 40,
        -(1ll << 62),
        9223372036854775807ll,
        (-9223372036854775807ll - 1),
    };

    for (int i = 0; i < 7 * 4; i++) {
        long long lengths[36], offsets[37];
        const int liar = draw(36), with_offsets = i / 7;
        struct twin_launch launch = {
            .first_dims = with_offsets == 1 ? NULL : lengths,
            .offsets = with_offsets ? offsets : NULL,
            .sizes_bytes = 8,
            .groups = 36,
            .m = 1000,
            .n = 136,
            .k = 64,
            .clusters = 3,
            .seed = (uint64_t)i,
        };
        const char *error;
        for (int g = 0; g < 37; g++) {
            offsets[g] = 27 * g;
            if (g < 36)
                lengths[g] = 27;
        }
        (with_offsets % 2 ? offsets : lengths)[liar] = lies[i % 7];
        error = run(&launch, NULL);
        if (*error)
            fail_msg("lie %lld at %d: %s", lies[i % 7], liar, error);
        assert_in_range(launch.error[0], 1, 3);
        assert_in_range(launch.error[1], liar ? liar - 1 : 0, liar + 1);
    }
}

/* --------------------------------------------------------------- tests */

static void run_everything(const char *schedule, int tile_n, int cluster_n,
                           int step)
{
    struct qg *gen = open_generator(NULL);
    twin_run_fn *run =
        make_twin(gen, find_kernel(gen, schedule, tile_n, cluster_n)->name);

    qg_close(gen);
    run_small_sizes(run, step);
    run_many_groups(run);
    run_one_group_holds_all(run);
    run_gaps(run);
    run_lies(run);
}

static void test_cooperative(void **state)
{
    (void)state;
    run_everything("cooperative", 128, 1, 1);
}

static void test_pingpong(void **state)
{
    (void)state;
    run_everything("pingpong", 128, 1, 1);
}

static void test_cluster(void **state)
{
    (void)state;
    run_everything("cooperative", 128, 2, 5);
}

static void test_each_kernel(void **state)
{
    struct qg *gen = open_generator(NULL);
    const struct quern_registry *r = qg_registry(gen);

    (void)state;
    for (int i = 0; i < r->nkernels; i++)
        if (strcmp(r->kernels[i].template, "sm90/gemm.cu") == 0) {
            twin_run_fn *run = make_twin(gen, r->kernels[i].name);
            run_small_sizes(run, 37);
        }
    qg_close(gen);
}

/* Each would be a race or a hang on the device: the twin must see it. */
static void test_defects_are_seen(void **state)
{
    static const struct defect defects[] = {
        {"templates/sm90/gemm.cu", "mma_wait(1);", "mma_wait(2);"},
        {"templates/sm90/gemm.cu", "store_wait(SLABS - 1)",
         "store_wait(SLABS)"},
        {"templates/sm90/gemm.cu",
         "barrier_wait(s->empty + p->stage * 8, "
         "p->parity ^ 1);",
         ""},
        {"templates/sm90/gemm.cu", "    cluster_sync(); /*", "    /*"},
        {"templates/sm90/walk.cu", "w->next += w->stride;", "w->next++;"},
        {"templates/sm90/walk.cu", "w->tiles_before += block_tiles;", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof defects / sizeof defects[0]; i++) {
        struct qg *gen = open_generator(&defects[i]);
        twin_run_fn *run =
            make_twin(gen, find_kernel(gen, "cooperative", 128, 2)->name);
        int seen = 0;
        qg_close(gen);
        for (int seed = 1; seed <= 30 && !seen; seed++) {
            static int sizes[40];
            struct twin_launch launch = {
                .first_dims = sizes,
                .sizes_bytes = 4,
                .groups = 40,
                .n = 520,
                .k = 520,
                .clusters = 2,
                .seed = (uint64_t)seed,
            };
            for (int g = 0; g < 40; g++)
                sizes[g] = draw(100);
            launch.m = label_rows(sizes, 40, 0);
            seen = *run(&launch, group_of_row) != 0;
        }
        if (!seen)
            fail_msg("%s without \"%s\" passes", defects[i].file,
                     defects[i].from);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cooperative),
        cmocka_unit_test(test_pingpong),
        cmocka_unit_test(test_cluster),
        cmocka_unit_test(test_each_kernel),
        cmocka_unit_test(test_defects_are_seen),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
