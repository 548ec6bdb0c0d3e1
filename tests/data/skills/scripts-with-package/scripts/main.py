"""Adds what its arguments say, with helpers from beside it and below it."""

import pathlib
import sys

from helpers.numbers import total
from words import said

table = pathlib.Path(__file__).parent.parent / "references" / "units.txt"
print(said(total(sys.argv[1:])), table.read_text().strip())
