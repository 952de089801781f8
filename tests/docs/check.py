#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documentation is true: links lead somewhere, tables are those of the results, commands run,
programs compile, and the README keeps to its size.

    python3 tests/docs/check.py          all of it, as tests/run.sh runs it
    python3 tests/docs/check.py links    links, tables and sizes only, as `make check` runs it
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QUERN = os.path.join(ROOT, "build/bin/quern")
LINES, COLUMNS = 150, 100  # of the README
SIZE = 256  # lengths of problems are cut to this, so that the host computes them in a moment
WORKS = ("fprop", "dgrad", "wgrad", "quantize", "dequantize", "transpose", "rescale", "bias", "mlp",
         "moe", "route", "permute", "combine")


def pages():
    """Every Markdown file, by its path from the root."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", ".git", "shared")]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names
                  if name.endswith(".md")]
    return sorted(found)


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def find(pattern, text):
    """All matches of a pattern in the lines of a text."""
    return re.findall(pattern, text, flags=re.MULTILINE)


def fenced(word, page):
    """The blocks of a page after ```word."""
    return re.findall(rf"^```{word}\n(.*?)^```$", read(page), flags=re.DOTALL | re.MULTILINE)


def unfenced(word, text):
    """A text without those blocks."""
    return re.sub(rf"^```{word}.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def prose(text):
    """Without blocks of code, fenced or indented."""
    return re.sub(r"^ {4}.*$", "", unfenced("", text), flags=re.MULTILINE)


def anchors(page):
    """As GitHub makes them of headings."""
    headings = find(r"^#+ (.*)$", prose(read(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links():
    """Files and headings that pages name."""
    lost = []
    for page in pages():
        text = prose(read(page))
        for link in find(r"\]\(([^)\s]+)\)", text) + find(r"^\[\w+\]: (\S+)$", text):
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(os.path.join(ROOT, target)):
                lost.append(f"{page}: there is no {target}")
            elif anchor and anchor not in anchors(target):
                lost.append(f"{page}: {target} has no heading #{anchor}")
    assert not lost, "\n# ".join(lost)


def check_paths():
    """Files of this repository that pages name without a link; AREA and NAME stand for any word."""
    folders = "bench|docs|examples|gen|runtime|specs|templates|tests"
    lost = [f"{page}: there is no {path}" for page in pages() if not page.startswith("bench/notes")
            for path in find(rf"`((?:{folders})/[\w/.-]*[\w/])`", read(page))
            if not re.search("/[A-Z]+/|NAME", path)
            and not os.path.exists(os.path.join(ROOT, path))]
    assert not lost, "\n# ".join(lost)


def check_reached():
    """Every page of docs/ is in the README's map."""
    readme = read("README.md")
    lost = [page for page in pages() if page.startswith("docs/") and f"({page})" not in readme]
    assert not lost, f"the README does not lead to {lost}"


def check_size():
    """Lines of the README; its columns, except in output of programs."""
    text = read("README.md")
    count = text.count("\n")
    assert count <= LINES, f"the README has {count} lines, over {LINES}"
    wide = [line for line in unfenced("text", text).split("\n") if len(line) > COLUMNS]
    assert not wide, f"lines of the README over {COLUMNS} columns: {wide[:3]}"


def check_tables():
    """Tables are those of bench/results."""
    got = subprocess.run([sys.executable, os.path.join(ROOT, "bench/tables.py"), "--check"],
                         capture_output=True, text=True, check=False)
    assert got.returncode == 0, got.stdout + got.stderr


def check_activations():
    """The table of activations, their templates, Python's lists and the page of lines agree."""
    table = re.findall(r'X\(\w+, "(\w+)", (\d)\)', read("runtime/registry.h"))
    assert len(table) > 10 and table[0] == ("none", "1"), table
    operands = {name: int(count) for name, count in table[1:]}
    module = read("runtime/python/quern/__init__.py")
    page = find(r"^\| `activation` \| (.*?) \|", read("docs/problem-line.md"))[0]
    for count, words, phrase in ((2, "GATED", "with a gate"), (1, "PLAIN", "without")):
        expected = [name for name, of in operands.items() if of == count]
        listed = re.findall(r'"(\w+)"', find(rf"^{words} = (.*)$", module)[0])
        assert listed == expected, f"quern.{words} is {listed}, the table has {expected}"
        shown = re.findall(r"`(\w+)`", page.split(phrase)[1].split(";")[0])
        assert shown == expected, f"docs/problem-line.md has {shown}, the table {expected}"
    for name in operands:
        assert os.path.exists(os.path.join(ROOT, f"templates/activation/{name}.c")), name


def check_keys():
    """Each key of a kind of line is in a table of its section of the page of lines."""
    source = read("runtime/problem/lines.c")
    page = read("docs/problem-line.md")
    shared = dict(re.findall(r"#define (\w+)((?:.*\\\n)*.*)\n", source))

    def keys(text):
        found = set(re.findall(r'(?:WORD\(|FLAG\(|^|\{)"(\w+)"', text))
        found |= set(re.findall(r"LENGTH\((\w+)\)", text))
        for name in set(re.findall(r"\b[A-Z]+\b", text)) & set(shared):
            found |= keys(re.sub(r"\s*\\\n\s*", "\n", shared[name]).strip())
        return found

    for kind, heading in (("product", "Products"), ("cast", "Quantizations"),
                           ("mlp", "MLPs"), ("moe", "Layers"), ("route", "Routes")):
        rows = re.search(rf"qn_field {kind}\[\] = \{{\n(.*?)^\}};", source, re.DOTALL | re.MULTILINE)
        text = page.split(f"## {heading}\n")[1].split("\n## ")[0]
        cells = " ".join(find(r"^\| (`.*?`) \|", text))
        lost = sorted(key for key in keys(rows[1]) if f"`{key}`" not in cells)
        assert len(keys(rows[1])) > 9, f"lines.c: keys of {kind} are not found"
        assert not lost, f"docs/problem-line.md: the table of {kind} lines lacks {lost}"


def check_evidence():
    """Labels of kernels are those of bench/results."""
    got = subprocess.run([sys.executable, os.path.join(ROOT, "bench/evidence.py"), "--check"],
                         capture_output=True, text=True, check=False)
    assert got.returncode == 0, got.stdout + got.stderr


# ---------------------------------------------------------------------------- commands


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **more)


def commands(page):
    """Commands of the program in indented blocks; lines that end with \\ go on."""
    text = read(page).replace("\\\n", " ")
    for line in find(r"^ {4}(?:[A-Z]+=\w* )*(?:build/bin/)?quern (.*)$", text):
        words = shlex.split(line, comments=True)
        if not [word for word in words if re.fullmatch("[A-Z]{3,}", word)]:  # such as NAME
            yield words


def smaller(word):
    """A length, or each one in a line that is one word, cut to SIZE."""
    return re.sub(r"\b(m|n|k|hidden|ffn)=(\d+)", lambda m: f"{m[1]}={min(int(m[2]), SIZE)}", word)


def problems(words):
    """The lines among the words of a command: one word each, or all words until an option."""
    quoted = [word for word in words if " " in word]
    if quoted:
        return quoted
    plain = [word for word in words if not word.startswith("-")]
    return [" ".join(plain)] if plain and plain[0] in WORKS else []


def adapt(words):
    """The same command for a machine without a GPU and in little time; of a GPU's kernel, whether
    it exists."""
    if "--kernel" in words:
        return ["why", words[words.index("--kernel") + 1]]
    command, rest = words[0], [smaller(word) for word in words[1:]]
    if command in ("run", "bench") and not {"--ptx", "--sass", "--resources"} & set(rest):
        rest += [] if "--backend" in rest else ["--backend", "host"]
        if command == "bench":
            at = rest.index("--repeat") if "--repeat" in rest else len(rest)
            rest[at:at + 2] = ["--repeat", "1"]
    if command == "build":  # hundreds of kernels: their names are enough
        rest += ["--dry-run"] if not {"-n", "--dry-run"} & set(rest) else []
    return [command, *rest]


def my_specs(folder):
    """The README's recipe, and the examples' ones, as a user puts them down."""
    os.makedirs(os.path.join(folder, "my-specs/recipes"))
    os.symlink(os.path.join(ROOT, "examples"), os.path.join(folder, "examples"))
    os.symlink(os.path.join(ROOT, "tests/fuzz/corpus/config/qwen3"),
               os.path.join(folder, "config.json"))
    blocks = {name: block for page in ("README.md", "docs/recipes.md")
              for block in fenced("lua", page) for name in find(r'^recipe "(\w+)"', block)}
    for name, block in blocks.items():
        path = f"my-specs/recipes/{name}.lua"
        with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
            file.write(block)
        example = f"examples/specs/recipes/{name}.lua"
        assert block.strip() in read(example), f"{example} is not the recipe of the pages"


def checkpoint(folder):
    """The smallest model of docs/checkpoints.md: one expert, all zeros."""
    name, tensors, at = "model.layers.0.mlp.experts.", {}, 0
    for part, rows in (("gate_up_proj", 64), ("down_proj", 32)):
        for end, dtype, shape, size in (("_blocks", "U8", [1, rows, 1, 16], 16 * rows),
                                        ("_scales", "U8", [1, rows, 1], rows),
                                        ("_bias", "BF16", [1, rows], 2 * rows)):
            tensors[name + part + end] = {"dtype": dtype, "shape": shape,
                                          "data_offsets": [at, at + size]}
            at += size
    header = json.dumps(tensors).encode()
    os.makedirs(os.path.join(folder, "gpt-oss-20b"))
    with open(os.path.join(folder, "gpt-oss-20b/model.safetensors"), "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + bytes(at))


def check_commands():
    """Each command of the pages succeeds, with lengths cut and on the host; tuning and a NAME of a
    reader's choice need a GPU, so only the lines of those commands are tried."""
    found = {}
    for page in pages():
        for words in commands(page):
            if "NAME" in words:
                words = words[:words.index("NAME") - 1]  # --kernel of what the reader chose
            lines = [("describe", smaller(line)) for line in problems(words[1:])]
            only_lines = words[0] == "tune" or "NAME" in words
            for command in lines if only_lines else [tuple(adapt(words))]:
                found.setdefault(command, page)
    assert len(found) > 20, f"only {len(found)} commands were found"
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        my_specs(folder)
        checkpoint(folder)
        for command, page in found.items():
            got = run([QUERN, *command], cwd=folder, env={**os.environ, "QUERN_CACHE": folder})
            if got.returncode != 0:
                said = (got.stderr or got.stdout).strip()[:300]
                failed.append(f"{page}: quern {' '.join(command)}: {got.returncode}: {said}")
    assert not failed, "\n# ".join(failed)


def check_lines():
    """Each line that is shown by itself is valid."""
    failed = []
    for page in pages():
        for line in find(rf"^ {{4}}((?:{'|'.join(WORKS)})(?: \w+)?(?: +\w+=[\w,]+)+) *$",
                         read(page)):
            got = run([QUERN, "describe", line])
            if got.returncode != 0:
                failed.append(f"{page}: {line}: {got.stderr}")
    assert not failed, "\n# ".join(failed)


def check_demo():
    """The README shows the output of the demo, but for times."""
    got = run([QUERN, "demo", "--backend", "host"], env={**os.environ, "QUERN_NVRTC": "/none"})
    assert got.returncode == 0, got.stderr

    def rows(text):  # without ms and TFLOP/s
        return [re.sub(r"(\s+[\d.e+-]+){2}(\s+[\d.]+e-\d+)", r"\2", re.sub(" +", " ", line))
                for line in find(r"^(?:layer|Qwen|OLMoE|Forward|against).*$", text)]
    shown = rows(fenced("text", "README.md")[0])
    assert shown and shown == rows(got.stdout), f"{rows(got.stdout)} is not {shown}"


C_PROGRAM = """#include <stdio.h>
#include <quern.h>
#include "quern_kernels.h"

void example(void *x, void *weights, void *y, void *tokens, void *zeroed_once,
             struct CUstream_st *stream, struct quern_plan *wgrad_plan, int layer);

void example(void *x, void *weights, void *y, void *tokens, void *zeroed_once,
             struct CUstream_st *stream, struct quern_plan *wgrad_plan, int layer)
{
    (void)x, (void)weights, (void)y, (void)tokens, (void)zeroed_once;
    (void)stream, (void)wgrad_plan, (void)layer;
    {
%s
    }
}
"""


def check_programs():
    """C that pages show compiles: fenced, or indented and full of quern_."""
    blocks = fenced("c", "README.md")
    for page in ("docs/training.md", "docs/aot.md"):
        for block in find(r"(?:^ {4}.*\n)+", read(page)):
            if find(r"^ {4}quern_\w+\(", block):
                blocks.append(re.sub(r"^ *#include.*$", "", block, flags=re.MULTILINE))
    assert len(blocks) == 3, f"{len(blocks)} programs were found, not 3"
    for block in blocks:
        given = "" if "*ctx;" in block else "struct quern_context *ctx;\n"
        if "args" in block and "args = " not in block:
            given += "struct quern_args args = QUERN_ARGS_INIT;\n"
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "quern_kernels.h"), "w", encoding="utf-8") as file:
                file.write("extern const struct quern_registry quern_kernels;\n")
            got = run([*shlex.split(os.environ.get("CC", "cc")), "-std=c99", "-Wall", "-Wextra",
                       "-Werror", "-fsyntax-only", "-I", folder, "-I", f"{ROOT}/runtime",
                       "-x", "c", "-"], input=C_PROGRAM % (given + block))
        assert got.returncode == 0, got.stderr


def check_python():
    """Python that pages show compiles; examples in Python run."""
    for page in pages():
        for block in fenced("python", page):
            compile(block, page, "exec")
    got = run([sys.executable, "examples/py_memory.py"], cwd=ROOT,
              env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "runtime/python")})
    assert got.returncode == 0 and "fp8_block" in got.stdout, got.stdout + got.stderr


def check_excerpts():
    """CUDA C that pages show is what the generator writes for the kernel of the last command
    `quern emit -o -` before it; a line of dots leaves some out."""
    count, lost = 0, []
    for page in pages():
        for kernel, between in re.findall(r"^ {4}quern emit -o - (\w+)$(.*?)(?=^ {4}quern emit|\Z)",
                                          read(page), flags=re.DOTALL | re.MULTILINE):
            got = run([QUERN, "emit", "-o", "-", kernel])
            assert got.returncode == 0, f"{page}: {kernel}: {got.stderr}"
            for block in re.findall(r"^```cuda\n(.*?)^```$", between, flags=re.DOTALL | re.MULTILINE):
                at = 0
                for part in re.split(r"^ *\.\.\.\n", block, flags=re.MULTILINE):
                    found = got.stdout.find(part, at)
                    at = max(found, at) + len(part)
                    count += 1
                    if found < 0:
                        lost.append(f"{page}: {kernel} has no {part}")
    assert count > 8 and not lost, f"{count} excerpts; " + "\n# ".join(lost)


LINKS = (check_links, check_paths, check_reached, check_size, check_tables, check_activations,
         check_keys)
COMMANDS = (check_evidence, check_excerpts, check_commands, check_lines, check_demo, check_programs,
            check_python)


def main():
    checks = LINKS if sys.argv[1:] == ["links"] else LINKS + COMMANDS
    failed = 0
    print(f"1..{len(checks)}")
    for number, check in enumerate(checks, 1):
        name = f"{number} - {check.__name__[6:]}"
        try:
            check()
            print(f"ok {name}")
        except AssertionError as error:
            print(f"# {error}\nnot ok {name}")
            failed += 1
        except Exception:  # of the check itself
            traceback.print_exc()
            print(f"not ok {name}")
            failed += 1
        sys.stdout.flush()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
