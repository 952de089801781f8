/* SPDX-License-Identifier: Apache-2.0 */
/* globals.h: the names that specs and templates can reach. */
#pragma once

#include "qg.h"

void qg_globals_build(struct qg *); /* once for each generator */
