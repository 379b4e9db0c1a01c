"""What the comparisons with peers share (rows.py): turns, thread policies, instruction sets, the table.

Every peer is a process of its own, which has ended before ours runs, and the other way round: threads that wait by spinning take no processor from
anybody. A peer runs under three policies for threads that wait: its default, spinning, and sleeping. The first turn tries all of them; those within a
tenth of the best take part in the other turns, and the best median counts. LLM_ISA binds peers, too."""
import fnmatch
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ROUNDS = int(os.environ.get("ROUNDS", "5"))
THREADS = os.environ.get("THREADS") or str(len(os.sched_getaffinity(0)))
PYTHON = os.environ.get("PYTHON", sys.executable)

POLICIES = {"default": {},
            "spinning": {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "infinite", "KMP_BLOCKTIME": "infinite"},
            "sleeping": {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}}
PEERS = os.environ.get("PEERS", "*")
TRIED = os.environ.get("POLICIES", " ".join(POLICIES)).split()
ISAS = {"avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "OPENBLAS_CORETYPE": "Haswell"},
        "avxvnni": {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "OPENBLAS_CORETYPE": "Haswell"},
        "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512",
                   "OPENBLAS_CORETYPE": "SkylakeX"},
        "avx512bf16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512",
                       "OPENBLAS_CORETYPE": "Cooperlake"},
        "amx": {}}
OWN = {name for values in (*POLICIES.values(), *ISAS.values()) for name in values}
COLUMNS = ("row", "isa", "threads", "unit", "ours", "peer", "ratio", "ratio_low", "ratio_high", "bar", "limit", "our_share", "peer_share", "verdict", "turns",
           "peer_name", "peer_version", "peer_policy", "peer_flags", "cpu")


class Failed(Exception):
    pass


def cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def environment(policy, packages=""):
    """That of a peer: nothing of the caller's policies, one instruction set for all; `packages`: a folder of Python packages."""
    kept = {name: value for name, value in os.environ.items() if name not in OWN}
    paths = {"PYTHONPATH": packages} if packages else {}
    return {**kept, **paths, "OMP_NUM_THREADS": THREADS, "OPENBLAS_NUM_THREADS": THREADS, "MKL_NUM_THREADS": THREADS, **POLICIES[policy],
            **ISAS.get(os.environ.get("LLM_ISA", ""), {})}


def run(command, env=None, stdin=None):
    """Standard output of a process that has ended."""
    done = subprocess.run(command, env=env, input=stdin, capture_output=True)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Failed(f"{pathlib.Path(command[0]).name} ended with status {done.returncode}: {said[-1] if said else 'no message'}")
    return done.stdout.decode()


def processor(command, stdin=None):
    """Standard output of a process that has ended, and the processor's seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = run(command, stdin=stdin)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peer(script, request, policy):
    """A peer's answer to a request: {"rates": {row: rate}, "version": ..., "flags": ...}."""
    return json.loads(run([PYTHON, str(HERE / script), json.dumps(request)], environment(policy)).splitlines()[-1])


def ours(*command):
    """The objects, one a line, that a program of ours prints with --json."""
    return [json.loads(line) for line in run(command).splitlines() if line.startswith("{")]


def isa():
    return ours("llm-bench", "kernels", "--peaks", "--json", "-j", THREADS)[0]["isa"]


class Table:
    def __init__(self, out):
        self.out, self.isa, self.cpu, self.missed = out, isa(), cpu(), 0
        self.put(COLUMNS)

    def put(self, cells):
        print("\t".join(cells), file=self.out, flush=True)

    def note(self, text):
        print(text, file=sys.stderr, flush=True)

    def compare(self, unit, mine, peers, bars, only="", share=None, threads=THREADS):
        """mine(): {row: (rate, limit, name of the limit)}; peers: {name: ask(policy)}; bars: {(row, peer name): least ratio}; share: our least share of the
        limit. Rows with `only` in their name. On one thread there is nobody to wait for: peers run under their default policy."""
        peers = {name: ask for name, ask in peers.items() if fnmatch.fnmatchcase(name, PEERS)}
        turns, theirs, told = [], {}, {}
        policies = {name: list(TRIED) if threads != "1" else ["default"] for name in peers}
        for turn in range(ROUNDS):
            try:
                turns.append(mine())
            except (Failed, KeyError, IndexError) as e:
                self.note(f"not measured: ours: {e}")
                self.missed += 1
                return
            for name, ask in peers.items():
                for policy in policies[name]:
                    try:
                        answer = ask(policy)
                    except (Failed, KeyError, IndexError, ValueError) as e:
                        self.note(f"not measured: {name}, {policy}: {e}")
                        policies[name] = [p for p in policies[name] if p != policy]
                        continue
                    theirs.setdefault((name, policy), []).append(answer["rates"])
                    told[name, policy] = answer
            if turn == 0:
                for name in peers:
                    policies[name] = self.worth(theirs, name, policies[name])
        for row in turns[0]:
            if only in row:
                for name in peers:
                    self.line(row, unit, turns, theirs, told, name, policies[name], bars.get((row, name)), share, threads)

    def worth(self, theirs, name, policies):
        """Policies within a tenth of the best in any row that is a speed."""
        first = {p: {row: rate for row, rate in theirs[name, p][0].items() if not row.endswith(", memory")} for p in policies if (name, p) in theirs}
        return [p for p in first if any(rate >= 0.9 * max(other.get(row, 0) for other in first.values()) for row, rate in first[p].items())]

    def line(self, row, unit, turns, theirs, told, name, policies, bar, least, threads):
        rates = {p: [t[row] for t in theirs[name, p] if row in t] for p in policies}
        rates = {p: values for p, values in rates.items() if len(values) == len(turns)}
        if not rates:
            self.missed += 1
            self.note(f"not measured: {row} beside {name}")
            return
        policy = next(iter(rates)) if row.endswith(", memory") else max(rates, key=lambda p: statistics.median(rates[p]))
        mine = [t[row][0] for t in turns]
        ratios = sorted(a / b for a, b in zip(mine, rates[policy]))
        ratio, a, b = statistics.median(ratios), statistics.median(mine), statistics.median(rates[policy])
        limits = [t[row][1] for t in turns if t[row][1]]
        limit = statistics.median(limits) if limits else None
        suspicious = limit is not None and b < limit / 10
        low = []
        if bar is not None and ratio < bar:
            low.append(f"MISSED: ratio below {bar:g}")
        if least is not None and limit is not None and a < least * limit:
            low.append(f"MISSED: share below {least:g}")
        self.missed += len(low)
        verdict = "; ".join(low) or ("-" if bar is None and least is None else "ok")
        verdict += ", suspicious peer: below a tenth of its limit" * suspicious
        share = lambda x: f"{x / limit:.3f}" if limit else "-"
        self.put((row, self.isa, threads, unit, f"{a:.4g}", f"{b:.4g}", f"{ratio:.3f}", f"{ratios[0]:.3f}", f"{ratios[-1]:.3f}",
                  f"{bar:g}" if bar is not None else "-", f"{limit:.4g} ({turns[0][row][2]})" if limit else "-", share(a), share(b), verdict, str(len(turns)),
                  name, told[name, policy].get("version", "-"), policy, told[name, policy].get("flags", "-"), self.cpu))
