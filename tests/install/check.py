#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make install` serves CMake, pkg-config, man and shells, and `make uninstall` leaves nothing.
tests/cli/install_test.c links more programs.

    python3 tests/install/check.py       as tests/run.sh runs it
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAYS = "112 of 112 results are equal to the sums"


class Skip(Exception):
    """The reason is its text."""


def run(*command, **more):
    got = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300,
                         cwd=more.pop("cwd", ROOT), env={**os.environ, **more})
    assert got.returncode == 0, f"{command}: {got.stdout}{got.stderr}"
    return got.stdout + got.stderr


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def find(pattern, text):
    return re.findall(pattern, text, flags=re.MULTILINE)


def need(program):
    if not shutil.which(program):
        raise Skip(f"needs {program}")


def place(verb, folder):
    run(".ci/place", verb, DESTDIR=folder, PREFIX="/opt/my")


OTHER_VERSION = """cmake_minimum_required(VERSION 3.13)
project(other C)
find_package(quern 0.3)
if(quern_FOUND)
  message(FATAL_ERROR "found, though it is of another version")
endif()
"""


def check_cmake(prefix):
    """find_package finds the version that it asks for, and no other one."""
    need("cmake")
    with tempfile.TemporaryDirectory() as build:
        given = f"-DCMAKE_PREFIX_PATH={prefix}"
        run("cmake", "-S", os.path.join(ROOT, "tests/install"), "-B", build, given)
        run("cmake", "--build", build)
        for kind in ("quern", "static"):
            assert SAYS in run(f"{build}/product_{kind}"), f"product_{kind}"
        with open(f"{build}/CMakeLists.txt", "w", encoding="utf-8") as file:
            file.write(OTHER_VERSION)
        run("cmake", "-S", build, "-B", f"{build}/other", given)


def check_pkg_config(prefix):
    need("pkg-config")
    with tempfile.TemporaryDirectory() as build:
        found = {"PKG_CONFIG_LIBDIR": f"{prefix}/lib/pkgconfig",
                 "PKG_CONFIG_SYSROOT_DIR": prefix[:-len("/opt/my")]}
        flags = run("pkg-config", "--cflags", "--libs", "quern", **found).split()
        run("cc", "examples/c_product.c", *flags, "-o", f"{build}/product")
        assert SAYS in run(f"{build}/product", LD_LIBRARY_PATH=f"{prefix}/lib"), "product"


def check_manual(prefix):
    """Pages of the program, of each command, and of the library, without a warning."""
    pages = glob.glob(f"{prefix}/share/man/man?/*")
    commands = find(r"^  ([a-z]+) +[A-Z]", run(f"{prefix}/bin/quern", "help"))
    for name in ["quern.1", "libquern.3"] + [f"quern-{name}.1" for name in commands]:
        assert [page for page in pages if page.endswith(f"/{name}")], f"there is no page {name}"
    page = read(f"{prefix}/share/man/man3/libquern.3")
    for name in find(r"QUERN_API[^;]*?\b(quern_\w+)\(", read(f"{prefix}/include/quern.h")):
        assert f"{name}(" in page or name == "quern_open_abi", f"libquern.3 lacks {name}"
    need("man")
    for page in pages:
        said = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page)
        assert "warning" not in said, f"{page}: {said[-500:]}"
        text = re.sub(".\b", "", run("man", "-E", "ascii", "-l", page, MANPAGER="cat"))
        for section in ("NAME", "SYNOPSIS", "SEE ALSO"):
            assert find(f"^{section}$", text), f"{page} has no section {section}"


BASH = """
source "$1"
compopt() { :; }
try() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _quern; echo "${COMPREPLY[*]}"; }
try quern ru
try quern run --backend = h
try quern run fprop bf16 dequantize = f
try quern tune --bu
"""


def check_completion(prefix):
    share = f"{prefix}/share"
    got = run("bash", "-c", BASH, "bash", f"{share}/bash-completion/completions/quern")
    assert got.split("\n")[:4] == ["run", "host", "fp8 f16", "--budget="], got
    missing = [shell for shell in ("zsh", "fish") if not shutil.which(shell)]
    if "zsh" not in missing:
        run("zsh", "-n", f"{share}/zsh/site-functions/_quern")
    if "fish" not in missing:
        got = run("fish", "-c", f"source {share}/fish/vendor_completions.d/quern.fish; "
                  "complete -C 'quern ru'; complete -C 'quern run --back'")
        assert find(r"^run\tRun a", got) and find(r"^--backend\t", got), got
    if missing:
        raise Skip(f"needs {' and '.join(missing)} for their completion; bash's passed")


def check_environment(prefix):
    """The variables of --help, of the library and of docs/environment.md are the same."""
    told = set(find(r"^  (QUERN_\w+)", run(f"{prefix}/bin/quern", "--help")))
    page = set(find(r"^\| `(QUERN_\w+)`", read(f"{ROOT}/docs/environment.md")))
    code = "".join(map(read, glob.glob(f"{ROOT}/runtime/**/*.[ch]", recursive=True)))
    used = set(find(r'(?:getenv\(|X\(\w+, +)"(QUERN_\w+)"', code))
    assert told == page == used, f"--help has {told}, the page {page}, the code {used}"


def check_hook(_):
    """`make hooks` in a clone: git takes no other messages than those of the conventions."""
    need("git")
    good = "x" * 71
    messages = {f"X{good}": True, f"X{good}x": False, "Add a\n\nbody": True, "Add a\nbody": False,
                "add a": False, "Add a.": False, "Merge a.": True, f"Ä{good}": True}
    with tempfile.TemporaryDirectory() as clone:
        run("git", "init", "-q", clone)
        os.mkdir(f"{clone}/.ci")
        for name in ("Makefile", ".ci/commit-msg"):
            shutil.copy(f"{ROOT}/{name}", f"{clone}/{name}")
        run("make", "--no-print-directory", "hooks", cwd=clone, MAKEFLAGS="")
        run("make", "--no-print-directory", "hooks", cwd=clone, MAKEFLAGS="")
        for message, taken in messages.items():
            got = subprocess.run(
                ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q",
                 "--allow-empty", "-m", message], cwd=clone, capture_output=True, text=True,
                check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
            assert (got.returncode == 0) == taken, f"'{message}': {got.stderr}"


CHECKS = (check_hook, check_cmake, check_pkg_config, check_manual, check_completion,
          check_environment)


def attempt(name, check, *arguments):
    """Run a check and print its line of TAP; 1 if it failed."""
    try:
        check(*arguments)
        print(f"ok {name}")
        return 0
    except Skip as reason:
        print(f"skip: {reason}\nok {name} # SKIP")
        return 0
    except AssertionError as error:
        print(f"# {error}")
    except Exception:  # of the check itself
        traceback.print_exc()
    print(f"not ok {name}")
    return 1


def main():
    print(f"1..{len(CHECKS) + 1}")
    with tempfile.TemporaryDirectory() as folder:
        place("install", folder)
        failed = sum(attempt(f"{number} - {check.__name__[6:]}", check, f"{folder}/opt/my")
                     for number, check in enumerate(CHECKS, 1))

        def check_nothing_left():
            place("uninstall", folder)
            assert not os.listdir(folder), f"left: {os.listdir(folder)}"
        failed += attempt(f"{len(CHECKS) + 1} - nothing left", check_nothing_left)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
