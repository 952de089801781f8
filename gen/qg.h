/* SPDX-License-Identifier: Apache-2.0 */
/*
** qg.h: the state of a generator, which all its files share. Not installed.
**
** All work runs inside one lua_pcall (qg_sandbox_protect): each failure, an
** allocation's included, unwinds to it. Memory that C owns is in the arena or
** in the buffers of struct qg, so that nothing is lost on the way.
*/
#pragma once

#include "gen.h"

#include <lua5.4/lauxlib.h>
#include <lua5.4/lua.h>

/* ------------------------------------------------------------------ limits */

enum {
    QG_MAX_ERRORS = 20,
    QG_MAX_NAME = 31,       /* of a statement; fits qn_problem.recipe */
    QG_MAX_RECIPES = 128,   /* each takes up to a tenth of a second */
    QG_MAX_WORDS = 1 << 15, /* uses of the language's words, 3 KiB each */
    QG_MAX_STATEMENTS = 1024,
    QG_MAX_LIST = 48,        /* entries of a field that takes a list */
    QG_MAX_TUPLE = 4,        /* integers of a tuple */
    QG_MAX_AXES = 8,         /* of a kernels statement */
    QG_MAX_VALUES = 64,      /* of an axis */
    QG_MAX_SHIPPED = 300,    /* kernels that are built ahead of time */
    QG_MAX_INCLUDES = 16,    /* templates inside each other */
    QG_MAX_NODES = 2000,     /* terms of a rule */
    QG_MAX_POINTS = 40960,   /* kernels and rejected points, all together, .. */
    QG_RECIPE_POINTS = 2048, /* .. and for each recipe besides, 2 KiB each */
    QG_MAX_SPEC = 1 << 20,   /* bytes of a spec file */
    QG_MAX_STRING = 1 << 16, /* bytes of a Lua string */
    QG_MAX_OUTPUT = 1 << 22, /* bytes of a generated file */
    QG_MAX_MEMORY = 1 << 27, /* bytes that Lua may hold */
    QG_MAX_SECONDS = 120,    /* of processor time, should all else fail */
    QG_STEP = 1000,          /* instructions between two looks at the bounds */
    QG_CALL_STEPS = 5000000, /* instructions of one file or function */
    QG_ALL_STEPS = 400000000 /* instructions of one qg_open */
};

/* -------------------------------------------------------- locations, files */

/* A line of a file; `file` indexes qg.files, line 0: the file as a whole. */
struct qg_location {
    int file;
    int line;
};

enum qg_input_kind { QG_SPEC, QG_TEMPLATE, QG_FOLDER };

/* A file that is read. Its chunk name is "@" and its index in qg.files. */
struct qg_input {
    enum qg_input_kind kind;
    const char *path; /* in messages: as the user gave it */
    const char
        *name; /* in generated files: "specs/...", the user's "DIR/..." */
    const char *text;
    size_t length;
    int proved; /* embedded: the build has rendered all that it makes */
    int chunk;  /* a template's compiled function, 0: not yet */
    int failed; /* it has been complained about, and is not looked at */
    int render; /* the last kernel that includes it, by qg.renders */
};

/* Text that grows; freed by qg_close. */
struct qg_text {
    char *data; /* NUL-terminated, NULL while empty */
    size_t length;
    size_t size;
};

/* --------------------------------------------------------------- struct qg */

enum qg_refusal { QG_GRANTED, QG_TOO_MUCH, QG_LONG_STRING };
enum qg_fault { QG_FINE, QG_NO_MEMORY, QG_STOPPED };

struct qg {
    lua_State *L;
    void *(*resize)(void *user, void *memory, size_t bytes);
    void *user;
    struct qg_block *blocks; /* the arena */

    size_t held, bound;       /* bytes of Lua's */
    enum qg_refusal refused;  /* why Lua was denied memory */
    long long steps;          /* bound on the instructions of all calls */
    long long left, total;    /* remaining for this call, for all */
    long long deadline;       /* in processor time, nanoseconds */
    enum qg_fault fault;      /* why everything is being unwound */
    struct qg_location where; /* of the Lua error being unwound */

    struct qg_text diagnostics;
    int errors;
    struct qg_text output; /* a generated file, or a registry */
    struct qg_text chunk;  /* a template as Lua */
    const char *rendering; /* name of the kernel being generated, .. */
    struct qg_location rendering_of; /* .. and of its statement */
    int render_env;                  /* reference */
    int depth, indent;               /* of includes; columns of the next one */
    struct qg_decls *decls;          /* of the text */
    int renders;                     /* kernels rendered so far */
    struct qg_point *point;          /* the kernel being generated */
    int noted; /* the Lua error being unwound is noted already */

    struct qg_input *files;
    int nfiles, files_room;
    void *folder;                       /* DIR being read */
    int globals, env, template_globals; /* references */

    struct qg_word *words;          /* of the file being loaded */
    struct qg_word *declared;       /* those of all statements, last first */
    int uses, statements, nrecipes; /* of words, in all files */
    struct qg_recipe *recipes;
    struct qg_kernels *kernels, *extensions;
    struct qg_shipped *shipped;
    struct qg_evidence *evidence;
    int loading;                /* specs run: words are statements */
    int nodes;                  /* of the rule being traced */
    int traces;                 /* calls of rules so far */
    int tracing;                /* a rule runs */
    const char *calls;          /* functions of rules: "select, lt, ..." */
    struct qg_printer *printer; /* of rules; made when first needed */
    int lazy;                   /* kernels are made when they are asked for */
    const char *wanted;      /* the name of the only point to make, or NULL */
    struct qg_point *points; /* last one first, until they are sorted */
    int npoints, most;
    struct qg_point **sorted; /* the kernels among them, by name */
    struct quern_registry registry;
};
