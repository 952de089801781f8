/* SPDX-License-Identifier: Apache-2.0 */
/* message.h: the command line's request, and the report of errors. */
#pragma once

#include "internal.h"

struct argp_option;

enum {
    QN_EXIT_OK = 0,
    QN_EXIT_FAILED = 1, /* a check failed */
    QN_EXIT_USAGE = 2,  /* bad use */
    QN_EXIT_UNABLE = 3  /* this machine can't */
};

#define QN_MAX_SPECS 16

/* Every option of every command; a command reads those that it declares. */
struct qn_options {
    const char *command;
    const char *specs[QN_MAX_SPECS + 1];
    int nspecs;
    int json;
    const char *json_file; /* to be written too */
    const char *output;
    const char *arch; /* NULL, or all that were given, with commas */
    char archs[256];
    const char *routes;
    const char *kernel;
    int backend; /* enum quern_backend */
    int against; /* the same, to compare with; AUTO: none */
    int streams; /* of the one that is cublaslt; 0: as the library has it */
    int jobs;
    int sms;        /* that a plan may use; 0: all */
    int interprets; /* the backend is ptx */
    int trace;
    int check;
    int show; /* bits: QN_SHOW_ */
    int verbose;
    int fields;
    int kernels;
    int repeat;
    int overhead;
    double budget;     /* seconds */
    int l2;            /* enum quern_l2 */
    const char *gpu;   /* of explanations; NULL: the one that is there */
    const char *store; /* folder of measured winners; NULL: as the library has
                          it */
    int merge, list, missing;
    const char *recipes; /* names with commas; NULL: the default */
    int64_t tokens;      /* 0: the default */
    int ranks;           /* 0: 1 */
    int forward, dry_run, undo;
    const char *format, *experts_of; /* of a checkpoint; NULL: the default */
    uint64_t seed;
    int alike; /* 1: values of one magnitude; else, of a recipe that scales
                  blocks, those of qn_random_fill */
    int gap;   /* elements between rows of a product's D and P, as far as they
                have a stride; none if it has copies */
    const struct argp_option *known; /* the command's */
    uint64_t given;                  /* which of them were */
    char **words; /* arguments that are no options, NULL-terminated */
    int nwords;
};

/* Print `begin` and the text on stderr, or with --json one line of JSON with
   the command, the status and the text: {"command": "run", "status": 2,
   "error": "..."}. Returns `status`. */
int qn_message_text(const struct qn_options *, int status, const char *begin,
                    const char *text);

/* The same of "quern COMMAND: error: ...". */
int qn_message_fail(const struct qn_options *, int status, const char *format,
                    ...) __attribute__((format(printf, 3, 4)));

/* The same for a code of the library, with its detail. */
int qn_message_code(const struct qn_options *, int code, const char *detail);

/* The word of `words` (NULL-terminated) nearest to `word`; NULL if none is. */
const char *qn_message_nearest(const char *word, const char *const *words);
