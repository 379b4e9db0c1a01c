# 200 kills and signals at random moments, with every output compared (../fault/kills.sh).
load ../helper

@test "200 kills" {
    run -0 "$ROOT/tests/fault/kills.sh" "${KILLS:-200}" "${SEED:-$RANDOM}"
    printf '# %s\n' "${lines[@]}" >&3
}
