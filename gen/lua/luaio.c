/* SPDX-License-Identifier: Apache-2.0 */
/*
** luaio.c: stdio's streams for Lua, which has none here.
**
** Debian's liblua5.4.a is compiled for programs, not for shared libraries: it
** addresses stderr, stdin and stdout as if they lay in the same object. The
** link therefore renames them (--wrap) to these, which do. They stay NULL:
** Lua writes to them only from print, warn, its standalone panic function and
** the io library, and the sandbox has none of these.
*/
#include <stdio.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* declared first: a symbol with external linkage should not appear by
   surprise */
extern HIDDEN FILE *__wrap_stderr, *__wrap_stdin, *__wrap_stdout;

HIDDEN FILE *__wrap_stderr;
HIDDEN FILE *__wrap_stdin;
HIDDEN FILE *__wrap_stdout;
