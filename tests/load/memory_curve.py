# SPDX-License-Identifier: Apache-2.0
"""Resident memory of a process over a run, and whether it stayed flat."""

import statistics
from dataclasses import dataclass, field

MIB = 1 << 20
# Of the middle of the last quarter over that of the second one: over a request a kilobyte would be
# more within minutes. It is for threads that meet their deepest stack late.
GROWTH_BYTES_MAX = 6 * MIB
# Before so long it is warm-up: each of 256 workers meets its deepest stack, the heaps their largest
# bodies. Then only what all of that takes is a limit, over the start.
WARM_UP_SECONDS = 120
WARM_UP_BYTES_MAX = 64 * MIB
BAR = "▁▂▃▄▅▆▇█"


@dataclass
class MemoryCurve:
    rss_bytes: list[int] = field(default_factory=list)

    def add(self, rss_bytes: int) -> None:
        self.rss_bytes.append(rss_bytes)

    def growth_bytes(self) -> int:
        count = len(self.rss_bytes)
        early = self.rss_bytes[count // 4:count // 2]
        late = self.rss_bytes[-(-3 * count // 4):]
        if not early or not late:
            raise ValueError(f"{count} samples are too few to compare")
        return int(statistics.median(late) - statistics.median(early))

    def not_flat(self, seconds: float) -> list[str]:
        """Empty when it is; of a run of so many seconds."""
        if seconds < 2 * WARM_UP_SECONDS:
            return self._beyond_warm_up()
        growth = self.growth_bytes()
        if growth <= GROWTH_BYTES_MAX:
            return []
        return [f"resident memory grew by {growth / MIB:.1f} MiB from the second quarter to the "
                f"last; expected at most {GROWTH_BYTES_MAX / MIB:.0f}: {self.text()}"]

    def _beyond_warm_up(self) -> list[str]:
        growth = max(self.rss_bytes) - self.rss_bytes[0]
        if growth <= WARM_UP_BYTES_MAX:
            return []
        return [f"resident memory grew by {growth / MIB:.1f} MiB; expected at most "
                f"{WARM_UP_BYTES_MAX / MIB:.0f}: {self.text()}"]

    def text(self, columns: int = 48) -> str:
        """The curve in one line, its ends and its highest point in MiB."""
        step = max(1, len(self.rss_bytes) // columns)
        points = self.rss_bytes[::step]
        low, high = min(points), max(points)
        bars = "".join(BAR[(point - low) * (len(BAR) - 1) // max(1, high - low)]
                       for point in points)
        first, last = self.rss_bytes[0], self.rss_bytes[-1]
        return f"{bars} {first / MIB:.1f} → {last / MIB:.1f} MiB, at most {high / MIB:.1f}"
