/* SPDX-License-Identifier: Apache-2.0 */
/*
** boot.c: the sources that libquern is built with.
**
**     quern_boot OUTDIR
**
** writes OUTDIR/registry.c (qn_registry_builtin: all kernels that the embedded
** specs express) and OUTDIR/host/<kernel>.c for those that the host runs.
** Kernels that differ only by their names share one text: the first is written,
** and the others call it, from OUTDIR/host/alike.c. An error in a spec ends the
** build with its message.
*/
#include "gen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BODIES = 512 }; /* that are looked at for likeness */

/* A host kernel that was written. */
struct body {
    const char *name;
    char *text; /* without its header */
};

/* Every host kernel so far. */
struct hosts {
    struct body bodies[MOST_BODIES];
    int count;
    FILE *alike;
};

static int write_file(const char *dir, const char *name, const char *suffix,
                      const char *text, size_t length)
{
    char path[4096];
    FILE *out;
    int fine;

    snprintf(path, sizeof path, "%s/%s%s", dir, name, suffix);
    out = fopen(path, "wb");
    fine = out && fwrite(text, 1, length, out) == length;
    if (out && fclose(out))
        fine = 0;
    if (!fine)
        fprintf(stderr, "quern_boot: %s: %s\n", path, strerror(errno));
    return !fine;
}

/* Are two texts the same, but for the two names? */
static int same_text(const char *a, const char *a_name, const char *b,
                     const char *b_name)
{
    size_t a_length = strlen(a_name), b_length = strlen(b_name);

    while (*a && *b) {
        if (!strncmp(a, a_name, a_length) && !strncmp(b, b_name, b_length)) {
            a += a_length;
            b += b_length;
        } else if (*a++ != *b++) {
            return 0;
        }
    }
    return !*a && !*b;
}

/* The header names kernel, key and command, which always differ. */
static const char *skip_header(const char *text)
{
    const char *end = strstr(text, "*/");

    return end ? end : text;
}

/* The written kernel that a text is like, or NULL. */
static const struct body *find_like(const struct hosts *hosts, const char *name,
                                    const char *text)
{
    for (int i = 0; i < hosts->count; i++)
        if (same_text(hosts->bodies[i].text, hosts->bodies[i].name, text, name))
            return &hosts->bodies[i];
    return NULL;
}

/* A function that calls the one of another name. */
static int write_call(FILE *out, const char *name, const char *called)
{
    static const char params[] = "(void *const *params, int worker, "
                                 "int workers)";

    return fprintf(out,
                   "\nvoid %s%s;\nvoid %s%s;\n"
                   "void %s%s\n{\n    %s(params, worker, workers);\n}\n",
                   called, params, name, params, name, params, called) < 0;
}

/* One kernel: its text, or a call of one that is like it. */
static int write_host(struct hosts *hosts, const char *folder,
                      const struct qn_kernel *kernel, const char *text,
                      size_t length)
{
    const struct body *like = find_like(hosts, kernel->name, skip_header(text));

    if (like)
        return write_call(hosts->alike, kernel->name, like->name);
    if (hosts->count < MOST_BODIES) {
        struct body *body = &hosts->bodies[hosts->count];

        body->name = kernel->name;
        body->text = strdup(skip_header(text));
        if (!body->text)
            return 1;
        hosts->count++;
    }
    return write_file(folder, kernel->name, ".c", text, length);
}

/* All of the registry, into an open folder. */
static int write_all(struct qg *q, struct hosts *hosts, const char *folder)
{
    const struct quern_registry *registry = qg_registry(q);
    const char *text;
    size_t length;

    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];

        if (strcmp(kernel->arch, "host"))
            continue;
        if (qg_source(q, kernel->name, &text, &length) ||
            write_host(hosts, folder, kernel, text, length))
            return 1;
    }
    return 0;
}

/* Host kernels are compiled into libquern; all others exist through the JIT
   or `quern build`. */
static int write_hosts(struct qg *q, const char *dir)
{
    struct hosts hosts = {.count = 0};
    char folder[4000], path[4096];
    int failed;

    snprintf(folder, sizeof folder, "%s/host", dir);
    if (mkdir(folder, 0777) && errno != EEXIST) {
        perror(folder);
        return 1;
    }
    snprintf(path, sizeof path, "%s/alike.c", folder);
    hosts.alike = fopen(path, "wb");
    if (!hosts.alike) {
        perror(path);
        return 1;
    }
    fputs(
        "/* Kernels that differ from another by nothing but their names. */\n",
        hosts.alike);
    failed = write_all(q, &hosts, folder);
    failed |= fclose(hosts.alike) != 0;
    for (int i = 0; i < hosts.count; i++)
        free(hosts.bodies[i].text);
    return failed;
}

/* Returns 0, or 1 with a message printed or to be had from qg_diagnostics. */
static int boot(struct qg *q, const char *dir)
{
    static const struct qg_link link = {"qn_registry_builtin", 1, NULL, NULL};
    const char *text;
    size_t length;

    if (mkdir(dir, 0777) && errno != EEXIST) {
        perror(dir);
        return 1;
    }
    return qg_registry_text(q, NULL, &link, &text, &length) ||
           write_file(dir, "registry", ".c", text, length) ||
           write_hosts(q, dir);
}

int main(int argc, char **argv)
{
    struct qg *q;
    int failed;

    if (argc != 2) {
        fputs("usage: quern_boot OUTDIR\n", stderr);
        return 2;
    }
    failed = qg_open(NULL, 0, &q) || boot(q, argv[1]);
    if (failed)
        fputs(qg_diagnostics(q), stderr);
    qg_close(q);
    return failed;
}
