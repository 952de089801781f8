/* SPDX-License-Identifier: Apache-2.0 */
/*
** gpu_main.c: every kernel that the specs express for this GPU, on problems
** that are made to break them.
**
** Run: build/bin/gpu_suite [--quick] [--json FILE] [--only 'GLOB']
**          [--family NAME] [--cache LIST] [--specs DIR]
**      compute-sanitizer --tool memcheck build/bin/gpu_suite --sanitize
**
** Prints one line for each family of tests, one for each failure, then the
** count. Status 0 if all passed, 1 if one failed, 2 on bad use, 3 without a
** GPU. Kernels are compiled on this machine, so libnvrtc is needed.
*/
#include "gpu.h"

#include <argp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/context.h"
#include "code/module.h"

struct gpu_options gpu_options = {.seed = 1, .random = 3000, .cache = ""};
struct quern_context *gpu_context;
struct gpu_device gpu_device;
int gpu_threads;

static struct gpu_failure failures[GPU_MAX_FAILURES];
static int nfailures;

#define FAMILY(name, apart, what)                                              \
    {                                                                          \
#name, what, gpu_##name, {0, 0, 0, 0 }, 0, 0, apart                    \
    }

static struct gpu_family families[] = {
    FAMILY(compile, 0, "every kernel, on all cores"),
    FAMILY(torture, 0, "group sizes around the tiles, all forms and types"),
    FAMILY(many, 0, "as many groups as are read at a time, and one more"),
    FAMILY(tails, 0, "sides that fill no tile, and odd ones"),
    FAMILY(random, 0, "drawn problems, each on two kernels"),
    FAMILY(large, 0, "many tiles for each multiprocessor"),
    FAMILY(empty, 0, "no rows at all"),
    FAMILY(bad_sizes, 0, "invalid sizes are reported and stay inside"),
    FAMILY(graphs, 0, "a captured run, sizes changed before each replay"),
    FAMILY(replays, 1, "all that may be captured, in graphs, as out of them"),
    FAMILY(repeats, 0, "the same bits again"),
    FAMILY(streams, 0, "two at once"),
    FAMILY(sms, 0, "fewer multiprocessors"),
    FAMILY(queue, 0, "products that waited, merged, in graphs and out"),
    FAMILY(refusals, 0, "shapes that some kernels do not take"),
    FAMILY(cublaslt, 1, "the backend cublaslt, every form of a product"),
    FAMILY(nans, 0, "a NaN in one row of a copy stays there"),
    FAMILY(scales, 0, "NaN, the largest and the least scale of one block"),
    FAMILY(requantize, 0, "as FP8 or as f16, and one block that does not fit"),
    FAMILY(casts, 1, "every quantization, byte for byte against the host"),
    FAMILY(tune, 1, "winners are measured, kept, and taken by plans"),
    FAMILY(activate, 0, "a bias and an activation in the product's launch"),
    FAMILY(epilogues, 1, "epilogues in launches of their own, as the host"),
    FAMILY(fuse, 1, "products that quantize A in their mainloop"),
    FAMILY(gather, 1, "products that read rows through indices"),
    FAMILY(lora, 1, "products that go on along k with adapters"),
    FAMILY(scatter, 1, "products that write rows through indices"),
    FAMILY(mlp, 1,
           "the grouped MLP by either strategy, against a chain in double"),
    FAMILY(moe, 1, "layers from unpermuted tokens, over routes that change"),
    FAMILY(step, 1, "a layer's training step against float64's"),
    FAMILY(coverage, 0, "no kernel was left out"),
};
static struct gpu_family sanitized =
    FAMILY(sanitized, 0, "a fixed list of small problems");
static struct gpu_family *current;

static double started, begun; /* the suite, its family */

struct spread {
    int next, count;
    void (*one)(int i, void *user);
    void *user;
};

static void *run_some(void *user)
{
    struct spread *s = user;
    int i;

    while ((i = __atomic_fetch_add(&s->next, 1, __ATOMIC_SEQ_CST)) < s->count)
        s->one(i, s->user);
    return NULL;
}

void gpu_spread(int count, void (*one)(int i, void *user), void *user)
{
    enum { MOST = 64 };
    struct spread s = {.count = count, .one = one, .user = user};
    pthread_t threads[MOST];
    int more = 0;

    while (more < MOST && more < gpu_threads - 1 &&
           !pthread_create(&threads[more], NULL, run_some, &s))
        more++;
    run_some(&s);
    for (int i = 0; i < more; i++)
        pthread_join(threads[i], NULL);
}

static int finish(void);

/* Failures are printed as they come, in case the next one is a crash. */
void gpu_record(const char *failure)
{
    if (!failure) {
        current->counts.passed++;
        return;
    }
    current->counts.failed++;
    if (nfailures < GPU_MAX_FAILURES) {
        failures[nfailures].family = current->name;
        snprintf(failures[nfailures].text, sizeof failures[0].text, "%s",
                 failure);
        nfailures++;
        printf("# %s: %s\n", current->name, failure);
        fflush(stdout);
    }
    if (gpu_options.stop) {
        finish();
        _exit(1);
    }
}

void gpu_refused(void)
{
    current->counts.refused++;
}

void gpu_skip(const char *why)
{
    current->counts.skipped++;
    printf("skip: %s\n", why);
}

/* --------------------------------------------------------------------- JSON */

/* The clock and the power are read after the last kernel. */
static void add_machine(cJSON *root)
{
    unsigned int mhz;
    double watts;

    gpu_driver_load(&mhz, &watts);
    cJSON_AddStringToObject(root, "commit", gpu_options.commit);
    cJSON_AddStringToObject(root, "gpu", gpu_device.name);
    cJSON_AddStringToObject(root, "driver", gpu_device.driver);
    cJSON_AddNumberToObject(root, "cuda", gpu_device.cuda);
    cJSON_AddNumberToObject(root, "sm_clock_mhz", mhz);
    cJSON_AddNumberToObject(root, "power_watts", watts);
    cJSON_AddNumberToObject(root, "seed", (double)gpu_options.seed);
    cJSON_AddBoolToObject(root, "quick", gpu_options.quick);
    cJSON_AddNumberToObject(root, "seconds", qn_clock_seconds() - started);
}

static void add_family(cJSON *list, const struct gpu_family *f)
{
    cJSON *item = cJSON_CreateObject();

    cJSON_AddStringToObject(item, "name", f->name);
    cJSON_AddStringToObject(item, "what", f->what);
    cJSON_AddNumberToObject(item, "passed", f->counts.passed);
    cJSON_AddNumberToObject(item, "failed", f->counts.failed);
    cJSON_AddNumberToObject(item, "skipped", f->counts.skipped);
    cJSON_AddNumberToObject(item, "refused", f->counts.refused);
    cJSON_AddNumberToObject(item, "seconds", f->seconds);
    cJSON_AddItemToArray(list, item);
}

static void add_results(cJSON *root)
{
    cJSON *list = cJSON_AddArrayToObject(root, "kernels");

    for (int i = 0; i < gpu_nkernels && !gpu_options.family; i++)
        cJSON_AddItemToArray(list,
                             cJSON_CreateString(gpu_kernels[i].kernel->name));
    list = cJSON_AddArrayToObject(root, "ran");
    for (const struct qn_module *m = gpu_context->modules; m; m = m->next)
        if (m->handle)
            cJSON_AddItemToArray(list, cJSON_CreateString(m->kernel->name));
    list = cJSON_AddArrayToObject(root, "families");
    if (gpu_options.sanitize)
        add_family(list, &sanitized);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (families[i].ran)
            add_family(list, &families[i]);
    list = cJSON_AddArrayToObject(root, "failures");
    for (int i = 0; i < nfailures; i++) {
        cJSON *item = cJSON_CreateObject();

        cJSON_AddStringToObject(item, "family", failures[i].family);
        cJSON_AddStringToObject(item, "text", failures[i].text);
        cJSON_AddItemToArray(list, item);
    }
}

/* After each family, so that a run that is killed leaves what it knew; only
   the last says that it is finished. A file that can't be written is told and
   does not hide the results. */
static void write_json(int finished)
{
    cJSON *root = cJSON_CreateObject();
    FILE *file;
    char *text;

    add_machine(root);
    cJSON_AddBoolToObject(root, "finished", finished);
    add_results(root);
    text = cJSON_Print(root);
    file = fopen(gpu_options.json, "w");
    if (!file || !text || fprintf(file, "%s\n", text) < 0)
        perror(gpu_options.json);
    if (file)
        fclose(file);
    free(text);
    cJSON_Delete(root);
}

/* The counts, everywhere; returns the exit status. */
static int finish(void)
{
    struct gpu_counts sum = sanitized.counts;

    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        sum.passed += families[i].counts.passed;
        sum.failed += families[i].counts.failed;
        sum.skipped += families[i].counts.skipped;
    }
    if (gpu_options.json)
        write_json(1);
    printf("# %s, driver %s, CUDA %d.%d, %d kernels of %d variants, %.0f s\n",
           gpu_device.name, gpu_device.driver, gpu_device.cuda / 1000,
           gpu_device.cuda % 1000 / 10, gpu_nkernels, gpu_nvariants,
           qn_clock_seconds() - started);
    printf("%d passed, %d failed, %d skipped\n", sum.passed, sum.failed,
           sum.skipped);
    fflush(stdout);
    return sum.failed != 0;
}

int gpu_late(void)
{
    return gpu_options.seconds > 0 &&
           qn_clock_seconds() > begun + gpu_options.seconds;
}

void gpu_record_line(const char *text, int late, const char *result)
{
    if (late)
        gpu_skip(gpu_text("%s: time was over", text));
    else
        gpu_record(*result ? result : NULL);
}

void gpu_lost(const char *text)
{
    gpu_record(text);
    printf("# the device can't go on; families not finished are missing\n");
    finish();
    _exit(1);
}

/* ------------------------------------------------------------------ the run */

/* TAP, so that the runner of all tests can count the families. */
static void run_family(struct gpu_family *f, int number)
{
    current = f;
    begun = qn_clock_seconds();
    f->run();
    f->seconds = qn_clock_seconds() - begun;
    printf("%s %d - %s: %s (%d of %d, %d refused, %.1f s)\n",
           f->counts.failed ? "not ok" : "ok", number, f->name, f->what,
           f->counts.passed, f->counts.passed + f->counts.failed,
           f->counts.refused, f->seconds);
    fflush(stdout);
    f->ran = 1;
    if (gpu_options.json)
        write_json(0);
}

static const struct argp_option option_table[] = {
    {"json", 'j', "FILE", 0, "write the results here", 0},
    {"quick", 'q', NULL, 0, "a part of each family, few replays", 0},
    {"list", 'l', NULL, 0, "list the kernels that would run", 0},
    {"sanitize", 's', NULL, 0, "at most 150 small runs, for a sanitizer", 0},
    {"seed", 'r', "N", 0, "of the data (1)", 0},
    {"random", 'n', "N", 0, "random problems (3000)", 0},
    {"only", 'o', "GLOB", 0, "kernels whose name matches", 0},
    {"cache", 'd', "LIST", 0, "folders of compiled kernels (none)", 0},
    {"specs", 'p', "DIR", 0, "more recipes and kernels (none)", 0},
    {"family", 'f', "LIST", 0, "only these families of tests, with commas", 0},
    {"seconds", 'e', "N", 0,
     "take up no more casts, MLPs, replays after so long", 0},
    {"digests", 'g', "FILE", 0,
     "add a line for each D and report of an invalid size: how values were "
     "drawn, a digest, the run",
     0},
    {"alike", 'a', NULL, 0,
     "quantized operands of products have one magnitude, as recorded digests "
     "are of",
     0},
    {"stop", 'x', NULL, 0, "end after the first failure", 0},
    {"threads", 't', "N", 0, "for compilers and comparisons (all cores)", 0},
    {"commit", 'c', "HASH", 0, "noted in the results ($QUERN_COMMIT)", 0},
    {0},
};

/* A number from 0 on, or an end with its message. */
static uint64_t take_number(const char *option, const char *value,
                            struct argp_state *state)
{
    char *end;
    uint64_t number = strtoull(value, &end, 10);

    if (!*value || *end || *value == '-')
        argp_error(state, "--%s takes a number, not '%s'", option, value);
    return number;
}

/* Is the family in the list that --family gives, if it does? */
static int is_wanted(const char *name)
{
    const size_t length = strlen(name);
    const char *at = gpu_options.family;

    while (at && *at) {
        const size_t word = strcspn(at, ",");

        if (word == length && !strncmp(at, name, length))
            return 1;
        at += word + (at[word] == ',');
    }
    return !gpu_options.family;
}

/* How many are wanted, for a plan; or an end with all that there are. */
static void check_families(struct argp_state *state)
{
    const char *list = gpu_options.family;
    char known[256] = "";
    int words = 1, found = 0;

    for (const char *at = list; *at; at++)
        words += *at == ',';
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        found += is_wanted(families[i].name);
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s",
                 families[i].name);
    }
    if (found != words)
        argp_error(state, "--family takes some of%s, not '%s'", known, list);
}

static error_t take_option(int key, char *value, struct argp_state *state)
{

    switch (key) {
    case 'j':
        gpu_options.json = value;
        break;
    case 'q':
        gpu_options.quick = 1;
        break;
    case 'l':
        gpu_options.list = 1;
        break;
    case 'g':
        gpu_options.digests = value;
        break;
    case 'a':
        gpu_options.alike = 1;
        break;
    case 'x':
        gpu_options.stop = 1;
        break;
    case 's':
        gpu_options.sanitize = 1;
        break;
    case 'o':
        gpu_options.only = value;
        break;
    case 'd':
        gpu_options.cache = value;
        break;
    case 'p':
        gpu_options.specs = value;
        break;
    case 'f':
        gpu_options.family = value;
        check_families(state);
        break;
    case 'c':
        gpu_options.commit = value;
        break;
    case 'r':
        gpu_options.seed = take_number("seed", value, state);
        break;
    case 'e':
        gpu_options.seconds = (double)take_number("seconds", value, state);
        break;
    case 't':
        gpu_threads = (int)take_number("threads", value, state);
        break;
    case 'n':
        gpu_options.random = (int)take_number("random", value, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* Is it to be run? Those of no kernel of products only if they are named. */
static int is_due(const struct gpu_family *f)
{
    return is_wanted(f->name) &&
           (gpu_options.family || !(gpu_options.only && f->apart));
}

static int run_all(void)
{
    int count = sizeof families / sizeof families[0], due = 0;

    if (gpu_options.sanitize) {
        printf("1..1\n");
        run_family(&sanitized, 1);
        return finish();
    }
    for (int i = 0; i < count; i++)
        due += is_due(&families[i]);
    printf("1..%d\n", due);
    for (int i = 0, number = 1; i < count; i++)
        if (is_due(&families[i]))
            run_family(&families[i], number++);
    return finish();
}

/* The kernels, and the families that --only leaves out: a line that begins with
   "apart:", which run.py reads. */
static void list(void)
{
    for (int i = 0; i < gpu_nkernels; i++)
        printf("%s\n", gpu_kernels[i].kernel->name);
    printf("apart:");
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (families[i].apart)
            printf(" %s", families[i].name);
    printf("\n");
}

static int open_library(void)
{
    struct quern_open_options options = {.cache = gpu_options.cache,
                                         .specs = &gpu_options.specs,
                                         .specs_count = !!gpu_options.specs,
                                         .tune = ""};

    if (!qn_open(&options, &gpu_context)) {
        qt_context = gpu_context;
        return 0;
    }
    fprintf(stderr, "qn_open: %s\n", quern_errmsg());
    return -1;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {option_table,
                                     take_option,
                                     NULL,
                                     "Every kernel on problems that are made "
                                     "to break it.",
                                     NULL,
                                     NULL,
                                     NULL};
    const char *missing;
    int status;

    argp_err_exit_status = 2;
    gpu_options.commit = getenv("QUERN_COMMIT");
    gpu_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    if (!gpu_options.commit)
        gpu_options.commit = "";
    started = qn_clock_seconds();
    setenv("QUERN_TRUST", "compiled", 1); /* the suite is the trial */
    missing = gpu_driver_open(&gpu_device);
    if (missing) {
        fprintf(stderr, "gpu_suite: %s\n", missing);
        return 3;
    }
    gpu_device.exact =
        gpu_options.sanitize || strstr(gpu_device.name, "interpreter");
    if (open_library())
        return 1;
    gpu_variant_list(gpu_options.only);
    if (gpu_options.list) {
        list();
        return 0;
    }
    if (!gpu_nkernels && !gpu_options.family) {
        fprintf(stderr, "gpu_suite: no kernel matches on this GPU\n");
        return 2;
    }
    status = run_all();
    qn_close(gpu_context);
    return status;
}
