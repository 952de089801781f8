/* SPDX-License-Identifier: Apache-2.0 */
/* entries.h: shared by the tests of the cache's entries. */
#pragma once

#include "code/cache.h"
#include "code/cache_folder.h"

#define KEY(digit)                                                             \
    digit "000000000000000000000000000000000000000000000000000000000000000"

/* An entry whose object is "the object". */
extern const struct qn_cache_item test_item;

/* Messages of the cache are collected in test_messages. */
struct qn_cache *test_open_cache(const char *list);

/* 1 if there is such an entry, which then holds the object above. */
int test_loads(struct qn_cache *cache, const char *key, int repair);

/* Run in a process without root's privileges; returns its exit status. */
int test_as_nobody(int (*what)(void));
