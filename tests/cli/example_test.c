/* SPDX-License-Identifier: Apache-2.0 */
/* example_test.c: examples/ in C99, C11 and C++17, a program of before 0.2, and
   the operands in docs/. c_graph.c runs over fakes of CUDA, which compute
   nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "quern.h"
#include "test_cli.h"

static const struct {
    const char *file, *output; /* contains */
} programs[] = {
    {"examples/c_product.c", "b         r-            768 bytes\n"
                             "d         -w            448 bytes\n"
                             "112 of 112 results are equal to the sums\n"},
    {"examples/c_train.c", "y          66.89, in fp32  67.25\n"
                           "dx         34.50, in fp32  34.92\n"
                           "y          69.93, in fp32  70.07\n"
                           "dx         39.75, in fp32  39.60\n"
                           "main_grad   5.87, in fp32   5.85\n"},
    {"examples/c_mlp.c", "sum(dy * y) = -254.7, sum(dprob * prob) = -255.5\n"},
    {"examples/c_bindings.c", "-1.097 of the op, -1.097 of the handler\n"},
    {"examples/c_graph.c", "replay 1: 0 rows\nreplay 2: 0 rows\n"}, /* fakes */
    {"tests/cli/old/open.c", "1: this program was compiled with quern.h 0.1, "
                             "the library is 0.2.0: compile it again\n"},
};

static const char *const languages[] = {"${CC:-cc} -std=c99",
                                        "${CC:-cc} -std=c11",
                                        "${CXX:-c++} -x c++ -std=c++17"};

TEST(test_examples)
{
    const char *own = test_own_folder();
    const char *sanitizers =
        strstr(own, "/asan/") ? "-fsanitize=address,undefined" : "";

    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        for (size_t j = 0; j < sizeof languages / sizeof languages[0]; j++)
            if (test_shell(
                    "folder=$(mktemp -d) && %s -Wall -Wextra -Werror "
                    "-pedantic '-I%s/../include' -Itests/cli/cuda %s -x none "
                    "-o $folder/program '-L%s/../lib' -lquern "
                    "'-Wl,-rpath,%s/../lib' %s 2>&1 && QUERN_CACHE= "
                    "QUERN_CUDA='%s/../lib/fake_cuda.so' "
                    "QUERN_NVRTC='%s/../lib/fake_nvrtc.so' $folder/program "
                    "2>&1; code=$?; rm -r $folder; exit $code",
                    languages[j], own, programs[i].file, own, own, sanitizers,
                    own, own) != 0 ||
                !strstr(test_output, programs[i].output))
                fail_msg("%s, %s: %s", programs[i].file, languages[j],
                         test_output);
}

/* The three lines of examples/own_tile: their kernels are listed with the path
   of the file, can be asked about, and chosen. */
TEST(test_own_tile)
{
#define SPECS   "--specs examples/own_tile"
#define PLACE   "examples/own_tile/kernels/tile.lua:7"
#define TILE    "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x160x64_"
#define PROBLEM "'fprop bf16 g=8 m=4096 n=5120 k=4096'"
#define SHIPPED "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x128x64_"
    static const struct {
        const char *arguments, *output;
    } rows[] = {
        {"list -k " SPECS " " TILE "cluster2x1", PLACE},
        {"list -k " SPECS " " SHIPPED "cluster2x1",
         "specs/kernels/sm90_gemm.lua:"},
        {"why " SPECS " " TILE "cluster2x1", "  spec      " PLACE},
        {"why " SPECS
         " quern_bf16_fprop_nn_m_bf16_sm90a_cooperative_tile128x160x64_"
         "cluster1x1",
         "  rejected  B must be whole chunks of 64 columns"},
        {"why " PROBLEM " " SPECS " --kernel " TILE "cluster2x1",
         "\n> " TILE "cluster2x1\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (test_shell("'%s/quern' %s 2>&1", test_own_folder(),
                       rows[i].arguments) ||
            !strstr(test_output, rows[i].output))
            fail_msg("%s: %s", rows[i].arguments, test_output);
}

TEST(test_docs_have_every_operand)
{
    static const char *const names[] = {
#define NAME(name, text) "`" text "`",
        QUERN_ARGS(NAME)
#undef NAME
    };

    (void)state;
    assert_int_equal(test_shell("cat docs/c-api.md"), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strchr(names[i], '.') && !strstr(test_output, names[i]))
            fail_msg("docs/c-api.md lacks %s", names[i]);
}
