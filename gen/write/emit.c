/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c: kernels' files and their registry, in a folder. */
#include "lua/base.h"
#include "write/write.h"

#include <string.h>

static const char header[] =
    "/*\n"
    "** quern_kernels.h: the kernels that `quern build` compiled.\n"
    "** Hand &quern_kernels to quern_open as its options' registry.\n"
    "*/\n"
    "#ifndef QUERN_KERNELS_H\n"
    "#define QUERN_KERNELS_H\n"
    "\n"
    "#include \"quern.h\"\n"
    "\n"
    "#ifdef __cplusplus\n"
    "extern \"C\" {\n"
    "#endif\n"
    "extern const struct quern_registry quern_kernels;\n"
    "#ifdef __cplusplus\n"
    "}\n"
    "#endif\n"
    "\n"
    "#endif\n";

struct request {
    const char *dir;
    const struct qg_selection *selection;
    int count;
    int unwritten; /* the file system did not take them */
};

/* The request, so that the reader sees the slip in it. */
static void nothing(struct qg *q, const struct qg_selection *s)
{
    const char *filter = s->filter && s->filter[0] ? s->filter : NULL;

    qg_diag_note(q, (struct qg_location){-1, 0}, QG_E_NOTHING_SELECTED,
                 s->shipped ? "shipped " : "", s->arch ? " of " : "",
                 s->arch ? s->arch : "",
                 filter     ? "matches '"
                 : s->takes ? "matches"
                            : "exists",
                 filter ? filter : "", filter ? "'" : "");
}

static int count_selected(const struct qg *q, const struct qg_selection *s)
{
    int count = 0;

    for (int i = 0; i < q->registry.nkernels; i++)
        count += qg_selects(s, &q->registry.kernels[i]);
    return count;
}

static struct qg_output_file source_file(struct qg *q, struct qg_point *point)
{
    const char *suffix = strcmp(point->kernel.arch, "host") ? "cu" : "c";

    return (struct qg_output_file){
        .name = qg_mem_print(q, "%s.%s", point->kernel.name, suffix),
        .text = point->source,
        .length = point->length};
}

/* All texts exist before the first file is touched. */
static void emit(struct qg *q, void *argument)
{
    static const struct qg_link link = {"quern_kernels", 1, NULL, NULL};
    struct request *request = argument;
    const struct qg_selection *s = request->selection;
    struct qg_output_file *files;
    int count = count_selected(q, s), used = 0;

    if (!count) {
        nothing(q, s);
        return;
    }
    if (qg_source_each(q, s, qg_source_keep))
        return;
    files = qg_mem_array(q, (size_t)count + 2, sizeof *files);
    for (int i = 0; i < q->registry.nkernels; i++)
        if (qg_selects(s, &q->registry.kernels[i]))
            files[used++] = source_file(q, q->sorted[i]);
    qg_registry_write(q, s, &link);
    files[used++] = (struct qg_output_file){"registry.c", q->output.data,
                                            q->output.length, 0};
    files[used++] =
        (struct qg_output_file){"quern_kernels.h", header, strlen(header), 0};
    request->unwritten = qg_output_write(q, request->dir, files, used);
    request->count = count;
}

int qg_emit(struct qg *q, const char *dir, const struct qg_selection *selection,
            int *count)
{
    static const struct qg_selection all = {.arch = NULL};
    struct request request = {dir, selection ? selection : &all, 0, 0};

    qg_diag_clear(q);
    if (qg_sandbox_protect(q, emit, &request))
        return request.unwritten ? 2 : 1;
    if (count)
        *count = request.count;
    return 0;
}
