/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_mutants.c: each defect that is planted into a template is seen by the
** GPU suite on the interpreter, which the same kernel without it passes.
*/
#include "embedded.h"
#include "cases.h"
#include "share.h"
#include "interpret.h"
#include "victims.h"
#include "mutants.h"
#include "mutants_sm100.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gen.h"

enum {
    HOPPERS = sizeof planted / sizeof *planted,
    MUTANTS = HOPPERS + sizeof planted_sm100 / sizeof *planted_sm100,
    SEEDS = 4
};

static const struct mutant *mutant_at(int i)
{
    return i < HOPPERS ? &planted[i] : &planted_sm100[i - HOPPERS];
}

/* Those by which copies land late, and half of them late, on many
   multiprocessors; then with few. */
static const int seeds[SEEDS] = {2, 4, 3, 1};

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

static const struct qg_file *find_file(const char *path)
{
    for (int i = 0; i < qg_embedded_count; i++)
        if (!strcmp(qg_embedded[i].path, path))
            return &qg_embedded[i];
    return NULL;
}

/* Recipes that no kernel of quern's own has, for the suite, too. */
static const char *specs_of(const struct mutant *m)
{
    return strncmp(m->victim, "test_", 5) ? NULL : "tests/host/specs";
}

/* The generator with the defect. */
static struct qg *open_with(const struct mutant *m)
{
    const char *const dirs[] = {specs_of(m)};
    struct qg_file *files = calloc((size_t)qg_embedded_count, sizeof *files);
    struct qg_options options = {.files = files,
                                 .files_count = qg_embedded_count,
                                 .dirs = dirs,
                                 .dirs_count = dirs[0] != NULL,
                                 .lazy = !dirs[0]};
    char *broken = replaced(find_file(m->file)->text, m->from, m->to);
    struct qg *gen;

    assert_non_null(files);
    assert_non_null(broken);
    memcpy(files, qg_embedded, (size_t)qg_embedded_count * sizeof *files);
    for (int i = 0; i < qg_embedded_count; i++)
        if (!strcmp(files[i].path, m->file))
            files[i] = (struct qg_file){m->file, broken, strlen(broken)};
    if (qg_open_with(&options, &gen))
        fail_msg("%s", gen ? qg_diagnostics(gen) : "no memory");
    free(files);
    free(broken);
    return gen;
}

/* The victim's text. */
static const char *text_of(struct qg *gen, const struct mutant *m)
{
    char name[200];
    const char *text;
    size_t length;

    snprintf(name, sizeof name, "quern_%s", m->victim);
    if (qg_source(gen, name, &text, &length))
        fail_msg("%s", qg_diagnostics(gen));
    return text;
}

/* The victim's text as the interpreter's compiler takes it; 0 if the defect is
   not in it. */
static int write_broken(const struct mutant *m, const char *path)
{
    const struct mutant none = {m->victim, m->file, m->from, m->from};
    struct qg *gen = open_with(m), *right = open_with(&none);
    const char *text = text_of(gen, m);
    const int differs = strcmp(text, text_of(right, m)) != 0;
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    qg_close(gen);
    qg_close(right);
    return differs;
}

/* It must fail for what it does, not for want of a compiler or of time. */
static int is_seen(const struct mutant *m)
{
    const char *specs = specs_of(m);
    char command[1024];

    for (int i = 0; i < SEEDS; i++) {
        const struct interpret how = {strstr(m->victim, "_sm100f_") ? "10.0"
                                                                    : "9.0",
                                      seeds[i], "SOURCES", interpret_folder};

        snprintf(command, sizeof command,
                 "gpu_suite --only quern_%s --family %s --stop "
                 "--threads 1 --seed %d%s%s",
                 m->victim,
                 interpret_families(m->victim, "torture,tails,bad_sizes,large"),
                 seeds[i], specs ? " --specs " : "", specs ? specs : "");
        if (interpret(&how, command) != 1)
            continue;
        return strstr(interpret_output, "\n# ") &&
               !strstr(interpret_output, "does not compile");
    }
    return 0;
}

TEST(mutants)
{
    int missed = 0, ran = 0;

    interpret_need_compiler();
    for (int i = 0; i < MUTANTS; i++) {
        const struct mutant *m = mutant_at(i);
        char path[300];

        if (!share_has(i))
            continue;
        ran++;
        snprintf(path, sizeof path, "%s/quern_%s.cu", interpret_folder,
                 m->victim);
        if (!write_broken(m, path)) {
            missed++;
            print_error("%s has \"%s\", but %s has not\n", m->file, m->from,
                        m->victim);
        } else if (!is_seen(m)) {
            missed++;
            print_error("not seen: %s with \"%s\" for \"%s\" in %s:\n%s\n",
                        m->file, m->to, m->from, m->victim, interpret_output);
        }
        unlink(path);
    }
    print_message("  %d mutants, %d not seen\n", ran, missed);
    assert_int_equal(missed, 0);
    assert_true(ran > 0);
}

/* Not by shares: who edits a template learns of it from `make test`. */
TEST(mutants_are_up_to_date)
{
    int missing = 0;

    for (int i = 0; i < MUTANTS; i++) {
        const struct mutant *m = mutant_at(i);
        const struct qg_file *file = find_file(m->file);

        if (file && strstr(file->text, m->from))
            continue;
        print_error("%s has no \"%s\"\n", m->file, m->from);
        missing++;
    }
    assert_int_equal(missing, 0);
}
