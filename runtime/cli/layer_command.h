/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer_command.h: what the commands do with an MLP.
*/
#ifndef QN_LAYER_COMMAND_H
#define QN_LAYER_COMMAND_H

#include "cli.h"
#include "oracle/layer.h"

/* The report of `quern bench` and `demo`; `verdict` may be NULL. */
cJSON *qn_layer_row(const struct qn_layer *, const struct qn_job_time *,
                    const struct qn_layer_verdict *);

/* `quern run`, `bench`, `describe` and `why` of an MLP. Exit statuses. */
int qn_layer_command_run(const struct qn_options *, struct quern_context *,
                         const char *text);
int qn_layer_command_bench(const struct qn_options *, struct quern_context *,
                           const char *text, cJSON *rows);
int qn_layer_command_describe(const struct qn_options *, struct quern_context *,
                              const char *text);
int qn_layer_command_why(const struct qn_options *, struct quern_context *,
                         const char *text);

/* A command's function for each kind of line. */
struct qn_line_commands {
    int (*product)(const struct qn_options *, struct quern_context *);
    int (*cast)(const struct qn_options *, struct quern_context *,
                const char *text);
    int (*layer)(const struct qn_options *, struct quern_context *,
                 const char *text);
};

/* The frame of commands that take one problem: the library is opened, and what
   the command line says decides who gets it. An exit status, after printing. */
int qn_layer_line(const struct qn_options *, const struct qn_line_commands *);

#endif
