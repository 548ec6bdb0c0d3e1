"""Recursion that is too deep must end in an exception that can be caught, whatever recurses."""

import copy
import functools
import json
import pickle
import re


def down(depth):
    return down(depth + 1)


class Shown:
    def __repr__(self):
        return repr(self)


class Ordered:
    def __lt__(self, other):
        return sorted([self, other])


class Looked:
    def __getattr__(self, name):
        return getattr(self, name)


nested = []
for _ in range(100_000):
    nested = [nested]


@functools.lru_cache
def cached(depth):
    return cached(depth + 1)


for what, action in (
    ("calls", lambda: down(0)),
    ("repr", lambda: repr(Shown())),
    ("sort", lambda: sorted([Ordered(), Ordered()])),
    ("getattr", lambda: Looked().name),
    ("cache", lambda: cached(0)),
    ("map", lambda: functools.reduce(lambda f, _: (lambda: list(map(lambda _: f(), [0]))), range(5000), int)()),
    ("json in", lambda: json.loads("[" * 100_000)),
    ("json out", lambda: json.dumps(nested)),
    ("list repr", lambda: repr(nested)),
    ("list equal", lambda: nested == copy.copy(nested)[0]),
    ("pickle", lambda: pickle.dumps(nested)),
    ("deepcopy", lambda: copy.deepcopy(nested)),
    ("regex", lambda: re.compile("(" * 5000 + ")" * 5000)),
    ("parser", lambda: eval("(" * 5000 + ")" * 5000)),
    ("compiler", lambda: eval("-" * 5000 + "1")),
    ("attributes", lambda: eval("a" + ".a" * 50_000)),
):
    try:
        action()
    except (RecursionError, MemoryError, SyntaxError) as error:
        print(what, "ended")
print("alive")
