/* SPDX-License-Identifier: Apache-2.0 */
/* route.c: routes that are made to break a layer. */
#include "support/route.h"

const char *const qt_routes[QT_ROUTES] = {
    "spread", "one expert", "no expert",  "one token",
    "twice",  "dropped",    "last expert"};

void qt_route_draw(struct qn_moe_job *job, enum qt_route how)
{
    const int topk = job->moe.topk, first = job->moe.first,
              groups = job->moe.mlp.groups;
    const int experts = job->moe.experts ? job->moe.experts : first + groups;
    const int64_t m = job->moe.mlp.m;

    job->call.args.rows = how == QT_DROPPED ? m * 2 / 3 : m;
    for (int64_t i = 0; i < m * topk && how != QT_SPREAD; i++) {
        const int64_t any = (i * 5 + i / 7) % experts;

        job->index[i] = how == QT_ONE         ? first + groups / 2
                        : how == QT_NONE      ? i % 2 ? -1 - i : experts
                        : how == QT_ONE_TOKEN ? i / topk == m / 2 ? first : -1
                        : how == QT_TWICE     ? (i / topk) % experts
                        : how == QT_DROPPED   ? i % 3 ? experts : any
                                              : experts - 1;
    }
}
