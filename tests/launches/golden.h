/* SPDX-License-Identifier: Apache-2.0 */
/*
** golden.h: texts of paragraphs against files that were accepted.
*/
#ifndef TEST_GOLDEN_H
#define TEST_GOLDEN_H

/* 1, and some differences shown, if the text is not the golden file `name`.
   With $QUERN_ACCEPT it becomes that file. */
int golden_check(const char *name, const char *made);

void golden_write(const char *path, const char *text);

#endif
