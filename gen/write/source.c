/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: the file of one kernel: a header, then the used declarations of its
   template's text. */
#include "lua/base.h"
#include "write/sweep.h"
#include "write/write.h"

#include <sha2.h>
#include <string.h>

/* The template's output into q->output. The environment is the kernel's own. */
static int render(struct qg *q, struct qg_point *point)
{
    int file = point->kernels->template_file, failed;
    lua_State *L = q->L;

    lua_settop(L, 0);
    qg_text_clear(&q->output);
    qg_text_put(q, &q->output, "\n");
    q->depth = q->indent = 0;
    q->renders++;
    qg_sweep_begin(q, file);
    lua_rawgeti(L, LUA_REGISTRYINDEX, point->values);
    lua_rawgeti(L, LUA_REGISTRYINDEX, q->template_globals);
    qg_sandbox_env(L);
    q->render_env = luaL_ref(L, LUA_REGISTRYINDEX);
    failed = qg_template_push(q, file);
    if (!failed) {
        qg_template_run(q);
        failed = qg_sandbox_call(q, 3, 0, (struct qg_location){file, 1}) ||
                 qg_sweep(q, point->kernel.name, file);
    }
    luaL_unref(L, LUA_REGISTRYINDEX, q->render_env);
    return failed;
}

/* The same; errors name the kernel. */
static int render_named(struct qg *q, struct qg_point *point)
{
    int failed;

    q->rendering = point->kernel.name;
    q->rendering_of = point->kernels->location;
    q->point = point;
    failed = render(q, point);
    q->rendering = NULL;
    q->point = NULL;
    return failed;
}

/* The key covers everything after the header: the same code under another name
   of a spec's file is the same code. */
static int render_with_key(struct qg *q, struct qg_point *point)
{
    char key[SHA256_DIGEST_STRING_LENGTH];
    int failed = render_named(q, point);

    if (!failed && !point->kernel.key) {
        SHA256Data((const uint8_t *)q->output.data, q->output.length, key);
        point->kernel.key = qg_mem_string(q, key, strlen(key));
        point->row->key = point->kernel.key;
    }
    return failed;
}

int qg_source_key(struct qg *q, struct qg_point *point)
{
    return point->kernel.key ? 0 : render_with_key(q, point);
}

/* Does it need a spec of the user's? */
static int is_own(const struct qg *q, const struct qg_point *point)
{
    const struct qg_input *kernels = &q->files[point->kernels->location.file];
    const struct qg_input *recipe = &q->files[point->recipe->location.file];

    return strcmp(kernels->path, kernels->name) != 0 ||
           strcmp(recipe->path, recipe->name) != 0;
}

/* The text is deterministic: no date, no path of a machine. */
int qg_source_keep(struct qg *q, struct qg_point *point)
{
    const struct qn_kernel *kernel = &point->kernel;
    const char *header;
    char *source;

    if (point->source)
        return 0;
    if (render_with_key(q, point))
        return 1;
    header = qg_mem_print(
        q,
        "/*\n"
        "** %s\n"
        "**\n"
        "** spec      %s\n"
        "** template  templates/%s\n"
        "%s"
        "** key       %s\n"
        "** made by   quern emit %s%s\n"
        "*/\n",
        kernel->name, qg_files_portable(q, kernel->spec), kernel->template_path,
        qg_sweep_contents(q, point->kernels->template_file), kernel->key,
        is_own(q, point) ? "--specs DIR " : "", kernel->name);
    source = qg_mem_new(q, strlen(header) + q->output.length + 1);
    strcpy(source, header);
    memcpy(source + strlen(header), q->output.data, q->output.length);
    point->length = strlen(header) + q->output.length;
    point->source = source;
    return 0;
}

/* Every other kernel of a template that failed would meet the same error. */
static void source_one(struct qg *q, struct qg_point *point,
                       int (*source)(struct qg *, struct qg_point *))
{
    struct qg_input *template = &q->files[point->kernels->template_file];

    if (!template->failed)
        template->failed = source(q, point);
}

int qg_source_each(struct qg *q, const struct qg_selection *selection,
                   int (*source)(struct qg *, struct qg_point *))
{
    for (int i = 0; i < q->nfiles; i++)
        q->files[i].failed = 0;
    for (int i = 0; i < q->registry.nkernels; i++)
        if (qg_selects(selection, q->sorted[i]->row))
            source_one(q, q->sorted[i], source);
    return q->errors > 0;
}

/* A statement of kernels and a recipe of theirs. */
struct pair {
    const struct qg_kernels *kernels;
    const struct qg_recipe *recipe;
    const struct pair *next;
};

static int is_proved(const struct qg *q, const struct qg_point *point)
{
    return q->files[point->kernels->location.file].proved &&
           q->files[point->recipe->location.file].proved;
}

/* Errors that only the user's specs reveal show when these are opened. */
void qg_source_try(struct qg *q)
{
    const struct pair *tried = NULL, *found;

    for (int i = 0; i < q->registry.nkernels; i++) {
        struct qg_point *point = q->sorted[i];
        struct pair *pair;

        if (is_proved(q, point))
            continue;
        for (found = tried; found; found = found->next)
            if (found->kernels == point->kernels &&
                found->recipe == point->recipe)
                break;
        if (found)
            continue;
        source_one(q, point, render_named);
        pair = qg_mem_new(q, sizeof *pair);
        *pair = (struct pair){point->kernels, point->recipe, tried};
        tried = pair;
    }
}

/* ---------------------------------------------------------- for the caller */

struct request {
    const char *name;
    const struct qg_point *found;
};

static void unknown(struct qg *q, const char *name)
{
    struct qg_nearest nearest;

    qg_nearest_start(&nearest, name);
    for (int i = 0; i < q->registry.nkernels; i++)
        qg_nearest_try(&nearest, q->registry.kernels[i].name);
    qg_diag_note(q, (struct qg_location){-1, 0}, QG_E_KERNEL_UNKNOWN, name,
                 qg_nearest_hint(&nearest, "quern list prints them", ""));
}

/* NULL if there is none, or an error was noted. */
static struct qg_point *find_point(struct qg *q, const char *name)
{
    struct qg_point *point;

    if (!q->lazy)
        return qg_sorted_find(q, q->registry.nkernels, name);
    point = qg_grid_one(q, name);
    if (point)
        point->row = &point->kernel;
    return point;
}

static void find_kernel(struct qg *q, void *argument)
{
    struct request *request = argument;

    request->found = find_point(q, request->name);
}

const struct qn_kernel *qg_source_kernel(struct qg *q, const char *name)
{
    struct request request = {name, NULL};

    qg_diag_clear(q);
    if (qg_sandbox_protect(q, find_kernel, &request) || !request.found)
        return NULL;
    return request.found->row;
}

static void find_source(struct qg *q, void *argument)
{
    struct request *request = argument;
    struct qg_point *point = find_point(q, request->name);

    if (point && !qg_source_keep(q, point))
        request->found = point;
    if (!point && !q->errors)
        unknown(q, request->name);
}

int qg_source(struct qg *q, const char *kernel, const char **text,
              size_t *length)
{
    struct request request = {kernel, NULL};

    qg_diag_clear(q);
    if (qg_sandbox_protect(q, find_source, &request))
        return 1;
    *text = request.found->source;
    *length = request.found->length;
    return 0;
}
