/*
** made.h: jobs whose runs make the copies of A, from numbers.
*/
#ifndef QN_MADE_H
#define QN_MADE_H

#include "job.h"

/* What a run makes. */
enum {
    QN_MADE_ROW,
    QN_MADE_ROW_SF,
    QN_MADE_ROW_GLOBAL,
    QN_MADE_COLUMN,
    QN_MADE_COLUMN_SF,
    QN_MADE_COLUMN_GLOBAL,
    QN_MADE_BUFFERS
};

/* Random numbers of deviation `scale`, and room for both copies. Codes of the
   library. */
int qn_made_fill(struct qn_job *, uint64_t seed, float scale);

/* Where all of it lies, into the job's arguments. */
void qn_made_point(struct qn_job *);

/* `*alike` becomes 1 if both copies hold, to the byte, what the host quantizes
   the numbers to, and nothing else. Codes of the library. */
int qn_made_judge(const struct qn_job *, int *alike);

void qn_made_free(struct qn_job *);

#endif
