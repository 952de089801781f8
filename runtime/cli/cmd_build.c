/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_build.c: `quern build`: kernels compiled ahead of time, as an archive
** that a C program links.
**
** DIR then holds the sources, one cubin for each, and
**   quern_kernels.h       declares the registry `quern_kernels`
**   registry.c, cubins.S  the registry and the cubins as code
**   libquern_kernels.a    both, compiled
*/
#define _GNU_SOURCE /* posix_spawn_file_actions_addchdir_np */

#include <errno.h>
#include <libgen.h>
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
#include "base/text.h"
#include "device/library.h"

extern char **environ;

static const struct argp_option options[] = {
    QN_OPTION_OUTPUT("Write into DIR (default quern-kernels)"),
    {"arch", QN_KEY_ARCH, "ARCH", 0,
     "For this architecture, or for several: sm_80,sm_90a (repeatable; default "
     "sm_90a)",
     0},
    {"jobs", 'j', "N", 0, "Compile N kernels at a time (default: all cores)",
     0},
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    {0},
};

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

/* For the registry: how large a kernel's cubin is. */
static size_t cubin_bytes(void *user, const struct qn_kernel *kernel)
{
    const struct qn_compile *work = user;

    for (int i = 0; i < work->count; i++)
        if (work->items[i].kernel == kernel)
            return work->items[i].compiled.bytes;
    return 0;
}

/* registry.c again, now that the sizes of the cubins are known. */
static int write_registry(const struct qn_options *opt, const char *folder,
                          struct qg *generator,
                          const struct qg_selection *selection,
                          struct qn_compile *work)
{
    const struct qg_link link = {
        .symbol = "quern_kernels", .cubin_bytes = cubin_bytes, .user = work};
    const char *text;
    size_t length;

    if (qg_registry_text(generator, selection, &link, &text, &length)) {
        fputs(qg_diagnostics(generator), stderr);
        return QN_EXIT_USAGE;
    }
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
        qn_text_add(&code,
                    "    .balign 16\n    .globl %s_cubin\n"
                    "    .hidden %s_cubin\n%s_cubin:\n"
                    "    .incbin \"%s.cubin\"\n",
                    item->kernel->name, item->kernel->name, item->kernel->name,
                    item->kernel->name);
        snprintf(name, sizeof name, "%s.cubin", item->kernel->name);
        status = write_file(opt, folder, name, item->compiled.object,
                            item->compiled.bytes);
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

/* registry.c and cubins.S into the archive. The headers are next to this
   program, in ../include, and where it is installed one in ../include/quern. */
static int make_archive(const struct qn_options *opt, const char *folder)
{
    char own[PATH_MAX] = ".", full[PATH_MAX] = ".";
    char include[PATH_MAX + 16], installed[PATH_MAX + 24];
    const char *compiler = getenv("CC");
    char *compile[] = {"/bin/sh", /* $CC may be several words, as for make */
                       "-c",          "exec ${CC:-cc} \"$@\"",
                       "quern build", "-O1",
                       "-fPIC",       "-fvisibility=hidden",
                       "-I",          include,
                       "-I",          installed,
                       "-c",          "registry.c",
                       "cubins.S",    NULL};
    char *archive[] = {"ar",         "rcs",      "libquern_kernels.a",
                       "registry.o", "cubins.o", NULL};
    int status;

    if (!qn_library_folder(own, sizeof own) || !realpath(own, full))
        return qn_message_fail(opt, QN_EXIT_UNABLE, "%s: %s", own,
                               strerror(errno));
    snprintf(include, sizeof include, "%s/../include", full);
    snprintf(installed, sizeof installed, "%s/quern", include);
    status = run_tool(opt, folder, compiler ? compiler : "cc", compile);
    return status ? status : run_tool(opt, folder, archive[0], archive);
}

/* The bytes of DIR/libquern_kernels.a; 0 if it cannot be read. */
static double archive_bytes(const char *folder)
{
    char path[PATH_MAX];
    struct stat status;

    snprintf(path, sizeof path, "%s/libquern_kernels.a", folder);
    return stat(path, &status) ? 0 : (double)status.st_size;
}

/* The size of each kernel in a program that links it. */
static cJSON *list_kernels(const struct qn_compile *work)
{
    cJSON *rows = cJSON_CreateArray();

    for (int i = 0; i < work->count; i++) {
        const struct qn_compile_item *item = &work->items[i];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "kernel", item->kernel->name);
        cJSON_AddStringToObject(row, "arch", item->kernel->arch);
        cJSON_AddNumberToObject(row, "cubin_bytes",
                                (double)item->compiled.bytes);
        cJSON_AddItemToArray(rows, row);
    }
    return rows;
}

/* The architectures asked for, and the results of each. */
static cJSON *list_archs(const struct qn_archs *archs,
                         const struct qn_compile *work)
{
    cJSON *rows = cJSON_CreateArray();

    for (int i = 0; i < archs->count; i++) {
        const struct qn_arch *arch = &archs->at[i];
        cJSON *row = cJSON_CreateObject();
        double bytes = 0;
        int kernels = 0;
        for (int j = 0; arch->code && j < work->count; j++)
            if (strcmp(work->items[j].kernel->arch, arch->code) == 0) {
                bytes += (double)work->items[j].compiled.bytes;
                kernels++;
            }
        cJSON_AddStringToObject(row, "arch", arch->asked);
        if (arch->code)
            cJSON_AddStringToObject(row, "code", arch->code);
        else
            cJSON_AddNullToObject(row, "code");
        cJSON_AddNumberToObject(row, "kernels", kernels);
        cJSON_AddNumberToObject(row, "cubin_bytes", bytes);
        cJSON_AddItemToArray(rows, row);
    }
    return rows;
}

static void print_tables(const struct qn_options *opt, const char *folder,
                         const struct qn_archs *archs,
                         const struct qn_compile *work)
{
    static const struct qn_column kernels[] = {
        {"cubin_bytes", "bytes", "%.0f"}, {"kernel", "kernel", "s"}, {0}};
    static const struct qn_column architectures[] = {
        {"arch", "arch", "s"},
        {"code", "code of", "s"},
        {"kernels", "kernels", "%.0f"},
        {"cubin_bytes", "bytes", "%.0f"},
        {0}};

    qn_table_print(opt, list_kernels(work), kernels);
    putchar('\n');
    qn_table_print(opt, list_archs(archs, work), architectures);
    printf("\n%d kernel%s compiled in %.2f s: %s/libquern_kernels.a, %.0f "
           "bytes\n",
           work->count, work->count == 1 ? "" : "s", work->seconds, folder,
           archive_bytes(folder));
}

static int print_summary(const struct qn_options *opt, const char *folder,
                         const struct qn_archs *archs,
                         const struct qn_compile *work)
{
    cJSON *object;

    if (!opt->json) {
        print_tables(opt, folder, archs, work);
        return QN_EXIT_OK;
    }
    object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "folder", folder);
    cJSON_AddNumberToObject(object, "seconds", work->seconds);
    cJSON_AddNumberToObject(object, "archive_bytes", archive_bytes(folder));
    cJSON_AddItemToObject(object, "archs", list_archs(archs, work));
    cJSON_AddItemToObject(object, "kernels", list_kernels(work));
    qn_table_json(object);
    return QN_EXIT_OK;
}

/* All files of the folder; not to be interrupted. */
static int write_all(const struct qn_options *opt, struct qg *generator,
                     const struct qg_selection *selection, const char *folder,
                     struct qn_compile *work)
{
    int status = qn_source_emit(opt, generator, folder, selection, NULL);

    if (!status)
        status = write_cubins(opt, folder, work);
    if (!status)
        status = write_registry(opt, folder, generator, selection, work);
    return status ? status : make_archive(opt, folder);
}

/* Told before minutes of compiling: may DIR, or the nearest folder around it
   that is there, be written? */
static int check_folder(const struct qn_options *opt, const char *folder)
{
    char *copy = qn_text_copy(folder), *at = copy;
    int error = ENOMEM;

    while (at && (error = access(at, W_OK | X_OK) ? errno : 0) == ENOENT &&
           strcmp(at, ".") != 0)
        at = dirname(at);
    free(copy);
    return error ? qn_message_fail(opt, QN_EXIT_UNABLE,
                                   "%s cannot be written: %s", folder,
                                   strerror(error))
                 : QN_EXIT_OK;
}

/* Nothing is written before every kernel has compiled; then all is. */
static int compile(const struct qn_options *opt, struct qg *generator,
                   struct quern_context *ctx,
                   const struct qg_selection *selection,
                   const struct qn_archs *archs)
{
    const char *folder = opt->output ? opt->output : "quern-kernels";
    struct qn_compile work;
    sigset_t before;
    int status = check_folder(opt, folder);

    if (status)
        return status;
    status = qn_compile_run(opt, generator, ctx, selection, opt->jobs, &work);
    qn_signal_hold(&before);
    if (!status)
        status = write_all(opt, generator, selection, folder, &work);
    qn_signal_release(&before);
    if (!status)
        status = print_summary(opt, folder, archs, &work);
    qn_compile_free(&work);
    return status;
}

static int build(const struct qn_options *opt, struct qg *generator,
                 const struct qg_selection *words)
{
    struct qg_selection selection = *words;
    struct qn_archs archs;
    struct quern_context *ctx = NULL;
    int status = qn_arch_choose(opt, qg_registry(generator),
                                opt->arch ? opt->arch : "sm_90a", &archs);

    if (!status)
        status = qn_source_context(opt, &ctx);
    if (!status) {
        selection.arch = archs.list;
        selection.shipped = !selection.filter;
        status = compile(opt, generator, ctx, &selection, &archs);
    }
    quern_close(ctx);
    return status;
}

static int run(const struct qn_options *opt)
{
    return qn_source_kernels(opt, build);
}

const struct qn_command qn_cmd_build = {
    .name = "build",
    .arguments = "[FILTER...]",
    .summary = "Compile kernels ahead of time into an archive to link",
    .help =
        "Without FILTER, the kernels that specs/kernels/shipped.lua names; "
        "with several, those that match one of them. A program that links "
        "kernels for several architectures runs those of the GPU that it "
        "finds; sm_80's also serve GPUs of 8.6 and 8.9, and those of sm_100a "
        "and sm_103a are one, sm_100f. A kernel that spills registers or whose "
        "tensor-core work is serialized is an error. "
        "Example:\n"
        "  quern build --arch sm_80,sm_90a -o out\n"
        "  cc -Iout $(pkg-config --cflags quern) program.c "
        "out/libquern_kernels.a \\\n    $(pkg-config --libs quern)",
    .options = options,
    .run = run,
};
