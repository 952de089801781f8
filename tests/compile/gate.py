#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The compile gate over every kernel, in as many processes as there are cores.

    tests/compile/gate.py [--jobs N] [--shares N] [--keep FOLDER] [--arch LIST] [--commit TEXT] FILE

Each process is build/bin/test_compile with a share of the kernels (QUERN_SHARE); QUERN_COMPILE_EVERY=N takes every
N-th of the unshipped ones, without it all are compiled. Their rows become one FILE as test_compile writes
it, ordered by kernel, with the commit added. With --arch, as sm_100f,sm_120a, only the kernels for these are compiled.
There are as many shares as jobs, or --shares. A share whose kernels are all right stays in FOLDER: a gate that was
stopped goes on from there, until the generator is another one.
Prints the count, the sum, the slowest ten and every kernel that breaks a rule; status 1 if one does, or if a process fails or leaves no rows. Needs libnvrtc; plain Python is enough.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import tempfile

BUILD = os.path.join(os.path.dirname(__file__), "../../build")
GATE = f"{BUILD}/bin/test_compile"
KERNEL, REGISTERS, _, SECONDS, BROKEN = range(5)  # of a row


def place(shares, arch):
    """The begin of the names of files that hold rows: the kernels' and their choice's."""
    choice = f"{os.environ.get('QUERN_COMPILE_EVERY', '1')} {arch} {shares}"
    with open(f"{BUILD}/lib/libquern_gen.so", "rb") as generator:
        return hashlib.sha256(generator.read() + choice.encode()).hexdigest()[:16]


def compile_share(share, shares, begin, arch):
    """The status and the table, or None, of one share, whose words go to stderr if it fails."""
    path, log = f"{begin}-{share}.json", f"{begin}-{share}.log"
    is_kept, status, table = os.path.exists(path), 0, None
    found = path if is_kept else path + ".part"
    if not is_kept:
        only = {"QUERN_COMPILE_ARCH": arch} if arch else {}
        environment = {"QUERN_COMPILE_EVERY": "1", **os.environ, "QUERN_SHARE": f"{share}/{shares}", **only,
                       "QUERN_COMPILE_JSON": found}
        with open(log, "w") as words:
            status = subprocess.run([GATE], stdout=words, stderr=words, env=environment).returncode
    try:
        with open(found) as file:
            table = json.load(file)
        if not status and not is_kept:
            os.replace(found, path)
    except (OSError, ValueError) as error:
        status = status or 1
        print(f"share {share}: no table: {error}", file=sys.stderr)
    if status:
        with open(log) as file:
            lines = [line for line in file.read().splitlines() if not line.startswith("  ")]  # of kernels that are right
        print(f"share {share}: status {status}", *lines[-40:], sep="\n    ", file=sys.stderr)
    return status, table


def merge(tables, commit):
    """One table; its head is the same in all."""
    head = {name: tables[0][name] for name in ("compiler", "options", "columns")}
    rows = sorted((row for table in tables for row in table["rows"]), key=lambda row: row[KERNEL])
    return {"commit": commit, **head, "rows": rows, "kernels": len(rows),
            "broken": sum(row[BROKEN] is not None for row in rows),
            "seconds": round(sum(row[SECONDS] for row in rows), 1),
            "slowest": max((row[SECONDS] for row in rows), default=0),
            "most_registers": max((row[REGISTERS] for row in rows), default=0)}


def write(table, path):
    """As tests/compile/table.c lays it out: a line for each row."""
    head = "".join(f'"{name}": {json.dumps(table[name])},\n' for name in ("commit", "compiler", "options", "columns"))
    rows = ",".join(f"\n{json.dumps(row[:SECONDS])[:-1]}, {row[SECONDS]:.2f}, {json.dumps(row[BROKEN])}]"
                    for row in table["rows"])
    sums = ", ".join(f'"{name}": {json.dumps(table[name])}'
                     for name in ("kernels", "broken", "seconds", "slowest", "most_registers"))
    with open(path, "w") as file:
        file.write(f'{{\n{head}"rows": [{rows}\n],\n{sums}\n}}\n')


def head_commit():
    """The working tree's commit, "" without one."""
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=os.path.dirname(os.path.abspath(__file__)),
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return said.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shares", type=int)
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--arch", default="")
    parser.add_argument("--commit", default=None)
    args = parser.parse_args()
    shares = args.jobs if args.shares is None else args.shares
    for name, count in (("jobs", args.jobs), ("shares", shares)):
        if count < 1:
            parser.error(f"--{name} is {count}; it must be at least 1")
    with tempfile.TemporaryDirectory() as own, concurrent.futures.ThreadPoolExecutor(args.jobs) as threads:
        folder = args.keep or own
        os.makedirs(folder, exist_ok=True)
        begin = f"{folder}/{place(shares, args.arch)}"
        done = list(threads.map(lambda share: compile_share(share, shares, begin, args.arch), range(shares)))
    tables = [table for _, table in done if table]
    failed = sum(status != 0 for status, _ in done)
    if not tables:
        return 1
    table = merge(tables, head_commit() if args.commit is None else args.commit)
    write(table, args.file)
    for row in sorted(table["rows"], key=lambda row: -row[SECONDS])[:10]:
        print(f"  {row[SECONDS]:6.2f} s  {row[REGISTERS]:3d} registers  {row[KERNEL]}")
    for row in table["rows"]:
        if row[BROKEN] is not None:
            print(f"{row[KERNEL]}: {row[BROKEN]}")
    print(f"{table['kernels']} kernels compiled in {table['seconds']} s of one core, {table['broken']} broken")
    return 1 if failed or table["broken"] or not table["rows"] else 0


if __name__ == "__main__":
    sys.exit(main())
