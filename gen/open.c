/* SPDX-License-Identifier: Apache-2.0 */
/* open.c: loading all specs, and the result for callers. */
#include "globals.h"
#include "lua/base.h"
#include "rule/trace.h"
#include "statement/word.h"
#include "write/write.h"

#include <stdlib.h>
#include <string.h>

static void *resize(void *user, void *memory, size_t bytes)
{
    (void)user;
    if (bytes)
        return realloc(memory, bytes);
    free(memory);
    return NULL;
}

/* Push the spec's function; with scale rules in it, one that refuses to decide
   by values of the device. Returns 0, or 1 and noted. */
static int compile(struct qg *q, int file)
{
    const char *text = q->files[file].text;
    const size_t length = q->files[file].length;

    if (qg_sandbox_load(q, file, text, length))
        return 1;
    qg_lex_twice(q, file);
    if (!qg_condition_show(q, text, length))
        return 0;
    lua_settop(q->L, 0);
    return qg_sandbox_load(q, file, q->chunk.data, q->chunk.length);
}

/* Run a spec: its statements add to the lists of `q`. A file without any was
   left empty by mistake: locals reach no other file. */
static void run_file(struct qg *q, int file)
{
    lua_State *L = q->L;
    int errors = q->errors;

    lua_settop(L, 0);
    if (compile(q, file))
        return;
    lua_rawgeti(L, LUA_REGISTRYINDEX, q->env);
    lua_setupvalue(L, 1, 1);
    if (qg_sandbox_call(q, 0, 0, (struct qg_location){file, 1}))
        q->words = NULL; /* cut short: unfinished statements say nothing */
    else if (!q->words && q->errors == errors)
        qg_diag_note(q, (struct qg_location){file, 0}, QG_E_FILE_EMPTY);
    qg_word_finish(q);
    lua_settop(L, 0);
}

/* The stages in order; each needs the one before to be without an error. */
static void load(struct qg *q, void *argument)
{
    qg_globals_build(q);
    qg_files_load(q, argument);
    q->loading = 1;
    for (int i = 0; i < q->nfiles; i++)
        if (q->files[i].kind == QG_SPEC && !q->files[i].failed)
            run_file(q, i);
    q->loading = 0;
    if (q->errors)
        return;
    qg_grid_expand(q);
    if (!q->errors && !q->lazy)
        qg_registry_build(q);
    if (q->errors) /* a part of the kernels would pass for all of them */
        q->registry = (struct quern_registry){.hash = ""};
}

/* NULL if there is no memory for it. */
static struct qg *create(const struct qg_options *options)
{
    void *(*allocate)(void *, void *, size_t) =
        options->resize ? options->resize : resize;
    struct qg *q = allocate(options->user, NULL, sizeof *q);

    if (!q)
        return NULL;
    memset(q, 0, sizeof *q);
    q->resize = allocate;
    q->user = options->user;
    q->bound = options->memory ? options->memory : QG_MAX_MEMORY;
    q->lazy = options->lazy;
    q->steps = options->instructions ? options->instructions : QG_ALL_STEPS;
    q->registry.hash = "";
    q->L = lua_newstate(qg_mem_lua, q);
    if (!q->L) {
        qg_close(q);
        return NULL;
    }
    return q;
}

/* Errors in specs leave a generator that tells of them; only without memory is
   there none. */
int qg_open_with(const struct qg_options *options, struct qg **out)
{
    struct qg *q = create(options);
    int failed;

    *out = q;
    if (!q)
        return 1;
    failed = qg_sandbox_protect(q, load, (void *)options);
    if (q->fault == QG_NO_MEMORY) {
        qg_close(q);
        *out = NULL;
    }
    return failed;
}

int qg_open(const char *const *dirs, int count, struct qg **out)
{
    struct qg_options options = {.dirs = dirs, .dirs_count = count};

    return qg_open_with(&options, out);
}

int qg_open_lazily(struct qg **out)
{
    struct qg_options options = {.lazy = 1};

    return qg_open_with(&options, out);
}

/* Lua first: its blocks come from the same allocator. */
void qg_close(struct qg *q)
{
    if (!q)
        return;
    if (q->L)
        lua_close(q->L);
    qg_mem_free(q);
    q->resize(q->user, q->diagnostics.data, 0);
    q->resize(q->user, q->output.data, 0);
    q->resize(q->user, q->chunk.data, 0);
    q->resize(q->user, q, 0);
}

const char *qg_diagnostics(const struct qg *q)
{
    if (!q || q->fault == QG_NO_MEMORY)
        return "error: out of memory\n";
    return q->diagnostics.data ? q->diagnostics.data : "";
}
