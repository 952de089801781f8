/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: rows of JSON objects as an aligned table, or as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "base/text.h"
#include "base/types.h"

enum { MAX_COLUMNS = 16, MAX_CELL = 512 };

/* Names of files and other external texts may hold anything: characters that
   would break a line, or steer a terminal, become '?'. */
static void tame(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at;) {
        const int length = qn_text_character(at);

        if (qn_text_steers(at))
            memset(at, '?', length ? (size_t)length : 1);
        at += length ? length : 1;
    }
}

/* Characters, not bytes. */
static int width_of(const char *text)
{
    int width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

/* One cell as text; "-" where the row has no such key. */
static void cell(char *text, const cJSON *row, const struct qn_column *column)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(row, column->key);

    if (cJSON_IsString(value))
        snprintf(text, MAX_CELL, "%s", value->valuestring);
    else if (cJSON_IsNumber(value))
        snprintf(text, MAX_CELL, column->format, value->valuedouble);
    else if (cJSON_IsBool(value))
        snprintf(text, MAX_CELL, "%s", cJSON_IsTrue(value) ? "yes" : "no");
    else
        snprintf(text, MAX_CELL, "-");
    tame(text);
}

/* The widest cell of each column. */
static void measure(int *widths, const cJSON *rows,
                    const struct qn_column *columns)
{
    char text[MAX_CELL];
    const cJSON *row;

    for (int i = 0; columns[i].key && i < MAX_COLUMNS; i++) {
        widths[i] = (int)strlen(columns[i].title);
        cJSON_ArrayForEach(row, rows)
        {
            cell(text, row, &columns[i]);
            if (width_of(text) > widths[i])
                widths[i] = width_of(text);
        }
    }
}

/* Values to the right, text to the left; no blanks at the end. */
static void print_cell(const char *text, int width,
                       const struct qn_column *column)
{
    const int last = column[1].key == NULL;

    if (column->format[0] != 's')
        printf("%*s%s", width, text, last ? "\n" : "  ");
    else if (last)
        printf("%s\n", text);
    else
        printf("%s%*s  ", text, width - width_of(text), "");
}

static void print_table(const cJSON *rows, const struct qn_column *columns)
{
    int widths[MAX_COLUMNS];
    char text[MAX_CELL];
    const cJSON *row;

    measure(widths, rows, columns);
    for (int i = 0; columns[i].key && i < MAX_COLUMNS; i++)
        print_cell(columns[i].title, widths[i], &columns[i]);
    cJSON_ArrayForEach(row, rows)
    {
        for (int i = 0; columns[i].key && i < MAX_COLUMNS; i++) {
            cell(text, row, &columns[i]);
            print_cell(text, widths[i], &columns[i]);
        }
    }
}

char *qn_table_text(const cJSON *value)
{
    char *text = cJSON_Print(value);
    unsigned char *at = (unsigned char *)text;

    while (at && *at) {
        int length = qn_text_character(at);

        if (!length)
            *at = '?';
        at += length ? length : 1;
    }
    return text;
}

void qn_table_variant(cJSON *row, const struct qn_kernel *kernel)
{
    cJSON_AddStringToObject(row, "op", qn_op_name(kernel->op));
    cJSON_AddStringToObject(row, "recipe", kernel->recipe);
    cJSON_AddStringToObject(row, "layout",
                            qn_layout_name(kernel->a.major, kernel->b.major));
    cJSON_AddStringToObject(row, "ragged", qn_axis_name(kernel->ragged));
    cJSON_AddStringToObject(row, "d", qn_type_name(kernel->d.type));
    cJSON_AddStringToObject(row, "epilogue",
                            qn_epilogue_name(kernel->epilogue));
    cJSON_AddStringToObject(row, "arch", kernel->arch);
}

void qn_table_json(cJSON *value)
{
    char *text = qn_table_text(value);

    puts(text ? text : "null");
    cJSON_free(text);
    cJSON_Delete(value);
}

void qn_table_print(const struct qn_options *options, cJSON *rows,
                    const struct qn_column *columns)
{
    if (options->json) {
        qn_table_json(rows);
        return;
    }
    print_table(rows, columns);
    cJSON_Delete(rows);
}

void qn_table_rows(const struct qn_options *options, cJSON *rows,
                   const struct qn_column *columns)
{
    if (cJSON_GetArraySize(rows))
        qn_table_print(options, rows, columns);
    else
        cJSON_Delete(rows);
}

void qn_table_wrapped(const char *text, int indent, int width)
{
    int used = width;

    for (size_t length; *text; text += length + (text[length] == ' ')) {
        length = strcspn(text, " ");
        if (used + (int)length + 1 > width) {
            printf("%s%*s", used == width ? "" : "\n", indent, "");
            used = indent;
        } else {
            putchar(' ');
            used++;
        }
        printf("%.*s", (int)length, text);
        used += (int)length;
    }
    putchar('\n');
}
