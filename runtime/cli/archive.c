/* SPDX-License-Identifier: Apache-2.0 */
/*
** archive.c: a folder with compiled kernels.
**
** It holds the sources, one cubin for each, and
**   quern_kernels.h       declares the registry `quern_kernels`
**   registry.c, cubins.S  the registry and the cubins as code
**   loaded.c              the registry's address, for programs that open
**   libquern_kernels.so   all of this as a library; and
**   libquern_kernels.a    as an archive to link, without the address
**   manifest              written last: the kernels, with their cubins' sums
*/
#define _GNU_SOURCE /* posix_spawn_file_actions_addchdir_np */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "gen.h"
#include "base/file.h"
#include "base/text.h"
#include "code/entry.h"
#include "device/library.h"

extern char **environ;

#define LIBRARY "libquern_kernels.so"

/* COUPLED: loaded kernels */
static const char loaded[] =
    "#include \"registry.h\"\n"
    "extern const struct quern_registry quern_kernels;\n"
    "extern const struct quern_registry *const quern_kernels_loaded;\n"
    "__attribute__((visibility(\"default\")))\n"
    "const struct quern_registry *const quern_kernels_loaded = "
    "&quern_kernels;\n";

/* DIR/name, or no file at all. */
static int write_file(const struct qn_options *opt, const char *folder,
                      const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    FILE *file;
    int failed, error;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "wb");
    failed = !file || fwrite(data, 1, bytes, file) != bytes;
    error = errno;
    if (file && fclose(file) && !failed) {
        failed = 1;
        error = errno;
    }
    if (!failed)
        return QN_EXIT_OK;
    remove(path);
    return qn_message_fail(opt, QN_EXIT_UNABLE, "%s: %s", path,
                           strerror(error));
}

/* ---------------------------------------------------------------- manifest */

/* All that decides about the files: a build that would write the same manifest
   has nothing to do. */
static void write_manifest(const struct qn_compile *work, struct qn_text *text)
{
    char sum[QN_KEY_SIZE];

    qn_text_add(text, "quern build 1\nversion %s %llx\nregistry %s\n",
                quern_version(), (unsigned long long)QN_REGISTRY_LAYOUT,
                work->ctx->base->hash);
    for (int i = 0; i < work->count; i++) {
        const struct qn_compile_item *item = &work->items[i];

        qn_entry_sum(item->object.data, item->object.bytes, sum);
        qn_text_add(text, "kernel %s %zu %s\n", item->kernel->name,
                    item->object.bytes, sum);
    }
}

double qn_archive_bytes(const char *folder, const char *file)
{
    char path[PATH_MAX];
    struct stat status;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    return stat(path, &status) ? 0 : (double)status.st_size;
}

int qn_archive_current(const char *folder, const struct qn_compile *work)
{
    static const char *const files[] = {QN_ARCHIVE, LIBRARY, "quern_kernels.h"};
    struct qn_text want = {0};
    struct qn_file_text have = {0};
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int same = 0;

    write_manifest(work, &want);
    if (at >= 0 && !want.failed &&
        qn_file_read(at, "manifest", want.length, QN_TRUST_ALL, &have) ==
            QN_FILE_OK)
        same = have.bytes == want.length &&
               memcmp(have.data, want.data, want.length) == 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        same = same && qn_archive_bytes(folder, files[i]) > 0;
    if (at >= 0)
        close(at);
    free(have.data);
    qn_text_free(&want);
    return same;
}

/* ------------------------------------------------------------------- files */

/* For the registry: how large a kernel's cubin is. */
static size_t cubin_bytes(void *user, const struct qn_kernel *kernel)
{
    const struct qn_compile_item *item = qn_compile_item(user, kernel->name);

    return item ? item->object.bytes : 0;
}

static int is_chosen(void *user, const struct qn_kernel *kernel)
{
    return qn_compile_item(user, kernel->name) != NULL;
}

/* registry.c again, now that the sizes of the cubins are known. */
static int write_registry(const struct qn_options *opt, const char *folder,
                          struct qg *generator,
                          const struct qg_selection *selection)
{
    const struct qg_link link = {.symbol = "quern_kernels",
                                 .cubin_bytes = cubin_bytes,
                                 .user = selection->user};
    const char *text;
    size_t length;

    if (qg_registry_text(generator, selection, &link, &text, &length))
        return qn_message_text(opt, QN_EXIT_USAGE, "",
                               qg_diagnostics(generator));
    return write_file(opt, folder, "registry.c", text, length);
}

/* cubins.S: each cubin under the name by which the registry refers to it. */
static int write_cubins(const struct qn_options *opt, const char *folder,
                        const struct qn_compile *work)
{
    struct qn_text code = {0};
    char name[512];
    int status = QN_EXIT_OK;

    qn_text_add(&code, "    .section .note.GNU-stack, \"\", %%progbits\n"
                       "    .section .rodata\n");
    for (int i = 0; i < work->count && !status; i++) {
        const struct qn_compile_item *item = &work->items[i];
        const char *symbol = item->kernel->name;

        qn_text_add(&code,
                    "    .balign 16\n    .globl %s_cubin\n"
                    "    .hidden %s_cubin\n%s_cubin:\n"
                    "    .incbin \"%s.cubin\"\n",
                    symbol, symbol, symbol, symbol);
        snprintf(name, sizeof name, "%s.cubin", symbol);
        status = write_file(opt, folder, name, item->object.data,
                            item->object.bytes);
    }
    if (!status && !code.failed)
        status = write_file(opt, folder, "cubins.S", code.data, code.length);
    qn_text_free(&code);
    return status;
}

/* Run a program of the system, in messages `tool`, in `folder`; an exit
   status. */
static int run_tool(const struct qn_options *opt, const char *folder,
                    const char *tool, char *const *arguments)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    int error, status = 0;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    error =
        posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return qn_message_fail(opt, QN_EXIT_UNABLE, "%s: %s", tool,
                               strerror(error));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return QN_EXIT_OK;
    return qn_message_fail(opt, QN_EXIT_UNABLE, "%s failed", tool);
}

/* Into the archive and the library. The headers are next to this
   program, in ../include, and where it is installed one in ../include/quern. */
static int make_archive(const struct qn_options *opt, const char *folder)
{
    char own[PATH_MAX] = ".", full[PATH_MAX] = ".";
    char include[PATH_MAX + 16], installed[PATH_MAX + 24];
    const char *given = getenv("CC"), *compiler = given ? given : "cc";
    char *compile[] = {"/bin/sh", /* $CC may be several words, as for make */
                       "-c",          "exec ${CC:-cc} \"$@\"",
                       "quern build", "-O1",
                       "-fPIC",       "-fvisibility=hidden",
                       "-I",          include,
                       "-I",          installed,
                       "-c",          "registry.c",
                       "loaded.c",    "cubins.S",
                       NULL};
    char *link[] = {
        "/bin/sh",     "-c",       "exec ${CC:-cc} \"$@\"",
        "quern build", "-shared",  "-Wl,-soname,libquern_kernels.so",
        "-o",          LIBRARY,    "registry.o",
        "loaded.o",    "cubins.o", NULL};
    char *archive[] = {"ar", "rcs", QN_ARCHIVE, "registry.o", "cubins.o", NULL};
    int status;

    if (!qn_library_folder(own, sizeof own) || !realpath(own, full))
        return qn_message_fail(opt, QN_EXIT_UNABLE, "%s: %s", own,
                               strerror(errno));
    snprintf(include, sizeof include, "%s/../include", full);
    snprintf(installed, sizeof installed, "%s/quern", include);
    status = run_tool(opt, folder, compiler, compile);
    if (!status)
        status = run_tool(opt, folder, compiler, link);
    return status ? status : run_tool(opt, folder, archive[0], archive);
}

/* The old archive and library go first: a build that is cut short leaves none
   that differs from its manifest. */
static void remove_old(const char *folder)
{
    static const char *const files[] = {"manifest", QN_ARCHIVE, LIBRARY};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        remove(path);
    }
}

static int write_all(const struct qn_options *opt, struct qg *generator,
                     const char *folder, const struct qn_compile *work)
{
    const struct qg_selection selection = {.takes = is_chosen,
                                           .user = (void *)(uintptr_t)work};
    struct qn_text manifest = {0};
    int status;

    status = qn_source_emit(opt, generator, folder, &selection, NULL);
    if (!status)
        status = write_cubins(opt, folder, work);
    if (!status)
        status = write_registry(opt, folder, generator, &selection);
    if (!status)
        status = write_file(opt, folder, "loaded.c", loaded, sizeof loaded - 1);
    if (!status) {
        remove_old(folder);
        status = make_archive(opt, folder);
    }
    write_manifest(work, &manifest);
    if (!status && !manifest.failed)
        status =
            write_file(opt, folder, "manifest", manifest.data, manifest.length);
    qn_text_free(&manifest);
    return status;
}

int qn_archive_write(const struct qn_options *opt, const char *folder,
                     const struct qn_compile *work)
{
    struct qg *generator;
    sigset_t before;
    int status = qn_source_open(opt, &generator);

    if (status)
        return status;
    qn_signal_hold(&before);
    status = write_all(opt, generator, folder, work);
    qn_signal_release(&before);
    qg_close(generator);
    return status;
}
