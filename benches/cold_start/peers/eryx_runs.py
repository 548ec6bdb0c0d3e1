"""Runs a script with eryx: `eryx_runs.py SCRIPT IN OUT [ROUNDS [LIMIT_MS]]`; with ROUNDS, prints what each call took.

Each call is a new sandbox with its own state and with limits on.
"""

import sys
import time

import eryx

script, inputs, outputs, *more = sys.argv[1:]
rounds, limit = int(more[0]) if more else 0, int(more[1]) if len(more) > 1 else 120_000
code = f"import os\nos.environ.update(WORKSPACE_IN='/data/in', WORKSPACE_OUT='/data/out')\n{open(script).read()}"


def call():
    limits = eryx.ResourceLimits(execution_timeout_ms=limit, max_memory_bytes=512 << 20)
    volumes = [(inputs, "/data/in", True), (outputs, "/data/out", False)]
    try:
        return eryx.Sandbox(resource_limits=limits, volumes=volumes).execute(code).stdout
    except eryx.TimeoutError:
        return b""


for _ in range(min(rounds, 10)):
    call()
for _ in range(rounds):
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    call()
    print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu)
if not rounds:
    sys.stdout.buffer.write(call())
