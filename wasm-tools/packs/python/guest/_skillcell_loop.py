"""The event loop that asyncio has in the wasm runtime, where its own needs a socket pair.

Tasks, timers, queues, locks and timeouts work; waiting is sleeping. What needs a thread, a process or a socket says
so when it is called.
"""

import asyncio
import errno
import time


class _Timer:
    """Stands where a loop keeps its selector: nothing to watch, so it only lets the time pass."""

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError(
                "this wait would never end: no task can go on, no timer is set, and nothing outside the script "
                "can wake it in the wasm runtime"
            )
        if timeout > 0:
            time.sleep(timeout)
        return ()

    def close(self):
        pass


class WasiEventLoop(asyncio.BaseEventLoop):
    def __init__(self):
        super().__init__()
        self._selector = _Timer()

    def _process_events(self, event_list):
        pass

    def _write_to_self(self):
        # Called to wake a loop that waits in another thread; there is none.
        pass

    async def getaddrinfo(self, *_args, **_kwargs):
        raise OSError(errno.ENOTSUP, "there are no sockets in the wasm runtime")

    async def getnameinfo(self, *_args, **_kwargs):
        raise OSError(errno.ENOTSUP, "there are no sockets in the wasm runtime")

    async def _refuse_process(self, *_args, **_kwargs):
        raise OSError(
            errno.ENOTSUP, "there are no processes in the wasm runtime, so no other program can be started"
        )

    subprocess_exec = subprocess_shell = _refuse_process


class WasiEventLoopPolicy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = WasiEventLoop


asyncio.SelectorEventLoop = WasiEventLoop
asyncio.DefaultEventLoopPolicy = WasiEventLoopPolicy
asyncio.set_event_loop_policy(WasiEventLoopPolicy())
