/* SPDX-License-Identifier: Apache-2.0 */
/* error.h: the calling thread's last error. */
#pragma once

/* Replace the message and return `code`, so that callers can return it. */
int qn_error_set(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Append a line; text that does not fit is dropped and "..." marks it. */
void qn_error_add(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* The message so far; "" if none. */
const char *qn_error_text(void);

/* QUERN_EINVAL: of three arguments the first that is NULL, which is the third
   if neither of these is. */
int qn_error_null(const char *name, const void *argument, const char *second,
                  const void *other, const char *third);

/* For a call that may try one strategy and take another: success leaves no
   error of the abandoned one. Returns the code. */
int qn_error_done(int code);

/* Host memory ran out. */
int qn_error_memory(void);
