"""Makes the library archive of the pack: the standard library as .pyc files in one zip that is stored, not deflated.

The same sources give the same bytes: fixed order, dates, modes and file names; PYTHONHASHSEED=0 is expected. The
.pyc files are of the unchecked-hash kind: there is no source beside them to check against, and the archive as a whole
is checked by its digest. Stored, because the pack as a whole is compressed for shipping, and a run that imports from
the archive then need not inflate.
"""

import argparse
import importlib._bootstrap_external
import importlib.util
import os
import zipfile

ARCHIVE = "/usr/local/lib/python313.zip"
# Folders and modules that need what the wasm runtime has not (windows, terminals, native libraries, installers), and
# CPython's own tests.
LEFT_OUT_FOLDERS = {
    "__phello__", "__pycache__", "ctypes", "curses", "ensurepip", "idlelib", "msilib", "site-packages", "test",
    "tests", "tkinter", "turtledemo", "venv",
}
LEFT_OUT_FILES = {
    "_aix_support.py", "_android_support.py", "_apple_support.py", "_ios_support.py", "pty.py", "tty.py", "turtle.py",
}
# What sysconfig tells about the build. All else in its data is about the machine that built: left out, so that every
# machine makes the same archive.
KEPT_VARIABLES = {
    "ABIFLAGS", "EXE", "EXT_SUFFIX", "HOST_GNU_TYPE", "LIBDIR", "LIBPYTHON", "MACHDEP", "MULTIARCH", "PLATLIBDIR",
    "Py_DEBUG", "Py_GIL_DISABLED", "Py_TRACE_REFS", "SHLIB_SUFFIX", "SIZEOF_VOID_P", "SOABI", "VERSION",
    "WITH_DOC_STRINGS", "WITH_PYMALLOC", "exec_prefix", "py_version_short", "prefix",
}


def python_files(folder):
    """(name in the archive, path) of every module below folder, sorted."""
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT_FOLDERS]
        for name in files:
            if name.endswith(".py") and name not in LEFT_OUT_FILES:
                path = os.path.join(base, name)
                yield os.path.relpath(path, folder), path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def sysconfig_source(path):
    namespace = {}
    exec(compile(read(path), path, "exec"), namespace)
    kept = {key: value for key, value in sorted(namespace["build_time_vars"].items()) if key in KEPT_VARIABLES}
    for value in kept.values():
        if isinstance(value, str) and os.sep + "tmp" in value:
            raise SystemExit(f"{path}: a path of this machine is among the kept variables: {value}")
    lines = "".join(f"    {key!r}: {value!r},\n" for key, value in kept.items())
    return f"build_time_vars = {{\n{lines}}}\n".encode()


def compiled(name, source):
    code = compile(source, f"{ARCHIVE}/{name}", "exec", dont_inherit=True, optimize=0)
    data = importlib._bootstrap_external._code_to_hash_pyc(code, importlib.util.source_hash(source), checked=False)
    return bytes(data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, help="Lib of the source")
    parser.add_argument("--module", action="append", default=[], help="one more module for the top folder")
    parser.add_argument("--tzdata", required=True, help="the package tzdata, unpacked")
    parser.add_argument("--sysconfig", required=True, help="the build's _sysconfigdata*.py")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()

    entries = {name + "c": compiled(name, read(path)) for name, path in python_files(arguments.library)}
    for path in arguments.module:
        name = os.path.basename(path)
        entries[name + "c"] = compiled(name, read(path))
    name = os.path.basename(arguments.sysconfig)
    entries[name + "c"] = compiled(name, sysconfig_source(arguments.sysconfig))
    for base, folders, files in os.walk(arguments.tzdata):
        for file in files:
            path = os.path.join(base, file)
            name = os.path.join("tzdata", os.path.relpath(path, arguments.tzdata))
            if name.endswith(".py"):
                entries[name + "c"] = compiled(name, read(path))
            elif "__pycache__" not in name:
                entries[name] = read(path)

    with zipfile.ZipFile(arguments.output, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o100644 << 16
            archive.writestr(info, entries[name])
    print(f"{len(entries)} files, {os.path.getsize(arguments.output)} bytes")


main()
