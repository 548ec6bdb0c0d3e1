"""Compiles the packages in /workspace/site for this Python, and tries those whose native parts were left out.

Reads {"check": {package: [module, ...]}} from stdin; leaves pyc.zip and report.json in $WORKSPACE_OUT.
"""
import importlib
import importlib.util
import json
import os
import py_compile
import sys
import zipfile

site = os.environ["PYTHONPATH"]
out = os.environ["WORKSPACE_OUT"]
check = json.load(sys.stdin)["check"]
# A bare name: py_compile makes the folders above a path, which not every sandbox has.
os.chdir(os.environ["TMPDIR"])
scratch = "one.pyc"

with zipfile.ZipFile(os.path.join(out, "pyc.zip"), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
    for folder, folders, names in os.walk(site):
        folders.sort()
        for name in sorted(names):
            if not name.endswith(".py"):
                continue
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, site)
            try:
                # Not by time: staged files have the time they were staged at. The whole tree is known by digest.
                py_compile.compile(
                    path,
                    cfile=scratch,
                    dfile="/workspace/site/" + inside,
                    doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
            except (py_compile.PyCompileError, ValueError, RecursionError):
                # Templates, and code for another Python, lie about in packages; nothing imports them.
                continue
            archive.write(scratch, importlib.util.cache_from_source(inside))

failed = {}
for package, modules in check.items():
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as error:  # also what is no Exception, such as an exit
            failed[package] = "%s: %s" % (type(error).__name__, error)
            break
with open(os.path.join(out, "report.json"), "w", encoding="utf-8") as file:
    json.dump({"failed": failed}, file)
