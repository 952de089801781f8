/* SPDX-License-Identifier: Apache-2.0 */
/* build_test.c: `quern build` of problems and models: which kernels it takes,
   how little a second build does, and programs that load the result. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "registry.h"
#include "test_cli.h"

/* A folder of the test's, where commands begin. */
static char folder[64];

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/quern-build-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static void end(void)
{
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* The program with these arguments, without a cache of anybody's. */
static int quern(const char *arguments)
{
    return test_shell("cd %s && export QUERN_CACHE=%s/cache QUERN_TUNE=; "
                      "'%s/quern' %s 2>&1",
                      folder, folder, test_own_folder(), arguments);
}

static void must_say(const char *text)
{
    if (!strstr(test_output, text))
        fail_msg("'%s' is not in: %.3000s", text, test_output);
}

/* ----------------------------------------------------------- configurations */

static void write_config(const char *text)
{
    char path[96];
    FILE *file;

    snprintf(path, sizeof path, "%s/config.json", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

TEST(test_build_configs)
{
    static const struct {
        const char *config, *arguments, *says;
    } rows[] = {
        {"tests/fuzz/corpus/config/qwen3", "--tokens 1000",
         "mlp bf16 g=128 m=8000 hidden=2048 ffn=768 activation=swiglu\n"},
        {"tests/fuzz/corpus/config/qwen3", "--ranks 8 --recipe mxfp8,bf16",
         "fprop mxfp8 g=16 m=131072 n=1536 k=2048\n"},
        {"tests/fuzz/corpus/config/qwen3", "--recipe mxfp8 --forward",
         "quantize mxfp8 g=128 m=1536 k=2048 of=w copies=rowwise\n"},
        {"tests/fuzz/corpus/config/mixtral", "--arch sm_80",
         "wgrad bf16 g=8 m=28672 n=4096 k=32768 d=f32 beta=1\n"},
        {"tests/fuzz/corpus/config/olmoe", "--arch sm_120a",
         "dgrad bf16 g=64 m=131072 n=1024 k=2048\n"},
        {"tests/fuzz/corpus/config/gpt_oss", "",
         "mlp bf16 g=32 m=65536 hidden=2880 ffn=2880 activation=clamped_swiglu "
         "interleave=1 bias=1 prob=1 outside=zero\n"},
        {"tests/fuzz/corpus/config/deepseek_v3", "--ranks 32",
         "fprop bf16 g=8 m=131072 n=7168 k=2048\n"},
        {"tests/fuzz/corpus/config/text", "--arch sm_80,sm_86",
         "mlp bf16 g=4 m=32768 hidden=64 ffn=32 activation=geglu\n"},
    };
    char command[128];

    begin();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(test_shell("cp %s %s/c && ln -sf c %s/config.json",
                                    rows[i].config, folder, folder),
                         0);
        snprintf(command, sizeof command, "build -n %s config.json",
                 rows[i].arguments);
        assert_int_equal(quern(command), 0);
        must_say(rows[i].says);
        must_say(" to compile, 0 in the cache");
    }
    assert_int_equal(test_shell("ls %s/quern-kernels 2>&1", folder), 2);
    end();
}

/* A good one with another text in the place of one of its keys. */
static void change_config(const char *key, const char *instead)
{
    static const char *const keys[] = {
        "\"num_experts\": 8", "\"num_experts_per_tok\": 2",
        "\"hidden_size\": 64", "\"moe_intermediate_size\": 32",
        "\"hidden_act\": \"silu\""};
    char text[512] = "{";

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const size_t length = strlen(key);
        const int same = strncmp(keys[i] + 1, key, length) == 0 &&
                         keys[i][length + 1] == '"';

        strcat(strcat(text, same ? instead : keys[i]), ", ");
    }
    strcat(text, "\"more\": [1, {}]}");
    write_config(text);
}

TEST(test_build_refuses_configs)
{
    static const struct {
        const char *key, *instead, *says;
    } rows[] = {
        {"num_experts", "\"a\": 1",
         "one of num_experts, num_local_experts, n_routed_experts is "
         "expected"},
        {"num_experts", "\"num_experts\": 0",
         "num_experts: a whole number from 1 to "},
        {"num_experts", "\"num_local_experts\": 1e9",
         "num_local_experts: a whole number from 1 to "},
        {"num_experts_per_tok", "\"num_experts_per_tok\": 9",
         "num_experts_per_tok: a whole number from 1 to 8 is expected"},
        {"num_experts_per_tok", "\"a\": 1", "experts_per_token is expected"},
        {"hidden_size", "\"hidden_size\": \"64\"",
         "hidden_size: a whole number from 1 to 1048576 is expected"},
        {"hidden_size", "\"hidden_size\": 64.5", "hidden_size: a whole number"},
        {"hidden_size", "\"hidden_size\": null", "hidden_size is missing"},
        {"hidden_size", "\"hidden_size\": -1e999", "hidden_size: a whole"},
        {"moe_intermediate_size", "\"a\": 1",
         "one of moe_intermediate_size, intermediate_size is"},
        {"hidden_act", "\"a\": 1", "hidden_act is missing"},
        {"hidden_act", "\"hidden_act\": \"tanh\"", "hidden_act is 'tanh'"},
    };
    char deep[256] = "";

    begin();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        change_config(rows[i].key, rows[i].instead);
        assert_int_equal(quern("build -n config.json"), 2);
        must_say("config.json: ");
        must_say(rows[i].says);
    }
    memset(deep, '[', 100);
    write_config(deep);
    assert_int_equal(quern("build -n config.json"), 2);
    must_say("over 64 objects and arrays inside each other");
    write_config("{\"num_experts\": 8");
    assert_int_equal(quern("build -n config.json"), 2);
    must_say("config.json: it is no JSON");
    write_config("{\"num_experts\": 8} 9");
    assert_int_equal(quern("build -n config.json"), 2);
    must_say("config.json: it is no JSON");
    assert_int_equal(
        test_shell("head -c 2000000 /dev/zero >%s/config.json", folder), 0);
    assert_int_equal(quern("build -n config.json"), 2);
    must_say("at most 1 MiB");
    assert_int_equal(quern("build -n none.json"), 2);
    must_say("none.json: No such file");
    change_config("", "");
    assert_int_equal(quern("build -n --recipe bf16,nope config.json"), 2);
    must_say("nope");
    assert_int_equal(quern("build -n --ranks 0 config.json"), 2);
    must_say("--ranks is '0'; it must be a number from 1 to ");
    assert_int_equal(quern("build -n --forward bf16_fprop"), 2);
    must_say("--forward is for a model's CONFIG.json, and none is given");
    end();
}

/* ----------------------------------------------------------------- problems */

/* Whatever the rows, `quern why` names kernels that the build has: all of the
   plan's launches, on an assumed GPU. */
static void check_complete(const char *line, int rows)
{
    static char built[sizeof test_output];
    char command[512], one[256];

    snprintf(command, sizeof command, "build -n '%s m=%d'", line, rows);
    assert_int_equal(quern(command), 0);
    memcpy(built, test_output, sizeof built);
    for (int i = 0; i < 12; i++) {
        const int m = 1 + (int)((unsigned)rand() % (unsigned)(rows >> i));

        snprintf(command, sizeof command,
                 "why %s m=%d | sed -n 's/^ *> //p' | awk '{ print $1 }'", line,
                 m);
        assert_int_equal(quern(command), 0);
        must_say("quern_");
        for (const char *at = test_output; *at; at += strcspn(at, "\n") + 1) {
            snprintf(one, sizeof one, "%.*s", (int)strcspn(at, "\n"), at);
            if (!strstr(built, one))
                fail_msg("%s m=%d: the build lacks %s", line, m, one);
        }
    }
}

TEST(test_build_has_every_kernel)
{
    begin();
    srand(1);
    check_complete("fprop bf16 g=8 n=2048 k=7168", 1 << 17);
    check_complete("fprop mxfp8 g=16 n=1536 k=2048 bias=1 outside=zero",
                   1 << 16);
    check_complete("dgrad fp8_block g=64 n=2048 k=1024", 1 << 16);
    check_complete("mlp mxfp8 g=32 hidden=2880 ffn=2880 bias=1 "
                   "activation=clamped_swiglu prob=1",
                   1 << 16);
    check_complete("mlp bf16 g=128 hidden=2048 ffn=768", 1 << 16);
    check_complete("mlp nvfp4 g=8 hidden=4096 ffn=1536 sizes=host", 1 << 15);
    end();
}

TEST(test_build_problems)
{
    begin();
    assert_int_equal(quern("build -n fprop bf16 g=8 m=256 n=64 k=64"), 0);
    must_say("fprop bf16 g=8 m=256 n=64 k=64\n");
    assert_int_equal(
        quern("build -n --arch sm_80,sm_90a 'fprop nvfp4 g=8 m=256 n=64 k=64 "
              "d=f16' bf16_outside_x_f32_sm90a"),
        0);
    must_say("quern_bf16_outside_x_f32_sm90a");
    must_say("_sm80");
    assert_int_equal(quern("build -n route g=8 m=2560 topk=2"), 0);
    must_say("\n2 kernels: ");
    assert_int_equal(quern("build -n fprop bf16 g=8 m=256 n=64 j=64"), 2);
    must_say("'j' is unknown");
    assert_int_equal(quern("build -n 'fprp bf16 g=8 m=256 n=64 k=64'"), 2);
    must_say("did you mean 'fprop'");
    end();
}

static const char *key_of(const char *kernel)
{
    const struct quern_registry *registry = &qn_registry_builtin;

    for (int i = 0; i < registry->nkernels; i++)
        if (!strcmp(registry->kernels[i].name, kernel))
            return registry->kernels[i].key;
    return "";
}

/* A measured winner that the cost model would never take. */
TEST(test_build_takes_winners)
{
    static const char winner[] = "quern_bf16_fprop_tn_m_bf16_sm90a_"
                                 "cooperative_tile128x192x64_cluster1x2";
    static const char line[] = "fprop bf16 g=8 m=8192 n=2048 k=7168 d=bf16";
    char command[160];

    begin();
    snprintf(command, sizeof command, "build -n %s", line);
    assert_int_equal(quern(command), 0);
    assert_null(strstr(test_output, winner));
    assert_int_equal(
        test_shell("mkdir -p %s/cache/tune && chmod 700 %s/cache && printf "
                   "'quern tune 2\\ngpu NVIDIA X\\n%s | sms=100 kernel=%s "
                   "key=%.16s band=0 ns=1000 model=%s model_ns=1001 "
                   "ratio=1.001 mhz=1755 certain=1\\n' "
                   ">%s/cache/tune/NVIDIA_X.tune",
                   folder, folder, line, winner, key_of(winner), winner,
                   folder),
        0);
    snprintf(command, sizeof command, "build -n %s", line);
    assert_int_equal(test_shell("cd %s && QUERN_CACHE=%s/cache '%s/quern' %s "
                                "2>&1",
                                folder, folder, test_own_folder(), command),
                     0);
    must_say(winner);
    end();
}

/* -------------------------------------------------------------------- loads */

/* A program without compiler, generator and cache, on a GPU of 9.0. */
static void check_loaded(void)
{
    struct quern_open_options open = QUERN_OPEN_OPTIONS_INIT;
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan_info info;
    struct quern_context *ctx;
    struct quern_plan *plan;
    char text[128];

    snprintf(text, sizeof text, "%s/../lib/fake_cuda.so", test_own_folder());
    setenv("QUERN_CUDA", text, 1);
    snprintf(text, sizeof text, "%s/out", folder);
    setenv("QUERN_KERNELS", text, 1);
    setenv("QUERN_NVRTC", "/none", 1);
    setenv("QUERN_GEN", "/none", 1);
    setenv("FAKE_DEVICE", "9.0", 1);
    open.cache = "";
    assert_int_equal(quern_open(&open, &ctx), QUERN_OK);
    options.backend = QUERN_BACKEND_AOT;
    for (int m = 1; m <= 4096; m = m * 3 + 1) {
        snprintf(text, sizeof text, "fprop bf16 g=8 m=%d n=2048 k=512", m);
        if (quern_plan_create(ctx, text, &options, &plan))
            fail_msg("%s: %s", text, quern_errmsg());
        assert_int_equal(quern_plan_info(plan, &info), QUERN_OK);
        assert_int_equal(info.backend, QUERN_BACKEND_AOT);
        quern_plan_destroy(plan);
    }
    assert_int_equal(
        quern_plan_create(ctx, "fprop fp16 g=8 m=8 n=64 k=64", &options, &plan),
        QUERN_ENOKERNEL);
    quern_close(ctx);
    unsetenv("QUERN_CUDA");
    unsetenv("QUERN_KERNELS");
    unsetenv("QUERN_NVRTC");
    unsetenv("QUERN_GEN");
    unsetenv("FAKE_DEVICE");
}

/* Python opens its own libquern.so, of the plain configuration. */
static void check_python(void)
{
    if (test_shell("python3 -c 'import ctypes'") != 0 ||
        strstr(test_own_folder(), "/asan/")) {
        print_message("skip: loading in Python needs python3 and no "
                      "sanitizers\n");
        return;
    }
    assert_int_equal(
        test_shell("env PYTHONPATH=runtime/python QUERN_KERNELS=%s/out "
                   "QUERN_CACHE= QUERN_NVRTC=/none QUERN_GEN=/none "
                   "FAKE_DEVICE=9.0 QUERN_CUDA='%s/../lib/fake_cuda.so' "
                   "python3 -c 'import quern; print(quern.why(\"fprop bf16 g=8 "
                   "m=777 n=2048 k=512\", backend=\"aot\"))' 2>&1",
                   folder, test_own_folder()),
        0);
    must_say("(linked)");
}

/* A folder that is none of a build is an error of the first call. */
static void check_refused(void)
{
    assert_int_equal(test_shell("cd %s && QUERN_KERNELS=%s '%s/quern' why "
                                "fprop bf16 g=8 m=8 n=64 k=64 2>&1",
                                folder, folder, test_own_folder()),
                     3);
    must_say("a folder of quern build is expected: ");
}

TEST(test_build_again_and_load)
{
    static const char build[] =
        "build -o out fprop bf16 g=8 m=4096 n=2048 k=512";

    begin();
    check_refused();
    if (quern(build) == 3 && strstr(test_output, "libnvrtc")) {
        print_message("skip: quern build needs libnvrtc\n");
        end();
        skip();
    }
    must_say("compiled and linked in");
    must_say(" to compile, 0 in the cache\nCompiling 1/");
    check_loaded();
    check_python();
    assert_int_equal(test_shell("cp -a %s/out %s/copy", folder, folder), 0);
    assert_int_equal(quern(build), 0);
    must_say(" 0 to compile, ");
    must_say("all as they were");
    assert_int_equal(test_shell("diff -r %s/out %s/copy && find %s/out "
                                "-newercc %s/copy/manifest",
                                folder, folder, folder, folder),
                     0);
    assert_string_equal(test_output, "");
    assert_int_equal(test_shell("rm %s/out/libquern_kernels.a", folder), 0);
    assert_int_equal(quern(build), 0); /* from the cache */
    must_say(" 0 to compile, ");
    must_say("compiled and linked in");
    assert_int_equal(
        test_shell("cmp %s/out/manifest %s/copy/manifest", folder, folder), 0);
    end();
}
