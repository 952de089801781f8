/* SPDX-License-Identifier: Apache-2.0 */
/* hostile_test.c: commands with wrong, missing, doubled and extreme arguments,
   a closed output, an interrupt. Each is told in one sentence, with the status
   that belongs to it, and leaves no file after. */
#include <stdio.h>

#include "test_cli.h"

#define SMALL "fprop bf16 g=3 m=50 n=40 k=64"
#define CAST  "quantize mxfp8 of=x g=1 m=8 k=32"
#define LAYER "mlp bf16 g=1 m=8 hidden=8 ffn=8"

/* Run in a folder of its own, that must be empty afterwards. */
static const struct {
    const char *arguments;
    int status;
    const char *says;
} wrong[] = {
    {"run " SMALL " --backend host --backend host", 2,
     "--backend is given twice"},
    {"why " SMALL " --json --json", 2, "--json is given twice"},
    {"bench " SMALL " --json a --json b", 2, "--json is given twice"},
    {"run " SMALL " --seed ''", 2, "--seed is empty"},
    {"run " SMALL " --kernel ''", 2, "--kernel is empty"},
    {"emit -o ''", 2, "--output is empty"},
    {"build -o x -o y", 2, "--output is given twice"},
    {"build -j 99999999999999999999", 2, "-j is '99999999999999999999'"},
    {"bench " SMALL " --repeat -1", 2, "--repeat is '-1'"},
    {"bench " SMALL " --repeat=0", 2,
     "--repeat is '0'; it must be a number from 1 to 100000"},
    {"describe --specs /dev/null " SMALL, 2, "/dev/null"},
    {"describe --specs '' " SMALL, 2, "--specs is empty"},
    {"emit -o x 'bf16_fprop*' nope", 2, "no kernel matches 'nope'"},
    {"build -o x 'bf16_fprop*' nope", 2, "no kernel matches 'nope'"},
    {"list -k 'bf16_fprop*' nope", 2, "no kernel matches 'nope'"},
    {"pack", 2, "a model's folder, or its safetensors files, are missing"},
    {"pack x", 2, "--to FILE is missing: the new file"},
    {"pack x --to a --to b", 2, "--to is given twice"},
    {"pack none --to x", 2, "none: No such file or directory"},
    {"pack /dev/null --to x", 2, "/dev/null: it is no plain file"},
    {"pack . --to x", 2, ".: it has no *.safetensors"},
    {"pack --undo", 2, "a packed file is missing"},
    {"pack --undo x", 2, "--to DIR is missing"},
    {"pack --undo x y --to z", 2, "--undo takes one packed file"},
    {"pack --undo x --to z --format awq", 2, "--undo takes --to only"},
    {"pack --undo none --to z", 2, "none: No such file or directory"},
    {"demo bf16 x", 2, "'x': the demo takes a recipe"},
    {"cache ls gc", 2, "'gc' is not expected after ls"},
    {"cache lst gc", 2, "'lst': it must be one of ls, verify, gc, rm and "},
    {"--version extra", 2, "'extra' is not expected after --version"},
    {"--help run", 2, "'run' is not expected after --help"},
    {"help run tune", 2, "'tune' is not expected after help"},
    {"help rum", 2, "no command 'rum'; did you mean 'run'?"},
    {"recipes a b", 2, ""},
    {"why", 2, "a problem is missing"},
    {"run", 2, "a problem is missing"},
    {"bench", 2, "a problem is missing"},
    {"describe", 2, "a problem is missing"},
    {"describe " SMALL " k=64", 2, "k= is given twice"},
    {"describe fprop bf16 g=1 M=8", 2, "'M' is unknown; did you mean 'm'?;"},
    {"describe fprop bf16 g=1 x=8", 2, "'x' is unknown; known: g="},
    {"describe " SMALL " d=float32", 2, "not a type; did you mean 'f32'?"},
    {"describe " SMALL " d=BF16", 2, "not a type; did you mean 'bf16'?"},
    {"describe " SMALL " act=swiglu", 2, "did you mean 'activation'?;"},
    {"describe " SMALL " activation=relu2", 2,
     "is expected; did you mean 'squared_relu'?"},
    {"describe " SMALL " activation=swish", 2,
     "is expected; did you mean 'silu'? It is silu without a gate; with one it "
     "is 'swiglu'"},
    {"describe fprop BF16 g=1", 2,
     "recipe 'BF16' is unknown; did you mean "
     "'bf16'?"},
    {"describe " SMALL "123456789012345678901", 2, "at most 18 digits"},
    {"describe fprop bf16 g=3 m = 50 n=40 k=64", 2,
     "'m' has no value; write: m=VALUE"},
    {"describe fprop bf16 g=3 =50 n=40 k=64", 2, "'' is unknown; known: g="},
    {"run -", 2, "'-' begins no problem; known: fprop, "},
    {"why MLP bf16 g=1", 2, "an MLP begins with mlp; for example: mlp"},
    {"tune " LAYER, 2, "an MLP is tuned by its products"},
    {"bench '" CAST "' --overhead", 2, "a product is expected here"},
    {"bench '" CAST "' --against host", 2, "--against compares products"},
    {"bench '" LAYER "' --against host", 2, "--against compares products"},
    {"run " LAYER " --ptx", 2, "name one with --kernel"},
    {"run " LAYER " --kernel x --backend host", 2, "options.kernel is 'x'"},
    {"run " CAST " --kernel x --backend host", 2, "options.kernel is 'x'"},
    {"run " CAST " --streams 2 --backend host", 2, "options.streams is 2"},
    {"run permute m=8 topk=1 k=8 --kernel x --backend host", 2,
     "options.kernel is 'x'"},
    {"run moe bf16 g=1 m=8 topk=1 hidden=8 ffn=8 --kernel x --backend host", 2,
     "options.kernel is 'x'"},
    {"run permute m=8 topk=1 k=8 --ptx", 2, "give one with --kernel"},
    {"run route g=1 m=8 topk=1 --routes x --backend host", 2,
     "--routes has rows of experts"},
    {"bench 'route g=1 m=8 topk=1' --against host", 2,
     "--against compares products"},
    {"run " LAYER " --streams 2 --backend host", 2, "options.streams is 2"},
    {"run " SMALL " --trace", 2, "--trace needs --backend ptx"},
    {"run " SMALL " --ptx --check", 2, "--check needs a run"},
    {"run " SMALL " --ptx --routes x", 2, "--routes needs a run"},
    {"run quantize mxfp8 of=w g=1 m=8 k=32 --routes /none", 2,
     "--routes: tokens are the rows of x and dy"},
    {"run " CAST " --routes /none", 2, "/none: "},
    {"run quantize mxfp8 of=x g=1 k=32 --routes /none", 2, "/none: "},
    {"run mlp bf16 g=1 hidden=8 ffn=8 --routes /none", 2, "/none: "},
    {"run wgrad bf16 g=1 m=8 n=8 --routes /none", 2, "/none: "},
    {"run wgrad bf16 g=1 n=8 k=8 --routes /none", 2, "m= is missing"},
    {"describe quantize mxfp8 of=x g=1 m=@/none k=32", 2, "m=@/none: "},
    {"describe mlp bf16 g=1 m=@/none hidden=8 ffn=8", 2, "m=@/none: "},
    {"describe fprop bf16 g=3 m=@/dev/zero n=40 k=64", 2, "/dev/zero: "},
    {"run fprop bf16 g=3 m=50 n=@/none k=64 --backend host", 2,
     "n=@/none: n is not split among the groups"},
    {"describe wgrad bf16 g=3 m=@/none n=40 k=64", 2, "m is not split"},
    {"describe fprop bf16 g=3 m=@/none n=40 k=64 ragged=n", 2, "m is not spl"},
    {"describe fprop bf16 g=3 m=4 n=@/none k=64 ragged=none", 2, "n is not "},
    {"describe fprop bf16 g=3 m=4 n=@/none k=64 ragged=n", 2, "No such file"},
    {"describe quantize mxfp8 of=x g=1 m=8 k=@/none", 2, "k is not split"},
    {"describe quantize mxfp8 of=w g=1 m=@/none k=32", 2, "m is not split"},
    {"describe quantize mxfp8 of=w g=2 m=8 k=32 split=4,4", 2,
     "split=4,4: no axis is ragged"},
    {"run fprop bf16 g=3 m=50 n=40 k=64 split=@/ --backend host", 2, "/: "},
    {"run " SMALL " --backend host --routes /dev/null", 2,
     "/dev/null:1: the header"},
    {"run fprop bf16 g=1024 m=1073741824 n=1000000 k=1000000 --backend host", 3,
     "host memory ran out"},
    {"emit -o /proc/none quern_bf16_fprop_tn_m_f32_scale_host", 3,
     "quern emit: error: cannot write /proc/none: "},
    {"bench " SMALL " --backend host --repeat 1 --json /none/x", 3,
     "/none/x cannot be written"},
    {"bench " SMALL " --backend host --repeat 1 --json /dev/full", 3,
     "/dev/full cannot be written: No space left"},
    {"bench " SMALL " --backend host --repeat 1 --json /none/x", 3, "TFLOP/s"},
    {"bench '" SMALL "' 'fprop bf61' --backend host --repeat 1", 2,
     "'fprop bf61': "},
    {"build -o /dev/null/x", 3, "/dev/null/x cannot be written: Not a dir"},
    {"tune " SMALL " --store /dev/null", 3,
     "--store: /dev/null cannot be written: Not a dir"},
    {"tune --merge /none --store /dev/null/x", 3,
     "--store: /dev/null/x cannot be written: "},
    {"tune " SMALL " --budget 0.5 --store a:b", 2, "it must be one folder"},
    {"tune " SMALL " --budget 1e3 --store a:b", 2, "it must be one folder"},
    {"tune " SMALL " --budget 1e5", 2,
     "--budget is '1e5'; it must be a number"},
    {"tune " SMALL " --budget nan", 2, "from 0 to 86400"},
    {"tune " SMALL " --budget 1s", 2, "--budget is '1s'"},
    {"tune " SMALL " --store a:b", 2, "it must be one folder"},
};

TEST(test_wrong_arguments)
{
    char folder[] = "/tmp/quern-wrong-XXXXXX";

    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int status = test_shell("cd %s && QUERN_CACHE= QUERN_NVRTC=/none "
                                "'%s/quern' %s 2>&1",
                                folder, test_own_folder(), wrong[i].arguments);
        size_t lines = 0;

        for (const char *at = test_output; (at = strchr(at, '\n')); at++)
            lines++;
        if (status != wrong[i].status || !strstr(test_output, wrong[i].says) ||
            !strstr(test_output, ": ") || lines > 3)
            fail_msg("quern %s: status %d, not %d with '%s': %.500s\n",
                     wrong[i].arguments, status, wrong[i].status, wrong[i].says,
                     test_output);
    }
    if (test_shell("rmdir %s 2>&1", folder) != 0)
        fail_msg("files are left: %s", test_output);
}

/* A full disk, a reader that has gone, no output at all. */
TEST(test_output_fails)
{
    static const char *const commands[] = {
        "--help",
        "--version",
        "list --help",
        "recipes --json",
        "describe " SMALL,
        "why " SMALL " --backend host",
        "emit -o - quern_bf16_fprop_tn_m_f32_scale_host",
        "cache where --json",
        "run " SMALL " --backend host",
        "bench " SMALL " --backend host --repeat 1",
    };
    static const char *const places[] = {">/dev/full", ">&-"};

    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const size_t place = i % 2;

        if (test_shell("{ QUERN_CACHE=/tmp '%s/quern' %s %s; } 2>&1",
                       test_own_folder(), commands[i], places[place]) != 3 ||
            !strstr(test_output, "the output cannot be written: "))
            fail_msg("quern %s: %s", commands[i], test_output);
    }
    /* the reader ends before the writer begins */
    test_shell("{ { sleep 0.3; QUERN_CACHE= '%s/quern' recipes; echo status $? "
               ">&2; } | true; } 2>&1",
               test_own_folder());
    if (strcmp(test_output, "status 0\n") != 0)
        fail_msg("closed pipe: %s", test_output);
}

/* A file larger than the user may write is an error, and no signal. */
TEST(test_output_too_large)
{
    char folder[] = "/tmp/quern-large-XXXXXX";

    assert_non_null(mkdtemp(folder));
    if (test_shell("cd %s && ulimit -f 1 && QUERN_CACHE= '%s/quern' emit -o x "
                   "quern_bf16_fprop_tn_m_f32_scale_host 2>&1",
                   folder, test_own_folder()) != 3 ||
        !strstr(test_output, "File too large"))
        fail_msg("emit: %s", test_output);
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* Each folder of the list is shown, and why it is of no use. */
TEST(test_cache_where)
{
    char folder[] = "/tmp/quern-where-XXXXXX", name[300];
    const char *own = test_own_folder();

    assert_non_null(mkdtemp(folder));
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    test_shell("cd %s && QUERN_CACHE=%s:/dev/null/x:mine:none '%s/quern' cache "
               "where 2>&1",
               folder, name, own);
    if (!strstr(test_output, "its name is too long") ||
        !strstr(test_output, "it is no folder") ||
        !strstr(test_output, "/mine ") ||
        !strstr(test_output, "it is not there\n") ||
        strstr(test_output, "no folder takes"))
        fail_msg("%s", test_output);
    assert_int_equal(test_shell("ls %s | grep .", folder), 1); /* none made */
    test_shell("cd %s && QUERN_CACHE=$(printf 'a/%%.0s' $(seq 2500)) "
               "'%s/quern' cache where 2>&1",
               folder, own);
    if (!strstr(test_output, "its name is too long") ||
        !strstr(test_output, "no folder takes new entries"))
        fail_msg("%s", test_output);
    assert_int_equal(
        test_shell("QUERN_CACHE=%s '%s/quern' cache verify 2>&1", name, own),
        1);
    assert_non_null(strstr(test_output, "its name is too long"));
    assert_null(strstr(test_output, "1970")); /* when it was used: never */
    /* a name's characters break no line, and columns stand one below another */
    assert_int_equal(
        test_shell("cd %s && QUERN_CACHE=$(printf 'a\\nb\\033[31m\\302\\233'):"
                   "$(printf '\\303\\274\\303\\274') '%s/quern' cache where",
                   folder, own),
        0);
    assert_non_null(strstr(test_output, "/a?b?[31m??  yes "));
    assert_non_null(strstr(test_output, "/\303\274\303\274          no "));
    assert_int_equal(test_shell("cd %s && QUERN_CACHE=deep/er:no '%s/quern' "
                                "cache where && ls | grep .",
                                folder, own),
                     1);
    assert_non_null(strstr(test_output, "/deep/er  yes "));
    /* a folder that is merely not there is no damage */
    assert_int_equal(test_shell("cd %s && QUERN_CACHE=mine:none '%s/quern' "
                                "cache verify 2>&1",
                                folder, own),
                     0);
    assert_int_equal(test_shell("env -u HOME -u XDG_CACHE_HOME -u QUERN_CACHE "
                                "'%s/quern' cache where 2>&1",
                                own),
                     0);
    assert_non_null(strstr(test_output, "no folder takes new entries"));
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

#define COMPILED                                                               \
    "run fprop test_next_f16 g=1 m=8 n=8 k=32 --backend host --specs "         \
    "tests/cli/specs"

/* A folder that is not used is told once, without asking for a log, and the
   safe ones of the list are used. */
TEST(test_unsafe_cache)
{
    char folder[] = "/tmp/quern-unsafe-XXXXXX";

    assert_non_null(mkdtemp(folder));
    assert_int_equal(test_shell("cd %s && mkdir open own real && chmod 775 "
                                "open && chmod 700 own real && ln -s real link",
                                folder),
                     0);
    assert_int_equal(
        test_shell("cd %s && QUERN_CACHE=open:own '%s/quern' cache "
                   "ls --json 2>&1 >/dev/null",
                   folder, test_own_folder()),
        0);
    if (!strstr(test_output, "/open is not used: others may write to it; chmod "
                             "go-w makes it safe\n") ||
        strchr(test_output, '\n') != strrchr(test_output, '\n'))
        fail_msg("%s", test_output);
    assert_int_equal(
        test_shell("cd %s && QUERN_CACHE=open:link '%s/quern' cache "
                   "where",
                   folder, test_own_folder()),
        0);
    assert_non_null(strstr(test_output, "/link  yes "));
    assert_int_equal(test_shell("ls %s/own %s/open", folder, folder), 0);
    assert_non_null(strstr(test_output, "entries")); /* of own */
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* A killed compile, with its compiler's files, leaves nothing outside the
   cache, and gc removes that once it is old. */
TEST(test_killed_compile)
{
    char folder[] = "/tmp/quern-killed-XXXXXX";

    assert_non_null(mkdtemp(folder));
    assert_int_equal(
        test_shell("mkdir %s/tmp && cat >%s/cc <<'END' && chmod 700 %s/cc\n"
                   "#!/bin/sh\n"
                   "[ \"$1\" != --version ] || { echo 1; exit; }\n"
                   ": >\"$TMPDIR/half\"; : >%s/started; exec sleep 1\n"
                   "END\n",
                   folder, folder, folder, folder),
        0);
    assert_int_equal(
        test_shell("export TMPDIR=%s/tmp QUERN_CC=%s/cc QUERN_CACHE=%s/cache; "
                   "'%s/quern' " COMPILED " >/dev/null 2>&1 & pid=$!; "
                   "while [ ! -e %s/started ]; do sleep 0.02; done; "
                   "kill -9 $pid; wait $pid; ls %s/tmp; ls %s/cache/new",
                   folder, folder, folder, test_own_folder(), folder, folder,
                   folder),
        0);
    if (strncmp(test_output, "quern-", 6) != 0) /* nothing of tmp before it */
        fail_msg("after a kill: %s", test_output);
    assert_int_equal(test_shell("touch -d '2 hours ago' %s/cache/new/* && "
                                "QUERN_CACHE=%s/cache '%s/quern' cache gc && "
                                "ls %s/cache/new | grep .",
                                folder, folder, test_own_folder(), folder),
                     1);
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* A header of one tensor whose name would paint a terminal red. */
#define RED                                                                    \
    "\\105\\0\\0\\0\\0\\0\\0\\0{\"a\\\\u001b[31m\\\\u009b\":"                  \
    "{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,8]}}"

/* Names in a checkpoint, of which errors tell, steer no terminal. */
TEST(test_names_are_tame)
{
    char folder[] = "/tmp/quern-tame-XXXXXX";

    assert_non_null(mkdtemp(folder));
    if (test_shell("cd %s && printf '" RED "12345678' >a.safetensors && "
                   "'%s/quern' pack -n a.safetensors 2>&1",
                   folder, test_own_folder()) != 2 ||
        !strstr(test_output, "tensor 'a?[31m?': its data_offsets"))
        fail_msg("%s", test_output);
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* Links of a hub's folder whose files are gone: a model without its config
   would be taken for another one. */
TEST(test_links_to_nowhere)
{
    static const char *const names[] = {"config.json",
                                        "model.safetensors.index.json"};
    char folder[] = "/tmp/quern-links-XXXXXX";

    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++)
        if (test_shell("cd %s && printf '\\002\\0\\0\\0\\0\\0\\0\\0{}' "
                       ">a.safetensors && ln -s blobs/gone %s && "
                       "'%s/quern' pack -n . 2>&1; rm %s/%s",
                       folder, names[i], test_own_folder(), folder,
                       names[i]) != 0 ||
            !strstr(test_output, "the file that this link names is missing"))
            fail_msg("%s: %s", names[i], test_output);
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}

/* Without any variable: no PATH for the compiler, no folder for the cache. */
TEST(test_no_environment)
{
    if (test_shell("PATH=/usr/local/bin:/usr/bin:/bin; command -v cc") != 0) {
        print_message("skip: needs cc in /usr/bin\n");
        skip();
    }
    if (test_shell("env -i '%s/quern' " COMPILED " --check 2>&1",
                   test_own_folder()) != 0)
        fail_msg("%s", test_output);
}

/* ^C while kernels compile, and while files are written: nothing, or all. */
TEST(test_interrupts)
{
    char folder[] = "/tmp/quern-signal-XXXXXX";

    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 6; i++) {
        test_shell(
            "cd %s && rm -rf out && { timeout -s INT 0.%d '%s/quern' emit "
            "--arch host -o out '*fprop*' >/dev/null 2>&1; echo $?; "
            "ls -A out | grep -c -e '^\\.' -e registry.c -e "
            "quern_kernels.h; } 2>/dev/null",
            folder, i + 1, test_own_folder());
        /* 124: it was in time to stop it. Then no file, or both, and no
           temporary one */
        if (!strstr(test_output, "\n0\n") && !strstr(test_output, "\n2\n"))
            fail_msg("files are left half done: %s", test_output);
    }
    assert_int_equal(test_shell("rm -r %s", folder), 0);
}
