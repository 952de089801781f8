/* SPDX-License-Identifier: Apache-2.0 */
/*
** tune_file.h: files of measured winners, as text.
**
**     quern tune 2
**     gpu NVIDIA H200
**     fprop bf16 g=8 m=4096 n=2048 k=7168 d=bf16 | sms=132 kernel=K
**         key=5f82c79eb01d3a46 band=0 ns=81234 model=K model_ns=88000
**         ratio=1.083 mhz=1755 certain=1
**
** (a line is one line; the key is the beginning of the kernel's own, a hash of
** its source, so that a line is stale once its kernel has changed; dequantize=STRATEGY comes after the band where
** strategies were compared, and the kernel is that of the fastest one's
** product). Left of the bar is the problem of a bucket, as qn_problem_print
** writes it: the ragged axis has the least length that falls into the bucket.
** The lines are sorted and none is there twice, so that files can be compared,
** merged and committed.
*/
#pragma once

#include "internal.h"

struct qn_text;
struct quern_context;

#define QN_TUNE_MOST ((size_t)1 << 20) /* bytes of a file */
enum { QN_TUNE_KEY = 16 };             /* characters of a kernel's key */

/* The measurement of one bucket. */
struct qn_tune_line {
    char problem[224];            /* of the bucket, as text */
    int64_t sms;                  /* multiprocessors that were used */
    char kernel[256], model[256]; /* the fastest, and the model's choice */
    char key[QN_TUNE_KEY + 1];    /* of the fastest's source */
    int64_t band;                 /* launch-time choice; 0: as usual */
    int dequantize;               /* enum quern_dequantize; AUTO: the
                                     model's */
    int64_t ns, model_ns;         /* of one launch */
    int64_t permille;             /* ratio of both, paired in rounds */
    int64_t mhz;                  /* clock of the multiprocessors; 0: unknown */
    int64_t certain;
    int number; /* of the line in its file; 0: from no file */
    int stale;  /* -1 when read: not known yet */
};

struct qn_tune_file {
    char gpu[96];
    int format;                 /* of the text */
    struct qn_tune_line *lines; /* freed with qn_tune_file_free */
    int count;
};

/* The largest of 0, 1, 2, 3, 4, 6, 8, 12, .. that is no larger than `rows`. */
int64_t qn_tune_file_bucket(int64_t rows);

/* The one of these after `edge`, which is one of them. */
int64_t qn_tune_file_next(int64_t edge);

/* The problem that stands for its bucket; may be the same object. */
void qn_tune_file_canonical(const struct qn_problem *problem,
                            struct qn_problem *bucket);

/*
** Read text. `file` has the gpu that is expected and no lines; `name` is the
** file's, for messages. The text comes from anywhere: any bytes are allowed and
** need no zero after them.
**
** QUERN_EINVAL: "NAME:LINE: the error and the remedy", and no lines.
** QUERN_ENOMEM.
*/
int qn_tune_file_parse(struct quern_context *ctx, const char *name,
                       const char *data, size_t bytes,
                       struct qn_tune_file *file);

/* The same lines as text, sorted. */
void qn_tune_file_print(const struct qn_tune_file *file, struct qn_text *text);

/* The line of a bucket and so many multiprocessors, or NULL. */
struct qn_tune_line *qn_tune_file_find(const struct qn_tune_file *file,
                                       const char *problem, int sms);

/* Add a line. One of the same bucket is replaced; if not `newer`, only by one
   whose kernel is faster, so that the order of a merge does not matter.
   QUERN_ENOMEM. */
int qn_tune_file_add(struct qn_tune_file *file, const struct qn_tune_line *line,
                     int newer);

void qn_tune_file_free(struct qn_tune_file *file);
