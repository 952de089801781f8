/* SPDX-License-Identifier: Apache-2.0 */
/* library.c: libraries that are opened at run time, and where people have
   NVIDIA's. */
#define _GNU_SOURCE

#include "device/library.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* 1 for the program itself, the first object, if it names a loader; else -1,
   which ends the search: 0 would go on to the next object. */
static int find_loader(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_INTERP)
            return 1;
    return -1;
}

static int is_static(void)
{
    return dl_iterate_phdr(find_loader, NULL) != 1;
}

void *qn_library_open(const char *path, int stay)
{
    if (is_static())
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | (stay ? RTLD_NODELETE : 0));
}

const char *qn_library_error(void)
{
    const char *text;

    if (is_static())
        return "this program is linked with -static, so it can open no library";
    text = dlerror();
    return text ? text : "no reason is given";
}

/* Why the first file that is there could not be opened. */
static _Thread_local char refused[512];

const char *qn_library_refused(void)
{
    return refused;
}

static void note_refused(const char *path)
{
    const char *reason = qn_library_error();

    if (!*refused && access(path, F_OK) == 0)
        snprintf(refused, sizeof refused, "\n  %s", reason);
}

/* The loader's path if `folder` is "", else FOLDER + REST + a name. */
static void *try_folder(const char *const *names, const char *folder,
                        const char *rest)
{
    char path[PATH_MAX];
    void *library = NULL;

    for (int i = 0; names[i] && !library; i++) {
        int need = snprintf(path, sizeof path, "%s%s%s%s", folder, rest,
                            *folder ? "/" : "", names[i]);

        if (need <= 0 || (size_t)need >= sizeof path)
            continue;
        library = qn_library_open(path, 1);
        if (!library && *folder)
            note_refused(path);
    }
    return library;
}

/* Wheels of PyPI that make fetched, or pip installed with the package. */
static void *try_beside(const struct qn_library_search *search)
{
    char folder[PATH_MAX];
    void *library = NULL;

    if (!qn_library_folder(folder, sizeof folder))
        return NULL;
    for (int i = 0; search->beside[i] && !library; i++)
        library = try_folder(search->names, folder, search->beside[i]);
    return library;
}

void *qn_library_find(const struct qn_library_search *search,
                      const char *cuda_home)
{
    void *library;

    *refused = 0;
    library = try_beside(search);
    if (!library)
        library = try_folder(search->names, "", "");
    if (!library && cuda_home)
        library = try_folder(search->names, cuda_home, "/lib64");
    if (!library)
        library = try_folder(search->names, "/usr/local/cuda", "/lib64");
    return library;
}

const char *qn_library_load(void *library, void *structure,
                            const struct qn_library_symbol *symbols, int count)
{
    for (int i = 0; i < count; i++) {
        void *symbol = dlsym(library, symbols[i].name);

        if (!symbol)
            return symbols[i].name;
        memcpy((char *)structure + symbols[i].offset, &symbol, sizeof symbol);
    }
    return NULL;
}

int qn_library_folder(char *buffer, size_t size)
{
    Dl_info info;
    char *slash;
    ssize_t length;

    if (!dladdr((void *)(uintptr_t)qn_library_folder, &info) || !info.dli_fname)
        return 0;
    length = snprintf(buffer, size, "%s", info.dli_fname);
    /* The name of a program found on the shell's path has no folder. */
    if (!strchr(info.dli_fname, '/'))
        length = readlink("/proc/self/exe", buffer, size);
    if (length < 0 || (size_t)length >= size)
        return 0;
    buffer[length] = 0;
    slash = strrchr(buffer, '/');
    if (!slash)
        return 0;
    *slash = 0;
    return 1;
}
