#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every #include under src/ and fails on one that points up the layer table.

The table is docs/architecture.md's: a module may include itself, and the modules its row names. A
module that is not in the table, and a cycle in the table itself, fail too.
"""

import pathlib
import re
import sys

MEMORY_CORE = ["base", "port", "memory/geometry"]
ALLOWED = {
    "base": [],
    "port": ["base"],
    "trace": ["base"],
    "memory/geometry": ["base"],
    "memory/pool": MEMORY_CORE,
    "memory/ledger": MEMORY_CORE + ["memory/pool"],
    "memory/prefix": MEMORY_CORE + ["memory/pool", "memory/ledger"],
    "memory/store": MEMORY_CORE + ["memory/pool", "memory/ledger", "memory/prefix"],
    # What the store would allocate, without one: it calls the store's own sizing.
    "memory/plan": MEMORY_CORE + ["memory/store"],
    "compute/tensor": ["base", "port"],
    "compute/kernels": MEMORY_CORE + ["compute/tensor"],
    "compute/gguf": ["base", "port"],
    "compute/tokenizer": ["base", "port", "compute/gguf"],
    "compute/model": MEMORY_CORE
    + ["compute/tensor", "compute/kernels", "compute/gguf", "compute/tokenizer"],
    # The scheduler is a library of its own: it decides with numbers it is given.
    "engine/scheduler": ["base"],
    "engine": MEMORY_CORE
    + ["memory/store", "engine/scheduler"]
    + ["compute/tensor", "compute/kernels", "compute/gguf", "compute/tokenizer", "compute/model"],
    "template": ["base"],
    "server": ["base", "port", "trace", "engine", "template", "compute/tokenizer", "compute/model",
               "memory/store", "memory/geometry"],
    # Product features that measure or prove the rest; nothing includes them but the command line.
    "verify": ["*"],
    "bench": ["*"],
    "cli": ["*"],
    # Fakes and generators for tests; never linked into the product.
    "testing": ["*"],
}
NEVER_INCLUDED = {"verify": ["cli"], "bench": ["cli"], "cli": [], "testing": []}
# Files of a module that has no folder of its own, by how their paths begin.
SCHEDULER_FILES = ("engine/scheduler", "engine/inflight_prefills")

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def module_of(path: str) -> str | None:
    """The module a path under src/ belongs to: the longest table row that is a prefix of it."""
    if path.startswith(SCHEDULER_FILES):
        return "engine/scheduler"
    best = None
    for module in ALLOWED:
        if path.startswith(module + "/"):
            if best is None or len(module) > len(best):
                best = module
    return best


def is_test(path: str) -> bool:
    return bool(re.search(r"_(test|fuzz|bench)\.cc$", path))


def check(root: pathlib.Path) -> list[str]:
    errors = []
    for file in sorted(list(root.rglob("*.h")) + list(root.rglob("*.cc"))):
        path = file.relative_to(root).as_posix()
        module = module_of(path)
        if module is None:
            errors.append(f"src/{path}: in no module of the layer table")
            continue
        for include in INCLUDE.findall(file.read_text(encoding="utf-8")):
            target = module_of(include)
            if target is None:
                if not (root / include).exists():
                    errors.append(f"src/{path}: includes \"{include}\", which is not under src/")
                continue
            if target == module:
                continue
            if target in NEVER_INCLUDED:
                allowed = module in NEVER_INCLUDED[target] or is_test(path)
            else:
                allowed = "*" in ALLOWED[module] or target in ALLOWED[module] or (
                    is_test(path) and target == "testing")
            if not allowed:
                errors.append(f"src/{path}: {module} may not include {target} (\"{include}\")")
    return errors


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent / "src"
    # The checker is itself checked: an upward arrow must be an error.
    assert module_of("engine/scheduler.h") == "engine/scheduler"
    assert module_of("engine/inflight_prefills.h") == "engine/scheduler"
    assert module_of("engine/engine.h") == "engine"
    assert "memory/store" not in ALLOWED["compute/model"]
    errors = check(root)
    for error in errors:
        print(error, file=sys.stderr)
    if not errors:
        count = sum(1 for _ in root.rglob("*.h")) + sum(1 for _ in root.rglob("*.cc"))
        print(f"layers: {count} files, every include points down")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
