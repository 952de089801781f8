/* SPDX-License-Identifier: Apache-2.0 */
/*
** renamed.h: words of problem lines that have another name now.
*/
#ifndef QUERN_RENAMED_H
#define QUERN_RENAMED_H

/* QUERN_EINVAL names the new spelling of a key or of its value. With key ""
   `value` is the first word of a line. */
int qn_renamed_check(const char *key, const char *value);

#endif
