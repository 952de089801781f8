/* SPDX-License-Identifier: Apache-2.0 */
/*
** route.h: routes of a layer that are made to break it. Shared by the host
** tests and the GPU suite.
*/
#pragma once

#include "oracle/moe_job.h"

enum qt_route {
    QT_SPREAD,    /* as the job drew it */
    QT_ONE,       /* all tokens to one expert */
    QT_NONE,      /* to none: negative, and the first that is nobody's */
    QT_ONE_TOKEN, /* of one token alone */
    QT_TWICE,     /* an expert more than once in a token */
    QT_DROPPED,   /* two of three pairs to none, and a third of the tokens */
    QT_LAST,      /* the last expert, which may be another rank's */
    QT_ROUTES
};
extern const char *const qt_routes[QT_ROUTES];

/* Set the tokens and the experts of their pairs, on the host. */
void qt_route_draw(struct qn_moe_job *job, enum qt_route how);
