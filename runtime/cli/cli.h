/* SPDX-License-Identifier: Apache-2.0 */
/*
** cli.h: shared by the commands of `quern`.
**
** A command is a row of the table in main.c: its name, its options and one
** function that takes all options parsed and returns the exit status. A command
** writes its results into cJSON; table.c prints that for people.
*/
#ifndef QN_CLI_H
#define QN_CLI_H

#include <argp.h>
#include <cjson/cJSON.h>

#include "oracle/message.h"
#include "internal.h"

/* Letters of the options; those past 255 have no short form. */
enum {
    QN_KEY_JSON = 256,
    QN_KEY_JSON_FILE,
    QN_KEY_SPECS,
    QN_KEY_ARCH,
    QN_KEY_ROUTES,
    QN_KEY_CHECK,
    QN_KEY_BACKEND,
    QN_KEY_AGAINST,
    QN_KEY_SEED,
    QN_KEY_KERNEL,
    QN_KEY_STREAMS,
    QN_KEY_FIELDS,
    QN_KEY_REPEAT,
    QN_KEY_OVERHEAD,
    QN_KEY_PTX,
    QN_KEY_SASS,
    QN_KEY_RESOURCES,
    QN_KEY_BUDGET,
    QN_KEY_L2,
    QN_KEY_STORE,
    QN_KEY_MERGE,
    QN_KEY_END
};

/* The parts of a kernel's code to print. */
enum { QN_SHOW_PTX = 1, QN_SHOW_SASS = 2, QN_SHOW_RESOURCES = 4 };

/* One row for each option, so that it reads alike in every command. */
#define QN_OPTION_SPECS                                                        \
    {                                                                          \
        "specs", QN_KEY_SPECS, "DIR", 0,                                       \
            "Specs of your own, laid out as specs/ is (repeatable)", 0         \
    }
#define QN_OPTION_JSON                                                         \
    {                                                                          \
        "json", QN_KEY_JSON, NULL, 0, "Print JSON", 0                          \
    }
#define QN_OPTION_OUTPUT(text)                                                 \
    {                                                                          \
        "output", 'o', "DIR", 0, text, 0                                       \
    }
#define QN_OPTION_ARCH                                                         \
    {                                                                          \
        "arch", QN_KEY_ARCH, "ARCH", 0,                                        \
            "Only kernels for ARCH, e.g. sm_90a or sm_80,sm_90a (repeatable)", \
            0                                                                  \
    }
#define QN_OPTION_BACKEND                                                      \
    {                                                                          \
        "backend", QN_KEY_BACKEND, "NAME", 0,                                  \
            "auto, host, jit, aot or cublaslt (default auto)", 0               \
    }
#define QN_OPTION_KERNEL                                                       \
    {                                                                          \
        "kernel", QN_KEY_KERNEL, "NAME", 0,                                    \
            "Use this kernel, not the model's", 0                              \
    }
#define QN_OPTION_STREAMS                                                      \
    {                                                                          \
        "streams", QN_KEY_STREAMS, "N", 0,                                     \
            "With cublaslt: spread the groups over N streams (default 1)", 0   \
    }
#define QN_OPTION_SEED                                                         \
    {                                                                          \
        "seed", QN_KEY_SEED, "N", 0, "Seed of the random data (default 1)", 0  \
    }
#define QN_OPTION_ROUTES                                                       \
    {                                                                          \
        "routes", QN_KEY_ROUTES, "FILE", 0,                                    \
            "Rows per expert from a CSV of routed tokens (columns expert0, "   \
            "...)",                                                            \
            0                                                                  \
    }
#define QN_OPTION_VERBOSE                                                      \
    {                                                                          \
        "verbose", 'v', NULL, 0, "Print the library's log", 0                  \
    }

struct qn_command {
    const char *name;
    const char *arguments;
    const char *summary; /* one line, for `quern --help` */
    const char *help;    /* after the options: what it prints, an example */
    const struct argp_option *options;
    int (*run)(const struct qn_options *);
};

extern const struct qn_command qn_cmd_recipes, qn_cmd_list, qn_cmd_why,
    qn_cmd_emit, qn_cmd_build, qn_cmd_run, qn_cmd_bench, qn_cmd_describe,
    qn_cmd_cache, qn_cmd_demo, qn_cmd_tune;

/* The parser after every command's argp; `input` is a struct qn_options. */
error_t qn_options_parse(int key, char *text, struct argp_state *state);

/* ------------------------------------------------------------------ sources */

struct qg;

/* Open the generator; an exit status, after printing what was wrong. */
int qn_source_open(const struct qn_options *, struct qg **generator);

/* Open the library; an exit status, after printing what was wrong. */
int qn_source_context(const struct qn_options *, struct quern_context **ctx);

struct qg_selection;

/*
** Write the selected kernels and their registry into a folder, as qg_emit does,
** after every source has been generated; an exit status.
*/
int qn_source_emit(const struct qn_options *, struct qg *, const char *folder,
                   const struct qg_selection *, int *count);

/* `work` with the generator, and with what --arch and the FILTERs select of
   it; one of these that matches no kernel at all is an error. An exit status:
   its own, if it came so far. */
int qn_source_kernels(const struct qn_options *,
                      int (*work)(const struct qn_options *, struct qg *,
                                  const struct qg_selection *));

/* The words of a command line as one problem, in `text`. */
int qn_source_join(const struct qn_options *, char *text, size_t size);

/* Each problem of a command line, in the program's arguments or in here. */
struct qn_texts {
    const char *const *all;
    int count;
    const char *joined;
    char line[1024];
};

/* Arguments with blanks are problems; words without any are one together. An
   exit status. */
int qn_source_texts(const struct qn_options *, struct qn_texts *texts);

/* For a line of any kind, the @FILE and --routes part of qn_source_parse:
   `*text` is then in the buffer. */
int qn_source_expand(const struct qn_options *, const char **text, char *buffer,
                     size_t size);

/*
** A product's text, which may give the ragged axis as m=@FILE, n=@FILE or
** k=@FILE: the file has the groups' lengths, as split=@FILE does, and the axis
** is their sum. With --routes it may be missing, and is 0. An exit status,
** after printing what was wrong.
*/
int qn_source_parse(const struct qn_options *, struct quern_context *,
                    const char *text, struct qn_problem *);

/* The words of the command line, joined and parsed. */
int qn_source_problem(const struct qn_options *, struct quern_context *,
                      struct qn_problem *);

/* ------------------------------------------------------------------- tables */

/* A column: a key of the JSON objects, its title, how it is printed. */
struct qn_column {
    const char *key;
    const char *title;
    const char *format; /* "s" text; else printf's for a double, e.g. "%.1f" */
};

/* Print rows (an array of objects) as --json asks for. Frees them. */
void qn_table_print(const struct qn_options *, cJSON *rows,
                    const struct qn_column *columns);
/* The same, but nothing of no rows. */
void qn_table_rows(const struct qn_options *, cJSON *rows,
                   const struct qn_column *columns);
/* Words of a text in lines of that width, each after `indent` blanks. */
void qn_table_wrapped(const char *text, int indent, int width);

/* Print a value as JSON and free it. */
void qn_table_json(cJSON *value);

/* A value as JSON, freed with cJSON_free; NULL without memory. Bytes that are
   no UTF-8, as in a file's name, become "?". */
char *qn_table_text(const cJSON *value);

/* ----------------------------------------------------------------- progress */

/* A bar on a terminal, plain lines elsewhere; all of it on stderr. */
struct qn_progress {
    const char *what;
    int total;
    int done;
    int terminal;
};

void qn_progress_begin(struct qn_progress *, const char *what, int total);
void qn_progress_step(struct qn_progress *, const char *item);
void qn_progress_end(struct qn_progress *);

#endif
