"""The Python half of reactor.c: what happens before the snapshot (prepare) and around every run (begin, finish).

Runs in a namespace of its own that no script sees. A function here that a script can reach - those that say no -
must be fit to be seen in a traceback.
"""

import atexit
import errno
import gc
import http.client
import importlib
import logging
import os
import posix
import random
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
import warnings
import _thread

# What skills import, so that they find it imported. Everything here costs snapshot size and no time: pages that a
# run does not touch are never read.
PRELOADED = """
abc argparse array ast asyncio atexit base64 bdb binascii bisect bz2 calendar cmath cmd codecs collections
collections.abc colorsys concurrent.futures configparser contextlib contextvars copy copyreg csv dataclasses
datetime decimal difflib dis doctest email email.generator email.header email.message email.mime.application
email.mime.multipart email.mime.text email.parser email.policy email.utils encodings.ascii encodings.cp1252
encodings.idna encodings.latin_1 encodings.punycode encodings.utf_16 encodings.utf_8_sig enum errno fnmatch
fractions functools gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html html.entities html.parser
http http.client http.cookies importlib importlib.metadata importlib.resources importlib.util inspect io
ipaddress itertools json keyword linecache locale logging logging.config logging.handlers lzma math
mimetypes numbers opcode operator optparse os pathlib pdb pickle pkgutil platform plistlib pprint queue quopri
random re reprlib runpy sched secrets select selectors shelve shlex shutil signal site socket sqlite3
sqlite3.dbapi2 stat statistics string stringprep struct subprocess symtable sysconfig tabnanny tarfile tempfile
textwrap threading time timeit token tokenize tomllib trace traceback types typing unicodedata unittest
unittest.mock urllib.error urllib.parse urllib.request uuid warnings wave weakref xml.dom.minidom
xml.etree.ElementTree xml.sax xml.sax.saxutils zipapp zipfile zipimport zlib zoneinfo
_strptime _skillcell_loop
""".split()

ELSEWHERE = 'run the skill with "--runtime bubblewrap" or "--runtime docker" if it needs them'
NO_THREADS = (
    "can't start new thread: there are no threads in the wasm runtime; do the work one piece after the other "
    "(asyncio tasks work), or " + ELSEWHERE
)
NO_PROCESSES = (
    "there are no processes in the wasm runtime, so no other program can be started; import and call the code "
    "instead, or " + ELSEWHERE
)
NO_SOCKETS = (
    "there are no sockets in the wasm runtime; let the files that the script needs be given to it as inputs, or "
    + ELSEWHERE
)
NO_MODULE = "this part of the standard library does not exist in the wasm runtime; " + ELSEWHERE
ABSENT_MODULES = frozenset(
    """_ctypes _curses _multiprocessing _posixshmem _posixsubprocess _ssl _tkinter crypt ctypes curses dbm.gnu
    dbm.ndbm ensurepip fcntl grp idlelib mmap pwd readline resource ssl syslog termios tkinter turtle turtledemo
    venv""".split()
)
ABSENT_CALLS = frozenset(
    """execl execle execlp execv execve execvp fork forkpty getppid kill pipe pipe2 posix_spawn spawnl spawnv system
    wait waitpid WNOHANG""".split()
)


# ---- what says no ----------------------------------------------------------------------------------------------


def deny_thread(*_args, **_kwargs):
    raise RuntimeError(NO_THREADS)


def deny_process(*_args, **_kwargs):
    raise OSError(errno.ENOTSUP, NO_PROCESSES)


def deny_socket(*_args, **_kwargs):
    raise OSError(errno.ENOTSUP, NO_SOCKETS)


def absent_call(name):
    """os.__getattr__: called only for names that os does not have."""
    text = f"module 'os' has no attribute {name!r}"
    if name in ABSENT_CALLS:
        text += f": {NO_PROCESSES}"
    raise AttributeError(text, name=name, obj=os)


def explain(kind, error, trace):
    """sys.excepthook: the usual traceback, with a note if a module is missing because it can't be here."""
    if isinstance(error, ModuleNotFoundError) and error.name in ABSENT_MODULES:
        error.add_note(f"{error.name}: {NO_MODULE}")
    sys.__excepthook__(kind, error, trace)


class HTTPSConnection(http.client.HTTPConnection):
    """Without ssl there is no such class, and what asks for https would be told that it is no known kind of URL."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, host, port=None, *, context=None, **options):
        super().__init__(host, port, **options)


class HTTPSHandler(urllib.request.AbstractHTTPHandler):
    def __init__(self, debuglevel=None, context=None, check_hostname=None):
        super().__init__(debuglevel)

    def https_open(self, request):
        return self.do_open(HTTPSConnection, request)

    https_request = urllib.request.AbstractHTTPHandler.do_request_


def install_denials():
    for module in (_thread, threading):
        for name in ("start_new_thread", "start_new", "start_joinable_thread", "_start_joinable_thread"):
            if hasattr(module, name):
                setattr(module, name, deny_thread)
    subprocess.Popen.__init__ = deny_process
    for name in ("socketpair", "getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo",
                 "create_connection", "create_server"):
        setattr(socket, name, deny_socket)
    socket.socket.__init__ = deny_socket
    http.client.HTTPSConnection = HTTPSConnection
    urllib.request.HTTPSHandler = HTTPSHandler
    socket.has_ipv6 = False
    os.__getattr__ = absent_call
    sys.excepthook = explain


# ---- before the snapshot ---------------------------------------------------------------------------------------


def prepare():
    for name in PRELOADED:
        importlib.import_module(name)
    site.ENABLE_USER_SITE = False
    site.main()
    install_denials()
    # The last name in sys.modules: what stands behind it was brought by the script. See finish().
    sys.modules["_skillcell"] = type(sys)("_skillcell", "Marks the end of the modules that the snapshot brought.")


# ---- around a run ----------------------------------------------------------------------------------------------


def begin(env, buffered, encoding, errors, traced_frames, has_search_path):
    posix.environ.clear()
    posix.environ.update(env)
    os.environ._data.clear()
    os.environ._data.update(env)

    # Whatever was seeded, named or dated while the snapshot was made.
    random.seed()
    tempfile._name_sequence = tempfile.tempdir = None
    uuid._node = uuid._last_timestamp = None
    logging._startTime = time.time_ns()

    # What the interpreter does with its options while it starts, which was long ago.
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream.encoding != encoding or (stream.errors != errors and stream is not sys.stderr):
            stream.reconfigure(encoding=encoding, errors="backslashreplace" if stream is sys.stderr else errors)
    if not buffered:
        sys.stdout.reconfigure(write_through=True)
        sys.stderr.reconfigure(write_through=True)
    if sys.warnoptions:
        warnings._processoptions(sys.warnoptions)
    if sys.flags.int_max_str_digits != sys.get_int_max_str_digits():
        sys.set_int_max_str_digits(sys.flags.int_max_str_digits)
    if traced_frames > 0:
        import tracemalloc

        tracemalloc.start(traced_frames)
    if has_search_path:
        site.removeduppaths()
    if b"PYTHONTZPATH" in env and not sys.flags.ignore_environment:
        import zoneinfo

        zoneinfo.reset_tzpath()


def forget_what_the_script_brought():
    """Clears __main__ and the script's own modules, so that what they hold is closed, flushed and deleted."""
    brought = []
    for name in reversed(sys.modules):  # a walk over all of them would touch a page for each
        if name == "_skillcell":
            break
        brought.append(sys.modules[name])
    main = sys.modules.get("__main__")
    for module in (main, *brought):
        names = getattr(module, "__dict__", None)
        if type(names) is dict:
            for name in [name for name in names if name != "__builtins__"]:
                names[name] = None
    gc.collect()


def finish():
    """Returns 0, or 1 if output could not be written."""
    try:
        threading._shutdown()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    atexit._run_exitfuncs()
    sys.excepthook = explain
    forget_what_the_script_brought()
    lost = 0
    try:
        sys.stdout.flush()
    except (AttributeError, ValueError):
        pass  # set to None or closed by the script: there is nothing to lose
    except BaseException as error:
        lost = 1
        sys.unraisablehook(sys.UnraisableHookArgs((type(error), error, None, "Exception ignored on flushing sys.stdout", None)))
    try:
        sys.stderr.flush()
    except BaseException:
        pass
    return lost
