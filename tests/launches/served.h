/* SPDX-License-Identifier: Apache-2.0 */
/*
** served.h: whether every valid line has a plan.
*/
#ifndef TEST_SERVED_H
#define TEST_SERVED_H

void served_lines(void **state);
void served_mixes(void **state);

#endif
