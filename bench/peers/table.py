# SPDX-License-Identifier: Apache-2.0
"""Rows of results: one per weight type, thread count and measure, printed and as JSON.

A ratio above 1 always says that Tessera is faster, whether the unit is a rate or a time.
"""

import dataclasses
import statistics

TITLES = ("model", "thr", "measure", "Tessera", "llama.cpp", "ratio", "resident MiB", "load s",
          "read GB/s")


@dataclasses.dataclass
class Sample:
    value: float
    cores: float       # CPU time of the engine's process over wall time
    evaluated: int     # prompt tokens that went through the model
    bunched: float = 0.0  # share of tokens seen too late
    batches: int | None = None
    right: bool | None = None  # whether the answer was the expected one, where there is one


@dataclasses.dataclass
class Row:
    model: str
    threads: int
    measure: str
    unit: str  # "tok/s" or "ms"
    samples: dict[str, list[Sample]]       # by engine
    resident_mib: dict[str, float]
    load_s: dict[str, float]
    read_gb_s: list[float]  # what this many threads read from memory, before and after
    note: str = ""

    def median(self, name: str) -> float:
        return statistics.median(sample.value for sample in self.samples[name])

    def ratio(self) -> float:
        ratio = self.median("tessera") / self.median("llama.cpp")
        return 1 / ratio if self.unit == "ms" else ratio

    def names(self) -> set[str]:
        return {self.model, f"{self.threads}t", self.measure}

    def json(self) -> dict:
        return dataclasses.asdict(self) | {
            "ratio": self.ratio(),
            "median": {name: self.median(name) for name in self.samples},
        }


def cells(row: Row) -> list[str]:
    def spread(name: str) -> str:
        values = [sample.value for sample in row.samples[name]]
        return f"{row.median(name):.1f} ({min(values):.1f}–{max(values):.1f})"

    def both(values: dict[str, float], form: str) -> str:
        return " / ".join(format(values[name], form) for name in ("tessera", "llama.cpp"))

    return [row.model, str(row.threads), f"{row.measure}, {row.unit}", spread("tessera"),
            spread("llama.cpp"), f"{row.ratio():.2f}×", both(row.resident_mib, ",.0f"),
            both(row.load_s, ".1f"), "–".join(f"{one:.0f}" for one in row.read_gb_s)]


def text(rows: list[Row]) -> str:
    lines = [list(TITLES)] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(TITLES))]
    out = []
    for number, line in enumerate(lines):
        padded = [cell.ljust(width) if i < 3 else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(line, widths))]
        note = rows[number - 1].note if number > 0 else ""
        out.append("  ".join(padded).rstrip() + (f"  {note}" if note else ""))
    out.insert(1, "-" * len(out[0]))
    return "\n".join(out)


def parse_gate(text_of_gate: str) -> tuple[set[str], float]:
    """"3" or "bf16/2t/prefill=3": the names that a row must have, and its least ratio."""
    names, _, least = text_of_gate.rpartition("=")
    return {name for name in names.split("/") if name}, float(least)


def below(rows: list[Row], gates: list[tuple[set[str], float]]) -> list[str]:
    """What misses a gate; a gate that no row answers to is missed as well."""
    out = []
    for names, least in gates:
        wanted = "/".join(sorted(names)) or "all"
        matching = [row for row in rows if names <= row.names()]
        if not matching:
            out.append(f"--at-least {wanted}={least}: nothing measured has these names")
        for row in matching:
            if row.ratio() < least:
                out.append(f"{row.model}, {row.threads} threads, {row.measure}: "
                           f"{row.ratio():.2f}×, expected at least {least}×")
    return out
