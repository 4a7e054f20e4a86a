# SPDX-License-Identifier: Apache-2.0
"""A `tessera serve` of its own for a test, and what the system says of its process.

TESSERA and MODEL in the environment are other ones than the checkout's.
"""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESSERA = os.environ.get("TESSERA", str(ROOT / "build/release/bin/tessera"))
MODEL = os.environ.get("MODEL", str(ROOT / "models/harbour-2.8m-q8_0.gguf"))
START_SECONDS_MAX = 120
EXIT_SECONDS_MAX = 120


class ServerProcess:
    """Started by the constructor, answering when that returns; killed at the end of `with`."""

    def __init__(self, *flags: str, port: int = 0, environment: dict[str, str] | None = None):
        self._log = tempfile.NamedTemporaryFile("w+", prefix="tessera-", suffix=".log")
        self._process = subprocess.Popen(
            [TESSERA, "serve", MODEL, "--port", str(port), *flags],
            stdout=self._log, stderr=subprocess.STDOUT, env=os.environ | (environment or {}))
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.close()
            raise

    def _wait_for_port(self) -> int:
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end:
            if found := re.search(r" on http://[^\s]*:(\d+)", self.log()):
                return int(found[1])
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.wait()}: {self.log()}")
            time.sleep(0.02)
        raise RuntimeError(f"the server was not ready within {START_SECONDS_MAX} s: {self.log()}")

    def log(self) -> str:
        return pathlib.Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code, negative for a signal."""
        return self._process.wait(timeout=EXIT_SECONDS_MAX)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    # ---- What the system says.

    def _status(self, field: str) -> int:
        status = pathlib.Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        return int(re.search(rf"^{field}:\s+(\d+)", status, re.MULTILINE)[1])

    def rss_bytes(self) -> int:
        return self._status("VmRSS") * 1024

    def thread_count(self) -> int:
        return self._status("Threads")

    def fd_count(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def close(self) -> None:
        if self.running():
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_) -> None:
        self.close()
