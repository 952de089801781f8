/*
** qg.h: what the generator's files share. Not installed.
**
** All work runs inside one lua_pcall (qg_sandbox_protect): whatever fails, an
** allocation included, unwinds to it. What C owns lies in the arena or in the
** buffers of struct qg, so that nothing is lost on the way.
**
** Contents: limits, places and files, struct qg, then each file's functions.
*/
#ifndef QUERN_QG_H
#define QUERN_QG_H

#include "embedded.h"
#include "gen.h"

#include <lua5.4/lauxlib.h>
#include <lua5.4/lua.h>
#include <stdarg.h>

/* ------------------------------------------------------------------ limits */

enum {
    QG_MAX_ERRORS = 20,
    QG_MAX_NAME = 31,        /* of a statement; fits quern_problem.recipe */
    QG_MAX_LIST = 48,        /* entries of a field that takes a list */
    QG_MAX_TUPLE = 4,        /* integers of a tuple */
    QG_MAX_AXES = 8,         /* of a kernels statement */
    QG_MAX_VALUES = 64,      /* of an axis */
    QG_MAX_SHIPPED = 300,    /* kernels that are built ahead */
    QG_MAX_INCLUDES = 16,    /* templates inside each other */
    QG_MAX_NODES = 2000,     /* terms of a rule */
    QG_MAX_POINTS = 40960,   /* kernels and rejected points, all together, .. */
    QG_RECIPE_POINTS = 2048, /* .. and for each recipe besides, a KiB each */
    QG_MAX_SPEC = 1 << 20,   /* bytes of a spec file */
    QG_MAX_STRING = 1 << 16, /* bytes of a Lua string */
    QG_MAX_OUTPUT = 1 << 22, /* bytes of a generated file */
    QG_MAX_MEMORY = 1 << 27, /* bytes that Lua may hold */
    QG_MAX_SECONDS = 20,     /* of processor time, should all else fail */
    QG_STEP = 1000,          /* instructions between two looks at the bounds */
    QG_CALL_STEPS = 5000000, /* instructions of one file or function */
    QG_ALL_STEPS = 400000000 /* instructions of one qg_open */
};

/* ------------------------------------------------------------ places, files */

/* A line of a file; `file` indexes qg.files, line 0: the file as a whole. */
struct qg_place {
    int file;
    int line;
};

enum qg_input_kind { QG_SPEC, QG_TEMPLATE, QG_FOLDER };

/* A file that is read. Its chunk name is "@" and its index in qg.files. */
struct qg_input {
    enum qg_input_kind kind;
    const char *path; /* in messages: as the user gave it */
    const char *name; /* in generated files: "specs/..." */
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

/* ------------------------------------------------------- parts of the specs */

struct qg_names {
    int count;
    const char *at[QG_MAX_LIST];
};

struct qg_types {
    int count;
    int at[QG_MAX_LIST]; /* enum quern_type */
};

/* A value of an axis: a string, or 1 to 4 integers. */
struct qg_value {
    const char *string;
    int count;
    int tuple; /* written as a table */
    int at[QG_MAX_TUPLE];
};

/* A use of one of the language's words, e.g. `recipe "bf16"`. */
struct qg_word {
    struct qg_place place;
    const struct qg_word_kind *kind;
    const char *name;
    int done; /* it got its table or function */
    int used; /* the value that it gave was put into a statement */
    struct qg_word *next;
};

/* How a matrix of scales lies in memory. */
struct qg_storage {
    struct qg_place place;
    const char *name;
    const char *order;  /* "rows", "columns", "tiles" */
    const char *groups; /* "together", "apart" */
    struct {
        int rows, columns;
    } pad; /* to multiples of */
    struct qg_storage *next;
};

/* The values that share a scale. */
struct qg_sharing {
    int span; /* enum qn_span */
    struct {
        int m, n, k; /* 0: not given */
    } per;
};

/* What a rule gives for one tensor and one type of input. */
struct qg_rule_trace {
    const struct qg_node *stored, *factor;
    int given; /* the factor is the rule's own, and none of an e8m0's */
};

/* The types of what is quantized; the last one is a row copy. */
enum qg_input_type { QG_IN_BF16, QG_IN_F16, QG_IN_F32, QG_IN_COPY, QG_INPUTS };

/* The scales of one of a layer's tensors; kind 0 stands for none. */
struct qg_scale {
    struct qg_place place;
    int blocked, type;
    struct qg_sharing block;
    const char *storage, *rounding;
    int rule, global;     /* references to Lua functions, 0: none */
    const char *hadamard; /* 16 of + and -; NULL: none */
    struct {
        int history;
        const char *amax;
    } delayed; /* history 0: none */
    struct qg_word *word;
    /* what follows, once all files are read */
    const struct qg_storage *stored;
    int by_role; /* given for this tensor alone */
    int element; /* enum quern_type */
    struct qg_rule_trace rules[QG_INPUTS], globals[QG_INPUTS];
    int by_input; /* rules differ by the type of the input */
};

struct qg_recipe {
    struct qg_place place;
    const char *name;
    const char *doc;
    struct {
        int x, w, dy;
    } element;
    struct qg_scale scale[QN_TENSORS]; /* by enum quern_of */
    int accum;
    int promote; /* values of k; 0: never */
    struct qg_types d;
    struct qg_recipe *next;
};

struct qg_layout {
    struct qg_place place;
    const char *name;
    const char *a, *b;
    struct qg_layout *next;
};

struct qg_ragged {
    struct qg_place place;
    const char *name;
    const char *a, *b, *d;
    struct qg_ragged *next;
};

enum qg_item_kind { QG_AXIS, QG_DERIVE, QG_REQUIRES, QG_REJECT };

/* One entry of a kernels statement's list. */
struct qg_item {
    enum qg_item_kind kind;
    struct qg_word *word;
    const char *name;   /* axis, derive; requires: the expression */
    const char *reason; /* requires, reject */
    int function;       /* derive, reject: reference */
    struct qg_value values[QG_MAX_VALUES];
    int count;
};

struct qg_kernels {
    struct qg_place place;
    const char *name;
    struct qg_names op, layout, ragged, epilogue, arch;
    struct qg_names of, input, form; /* of casts */
    struct qg_types element;
    struct qg_names scale;
    const char *template, *recipe;
    struct qg_names params;
    struct qg_types d;
    const struct qg_item *items[64];
    int count;
    /* what all its kernels share */
    int template_file; /* index in qg.files */
    int param_list;    /* reference to the templates' params */
    const unsigned char *param_bytes;
    const struct qn_requires *rules;
    int nrules;
    int number; /* of its lists in a registry's text, 0: not written */
    struct qg_kernels *next;
};

struct qg_shipped {
    struct qg_place place;
    const char *name;
    struct qg_shipped *next;
};

/* A point of a grid: the kernel, or why there is none. */
struct qg_point {
    struct qn_kernel kernel;
    struct qn_kernel *row; /* the same in the registry, once that is built */
    const char *reason;    /* of the reject that holds; NULL for a kernel */
    struct qg_kernels *kernels;
    const struct qg_recipe *recipe;
    const struct qg_scale *scale; /* that rules are of, or NULL */
    int input;                    /* enum qg_input_type */
    int values;                   /* reference to the table of its values */
    const char *source;           /* once it has been asked for */
    size_t length;
    struct qg_point *next;
};

/* --------------------------------------------------------------- struct qg */

enum qg_refusal { QG_GRANTED, QG_TOO_MUCH, QG_LONG_STRING };
enum qg_fault { QG_FINE, QG_NO_MEMORY, QG_STOPPED };

struct qg {
    lua_State *L;
    void *(*resize)(void *user, void *memory, size_t bytes);
    void *user;
    struct qg_block *blocks; /* the arena */

    size_t held, bound;      /* bytes of Lua's */
    enum qg_refusal refused; /* why Lua was denied memory */
    long long steps;         /* bound on the instructions of all calls */
    long long left, total;   /* what is left for this call, for all */
    long long deadline;      /* in processor time, nanoseconds */
    enum qg_fault fault;     /* why everything is being unwound */
    struct qg_place where;   /* of the Lua error being unwound */

    struct qg_text diagnostics;
    int errors;
    struct qg_text output;  /* a generated file, or a registry */
    struct qg_text chunk;   /* a template as Lua */
    const char *rendering;  /* name of the kernel being generated */
    int render_env;         /* reference */
    int depth, indent;      /* of includes; columns of the next one */
    struct qg_decls *decls; /* of the text */
    int renders;            /* kernels rendered so far */
    struct qg_point *point; /* the kernel being generated */
    int noted;              /* the Lua error being unwound is noted already */
    struct qg_input *files;
    int nfiles, files_room;
    void *folder;                       /* DIR being read */
    int globals, env, template_globals; /* references */

    struct qg_word *words; /* of the file being loaded */
    struct qg_recipe *recipes;
    struct qg_layout *layouts;
    struct qg_ragged *ragged;
    struct qg_storage *storages;
    struct qg_kernels *kernels;
    struct qg_shipped *shipped;
    int loading;                /* specs run: words are statements */
    int nodes;                  /* of the rule being traced */
    int traces;                 /* calls of rules so far */
    int tracing;                /* a rule runs */
    struct qg_printer *printer; /* of rules; made when first needed */
    int lazy;                   /* kernels are made when they are asked for */
    const char *wanted;      /* the name of the only point to make, or NULL */
    struct qg_point *points; /* last one first, until they are sorted */
    int npoints, most;
    struct qg_point **sorted; /* the kernels among them, by name */
    struct quern_registry registry;
};

/* ------------------------------------------------------------------- mem.c */

void *qg_mem_new(struct qg *, size_t bytes); /* zeroed; freed by qg_close */
void *qg_mem_array(struct qg *, size_t count, size_t bytes);
const char *qg_mem_string(struct qg *, const char *text, size_t length);
const char *qg_mem_print(struct qg *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *qg_mem_lua(void *qg, void *memory, size_t old, size_t bytes);
void qg_mem_free(struct qg *);

/* ------------------------------------------------------------------ text.c */

void qg_text_clear(struct qg_text *);
void qg_text_add(struct qg *, struct qg_text *, const char *, size_t length);
void qg_text_put(struct qg *, struct qg_text *, const char *);
void qg_text_print(struct qg *, struct qg_text *, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void qg_text_vprint(struct qg *, struct qg_text *, const char *format, va_list);
void qg_text_quote(struct qg *, struct qg_text *, const char *); /* C string */

/* ------------------------------------------------------------------ diag.c */

enum qg_message {
#define QG_MESSAGE_ENUM(name, format) QG_E_##name,
#include "messages.h"
    QG_MESSAGES(QG_MESSAGE_ENUM)
#undef QG_MESSAGE_ENUM
};

/* Note an error and go on; the last one allowed unwinds everything. */
void qg_diag_note(struct qg *, struct qg_place, enum qg_message, ...);
/* Raise it in the spec's code instead: the line is the one that runs. */
int qg_diag_raise(lua_State *, enum qg_message, ...);
void qg_diag_clear(struct qg *);

/* --------------------------------------------------------------- nearest.c */

/* The right word that is closest to a wrong one. */
struct qg_nearest {
    const char *word;
    const char *best;
    int distance;
    char text[512];
};

void qg_nearest_start(struct qg_nearest *, const char *word);
void qg_nearest_try(struct qg_nearest *, const char *candidate);
void qg_nearest_words(struct qg_nearest *, const char *candidates);
/* "did you mean 'x'?", else `otherwise`, followed by `list`. */
const char *qg_nearest_hint(struct qg_nearest *, const char *otherwise,
                            const char *list);

/* ----------------------------------------------------------------- files.c */

void qg_files_load(struct qg *, const struct qg_options *);
int qg_files_template(const struct qg *, const char *name); /* -1: none */
const char *qg_files_line(const struct qg *, struct qg_place, int *length);
const char *qg_files_doc(struct qg *, struct qg_place);
const char *qg_files_print(struct qg *, struct qg_place);

/* ------------------------------------------------------------------- lex.c */

enum qg_token { QG_END, QG_NAME, QG_KEYWORD, QG_STRING, QG_NUMBER, QG_SIGN };

struct qg_lex {
    const char *at, *end;
    enum qg_token token;
    const char *start; /* of the token */
    int length, line;
};

void qg_lex_start(struct qg_lex *, const char *text, size_t length);
int qg_lex_next(struct qg_lex *); /* 0 at the end */
int qg_lex_is(const struct qg_lex *, const char *text);
int qg_lex_nesting(const struct qg_lex *); /* what it adds to the depth */
/* The line of `field =`, `depth` tables inside what starts at `place`. */
struct qg_place qg_lex_field(const struct qg *, struct qg_place place,
                             const char *field, int depth);
/* The line of the first "text" in quotes from `place` on, else `place`. */
struct qg_place qg_lex_text(const struct qg *, struct qg_place place,
                            const char *text);
/* Note what one table of the file names twice. */
void qg_lex_twice(struct qg *, int file);

/* --------------------------------------------------------------- sandbox.c */

struct qg *qg_sandbox_owner(lua_State *);
int qg_sandbox_protect(struct qg *, void (*)(struct qg *, void *), void *);
void qg_sandbox_build(struct qg *);
int qg_sandbox_load(struct qg *, int file, const char *text, size_t length);
int qg_sandbox_call(struct qg *, int arguments, int results, struct qg_place);
void qg_sandbox_count(lua_State *, lua_Debug *);
void qg_sandbox_charge(lua_State *, long long steps);
struct qg_place qg_sandbox_place(lua_State *);
/* An environment over the two tables on top, the second may be nil. */
void qg_sandbox_env(lua_State *);

/* The functions that specs see; each stands in the file of its name. */
int qg_pairs(lua_State *), qg_tostring(lua_State *), qg_format(lua_State *),
    qg_hex(lua_State *), qg_include(lua_State *), qg_once(lua_State *),
    qg_rule(lua_State *), qg_typename(lua_State *); /* type */
extern const luaL_Reg qg_table[];

/* Push the keys of the table at `index` as a list, integers first, sorted.
** Returns their number, or -1 with the key of another kind pushed. */
int qg_pairs_keys(lua_State *, int index);
/* The names among them as "a, b, c", as far as the buffer goes. */
void qg_pairs_names(lua_State *, int index, char *buffer, size_t size);
/* A key that makes the table something else than a list; NULL if none does. */
const char *qg_pairs_other(lua_State *, int index);

/* ---------------------------------------------------------------- frozen.c */

void qg_frozen_build(lua_State *);
void qg_frozen_wrap(lua_State *);              /* the table on top */
int qg_frozen_content(lua_State *, int index); /* pushes it; 0: not frozen */

/* ----------------------------------------------------------------- types.c */

struct qg_type {
    const char *name;
    int id; /* enum quern_type */
    int bits;
    double max;  /* largest finite value */
    double tiny; /* smallest above 0 */
};

/* Types that operands can have. */
#define QG_ELEMENTS "bf16 f16 f32 e4m3 e5m2 e2m3 e3m2 e2m1 i8"

void qg_types_build(struct qg *);
int qg_types_check(lua_State *, int index); /* enum quern_type; 0: no type */
void qg_types_push(lua_State *, int id);
const struct qg_type *qg_types_of(int id);

/* ------------------------------------------------------------------ word.c */

enum qg_word_name { QG_UNNAMED, QG_IDENTIFIER, QG_SENTENCE };

/* A word of the language; `take` gets the value after the name at stack
** index 1 and returns how many values it leaves for the spec. */
struct qg_word_kind {
    const char *word;
    enum qg_word_name named;
    int is_part; /* its value belongs into a statement */
    int (*take)(struct qg *, struct qg_word *);
    const char *usage;
    const char *doc;
};

const struct qg_word_kind *qg_word_kind(int index);
const char *qg_word_usage(const char *word); /* how a known word is written */
void qg_word_build(struct qg *);
void qg_word_finish(struct qg *); /* at the end of a file */
int qg_word_identifier(const char *text, size_t bound);
int qg_word_sentence(const char *text); /* one line, 1 .. 200 characters */
/* A part as a value for the spec, and back: NULL if it is another kind. */
void qg_word_give(lua_State *, void *part, const char *metatable);
void *qg_word_part(lua_State *, int index, const char *metatable);
#define QG_ITEM  "entry"
#define QG_SCALE "scale"
/* Note a name that is declared already. Returns 1 then. */
int qg_word_taken(struct qg *, const struct qg_word *, struct qg_place before);
/* The function at stack index 1 as a reference; 0 and noted otherwise. */
int qg_word_function(struct qg *, const struct qg_word *);
/* The word with its name, if it has one, for messages: "recipe 'x'". */
const char *qg_word_print(struct qg *, const struct qg_word *);
/* How a value of a spec is called in messages, e.g. "a text". */
const char *qg_word_kind_of(lua_State *, int index);

int qg_recipe_take(struct qg *, struct qg_word *);
int qg_layout_take(struct qg *, struct qg_word *);
int qg_ragged_take(struct qg *, struct qg_word *);
int qg_storage_take(struct qg *, struct qg_word *);
int qg_kernels_take(struct qg *, struct qg_word *);
int qg_shipped_take(struct qg *, struct qg_word *);
void qg_shipped_mark(struct qg *); /* the kernels that are; notes the others */
int qg_blocked_take(struct qg *, struct qg_word *);
int qg_axis_take(struct qg *, struct qg_word *);
int qg_derive_take(struct qg *, struct qg_word *);
int qg_requires_take(struct qg *, struct qg_word *);
int qg_reject_take(struct qg *, struct qg_word *);

/* ----------------------------------------------------------------- field.c */

enum qg_field_kind {
    QG_F_NAME,     /* const char *; one of `allowed` if that is given */
    QG_F_NAMES,    /* struct qg_names; one or a list */
    QG_F_PATH,     /* const char *; a template */
    QG_F_TYPE,     /* int */
    QG_F_TYPES,    /* struct qg_types; one or a list */
    QG_F_SIZE,     /* int, 1 .. 65536 */
    QG_F_SCALE,    /* struct qg_scale; blocked {...} or "none" */
    QG_F_SCALES,   /* the same for each tensor; one or a table by tensor */
    QG_F_BLOCK,    /* struct qg_sharing; a table of sizes or a text */
    QG_F_EVERY,    /* int, 1 .. 65536, or the text in `allowed`: 0 */
    QG_F_SIGNS,    /* const char *; 16 of + and - */
    QG_F_FUNCTION, /* int, reference */
    QG_F_TABLE,    /* the struct that `sub` describes, in place */
    QG_F_COUNT
};

struct qg_field {
    const char *name;
    enum qg_field_kind kind;
    int required;
    size_t offset; /* in the struct that the statement fills */
    const char *allowed;
    const struct qg_fields *sub;
    const char *doc;
};

struct qg_fields {
    const char *statement;
    const struct qg_field *fields;
    int count;
    int items; /* a list after the fields is allowed */
};

extern const struct qg_fields qg_recipe_fields, qg_blocked_fields,
    qg_layout_fields, qg_ragged_fields, qg_storage_fields, qg_kernels_fields;

/* Read the table at index 1 into `out`; notes errors and returns how many. */
int qg_field_read(struct qg *, const struct qg_word *, const struct qg_fields *,
                  void *out);

#include "trace.h"

/* ---------------------------------------------------------------- recipe.c */

/* What a product reads of a recipe's tensor. */
struct qg_factor {
    int of;                       /* enum quern_of */
    const char *copy;             /* "row", "column" */
    int element;                  /* enum quern_type */
    const struct qg_scale *scale; /* NULL: values as they are */
};

/* A and B of one of a recipe's products. */
void qg_recipe_factors(const struct qg_recipe *, const char *op,
                       struct qg_factor *a, struct qg_factor *b);

/* -------------------------------------------- expand.c, point.c, describe.c */

/* A variant: what is chosen before the axes are. */
struct qg_variant {
    struct qg_kernels *kernels;
    const struct qg_recipe *recipe;
    const struct qg_layout *layout;
    const struct qg_ragged *ragged;
    const char *op, *epilogue, *arch;
    int d; /* enum quern_type */
    struct qg_factor a, b;
    /* of casts */
    int of;    /* enum quern_of */
    int input; /* enum qg_input_type */
    const char *form;
};

void qg_expand_all(struct qg *);
struct qg_point *qg_expand_one(struct qg *, const char *name); /* NULL: none */
/* May points of the variant have the name; has this one? */
int qg_name_begins(const struct qg_variant *, const char *name);
int qg_name_is(const struct qg_variant *, const int *choice, const char *);
/* The symbol of a point; NULL and noted if it is too long. */
const char *qg_name_make(struct qg *, const struct qg_variant *, const int *);
/* A point of a variant: choice[i] is its i-th axis. NULL: all would fail. */
struct qg_point *qg_point_make(struct qg *, const struct qg_variant *,
                               const int *choice);
/* Set table[name] on top of the stack. */
void qg_point_set(lua_State *, const char *name, const struct qg_value *);
int qg_describe_variant(struct qg *, const struct qg_kernels *,
                        struct qn_kernel *);
int qg_describe_fill(struct qg *, const struct qg_kernels *,
                     struct qn_kernel *);

/* --------------------------------------- template.c, source.c, registry*.c */

/* Push the compiled template. Returns 0, or 1 and noted. */
int qg_template_push(struct qg *, int file);
void qg_template_run(struct qg *); /* call the one on top of the stack */
/* Set the key, which needs all after the header. Returns 0, or 1 and noted. */
int qg_source_key(struct qg *, struct qg_point *);
/* The whole file, kept in point->source. Returns 0, or 1 and noted. */
int qg_source_keep(struct qg *, struct qg_point *);
/* One of both for each selected kernel, up to each template's first error. */
int qg_source_each(struct qg *, const struct qg_selection *,
                   int (*)(struct qg *, struct qg_point *));
/* Try one kernel of each statement and recipe that the build has not tried. */
void qg_source_try(struct qg *);
void qg_registry_build(struct qg *);
/* Write it into q->output. */
void qg_registry_write(struct qg *, const struct qg_selection *,
                       const struct qg_link *);

/* ---------------------------------------------------------------- output.c */

struct qg_output_file {
    const char *name, *text;
    size_t length;
    int written;
};

/* Write all files into a folder, or none. Returns 0, or 1 and noted. */
int qg_output_write(struct qg *, const char *dir, struct qg_output_file *files,
                    int count);

#endif
