/* SPDX-License-Identifier: Apache-2.0 */
/* tune_files.c: files of measured winners, for tests. */
#include "tune_files.h"
#include "product/plan.h"

#include <sys/stat.h>

void test_tune_put(const char *folder, const char *name, const char *text)
{
    char path[600];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", test_folder, folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", test_folder, folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

void test_tune_folders(const char *one, const char *two)
{
    char list[600];

    snprintf(list, sizeof list, "%s/%s:%s/%s", test_folder, one, test_folder,
             two);
    setenv("QUERN_TUNE", list, 1);
}

int test_tune_used(struct quern_context *ctx, const char *text,
                   const char *kernel)
{
    struct qn_plan *plan = test_plan(ctx, text, NULL);
    struct quern_plan_info info;

    qn_plan_info(plan, &info);
    assert_string_equal(info.kernel, kernel);
    qn_plan_free(plan);
    return info.tuned;
}

char *test_tune_why(struct quern_context *ctx)
{
    struct qn_problem p = test_problem(ctx, PROBLEM);
    char *text;

    test_expect(qn_why(ctx, &p, NULL, NULL, &text), QUERN_OK, "");
    return text;
}

int test_tune_problem(struct quern_context *ctx, const char *text,
                      char file[512])
{
    struct qn_problem p = test_problem(ctx, text);
    struct quern_tune_result r;
    int code = qn_tune(ctx, &p, NULL, &r);

    if (file)
        strcpy(file, r.file);
    quern_free(r.candidates);
    return code;
}

int test_tune_lines(const char *folder, const char *name)
{
    char path[600], line[1024];
    FILE *file;
    int count = 0;

    snprintf(path, sizeof path, "%s/%s/%s", test_folder, folder, name);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        count += strstr(line, " kernel=") != NULL;
    fclose(file);
    return count;
}
