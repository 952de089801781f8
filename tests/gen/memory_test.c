/* SPDX-License-Identifier: Apache-2.0 */
/*
** memory_test.c: every allocation failed once.
**
** After any failure the call says so, nothing leaks and nothing is half done.
*/
#include "test_gen.h"

#include <stdlib.h>
#include <string.h>

/* The allocator under test: the block's size stands before it. */
struct heap {
    long count;   /* allocations so far */
    long fail_at; /* which one fails, 0: none */
    int for_good; /* and all that follow */
    long blocks;  /* alive */
    size_t bytes, most;
};

static void *resize(void *user, void *memory, size_t bytes)
{
    struct heap *heap = user;
    size_t *block = memory ? (size_t *)memory - 2 : NULL;
    size_t held = block ? *block : 0;

    if (!bytes) {
        heap->bytes -= held;
        heap->blocks -= block != NULL;
        free(block);
        return NULL;
    }
    heap->count++;
    if (heap->fail_at && (heap->count == heap->fail_at ||
                          (heap->for_good && heap->count > heap->fail_at)))
        return NULL;
    heap->blocks += !block;
    block = realloc(block, bytes + 2 * sizeof *block);
    assert_non_null(block);
    *block = bytes;
    heap->bytes += bytes - held;
    if (heap->bytes > heap->most)
        heap->most = heap->bytes;
    return block + 2;
}

/* One of each kind of statement, and a template that includes another. */
static void read_files(struct files *files)
{
    static const char spec[] =
        "layout \"tn\" { a = \"k\", b = \"k\" }\n"
        "ragged \"m\" { a = \"m\", d = \"m\" }\n"
        "storage \"plain\" { order = \"rows\" }\n"
        "recipe \"r\" { element = { x = e4m3, w = e4m3, dy = e4m3 }, "
        "d = bf16,\n scale = blocked { type = e8m0, per = { k = 32 }, "
        "rule = e8m0_up } }\n"
        "kernels \"k\" { op = \"fprop\", element = e4m3, layout = \"tn\", "
        "ragged = \"m\", arch = \"host\",\n template = \"t.c\", "
        "params = { \"a\" }, scale = \"blocked\",\n axis \"x\" { 1, 2 }, "
        "derive \"tile\" (function (v) return { v.x, 1, 1 } end),\n"
        "requires \"k > 0\" \"why\", reject \"no\" (function (v) return "
        "v.x == 2 end) }\n"
        "kernels \"q\" { op = \"quantize\", element = e4m3, of = \"x\", "
        "input = \"bf16\",\n arch = \"host\", template = \"q.c\", "
        "params = { \"k\" }, scale = \"blocked\" }\n";
    static const char template[] = "//$ include \"u.c\"\nint $(name);\n";
    static const char rule[] = "//$ rule \"scale\"\nint $(name);\n";

    files->count = 0;
    files_put(files, "specs/kernels/k.lua", spec, strlen(spec));
    files_put(files, "templates/t.c", template, strlen(template));
    files_put(files, "templates/u.c", "int u;\n", 7);
    files_put(files, "templates/q.c", rule, strlen(rule));
}

/* Kernels that are made one by one. Returns 1 if memory ran out. */
static int work_lazily(struct qg_options options)
{
    static const char kernel[] = "quern_r_fprop_tn_m_bf16_host_x1";
    const char *text;
    size_t length;
    struct qg *q;
    int failed;

    options.lazy = 1;
    failed = qg_open_with(&options, &q);
    assert_int_equal(failed, q == NULL);
    if (!q)
        return 1;
    failed = !qg_source_kernel(q, kernel);
    failed |= qg_source(q, kernel, &text, &length);
    qg_close(q);
    return failed;
}

/* Open, ask, emit, fail on purpose. Returns 1 if memory ran out on the way. */
static int work(struct heap *heap, const struct files *files, const char *out)
{
    struct qg_options options = {.files = files->at,
                                 .files_count = files->count,
                                 .resize = resize,
                                 .user = heap};
    const char *text;
    size_t length;
    struct qg *q;
    int failed = qg_open_with(&options, &q);

    assert_int_equal(failed, q == NULL);
    if (!q)
        return 1;
    assert_int_equal(qg_registry(q)->nkernels, 2);
    failed |= qg_source(q, qg_registry(q)->kernels[0].name, &text, &length);
    failed |= qg_rule_text(q, "r", QN_X, QG_C, &text, &length);
    failed |= qg_emit(q, out, NULL, NULL);
    if (failed)
        assert_string_equal(qg_diagnostics(q), "error: out of memory\n");
    assert_int_equal(qg_source(q, "quern_x", &text, &length), 1);
    qg_close(q);
    return failed | work_lazily(options);
}

/* As many runs as there are allocations. An allocation left alive is a leak. */
static void fail_each(int for_good)
{
    struct files files;
    struct heap heap = {.count = 0};
    long most;
    char out[64];

    read_files(&files);
    folder_make(out);
    assert_int_equal(work(&heap, &files, out), 0);
    assert_int_equal(heap.blocks, 0);
    most = heap.count;
    for (long at = 1; at <= most; at++) {
        heap = (struct heap){.fail_at = at, .for_good = for_good};
        work(&heap, &files, out);
        assert_int_equal(heap.blocks, 0);
        assert_int_equal(heap.bytes, 0);
    }
    folder_remove(out);
    files_free(&files);
}

TEST(no_memory_from_then_on)
{
    fail_each(1);
}

TEST(no_memory_once)
{
    fail_each(0);
}

/* A spec that asks for all there is gets the bound, and a diagnostic. */
TEST(memory_is_bounded)
{
    static const char spec[] = "local s, t = \"0123456789abcdef\", {}\n"
                               "for i = 1, 9 do s = s .. s end\n"
                               "for i = 1, 1000000 do t[i] = s .. i end\n";
    struct heap heap = {.count = 0};
    struct files files = {.count = 0};
    struct qg_options options = {.files = files.at,
                                 .files_count = 1,
                                 .resize = resize,
                                 .user = &heap,
                                 .memory = 8 << 20};
    struct qg *q;

    files_put(&files, "specs/recipes/x.lua", spec, strlen(spec));
    assert_int_equal(qg_open_with(&options, &q), 1);
    assert_non_null(strstr(qg_diagnostics(q),
                           "specs/recipes/x.lua:3: error: more than 8388608 "
                           "bytes of memory are needed"));
    assert_true(heap.most < 9 << 20);
    qg_close(q);
    assert_int_equal(heap.blocks, 0);
    files_free(&files);
}

/* The bound says so where no spec runs, too: while kernels are made of them. */
TEST(memory_for_points)
{
    struct qg_options options = {.memory = 16 << 20};
    struct qg *q;

    assert_int_equal(qg_open_with(&options, &q), 1);
    assert_non_null(q);
    assert_non_null(strstr(qg_diagnostics(q), "error: more than 16777216 "
                                              "bytes of memory are needed"));
    qg_close(q);
}

TEST(steps_of_all_are_bounded)
{
    static const char spec[] = "for i = 1, 1000000 do end\n";
    struct files files = {.count = 0};
    struct qg_options options = {
        .files = files.at, .files_count = 1, .instructions = 100000};
    struct qg *q;

    files_put(&files, "specs/recipes/x.lua", spec, strlen(spec));
    assert_int_equal(qg_open_with(&options, &q), 1);
    assert_non_null(strstr(qg_diagnostics(q),
                           "specs/recipes/x.lua:1: error: all files and "
                           "functions take more than 100000 steps of Lua"));
    qg_close(q);
    files_free(&files);
}
