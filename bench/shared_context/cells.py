# SPDX-License-Identifier: Apache-2.0
"""The chosen cells, and the order in which each repeat visits them."""

import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Cell:
    """A server's configuration. `engine` is "tessera" or "llama.cpp"; the rest is Tessera's, but
    for `reuse`, which is llama.cpp's."""

    engine: str = "tessera"
    organisation: str = "s3"
    headroom: float = 0.0
    retention: str = "off"
    isolate: bool = False
    reuse: bool = True

    @property
    def name(self) -> str:
        """Unique, short, and what --only is matched with."""
        if self.engine != "tessera":
            return self.engine + ("" if self.reuse else " without reuse")
        parts = [self.organisation]
        if self.headroom > 0:
            parts.append(f"f={self.headroom:.2f}".replace("0.", "."))
        if self.retention != "off":
            parts.append(self.retention)
        if self.isolate:
            parts.append("isolate")
        return " ".join(parts)

    @property
    def flags(self) -> list[str]:
        return ["--organisation", self.organisation, "--headroom", str(self.headroom),
                "--retention", self.retention, "--isolate", "request" if self.isolate else "off"]


# One axis at a time around S3 without headroom and retention; where two may act together (headroom
# with retention, isolation with retention), the corner as well. D0's split is the attention pool's
# share: .8 is near what contexts, their checkpoints and a few running states need, .5 the default.
CHOSEN = (
    *(Cell(headroom=f) for f in (0.0, 0.10, 0.19, 0.27, 0.35)),
    Cell(retention="producer"),
    Cell(retention="after"),
    Cell(headroom=0.19, retention="after"),
    Cell(isolate=True),
    Cell(retention="after", isolate=True),
    Cell(organisation="s2"),
    Cell(organisation="s2", headroom=0.19),
    Cell(organisation="s1"),
    Cell(organisation="s0"),
    Cell(organisation="d0:split=0.8"),
    Cell(organisation="d0:split=0.8", headroom=0.10),
    Cell(organisation="d0:split=0.5"),
    Cell(engine="llama.cpp"),
    Cell(engine="llama.cpp", reuse=False),
)


def triple(count: int) -> list[list[int]]:
    """Three orders of an odd `count`: each item's positions add up to 3·(count − 1)/2."""
    half = (count - 1) // 2
    first = list(range(count))
    second = [half - i // 2 if i % 2 == 0 else count - 1 - (i - 1) // 2 for i in range(count)]
    third = [3 * half - a - b for a, b in zip(first, second)]
    return [sorted(range(count), key=positions.__getitem__)
            for positions in (first, second, third)]


def orders(count: int, repeats: int, seed: int) -> list[list[int]]:
    """An order of 0 … count − 1 for each repeat.

    Repeats come in twos, and one three if they are odd, in which every item's mean position is the
    same, so that a drift of the machine that is even in time adds the same to all of them (an even
    `count` meets the three to within two positions). Items are shuffled anew for each group.
    """
    out: list[list[int]] = []
    shuffle = random.Random(seed)
    while len(out) < repeats:
        left = repeats - len(out)
        items = shuffle.sample(range(count), count)
        if left == 1 or count == 1:
            group = [list(range(count))]
        elif left % 2 == 0:
            group = [list(range(count)), list(range(count))[::-1]]
        else:
            group = [[i for i in order if i < count] for order in triple(count + 1 - count % 2)]
        out += [[items[i] for i in order] for order in group]
    return out
