#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks every query of the Grafana dashboard of a Prometheus that scrapes a running server.

Starts `tessera serve` on the bundled model and `prometheus` beside it, sends requests that share
prompts under a budget too small for all, and fails when a query of a panel is refused or has no
answer, when one of its series is of no metric that the server has, or when `promtool check metrics`
objects to the page. Wants Debian's prometheus package. Half a minute.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRAPE_S = 1
RATE_INTERVAL = "10s"
LOAD_S = 15
TEXT = "Ada left the red kite in the barn. The code of the mill is 4821. " * 3


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read()


def wait_for(url: str, what: str, process: subprocess.Popen) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"{what} ended with {process.returncode} at its start")
        try:
            get(url)
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    sys.exit(f"{what} was not ready within a minute")


def complete(base: str, prompt: str) -> None:
    body = json.dumps({"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True})
    request = urllib.request.Request(
        f"{base}/v1/completions", body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        reply.read()


def client(base: str, which: int, until: float) -> int:
    """Goes through sixty texts, asking about each twice, until the time is up."""
    asked = 0
    while time.monotonic() < until:
        day = asked // 2 % 60 + 100 * which
        complete(base, f"Log of day {day}. {TEXT}\nQ: {asked % 7}\nA:")
        asked += 1
    return asked


def load(base: str, until: float) -> int:
    with concurrent.futures.ThreadPoolExecutor(2) as clients:
        return sum(clients.map(lambda which: client(base, which, until), range(2)))


def queries(dashboard: dict):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def answer(prometheus: str, query: str) -> list:
    query = query.replace("$__rate_interval", RATE_INTERVAL)
    url = f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    return json.loads(get(url))["data"]["result"]


def check_queries(prometheus: str, dashboard: dict, families: set[str]) -> list[str]:
    errors = []
    for title, query in queries(dashboard):
        names = set(re.findall(r"\btessera_[a-z0-9_]+", query))
        for name in names:
            if name not in families and re.sub(r"_(bucket|sum|count)$", "", name) not in families:
                errors.append(f"{title}: the server has no {name}")
        try:
            series = answer(prometheus, query)
        except urllib.error.HTTPError as error:
            errors.append(f"{title}: {query}: {error.read().decode()}")
            continue
        if not series:
            errors.append(f"{title}: {query}: no answer")
        elif all(one["value"][1] == "NaN" for one in series):
            errors.append(f"{title}: {query}: not a number")
    return errors


def promtool(page: bytes) -> list[str]:
    run = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
    return [] if run.returncode == 0 else ["promtool: " + run.stderr.decode().strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", default=ROOT / "build/release/bin/tessera")
    parser.add_argument("--model", default=ROOT / "models/harbour-2.8m-q8_0.gguf")
    options = parser.parse_args()
    dashboard = json.loads((ROOT / "dashboards/tessera.json").read_text())
    base = f"http://127.0.0.1:{free_port()}"
    prometheus = f"http://127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "prometheus.yml")
        config.write_text(
            f"global: {{scrape_interval: {SCRAPE_S}s}}\n"
            "scrape_configs:\n"
            "  - job_name: tessera\n"
            f"    static_configs: [{{targets: ['{base.removeprefix('http://')}']}}]\n")
        log = pathlib.Path(folder, "requests.jsonl")
        # A budget of some forty texts, and S2, so that there are slabs and reclaims.
        server = subprocess.Popen(
            [options.tessera, "serve", options.model, "--port", base.rsplit(":", 1)[1],
             "--budget", "8MiB", "--organisation", "s2:block=64", "--request-log", log],
            stderr=subprocess.DEVNULL)
        scraper = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={prometheus.removeprefix('http://')}", "--log.level=error"])
        try:
            wait_for(f"{base}/health", "tessera serve", server)
            wait_for(f"{prometheus}/-/ready", "prometheus", scraper)
            asked = load(base, time.monotonic() + LOAD_S)
            page = get(f"{base}/metrics")
            time.sleep(2 * SCRAPE_S)
            families = set(re.findall(r"^# TYPE (\S+)", page.decode(), re.MULTILINE))
            errors = promtool(page) + check_queries(prometheus, dashboard, families)
        finally:
            for process in (server, scraper):
                process.terminate()
            for process in (server, scraper):
                process.wait(timeout=60)
        records = [json.loads(line) for line in log.read_text().splitlines()]
    if len(records) != asked:
        errors.append(f"{asked} requests left {len(records)} records")
    if errors:
        print("\n".join(errors))
        return 1
    count = sum(1 for _ in queries(dashboard))
    print(f"dashboard: {count} queries answered, {len(families)} metrics, {asked} requests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
