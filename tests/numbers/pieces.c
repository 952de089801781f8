/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c: the pieces generated, compiled and loaded. */
#include "numbers.h"
#include "embedded.h"

#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *const part_names[PARTS] = {"nearest", "chance", "math",
                                              "activations", "dequantize"};

/* Read from tests/numbers, and given to the generator with its templates. */
static const char *const own[] = {
    "specs/recipes/bf16.lua",   "specs/layouts/tn.lua", "specs/ragged/m.lua",
    "specs/kernels/pieces.lua", "templates/begin.cu",   "templates/casts.cu",
};
enum { OWN = sizeof own / sizeof *own };

static void *libraries[PARTS];

float float_from(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t bits_from(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The caller frees it; NULL if it cannot be read. */
static char *read_own(const char *name)
{
    char path[128], *text = calloc(1, 65536);
    FILE *in;

    snprintf(path, sizeof path, "tests/numbers/%s", name);
    in = fopen(path, "rb");
    if (!in || !text || fread(text, 1, 65535, in) == 0) {
        free(text);
        text = NULL;
    }
    if (in)
        fclose(in);
    return text;
}

/* The embedded templates and our own files; specs that ship are left out. */
static int gather(struct qg_file *files, char *texts[OWN])
{
    int count = 0;

    for (int i = 0; i < qg_embedded_count; i++)
        if (strncmp(qg_embedded[i].path, "templates/", 10) == 0)
            files[count++] = qg_embedded[i];
    for (int i = 0; i < OWN; i++) {
        texts[i] = read_own(own[i]);
        if (!texts[i])
            return 0;
        files[count++] = (struct qg_file){own[i], texts[i], strlen(texts[i])};
    }
    return count;
}

struct qg *pieces_generator(void)
{
    struct qg_file *files =
        calloc((size_t)(qg_embedded_count + OWN), sizeof *files);
    struct qg_options options = {.files = files};
    char *texts[OWN] = {NULL};
    struct qg *gen = NULL;

    options.files_count = files ? gather(files, texts) : 0;
    if (!options.files_count || qg_open_with(&options, &gen)) {
        print_error("tests/numbers: %s\n",
                    gen ? qg_diagnostics(gen) : "not in the repository's root");
        qg_close(gen);
        gen = NULL;
    }
    for (int i = 0; i < OWN; i++)
        free(texts[i]);
    free(files);
    return gen;
}

static const char *kernel_name(int part, char name[128])
{
    snprintf(name, 128, "quern_bf16_fprop_tn_m_bf16_host_%s", part_names[part]);
    return name;
}

/* Written and being compiled; 0 if either fails. */
static pid_t start(struct qg *gen, const char *folder, int index)
{
    char name[128], c[160], so[160];
    char *argv[] = {"cc",      "-std=gnu11", "-Wall", "-Wextra",
                    "-Werror", "-Wshadow",   "-O2",   "-ffp-contract=off",
                    "-shared", "-fPIC",      "-o",    so,
                    c,         NULL};
    const char *text;
    pid_t compiler;
    size_t length;
    FILE *out;

    if (qg_source(gen, kernel_name(index, name), &text, &length)) {
        print_error("%s\n", qg_diagnostics(gen));
        return 0;
    }
    snprintf(c, sizeof c, "%s/%d.c", folder, index);
    snprintf(so, sizeof so, "%s/%d.so", folder, index);
    out = fopen(c, "wb");
    if (!out || fwrite(text, 1, length, out) != length || fclose(out))
        return 0;
    return posix_spawnp(&compiler, "cc", NULL, NULL, argv, environ) ? 0
                                                                    : compiler;
}

/* Returns 0, or 1 if the compiler failed. */
static int finish(pid_t compiler, const char *folder, int index)
{
    char path[160];
    int status;

    if (!compiler || waitpid(compiler, &status, 0) != compiler || status)
        return 1;
    snprintf(path, sizeof path, "%s/%d.so", folder, index);
    libraries[index] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    snprintf(path, sizeof path, "%s/%d.c", folder, index);
    unlink(path);
    return libraries[index] == NULL;
}

int pieces_load(void **state)
{
    char folder[] = "/tmp/quern-numbers-XXXXXX";
    pid_t compiler[PARTS];
    struct qg *gen = pieces_generator();
    int failed = 0;

    (void)state;
    if (!gen || !mkdtemp(folder))
        return 1;
    for (int i = 0; i < PARTS; i++)
        compiler[i] = start(gen, folder, i);
    for (int i = 0; i < PARTS; i++)
        failed |= finish(compiler[i], folder, i);
    rmdir(folder);
    qg_close(gen);
    return failed;
}

int pieces_free(void **state)
{
    (void)state;
    for (int i = 0; i < PARTS; i++)
        if (libraries[i])
            dlclose(libraries[i]);
    return 0;
}

static each_fn *symbol(void *library, const char *name)
{
    char each[80];
    void *found;

    snprintf(each, sizeof each, "each_%s", name);
    found = dlsym(library, each);
    if (!found)
        fail_msg("no %s", each);
    return (each_fn *)(uintptr_t)found;
}

each_fn *piece(enum piece_part part, const char *name)
{
    return symbol(libraries[part], name);
}

each_fn *piece_of(enum piece_part part, const char *before, const char *type,
                  const char *after)
{
    char name[64];

    snprintf(name, sizeof name, "%s%s%s", before, type, after);
    return piece(part, name);
}
