# SPDX-License-Identifier: Apache-2.0
"""What /metrics and /cache say, and the sums that hold whenever they are asked."""

import re

from http_client import Connection

OWNERS = ("free", "reserved", "held_attention", "held_state", "cached_attention", "cached_state",
          "draining")
ENDINGS = ("stop", "length", "abort", "error")
_SAMPLE = re.compile(r"^([a-zA-Z0-9_:]+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)


class Figures:
    """One reading of /metrics."""

    def __init__(self, text: str):
        self._samples = {name: float(value) for name, value in _SAMPLE.findall(text)}
        self._counters = set(re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE))

    @staticmethod
    async def read(connection: Connection) -> "Figures":
        reply = await connection.request("GET", "/metrics")
        if reply.status != 200:
            raise RuntimeError(f"/metrics answers {reply.status}")
        return Figures(reply.body.decode())

    def get(self, name: str, **labels: str) -> float:
        return self._samples[name + _label_text(labels)]

    def total(self, name: str) -> float:
        """Over all labels."""
        return sum(value for sample, value in self._samples.items()
                   if sample == name or sample.startswith(name + "{"))

    def counters(self) -> dict[str, float]:
        return {sample: value for sample, value in self._samples.items()
                if sample.split("{")[0] in self._counters}

    def ended(self, *reasons: str) -> int:
        return int(sum(self.get("tessera_requests_finished_total", finished_reason=reason)
                       for reason in reasons or ENDINGS))


def _label_text(labels: dict[str, str]) -> str:
    pairs = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def fallen_counters(before: Figures, after: Figures) -> list[str]:
    now = after.counters()
    return [f"{name} fell from {value} to {now.get(name)}"
            for name, value in before.counters().items() if now.get(name, -1) < value]


def unbalanced(cache: dict) -> list[str]:
    """What of an answer of /cache breaks conservation or the budget; empty when nothing does."""
    found = []
    arena = cache["row_bytes"]
    for pool in cache["pools"]:
        pages = pool["pages"]
        owned = sum(pages[owner] for owner in OWNERS)
        if owned != pages["total"]:
            found.append(f"pool {pool['name']}: the owners have {owned} pages of {pages['total']}")
        if min(pages.values()) < 0 or pool["slots"]["used"] > pool["slots"]["total"]:
            found.append(f"pool {pool['name']}: {pages}, {pool['slots']}")
        arena += pool["bytes"]
    if arena != cache["arena_bytes"]:
        found.append(f"pools and rows are {arena} bytes of an arena of {cache['arena_bytes']}")
    if cache["arena_bytes"] > cache["budget_bytes"]:
        found.append(f"an arena of {cache['arena_bytes']} in a budget of {cache['budget_bytes']}")
    return found


def not_free(cache: dict) -> list[str]:
    """What is left of a cache that was cleared while nothing ran."""
    found = [f"pool {pool['name']}: {pool['pages']['free']} of {pool['pages']['total']} are free"
             for pool in cache["pools"] if pool["pages"]["free"] != pool["pages"]["total"]]
    left = {"sequences": cache["sequences"], "running": cache["running"],
            "waiting": cache["waiting"]}
    left |= {name: cache["kept"][name] for name in ("blocks", "checkpoints", "rows")}
    return found + [f"{name}: {count} are left" for name, count in left.items() if count != 0]


def unbalanced_pages(pages: dict, cache: dict) -> list[str]:
    """The runs of /cache/pages must cover each pool that /cache tells of, no more and no less."""
    found = []
    totals = {pool["name"]: pool["pages"]["total"] for pool in cache["pools"]}
    for pool in pages["pools"]:
        covered = sum(run[0] for run in pool["runs"])
        if covered != pool["pages"] or covered != totals.get(pool["name"], covered):
            found.append(f"pool {pool['name']}: runs of {covered} pages, {pool['pages']} in all")
    return found
