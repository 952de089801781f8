/* SPDX-License-Identifier: Apache-2.0 */
/* trip_test.c: a small checkpoint there and back, and with one thing wrong. */
#define _GNU_SOURCE
#define TEST_SETUP    pack_folder_make
#define TEST_TEARDOWN pack_folder_remove
#include "test_pack.h"

#include "base/error.h"
#include "base/text.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYER "model.layers.7.mlp.experts."
#define INDEX "model.safetensors.index.json"

struct row {
    const char *name, *type, *shape;
    int bytes;
};

enum { ROWS = 7 };

/* Two experts with hidden = ffn = 32. */
static const struct row gpt_oss[ROWS] = {
    {LAYER "gate_up_proj_blocks", "U8", "2,64,1,16", 2048},
    {LAYER "gate_up_proj_scales", "U8", "2,64,1", 128},
    {LAYER "gate_up_proj_bias", "BF16", "2,64", 256},
    {LAYER "down_proj_blocks", "U8", "2,32,1,16", 1024},
    {LAYER "down_proj_scales", "U8", "2,32,1", 64},
    {LAYER "down_proj_bias", "BF16", "2,32", 128},
    {"norm", "F32", "3", 12},
};

/* Write the rows that have a name. */
static void write_rows(const char *name, const struct row *rows, int count)
{
    struct qn_text header = {0};
    int at = 0;

    qn_text_add(&header, "{");
    for (int i = 0; i < count; i++) {
        if (!rows[i].name)
            continue;
        qn_text_add(&header,
                    "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                    "\"data_offsets\":[%d,%d]}",
                    header.length > 1 ? "," : "", rows[i].name, rows[i].type,
                    rows[i].shape, at, at + rows[i].bytes);
        at += rows[i].bytes;
    }
    qn_text_add(&header, "}");
    assert_false(header.failed);
    pack_file(name, header.data, (size_t)at);
    qn_text_free(&header);
}

static struct quern_context *open_library(void)
{
    static const struct quern_open_options options = {.size = sizeof options,
                                                      .cache = ""};
    struct quern_context *ctx;

    assert_int_equal(quern_open(&options, &ctx), QUERN_OK);
    return ctx;
}

/* Pack files, of which the second may be NULL. */
static int pack(struct quern_context *ctx, const char *one, const char *two,
                const struct qn_pack_options *options, const char *to)
{
    struct qn_checkpoint checkpoint;
    struct qn_pack plan = {0};
    char first[256], second[256];
    char *const paths[] = {first, second};
    int code;

    strcpy(first, pack_path(one));
    strcpy(second, pack_path(two ? two : one));
    code = qn_checkpoint_open(&checkpoint, paths, two ? 2 : 1);
    if (!code)
        code = qn_pack_plan(&plan, ctx, &checkpoint, options);
    if (!code)
        code = qn_pack_check(&plan);
    if (!code)
        code = qn_pack_write(&plan, pack_path(to), NULL, NULL);
    qn_pack_free(&plan);
    qn_checkpoint_close(&checkpoint);
    return code;
}

static int undo(struct quern_context *ctx, const char *path, const char *folder)
{
    uint64_t bytes;
    int files;

    return qn_pack_undo(ctx, pack_path(path), pack_path(folder), &files, &bytes,
                        NULL, NULL);
}

static void assert_same(const char *one, const char *two)
{
    size_t counts[2];
    char *bytes[] = {pack_read(one, &counts[0]), pack_read(two, &counts[1])};

    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(bytes[0], bytes[1], counts[0]);
    free(bytes[0]);
    free(bytes[1]);
}

static const struct qn_pack_options usual;

TEST(a_checkpoint_comes_back)
{
    struct quern_context *ctx = open_library();
    struct qn_safetensors packed;
    const struct qn_safetensor *w1;

    write_rows("a.safetensors", gpt_oss, 3);
    write_rows("b.safetensors", gpt_oss + 3, ROWS - 3);
    assert_int_equal(pack(ctx, "b.safetensors", "a.safetensors", &usual, "p"),
                     QUERN_OK);
    assert_int_equal(qn_safetensors_open(&packed, pack_path("p")), QUERN_OK);
    w1 = qn_safetensors_find(&packed, LAYER "w1");
    assert_non_null(w1);
    assert_int_equal(w1->bytes, 2048);
    assert_int_equal((packed.data + w1->begin) % 64, 0);
    qn_safetensors_close(&packed);
    assert_int_equal(undo(ctx, "p", "again"), QUERN_OK);
    assert_same("a.safetensors", "again/a.safetensors");
    assert_same("b.safetensors", "again/b.safetensors");
    assert_int_equal(pack_count("again"), 2);
    assert_int_equal(undo(ctx, "p", "again"), QUERN_EINVAL); /* they exist */
    assert_int_equal(pack_count("again"), 2);
    assert_int_equal(pack(ctx, "p", NULL, &usual, "q"), QUERN_EINVAL);
    assert_non_null(strstr(qn_error_text(), "it is packed already"));
    quern_close(ctx);
}

/* One row of the checkpoint is another, or none. */
static const struct {
    int row;
    struct row other;
    const char *says;
} wrong[] = {
    {0, {LAYER "gate_up_proj_blocks", "U8", "2,64,16", 2048}, "of four axes"},
    {0, {LAYER "gate_up_proj_blocks", "U8", "2,64,2,8", 2048}, "[experts, ro"},
    {0, {LAYER "gate_up_proj_blocks", "U8", "0,64,1,16", 0}, "1 to 1024 exp"},
    {0,
     {LAYER "gate_up_proj_blocks", "I8", "2,64,1,16", 2048},
     "no experts of"},
    {0, {LAYER "w1", "U8", "2,64,1,16", 2048}, "no experts of a known format"},
    {1, {0}, LAYER "gate_up_proj_scales' is missing"},
    {1,
     {LAYER "gate_up_proj_scales", "U8", "2,32,2", 128},
     "it is U8 [2, 32, 2]; U8 [2, 64, 1] is expected"},
    {1,
     {LAYER "gate_up_proj_scales", "BF16", "2,64,1", 256},
     "it is BF16 [2, 64, 1]; U8 [2, 64, 1] is expected"},
    {2,
     {LAYER "gate_up_proj_bias", "F16", "2,64", 256},
     "it is F16 [2, 64]; BF16 [2, 64] is expected"},
    {3,
     {LAYER "down_proj_blocks", "U8", "1,32,2,16", 1024},
     "it is U8 [2, 32, 1]; U8 [1, 32, 2] is expected"},
    {5, {0}, LAYER "down_proj_bias' is missing"},
    {6, {LAYER "w1.sf", "F32", "3", 12}, "an operand would have its name"},
    {6, {"quern.header/a", "F32", "3", 12}, "begin with quern.header/"},
    {6, {LAYER "0.up_proj.qweight", "I32", "3", 12}, NULL},
};

TEST(wrong_checkpoints_are_refused)
{
    struct quern_context *ctx = open_library();
    struct row rows[ROWS];

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int code;

        memcpy(rows, gpt_oss, sizeof rows);
        rows[wrong[i].row] = wrong[i].other;
        write_rows("a.safetensors", rows, ROWS);
        code = pack(ctx, "a.safetensors", NULL, &usual, "p");
        if (!wrong[i].says) {
            assert_int_equal(code, QUERN_OK);
            continue;
        }
        if (code != QUERN_EINVAL || !strstr(qn_error_text(), wrong[i].says))
            fail_msg("%zu: %d, %s", i, code, qn_error_text());
        assert_int_equal(pack_count("."), 1);
    }
    quern_close(ctx);
}

/* A folder's index, and how the error goes. */
static const struct {
    const char *text, *says;
} indices[] = {
    {"[1]", "weight_map: an object"},
    {"{\"weight_map\":{}} and more", "it is no JSON"},
    {"{\"weight_map\":[\"a.safetensors\"]}", "weight_map: an object"},
    {"{\"weight_map\":\"a.safetensors\"}", "weight_map: an object"},
    {"{\"weight_map\":{\"norm\":3}}", "has it in '?', which is missing"},
    {"{\"weight_map\":{\"norm\":\"b.safetensors\"}}",
     "which has no such tensor"},
    {"{\"weight_map\":{\"norm\":\"a.safetensors\"}}", NULL},
    {NULL, "no plain file"}, /* a fifo */
};

TEST(indices_are_checked)
{
    static const struct row other = {"other", "F32", "1", 4};
    struct quern_context *ctx = open_library();

    write_rows("a.safetensors", gpt_oss, ROWS);
    write_rows("b.safetensors", &other, 1);
    for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++) {
        int code;

        unlink(pack_path(INDEX));
        if (indices[i].text)
            pack_bytes(INDEX, indices[i].text, strlen(indices[i].text));
        else
            assert_int_equal(mkfifo(pack_path(INDEX), 0600), 0);
        code = pack(ctx, ".", NULL, &usual, "p");
        if (!indices[i].says)
            assert_int_equal(code, QUERN_OK);
        else if (code != QUERN_EINVAL ||
                 !strstr(qn_error_text(), indices[i].says))
            fail_msg("%zu: %d, %s", i, code, qn_error_text());
        unlink(pack_path("p"));
    }
    quern_close(ctx);
}

/* With this in the message. */
static void expect_refused(struct quern_context *ctx, const char *first,
                           const char *second,
                           const struct qn_pack_options *options,
                           const char *says)
{
    assert_int_equal(pack(ctx, first, second, options, "p"), QUERN_EINVAL);
    assert_non_null(strstr(qn_error_text(), says));
}

/* --undo writes no other names. */
TEST(names_of_files_are_checked)
{
    struct quern_context *ctx = open_library();

    write_rows("model.bin", gpt_oss, ROWS);
    expect_refused(ctx, "model.bin", NULL, &usual, "ends with .safetensors");
    assert_int_equal(pack_count("."), 1);
    quern_close(ctx);
}

/* The new file's header keeps files' names and the pattern of layers. */
TEST(names_without_utf8_are_refused)
{
    const struct qn_pack_options pattern = {.experts_of = "*[\xff.]*"};
    struct quern_context *ctx = open_library();

    write_rows("a.safetensors", gpt_oss, ROWS);
    write_rows("\xff.safetensors", gpt_oss, ROWS);
    expect_refused(ctx, "a.safetensors", NULL, &pattern,
                   "it must be valid UTF-8");
    expect_refused(ctx, "\xff.safetensors", NULL, &usual,
                   "must be valid UTF-8");
    assert_int_equal(pack_count("."), 2);
    quern_close(ctx);
}

TEST(mixed_checkpoints_are_refused)
{
    static const struct row deepseek[] = {
        {"x.experts.0.gate_proj.weight", "F8_E4M3", "2,2", 4},
        {"x.experts.0.gate_proj.weight_scale_inv", "F32", "1,1", 4},
    };
    const struct qn_pack_options named = {.format = "gpt-oss"},
                                 unknown = {.format = "gpt-os"},
                                 other = {.experts_of = "nothing"};
    struct quern_context *ctx = open_library();

    write_rows("a.safetensors", gpt_oss, ROWS);
    write_rows("b.safetensors", deepseek, 2);
    expect_refused(ctx, "a.safetensors", "b.safetensors", &usual,
                   "it has the format deepseek, and");
    expect_refused(ctx, "a.safetensors", "a.safetensors", &usual,
                   "files must have different names");
    expect_refused(ctx, "a.safetensors", NULL, &unknown,
                   "did you mean 'gpt-oss'?");
    expect_refused(ctx, "a.safetensors", NULL, &other,
                   "--experts-of 'nothing'");
    assert_int_equal(pack_count("."), 2);
    assert_int_equal(pack(ctx, "a.safetensors", "b.safetensors", &named, "p"),
                     QUERN_OK);
    quern_close(ctx);
}

/* A scale of 255 is NaN. */
TEST(scales_of_nan_are_refused)
{
    struct quern_context *ctx = open_library();
    size_t count;
    char *bytes;

    write_rows("a.safetensors", gpt_oss, ROWS);
    bytes = pack_read("a.safetensors", &count);
    bytes[count - 12 - 128 - 1] = (char)255;
    pack_bytes("a.safetensors", bytes, count);
    free(bytes);
    assert_int_equal(pack(ctx, "a.safetensors", NULL, &usual, "p"),
                     QUERN_EINVAL);
    assert_non_null(strstr(qn_error_text(),
                           LAYER "down_proj_scales': a scale is 255, which is "
                                 "NaN: element 63 is 255"));
    assert_int_equal(pack_count("."), 1);
    quern_close(ctx);
}

/* One expert with hidden = ffn = 160: five blocks, and the first four share a
   power of two. Writes `scales` over the last row of w2, and its codes. */
static void write_rebased(const unsigned char scales[5], int codes)
{
    static const struct row rows[] = {
        {LAYER "down_proj_bias", "BF16", "1,160", 320},
        {LAYER "gate_up_proj_blocks", "U8", "1,320,5,16", 25600},
        {LAYER "gate_up_proj_scales", "U8", "1,320,5", 1600},
        {LAYER "gate_up_proj_bias", "BF16", "1,320", 640},
        {LAYER "down_proj_blocks", "U8", "1,160,5,16", 12800},
        {LAYER "down_proj_scales", "U8", "1,160,5", 800},
    };
    size_t count;
    char *bytes;

    write_rows("a.safetensors", rows, 6);
    bytes = pack_read("a.safetensors", &count);
    memset(bytes + count - 800, 120, 800);
    memset(bytes + count - 800 - 12800 - 640 - 1600, 120, 1600);
    memcpy(bytes + count - 5, scales, 5);
    memset(bytes + count - 800 - 5 * 16, codes, 5 * 16);
    pack_bytes("a.safetensors", bytes, count);
    free(bytes);
}

/* Two codes of each byte, 2^14 and further below the largest of four scales;
   the fifth block has others. */
static const struct {
    unsigned char scales[5];
    int codes;
    const char *says;
} far[] = {
    {{120, 106, 120, 120, 1}, 0x11, NULL},
    {{1, 120, 120, 120, 120}, 0x80, NULL},
    {{255, 120, 120, 120, 120}, 0x80, "a scale is 255"},
    {{254, 120, 120, 120, 120}, 0x00, NULL},
    {{105, 120, 120, 120, 1}, 0x7a, NULL},
    {{120, 105, 120, 120, 120},
     0x13,
     "expert 0, row 159, block 1: its scale is 105 and another one within 128 "
     "values of k is 120, and recipe w4a8_mxfp4 multiplies e4m3, which holds "
     "each value only down to 106"},
    {{120, 120, 120, 104, 120}, 0x6c, NULL},
    {{120, 120, 120, 104, 120}, 0x62, "row 159, block 3: its scale is 104"},
    {{103, 120, 120, 120, 120}, 0xee, NULL},
    {{103, 120, 120, 120, 120}, 0xe7, "row 159, block 0: its scale is 103"},
    {{120, 102, 120, 120, 120}, 0x06, "row 159, block 1: its scale is 102"},
};

TEST(blocks_too_far_for_e4m3_are_refused)
{
    const struct qn_pack_options rebased = {.recipe = "w4a8_mxfp4"};
    struct quern_context *ctx = open_library();

    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        int code;

        write_rebased(far[i].scales, far[i].codes);
        code = pack(ctx, "a.safetensors", NULL, &rebased, "p");
        if (code != (far[i].says ? QUERN_EINVAL : QUERN_OK) ||
            (code && !strstr(qn_error_text(), far[i].says)))
            fail_msg("%zu: %d, %s", i, code, qn_error_text());
        if (code) {
            assert_int_equal(pack_count("."), 1);
            assert_int_equal(pack(ctx, "a.safetensors", NULL, &usual, "p"),
                             strstr(far[i].says, "255") ? QUERN_EINVAL
                                                        : QUERN_OK);
        } else {
            assert_int_equal(undo(ctx, "p", "again"), QUERN_OK);
            assert_same("a.safetensors", "again/a.safetensors");
            pack_remove("again");
        }
        unlink(pack_path("p"));
    }
    quern_close(ctx);
}

/* One expert of GPTQ with hidden = ffn = 128: codes, a scale for each row, and
   zero points less one, whose bytes are `zeros`. */
static void write_gptq(int zeros)
{
    static const struct row rows[] = {
        {LAYER "0.gate_proj.qweight", "I32", "16,128", 8192},
        {LAYER "0.up_proj.qweight", "I32", "16,128", 8192},
        {LAYER "0.down_proj.qweight", "I32", "16,128", 8192},
        {LAYER "0.gate_proj.scales", "F16", "1,128", 256},
        {LAYER "0.up_proj.scales", "F16", "1,128", 256},
        {LAYER "0.down_proj.scales", "F16", "1,128", 256},
        {LAYER "0.gate_proj.qzeros", "I32", "1,16", 64},
        {LAYER "0.up_proj.qzeros", "I32", "1,16", 64},
        {LAYER "0.down_proj.qzeros", "I32", "1,16", 64},
    };
    enum { SCALES = 3 * 256, ZEROS = 3 * 64 };
    size_t count;
    char *bytes;

    write_rows("a.safetensors", rows, 9);
    bytes = pack_read("a.safetensors", &count);
    for (size_t i = count - ZEROS - SCALES; i < count - ZEROS; i++)
        bytes[i] &= 0x3b; /* no NaN */
    memset(bytes + count - ZEROS, zeros, ZEROS);
    pack_bytes("a.safetensors", bytes, count);
    free(bytes);
}

static void assert_same_operands(const char *one, const char *two)
{
    static const char *const names[] = {"w1", "w1.sf", "w2", "w2.sf"};
    struct qn_safetensors files[2];

    assert_int_equal(qn_safetensors_open(&files[0], pack_path(one)), QUERN_OK);
    assert_int_equal(qn_safetensors_open(&files[1], pack_path(two)), QUERN_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsigned char bytes[2][1 << 15];
        const struct qn_safetensor *t[2];
        char name[128];

        snprintf(name, sizeof name, LAYER "%s", names[i]);
        for (int f = 0; f < 2; f++) {
            t[f] = qn_safetensors_find(&files[f], name);
            assert_non_null(t[f]);
            assert_true(t[f]->bytes && t[f]->bytes <= sizeof bytes[f]);
            assert_int_equal(
                qn_safetensors_read(&files[f], t[f], 0, bytes[f], t[f]->bytes),
                QUERN_OK);
        }
        assert_int_equal(t[0]->type, t[1]->type);
        assert_int_equal(t[0]->bytes, t[1]->bytes);
        assert_memory_equal(bytes[0], bytes[1], t[0]->bytes);
    }
    qn_safetensors_close(&files[0]);
    qn_safetensors_close(&files[1]);
}

/* The recipe that GPTQ's zero points need, and that for activations in FP16. */
TEST(activations_in_fp16_have_the_same_operands)
{
    static const struct {
        int zeros;
        const char *bf16, *fp16, *fails;
    } rows[] = {
        {0x77, "w4a16_int4", "w4a16_int4_fp16", NULL},
        {0x77, "w4a16_int4_zeros", "w4a16_int4_zeros_fp16", NULL},
        {0x5c, "w4a16_int4_zeros", "w4a16_int4_zeros_fp16", "w4a16_int4_fp16"},
    };
    struct quern_context *ctx = open_library();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct qn_pack_options bf16 = {.recipe = rows[i].bf16},
                                     fp16 = {.recipe = rows[i].fp16},
                                     fails = {.recipe = rows[i].fails};

        write_gptq(rows[i].zeros);
        assert_int_equal(pack(ctx, "a.safetensors", NULL, &bf16, "p"),
                         QUERN_OK);
        assert_int_equal(pack(ctx, "a.safetensors", NULL, &fp16, "q"),
                         QUERN_OK);
        assert_same_operands("p", "q");
        assert_int_equal(undo(ctx, "q", "again"), QUERN_OK);
        assert_same("a.safetensors", "again/a.safetensors");
        pack_remove("again");
        unlink(pack_path("q"));
        if (fails.recipe) {
            assert_int_equal(pack(ctx, "a.safetensors", NULL, &fails, "q"),
                             QUERN_EINVAL);
            assert_non_null(strstr(qn_error_text(), "that stores them, such"));
        }
        unlink(pack_path("p"));
    }
    quern_close(ctx);
}

/* A packed file that someone changed; each text is as long as before. */
static const struct {
    const char *from, *to, *says;
} changed[] = {
    {"quern.header/m.safe", "quern.header//.safe", "its name must end with"},
    {"quern.header/m.safe", "quern.header/..safe", "its name must end with"},
    {"quern.header/m.safe", "queer.header/m.safe", "no experts of"},
    {"experts.w2.sf", "experts.w3.sf", "experts.w2.sf': it is missing"},
    {"{\\\"version\\\":1", "{\\\"version\\\":9", "not written by this version"},
    {"w4a16_mxfp4\\\",\\\"layers", "w4a16_mxfp5\\\",\\\"layers",
     "recipe 'w4a16_mxfp5' is unknown"},
    {"BF16\",\"shape\":[2,32", "BF16\",\"shape\":[2,33", "as its shape needs"},
};

TEST(changed_files_are_refused)
{
    struct quern_context *ctx = open_library();
    size_t count;
    char *bytes;

    write_rows("m.safetensors", gpt_oss, ROWS);
    assert_int_equal(pack(ctx, "m.safetensors", NULL, &usual, "p"), QUERN_OK);
    bytes = pack_read("p", &count);
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++) {
        const size_t length = strlen(changed[i].from);
        char *at = memmem(bytes, count, changed[i].from, length);

        if (!at)
            fail_msg("no %s", changed[i].from);
        memcpy(at, changed[i].to, length);
        pack_bytes("q", bytes, count);
        memcpy(at, changed[i].from, length);
        if (undo(ctx, "q", "again") != QUERN_EINVAL ||
            !strstr(qn_error_text(), changed[i].says))
            fail_msg("%s: %s", changed[i].to, qn_error_text());
        assert_int_equal(pack_count("again"), -1);
    }
    free(bytes);
    quern_close(ctx);
}

/* Any byte is another one: a sentence, and nothing is left; or another file. */
TEST(damaged_files_are_harmless)
{
    const char *rounds = getenv("QUERN_DAMAGES");
    struct quern_context *ctx = open_library();
    unsigned seed = 1, refused = 0, all = rounds ? (unsigned)atoi(rounds) : 100;
    size_t count;
    char *bytes;

    write_rows("m.safetensors", gpt_oss, ROWS);
    assert_int_equal(pack(ctx, "m.safetensors", NULL, &usual, "p"), QUERN_OK);
    bytes = pack_read("p", &count);
    for (unsigned i = 0; i < all; i++) {
        const size_t at = (size_t)rand_r(&seed) % count;
        const char before = bytes[at];
        int code;

        bytes[at] = (char)rand_r(&seed);
        pack_bytes("q", bytes, count);
        bytes[at] = before;
        code = undo(ctx, "q", "again");
        refused += code != 0;
        assert_true(!code || strchr(qn_error_text(), ' '));
        assert_int_equal(pack_count("again"), code ? -1 : 1);
        if (!code)
            pack_remove("again");
    }
    assert_in_range(refused, all / 20, all - all / 20);
    free(bytes);
    quern_close(ctx);
}

/* Each allocation fails once: an error, and nothing is left. */
TEST(memory_runs_out)
{
    struct quern_context *ctx = open_library();
    int code, count;

    write_rows("m.safetensors", gpt_oss, ROWS);
    test_fail_allocation(0);
    assert_int_equal(pack(ctx, "m.safetensors", NULL, &usual, "p"), QUERN_OK);
    count = test_fail_allocation(0);
    assert_in_range(count, 20, 5000);
    for (int i = 1; i <= count; i++) {
        test_fail_allocation(i);
        code = pack(ctx, "m.safetensors", NULL, &usual, "q");
        test_fail_allocation(0);
        if (!code && unlink(pack_path("q")))
            fail_msg("allocation %d: no file", i);
        assert_int_equal(pack_count("."), 2);
    }
    test_fail_allocation(0);
    assert_int_equal(undo(ctx, "p", "all"), QUERN_OK);
    count = test_fail_allocation(0);
    for (int i = 1; i <= count; i++) {
        test_fail_allocation(i);
        code = undo(ctx, "p", "again");
        test_fail_allocation(0);
        assert_int_equal(pack_count("again"), code ? -1 : 1);
        if (!code)
            pack_remove("again");
    }
    quern_close(ctx);
}
