/*
** fuzz_test.c: thousands of damaged specs. None may crash, hang, or fail
** without saying where; a sanitizer build sees more, and QUERN_FUZZ=SEED does
** it with other damage, a hundred times as long.
*/
#include "test_gen.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4000 };

static uint64_t seed;

/* The same numbers on every machine: a failure can be repeated. */
static unsigned int draw(unsigned int below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned int)(seed >> 33) % below;
}

/* Words that make a difference where they appear by chance. */
static const char *const words[] = {"recipe",
                                    "kernels",
                                    "axis",
                                    "derive",
                                    "reject",
                                    "requires",
                                    "blocked",
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
                                    "-1",
                                    "1e308",
                                    "0x7fffffffffffffff",
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
                                    "bits"};

static void insert(char *text, size_t *length, size_t at, const char *part,
                   size_t size)
{
    memmove(text + at + size, text + at, *length - at + 1);
    memcpy(text + at, part, size);
    *length += size;
}

/* One damage; `text` has room for it. */
static void damage(char *text, size_t *length)
{
    size_t at = draw((unsigned int)*length + 1), size = draw(20);
    const char *word = words[draw(sizeof words / sizeof *words)];
    char part[64];

    switch (draw(5)) {
    case 0:
        if (at < *length)
            text[at] = (char)draw(256);
        break;
    case 1:
        if (at + size <= *length) {
            memmove(text + at, text + at + size, *length - at - size + 1);
            *length -= size;
        }
        break;
    case 2:
        insert(text, length, at, word, strlen(word));
        break;
    case 3:
        if (at + size <= *length) {
            memcpy(part, text + at, size);
            insert(text, length, draw((unsigned int)*length + 1), part, size);
        }
        break;
    default:
        if (at < *length && text[at] >= '0' && text[at] <= '9')
            text[at] = (char)('0' + draw(10));
        break;
    }
}

/* Small bounds, so that endless loops end soon. */
static void check(const struct files *files)
{
    struct qg_options options = {.files = files->at,
                                 .files_count = files->count,
                                 .instructions = 300000,
                                 .memory = 4 << 20};
    static const struct qg_link link = {"fuzzed", 0, NULL, NULL};
    const char *text;
    size_t length;
    struct qg *q;
    int failed = qg_open_with(&options, &q);

    assert_non_null(q);
    assert_int_equal(failed, qg_diagnostics(q)[0] != 0);
    assert_int_equal(strlen(qg_registry(q)->hash), failed ? 0 : 64);
    if (!failed) /* what only some kernels meet */
        failed = qg_registry_text(q, NULL, &link, &text, &length);
    assert_int_equal(failed, qg_diagnostics(q)[0] != 0);
    if (failed)
        assert_non_null(strstr(qg_diagnostics(q), "error: "));
    qg_close(q);
}

void test_fuzz(void **state)
{
    struct files files = {.count = 0};
    const char *other = getenv("QUERN_FUZZ");
    long rounds = other ? 100 * ROUNDS : ROUNDS;

    (void)state;
    seed = other ? strtoull(other, NULL, 10) : 1;
    files_read(&files, "tests/gen/golden/toy/specs", "specs");
    files_read(&files, "tests/gen/golden/scales/specs", "specs");
    files_read(&files, "tests/gen/golden/toy/templates", "templates");
    for (long round = 0; round < rounds; round++) {
        struct qg_file *file = &files.at[draw((unsigned int)files.count)];
        const struct qg_file kept = *file;
        char *text = malloc(kept.length + 1024);

        assert_non_null(text);
        memcpy(text, kept.text, kept.length + 1);
        file->text = text;
        for (unsigned int i = draw(6) + 1; i--;)
            damage(text, &file->length);
        check(&files);
        free(text);
        *file = kept;
    }
    files_free(&files);
}
