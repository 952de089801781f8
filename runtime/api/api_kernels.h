/* SPDX-License-Identifier: Apache-2.0 */
/* api_kernels.h: the kernels that plans of a line take, without a GPU. */
#ifndef QUERN_API_API_KERNELS_H
#define QUERN_API_API_KERNELS_H

#include "api/api.h"

struct qn_device;

/* Set marks[i] for each kernel `i` of ctx->base that the line's plan takes on
   such a device, as if it could compile all of them. `present` and the name of
   the device decide whether measured winners are looked for. Launches nothing,
   compiles nothing. QUERN_ENOKERNEL: nothing serves the line there;
   QUERN_EINVAL; QUERN_ENOMEM. */
int qn_api_kernels(struct quern_context *ctx, const struct qn_line *line,
                   const struct qn_device *device, unsigned char *marks);

#endif
