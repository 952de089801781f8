/* SPDX-License-Identifier: Apache-2.0 */
/*
** embed.c: pack specs and templates into a C file.
**
**     embed build/gen/embedded.c specs templates
**
** writes the definitions that embedded.h declares, sorted by path, with paths
** as they were given. The file is only touched when its text changes.
*/
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct paths {
    char **at;
    int count;
};

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "embed: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *must(void *memory)
{
    if (!memory)
        fail("memory");
    return memory;
}

/* By suffix: an editor's leftovers are not. */
static int wanted(const char *name)
{
    const char *dot = strrchr(name, '.');

    return name[0] != '.' && dot &&
           (!strcmp(dot, ".lua") || !strcmp(dot, ".c") || !strcmp(dot, ".cu"));
}

static void add(struct paths *paths, char *path)
{
    paths->at =
        must(realloc(paths->at, (size_t)(paths->count + 1) * sizeof(char *)));
    paths->at[paths->count++] = path;
}

/* All files below a folder, in any order; they are sorted later. */
static void walk(struct paths *paths, const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    struct stat status;

    if (!dir)
        fail(folder);
    while ((entry = readdir(dir))) {
        size_t size = strlen(folder) + strlen(entry->d_name) + 2;
        char *path = must(malloc(size));

        snprintf(path, size, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.' && !stat(path, &status) &&
            S_ISDIR(status.st_mode))
            walk(paths, path);
        else if (wanted(entry->d_name)) {
            add(paths, path);
            continue;
        }
        free(path);
    }
    closedir(dir);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* One string literal for each line of the file. */
static void put_text(FILE *out, const char *path)
{
    FILE *in = fopen(path, "rb");
    int c, fresh = 1;

    if (!in)
        fail(path);
    fprintf(out, "    {\"%s\",", path);
    while ((c = getc(in)) != EOF) {
        if (fresh)
            fputs("\n     \"", out);
        fresh = c == '\n';
        if (c == '\n')
            fputs("\\n\"", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 32 || c > 126 || c == '?')
            fprintf(out, "\\%03o", c);
        else
            putc(c, out);
    }
    fputs(fresh ? "\n     \"\",\n" : "\",\n", out);
    if (ferror(in))
        fail(path);
    fprintf(out, "     %ld},\n", ftell(in));
    fclose(in);
}

static void put_all(FILE *out, const struct paths *paths)
{
    fputs("/* Made by embed. */\n#include \"embedded.h\"\n\n"
          "const struct qg_file qg_embedded[] = {\n",
          out);
    for (int i = 0; i < paths->count; i++)
        put_text(out, paths->at[i]);
    fprintf(out, "};\n\nconst int qg_embedded_count = %d;\n", paths->count);
}

/* So that make sees no change where there is none. */
static int same(const char *path, const char *text, size_t length)
{
    FILE *in = fopen(path, "rb");
    size_t i = 0;
    int c = EOF;

    if (!in)
        return 0;
    while (i < length && (c = getc(in)) == (unsigned char)text[i])
        i++;
    c = i == length ? getc(in) : 0;
    fclose(in);
    return i == length && c == EOF;
}

int main(int argc, char **argv)
{
    struct paths paths = {NULL, 0};
    char *text;
    size_t length;
    FILE *out;

    if (argc < 3) {
        fputs("usage: embed OUT.c FOLDER...\n", stderr);
        return 2;
    }
    for (int i = 2; i < argc; i++)
        walk(&paths, argv[i]);
    if (paths.count)
        qsort(paths.at, (size_t)paths.count, sizeof(char *), by_path);
    out = must(open_memstream(&text, &length));
    put_all(out, &paths);
    if (fclose(out))
        fail("memory");
    if (!same(argv[1], text, length)) {
        out = fopen(argv[1], "wb");
        if (!out || fwrite(text, 1, length, out) != length || fclose(out))
            fail(argv[1]);
    }
    for (int i = 0; i < paths.count; i++)
        free(paths.at[i]);
    free(paths.at);
    free(text);
    return 0;
}
