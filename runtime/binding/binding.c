/* SPDX-License-Identifier: Apache-2.0 */
/*
** binding.c: the context that all calls of a process share.
*/
#include "binding/binding.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct quern_context *context;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folders[16]; /* with specs of users; never freed */
static int folder_count;
static atomic_int forks;

/* A child of fork() must open the library again. */
static void forget_in_child(void)
{
    context = NULL;
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
    pthread_mutex_init(&lock, NULL);
}

int qn_binding_forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

const char *qn_binding_add_specs(const char *folder)
{
    const int room = (int)(sizeof folders / sizeof *folders);
    const char *error = NULL;
    char *copy = strdup(folder);

    pthread_mutex_lock(&lock);
    if (context)
        error = "folder: the library has read its specs already";
    else if (folder_count == room)
        error = "folder: there is room for 16";
    else if (!copy)
        error = "folder: host memory ran out";
    else
        folders[folder_count++] = copy;
    pthread_mutex_unlock(&lock);
    if (error)
        free(copy);
    return error;
}

int qn_binding_open(struct quern_context **ctx)
{
    struct quern_open_options options = QUERN_OPEN_OPTIONS_INIT;
    static int watched;
    int code = QUERN_OK;

    pthread_mutex_lock(&lock);
    if (!watched)
        watched = !pthread_atfork(NULL, NULL, forget_in_child);
    options.specs = folders;
    options.specs_count = folder_count;
    if (!context)
        code = quern_open(&options, &context);
    *ctx = context;
    pthread_mutex_unlock(&lock);
    return code;
}
