/*
** boot.c: what libquern is built with.
**
**     quern_boot OUTDIR
**
** writes OUTDIR/registry.c (qn_registry_builtin: all kernels that the embedded
** specs express) and OUTDIR/host/<kernel>.c for those that the host runs.
** An error in a spec ends the build with its message.
*/
#include "gen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/*
** Host kernels are compiled into libquern; all others exist through the JIT
** or `quern build`.
*/
static int write_hosts(struct qg *q, const char *dir)
{
    const struct quern_registry *registry = qg_registry(q);
    char folder[4000];
    const char *text;
    size_t length;

    snprintf(folder, sizeof folder, "%s/host", dir);
    if (mkdir(folder, 0777) && errno != EEXIST) {
        perror(folder);
        return 1;
    }
    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];

        if (strcmp(kernel->arch, "host"))
            continue;
        if (qg_source(q, kernel->name, &text, &length) ||
            write_file(folder, kernel->name, ".c", text, length))
            return 1;
    }
    return 0;
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
