/* SPDX-License-Identifier: Apache-2.0 */
/* diagnostics_test.c: each message, to the letter. */
#include "test_gen.h"

#include "messages.h"

#include <stdio.h>
#include <string.h>

/* After an error there is nothing half done: no kernel at all. */
static void check_cases(const char *path)
{
    struct test_cases cases;

    cases_read(&cases, path);
    assert_true(cases.count > 1);
    for (int i = 1; i < cases.count; i++) {
        struct qg *q = open_files(&cases.at[i].files);

        if (strcmp(qg_diagnostics(q), cases.at[i].expect) != 0)
            print_error("case: %s\n", cases.at[i].name);
        assert_string_equal(qg_diagnostics(q), cases.at[i].expect);
        assert_int_equal(qg_registry(q)->nkernels, 0);
        qg_close(q);
    }
    cases_free(&cases);
}

TEST(diagnostics)
{
    check_cases("tests/gen/cases/diagnostics.txt");
}

TEST(sandbox)
{
    check_cases("tests/gen/cases/sandbox.txt");
}

/* Those of calls, of the file system and of all steps are met in other tests;
   SECONDS would take two minutes. */
static const char elsewhere[] =
    " ALL_STEPS SECONDS OPEN FILE_NAME FILE_LOOSE FILE_SIZE "
    "NO_SPECS WRITE "
    "KERNEL_UNKNOWN NOTHING_SELECTED "
    "FILE_LOOSE "
    "RULE_UNKNOWN ";

/* A case's title begins with the message's name. */
static int has_case(const struct test_cases *cases, const char *name)
{
    size_t length = strlen(name);
    char word[64];

    snprintf(word, sizeof word, " %s ", name);
    if (strstr(elsewhere, word))
        return 1;
    for (int i = 1; i < cases->count; i++)
        if (!strncmp(cases->at[i].name, name, length) &&
            strchr(" ", cases->at[i].name[length]))
            return 1;
    return 0;
}

/* A message that no case meets may be wrong, or never be printed. */
TEST(every_message_has_a_case)
{
    static const char *const names[] = {
#define MESSAGE_NAME(name, format) #name,
        QG_MESSAGES(MESSAGE_NAME)};
    struct test_cases cases;

    cases_read(&cases, "tests/gen/cases/diagnostics.txt");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!has_case(&cases, names[i]))
            fail_msg("no case in diagnostics.txt for %s", names[i]);
    cases_free(&cases);
}

/* Thirty files with one error each. */
TEST(stops_at_twenty)
{
    static const char last[] = "error: too many errors, stopped after 20\n";
    struct files files = {.count = 0};
    struct qg *q;
    const char *text, *at;
    int lines = 0;

    for (int i = 0; i < 30; i++) {
        char path[64];

        snprintf(path, sizeof path, "specs/recipes/r%02d.lua", i);
        files_put(&files, path, "x()", 3);
    }
    q = open_files(&files);
    text = qg_diagnostics(q);
    for (at = text; (at = strstr(at, ": error: ")); at++)
        lines++;
    assert_int_equal(lines, 20);
    assert_string_equal(text + strlen(text) - strlen(last), last);
    qg_close(q);
    files_free(&files);
}
