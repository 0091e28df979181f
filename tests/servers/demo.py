"""`hopwise demo` and other programs as children of a test."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import time
import types
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("HOPWISE_PROGRAM") or str(
    pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "gate/hopwise"
)
TIMEOUT = 60.0


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port that nobody listens on now."""
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Process:
    """A program that serves HTTP; its output goes to `log`. `with` waits until it answers at `ready` (with `any_answer`, also an error),
    and stops it at the end."""

    def __init__(self, command: list[str], log: pathlib.Path, ready: str, any_answer: bool = False) -> None:
        self.log = log
        self.ready = ready
        self.any_answer = any_answer
        with log.open("w") as file:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def __enter__(self) -> Self:
        end = time.monotonic() + TIMEOUT
        while True:
            try:
                urllib.request.urlopen(self.ready, timeout=5).close()
                return self
            except (urllib.error.URLError, OSError) as error:
                if self.any_answer and isinstance(error, urllib.error.HTTPError):
                    error.close()
                    return self
                if self.child.poll() is not None or time.monotonic() > end:
                    self.child.kill()
                    raise AssertionError(f"{error}\n{self.log.read_text()}") from error
            time.sleep(0.05)

    def stop(self) -> int:
        """Stops it in order, and returns its exit code."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.child.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.stop()


class Demo(Process):
    """`hopwise demo` with a fixed seed on a free port."""

    def __init__(self, directory: pathlib.Path, *arguments: str) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        command = [PROGRAM, "demo", "--seed", "7", "--listen", self.address, *arguments]
        super().__init__(command, directory / "demo.log", f"{self.url}/healthz")
