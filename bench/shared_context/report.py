# SPDX-License-Identifier: Apache-2.0
"""A table and figures from the samples of each cell."""

import dataclasses
import pathlib
import statistics

import plot
from engine import PeersError

BEGIN, END = "<!-- shared-context: begin -->", "<!-- shared-context: end -->"


@dataclasses.dataclass(frozen=True)
class Column:
    title: str
    key: str
    form: str = ".1f"
    scale: float = 1.0


COLUMNS = (
    Column("req/s", "request_throughput", ".2f"),
    Column("tok/s", "output_throughput", ".0f"),
    Column("CPUs busy", "cpus_busy", ".1f"),
    Column("TTFT p50, ms", "median_ttft_ms", ",.0f"),
    Column("TTFT p99, ms", "p99_ttft_ms", ",.0f"),
    Column("computed, 10³", "computed_tokens", ".1f", 1e-3),
    Column("recomputed, 10³", "cache_recomputed_tokens", ".1f", 1e-3),
    Column("seen before and computed, 10³", "recomputed_input_tokens", ".1f", 1e-3),
    Column("preempted", "preempted", ".0f"),
    Column("refused, 10³", "refused", ".1f", 1e-3),
)


def values(samples: list[dict], column: Column) -> list[float]:
    return [one[column.key] * column.scale for one in samples if one.get(column.key) is not None]


def entry(samples: list[dict], column: Column) -> str:
    """Mean (lowest–highest), or a dash where the server does not say."""
    found = values(samples, column)
    if not found:
        return "–"
    mean = format(statistics.mean(found), column.form)
    low, high = format(min(found), column.form), format(max(found), column.form)
    return mean if low == high else f"{mean} ({low}–{high})"


def table(by_cell: dict[str, list[dict]]) -> str:
    lines = ["| cell | " + " | ".join(column.title for column in COLUMNS) + " |",
             "|" + "---|" * (len(COLUMNS) + 1)]
    for name, samples in by_cell.items():
        lines.append(f"| {name} | " + " | ".join(entry(samples, column) for column in COLUMNS)
                     + " |")
    return "\n".join(lines)


def text(record: dict, by_cell: dict[str, list[dict]]) -> str:
    """The table with the facts that it holds for."""
    load, budget, peer = record["load"], record["budget"], record.get("llama.cpp")
    facts = (f"{record['tessera']}; {record['cpu']}, {record['threads']} threads; "
             f"{record['date'][:10]}; load average {record['load_average']:.1f} before. "
             f"{load['questions']} questions at {load['rate']:g}/s, budget "
             f"{budget['bytes'] / 2**20:.2f} of {budget['whole_bytes'] / 2**20:.2f} MiB; "
             + (f"means of {record['repeats']} runs (lowest–highest)."
                if record["repeats"] > 1 else "one run."))
    if peer:
        facts += (f" llama.cpp: {peer['version']}, {budget['slots']} slots of "
                  f"{budget['slot_bytes'] / 2**20:.2f} MiB, {peer['choice']}.")
    return facts + "\n\n" + table(by_cell)


def figures(by_cell: dict[str, list[dict]]) -> dict[str, str]:
    """SVG by file name."""
    rows = list(by_cell)

    def series(label: str, key: str, shade: str, scale: float = 1.0) -> plot.Series:
        column = Column(label, key, scale=scale)
        return plot.Series(label, shade, [values(by_cell[name], column) for name in rows])

    latency = plot.Panel("Time to first token, ms", "log", [
        series("p50", "median_ttft_ms", "a"), series("p99", "p99_ttft_ms", "b")])
    rate = plot.Panel("Requests a second", "linear", [
        series("", "request_throughput", "a")])
    again = plot.Panel("Prompt tokens, 10³", "linear", [
        series("seen before and computed again", "recomputed_input_tokens", "b", 1e-3),
        series("computed", "computed_tokens", "a", 1e-3)])
    return {"shared-context-ttft.svg": plot.draw(rows, [latency]),
            "shared-context-throughput.svg": plot.draw(rows, [rate, again])}


def write_docs(root: pathlib.Path, body: str, images: dict[str, str]) -> list[pathlib.Path]:
    """The part of docs/performance.md between the marks, and the figures beside it."""
    page = root / "docs/performance.md"
    old = page.read_text(encoding="utf-8")
    head, begin, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise PeersError(f"{page}: expected '{BEGIN}' and '{END}', found "
                         f"{'neither' if not begin and END not in old else 'one of them'}")
    page.write_text(f"{head}{BEGIN}\n{body}\n{END}{tail}", encoding="utf-8")
    written = [page]
    for name, svg in images.items():
        written.append(root / "docs/images" / name)
        written[-1].write_text(svg, encoding="utf-8")
    return written
