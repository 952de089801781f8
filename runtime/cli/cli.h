/* SPDX-License-Identifier: Apache-2.0 */
/*
** cli.h: shared by the commands of `quern`.
**
** A command is a row of the table in main.c: its name, its options and one
** function that takes all options parsed and returns the exit status. A command
** writes its results into cJSON; table.c prints that for people.
*/
#pragma once

#include <argp.h>
#include <cjson/cJSON.h>
#include <signal.h>
#include <stddef.h>

#include "oracle/message.h"
#include "problem/problem.h"
#include "internal.h"
#include "base/context.h"
#include "code/cache.h"
#include "device/nvrtc.h"
#include "oracle/cast.h"
#include "oracle/layer.h"
#include "oracle/moe_job.h"
#include "oracle/job.h"
#include "oracle/oracle.h"
#include "oracle/route_job.h"

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
    QN_KEY_LIST,
    QN_KEY_MISSING,
    QN_KEY_RECIPES,
    QN_KEY_TOKENS,
    QN_KEY_RANKS,
    QN_KEY_FORWARD,
    QN_KEY_TRACE,
    QN_KEY_GPU,
    QN_KEY_FORMAT,
    QN_KEY_EXPERTS,
    QN_KEY_UNDO,
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
            "auto, host, jit, aot, cublaslt or ptx (default auto)", 0          \
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
    const char *help;    /* after the options: its output, an example */
    const struct argp_option *options;
    int (*run)(const struct qn_options *);
};

extern const struct qn_command qn_cmd_recipes, qn_cmd_list, qn_cmd_why,
    qn_cmd_emit, qn_cmd_build, qn_cmd_run, qn_cmd_bench, qn_cmd_describe,
    qn_cmd_cache, qn_cmd_demo, qn_cmd_tune, qn_cmd_pack;

/* The parser after every command's argp; `input` is a struct qn_options. */
error_t qn_options_parse(int key, char *text, struct argp_state *state);

/* interpret.c: let the environment name an interpreter of PTX as the CUDA
   driver and as its compiler; ends the program where there is none. */
void qn_interpret(struct argp_state *state);

/* ------------------------------------------------------------------ sources */

struct qg;

/* Open the generator; an exit status, after printing the error. */
int qn_source_open(const struct qn_options *, struct qg **generator);

/* Open the library; an exit status, after printing the error. */
int qn_source_context(const struct qn_options *, struct quern_context **ctx);

struct qg_selection;

/* Write the selected kernels and their registry into a folder, as qg_emit does,
   after every source has been generated; an exit status. */
int qn_source_emit(const struct qn_options *, struct qg *, const char *folder,
                   const struct qg_selection *, int *count);

/* A FILTER that matches no kernel is misspelled: QN_EXIT_USAGE. */
int qn_source_filter(const struct qn_options *, const struct quern_registry *,
                     const char *filter);

/* `work` with the generator, and with its selection by --arch and the FILTERs;
   one of these that matches no kernel at all is an error. An exit status: its
   own, if it came so far. */
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

/* The same of a product's line; others are refused. */
int qn_source_product(const struct qn_options *, const char **text,
                      char *buffer, size_t size);

/* A product's text, which may give the ragged axis as m=@FILE, n=@FILE or
   k=@FILE: the file has the groups' lengths, as split=@FILE does, and the axis
   is their sum. With --routes it may be missing, and is 0. An exit status,
   after printing the error. */
int qn_source_parse(const struct qn_options *, struct quern_context *,
                    const char *text, struct qn_problem *);

/* The words of the command line as one line of any kind, with the content of
   @FILE. An exit status. */
int qn_source_line(const struct qn_options *, char *text, size_t size);

/* The length of its axis that is split among the groups; 0: there is none. */
int64_t qn_source_rows(const char *text);

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

/* Add a kernel's work, and its architecture. */
void qn_table_variant(cJSON *row, const struct qn_kernel *kernel);

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

/* arch.c: the architectures that kernels are compiled for. */
enum { QN_ARCH_MOST = 16 };

/* One that was asked for, and whose code serves it. */
struct qn_arch {
    char asked[16];   /* "sm_86" */
    const char *code; /* "sm_80", a kernel's; NULL: nothing does */
};

struct qn_archs {
    struct qn_arch at[QN_ARCH_MOST];
    int count;
    char list[256]; /* the codes, each once, with commas */
};

/* Find for each architecture in `wanted` (with commas) the kernels that its
   GPUs can run: its own, else the closest of the same major version. Those that
   nothing serves are told on stderr; QN_EXIT_USAGE if there are no others. */
int qn_arch_choose(const struct qn_options *, const struct quern_registry *,
                   const char *wanted, struct qn_archs *);

/* The architectures of `wanted`, each as the one of the kernels that its GPUs
   run, if that is another one, which stderr tells; in a list with commas. */
void qn_arch_serving(const struct quern_registry *, const char *wanted,
                     char *list, size_t size);

/* need.c: the kernels that lines need. */

/* Set marks[i] for each kernel `i` of ctx->base that plans of the line can take
   on GPUs of the architectures, with any number of rows up to the line's. An
   exit status; an architecture on which nothing serves the line is told. */
int qn_need_mark(const struct qn_options *, struct quern_context *ctx,
                 const struct qn_archs *, const char *line,
                 unsigned char *marks);

/* subject.c: a line of any kind with data. */

struct qn_subject {
    enum qn_line_kind kind;
    struct quern_context *ctx; /* the caller's */
    union {
        struct qn_job job;
        struct qn_cast cast;
        struct qn_layer layer;
        struct qn_moe_job moe;
        struct qn_route_job route;
    } of;
};

/* Is it right? */
struct qn_subject_verdict {
    const char *oracle;
    double error; /* of values, or bytes that differ */
    double tolerance;
    int64_t rows; /* compared; 0: not told */
    int passed;
    char where[96]; /* the first difference of a cast */
    char text[1024];
    const struct qn_layer_verdict *layer; /* NULL: no MLP */
};

/* Parse the line, with its @FILE and --routes, draw sizes and data, plan. Free
   it in any case. An exit status, after printing the error. */
int qn_subject_begin(struct qn_subject *, const struct qn_options *,
                     struct quern_context *, const char *text);
void qn_subject_free(struct qn_subject *);

/* The median of `runs` (0: about a second's). Codes of the library. */
int qn_subject_measure(struct qn_subject *, int runs, struct qn_job_time *);

/* A row for table.c; `verdict` may be NULL. */
cJSON *qn_subject_row(const struct qn_subject *, const struct qn_job_time *,
                      const struct qn_subject_verdict *verdict);

/* An MLP's verdict, which must live as long as the other one. */
void qn_subject_told(const struct qn_layer_verdict *,
                     struct qn_subject_verdict *);

/* `quern run` of the line on the command line. An exit status. */
int qn_subject_run(const struct qn_options *);

/* cast_judge.c: is a quantization right? */

/* 1 - 2xy / (xx + yy) of normal bf16 values x and the host's codes of
   them in the rowwise tensor of the recipe's tensor. 0; or 1, after
   printing. */
int qn_cast_error(const struct qn_options *, struct quern_context *,
                  const char *recipe, int of, double *error);

/* On a GPU the host is the oracle; on the host tensors and sums are checked
   directly. An exit status, after printing. */
int qn_cast_judge(struct qn_cast *, const struct qn_options *,
                  struct qn_subject_verdict *);

/* code.c: a kernel's PTX, machine code and resources. */

/* Show the text that opt->show names, of the kernel that opt->kernel names or
   that would run the problem on the command line. An exit status, after
   printing the error: QN_EXIT_UNABLE without NVRTC, or without a
   disassembler. */
int qn_code_show(const struct qn_options *opt, struct quern_context *ctx);

/* compile.c: many kernels to cubins, side by side. */

/* A kernel to compile, and its result. */
struct qn_compile_item {
    const struct qn_kernel *kernel; /* of ctx->base */
    struct qn_cache_object object;
    int cached;    /* 1: it was there before */
    int code;      /* QUERN_OK, QN_REJECTED, QUERN_ECOMPILE, .. */
    char *message; /* why not */
};

struct qn_compile {
    struct quern_context *ctx;
    struct qn_compile_item *items; /* in the registry's order: by name */
    int count, cached;
    double seconds;
};

/* Those of ctx->base with a mark, CUDA kernels all, and the cubins that the
   cache has. An exit status; qn_compile_free in any case. */
int qn_compile_find(const struct qn_options *, struct quern_context *ctx,
                    const unsigned char *marks, struct qn_compile *);

/* The item of the kernel of that name, or NULL. */
const struct qn_compile_item *qn_compile_item(const struct qn_compile *,
                                              const char *name);

/* Generate and compile the others with `jobs` threads (0: as many as cores),
   showing the progress. The status is QN_EXIT_FAILED if a kernel does not
   compile or must not be used; each is named with its spec's line. */
int qn_compile_run(const struct qn_options *, struct qn_compile *, int jobs);
void qn_compile_free(struct qn_compile *);

/* archive.c: a folder with compiled kernels. */

#define QN_ARCHIVE "libquern_kernels.a"

/* Do the folder's files come from just these cubins, and are all there? */
int qn_archive_current(const char *folder, const struct qn_compile *);

/* Write sources, cubins, registry, archive and library. An exit status. */
int qn_archive_write(const struct qn_options *, const char *folder,
                     const struct qn_compile *);

/* The bytes of one of its files; 0 if it is not there. */
double qn_archive_bytes(const char *folder, const char *file);

/* overhead.c: times that a program waits for in addition to the GPU's. */

/*
** Add a row for each problem to `rows`, in seconds:
**
**   open   quern_open
**   cold   quern_plan_create of an empty cache: generator and compiler open;
**          cold_cpu is the same in time of a core, for machines that are busy
**   warm   quern_plan_create of a new context, from the cache
**   again  quern_plan_create of a context that has planned it before
**   run    quern_run
**   bare   cuLaunchKernelEx only, with the same parameters
**
** If there are several, a last row has the time until all are planned, cold,
** by one thread for each core. Needs a GPU, or a driver that acts as one; its
** context is made before the clock starts. An exit status, after printing the
** error.
*/
int qn_overhead_rows(const struct qn_options *, struct quern_context *,
                     const char *const *problems, int count, cJSON *rows);

extern const struct qn_column qn_overhead_columns[];

/* report.c: a job's results as a row for table.c. */

/* Times are of one launch, in milliseconds. */
extern const struct qn_column qn_report_columns[];

/* Add "sm_clock" and "watts", as far as they are known, after a prefix. */
void qn_report_load(cJSON *row, const char *prefix, const struct qn_gpu_load *);

/* Add the time of another job for the same. `time` is the row's own. */
void qn_report_against(cJSON *row, const struct qn_job_time *time,
                       const struct qn_job *other,
                       const struct qn_job_time *other_time);
extern const struct qn_column qn_report_against_columns[];

/* signals.c: files that are written as a whole, or not at all. */

/* From hold to release nothing interrupts this program, nor those it starts:
   SIGINT, SIGTERM, SIGHUP and SIGQUIT take effect at the release. For the short
   while in which files are written. */
void qn_signal_hold(sigset_t *before);
void qn_signal_release(const sigset_t *before);

/* trial.c: a command for libquern, which tries kernels with it; --help has it
   not. */
int qn_trial_serve(int argc, char **argv);
