"""Runs a script with monty: `monty_runs.py SCRIPT ROUNDS [LIMIT_MS]`; prints what each call took.

Each call is a new session of a worker from monty's pool. The worker's processor time isn't seen here.
"""

import sys
import time

import pydantic_monty

script, rounds, *more = sys.argv[1:]
code = open(script).read()
limit = int(more[0]) / 1000 if more else 120.0
limits = {"max_feed_duration_secs": limit, "max_memory": 512 << 20}


def call(pool):
    try:
        with pool.checkout(limits=limits) as session:
            session.feed_run(code, print_callback=lambda *_: None)
    except pydantic_monty.MontyError:
        if not more:
            raise


with pydantic_monty.Monty() as pool:
    for _ in range(10):
        call(pool)
    for _ in range(int(rounds)):
        wall = time.perf_counter_ns()
        call(pool)
        print(time.perf_counter_ns() - wall, 0)
