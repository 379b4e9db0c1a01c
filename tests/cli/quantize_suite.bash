# What the suites of llm-quantize's methods begin with: m.llm, a model of LAYERS (2) layers that counts, the text that it was trained on, and numbers that
# it has not seen.
load ../helper

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    cd "$BATS_FILE_TMPDIR"
    counting_model "${LAYERS:-2}" -b 4 --steps 30 --lr 3e-3 --precision f32
    seq 2000 2400 > held
}

setup() {
    [[ -z ${SANITIZER-} ]] || skip "minutes under $SANITIZER, which the unit tests of this code run under"
    M=$BATS_FILE_TMPDIR/m.llm
    TEXT=$BATS_FILE_TMPDIR/text
    HELD=$BATS_FILE_TMPDIR/held
    CALIBRATE=(--calibrate "$TEXT" --calibrate-tokens "${CALIBRATE_TOKENS:-640}" --calibrate-context 64)
    MEASURE=(--measure "$HELD" --measure-tokens "${MEASURE_TOKENS:-600}")
}
