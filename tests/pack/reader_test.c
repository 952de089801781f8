/* SPDX-License-Identifier: Apache-2.0 */
/* reader_test.c: headers that others wrote. */
#define TEST_SETUP    pack_folder_make
#define TEST_TEARDOWN pack_folder_remove
#include "test_pack.h"

#include "base/error.h"
#include "pack/safetensors_write.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A tensor of 4 bytes, and of the next 4. */
#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
#define B "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}"

#define T(text) "{\"t\":" text "}"
#define U8(shape, offsets)                                                     \
    T("{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":" offsets "}")

static const struct {
    const char *header;
    int data;
    const char *says; /* NULL: it is right */
} headers[] = {
    {"{}", 0, NULL},
    {"{" A "," B "}", 8, NULL},
    {"{" B "," A "}   ", 8, NULL},
    {"{\"__metadata__\":{\"x\":\"y\"}," A "}", 4, NULL},
    {U8("[0,7]", "[0,0]"), 0, NULL},
    {U8("[]", "[0,1]"), 1, NULL},
    {T("{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]}"), 3, NULL},
    {"", 0, "its header is no JSON object"},
    {"[]", 0, "its header is no JSON object"},
    {" {}", 0, "its header is no JSON object"},
    {"{", 0, "its header is no valid JSON"},
    {"{" A "}{}", 4, "text after the JSON object"},
    {"{\"a\\u0000b\":{}}", 0, "its header has a NUL character in a string"},
    {"{\"\xc3\xa4\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1, NULL},
    {"{\"\xe4\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "its header is not valid UTF-8"},
    {"{\"__metadata__\":{\"x\":\"\xc0\x80\"}," A "}", 4,
     "its header is not valid UTF-8"},
    {"{" A "}", 8, "it has bytes after its last tensor"},
    {"{" A "}", 3, "tensor 'a': it ends after the file's end"},
    {"{" A "," A "}", 4, "tensor 'a': it overlaps another tensor"},
    {"{" A ",\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8,
     "tensor 'a': there are two of this name"},
    {"{" B "}", 8, "tensor 'b': there is a gap before it"},
    {"{" A ",\"c\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}", 6,
     "tensor 'c': it overlaps another tensor"},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "it has no name"},
    {T("{\"dtype\":\"U9\",\"shape\":[1],\"data_offsets\":[0,1]}"), 1,
     "tensor 't': its dtype is unknown"},
    {T("{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}"), 1,
     "its dtype is unknown"},
    {T("{\"dtype\":\"U8\",\"dtype\":\"U8\",\"data_offsets\":[0,1]}"), 1,
     "its dtype is unknown"},
    {T("{\"dtype\":\"U8\",\"shape\":[1]}"), 1,
     "it must have dtype, shape and data_offsets"},
    {T("7"), 1, "it must have dtype, shape and data_offsets"},
    {U8("[2]", "[0,1]"), 1, "as far from each other as its shape needs"},
    {U8("[1]", "[1,0]"), 1, "its data_offsets must be two"},
    {U8("[1]", "[0,1,2]"), 1, "its data_offsets must be two"},
    {U8("[1]", "[-1,0]"), 1, "its data_offsets must be two"},
    {U8("[1]", "[0.5,1.5]"), 1, "its data_offsets must be two"},
    {U8("[1]", "[0,\"1\"]"), 1, "its data_offsets must be two"},
    {U8("[1]", "[0,1e300]"), 1, "its data_offsets must be two"},
    {U8("[-1]", "[0,1]"), 1, "its shape must have at most 8 lengths"},
    {U8("[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1,
     "its shape must have at most 8 lengths"},
    {U8("[4294967296,4294967296]", "[0,0]"), 0,
     "its shape must have at most 8 lengths"},
    {U8("[9007199254740992,1024]", "[0,0]"), 0,
     "its shape must have at most 8 lengths"},
    {U8("[9007199254740993]", "[0,1]"), 1, "as far from each other"},
    {U8("7", "[0,1]"), 1, "its shape must have at most 8 lengths"},
    {T("{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}"), 1,
     "as far from each other"},
    {"{\"__metadata__\":{\"x\":1}," A "}", 4, "must have texts only"},
    {"{\"__metadata__\":7," A "}", 4, "__metadata__ must be an object"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "it has two __metadata__"},
};

TEST(headers_are_checked)
{
    struct qn_safetensors file;

    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        int code;

        pack_file("f", headers[i].header, (size_t)headers[i].data);
        code = qn_safetensors_open(&file, pack_path("f"));
        qn_safetensors_close(&file);
        if (!headers[i].says) {
            if (code)
                fail_msg("%s: %s", headers[i].header, qn_error_text());
            continue;
        }
        if (code != QUERN_EINVAL || !strstr(qn_error_text(), headers[i].says) ||
            !strstr(qn_error_text(), pack_path("f")))
            fail_msg("%s: %d, %s", headers[i].header, code, qn_error_text());
    }
}

/* Each length of a file that is right is refused, but its own. */
TEST(truncated_files_are_refused)
{
    struct qn_safetensors file;
    size_t count;
    char *bytes;

    pack_file("f", "{" A "," B "}", 8);
    bytes = pack_read("f", &count);
    for (size_t length = 0; length <= count; length++) {
        int code;

        pack_bytes("g", bytes, length);
        code = qn_safetensors_open(&file, pack_path("g"));
        qn_safetensors_close(&file);
        assert_int_equal(code, length == count ? QUERN_OK : QUERN_EINVAL);
    }
    free(bytes);
}

TEST(lengths_of_headers_are_checked)
{
    static const unsigned char lengths[][8] = {
        {255, 255, 255, 255, 255, 255, 255, 255},
        {248, 255, 255, 255, 255, 255, 255, 127},
        {1, 225, 245, 5},
        {3},
    };
    struct qn_safetensors file;

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        unsigned char bytes[10] = "????????{}";

        memcpy(bytes, lengths[i], 8);
        pack_bytes("f", bytes, sizeof bytes);
        assert_int_equal(qn_safetensors_open(&file, pack_path("f")),
                         QUERN_EINVAL);
        qn_safetensors_close(&file);
    }
    assert_int_equal(qn_safetensors_open(&file, pack_path("none")),
                     QUERN_EINVAL);
    assert_non_null(strstr(qn_error_text(), "No such file"));
    qn_safetensors_close(&file);
    assert_int_equal(qn_safetensors_open(&file, pack_path(".")), QUERN_EINVAL);
    assert_non_null(strstr(qn_error_text(), "it is no plain file"));
    qn_safetensors_close(&file);
}

/* A file that becomes shorter after it was opened. */
TEST(reads_stay_in_the_file)
{
    const struct qn_safetensor *b;
    struct qn_safetensors file;
    char bytes[8];

    pack_file("f", "{" A "," B "}", 8);
    assert_int_equal(qn_safetensors_open(&file, pack_path("f")), QUERN_OK);
    assert_int_equal(file.count, 2);
    b = qn_safetensors_find(&file, "b");
    assert_non_null(b);
    assert_null(qn_safetensors_find(&file, "c"));
    assert_int_equal(qn_safetensors_read(&file, b, 1, bytes, 3), QUERN_OK);
    assert_memory_equal(bytes, "\6\7\10", 3);
    assert_int_equal(qn_safetensors_read(&file, b, 1, bytes, 4), QUERN_EINVAL);
    assert_int_equal(qn_safetensors_read(&file, b, 5, bytes, 0), QUERN_EINVAL);
    assert_int_equal(qn_safetensors_read(&file, b, UINT64_MAX, bytes, 4),
                     QUERN_EINVAL);
    assert_int_equal(truncate(pack_path("f"), 20), 0);
    assert_int_equal(qn_safetensors_read(&file, b, 0, bytes, 4), QUERN_EINVAL);
    assert_non_null(strstr(qn_error_text(), "the file is truncated"));
    qn_safetensors_close(&file);
}

/* A file appears as a whole, never over another one. */
static void write_files(int named)
{
    struct stat st;
    struct qn_safetensors_out out;
    size_t count;
    char *bytes;

    assert_int_equal(qn_safetensors_create(&out, pack_path("f"), "{}  ", 4, 3),
                     QUERN_OK);
    assert_int_equal(qn_safetensors_write(&out, 1, "xy", 2), QUERN_OK);
    assert_int_equal(access(pack_path("f"), F_OK), -1);
    assert_int_equal(pack_count("."), named);
    assert_int_equal(qn_safetensors_publish(&out), QUERN_OK);
    qn_safetensors_discard(&out);
    assert_int_equal(stat(pack_path("f"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    bytes = pack_read("f", &count);
    assert_int_equal(count, 15);
    assert_memory_equal(bytes, "\4\0\0\0\0\0\0\0{}  \0xy", 15);
    free(bytes);
    assert_int_equal(qn_safetensors_create(&out, pack_path("f"), "{}", 2, 0),
                     QUERN_OK);
    assert_int_equal(qn_safetensors_publish(&out), QUERN_EINVAL);
    assert_non_null(strstr(qn_error_text(), "File exists"));
    qn_safetensors_discard(&out);
    assert_int_equal(qn_safetensors_create(&out, pack_path("no/f"), "{}", 2, 0),
                     QUERN_EINVAL);
    qn_safetensors_discard(&out);
    assert_int_equal(pack_count("."), 1);
}

TEST(files_are_written_as_a_whole)
{
    const mode_t mask = umask(027);

    write_files(0);
    assert_int_equal(unlink(pack_path("f")), 0);
    pack_named_only = 1;
    write_files(1);
    pack_named_only = 0;
    umask(mask);
}
