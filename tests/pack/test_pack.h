/* SPDX-License-Identifier: Apache-2.0 */
/* test_pack.h: small files of tensors in a folder of a test's own. */
#pragma once

#include "cases.h"

#include "pack/pack.h"

/* The path of a file in the test's folder, in one of four static buffers. */
const char *pack_path(const char *name);

/* Files in the test's folder, or in one below it. */
int pack_count(const char *folder);

/* Remove a folder in the test's, with its files. */
void pack_remove(const char *folder);

/* Write a file: the header's length, the header, and so many bytes 1, 2, 3. */
void pack_file(const char *name, const char *header, size_t data_bytes);

/* Write any bytes. */
void pack_bytes(const char *name, const void *bytes, size_t count);

/* The bytes of a file, of malloc. */
char *pack_read(const char *name, size_t *count);

/* tests/runtime/memory.c: the n-th allocation from now on fails, none if 0.
   How many there were since the last call. */
int test_fail_allocation(int n);

/* 1: the file system has no files without names. */
extern int pack_named_only;

int pack_folder_make(void **state);
int pack_folder_remove(void **state);
