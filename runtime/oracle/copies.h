/* SPDX-License-Identifier: Apache-2.0 */
/* copies.h: the operands of a job whose recipe scales them. */
#pragma once

#include "oracle/decode.h"
#include "oracle/job.h"

/* The contents of a cast's state before a run: a factor and its inverse, an
   empty history, a seed. QN_CALL_POISON: it is no state. */
int qn_copies_state(const struct quern_operand *, const float factors[2],
                    uint64_t seed, void *to, size_t bytes);

/* Random values of deviation `scale`, quantized by the job's backend into its
   operand `role`. Codes of the library. */
int qn_copies_make(struct qn_job *, int role, uint64_t seed, float scale);

/* The operand's values, for the oracle; qn_copies_free frees `memory`. Codes of
   the library. */
int qn_copies_decode(const struct qn_job *, int role, struct qn_decode *,
                     void *memory[3]);
void qn_copies_free(void *memory[3]);

/* Clears *held if an operand differs from its source: compares about `most`
   lines. An operand without scales holds. Codes of the library. */
int qn_copies_judge(const struct qn_job *, int role, int64_t most, int *held);
