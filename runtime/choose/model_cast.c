/* SPDX-License-Identifier: Apache-2.0 */
/* model_cast.c: the time of a cast. */
#include "choose/model.h"

#define CAST_SHARE 0.8    /* of the memory's rate, which casts wait for */
#define LAUNCH     5000.0 /* cycles between kernels, for each cast */

double qn_model_cast(double bytes, int launches)
{
    return bytes / (QN_MEMORY_PER_CYCLE * CAST_SHARE) + LAUNCH * launches;
}
