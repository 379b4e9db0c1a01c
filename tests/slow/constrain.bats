# Texts under the schemas of JSONSchemaBench, judged by PyPI's jsonschema.
load ../helper

@test "no text under 500 schemas is invalid, and at most 5% of the schemas are refused" {
    need_tool python3
    need_shared json-schema/schemabench/schemas.jsonl
    python3 -c 'import jsonschema' 2> /dev/null || skip "no jsonschema for Python"
    python3 "$ROOT/tests/oracle/constrained.py" "$ROOT/tests/golden/tiny" "$SHARED/data/json-schema/schemabench/schemas.jsonl" > found
    cat found
    [[ $(tail -n 1 found) =~ ^"stop "([0-9]+)" length "[0-9]+" refused "([0-9]+)" invalid 0"$ ]]
    ((BASH_REMATCH[1] > 200 && BASH_REMATCH[2] <= 25))
}
