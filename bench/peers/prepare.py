# SPDX-License-Identifier: Apache-2.0
"""What a run needs before it measures: the peer's packages, model files, the machine's facts."""

import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess

from engine import PeersError

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NODE_MAJOR_MIN = 20
FREE_BYTES_MIN = {"packages": 300 << 20, "a model": 2 << 30}


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def output_of(command: list[str]) -> str:
    """What a command that has to succeed writes."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PeersError(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise PeersError(f"{' '.join(command)}: exit code {done.returncode}: "
                         f"{last_line(done.stderr)}")
    return done.stdout.strip()


def check_disk(work: pathlib.Path, what: str) -> None:
    free = shutil.disk_usage(work).free
    if free < FREE_BYTES_MIN[what]:
        raise PeersError(f"{work}: {what} needs {FREE_BYTES_MIN[what] >> 20} MiB, {free >> 20} MiB "
                         "are free; --work names another place")


def check_node() -> str:
    if shutil.which("node") is None:
        raise PeersError(f"node is not installed: llama.cpp runs in it (Node.js {NODE_MAJOR_MIN} "
                         "or newer)")
    version = output_of(["node", "--version"])
    if int(version.lstrip("v").split(".")[0]) < NODE_MAJOR_MIN:
        raise PeersError(f"node: expected version {NODE_MAJOR_MIN} or newer, found {version}")
    return version


def install_peer(work: pathlib.Path, say) -> pathlib.Path:
    """node_modules with the versions of package.json, the other platforms' binaries left out."""
    packages = work / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    wanted = (HERE / "package.json").read_text(encoding="utf-8")
    if all(installed_version(packages, name) == version
           for name, version in json.loads(wanted)["dependencies"].items()):
        return packages
    if shutil.which("npm") is None:
        raise PeersError("npm is not installed: it installs node-llama-cpp")
    check_disk(work, "packages")
    say("installing node-llama-cpp")
    (packages / "package.json").write_text(wanted, encoding="utf-8")
    done = subprocess.run(["npm", "install", "--ignore-scripts", "--omit=optional", "--no-audit",
                           "--no-fund", "--no-package-lock", "--loglevel=error"],
                          cwd=packages, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # The first line has the code (ECONNREFUSED, ENOSPC); the last ones are advice.
        error = (done.stderr.strip() or "no message").splitlines()[0]
        raise PeersError(f"npm install in {packages}: exit code {done.returncode}: {error} "
                         "(is there a network?)")
    return packages


def installed_version(packages: pathlib.Path, name: str) -> str | None:
    path = packages / "node_modules" / name / "package.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))["version"]
    except (FileNotFoundError, ValueError, KeyError):  # what an interrupted installation leaves
        return None


def model_file(tessera: str, work: pathlib.Path, geometry: str, weights: str, seed: int,
               say) -> pathlib.Path:
    path = work / f"{geometry}-{weights}-{seed}.gguf"
    if path.exists():
        return path
    check_disk(work, "a model")
    say(f"making {path.name}")
    # Under another name until it is whole: an interrupted run must not leave half a model.
    part = path.with_name(path.name + ".part")
    done = subprocess.run([tessera, "bench", "make-model", "--geometry", geometry, "--type",
                           weights, "--seed", str(seed), str(part)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        part.unlink(missing_ok=True)
        raise PeersError(f"cannot make the {weights} model (--types leaves it out): "
                         f"{last_line(done.stderr)}")
    part.rename(path)
    return path


def random_tokens(count: int, vocabulary: int, seed: int) -> list[int]:
    """x' = 1664525·x + 1013904223 mod 2^32; a token is made of its upper half, the better one."""
    tokens, x = [], seed & 0xFFFFFFFF
    for _ in range(count):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        tokens.append((x >> 16) % vocabulary)
    return tokens


def read_bandwidth(tessera: str, threads: int) -> float:
    """GB/s that this many threads read from memory now, the best of several ways."""
    report = output_of([tessera, "bench", "kernels", "--threads", str(threads), "--seconds", "1",
                        "--only", "add_residual", "--json"])
    return max(ceiling["bytes_per_second"] for ceiling in json.loads(report)["ceilings"]
               if ceiling["what"] == "read") / 1e9


def machine(tessera: str) -> dict:
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True,
                            text=True, check=False).stdout.strip()
    version = output_of([tessera, "--version"])
    if not version.startswith("tessera "):
        raise PeersError(f"{tessera}: expected tessera, but --version says "
                         f"'{version.partition(chr(10))[0]}'")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": name[1] if name else "unknown",
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "tessera": version,
        "source_commit": commit or None,  # of the checkout, which the binary may be older than
    }
