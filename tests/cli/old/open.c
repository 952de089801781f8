/* SPDX-License-Identifier: Apache-2.0 */
/* open.c: a program that the header of 0.1 compiled, as far as the linker and
   the library see it: quern_open is a function of two addresses. */
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
extern int quern_open(const void *options, void **ctx);
extern const char *quern_errmsg(const void *ctx);
#ifdef __cplusplus
}
#endif

int main(void)
{
    static const char options[64] = ""; /* zeros: 0.1's defaults */
    void *ctx = (void *)options;
    const int code = quern_open(options, &ctx);

    printf("%d: %s\n", code, quern_errmsg(ctx));
    return ctx != NULL;
}
