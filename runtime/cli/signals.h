/* SPDX-License-Identifier: Apache-2.0 */
/*
** signals.h: files that are written as a whole, or not at all.
*/
#ifndef QN_SIGNALS_H
#define QN_SIGNALS_H

#include <signal.h>

/*
** From hold to release nothing interrupts this program, nor those it starts:
** SIGINT, SIGTERM, SIGHUP and SIGQUIT take effect at the release. For the short
** while in which files are written.
*/
void qn_signal_hold(sigset_t *before);
void qn_signal_release(const sigset_t *before);

#endif
