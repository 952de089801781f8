/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_job.c: families of jobs, as the CLI runs problems. */
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

#include "oracle/job.h"

const char *gpu_job_repeat(struct qn_job *job, const struct qn_memory *memory)
{
    const size_t bytes = memory->bytes;
    char *before = malloc(bytes + 1), *after = malloc(bytes + 1);
    const char *bad = NULL;

    if (!before || !after)
        bad = "memory ran out";
    else if (qn_memory_read(memory, 0, before, bytes) || qn_job_run(job) ||
             qn_job_check(job) || qn_memory_read(memory, 0, after, bytes))
        bad = qn_errmsg(gpu_context);
    else if (memcmp(before, after, bytes) != 0)
        bad = "another run gives other bytes";
    free(before);
    free(after);
    return bad;
}
