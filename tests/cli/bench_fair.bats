# The part that all comparisons with peers share (tests/bench/fair.py), beside a peer that is made up.
load ../helper

setup() {
    need_tool python3
    mkdir bin
    cat > bin/llm-bench << 'END'
#!/bin/sh
echo '{"peak":"f32","value":100,"unit":"GFLOP/s","threads":2,"isa":"avx2","cpu":"none"}'
END
    chmod +x bin/llm-bench
    # Its speed depends on how its threads wait; it says what it was told, and leaves a trace while it lives.
    cat > peer.py << 'END'
import json, os, sys
open("alive", "w").close()
policy = os.environ.get("OMP_WAIT_POLICY", "default")
rate = {"active": 50, "passive": 4, "default": 48}[policy] if json.loads(sys.argv[1])["fast"] else 3
os.unlink("alive")
print(json.dumps({"rates": {"work": rate}, "version": "peer 1", "flags": os.environ.get("ONEDNN_MAX_CPU_ISA", "none") + " " + os.environ["OMP_NUM_THREADS"]}))
END
    cat > compare.py << 'END'
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
import fair
asked = []
def ask(fast):
    def run(policy):
        asked.append((fast, policy))
        return fair.peer(pathlib.Path("peer.py").resolve(), {"fast": fast}, policy)
    return run
def ours():
    assert not os.path.exists("alive"), "a peer lives while ours runs"
    return {"work": (60, 100, "f32")}
table = fair.Table(sys.stdout)
table.compare("GFLOP/s", ours, {"fast": ask(True), "slow": ask(False)}, {("work", "fast"): 1.5, ("work", "slow"): 1.5})
print(" ".join(policy for fast, policy in asked if fast), file=sys.stderr)
sys.exit(table.missed)
END
}

@test "three policies in the first turn, those that are worth it in the others; the best counts; a slow peer is suspicious" {
    export OMP_WAIT_POLICY=passive ROUNDS=3 THREADS=2 PATH=$PWD/bin:$PATH
    run -1 --separate-stderr python3 compare.py "$ROOT/tests/bench"
    assert_equal "$stderr" "default spinning sleeping default spinning default spinning"
    assert_equal "$(cut -f 1-14 <<< "${lines[1]}")" \
        $'work\tavx2\t2\tGFLOP/s\t60\t50\t1.200\t1.200\t1.200\t1.5\t100 (f32)\t0.600\t0.500\tMISSED: ratio below 1.5'
    assert_equal "$(cut -f 15-19 <<< "${lines[1]}")" $'3\tfast\tpeer 1\tspinning\tnone 2'
    [[ $(cut -f 14 <<< "${lines[2]}") == 'ok, suspicious peer: below a tenth of its limit' ]]
    assert_equal "$(head -n 1 <<< "$output" | tr '\t' '\n' | wc -l)" "$(awk -F '\t' 'NR == 2 { print NF }' <<< "$output")"
}

@test "LLM_ISA binds peers too; what cannot be measured is said and counts as missed" {
    export ROUNDS=1 THREADS=2 PATH=$PWD/bin:$PATH LLM_ISA=avx2
    run --separate-stderr python3 compare.py "$ROOT/tests/bench"
    [[ $(cut -f 19 <<< "${lines[1]}") == 'AVX2 2' ]]
    echo 'raise SystemExit("no such library")' > peer.py
    run -2 --separate-stderr python3 compare.py "$ROOT/tests/bench"
    [[ ${#lines[@]} == 1 && $stderr == *'not measured: fast, default: '*'no such library'* && $stderr == *'not measured: work beside slow'* ]]
}

@test "tests/bench/all: a group that does not exist is named" {
    run -2 --separate-stderr env VENV="$PWD" PYTHON=python3 FOLDER="$PWD/kept" bash -c 'mkdir -p bin; ln -s "$(command -v python3)" bin/python; "$0" dancing' "$ROOT/tests/bench/all"
    assert_equal "$stderr" "all: dancing: expected products, attention, training, inference, pictures, sentences or tokenising"
}
