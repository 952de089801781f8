/* SPDX-License-Identifier: Apache-2.0 */
/* test_protocol_make.c: a kernel's own text, with shim.h in place of the
   instructions, generated, compiled as plain C and loaded. */
#include "embedded.h"
#include "test_protocol.h"

#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char folder[] = "/tmp/quern-protocol-XXXXXX";

int twin_make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

int twin_remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* The kernel's facts for the shim beyond its constants: how many steps of k
   have two levels, whether sums move on from where they are made, and the bytes
   that a stage's scales have. */
static const char shim[] =
    "//$ local sf = { lines = (tile.m + tile.n) * 4 }\n"
    "//$ local boxes = tile.m > 128 and 2 or 1\n"
    "//$ sf.squares = (tile.m + 4 * boxes + 31) // 32 * 128\n"
    "enum {\n"
    "    SIM_PROMOTE = $(promote),\n"
    "//$ local follows = epilogue == 'activate'\n"
    "//$ local halves = follows and operands == 'halves'\n"
    "//$ local valued = promote > 0 or a.type == 'i8' or follows\n"
    "    SIM_VALUED = $(valued and 1 or 0),\n"
    "    SIM_HALVES = $(halves and mma_n == tile.n and 1 or 0),\n"
    "//$ sf = quantize == 'mainloop' and tile.m * 4 or sf[factors] or 0\n"
    "    SIM_SF_BYTES = $(sf),\n"
    "//$ local ahead = whole and factors == 'squares'\n"
    "    SIM_AHEAD_BYTES = $(ahead and 8 * 32 * 16 or 0),\n"
    "//$ if quantize == 'mainloop' then\n"
    "    SIM_MAINLOOP = 1,\n"
    "    SIM_VALUE_STAGES = VALUE_STAGES,\n"
    "    SIM_VALUE_BYTES = VALUE_BYTES,\n"
    "//$ else\n"
    "    SIM_MAINLOOP = 0, SIM_VALUE_STAGES = 0, SIM_VALUE_BYTES = 0,\n"
    "//$ end\n"
    "//$ if dequantize ~= 'none' then\n"
    "    SIM_SPAN = $(span),\n"
    "    SIM_PACKED_BYTES = PACKED_STAGES * $(span) * PACKED_BYTES,\n"
    "    SIM_PACKED_STEP = PACKED_BYTES,\n"
    "    SIM_A_PACKED = A_PACKED,\n"
    "    SIM_WORDS_BYTES = WORDS_BYTES,\n"
    "    SIM_A_ROW = $(packed_row[1]),\n"
    "    SIM_B_ROW = $(packed_row[2]),\n"
    "    SIM_A_EACH = $(256 // packed_row[1]),\n"
    "    SIM_B_EACH = $(256 // packed_row[2]),\n"
    "    SIM_BARRIERS_MADE = STAGES + PACKED_STAGES + QUEUE\n"
    "                        + $(addend == 'fetch' and '4 * SLABS' or '0'),\n"
    "    SIM_PERMUTED = $(dequantize == 'shared' and 0 or 1),\n"
    "    SIM_SWAPPED = $(dequantize == 'swapped' and 1 or 0),\n"
    "    SIM_EITHER = $(wide == 'either' and 1 or 0),\n"
    "    SIM_MARKED = $(marks > 0 and 4 + marks // 4 + 1 or 0),\n"
    "    SIM_APART = $(apart and 1 or 0)\n"
    "//$ else\n"
    "//$ local made = quantize == 'mainloop' and\n"
    "//$             'STAGES + VALUE_STAGES + QUEUE' or 0\n"
    "    SIM_SPAN = 1,\n"
    "    SIM_PACKED_BYTES = 0, SIM_PACKED_STEP = 1, SIM_A_PACKED = 0,\n"
    "    SIM_WORDS_BYTES = 0, SIM_A_ROW = 128, SIM_B_ROW = 128,\n"
    "    SIM_A_EACH = 2, SIM_B_EACH = 2, SIM_BARRIERS_MADE = $(made),\n"
    "    SIM_PERMUTED = 0, SIM_SWAPPED = 0, SIM_EITHER = 0, SIM_MARKED = 0,\n"
    "    SIM_APART = 0\n"
    "//$ end\n"
    "};\n"
    "#include \"shim.h\"\n";

static const char *twin_text(const struct qg_file *file)
{
    if (strcmp(file->path, "templates/sm90/ptx.cu") == 0)
        return shim;
    if (strcmp(file->path, "templates/sm90/quantize_rows.cu") == 0)
        return "#include \"shim_mainloop.h\"\n";
    if (strcmp(file->path, "templates/sm90/wgmma.cu") == 0 ||
        strncmp(file->path, "templates/activation/", 21) == 0 ||
        strncmp(file->path, "templates/sm90/store_", 21) == 0 ||
        strncmp(file->path, "templates/dequantize/", 21) == 0)
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

/* Specs that the twins do not need would only take time: those of other
   kernels, and of all recipes but one where that is named. */
static int is_needed(const char *path, const char *recipe)
{
    static const char kernels[] = "specs/kernels/",
                      recipes[] = "specs/recipes/";
    const size_t length = recipe ? strlen(recipe) : 0;

    if (strncmp(path, kernels, strlen(kernels)) == 0)
        return strncmp(path + strlen(kernels), "sm90_", 5) == 0;
    if (!recipe || strncmp(path, recipes, strlen(recipes)) != 0)
        return 1;
    path += strlen(recipes);
    return strncmp(path, recipe, length) == 0 &&
           strcmp(path + length, ".lua") == 0;
}

int twin_has_text(const struct defect *defect)
{
    for (int i = 0; i < qg_embedded_count; i++)
        if (!strcmp(qg_embedded[i].path, defect->file))
            return strstr(twin_text(&qg_embedded[i]), defect->from) != NULL;
    return 0;
}

/* The text with its defect, which must be there, or NULL where there is none;
   the caller frees it. */
static char *break_text(const struct qg_file *file, const struct defect *defect)
{
    char *broken;

    if (!defect || strcmp(file->path, defect->file) != 0)
        return NULL;
    broken = replaced(file->text, defect->from, defect->to);
    if (!broken)
        fail_msg("%s is out of date: no \"%s\"", defect->file, defect->from);
    return broken;
}

/* Recipes and tiles of which no file of quern's own has the like, read from
   disk. */
static const char *const more[][2] = {
    {"specs/recipes/mixes.lua", "tests/host/specs/recipes/mixes.lua"},
    {"specs/layouts/odd.lua", "tests/host/specs/layouts/odd.lua"},
    {"specs/kernels/tile.lua", "examples/own_tile/kernels/tile.lua"}};
enum { MORE = sizeof more / sizeof *more };

/* The caller frees it. */
static char *read_more(const char *path)
{
    char *text = calloc(1, 1 << 14);
    FILE *f;

    f = fopen(path, "rb");
    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 14) - 1, f) > 0);
    fclose(f);
    return text;
}

struct qg *twin_open_generator(const struct defect *defect, const char *recipe)
{
    const size_t room = (size_t)qg_embedded_count + MORE;
    const int with_more = !recipe || !strncmp(recipe, "test_", 5);
    struct qg_file *files = calloc(room, sizeof *files);
    struct qg_options options = {.files = files};
    char *texts[MORE] = {NULL}, *broken = NULL;
    struct qg *gen;

    assert_non_null(files);
    for (int i = 0; i < qg_embedded_count; i++) {
        struct qg_file *file = &files[options.files_count];
        char *text;

        if (!is_needed(qg_embedded[i].path, recipe))
            continue;
        options.files_count++;
        file->path = qg_embedded[i].path;
        file->text = twin_text(&qg_embedded[i]);
        text = break_text(file, defect);
        if (text)
            file->text = broken = text;
        file->length = strlen(file->text);
    }
    for (int i = 0; i < MORE && with_more; i++) {
        if (recipe && !strncmp(more[i][0], "specs/kernels/", 14))
            continue; /* it extends kernels of other recipes */
        texts[i] = read_more(more[i][1]);
        files[options.files_count++] =
            (struct qg_file){more[i][0], texts[i], strlen(texts[i])};
    }
    if (qg_open_with(&options, &gen))
        fail_msg("%s", gen ? qg_diagnostics(gen) : "no memory");
    for (int i = 0; i < MORE; i++)
        free(texts[i]);
    free(files);
    free(broken);
    return gen;
}

void twin_write_call(FILE *f, const struct qn_kernel *kernel,
                     const char *behind)
{
    static const struct {
        const char *type, *kind, *operand, *member;
    } rows[] = {
#define PARAM_TYPE(n, t, m) {.type = t},
        QN_PARAMS(PARAM_TYPE)
#undef PARAM_TYPE
    };

    fprintf(f, "\nstatic void twin_call(const void *const *values)\n{\n    %s(",
            kernel->name);
    for (int i = 0; i < kernel->nparams; i++)
        fprintf(f, "%s\n        *(%s *)values[%d]", i ? "," : "",
                rows[kernel->params[i]].type, kernel->params[i]);
    fprintf(f, ");\n}\n#include \"%s\"\n", behind);
}

static void write_twin(struct qg *gen, const struct qn_kernel *kernel,
                       const char *path)
{
    const char *text;
    size_t length;
    char *plain;
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    if (qg_source(gen, kernel->name, &text, &length))
        fail_msg("%s", qg_diagnostics(gen));
    plain = replaced(text, "extern \"C\" ", "");
    assert_non_null(plain);
    fputs(plain, f);
    free(plain);
    twin_write_call(f, kernel, "twin.h");
    assert_int_equal(fclose(f), 0);
}

static void name_file(const struct twin *twin, const char *kind, char *path,
                      size_t size)
{
    snprintf(path, size, "%s/%d.%s", folder, twin->file, kind);
}

void twin_begin(struct qg *gen, const struct qn_kernel *kernel, char *level,
                int number, struct twin *twin)
{
    static int count;
    char c[64], so[64];
    char *argv[] = {"cc",        "-std=gnu11", level,   "-ffp-contract=off",
                    "-w",        "-shared",    "-fPIC", "-Itests/protocol",
                    "-Iruntime", "-o",         so,      c,
                    NULL};

    *twin = (struct twin){.kernel = kernel,
                          .registry = qg_registry(gen),
                          .number = number,
                          .file = count++};
    name_file(twin, "c", c, sizeof c);
    name_file(twin, "so", so, sizeof so);
    write_twin(gen, kernel, c);
    assert_int_equal(
        posix_spawnp(&twin->compiler, "cc", NULL, NULL, argv, environ), 0);
}

void twin_finish(struct twin *twin)
{
    char c[64], so[64];
    void *library;
    int status;

    name_file(twin, "c", c, sizeof c);
    name_file(twin, "so", so, sizeof so);
    assert_int_equal(waitpid(twin->compiler, &status, 0), twin->compiler);
    assert_int_equal(status, 0);
    library = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    twin->run = (twin_run_fn *)dlsym(library, "twin_run");
    assert_non_null(twin->run);
    unlink(c);
    unlink(so);
    twin_draw_from(twin->number);
}
