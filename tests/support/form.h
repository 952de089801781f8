/* SPDX-License-Identifier: Apache-2.0 */
/*
** form.h: kernels of Hopper's and Blackwell's products whose texts differ by
** little more than the tile. A test of each form stands for all kernels.
*/
#pragma once

#include "registry.h"

/* One kernel of each form, whose tile is another from form to form, which
   `turn` counts; NULL where kernel `i` is no such product, or not the first of
   its form. Copies are left out: their steps are as where an activation is
   stored, and casts make their bytes. */
const struct qn_kernel *qt_form_take(const struct quern_registry *registry,
                                     int i, int turn);
