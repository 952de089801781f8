/* SPDX-License-Identifier: Apache-2.0 */
/* test_cache.c: entries on disk, damaged, planted, read-only, full, swept. */
#define _GNU_SOURCE
#include "test.h"

#include "entries.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <utime.h>

/* A path in the cache, in a static buffer. */
static const char *at(const char *rest)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", test_cache, rest);
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

TEST(keeps_and_finds)
{
    struct qn_cache *cache = test_open_cache(test_cache);
    struct stat st;
    char key[QN_KEY_SIZE];

    assert_int_equal(qn_cache_writable(cache), 0);
    assert_string_equal(qn_cache_folder(cache, 0), test_cache);
    assert_null(qn_cache_folder(cache, 1));
    assert_false(test_loads(cache, KEY("a"), 0));
    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    assert_true(test_loads(cache, KEY("a"), 0));
    assert_false(test_loads(cache, KEY("b"), 0));
    /* once more is as good */
    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    assert_false(qn_cache_index(cache, 0, KEY("1"), key));
    qn_cache_index_store(cache, KEY("1"), KEY("a"));
    assert_true(qn_cache_index(cache, 0, KEY("1"), key));
    assert_string_equal(key, KEY("a"));
    qn_cache_close(cache);
    assert_int_equal(stat(test_cache, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(at("entries/" KEY("a")), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(at("entries/" KEY("a") "/object"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_string_equal(test_messages, "");
}

static void truncate_object(void)
{
    assert_int_equal(truncate(at("entries/" KEY("a") "/object"), 9), 0);
}

static void extend_object(void)
{
    assert_int_equal(truncate(at("entries/" KEY("a") "/object"), 11), 0);
}

static void flip_byte(void)
{
    write_file(at("entries/" KEY("a") "/object"), "the 0bject");
}

static void remove_object(void)
{
    assert_int_equal(unlink(at("entries/" KEY("a") "/object")), 0);
}

static void remove_sums(void)
{
    assert_int_equal(unlink(at("entries/" KEY("a") "/sums")), 0);
}

static void truncate_sums(void)
{
    assert_int_equal(truncate(at("entries/" KEY("a") "/sums"), 200), 0);
}

static void cut_sums_end(void)
{
    struct stat st;

    assert_int_equal(stat(at("entries/" KEY("a") "/sums"), &st), 0);
    assert_int_equal(truncate(at("entries/" KEY("a") "/sums"), st.st_size - 1),
                     0);
}

static void empty_sums(void)
{
    assert_int_equal(truncate(at("entries/" KEY("a") "/sums"), 0), 0);
}

static void link_object(void)
{
    char path[512];

    snprintf(path, sizeof path, "%s/planted", test_folder);
    write_file(path, "the object");
    remove_object();
    assert_int_equal(symlink(path, at("entries/" KEY("a") "/object")), 0);
}

static void link_entry(void)
{
    char path[512];

    snprintf(path, sizeof path, "%s/planted", test_folder);
    assert_int_equal(rename(at("entries/" KEY("a")), path), 0);
    assert_int_equal(symlink(path, at("entries/" KEY("a"))), 0);
}

static void fifo_object(void)
{
    remove_object();
    assert_int_equal(mkfifo(at("entries/" KEY("a") "/object"), 0600), 0);
}

static void open_to_others(void)
{
    assert_int_equal(chmod(at("entries/" KEY("a") "/object"), 0666), 0);
}

static void folder_open_to_others(void)
{
    assert_int_equal(chmod(at("entries/" KEY("a")), 0777), 0);
}

static void huge_object(void)
{
    assert_int_equal(
        truncate(at("entries/" KEY("a") "/object"), (off_t)1 << 40), 0);
}

TEST(repairs_damage)
{
    static void (*const damages[])(void) = {
        truncate_object, extend_object,        flip_byte,    remove_object,
        remove_sums,     truncate_sums,        cut_sums_end, empty_sums,
        link_object,     link_entry,           fifo_object,  open_to_others,
        huge_object,     folder_open_to_others};
    char command[600];

    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        struct qn_cache *cache = test_open_cache(test_cache);

        test_messages[0] = 0;
        assert_true(qn_cache_store(cache, KEY("a"), &test_item));
        damages[i]();
        assert_false(test_loads(cache, KEY("a"), 0));
        assert_string_equal(test_messages, "");
        assert_false(test_loads(cache, KEY("a"), 1));
        assert_non_null(strstr(test_messages, "is damaged; it was set aside"));
        assert_true(qn_cache_store(cache, KEY("a"), &test_item));
        assert_true(test_loads(cache, KEY("a"), 0));
        qn_cache_close(cache);
        snprintf(command, sizeof command, "rm -rf '%s' '%s/planted'",
                 test_cache, test_folder);
        assert_int_equal(system(command), 0);
    }
}

/* All files of a cache must be the caller's, from the folder down. */
TEST(trusts_only_the_user)
{
    static const char *const paths[] = {"", "entries", "index"};
    struct qn_cache *cache = test_open_cache(test_cache);
    char key[QN_KEY_SIZE];

    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    qn_cache_index_store(cache, KEY("1"), KEY("a"));
    qn_cache_close(cache);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_int_equal(chmod(at(paths[i]), 0777), 0);
        cache = test_open_cache(test_cache);
        assert_int_equal(qn_cache_writable(cache), -1);
        assert_false(test_loads(cache, KEY("a"), 0) &&
                     qn_cache_index(cache, 0, KEY("1"), key));
        assert_false(qn_cache_store(cache, KEY("b"), &test_item));
        qn_cache_close(cache);
        assert_int_equal(chmod(at(paths[i]), 0700), 0);
    }
    assert_non_null(strstr(test_messages, "others may write to it"));
    assert_int_equal(chmod(at("index/" KEY("1")), 0622), 0);
    cache = test_open_cache(test_cache);
    assert_true(test_loads(cache, KEY("a"), 0));
    assert_false(qn_cache_index(cache, 0, KEY("1"), key));
    qn_cache_close(cache);
}

TEST(follows_its_own_link)
{
    struct qn_cache *cache;
    char real[512];
    struct stat st;

    snprintf(real, sizeof real, "%s/real", test_folder);
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(symlink(real, test_cache), 0);
    if (!geteuid()) { /* another user's link */
        assert_int_equal(lchown(test_cache, 1, 1), 0);
        cache = test_open_cache(test_cache);
        assert_int_equal(qn_cache_writable(cache), -1);
        assert_false(qn_cache_store(cache, KEY("a"), &test_item));
        qn_cache_close(cache);
        assert_non_null(strstr(test_messages, "no folder, or a symbolic link"));
        assert_int_equal(lchown(test_cache, 0, 0), 0);
    }
    cache = test_open_cache(test_cache); /* ours */
    assert_int_equal(qn_cache_writable(cache), 0);
    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    qn_cache_close(cache);
    assert_int_equal(chmod(real, 0777), 0); /* to what others can change */
    cache = test_open_cache(test_cache);
    assert_int_equal(qn_cache_writable(cache), -1);
    qn_cache_close(cache);
    assert_int_equal(chmod(real, 0700), 0);
    test_shell("rm -r '%s'/*");
    assert_int_equal(unlink(test_cache), 0);
    /* a part may be no link at all */
    assert_int_equal(mkdir(test_cache, 0700), 0);
    assert_int_equal(symlink(real, at("entries")), 0);
    cache = test_open_cache(test_cache);
    assert_false(qn_cache_store(cache, KEY("a"), &test_item));
    qn_cache_close(cache);
    strcat(real, "/" KEY("a"));
    assert_int_equal(stat(real, &st), -1);
}

/* A planted index leads nowhere, or to an entry that is verified anyway. */
TEST(distrusts_indexes)
{
    static const char *const texts[] = {"",
                                        "x",
                                        "../../../etc/passwd\n",
                                        KEY("g") "\n",
                                        KEY("A") "\n",
                                        KEY("a") "0\n"};
    struct qn_cache *cache = test_open_cache(test_cache);
    char key[QN_KEY_SIZE];

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_file(at("index/" KEY("1")), texts[i]);
        chmod(at("index/" KEY("1")), 0600);
        assert_false(qn_cache_index(cache, 0, KEY("1"), key));
    }
    qn_cache_close(cache);
}

/* The folder is another's (root's) or lacks the right to write. */
static int use_read_only(void)
{
    struct qn_cache *cache = test_open_cache(test_cache);
    int found = test_loads(cache, KEY("a"), 1);
    int kept = qn_cache_store(cache, KEY("b"), &test_item) ||
               qn_cache_store(cache, KEY("c"), &test_item);
    char *said = strstr(test_messages, "no folder of the cache may be written");
    int once = said && !strstr(said + 1, "no folder of");

    qn_cache_index_store(cache, KEY("1"), KEY("a"));
    if (qn_cache_lock(cache, KEY("a")) != -1)
        kept = 1;
    qn_cache_close(cache);
    return !found ? 1 : kept ? 2 : !once ? 3 : 0;
}

TEST(reads_what_it_cannot_write)
{
    static const char *const parts[] = {"",     "entries", "index",
                                        "lock", "new",     "damaged"};
    struct qn_cache *cache = test_open_cache(test_cache);

    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    qn_cache_close(cache);
    chmod(test_folder, 0755);
    chmod(at("entries/" KEY("a")), 0755);
    chmod(at("entries/" KEY("a") "/object"), 0644);
    chmod(at("entries/" KEY("a") "/sums"), 0644);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        chmod(at(parts[i]), 0555);
    assert_int_equal(test_as_nobody(use_read_only), 0);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        chmod(at(parts[i]), 0700);
}

/* The first folder that may be written takes what is new. */
TEST(reads_all_folders)
{
    char second[300], list[700];
    struct qn_cache *cache;

    snprintf(second, sizeof second, "%s/second/deep", test_folder);
    cache = test_open_cache(second);
    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    qn_cache_close(cache);
    snprintf(list, sizeof list, "/proc/nothing:%s::%s", test_cache, second);
    cache = test_open_cache(list);
    assert_string_equal(qn_cache_folder(cache, qn_cache_writable(cache)),
                        test_cache);
    assert_true(test_loads(cache, KEY("a"), 0));
    assert_true(qn_cache_store(cache, KEY("b"), &test_item));
    qn_cache_close(cache);
    cache = test_open_cache(test_cache);
    assert_true(test_loads(cache, KEY("b"), 0));
    assert_false(test_loads(cache, KEY("a"), 0));
    qn_cache_close(cache);
    cache = test_open_cache("");
    assert_int_equal(qn_cache_writable(cache), -1);
    assert_false(qn_cache_store(cache, KEY("b"), &test_item));
    assert_int_equal(qn_cache_lock(cache, KEY("b")), -1);
    assert_string_equal(test_messages, "");
    qn_cache_close(cache);
}

/* Files may have a few bytes: no signal may end the process. */
static int use_full_disk(void)
{
    const struct rlimit little = {20, 20};
    struct qn_cache *cache = test_open_cache(test_cache);
    int kept;
    char *said;

    setrlimit(RLIMIT_FSIZE, &little);
    kept = qn_cache_store(cache, KEY("a"), &test_item) ||
           qn_cache_store(cache, KEY("b"), &test_item);
    qn_cache_close(cache);
    said = strstr(test_messages, "keeps nothing more (File too large)");
    return kept ? 1 : !said ? 2 : strstr(said + 1, "keeps nothing") ? 3 : 0;
}

TEST(survives_a_full_disk)
{
    struct qn_cache *cache;
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(use_full_disk());
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(test_count_files("entries"), 0);
    assert_int_equal(test_count_files("new"), 0);
    cache = test_open_cache(test_cache);
    assert_false(test_loads(cache, KEY("a"), 0));
    qn_cache_close(cache);
}

/* --------------------------------------------------------------- gc, each */

static int collect(void *user, const struct qn_cache_entry *entry)
{
    char *text = user;

    sprintf(text + strlen(text), "%c %s %s %d %d;", entry->key[0],
            entry->kernel, entry->arch, (int)entry->bytes, entry->damaged);
    return 0;
}

TEST(lists_entries)
{
    struct qn_cache *cache = test_open_cache(test_cache);
    char text[500] = "";

    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    assert_int_equal(qn_cache_each(cache, 1, collect, text), 0);
    assert_string_equal(text, "a k_test sm_90a 29 0;");
    write_file(at("entries/" KEY("a") "/log"), "the 1og\n");
    text[0] = 0;
    qn_cache_each(cache, 0, collect, text);
    assert_string_equal(text, "a k_test sm_90a 29 0;");
    text[0] = 0;
    qn_cache_each(cache, 1, collect, text);
    assert_string_equal(text, "a   0 1;");
    mkdir(at("entries/README"), 0700);
    text[0] = 0;
    qn_cache_each(cache, 1, collect, text);
    assert_string_equal(text, "a   0 1;");
    qn_cache_close(cache);
}

static void set_age(const char *path, int seconds)
{
    struct utimbuf times = {time(NULL) - seconds, time(NULL) - seconds};

    assert_int_equal(utime(path, &times), 0);
}

TEST(removes_what_was_not_used)
{
    struct qn_cache *cache = test_open_cache(test_cache);
    struct qn_cache_gc gc;
    char key[QN_KEY_SIZE];

    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    assert_true(qn_cache_store(cache, KEY("b"), &test_item));
    assert_true(qn_cache_store(cache, KEY("c"), &test_item));
    qn_cache_index_store(cache, KEY("1"), KEY("a"));
    qn_cache_index_store(cache, KEY("2"), KEY("b"));
    set_age(at("entries/" KEY("a") "/sums"), 20000);
    set_age(at("entries/" KEY("b") "/sums"), 30000);
    assert_true(test_loads(cache, KEY("b"), 0)); /* used now */
    assert_int_equal(qn_cache_gc(cache, 0, 1000, &gc), QUERN_OK);
    assert_int_equal(gc.removed, 0);
    assert_int_equal(gc.kept, 3);
    assert_int_equal(gc.kept_bytes, 87);
    assert_int_equal(qn_cache_gc(cache, 0, 60, &gc), QUERN_OK);
    assert_int_equal(gc.removed, 1);
    assert_int_equal(gc.removed_bytes, 29);
    assert_int_equal(gc.kept_bytes, 58);
    assert_false(test_loads(cache, KEY("a"), 0));
    assert_true(test_loads(cache, KEY("b"), 0));
    assert_false(qn_cache_index(cache, 0, KEY("1"), key));
    assert_true(qn_cache_index(cache, 0, KEY("2"), key));
    assert_int_equal(qn_cache_gc(cache, 0, 0, &gc), QUERN_OK);
    assert_int_equal(gc.kept, 0);
    assert_int_equal(test_count_files("entries"), 0);
    assert_int_equal(test_count_files("new"), 0);
    assert_int_equal(test_count_files("index"), 0);
    assert_int_equal(test_count_files("lock"), 0);
    qn_cache_close(cache);
}

TEST(sweeps_what_is_left_over)
{
    struct qn_cache *cache = test_open_cache(test_cache);
    struct qn_cache_gc gc;
    int lock;

    assert_true(qn_cache_store(cache, KEY("a"), &test_item));
    assert_true(qn_cache_store(cache, KEY("b"), &test_item));
    flip_byte(); /* found only by verify */
    remove_sums();
    mkdir(at("new/killed"), 0700);
    write_file(at("new/killed/source"), "half");
    set_age(at("new/killed"), 7200);
    mkdir(at("new/busy"), 0700);
    write_file(at("lock/" KEY("c")), ""); /* of an entry that was never kept */
    set_age(at("lock/" KEY("c")), 7200);
    /* the holder of the lock is not disturbed */
    lock = qn_cache_lock(cache, KEY("b"));
    assert_true(lock >= 0);
    assert_int_equal(qn_cache_gc(cache, 0, 0, &gc), QUERN_OK);
    assert_int_equal(gc.removed, 1);
    assert_int_equal(gc.kept, 1);
    assert_int_equal(test_count_files("new"), 1);
    assert_int_equal(test_count_files("lock"), 1);
    qn_cache_unlock(lock);
    assert_true(test_loads(cache, KEY("b"), 0));
    qn_cache_close(cache);
}

/* gc may remove the file of a lock that another waits for: the one that
   waits must not hold a removed file. */
TEST(locks_survive_removal)
{
    struct qn_cache *cache = test_open_cache(test_cache);
    int lock = qn_cache_lock(cache, KEY("a"));
    pid_t child;
    int status;

    assert_true(lock >= 0);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        struct stat st;
        int mine;

        close(lock); /* or it would stay locked */
        mine = qn_cache_lock(cache, KEY("a"));
        _exit(mine >= 0 && stat(at("lock/" KEY("a")), &st) == 0 ? 0 : 1);
    }
    usleep(100000);
    assert_int_equal(unlink(at("lock/" KEY("a"))), 0);
    qn_cache_unlock(lock);
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    qn_cache_close(cache);
}
