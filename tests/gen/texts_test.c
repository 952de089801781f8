/* SPDX-License-Identifier: Apache-2.0 */
/*
** texts_test.c: every text that the embedded specs give, of all architectures.
**
** tests/gen/golden/texts.txt has a line for each kernel, sorted by its name:
**
**     HASH HASH8 NAME
**
** HASH is the beginning of its text's sha256, HASH8 that of its descriptor in
** the registry; two more lines are for all recipes and all rejected points. A
** kernel that differs from one before only by its architecture has no line: the
** architecture follows the other's name. A few kernels are kept whole, in
** golden/kernels, where a change can be read. Numbers of specs' lines and keys
** are left out, because they change with anything. After a change that is
** meant: make golden.
*/
#include "test_gen.h"

#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GOLDEN   "tests/gen/golden/texts.txt"
#define SHOWN    10 /* names of each kind of difference */
#define LONGEST  256
#define KERNELS  "static const struct qn_kernel kernels[]"
#define RECIPES  "static const struct qn_recipe recipes[]"
#define REJECTED "static const struct qn_rejected rejected[]"

static const char *const whole[] = {
    "quern_bf16_dgrad_nn_m_bf16_scale_sm80_tile64x64x32",
    "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x256x64_cluster1x1",
    "quern_bf16_wgrad_nt_k_f32_add_sm90a_pingpong_tile128x128x64_cluster1x1_"
    "fetch",
    "quern_fp8_block_fprop_tn_m_bf16_sm90a_cooperative_tile128x256x128_"
    "cluster1x1",
    "quern_mxfp8_fprop_tn_m_bf16_sm90a_cooperative_tile128x256x64_cluster1x1_"
    "registers",
    "quern_mxfp8_quantize_x_bf16_sm90a",
};

enum { WHOLE = sizeof whole / sizeof whole[0] };

/* The hashes of a kernel; those of text and descriptor without its
   architecture are `plain`. */
struct line {
    char text[17], described[9], plain[33];
    int done; /* it is on the line of another */
};

/* The texts made, and how many differences from golden files were shown. */
struct net {
    struct qg *q;
    FILE *lines;
    int different;
};

/* ------------------------------------------------------------------ hashing */

static void add(SHA2_CTX *sum, const char *text, size_t length)
{
    SHA256Update(sum, (const uint8_t *)text, length);
}

static void finish(SHA2_CTX *sum, char *hash)
{
    SHA256End(sum, hash);
    assert_int_equal(strlen(hash), 64);
}

/* The length of a line, with its end. */
static size_t line_length(const char *line)
{
    size_t length = strcspn(line, "\n");

    return length + (line[length] == '\n');
}

/* The line of a text's header that has this name. */
static const char *find_field(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    assert_non_null(at);
    return at;
}

/* A text without its key, which follows from the rest, and without the line
   number of its spec; the caller frees it. */
static char *without_header(const char *text)
{
    const char *spec = find_field(text, "** spec      ");
    const char *key = find_field(spec, "** key       ");
    const char *end = strchr(spec, '\n'), *number = end;
    char *copy = malloc(strlen(text) + 1);

    assert_non_null(copy);
    while (number[-1] >= '0' && number[-1] <= '9')
        number--;
    assert_int_equal(number[-1], ':');
    assert_true(number < end && end < key);
    sprintf(copy, "%.*s%.*s%s", (int)(number - text), text, (int)(key - end),
            end, key + line_length(key));
    return copy;
}

/* Add the lines from `begin` to `end` but for those that change with anything:
   numbers of lines, hashes, which of the shared lists is meant, evidence. */
static void add_lines(SHA2_CTX *sum, const char *begin, const char *end)
{
    static const char *const changing[] = {
        "     .spec = ",  "     .key = ", "     .params = ",
        "     .rules = ", "     .ran = ", "     .interpreted = "};

    for (const char *at = begin; at < end; at += line_length(at)) {
        int left_out = 0;

        for (size_t i = 0; i < sizeof changing / sizeof changing[0]; i++)
            left_out |= !strncmp(at, changing[i], strlen(changing[i]));
        if (!left_out)
            add(sum, at, line_length(at));
    }
}

/* The text of the kernel's architecture without it, in place: "sm_80" as the
   field has it, "sm80" as the name does. */
static void drop_arch(char *text, const char *arch)
{
    char as_name[16];

    if (strncmp(arch, "sm_", 3))
        return;
    snprintf(as_name, sizeof as_name, "sm%s", arch + 3);
    for (const char *words[] = {arch, as_name}, **w = words; w < words + 2; w++)
        for (char *at = text; (at = strstr(at, *w));)
            memmove(at, at + strlen(*w), strlen(at + strlen(*w)) + 1);
}

/* The hash of lines with the lists that the kernel shares with others. */
static void hash_lines(const struct qn_kernel *kernel, const char *begin,
                       const char *end, char *hash)
{
    SHA2_CTX sum;

    SHA256Init(&sum);
    add_lines(&sum, begin, end);
    add(&sum, (const char *)kernel->params, (size_t)kernel->nparams);
    for (int i = 0; i < kernel->nrules; i++) {
        add(&sum, kernel->rules[i].text, strlen(kernel->rules[i].text));
        add(&sum, kernel->rules[i].reason, strlen(kernel->rules[i].reason));
    }
    finish(&sum, hash);
}

/* A kernel's descriptor, as it is and without its architecture; returns where
   the next one begins. */
static const char *hash_descriptor(const struct qn_kernel *kernel,
                                   const char *begin, struct line *line)
{
    const char *end = strstr(begin, "\n    },\n");
    char name[LONGEST], hash[SHA256_DIGEST_STRING_LENGTH], *copy;

    assert_non_null(end);
    end += strlen("\n    },\n");
    snprintf(name, sizeof name, "     .name = \"%s\",\n", kernel->name);
    assert_non_null(strstr(begin, name));
    assert_true(strstr(begin, name) < end);
    hash_lines(kernel, begin, end, hash);
    snprintf(line->described, sizeof line->described, "%.8s", hash);
    copy = strndup(begin, (size_t)(end - begin));
    assert_non_null(copy);
    drop_arch(copy, kernel->arch);
    hash_lines(kernel, copy, copy + strlen(copy), hash);
    snprintf(line->plain + 16, sizeof line->plain - 16, "%.16s", hash);
    free(copy);
    return end;
}

/* ------------------------------------------------------------------- making */

static const char *find_kernels(const char *registry)
{
    const char *at = strstr(registry, KERNELS);

    assert_non_null(at);
    return at + line_length(at);
}

/* One of the registry's lists. */
static void write_list(struct net *net, const char *registry, const char *begin,
                       const char *name)
{
    char hash[SHA256_DIGEST_STRING_LENGTH];
    const char *at = strstr(registry, begin);
    const char *end = at ? strstr(at, "\n};\n") : NULL;
    SHA2_CTX sum;

    assert_non_null(end);
    SHA256Init(&sum);
    add_lines(&sum, at, end);
    finish(&sum, hash);
    fprintf(net->lines, "%.16s %.8s %s\n", hash, hash, name);
}

/* A kernel that may be launched before the launch before it has ended waits
   itself; older architectures cannot. */
static int must_wait(const char *arch)
{
    return !strncmp(arch, "sm_", 3) && atoi(arch + 3) >= 90;
}

/* The text of a kernel, once it was seen to be one; see without_header. */
static char *make_text(struct net *net, const struct qn_kernel *kernel)
{
    const char *text;
    size_t length;

    assert_int_equal(qg_source(net->q, kernel->name, &text, &length), 0);
    assert_int_equal(strlen(text), length);
    assert_non_null(strstr(text, kernel->name));
    assert_non_null(strstr(text, kernel->key));
    assert_null(strstr(text, "#include"));
    assert_int_equal(strstr(text, "griddepcontrol.wait") != NULL,
                     must_wait(kernel->arch));
    return without_header(text);
}

static void hash_text(const char *text, char *hash)
{
    SHA2_CTX sum;

    SHA256Init(&sum);
    add(&sum, text, strlen(text));
    finish(&sum, hash);
}

/* A line for each kernel, with the hashes of its text; the caller frees
   them. */
static struct line *hash_texts(struct net *net)
{
    const struct quern_registry *registry = qg_registry(net->q);
    struct line *lines = calloc((size_t)registry->nkernels, sizeof *lines);

    assert_non_null(lines);
    for (int i = 0; i < registry->nkernels; i++) {
        char hash[SHA256_DIGEST_STRING_LENGTH];
        char *text = make_text(net, &registry->kernels[i]);

        hash_text(text, hash);
        snprintf(lines[i].text, sizeof lines[i].text, "%.16s", hash);
        drop_arch(text, registry->kernels[i].arch);
        hash_text(text, hash);
        snprintf(lines[i].plain, sizeof lines[i].plain, "%.16s", hash);
        free(text);
    }
    return lines;
}

/* The line of a kernel, with the architectures of those that are alike: texts
   without architectures have the kernel's name without it. */
static void write_line(struct net *net, struct line *lines, int at)
{
    const struct quern_registry *registry = qg_registry(net->q);

    if (lines[at].done)
        return;
    fprintf(net->lines, "%s %s %s", lines[at].text, lines[at].described,
            registry->kernels[at].name);
    for (int i = at + 1; i < registry->nkernels; i++)
        if (!strcmp(lines[i].plain, lines[at].plain)) {
            lines[i].done = 1;
            fprintf(net->lines, " %s", registry->kernels[i].arch);
        }
    fputc('\n', net->lines);
}

/* A line for each kernel, and before them those of the registry's lists. The
   registry's text has the kernels in the same order. */
static void write_lines(struct net *net)
{
    static const struct qg_link link = {"qn_registry_builtin", 1, NULL, NULL};
    const struct quern_registry *registry = qg_registry(net->q);
    struct line *lines = hash_texts(net);
    const char *text, *at;
    size_t length;

    assert_int_equal(qg_registry_text(net->q, NULL, &link, &text, &length), 0);
    write_list(net, text, RECIPES, "(recipes)");
    write_list(net, text, REJECTED, "(rejected)");
    at = find_kernels(text);
    for (int i = 0; i < registry->nkernels; i++)
        at = hash_descriptor(&registry->kernels[i], at, &lines[i]);
    for (int i = 0; i < registry->nkernels; i++)
        write_line(net, lines, i);
    free(lines);
}

/* ---------------------------------------------------------------- comparing */

enum { CHANGED, DESCRIBED, APPEARED, VANISHED, KINDS };

static const char *const kinds[KINDS] = {"text changed",
                                         "descriptor changed (text as before)",
                                         "appeared", "vanished"};

static void note(int *counts, int kind, const char *line)
{
    if (counts[kind]++ < SHOWN)
        print_error("%s: %.*s\n", kinds[kind], (int)strcspn(line, "\n"), line);
}

/* Names follow two hashes. */
static const char *name_of(const char *line)
{
    return line + 16 + 1 + 8 + 1;
}

/* By name; a list that is at its end comes last. */
static int compare(const char *made, const char *kept)
{
    const char *a, *b;
    size_t length;
    int order;

    if (!*made || !*kept)
        return !*made - !*kept;
    a = name_of(made), b = name_of(kept);
    length = strcspn(a, "\n");
    if (length > strcspn(b, "\n"))
        length = strcspn(b, "\n");
    order = strncmp(a, b, length);
    return order ? order : (int)strcspn(a, "\n") - (int)strcspn(b, "\n");
}

/* Both lists are sorted. Returns how many lines differ. */
static int compare_lists(const char *made, const char *kept)
{
    int counts[KINDS] = {0}, total = 0;

    while (*made || *kept) {
        int order = compare(made, kept);

        if (order < 0)
            note(counts, APPEARED, name_of(made));
        else if (order > 0)
            note(counts, VANISHED, name_of(kept));
        else if (strncmp(made, kept, 16) != 0)
            note(counts, CHANGED, name_of(made));
        else if (strncmp(made, kept, 25) != 0)
            note(counts, DESCRIBED, name_of(made));
        made += order <= 0 ? line_length(made) : 0;
        kept += order >= 0 ? line_length(kept) : 0;
    }
    for (int i = 0; i < KINDS; i++) {
        if (counts[i])
            print_error("%s: %d in all\n", kinds[i], counts[i]);
        total += counts[i];
    }
    return total;
}

/* The first line that differs. */
static void show_line(const char *path, const char *made, const char *kept)
{
    int number = 1;

    while (*made && line_length(made) == line_length(kept) &&
           !strncmp(made, kept, line_length(made))) {
        made += line_length(made);
        kept += line_length(kept);
        number++;
    }
    print_error("%s:%d: is  %.*s\n", path, number, (int)strcspn(made, "\n"),
                made);
    print_error("%s:%d: was %.*s\n", path, number, (int)strcspn(kept, "\n"),
                kept);
}

/* A file's text, or with QUERN_ACCEPT the one that was made; the caller frees
   it. */
static char *accept_or_read(const char *path, const char *made)
{
    size_t length;
    char *kept;

    if (getenv("QUERN_ACCEPT"))
        file_write(path, made);
    kept = file_read(path, &length);
    if (!kept)
        fail_msg("%s is missing: make golden", path);
    return kept;
}

static void check_whole(struct net *net, const char *name)
{
    char path[LONGEST], *made, *kept;
    const struct qn_kernel *kernel = qg_source_kernel(net->q, name);

    if (!kernel)
        fail_msg("%s is kept whole, and there is none", name);
    snprintf(path, sizeof path, "tests/gen/golden/kernels/%s.cu.txt", name);
    made = make_text(net, kernel);
    kept = accept_or_read(path, made);
    if (strcmp(made, kept) != 0) {
        show_line(path, made, kept);
        net->different++;
    }
    free(made);
    free(kept);
}

/* Before any text was asked for. */
static void check_registry(const struct quern_registry *registry)
{
    int shipped = 0;

    assert_int_equal(strlen(registry->hash), 64);
    for (int i = 0; i < registry->nkernels; i++) {
        assert_null(registry->kernels[i].key);
        shipped += registry->kernels[i].shipped;
    }
    assert_in_range(shipped, 1, 300);
}

/* The specs and templates of this tree: they load, each file is made, and it is
   the one that was accepted. */
TEST(embedded_texts)
{
    struct net net = {.different = 0};
    size_t size;
    char *made, *kept;

    assert_int_equal(qg_open(NULL, 0, &net.q), 0);
    assert_string_equal(qg_diagnostics(net.q), "");
    check_registry(qg_registry(net.q));
    net.lines = open_memstream(&made, &size);
    assert_non_null(net.lines);
    write_lines(&net);
    assert_int_equal(fclose(net.lines), 0);
    kept = accept_or_read(GOLDEN, made);
    net.different = compare_lists(made, kept);
    for (int i = 0; i < WHOLE; i++)
        check_whole(&net, whole[i]);
    free(made);
    free(kept);
    qg_close(net.q);
    if (net.different)
        fail_msg("texts differ from the golden ones; if that is meant: make "
                 "golden, and read the difference");
}
