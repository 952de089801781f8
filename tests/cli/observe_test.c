/* SPDX-License-Identifier: Apache-2.0 */
/* observe_test.c: a run as users see it: shares of the roofline, clock
   and power; lines of the log; names of kernels as profilers list them; the
   demo. */
#include <math.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "test_cli.h"

/* The fakes' GPU moves this many bytes a second at most; a launch takes a
   millisecond. */
#define PEAK_BYTES (2 * 3201e6 * 6016 / 8)

static double number(const cJSON *row, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, name);

    if (!cJSON_IsNumber(item))
        fail_msg("no number '%s' in %.700s", name, test_output);
    return item->valuedouble;
}

/* `quern bench` with fakes for the driver, the compiler and NVML. */
static void bench(const char *problem, const char *more)
{
    char folder[] = "/tmp/quern-observe-XXXXXX";
    const char *own = test_own_folder();

    assert_non_null(mkdtemp(folder));
    if (test_shell(
            "ln -s '%s/../lib/fake_nvml.so' %s/libnvidia-ml.so.1 && "
            "LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH QUERN_CACHE= "
            "QUERN_CUDA='%s/../lib/fake_cuda.so' "
            "QUERN_NVRTC='%s/../lib/fake_nvrtc.so' '%s/quern' bench '%s' "
            "--repeat 3 %s 2>&1; status=$?; rm -r %s; exit $status",
            own, folder, folder, own, own, own, problem, more, folder) != 0)
        fail_msg("quern bench: %s", test_output);
}

static void check_shares(const char *problem)
{
    const cJSON *row;
    cJSON *rows;
    double share;

    bench(problem, "--json -");
    rows = cJSON_Parse(test_output);
    row = cJSON_GetArrayItem(rows, 0);
    if (!row)
        fail_msg("quern bench: no JSON: %s", test_output);
    share = number(row, "gbps") * 1e9 / PEAK_BYTES; /* memory binds */
    assert_true(fabs(number(row, "roofline") - share) < 1e-3 * share);
    assert_true(fabs(number(row, "sm_clock") - 1485) < 0.5);
    assert_true(fabs(number(row, "watts") - 432.5) < 0.1);
    cJSON_Delete(rows);
}

/* Products and casts, in JSON and in tables. */
TEST(test_bench_says_how_hard)
{
    static const char *const words[] = {"of roofline", "1485", "432"};

    check_shares("fprop bf16 g=8 m=640 n=64 k=64");
    check_shares("quantize mxfp8 of=x g=8 m=640 k=64");
    bench("fprop bf16 g=8 m=640000 n=64 k=64", "");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strstr(test_output, words[i]))
            fail_msg("the table lacks '%s': %s", words[i], test_output);
}

/* The stderr of a small run. */
static void log_of(const char *level)
{
    if (test_shell("QUERN_CACHE= QUERN_LOG=%s '%s/quern' run fprop bf16 g=3 "
                   "m=50 n=40 k=64 --backend host 2>&1 >/dev/null",
                   level, test_own_folder()) != 0)
        fail_msg("QUERN_LOG=%s: %s", level, test_output);
}

/* A line each, as a program that reads them expects; and a misspelling. */
TEST(test_log_is_a_line_each)
{
    int lines = 0;

    log_of("error");
    assert_string_equal(test_output, "");
    log_of("debug");
    for (char *line = strtok(test_output, "\n"); line;
         line = strtok(NULL, "\n"), lines++)
        if (strncmp(line, "quern: ", 7))
            fail_msg("the log has '%s'", line);
    assert_true(lines >= 2); /* libraries opened, plans made */
    assert_int_equal(test_shell("QUERN_LOG=debgu '%s/quern' recipes 2>&1",
                                test_own_folder()),
                     2);
    assert_non_null(strstr(test_output, "did you mean 'debug'?"));
}

/* A profiler lists a kernel by the one symbol of its file: it is the name of
   the file and of the registry. */
TEST(test_names_are_symbols)
{
    char folder[] = "/tmp/quern-names-XXXXXX";

    assert_non_null(mkdtemp(folder));
    assert_int_equal(
        test_shell(
            "cd %s && '%s/quern' emit -o out >/dev/null && cd out && "
            "ls | sed -n 's/\\.cu$//p' >../files && grep -c . ../files && "
            "awk '/__global__/ { waits = 1 } waits && match($0, "
            "/quern_[a-z0-9_]+ *\\(/) { name = substr($0, RSTART, RLENGTH); "
            "sub(/ *\\(/, \"\", name); if (name \".cu\" != FILENAME) print "
            "FILENAME \": \" name; else print name >\"../symbols\"; "
            "waits = 0 }' *.cu >../others && cat ../others && "
            "sort ../symbols >../sorted && sort ../files | "
            "diff - ../sorted && '%s/quern' list -k --json | "
            "sed -n 's/.*\"kernel\":[^\"]*\"\\(quern_[^\"]*\\)\".*/\\1/p' | "
            "grep -v '_host$' | sort | diff ../sorted - 2>&1; "
            "status=$?; rm -r %s; exit $status",
            folder, test_own_folder(), test_own_folder(), folder),
        0);
    if (strtol(test_output, NULL, 10) < 1000 || strstr(test_output, ":"))
        fail_msg("symbols that are no names: %.500s", test_output);
}

#define TUNED "fprop bf16 g=8 m=640 n=64 k=64"
#define FAST                                                                   \
    "quern_bf16_fprop_tn_m_bf16_sm90a_pingpong_tile128x128x64_cluster1x1"

/* A command on fakes whose GPU runs FAST in 0.8 ms and all else in 1 ms;
   winners are read from a folder of `folder`. */
static void expect_tuned(const char *folder, const char *tune,
                         const char *command, const char *says)
{
    const char *own = test_own_folder();

    if (test_shell("cd %s && QUERN_CACHE= QUERN_TUNE=%s FAKE_CUDA_TIMES=" FAST
                   "=800 QUERN_CUDA='%s/../lib/fake_cuda.so' "
                   "QUERN_NVRTC='%s/../lib/fake_nvrtc.so' '%s/quern' %s 2>&1",
                   folder, tune, own, own, own, command) != 0 ||
        !strstr(test_output, says))
        fail_msg("quern %s lacks '%s': %s", command, says, test_output);
}

/* A problem that cannot be tuned does not lose those after it. */
TEST(test_tune_goes_on)
{
    char folder[] = "/tmp/quern-tuned-XXXXXX";

    assert_non_null(mkdtemp(folder));
    expect_tuned(folder, "",
                 "tune 'quantize mxfp8 of=x g=3 m=200 k=96' '" TUNED
                 "' --store a 2>&1; test $? = 2",
                 "nothing to tune");
    assert_non_null(strstr(test_output, FAST));
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* Measured, told, kept, listed, merged, and skipped once its kernel changes. */
TEST(test_tune_keeps_a_winner)
{
    char folder[] = "/tmp/quern-tuned-XXXXXX";

    assert_non_null(mkdtemp(folder));
    expect_tuned(folder, "", "tune '" TUNED "' --store a -k",
                 "the model expects");
    assert_non_null(strstr(test_output, "; best 1000.0 us, quern_bf16"));
    assert_non_null(strstr(test_output, "1.250  yes"));
    expect_tuned(folder, "a", "why " TUNED, "tuned: 1.25 x the model's choice");
    assert_non_null(strstr(test_output, "> " FAST " (tuned)"));
    expect_tuned(folder, "", "tune --merge a/Fake.tune --store b",
                 "1 line, 0 of them stale, merged into");
    expect_tuned(folder, "b", "why " TUNED, "> " FAST " (tuned)");
    expect_tuned(folder, "b", "tune --list", FAST);
    assert_null(strstr(test_output, "stale"));
    assert_int_equal(test_shell("cmp %s/a/Fake.tune %s/b/Fake.tune && sed -i "
                                "'s/ key=..../ key=0123/' %s/b/Fake.tune",
                                folder, folder, folder),
                     0);
    expect_tuned(folder, "b", "why " TUNED, FAST " has changed since");
    assert_null(strstr(test_output, "(tuned)"));
    expect_tuned(folder, "b", "tune --list", "stale");
    expect_tuned(folder, "", "tune --list b/Fake.tune", "stale");
    expect_tuned(folder, "", "tune --merge b/Fake.tune --store a",
                 "1 line, 1 of them stale, merged into");
    expect_tuned(folder, "a", "why " TUNED, "> " FAST " (tuned)");
    assert_int_equal(test_shell("cd %s && sed 's/^gpu .*/gpu /' a/Fake.tune "
                                ">none && '%s/quern' tune --merge none "
                                "--store c 2>&1",
                                folder, test_own_folder()),
                     2);
    assert_non_null(strstr(test_output, "none:2: error: gpu: a name of 1 to "));
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* Lines of bench/tune are about the kernels that the program has. */
TEST(test_shipped_winners_are_not_stale)
{
    int status = test_shell("for file in bench/tune/*.tune; do [ ! -e $file ] "
                            "|| '%s/quern' tune --list $file 2>&1 || exit 1; "
                            "done",
                            test_own_folder());

    if (status || strstr(test_output, "  stale  "))
        fail_msg("lines of bench/tune are stale; measure them again, on each "
                 "GPU: python3 bench/winners.py\n%s",
                 test_output);
}

/* Status and words of `quern cache COMMAND` on a folder. */
static void expect_cache(const char *folder, const char *command, int status,
                         const char *says)
{
    if (test_shell("QUERN_CACHE=%s '%s/quern' cache %s 2>&1", folder,
                   test_own_folder(), command) != status ||
        !strstr(test_output, says))
        fail_msg("quern cache %s: %s", command, test_output);
}

/* Keep a kernel of that op. */
static void fill_cache(const char *folder, const char *op)
{
    const char *own = test_own_folder();

    assert_int_equal(
        test_shell("QUERN_CACHE=%s QUERN_CUDA='%s/../lib/fake_cuda.so' "
                   "QUERN_NVRTC='%s/../lib/fake_nvrtc.so' '%s/quern' bench "
                   "%s bf16 g=8 m=640 n=64 k=64 --repeat 3 2>&1",
                   folder, own, own, own, op),
        0);
}

/* All, some, none; and those beyond the size that a folder may have. */
TEST(test_cache_has_a_limit)
{
    char folder[] = "/tmp/quern-limit-XXXXXX";

    assert_non_null(mkdtemp(folder));
    fill_cache(folder, "fprop");
    fill_cache(folder, "dgrad");
    expect_cache(folder, "rm wgrad", 2, "no entry matches 'wgrad'");
    expect_cache(folder, "rm '*_fprop_*'", 0, "1 entries removed");
    expect_cache(folder, "ls", 0, "quern_bf16_dgrad");
    expect_cache(folder, "rm", 0, "; 0 kept, 0 bytes");
    fill_cache(folder, "fprop");
    setenv("QUERN_CACHE_SIZE", "1G", 1);
    expect_cache(folder, "gc", 0, "0 entries removed, 0 bytes; 1 kept");
    setenv("QUERN_CACHE_SIZE", "0", 1);
    expect_cache(folder, "gc", 0, "1 entries removed");
    fill_cache(folder, "fprop"); /* a store leaves its own entry only */
    fill_cache(folder, "dgrad");
    expect_cache(folder, "verify", 0, "1 entries, 0 damaged");
    expect_cache(folder, "ls", 0, "quern_bf16_dgrad");
    unsetenv("QUERN_CACHE_SIZE");
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* A kept run, damaged between two calls. */
TEST(test_cache_is_verified)
{
    char folder[] = "/tmp/quern-verify-XXXXXX";

    assert_non_null(mkdtemp(folder));
    fill_cache(folder, "fprop");
    expect_cache(folder, "ls", 0, "quern_bf16_fprop_tn_m_bf16");
    expect_cache(folder, "verify", 0, "1 entries, 0 damaged");
    assert_int_equal(test_shell("printf X | dd of=$(ls %s/entries/*/object) "
                                "conv=notrunc status=none",
                                folder),
                     0);
    expect_cache(folder, "verify", 1, "object differs from the stored one");
    expect_cache(folder, "verify --json", 1, "\"damaged\"");
    expect_cache(folder, "gc", 0, "1 entries removed, 0 bytes; 0 kept");
    expect_cache(folder, "verify", 0, "0 entries, 0 damaged");
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* A layer of each model, forward and backward, on the host. */
TEST(test_demo)
{
    if (test_shell("QUERN_CACHE= QUERN_NVRTC=/none '%s/quern' demo --backend "
                   "host 2>&1",
                   test_own_folder()) != 0)
        fail_msg("quern demo: %s", test_output);
    assert_non_null(strstr(test_output, "Qwen1.5-MoE-A2.7B  fp8_block"));
    assert_non_null(strstr(test_output, "OLMoE-1B-7B        fp8_block"));
    assert_non_null(strstr(test_output, "All passed."));
    assert_int_equal(
        test_shell("'%s/quern' demo nvfp9 2>&1", test_own_folder()), 2);
}
