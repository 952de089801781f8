#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU suite in several processes at once, since most of its time is the host's.

    tests/gpu/run.py [--json FILE] [--quick] [--random N] [--jobs N] [--seconds N] [--cache DIR] [RECIPE ...]

A process for each recipe and op, one for cuBLASLt, two for casts and one for MLPs, which have a third of the cores
each. Each has its own device memory and its own random problems (N in all of them together). With --json the
results of all are written with the fields of gpu_suite's. Programs that run longer than --seconds are stopped and
count as failed; results of others are kept. Casts and MLPs are taken up for four fifths of it: those that are left
count as skipped.
Prints what failed and the count; status 0 if all passed. Needs a GPU and libnvrtc; plain Python is enough.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time

SUITE = os.path.join(os.path.dirname(__file__), "../../build/bin/gpu_suite")
SPECS = os.path.join(os.path.dirname(__file__), "specs")
STRANGE = "casts_strange"  # those of the recipes in SPECS
MANY = ("casts", "mlp", "moe", STRANGE)  # lines that need more threads than others, and a part of which will do
NO_END = 1e6  # seconds
ALONE = "tune"  # one that measures, when all others have ended


def listed(common):
    """{"RECIPE_OP": kernels} of all that run here, and the families without products."""
    done = subprocess.run(common + ["--list"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    *names, apart = done.stdout.splitlines()
    found = (re.match(r"quern_(\w+?)_(fprop|dgrad|wgrad)_", name) for name in names)
    return collections.Counter(f"{m[1]}_{m[2]}" for m in found), apart.split()[1:]


def commands(args, folder):
    """(name, command) of each process, the longest first. Recipes in SPECS have only fprop and
    dgrad: their wgrad is bf16's or another's."""
    more = [f"--commit={args.commit}"] + ["--quick"] * args.quick + [f"--cache={args.cache}"] * bool(args.cache)
    common = [args.suite, f"--threads={args.threads}"] + more
    own, apart = listed(common)
    mixed, _ = listed(common + [f"--specs={SPECS}"])
    mixed = {name: mixed[name] for name in mixed if name not in own and not name.endswith("_wgrad")}
    products = {name: count for name, count in {**own, **mixed}.items()
                if not args.recipes or name.rsplit("_", 1)[0] in args.recipes}
    share = -(-args.random // max(1, len(products))) * (10 if args.quick else 1)

    def family(name):
        command = common + [f"--family={name}", f"--json={folder}/{name}.json"]
        if name == STRANGE:
            command[len(common):] = ["--family=casts", f"--specs={SPECS}", f"--json={folder}/{name}.json"]
        if name in MANY:
            command[1] = f"--threads={max(args.threads, (os.cpu_count() or 2) // 3)}"
            command += [f"--seconds={int(0.8 * args.seconds)}"] * (args.seconds < NO_END)
        return name, command

    if not args.recipes:
        yield from (family(name) for name in apart + [STRANGE] if name != ALONE)
    for seed, name in enumerate(sorted(products, key=lambda name: -products[name])):
        yield name, common + [f"--only=quern_{name}_*", f"--random={share}", f"--seed={args.seed + seed}",
                              f"--json={folder}/{name}.json"] + [f"--specs={SPECS}"] * (name in mixed)
    if not args.recipes:
        yield family(ALONE)


def run(name, command, deadline, folder):
    """The failure of the process itself, or None. Its output is in folder/NAME.log."""
    environment = dict(os.environ, QUERN_THREADS=command[1].split("=")[1])
    with open(f"{folder}/{name}.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            status = process.wait(max(1, deadline - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return "stopped: its time was over"
    return None if status in (0, 1) else f"ended with status {status}"


def merge(results):
    """Sums of families over all processes, in the order in which they ran."""
    whole = dict(results[0], kernels=[], ran=set(), families={}, failures=[], finished=True)
    for one in results:
        whole["kernels"] += one["kernels"]
        whole["ran"].update(one["ran"])
        whole["failures"] += one["failures"]
        whole["finished"] &= one["finished"]
        for family in one["families"]:
            into = whole["families"].setdefault(family["name"], dict(family, passed=0, failed=0, skipped=0,
                                                                     refused=0, seconds=0))
            for key in ("passed", "failed", "skipped", "refused", "seconds"):
                into[key] += family[key]
    whole["families"] = list(whole["families"].values())
    whole["ran"] = sorted(whole["ran"])
    return whole


def write(whole, file):
    """As JSON: a line for each family and failure, and for the kernels of a recipe and op."""
    ops = itertools.groupby(whole["kernels"], lambda name: re.match(r".*?_(fprop|dgrad|wgrad)_|", name)[0])
    kernels = (", ".join(map(json.dumps, names)) for _, names in ops)
    ran = (", ".join(map(json.dumps, names)) for _, names in
           itertools.groupby(whole["ran"], lambda name: name.split("_")[1]))
    lists = {"kernels": kernels, "ran": ran, **{key: map(json.dumps, whole[key]) for key in ("families", "failures")}}
    rows = (f"[\n{text}\n]" if text else "[]" for text in map(",\n".join, lists.values()))
    fields = {**{key: json.dumps(value) for key, value in whole.items()}, **dict(zip(lists, rows))}
    file.write("{\n" + ",\n".join(f"{json.dumps(key)}: {text}" for key, text in fields.items()) + "\n}\n")


def report(whole, processes_failed):
    """Print it all; how much failed."""
    for family in whole["families"]:
        print("{name:10} {passed:6} passed {failed:4} failed {refused:5} refused  {what}".format(**family))
    for failure in whole["failures"]:
        print("# {family}: {text}".format(**failure))
    passed, failed, skipped = (sum(f[key] for f in whole["families"]) for key in ("passed", "failed", "skipped"))
    failed += processes_failed
    print("# {gpu}, driver {driver}, {count} kernels, {seconds:.0f} s".format(count=len(whole["kernels"]), **whole))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = os.cpu_count() or 2
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="these recipes' products alone (all)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="a part of each family, few replays of each graph")
    parser.add_argument("--random", type=int, default=3000, help="random problems in all (3000)")
    parser.add_argument("--jobs", type=int, default=max(1, cores // 2), help="processes at once (half of the cores)")
    parser.add_argument("--threads", type=int, default=2, help="of each process (2)")
    parser.add_argument("--cache", metavar="DIR", help="kernels that are compiled, for all (none)")
    parser.add_argument("--seconds", type=float, default=NO_END, help="stop what has not ended by then")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commit", default=os.environ.get("QUERN_COMMIT", ""))
    parser.add_argument("--suite", default=SUITE, help="the program gpu_suite")
    args = parser.parse_args()
    began = time.time()

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs, results, wrong = {}, [], []
        for name, command in commands(args, folder):
            if name == ALONE:
                concurrent.futures.wait(jobs.values())
            jobs[name] = pool.submit(run, name, command, began + args.seconds, folder)
        for name, job in jobs.items():
            problem = job.result()
            if os.path.exists(f"{folder}/{name}.json"):
                results.append(json.load(open(f"{folder}/{name}.json")))
            elif not problem:
                problem = "left no results"
            if problem:
                tail = open(f"{folder}/{name}.log").read().strip().splitlines()[-1:]
                wrong.append({"family": name, "text": " ".join([problem] + tail)})
        if not results:
            for failure in wrong:
                print("# {family}: {text}".format(**failure))
            sys.exit("no process left any results")
        whole = merge(results)
    whole.update(seconds=time.time() - began, quick=args.quick, seed=args.seed)
    whole["failures"] += wrong
    if args.json:
        with open(args.json, "w") as file:
            write(whole, file)
    sys.exit(1 if report(whole, len(wrong)) else 0)


if __name__ == "__main__":
    main()
