#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of plots and the tables, made of the committed results: whole, of one piece, and of
these numbers alone. No browser: the page is read as HTML, its SVG as XML.

    build/python/bin/python tests/report/check.py       what tests/run.sh runs
"""

import glob
import html.parser
import json
import os
import re
import sys
import tempfile
import traceback
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import report  # noqa: E402  (is in bench/)

RESULTS = sorted(glob.glob(os.path.join(ROOT, "bench/results/*.json")))
VOID = {"meta", "br", "img", "hr", "link", "input", "use", "path"}


class Reader(html.parser.HTMLParser):
    """Elements in balance, each id once, and what is referred to."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.references, self.addresses = [], [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.note(attributes)

    def handle_startendtag(self, tag, attributes):
        self.note(attributes)

    def note(self, attributes):
        for name, value in attributes:
            value = value or ""
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href", "src"):
                (self.references if value.startswith("#") else self.addresses).append(value)
            self.references += re.findall(r"url\((#[^)]*)\)", value)

    def handle_endtag(self, tag):
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            raise AssertionError(f"line {self.getpos()[0]}: </{tag}> closes nothing")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open, f"never closed: {reader.open}"
    return reader


def check_page(page):
    """Whole: what refers to something finds it, and nothing comes from elsewhere."""
    text = page.render(RESULTS, report)
    reader = read(text)
    twice = {name for name in reader.ids if reader.ids.count(name) > 1}
    assert not twice, f"ids that are given twice: {sorted(twice)[:5]}"
    lost = {name for name in reader.references if name[1:] not in reader.ids}
    assert not lost, f"references that lead nowhere: {sorted(lost)[:5]}"
    assert not reader.addresses, f"not of one piece: {reader.addresses[:5]}"
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) > 10, f"only {len(drawings)} figures"
    for drawing in drawings:
        shape = xml.etree.ElementTree.fromstring(drawing)
        assert shape.find(".//{*}path") is not None, "an empty figure"
    for word in ("nan", "inf", "None"):
        assert not re.search(rf">[^<]*\b{word}\b[^<]*<", text), f"'{word}' is printed"


def check_sections(page):
    """Each file that a section is about is named there; each section has one."""
    text = page.render(RESULTS, report)
    for title, wanted, draw in page.SECTIONS:
        about = [path for path in RESULTS if wanted(load(path))]
        part = text.partition(f"<h2>{title}</h2>")[2].partition("<h2>")[0]
        assert bool(part) == bool(about), f"the section {title}, of {about}"
        for path in about:
            named = os.path.basename(path) in part or page.name_of(path) in part
            assert named or not draw(path, load(path), report), f"{title} lacks {path}"


def check_tuning(page):
    """The output of `quern tune --json` has a section, too."""
    rows = [{"problem": f"fprop bf16 g={g} m=64 n=64 k=64", "us": 9.0 - g, "model_us": 9.0, "mhz": 0}
            for g in (1, 2)]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(rows, file)
        file.flush()
        text = page.render([file.name], report)
    assert "<h2>Gains by tuning</h2>" in text and "<svg" in text, "it is not drawn"
    read(text)


def check_same(page):
    """The same numbers give the same bytes, whatever was drawn before."""
    path = os.path.join(ROOT, "bench/results/h200_casts.json")
    first = page.render([path], report)
    page.render(RESULTS[:4], report)
    assert page.render([path], report) == first, "drawn twice, it differs"


def check_numbers(page):
    """Other numbers, another page and another table: nothing is drawn from memory."""
    path = os.path.join(ROOT, "bench/results/h200_bf16.json")
    results = load(path)
    before = page.speed(path, results, report), report.table(results, "fprop")
    row = next(r for r in results["rows"] if r.get("what") == "quern")
    row["tflops"] *= 2
    assert page.speed(path, results, report) != before[0], "a measurement is not drawn"
    assert report.table(results, "fprop") != before[1], "a measurement is not in the table"


def main():
    checks = (check_page, check_sections, check_tuning, check_same, check_numbers)
    failed = 0
    try:
        import page
    except ImportError as error:
        page = None
        print(f"skip: needs matplotlib ({error}); make report fetches it")
    print(f"1..{len(checks)}")
    for number, check in enumerate(checks, 1):
        name = f"{number} - {check.__name__[6:]}"
        if page is None:
            print(f"ok {name} # SKIP")
            continue
        try:
            check(page)
            print(f"ok {name}")
        except AssertionError as error:
            print(f"# {error}\nnot ok {name}")
            failed += 1
        except Exception:  # of the page or the tables themselves
            traceback.print_exc()
            print(f"not ok {name}")
            failed += 1
        sys.stdout.flush()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
