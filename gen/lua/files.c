/* SPDX-License-Identifier: Apache-2.0 */
/* files.c: the specs and templates that were read: their lines. */
#include "lua/base.h"

#include <ctype.h>
#include <string.h>

/* Index of "sm90/scheduler.cu" among the files. */
int qg_files_template(const struct qg *q, const char *name)
{
    for (int i = 0; i < q->nfiles; i++)
        if (q->files[i].kind == QG_TEMPLATE &&
            !strcmp(q->files[i].name + strlen("templates/"), name))
            return i;
    return -1;
}

/* The text of a line without the blanks around it. */
const char *qg_files_line(const struct qg *q, struct qg_location location,
                          int *length)
{
    const char *at, *end, *stop;

    *length = 0;
    if (location.file < 0 || location.line < 1)
        return "";
    at = q->files[location.file].text;
    end = at + q->files[location.file].length;
    for (int line = 1; line < location.line && at < end; line++) {
        stop = memchr(at, '\n', (size_t)(end - at));
        at = stop ? stop + 1 : end;
    }
    stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : end;
    stop = stop ? stop : end;
    while (at < stop && isspace((unsigned char)*at))
        at++;
    while (at < stop && isspace((unsigned char)stop[-1]))
        stop--;
    *length = (int)(stop - at);
    return at;
}

/* The first line of the comment above a statement, without its dashes; where
   there is none, that of the file. */
const char *qg_files_doc(struct qg *q, struct qg_location location)
{
    const char *found = "";
    int found_length = 0, first_length;
    const char *first =
        qg_files_line(q, (struct qg_location){location.file, 1}, &first_length);

    while (location.line > 1) {
        int length;
        const char *line;

        location.line--;
        line = qg_files_line(q, location, &length);
        if (length >= 2 && !memcmp(line, "--", 2)) {
            found = line;
            found_length = length;
        } else if (found_length || length) {
            break;
        }
    }
    if (!found_length && first_length >= 2 && !memcmp(first, "--", 2)) {
        found = first;
        found_length = first_length;
    }
    while (found_length && (*found == '-' || *found == ' ')) {
        found++;
        found_length--;
    }
    return qg_mem_string(q, found,
                         (size_t)(found_length < 200 ? found_length : 200));
}

/* "file:line", or "file" for all of it. */
const char *qg_files_print(struct qg *q, struct qg_location location)
{
    const char *path = q->files[location.file].path;

    if (!location.line)
        return path;
    return qg_mem_print(q, "%s:%d", path, location.line);
}

const char *qg_files_portable(struct qg *q, const char *spec)
{
    for (int i = 0; i < q->nfiles; i++) {
        const struct qg_input *file = &q->files[i];
        const size_t length = strlen(file->path);

        if (file->path != file->name && !strncmp(spec, file->path, length) &&
            spec[length] == ':')
            return qg_mem_print(q, "%s%s", file->name, spec + length);
    }
    return spec;
}
