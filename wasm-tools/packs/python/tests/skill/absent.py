"""What can't be says so, with the way out, and can be caught as the error that it is elsewhere."""

import asyncio
import concurrent.futures
import os
import socket
import subprocess
import threading
import urllib.request


def attempt(what, action):
    try:
        action()
    except Exception as error:
        helpful = "--runtime" in str(error)
        print(what, type(error).__name__, "helpful" if helpful else f"unhelpful: {error}")
    else:
        print(what, "worked")


attempt("thread", threading.Thread(target=print).start)
attempt("pool", lambda: concurrent.futures.ThreadPoolExecutor().submit(print))
attempt("to_thread", lambda: asyncio.run(asyncio.to_thread(print)))
attempt("run", lambda: subprocess.run(["ls"]))
attempt("shell", lambda: subprocess.check_output("ls", shell=True))
attempt("system", lambda: os.system("ls"))
attempt("fork", lambda: os.fork())
attempt("popen", lambda: os.popen("ls"))
attempt("socket", socket.socket)
attempt("connect", lambda: socket.create_connection(("localhost", 80)))
attempt("http", lambda: urllib.request.urlopen("http://localhost/"))
attempt("https", lambda: urllib.request.urlopen("https://localhost/"))
