# SPDX-License-Identifier: Apache-2.0
"""One run of one cell: a fresh server, its warm-up, then the load of `tessera bench serve`.

Both engines get the same requests at the same times from the same client. The budget is half of
what `tessera plan` says eight whole contexts take in S3; of llama.cpp's slots as many are opened
as hold a whole context each in the same bytes.
"""

import dataclasses
import json
import pathlib
import re
import subprocess

import llama
import prepare
from cells import Cell
from engine import PeersError
from tessera import HttpServer, free_port

SERVER = pathlib.Path(__file__).resolve().parent / "llama_server.mjs"
SLOT_CELLS = 256  # node-llama-cpp rounds a slot's context up to it
WARMUP_SEED = 1 << 20
METRICS = {
    "preempted": r'^tessera_preemptions_total\{[^}]*\} (\S+)$',
    "refused": r'^tessera_reservations_refused_total\{[^}]*\} (\S+)$',
    "recomputed_after_preemption": r'^tessera_recomputed_tokens_total (\S+)$',
}


@dataclasses.dataclass(frozen=True)
class Load:
    contexts: int = 8
    tokens: int = 1500
    question: int = 12
    answer: int = 24
    questions: int = 108
    rate: float = 12.0

    @property
    def sequence(self) -> int:
        return self.tokens + self.question + self.answer


@dataclasses.dataclass(frozen=True)
class Budget:
    bytes: int
    whole_bytes: int   # what all contexts together take in S3
    slot_bytes: int    # of llama.cpp: a context's KV in 16 bits, the state of one sequence in 32
    slots: int


def plan_budget(tessera: str, model: pathlib.Path, load: Load) -> Budget:
    plan = json.loads(prepare.output_of([
        tessera, "plan", str(model), "--users", str(load.contexts), "--context",
        str(load.sequence), "--organisation", "s3", "--state", "fp32", "--json"]))
    state = plan["states"]["fp32"]
    whole = state["organisations"][0]["budget_for_users_bytes"]
    kinds = {kind["kind"]: kind["model_bytes"] for kind in state["kinds"]}
    cells = -(-load.sequence // SLOT_CELLS) * SLOT_CELLS
    # llama.cpp keeps the convolution's state in 32 bits, Tessera in 16.
    slot = cells * kinds["attention"] + kinds["ssm"] + 2 * kinds["conv"]
    budget = whole // 2
    return Budget(budget, whole, slot, max(1, budget // slot))


class Measurement:
    def __init__(self, tessera: str, model: pathlib.Path, threads: int, load: Load,
                 work: pathlib.Path):
        self.tessera = tessera
        self.model = model
        self.threads = threads
        self.load = load
        self.work = work
        self.budget = plan_budget(tessera, model, load)
        self.packages: pathlib.Path | None = None
        self.choice: llama.Choice | None = None

    def prepare_peer(self, say) -> None:
        """Its packages, and whether flash attention and mmap make it faster here."""
        prepare.check_node()
        self.packages = prepare.install_peer(self.work, say)

        def make(choice: llama.Choice) -> llama.LlamaCpp:
            return llama.LlamaCpp(self.packages, self.model, self.threads, 1, self.load.sequence,
                                  choice, self.work / "llama.cpp.log")

        prompt = prepare.random_tokens(self.load.tokens, 512, 1)
        self.choice = llama.choose(make, prompt, self.load.answer, say)

    def about(self) -> dict:
        version = prepare.installed_version(self.packages, "node-llama-cpp")
        return {"version": f"node-llama-cpp {version}", "choice": str(self.choice)}

    def server(self, cell: Cell) -> HttpServer:
        port = free_port()
        if cell.engine == "tessera":
            command = [self.tessera, "serve", str(self.model), "--port", str(port), "--threads",
                       str(self.threads), "--budget", str(self.budget.bytes), *cell.flags]
        else:
            command = ["node", str(SERVER), str(self.packages), str(self.model), "--port",
                       str(port), "--threads", str(self.threads), "--slots",
                       str(self.budget.slots), "--context", str(self.load.sequence)]
            command += ["--flash"] * self.choice.flash + ["--mmap"] * self.choice.mmap
            command += [] if cell.reuse else ["--no-cache"]
        return HttpServer(cell.name, command, port, self.work / "server.log")

    def run(self, cell: Cell, seed: int) -> dict:
        with self.server(cell) as server:
            warm = dataclasses.replace(self.load, questions=4)
            self._ask(server, warm, WARMUP_SEED, rate="inf")
            before = self._counters(server, cell)
            report = self._ask(server, self.load, seed, rate=str(self.load.rate))
            after = self._counters(server, cell)
        return sample(report, {name: after[name] - before[name] for name in after})

    def _ask(self, server: HttpServer, load: Load, seed: int, rate: str) -> dict:
        command = [self.tessera, "bench", "serve", "--url", f"http://127.0.0.1:{server.port}",
                   "--workload", f"shared-context:contexts={load.contexts},tokens={load.tokens},"
                   f"questions={load.questions},question={load.question}",
                   "--output-len", str(load.answer), "--ignore-eos", "--request-rate", rate,
                   "--repeats", "1", "--seed", str(seed), "--clear-cache", "--request-timeout",
                   "300", "--json"]
        # In a group of its own, so that Ctrl-C reaches only the caller.
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, start_new_session=True)
        try:
            out, err = client.communicate()
        except BaseException:
            client.kill()
            client.wait()
            raise
        if server.process.child.poll() is not None:
            raise server.process.complain(server.name)
        if client.returncode != 0:
            raise PeersError(f"{server.name}: tessera bench serve: exit code {client.returncode}: "
                             f"{prepare.last_line(err)}")
        report = json.loads(out)
        if report["failed"] > 0:
            raise PeersError(f"{server.name}: {report['failed']} of {load.questions} requests "
                             "failed")
        return report

    @staticmethod
    def _counters(server: HttpServer, cell: Cell) -> dict:
        out = {"cpu_seconds": server.process.cpu_seconds()}
        if cell.engine != "tessera":
            stats = json.loads(server.get("/stats")[1])
            return out | {"batches": stats["batches"]}
        text = server.get("/metrics")[1]
        return out | {name: sum(map(float, re.findall(pattern, text, re.MULTILINE)))
                      for name, pattern in METRICS.items()}


def sample(report: dict, counters: dict) -> dict:
    """Keys of `tessera bench serve`, tokens in units of one."""
    keys = ("duration", "completed", "request_throughput", "output_throughput", "median_ttft_ms",
            "p99_ttft_ms", "median_tpot_ms", "p99_e2el_ms", "max_concurrent_requests",
            "total_input_tokens", "cached_tokens", "repeated_input_tokens",
            "recomputed_input_tokens", "client_busy_share")
    out = {key: report[key] for key in keys if key in report}
    out |= {key: value for key, value in report.items() if key.startswith("cache_")}
    out["computed_tokens"] = out.get("cache_forward_tokens",
                                     out["total_input_tokens"] - out["cached_tokens"])
    # Of all CPUs in use; waiting threads that spin are in it.
    out["cpus_busy"] = counters["cpu_seconds"] / report["duration"]
    return out | counters
