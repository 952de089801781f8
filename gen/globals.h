/* SPDX-License-Identifier: Apache-2.0 */
/* globals.h: what specs and templates can reach. */
#ifndef QUERN_GEN_GLOBALS_H
#define QUERN_GEN_GLOBALS_H

#include "qg.h"

void qg_globals_build(struct qg *); /* once for each generator */

#endif
