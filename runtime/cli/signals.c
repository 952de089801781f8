/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c: files that are written as a whole, or not at all. */
#include "cli.h"

#include <stddef.h>

void qn_signal_hold(sigset_t *before)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    pthread_sigmask(SIG_BLOCK, &set, before);
}

void qn_signal_release(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
