/* SPDX-License-Identifier: Apache-2.0 */
/* test_tamper.c: effects of others, of versions and of the clock on a cache. */
#define _GNU_SOURCE
#include "test.h"

#include "entries.h"
#include "code/cache.h"
#include "code/cache_folder.h"
#include "code/entry.h"

#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <utime.h>

/* A cache with the entries a and b, each with an index. */
static void seed(void)
{
    struct qn_cache *cache = test_open_cache(test_cache);

    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    assert_true(qn_cache_store(cache, KEY("b"), &test_item));
    qn_cache_index_store(cache, KEY("1"), KEY("a"));
    qn_cache_index_store(cache, KEY("2"), KEY("b"));
    qn_cache_close(cache);
    assert_int_equal(test_verify(), 0);
}

/* ------------------------------------------------------------------ verify */

/* Each is found, by its words, and gone after a repair or gc. */
TEST(finds_every_damage)
{
#define A     "'%s'/entries/" KEY("a")
#define INDEX "'%s'/index/" KEY("1")
    static const struct {
        const char *command, *fault;
    } damages[] = {
        {"truncate -s 9 " A "/object", "object differs"},
        {"printf X | dd of=" A "/object conv=notrunc status=none",
         "object differs"},
        {"rm " A "/object", "object differs"},
        {"truncate -s 1T " A "/object", "object differs"},
        {"chmod 666 " A "/object", "object differs"},
        {"rm " A "/object && mkfifo -m 600 " A "/object", "object differs"},
        {"mv " A "/object '%s'-planted && ln -s '%s'-planted " A "/object",
         "object differs"},
        {"rm " A "/object && mkdir " A "/object", "object differs"},
        {"printf x >>" A "/source", "source differs"},
        {"rm " A "/log", "log differs"},
        {"rm " A "/sums", "sums is missing"},
        {": >" A "/sums", "sums disagrees"},
        {"sed -i s/k_test/k_tess/ " A "/sums", "sums disagrees"},
        {"sed -i s/quern.2/quern\\ 3/ " A "/sums", "sums disagrees"},
        {"rm -r " A " && cp -rp '%s'/entries/" KEY("b") " " A,
         "a copy of another"},
        {"mv " A " '%s'-planted && ln -s '%s'-planted " A, "no folder"},
        {"rm -r " A " && : >" A, "no folder"},
        {"rm -r " A " && mkfifo " A, "no folder"},
        {"chmod 777 " A, "others may write"},
        {"rm -r " A, "its entry is gone"},
        {": >" INDEX, "differs from the stored"},
        {"truncate -s 60 " INDEX, "differs from the stored"},
        {"sed -i s/2.a/2\\ b/ " INDEX, "differs from the stored"},
        {"cp '%s'/index/" KEY("2") " " INDEX, "differs from the stored"},
        {"chmod 622 " INDEX, "differs from the stored"},
        {"rm " INDEX " && mkfifo -m 600 " INDEX, "differs from the stored"},
        {"rm " INDEX " && mkdir -m 700 " INDEX, "differs from the stored"},
    };

    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        struct qn_cache *cache;
        struct qn_cache_gc gc;

        seed();
        test_shell(damages[i].command);
        assert_int_equal(test_verify(), 1);
        if (!strstr(test_faults, damages[i].fault))
            fail_msg("%s: %s", damages[i].command, test_faults);
        cache = test_open_cache(test_cache);
        if (!test_loads(cache, KEY("a"), 1))
            assert_true(qn_cache_store(cache, KEY("a"), &test_item));
        assert_int_equal(qn_cache_gc(cache, 1, 1000, &gc), QUERN_OK);
        assert_true(test_loads(cache, KEY("b"), 1));
        qn_cache_close(cache);
        if (test_verify())
            fail_msg("%s leaves: %s", damages[i].command, test_faults);
        test_shell("rm -rf '%s' '%s'-planted");
    }
}

TEST(finds_refused_folders)
{
    static const struct {
        const char *command, *fault;
    } damages[] = {
        {"chmod 777 '%s'", ": others may write to it; chmod go-w makes it"},
        {"chmod 775 '%s'", ": others may write to it; chmod go-w makes it"},
        {"chmod 777 '%s'/entries", "entries: others may write to it"},
        {"mv '%s'/index '%s'-index && ln -s '%s'-index '%s'/index",
         "index: it is"},
        {"rm -r '%s'/lock && : >'%s'/lock", "lock: it is no folder"},
        {"rm -r '%s' && mkfifo '%s'", "it is no folder"},
    };

    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        seed();
        test_shell(damages[i].command);
        test_verify();
        if (!strstr(test_faults, damages[i].fault))
            fail_msg("%s: %s", damages[i].command, test_faults);
        test_messages[0] = 0;
        assert_int_equal(test_plan_once(), QUERN_OK);
        assert_non_null(strstr(test_messages, "is not used: "));
        test_shell("rm -rf '%s' '%s'-real '%s'-index");
    }
}

/* A slash at the end would have the kernel follow another user's link. */
TEST(follows_no_link_with_a_slash)
{
    char path[400];
    struct qn_cache *cache;

    if (geteuid())
        TEST_SKIP("root, to give a link to another user");
    seed();
    test_shell("mv '%s' '%s'-real && ln -s '%s'-real '%s' && chown -h 1 '%s'");
    snprintf(path, sizeof path, "%s///", test_cache);
    cache = test_open_cache(path);
    assert_int_equal(qn_cache_writable(cache), -1);
    assert_false(test_loads(cache, KEY("a"), 1));
    qn_cache_close(cache);
}

/* Another user's, from the folder down; only root can give things away. */
TEST(trusts_no_other_owner)
{
    static const char *const paths[] = {
        "'%s'", "'%s'/entries", "'%s'/entries/" KEY("a"),
        "'%s'/entries/" KEY("a") "/object", "'%s'/entries/" KEY("a") "/sums"};
    char command[600];

    if (geteuid())
        TEST_SKIP("root, to give files to another user");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct qn_cache *cache;

        seed();
        snprintf(command, sizeof command, "chown 1 %s", paths[i]);
        test_shell(command);
        assert_int_equal(test_verify(), i == 1 ? 3 : 1);
        cache = test_open_cache(test_cache);
        assert_false(test_loads(cache, KEY("a"), 1));
        qn_cache_close(cache);
        test_wipe();
    }
}

/* ------------------------------------------------------------------- lists */

TEST(takes_any_list)
{
    static const char *const lists[] = {
        "",          ":",           "::::",          "/proc/1/x",
        "/dev/null", "/dev/null/x", "/dev/null/../x"};
    char longer[PATH_MAX + 600];

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct qn_cache *cache;

        cache = test_open_cache(lists[i]);
        assert_int_equal(qn_cache_writable(cache), -1);
        assert_false(qn_cache_store(cache, KEY("a"), &test_item));
        assert_false(test_loads(cache, KEY("a"), 1));
        qn_cache_close(cache);
    }
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    for (size_t i = 0; i < sizeof longer - 1; i += 100)
        longer[i] = '/';
    memcpy(longer, "/proc/1", 7); /* where none can be made */
    for (size_t length = PATH_MAX - 3; length < sizeof longer;
         length += length < PATH_MAX + 3 ? 1 : 499) {
        struct qn_cache *cache;
        char list[sizeof longer + sizeof test_cache + 2];

        snprintf(list, sizeof list, "%.*s:%s", (int)length, longer, test_cache);
        cache = test_open_cache(list);
        assert_string_equal(qn_cache_folder(cache, qn_cache_writable(cache)),
                            test_cache);
        qn_cache_close(cache);
    }
}

/* Neither a folder nor a home: it works, and says so. */
TEST(works_without_a_home)
{
    const char *home = getenv("HOME");
    char kept[PATH_MAX];

    snprintf(kept, sizeof kept, "%s", home ? home : "");
    unsetenv("QUERN_CACHE");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_non_null(strstr(test_messages, "no folder of the cache may be "));
    setenv("HOME", "relative", 1);
    test_messages[0] = 0;
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_non_null(strstr(test_messages, "no folder of the cache may be "));
    /* none was asked for: nothing to tell */
    setenv("QUERN_CACHE", "", 1);
    test_messages[0] = 0;
    assert_int_equal(test_plan_once(), QUERN_OK);
    assert_null(strstr(test_messages, "cache"));
    setenv("HOME", kept, 1);
}

static char list[700];

/* a is the seeded folder's, whose b is damaged: it is made again in another
   folder. */
static int use_seeded(void)
{
    struct qn_cache *cache = test_open_cache(list);
    char key[QN_KEY_SIZE];
    int wrong = !test_loads(cache, KEY("a"), 1)  ? 1
                : test_loads(cache, KEY("b"), 1) ? 2
                                                 : 0;

    if (!wrong && (!qn_cache_index(cache, 0, KEY("1"), key) ||
                   strcmp(key, KEY("a")) != 0))
        wrong = 3;
    if (!wrong && (qn_cache_writable(cache) != 1 ||
                   !qn_cache_store(cache, KEY("b"), &test_item) ||
                   !test_loads(cache, KEY("b"), 1)))
        wrong = 4;
    qn_cache_close(cache);
    return wrong;
}

/* A folder that an administrator has filled comes first. */
TEST(reads_a_seeded_folder_first)
{
    seed();
    test_shell("truncate -s 3 '%s'/entries/" KEY("b") "/object");
    test_shell("chmod 777 '%s'/.. && chmod -R a+rX,a-w '%s'");
    snprintf(list, sizeof list, "%s:%s/own", test_cache, test_folder);
    assert_int_equal(test_as_nobody(use_seeded), 0);
    /* nothing was repaired in it */
    assert_int_equal(test_count_files("damaged"), 0);
    assert_int_equal(test_count_files("entries"), 2);
    test_shell("chmod -R u+w '%s'");
}

/* An entry that its own user shut: it is set aside and made again. */
static int use_shut(void)
{
    struct qn_cache *cache = test_open_cache(list);
    int wrong = !qn_cache_store(cache, KEY("a"), &test_item);
    char path[800];

    snprintf(path, sizeof path, "%s/entries/%s", list, KEY("a"));
    if (chmod(path, 0))
        wrong = 2;
    if (!wrong && (test_loads(cache, KEY("a"), 1) ||
                   !qn_cache_store(cache, KEY("a"), &test_item) ||
                   !test_loads(cache, KEY("a"), 1)))
        wrong = 3;
    qn_cache_close(cache);
    return wrong;
}

TEST(reopens_what_is_shut)
{
    seed();
    test_shell("chmod 777 '%s'/..");
    snprintf(list, sizeof list, "%s/own", test_folder);
    assert_int_equal(test_as_nobody(use_shut), 0);
}

/* The folder goes while it is open. */
TEST(survives_removal)
{
    struct qn_cache *cache;
    struct qn_cache_gc gc;

    seed();
    cache = test_open_cache(test_cache);
    test_wipe();
    assert_false(test_loads(cache, KEY("a"), 1));
    assert_int_equal(qn_cache_lock(cache, KEY("a")), -1);
    assert_false(qn_cache_store(cache, KEY("a"), &test_item));
    qn_cache_index_store(cache, KEY("1"), KEY("a"));
    assert_int_equal(qn_cache_gc(cache, 0, 0, &gc), QUERN_OK);
    qn_cache_close(cache);
    seed();
}

/* ------------------------------------------------------ the clock, versions */

enum { YEAR = 365 * 24 * 3600 };

/* Files' clock is finer than time(), and another's on shared disks: an entry of
   the next seconds was just stored. */
TEST(keeps_new_entries)
{
    struct qn_cache *cache = test_open_cache(test_cache);
    struct utimbuf soon = {time(NULL) + 5, time(NULL) + 5};
    struct qn_cache_gc gc;
    char path[512];

    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    assert_true(qn_cache_store(cache, KEY("b"), &test_item));
    snprintf(path, sizeof path, "%s/entries/%s/sums", test_cache, KEY("b"));
    assert_int_equal(utime(path, &soon), 0);
    assert_int_equal(qn_cache_gc(cache, 0, 30, &gc), QUERN_OK);
    assert_int_equal(gc.removed, 1);
    assert_false(test_loads(cache, KEY("a"), 1));
    assert_true(test_loads(cache, KEY("b"), 1));
    qn_cache_close(cache);
}

/* Entries dated by a fast clock are older than those used since. */
TEST(survives_clocks)
{
    struct qn_cache *cache = test_open_cache(test_cache);
    struct qn_cache_gc gc;
    char path[512];
    struct stat st;
    struct utimbuf ahead = {time(NULL) + YEAR, time(NULL) + YEAR};

    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    assert_true(qn_cache_store(cache, KEY("b"), &test_item));
    assert_true(qn_cache_store(cache, KEY("c"), &test_item));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/entries/%s/sums", test_cache,
                 i ? KEY("a") : KEY("b"));
        assert_int_equal(utime(path, &ahead), 0);
    }
    assert_true(
        test_loads(cache, KEY("a"), 1)); /* used now: its time is set right */
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_mtime <= time(NULL) + 1); /* files' clock may be finer */
    assert_int_equal(qn_cache_gc(cache, 0, 60, &gc), QUERN_OK);
    assert_int_equal(gc.removed, 1);
    assert_false(test_loads(cache, KEY("b"), 1));
    assert_true(test_loads(cache, KEY("a"), 1));
    assert_true(test_loads(cache, KEY("c"), 1));
    /* long ago, and far in the future */
    for (int i = -1; i <= 1; i += 2) {
        test_system.clock = (long long)i * 20 * YEAR;
        assert_true(test_loads(cache, KEY("a"), 1));
        assert_int_equal(qn_cache_gc(cache, 0, 1000, &gc), QUERN_OK);
        assert_int_equal(gc.removed, 0);
        assert_true(qn_cache_store(cache, KEY("b"), &test_item));
    }
    test_system.clock = 0;
    qn_cache_close(cache);
    assert_int_equal(test_verify(), 0);
}

/* An entry and an index as a later version may write them. */
static void plant_later(void)
{
    char path[512], text[512], both[600], sum[QN_KEY_SIZE];
    FILE *file;

    snprintf(path, sizeof path, "%s/entries/%s", test_cache, KEY("d"));
    assert_int_equal(mkdir(path, 0700), 0);
    strcpy(text, "quern 3\nother things\n");
    qn_entry_sum(text, strlen(text), sum);
    strcat(path, "/sums");
    file = fopen(path, "w");
    fprintf(file, "%sself %s\n", text, sum);
    fclose(file);
    assert_int_equal(chmod(path, 0600), 0);
    strcpy(text, "3 other things");
    snprintf(both, sizeof both, "%s %s", KEY("3"), text);
    qn_entry_sum(both, strlen(both), sum);
    snprintf(path, sizeof path, "%s/index/%s", test_cache, KEY("3"));
    file = fopen(path, "w");
    fprintf(file, "%s %s\n", text, sum);
    fclose(file);
    assert_int_equal(chmod(path, 0600), 0);
}

/* It is neither used nor damaged nor removed, but for room. */
TEST(keeps_later_versions)
{
    struct qn_cache *cache;
    struct qn_cache_gc gc;
    char key[QN_KEY_SIZE];

    seed();
    plant_later();
    assert_int_equal(test_verify(), 0);
    cache = test_open_cache(test_cache);
    assert_false(qn_cache_index(cache, 0, KEY("3"), key));
    assert_int_equal(qn_cache_gc(cache, 0, 1000, &gc), QUERN_OK);
    assert_int_equal(gc.removed, 0);
    assert_int_equal(gc.kept, 3);
    assert_int_equal(test_count_files("index"), 3);
    test_shell("printf x >>'%s'/index/" KEY("3"));
    test_shell("printf x >>'%s'/entries/" KEY("d") "/sums");
    assert_int_equal(test_verify(), 2);
    assert_int_equal(qn_cache_gc(cache, 0, 1000, &gc), QUERN_OK);
    assert_int_equal(gc.removed, 1);
    assert_int_equal(test_verify(), 0);
    qn_cache_close(cache);
}

/* A child that was forked with the lock in hand does not keep it. */
TEST(forks_with_a_lock)
{
    struct qn_cache *cache = test_open_cache(test_cache);
    int lock = qn_cache_lock(cache, KEY("a")), again;
    pid_t child;

    assert_true(lock >= 0);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(qn_cache_try_lock(cache, KEY("a")), QN_LOCK_BUSY);
    qn_cache_unlock(lock);
    again = qn_cache_try_lock(cache, KEY("a"));
    assert_true(again >= 0);
    qn_cache_unlock(again);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    qn_cache_close(cache);
}
