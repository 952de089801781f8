/* SPDX-License-Identifier: Apache-2.0 */
/*
** arch.c: the architectures that kernels are compiled for.
**
** Code of one architecture runs on later ones of the same major version (sm_80
** on GPUs of 8.6 and 8.9), and code whose name ends with a letter on its own
** only. Architectures without templates cannot be compiled for.
*/
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "choose/select.h"
#include "device/driver.h"

/* Is the kernel's architecture a better choice than `than` (or NULL)? The
   names of one major version have as many digits, so they compare as text. */
static int is_closer(const char *arch, const char *than)
{
    return !than || strcmp(arch, than) > 0;
}

/* The kernels' architecture that serves a GPU of the one asked for. */
static const char *find_code(const struct quern_registry *registry,
                             const char *asked)
{
    struct qn_device device = {0};
    const char *best = NULL;
    int number = 0;

    if (sscanf(asked, "sm_%d", &number) == 1) {
        device.major = number / 10;
        device.minor = number % 10;
    }
    for (int i = 0; i < registry->nkernels; i++) {
        const char *arch = registry->kernels[i].arch;

        if (strcmp(arch, asked) == 0)
            return arch;
        if (number && qn_select_arch(arch, &device) && is_closer(arch, best))
            best = arch;
    }
    return best;
}

/* All that kernels are written for, as "a, b, c". */
static void list_codes(const struct quern_registry *registry, char *text,
                       size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < registry->nkernels && used < size; i++) {
        const char *arch = registry->kernels[i].arch;
        if (strcmp(arch, "host") && !strstr(text, arch))
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     used ? ", " : "", arch);
    }
}

/* 1 if `word` is in the list already. */
static int is_listed(const struct qn_archs *archs, const char *code)
{
    for (int i = 0; i < archs->count; i++)
        if (archs->at[i].code && strcmp(archs->at[i].code, code) == 0)
            return 1;
    return 0;
}

static void add(struct qn_archs *archs, const struct qn_arch *arch)
{
    const size_t used = strlen(archs->list);

    if (arch->code && !is_listed(archs, arch->code))
        snprintf(archs->list + used, sizeof archs->list - used, "%s%s",
                 used ? "," : "", arch->code);
    archs->at[archs->count++] = *arch;
}

/* One word of the list; a second time it counts for nothing. */
static int choose(const struct qn_options *opt,
                  const struct quern_registry *registry, const char *word,
                  size_t length, struct qn_archs *archs)
{
    struct qn_arch arch = {.code = NULL};
    char codes[256];

    if (length == 4 && strncmp(word, "host", length) == 0)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--arch host: host kernels are linked into "
                               "libquern; those of your own specs are "
                               "compiled on first use");
    if (length >= sizeof arch.asked || archs->count == QN_ARCH_MOST)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--arch: '%.*s' is too long or one too many",
                               (int)length, word);
    memcpy(arch.asked, word, length);
    arch.asked[length] = '\0';
    for (int i = 0; i < archs->count; i++)
        if (strcmp(archs->at[i].asked, arch.asked) == 0)
            return QN_EXIT_OK;
    arch.code = find_code(registry, arch.asked);
    add(archs, &arch);
    if (arch.code)
        return QN_EXIT_OK;
    list_codes(registry, codes, sizeof codes);
    if (!opt->json) /* there its code is null */
        fprintf(stderr,
                "quern %s: %s: no template is written for it; there are "
                "kernels for %s\n",
                opt->command, arch.asked, codes);
    return QN_EXIT_OK;
}

void qn_arch_serving(const struct quern_registry *registry, const char *wanted,
                     char *list, size_t size)
{
    size_t used = 0;

    *list = '\0';
    for (size_t length; *wanted && used < size;
         wanted += length + (wanted[length] == ',')) {
        char asked[64];
        const char *code;

        length = strcspn(wanted, ",");
        snprintf(asked, sizeof asked, "%.*s", (int)length, wanted);
        code = find_code(registry, asked);
        if (code && strcmp(code, asked) != 0)
            fprintf(stderr, "%s: its GPUs run the kernels of %s\n", asked,
                    code);
        used += (size_t)snprintf(list + used, size - used, "%s%s",
                                 used ? "," : "", code ? code : asked);
    }
}

int qn_arch_choose(const struct qn_options *opt,
                   const struct quern_registry *registry, const char *wanted,
                   struct qn_archs *archs)
{
    int status = QN_EXIT_OK;
    char codes[256];

    memset(archs, 0, sizeof *archs);
    while (*wanted && !status) {
        const size_t length = strcspn(wanted, ",");

        if (length)
            status = choose(opt, registry, wanted, length, archs);
        wanted += length + (wanted[length] == ',');
    }
    if (status || archs->list[0])
        return status;
    list_codes(registry, codes, sizeof codes);
    return qn_message_fail(
        opt, QN_EXIT_USAGE, "--arch: nothing to compile for%s%s",
        opt->json ? "; there are kernels for " : "", opt->json ? codes : "");
}
