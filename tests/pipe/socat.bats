# llmutils(7)'s lines of socat, as they stand but for the port.
load ../helper

@test "a port of socat's answers as llmutils(7) says, though the answer comes after the last line" {
    local lines port pid i
    need_tool socat
    mapfile -t lines < <(sed -n '/^\.Dl .*socat/ { s/^\.Dl //; s/\\(dq/"/g; p; }' "$ROOT/man/llmutils.7")
    [[ ${#lines[@]} == 2 ]]
    ln -s "$ROOT/tests/golden/tiny" model.llm
    mkdir slow # answers when socat has long seen the end of the lines
    printf '#!/bin/sh\nsleep 2\nexec %q "$@"\n' "$(command -v llm-infer)" > slow/llm-infer
    chmod +x slow/llm-infer
    for port in $((20000 + RANDOM % 20000)) $((20000 + RANDOM % 20000)) $((20000 + RANDOM % 20000)); do
        PATH=$PWD/slow:$PATH bash -c "exec ${lines[0]//8080/$port}" 2> errors 3>&- &
        pid=$!
        for ((i = 0; i < 100; i++)); do
            kill -0 $pid 2> /dev/null || break
            grep -qi ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp && break 2
            sleep .1
        done
    done
    run -0 --separate-stderr bash -c "${lines[1]//8080/$port}"
    kill $pid
    [[ $output == '{"id":1,"text":'*'"prompt_tokens":4,'* ]]
}
