"""Counts the packages of each section in the first CSV among the inputs."""

import collections
import csv
import os
import pathlib
import sys


def main() -> int:
    inputs = pathlib.Path(os.environ.get("WORKSPACE_IN", "/workspace/in"))
    outputs = pathlib.Path(os.environ.get("WORKSPACE_OUT", "/workspace/out"))
    found = sorted(inputs.glob("*.csv"))
    if not found:
        print("hello: no CSV among the inputs; give one with --in", file=sys.stderr)
        return 2
    with found[0].open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        if "section" not in (table.fieldnames or []):
            print(f"hello: {found[0].name} has no column 'section'", file=sys.stderr)
            return 2
        count = collections.Counter(row["section"] for row in table)
    lines = [f"{section} {packages}\n" for section, packages in sorted(count.items())]
    (outputs / "sections.txt").write_text("".join(lines), encoding="utf-8")
    print(f"hello from python: {found[0].name}")
    print("".join(lines), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
