/* SPDX-License-Identifier: Apache-2.0 */
/* install_test.c: what `make install` puts in place serves programs in C and
   C++, linked through pkg-config with kernels for several architectures; and
   what `make uninstall` leaves after. */
#include <stdio.h>

#include "test_cli.h"

#define PREFIX "/opt/quern"

/* A folder of the test's, and commands that begin inside it. */
static char folder[64];

/* Fails, with the output, unless the status is 0. */
static void must(const char *what, int status)
{
    if (status != 0)
        fail_msg("%s: status %d: %s", what, status, test_output);
}

/* .ci/place for the build that this program belongs to. */
static int place(const char *verb)
{
    return test_shell("DESTDIR=%s PREFIX=" PREFIX " .ci/place %s '%s/..' 2>&1",
                      folder, verb, test_own_folder());
}

/* Programs that link a library with sanitizers need them, too. */
static const char *sanitizers(void)
{
    return strstr(test_own_folder(), "/asan/") ? "-fsanitize=address,undefined"
                                               : "";
}

/* Compile, link and run examples by the compiler's own rules for `language`. */
static int link_examples(const char *compiler, const char *language,
                         const char *libraries)
{
    return test_shell(
        "export PKG_CONFIG_SYSROOT_DIR=%s LD_LIBRARY_PATH=%s" PREFIX "/lib "
        "PKG_CONFIG_LIBDIR=%s" PREFIX "/lib/pkgconfig; "
        "for name in c_product c_aot; do %s -g -Wall -Wextra "
        "-Wpedantic -Werror %s -I%s/kernels $(pkg-config --cflags quern) "
        "examples/$name.c -x none -o %s/$name "
        "%s/kernels/libquern_kernels.a %s %s 2>&1 || exit 1; done; "
        "%s/c_product | grep '^112 of 112 results are equal'",
        folder, folder, folder, compiler, language, folder, folder, folder,
        libraries, sanitizers(), folder);
}

/* Run it as it would run on a GPU of that compute capability. */
static void check_device(const char *device, const char *kernel)
{
    must(device, test_shell("cd / && env -i LD_LIBRARY_PATH=%s" PREFIX "/lib "
                            "QUERN_CACHE= QUERN_GEN=/none QUERN_NVRTC=/none "
                            "QUERN_TRUST=compiled FAKE_DEVICE=%s "
                            "QUERN_CUDA='%s/../lib/fake_cuda.so' "
                            "%s/c_aot 2>&1",
                            folder, device, test_own_folder(), folder));
    if (!strstr(test_output, kernel))
        fail_msg("compute capability %s: not %s but %s", device, kernel,
                 test_output);
}

/* The archive adds the registry and cubins to a program, nothing else. */
static void check_symbols(void)
{
    must("nm", test_shell("nm -g --defined-only %s/kernels/libquern_kernels.a "
                          "| awk 'NF == 3 { print $3 }' "
                          "| grep -v '^quern_[a-z0-9_]*_cubin$'",
                          folder));
    assert_string_equal(test_output, "quern_kernels\n");
}

/* 0: there is no compiler for kernels. */
static int build_kernels(void)
{
    const int status =
        test_shell("cd %s && ." PREFIX "/bin/quern build -o kernels --arch "
                   "sm_80,sm_86 --arch sm_90a,sm_103a,sm_110a,sm_120a "
                   "fprop_tn_m_bf16_scale_sm80_tile128 "
                   "'quern_bf16_fprop_tn_m_bf16_scale_sm1*_tile64*' "
                   "fprop_tn_m_bf16_sm90a_pingpong_tile128x128x64_cluster1x1 "
                   "2>&1",
                   folder);

    if (status == 3 && strstr(test_output, "libnvrtc"))
        return 0;
    must("quern build", status);
    assert_non_null(strstr(test_output, "sm_110a: no template is written"));
    check_symbols();
    return 1;
}

static void check_programs(void)
{
    must("link as C99",
         link_examples("${CC:-cc}", "-std=c99", "$(pkg-config --libs quern)"));
    check_device("9.0", "sm90a_pingpong_tile128x128x64");
    check_device("8.0", "_sm80_tile128");
    check_device("8.6", "_sm80_tile128");
    check_device("8.9", "_sm80_tile128");
    check_device("10.0", "_sm100f_tile64");
    check_device("10.3", "_sm100f_tile64");
    check_device("12.0", "_sm120a_tile64");
    must("link as C++", link_examples("${CXX:-c++}", "-std=c++11 -x c++",
                                      "$(pkg-config --libs quern)"));
    check_device("9.0", "sm90a_pingpong_tile128x128x64");
    must("link libquern.a", link_examples("${CC:-cc}", "-std=c99",
                                          "$(pkg-config --libs --static quern "
                                          "| sed s/-lquern/-l:libquern.a/)"));
    must("ldd", test_shell("ldd %s/c_aot 2>&1", folder));
    assert_null(strstr(test_output, "libquern"));
    check_device("9.0", "sm90a_pingpong_tile128x128x64");
    if (*sanitizers()) /* which no static program can have */
        return;
    must("link all statically",
         link_examples("${CC:-cc} -static", "-std=c99",
                       "$(pkg-config --libs --static quern)"));
    check_device("9.0", "none");
}

/* Installed as a distribution does; nothing tells where it was built. */
static void check_folders(void)
{
    static const char *const folders[] = {"lib64", PREFIX "/lib64",
                                          "lib/$(${CC:-cc} -print-multiarch)"};

    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        setenv("LIBDIR", "", 1);
        must("folder", test_shell("printf %%s %s", folders[i]));
        setenv("LIBDIR", test_output, 1);
        must("install", place("install"));
        must("quern", test_shell("cd / && env -i PATH=\"$PATH\" %s" PREFIX
                                 "/bin/quern recipes 2>&1",
                                 folder));
        must("pkg-config",
             test_shell("test -e \"%s/$(PKG_CONFIG_LIBDIR=%s" PREFIX
                        "/${LIBDIR#" PREFIX "/}/pkgconfig pkg-config "
                        "--variable=libdir quern)/libquern.a\"",
                        folder, folder));
        must("uninstall", place("uninstall"));
        must("nothing is left", test_shell("test ! -e %s/opt", folder));
    }
    setenv("LIBDIR", "../lib", 1);
    assert_int_equal(place("install"), 2);
    assert_non_null(strstr(test_output, "LIBDIR is '../lib': lib, lib64 or "));
    unsetenv("LIBDIR");
    assert_int_equal(test_shell("DESTDIR=%s PREFIX='/opt/my quern' .ci/place "
                                "install '%s/..' 2>&1",
                                folder, test_own_folder()),
                     2);
    assert_non_null(strstr(test_output, "PREFIX is '/opt/my quern': pkg-config "
                                        "cannot give compilers a path with"));
}

/* Another clone, or this one after `make clean`, has no notes about folders:
   those that other libraries use, too, stay then. */
static void check_forgotten(void)
{
    must("install", place("install"));
    must("forget", test_shell("rm '%s/../folders'", test_own_folder()));
    must("uninstall", place("uninstall"));
    must("no file is left",
         test_shell("test -z \"$(find %s/opt/quern -mindepth 1 "
                    "\\( ! -type d -o -name "
                    "'*quern*' \\))\"",
                    folder));
    must("rm", test_shell("rm -r %s/opt", folder));
}

TEST(test_installed)
{
    int compiled;

    snprintf(folder, sizeof folder, "/tmp/quern-install-XXXXXX");
    assert_non_null(mkdtemp(folder));
    check_folders();
    must("install", place("install"));
    assert_int_equal(test_shell("grep -rlF \"$(pwd -P)\" %s 2>&1", folder), 1);
    must("quern", test_shell("%s" PREFIX "/bin/quern recipes 2>&1", folder));
    compiled = build_kernels();
    if (compiled)
        check_programs();
    must("uninstall", place("uninstall"));
    must("nothing is left", test_shell("test ! -e %s/opt", folder));
    check_forgotten();
    must("rm", test_shell("rm -r %s", folder));
    if (!compiled) {
        print_message("skip: needs libnvrtc to compile kernels\n");
        skip();
    }
}

/* A folder of any name can be built in: the name is a word of a shell's
   commands, in makefiles. */
TEST(test_any_folder)
{
    char own[] = "/tmp/quern-it's-XXXXXX";

    assert_non_null(mkdtemp(own));
    must("copy", test_shell("mkdir \"%s/a #b\" && cp -r .ci gen runtime tests "
                            "premake5.lua \"%s/a #b\" 2>&1",
                            own, own));
    must("build",
         test_shell("cd \"%s/a #b\" && .ci/premake && make -C build "
                    "config=release embed 2>&1 && build/bin/embed 2>&1 "
                    "| grep usage",
                    own));
    must("rm", test_shell("rm -r \"%s\"", own));
}
