/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_fuzz.c: the targets, and two drivers for them.
**
** The plain one, of every build: each target takes its whole corpus and then
** some thousands of damaged pieces of it, always the same ones. QUERN_FUZZ=SEED
** makes them others, a hundred times as many.
**
** libFuzzer, of the configuration `fuzz` that `make fuzz` builds with clang:
** FUZZ_TARGET=NAME chooses the target.
*/
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const spec_words[] = {"recipe",
                                         "kernels",
                                         "axis",
                                         "derive",
                                         "reject",
                                         "requires",
                                         "blocked",
                                         "extend",
                                         "{",
                                         "}",
                                         "(",
                                         ")",
                                         "\"",
                                         "end",
                                         "function",
                                         "(v)",
                                         "amax",
                                         "nil",
                                         "==",
                                         "if",
                                         "and",
                                         "..",
                                         ",",
                                         "=",
                                         "[[",
                                         "]]",
                                         "--",
                                         "\n",
                                         "bf16",
                                         "e8m0",
                                         "return",
                                         "local",
                                         "while true do ",
                                         "for i = 1, 1e9 do ",
                                         "error",
                                         "assert",
                                         "v.tile",
                                         "_ENV",
                                         "shipped",
                                         "%",
                                         "//",
                                         "\\",
                                         "select",
                                         "bits",
                                         "storage",
                                         "layout",
                                         "ragged",
                                         "pairs",
                                         "string.format",
                                         "table.concat",
                                         "goto",
                                         NULL};
static const char *const template_words[] = {"//$ ",
                                             "$(",
                                             ")",
                                             "//$ if ",
                                             "//$ end\n",
                                             "//$ else\n",
                                             "//$ for i = 1, 9 do\n",
                                             "include \"",
                                             "once \"",
                                             "rule \"",
                                             "$($(",
                                             "\n",
                                             "name",
                                             "nil",
                                             "1/0",
                                             "{}",
                                             "\"",
                                             "]]",
                                             "[==[",
                                             "error",
                                             "toy/piece.cu",
                                             NULL};
static const char *const line_words[] = {"fprop",
                                         "dgrad",
                                         "wgrad",
                                         "quantize",
                                         "transpose",
                                         "dequantize",
                                         "rescale",
                                         " g=",
                                         " m=",
                                         " n=",
                                         " k=",
                                         " d=",
                                         " layout=",
                                         " ragged=",
                                         " alpha=any",
                                         " beta=any",
                                         " beta=1",
                                         " align=2",
                                         " pointers=ab",
                                         " split=",
                                         " of=dy",
                                         " in=f32",
                                         " out=f16",
                                         " copies=both",
                                         " activation=swiglu",
                                         " interleave=4",
                                         " prob=1",
                                         " dbias=1",
                                         " recompute=1",
                                         "mlp ",
                                         " hidden=",
                                         " ffn=",
                                         " bias=1",
                                         " saved=1",
                                         " sizes=host",
                                         " quantize=auto",
                                         "bf16",
                                         "fp8_block",
                                         "nvfp4",
                                         "mxfp8",
                                         "=",
                                         " ",
                                         "@",
                                         ",",
                                         "none",
                                         "\n",
                                         "\t",
                                         "zipf",
                                         NULL};
static const char *const rule_words[] = {
    "m", "n", "k",  "groups", "(",  ")",  "%",  "/", "*", "-",
    "+", "!", "&&", "||",     "==", "!=", "<=", "<", " ", NULL};
static const char *const tune_words[] = {
    "quern tune 2\n",
    "gpu fuzz\n",
    "key=0123456789abcdef ",
    " | ",
    "sms=132",
    " kernel=",
    " band=",
    " dequantize=",
    " ns=",
    " model=",
    " model_ns=",
    " ratio=",
    " mhz=",
    " certain=",
    "fprop bf16 g=8 m=4096 n=2048 k=7168 d=bf16",
    "\n",
    " ",
    NULL};
static const char *const list_words[] = {
    ",", " ", "\n", "#", "expert", "-", "expert0", "token", "\r", "\"", NULL};
static const char *const config_words[] = {"{",
                                           "}",
                                           "[",
                                           ":",
                                           ",",
                                           "\"hidden_size\"",
                                           "\"num_experts\"",
                                           "\"text_config\"",
                                           "\"silu\"",
                                           "null",
                                           "1e999",
                                           "-0.5",
                                           "\\u0000",
                                           "\\",
                                           NULL};
static const char *const cache_words[] = {
    "quern 2\n",
    "quern 3\n",
    "key ",
    "kernel ",
    "arch ",
    "compiler ",
    "source ",
    "object ",
    "log ",
    "self ",
    "\n%%\n",
    "\n",
    " ",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    NULL};
static const char *const checkpoint_words[] = {"{",          "}",
                                               "[",          "]",
                                               ",",          ":",
                                               "\"dtype\"",  "\"shape\"",
                                               "\"U8\"",     "\"F8_E4M3\"",
                                               "\"F32\"",    "\"I32\"",
                                               "\"F16\"",    "\"data_offsets\"",
                                               ".experts.",  ".gate_proj.",
                                               ".up_proj.",  ".down_proj.",
                                               "_blocks",    "_scales",
                                               "weight",     "qweight",
                                               "scales",     "qzeros",
                                               "128",        "16",
                                               "0",          "1e18",
                                               "4294967296", "__metadata__",
                                               NULL};

/* One row for each parser of foreign input; ends with no name. */
static const struct fuzz_target targets[] = {
    {"spec", fuzz_spec, 1000, spec_words},
    {"template", fuzz_spec, 250, template_words},
    {"problem", fuzz_problem, 20000, line_words},
    {"cast", fuzz_cast, 20000, line_words},
    {"line", fuzz_line, 1500, line_words},
    {"rule", fuzz_rule, 20000, rule_words},
    {"tune", fuzz_tune, 8000, tune_words},
    {"sizes", fuzz_sizes, 4000, list_words},
    {"routes", fuzz_routes, 8000, list_words},
    {"config", fuzz_config, 8000, config_words},
    {"cache", fuzz_cache, 1500, cache_words},
    {"checkpoint", fuzz_checkpoint, 3000, checkpoint_words},
    {NULL, NULL, 0, NULL},
};

void fuzz_broken(const char *rule, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, rule);
    abort();
}

/* ------------------------------------------------------------------- folder */

static char folder[64];

static void remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command))
        fprintf(stderr, "%s is left\n", folder);
}

const char *fuzz_folder(void)
{
    if (!folder[0]) {
        strcpy(folder, "/tmp/quern-fuzz-XXXXXX");
        FUZZ_HOLDS(mkdtemp(folder));
        atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_file(const char *name, const char *text, size_t length)
{
    static char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    file = fopen(path, "wb");
    FUZZ_HOLDS(file);
    FUZZ_HOLDS(fwrite(text, 1, length, file) == length);
    FUZZ_HOLDS(!fclose(file));
    return path;
}

#ifdef FUZZ_LIBFUZZER

/* ---------------------------------------------------------------- libFuzzer */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                               unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static const struct fuzz_target *target;

static const struct fuzz_target *find_target(const char *name)
{
    const struct fuzz_target *one = targets;

    while (one->name && strcmp(one->name, name) != 0)
        one++;
    return one->name ? one : NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("FUZZ_TARGET");

    (void)argc, (void)argv;
    target = name ? find_target(name) : NULL;
    if (!target) {
        fprintf(stderr, "FUZZ_TARGET names a folder of tests/fuzz/corpus\n");
        exit(2);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text || size > FUZZ_MOST) {
        free(text);
        return -1;
    }
    memcpy(text, data, size);
    text[size] = 0;
    target->run(text, size);
    free(text);
    return 0;
}

/* libFuzzer's own mutations, and ours, which knows the words. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                               unsigned seed)
{
    char text[FUZZ_MOST + 1];
    uint64_t state = seed;

    if (fuzz_draw(&state, 2) || size > FUZZ_MOST)
        return LLVMFuzzerMutate(data, size, most);
    memcpy(text, data, size);
    text[size] = 0;
    for (unsigned i = fuzz_draw(&state, 3) + 1; i--;)
        size = fuzz_damage(text, size, target->words, &state);
    size = size < most ? size : most;
    memcpy(data, text, size);
    return size;
}

#else

/* --------------------------------------------------------- the plain driver */

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MOST_INPUTS = 512 };

struct input {
    char *text;
    size_t length;
};

/* The corpus, by name, so that all machines damage the same. */
static int read_corpus(const char *name, struct input *inputs)
{
    char path[1024];
    struct dirent **list;
    int count, found = 0;

    snprintf(path, sizeof path, "tests/fuzz/corpus/%s", name);
    count = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        struct input *input = &inputs[found];
        FILE *file = NULL;

        snprintf(path, sizeof path, "tests/fuzz/corpus/%s/%s", name,
                 list[i]->d_name);
        if (list[i]->d_name[0] != '.' && found < MOST_INPUTS)
            file = fopen(path, "rb");
        free(list[i]);
        if (!file)
            continue;
        input->text = malloc(FUZZ_MOST + 1);
        assert_non_null(input->text);
        input->length = fread(input->text, 1, FUZZ_MOST, file);
        input->text[input->length] = 0;
        fclose(file);
        found++;
    }
    if (count >= 0)
        free(list);
    return found;
}

/* In memory of just its size, so that reading past its end is seen. The
   input goes into the file $QUERN_FUZZ_KEEP, to know the crashing input. */
static void run(const struct fuzz_target *target, const char *text,
                size_t length)
{
    const char *keep = getenv("QUERN_FUZZ_KEEP");
    char *copy = malloc(length + 1);

    assert_non_null(copy);
    memcpy(copy, text, length + 1);
    if (keep) {
        FILE *file = fopen(keep, "wb");

        assert_non_null(file);
        assert_int_equal(fwrite(text, 1, length, file), length);
        fclose(file);
    }
    target->run(copy, length);
    free(copy);
}

static void replay_and_damage(void **state)
{
    const struct fuzz_target *target = *state;
    const char *other = getenv("QUERN_FUZZ");
    uint64_t seed = other ? strtoull(other, NULL, 10) : 1;
    static struct input inputs[MOST_INPUTS];
    int count = read_corpus(target->name, inputs);
    long rounds = other ? 100L * target->rounds : target->rounds;

    assert_true(count > 0);
    for (int i = 0; i < count; i++)
        run(target, inputs[i].text, inputs[i].length);
    for (long i = 0; i < rounds; i++) {
        const struct input *input = &inputs[fuzz_draw(&seed, (unsigned)count)];
        char text[FUZZ_MOST + 1];
        size_t length = input->length;

        memcpy(text, input->text, length + 1);
        for (unsigned n = fuzz_draw(&seed, 6) + 1; n--;)
            length = fuzz_damage(text, length, target->words, &seed);
        run(target, text, length);
    }
    while (count-- > 0)
        free(inputs[count].text);
    print_message("%s: %ld inputs\n", target->name, rounds);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[sizeof targets / sizeof *targets];
    size_t count = 0;

    for (const struct fuzz_target *t = targets; t->name; t++)
        tests[count++] =
            (struct CMUnitTest){.name = t->name,
                                .test_func = replay_and_damage,
                                .initial_state = (void *)(uintptr_t)t};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("fuzz", tests, count, NULL, NULL);
}

#endif
