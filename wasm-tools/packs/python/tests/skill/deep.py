import json


def down(depth):
    return down(depth + 1)


class Nested:
    def __repr__(self):
        return repr(self)


for what, action in (
    ("calls", lambda: down(0)),
    ("repr", lambda: repr(Nested())),
    ("json", lambda: json.loads("[" * 100_000)),
    ("sort", lambda: sorted([2, 1], key=lambda value: down(value))),
):
    try:
        action()
    except RecursionError:
        print(what, "RecursionError")
try:
    eval("(" * 1000 + ")" * 1000)
except (SyntaxError, MemoryError, RecursionError) as error:
    print("parser", "refused")
