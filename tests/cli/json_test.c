/* SPDX-License-Identifier: Apache-2.0 */
/* json_test.c: results and errors of commands with --json. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "test_cli.h"

#define SMALL    "fprop bf16 g=3 m=50 n=40 k=64"
#define UNSERVED "fprop mxfp4 g=2 m=64 n=64 k=64 dequantize=fp8"

/* Its status; results and errors are in test_output. */
static int quern(const char *arguments)
{
    return test_shell("QUERN_CACHE= '%s/quern' %s 2>&1", test_own_folder(),
                      arguments);
}

#define HOST_KERNEL "quern_bf16_fprop_tn_m_bf16_scale_host"

TEST(test_json_parses)
{
    static const char *const all[] = {
        "recipes --json",
        "recipes --fields --json",
        "list --json",
        "list -k --json",
        "describe fprop bf16 g=8 m=64 n=32 k=16 --json",
        "why fprop bf16 g=2 m=64 n=64 k=64 --backend host --json",
        "why quern_bf16_fprop_tn_m_f32_scale_host --json",
        "run fprop bf16 g=3 m=50 n=40 k=64 --backend host --check --json",
        "bench 'fprop bf16 g=3 m=50 n=40 k=64' --backend host --json -",
        ("bench fprop bf16 g=1 m=5 n=4 k=6 --backend=host --against=host "
         "--json=-"),
        "cache ls --json",
        "cache where --json",
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cJSON *json;
        assert_int_equal(quern(all[i]), 0);
        json = cJSON_Parse(test_output);
        if (!json)
            fail_msg("quern %s: no JSON: %s", all[i], test_output);
        cJSON_Delete(json);
    }
}

/* A row of "kernels" by its state, or NULL. */
static const cJSON *find_state(const cJSON *why, const char *state)
{
    const cJSON *row;

    cJSON_ArrayForEach(row, cJSON_GetObjectItem(why, "kernels"))
    {
        if (!strcmp(cJSON_GetObjectItem(row, "state")->valuestring, state))
            return row;
    }
    return NULL;
}

/* Fields, from which nothing needs to be parsed. */
TEST(test_why_has_fields)
{
    const cJSON *row;
    cJSON *why;

    assert_int_equal(quern("why fprop bf16 g=2 m=64 n=64 k=64 --backend host "
                           "--json"),
                     0);
    why = cJSON_Parse(test_output);
    assert_string_equal(cJSON_GetObjectItem(why, "backend")->valuestring,
                        "host");
    assert_true(cJSON_GetObjectItem(why, "threads")->valueint > 0);
    row = cJSON_GetArrayItem(cJSON_GetObjectItem(why, "runs"), 0);
    assert_string_equal(row->valuestring, HOST_KERNEL);
    row = find_state(why, "serves");
    assert_string_equal(cJSON_GetObjectItem(row, "kernel")->valuestring,
                        HOST_KERNEL);
    assert_true(cJSON_GetObjectItem(row, "cycles")->valuedouble > 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(row, "linked")));
    row = find_state(why, "excluded");
    assert_non_null(strstr(cJSON_GetObjectItem(row, "reason")->valuestring,
                           "not for the host"));
    row = find_state(why, "not made");
    assert_non_null(strstr(cJSON_GetObjectItem(row, "spec")->valuestring,
                           "specs/kernels/"));
    cJSON_Delete(why);
    assert_int_equal(quern("why " HOST_KERNEL " --json"), 0);
    why = cJSON_Parse(test_output);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(why, "exists")));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(why, "tile")), 3);
    cJSON_Delete(why);
    assert_int_equal(quern("why mlp bf16 g=2 m=64 hidden=64 ffn=64 --backend "
                           "host --json"),
                     0);
    why = cJSON_Parse(test_output);
    assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(why, "runs")) > 5);
    cJSON_Delete(why);
}

/* Read by another implementation of JSON, names that are no UTF-8 included. */
TEST(test_json_for_others)
{
    if (test_shell(
            "QUERN_CACHE= '%s/quern' describe " SMALL
            " \"split=@$(printf 'a\\377\\303(\\355\\240\\200b')\" --json "
            "> /tmp/quern-json.$$ && python3 -c 'import json, sys; "
            "json.load(open(sys.argv[1], encoding=\"utf-8\"))' "
            "/tmp/quern-json.$$ 2>&1; status=$?; rm -f /tmp/quern-json.$$; "
            "exit $status",
            test_own_folder()) != 0)
        fail_msg("%s", test_output);
}

/* Errors are one object on stderr: those of options, lines, the library, specs,
   a machine that cannot. Results of before stay on stdout. */
TEST(test_json_errors)
{
    static const struct {
        const char *arguments;
        int status;
        const char *says;
    } cases[] = {
        {"describe fprop bf16 M=8 --json", 2, "'M' is unknown"},
        {"describe --json", 2, "a problem is missing"},
        {"why " SMALL " --json --jsin", 2, "unrecognized option '--jsin'"},
        {"why " SMALL " --json --json", 2, "--json is given twice"},
        {"run fprop test_raw g=1 m=8 n=8 k=8 --backend host --json --specs "
         "tests/cli/specs",
         2, "write: scale = blocked { ... }"},
        {"list --json --specs /none", 2, "/none"},
        {"list 'a\"\\\t\377b' --json", 2, "no kernel matches 'a\"\\\t?b'"},
        {"bench 'fprop bf61' --json -", 2, "did you mean 'bf16'?"},
        {"bench 'fprop bf16 g=1 m=1 n=1 k=1' 'mlp bf16 m=8' --backend host "
         "--json -",
         2, "'mlp bf16 m=8': g= is missing"}, /* before any is timed */
        {"build -o /bin/sh " SMALL " --json", 3,
         "/bin/sh cannot be written: Not a directory"},
        {"bench 'fprop bf61' --repeat 0 --json=-", 2, "--repeat is '0'"},
        {"run " SMALL " --backend jit --json", 3, "libcuda"},
        {"cache nothing --json", 2, "'nothing': it must be one of"},
        {"build --arch sm_99 --json", 2, "there are kernels for"},
        {"build '" UNSERVED "' --arch sm_80 -n --json", 2, "serves"},
        {"emit -o - --json", 2, "-o - prints CUDA C"},
        {"emit -o - --json --specs /none", 2, "/none"},
        {"build --json --specs /none", 2, "/none"},
        {"emit --json -o /proc/x quern_bf16_combine_x_f32_host", 3,
         "cannot write /proc/x"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int status = test_shell("QUERN_CUDA=libcuda.none QUERN_CACHE= "
                                      "'%s/quern' %s 2>&1 >/dev/null",
                                      test_own_folder(), cases[i].arguments);
        cJSON *json = cJSON_Parse(test_output);
        const cJSON *error = cJSON_GetObjectItem(json, "error");

        if (status != cases[i].status || !cJSON_IsString(error) ||
            strchr(test_output, '\n') != strrchr(test_output, '\n') ||
            cJSON_GetObjectItem(json, "status")->valueint != status ||
            !strstr(error->valuestring, cases[i].says) ||
            strncmp(error->valuestring, "error: ", 7) == 0)
            fail_msg("quern %s: status %d: %s", cases[i].arguments, status,
                     test_output);
        cJSON_Delete(json);
    }
    /* a file of JSON leaves the terminal's text as it is */
    assert_int_equal(quern("bench 'fprop bf61' --json /dev/null"), 2);
    assert_non_null(strstr(test_output, "quern bench: error: recipe 'bf61'"));
}

/* The last line on stderr has every kernel that does not compile. */
TEST(test_json_of_build)
{
    const char *line;
    cJSON *json;
    int status = test_shell(
        "folder=$(mktemp -d); QUERN_CACHE= "
        "QUERN_NVRTC='%s/../lib/fake_nvrtc.so' '%s/quern' build --json "
        "-o $folder --arch sm_80 'quern_bf16_fprop_tn_m_bf16_scale_*' 2>&1; "
        "status=$?; rm -rf $folder; exit $status",
        test_own_folder(), test_own_folder());

    assert_int_equal(status, 1);
    test_output[strlen(test_output) - 1] = '\0';
    line = strrchr(test_output, '\n');
    json = cJSON_Parse(line ? line : test_output);
    line = cJSON_GetStringValue(cJSON_GetObjectItem(json, "error"));
    assert_non_null(line);
    assert_non_null(strstr(line, "tile64x64x32 does not compile"));
    assert_non_null(strstr(line, "tile128x128x32 does not compile"));
    assert_non_null(strstr(line, "\nnot every kernel may be used"));
    cJSON_Delete(json);
}
