/* SPDX-License-Identifier: Apache-2.0 */
/* host_sizes_rules.h: rules on groups' sizes that the host knows. */
#pragma once

#include "internal.h"

/* Bytes of the workspace for the sizes of so many launches' groups. */
size_t qn_host_size_bytes(int sizes, int groups, int count);

/* The end of the workspace's part of all products: the error record, and
   after it sizes from the host. */
size_t qn_host_size_end(const struct qn_problem *problem);

/* QUERN_EINVAL: `sizes` is none of enum quern_sizes, or not of one whose groups
   have no sizes (`ragged` 0). */
int qn_host_size_problem(int sizes, int ragged);

/* QUERN_EINVAL: host_sizes are given, but the problem's word is that sizes are
   on the device. */
int qn_host_size_word(int sizes);

/* None negative, and no more in all than `total`, the length of `axis`.
   QUERN_EINVAL names the group. */
int qn_host_size_check(const int64_t *sizes, int groups, const char *axis,
                       int64_t total);

/* The same of a cast or an MLP of `m` rows, which say by `sizes` that they take
   them. */
int qn_host_size_rows(const int64_t *host, int sizes, int groups, int64_t m);
