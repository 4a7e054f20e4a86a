# SPDX-License-Identifier: Apache-2.0
"""What both engines share: an answer with its times, the measures made of it, the process watched.

An engine is a context manager whose process lives as long as the block; leaving it, for whatever
reason, ends the process. Both are asked the same way:

    generate(prompts, tokens)     all prompts at once, empty state; greedy, `tokens` of each
    ask(shared, rest, tokens)     one prompt, `shared` + `rest`, after others with the same `shared`

Time 0 is when the caller hands the prompts over; every token has the time at which the caller has
it. So everything a user waits for is inside: sampling, detokenizing (Tessera) and transport.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import time


class PeersError(Exception):
    """Something the user can put right; one line."""


@dataclasses.dataclass
class Answer:
    times: list[list[float]]  # per sequence, seconds from time 0, one per token
    evaluated: int            # prompt tokens that went through the model
    text: str = ""            # of the first sequence
    batches: int | None = None

    def first_token(self) -> float:
        return self.times[0][0]

    def bunched(self) -> float:
        """Share of tokens that came with the one before: the caller was late, not the engine."""
        gaps = [b - a for times in self.times for a, b in zip(times, times[1:])]
        return sum(gap == 0 for gap in gaps) / len(gaps) if gaps else 0.0

    def together(self) -> float:
        """Tokens/s of all sequences while all of them decode.

        The window opens when the last sequence has its first token and closes when the first one
        ends. Each sequence adds its own intervals in the window over their own span, so that the
        order in which one step's tokens arrive does not matter.
        """
        begin = max(times[0] for times in self.times)
        end = min(times[-1] for times in self.times)
        rate = 0.0
        for times in self.times:
            inside = [t for t in times if begin <= t <= end]
            if len(inside) < 3:
                raise PeersError("the sequences hardly decoded together: raise --decode")
            rate += (len(inside) - 1) / (inside[-1] - inside[0])
        return rate


class Process:
    """A child in a process group of its own: Ctrl-C reaches only the caller, who then ends it."""

    def __init__(self, command: list[str], log: pathlib.Path, **options):
        self.log = log
        self.started = time.monotonic()
        self.peak_mib = 0.0  # of resident memory; known once stopped
        with log.open("wb") as stderr:
            self.child = subprocess.Popen(command, stderr=stderr, start_new_session=True, **options)

    def stop(self, timeout: float = 5) -> None:
        if self.child.poll() is None:
            self.peak_mib = self._peak_mib()
            self.child.terminate()
            try:
                self.child.wait(timeout)
            except subprocess.TimeoutExpired:
                pass
            finally:  # a second Ctrl-C comes here
                self.child.kill()
        self.child.wait()

    def complain(self, what: str) -> PeersError:
        """What went wrong, with the line that says why: the first with an Error in it (a stack
        follows it), otherwise the last."""
        code = self.child.poll()
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = next((line for line in lines if re.search(r"Error\b", line)),
                   lines[-1] if lines else "no message")
        state = "is running" if code is None else f"ended with exit code {code}"
        return PeersError(f"{what}: the process {state}: {why.strip()}")

    def cpu_seconds(self) -> float:
        stat = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text(encoding="utf-8")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _peak_mib(self) -> float:
        status = pathlib.Path(f"/proc/{self.child.pid}/status").read_text(encoding="utf-8")
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(peak[1]) / 1024 if peak else 0.0  # one that has just ended has no memory

    def mapped(self, pattern: str) -> list[str]:
        """Names of the mapped files that match."""
        maps = pathlib.Path(f"/proc/{self.child.pid}/maps").read_text(encoding="utf-8")
        paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/") > 0}
        return sorted({os.path.basename(path) for path in paths if re.search(pattern, path)})
