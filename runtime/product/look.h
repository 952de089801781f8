/* SPDX-License-Identifier: Apache-2.0 */
/*
** look.h: the kernel that looks whether the operands of a product fit f16.
*/
#ifndef QUERN_PRODUCT_LOOK_H
#define QUERN_PRODUCT_LOOK_H

struct qn_session;
struct qn_step;
struct qn_text;

/* Load what looks: as qn_step_load. */
int qn_look_load(struct qn_session *session, int backend, struct qn_step *step);

/* Say what looks. */
void qn_look_why(struct qn_session *session, struct qn_text *text);

#endif
