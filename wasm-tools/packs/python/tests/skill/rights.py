"""Each folder has its own rights, and what was not given is not there."""

import os


def attempt(what, action):
    try:
        action()
    except OSError as error:
        print(what, type(error).__name__)
    else:
        print(what, "worked")


def write(path):
    with open(path, "w") as file:
        file.write("x")


attempt("read in", lambda: open("/workspace/in/a.txt").read())
attempt("write in", lambda: write("/workspace/in/a.txt"))
attempt("create in skill", lambda: write("/workspace/skill/new.txt"))
attempt("delete in", lambda: os.remove("/workspace/in/a.txt"))
attempt("write out", lambda: write("/workspace/out/b.txt"))
attempt("write tmp", lambda: write("/workspace/tmp/c.txt"))
attempt("climb", lambda: open("/workspace/in/../../etc/hostname").read())
attempt("passwd", lambda: open("/etc/passwd").read())
attempt("link out", lambda: os.symlink("/etc/passwd", "/workspace/out/link") or open("/workspace/out/link").read())
attempt("write library", lambda: write("/usr/local/lib/python313.zip"))
