/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: time that passes, whatever the date is set to. */
#pragma once

/* Seconds since some moment. */
double qn_clock_seconds(void);
