/* SPDX-License-Identifier: Apache-2.0 */
/* text.h: strings that grow. */
#pragma once

#include "internal.h"

#include <stddef.h>

/* All zero is an empty text. Once memory ran out, additions do nothing. */
struct qn_text {
    char *data;
    size_t length, capacity;
    int failed;
};

void qn_text_add(struct qn_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Hand over the string (freed with free); NULL if memory ran out. */
char *qn_text_take(struct qn_text *text);

void qn_text_free(struct qn_text *text);

/* A copy of a string; NULL stays NULL. NULL if memory ran out. */
char *qn_text_copy(const char *string);

/* Read decimal digits, at most 18; returns the rest, NULL if none. */
const char *qn_text_number(const char *text, int64_t *value);

/* Bytes of the character that begins here; 0 if it is no UTF-8. */
int qn_text_character(const unsigned char *at);

/* Would the character that begins here break a line, or steer a terminal? So
   does a byte that is no UTF-8. */
int qn_text_steers(const unsigned char *at);

/* Is all of a string UTF-8? */
int qn_text_valid(const char *string);
