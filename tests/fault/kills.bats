# Kills and signals at random moments (kills.sh): a few here, hundreds in tests/slow.
load ../helper

@test "work that is killed at a random moment leaves its outputs as they were or whole, and a run goes on" {
    run -0 "$ROOT/tests/fault/kills.sh" 14 1
    echo "# ${lines[-1]}" >&3
}
