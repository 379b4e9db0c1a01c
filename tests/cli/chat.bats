# Conversations: llm-tokenize encode --chat, templates in checkpoints.
load ../helper

setup() {
    printf 'the cat sat on the mat, user and assistant\n' > corpus.txt
    llm-tokenize train -q --model byte --special '<|im_start|>' --special '<|im_end|>' -o tok.json corpus.txt
    printf '%s\n' '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes é"}]}' > talk.jsonl
}

# masked FILE: what the tokens with loss_mask 1 say.
masked() {
    python3 - "$1" <<'P' | llm-tokenize decode -T tok.json
import json, struct, sys
b = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n])
def part(name):
    a, z = h[name]["data_offsets"]
    return b[8 + n + a:8 + n + z]
size = 2 if h["ids"]["dtype"] == "U16" else 4
ids = struct.unpack("<%d%s" % (len(part("ids")) // size, "H" if size == 2 else "I"), part("ids"))
print(" ".join(str(i) for i, m in zip(ids, part("loss_mask")) if m))
P
}

@test "encode --chat: the template's text, and a mask over the assistant's turn with its end" {
    llm-tokenize encode -T tok.json --chat --chat-template chatml --text talk.jsonl | llm-tokenize decode -T tok.json > out.txt
    printf '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes é<|im_end|>\n' > want.txt
    diff -B want.txt out.txt
    need_tool python3 # reads the mask
    llm-tokenize encode -T tok.json --chat --chat-template chatml talk.jsonl > talk.tok
    run -0 masked talk.tok
    assert_output 'Yes é<|im_end|>'
}

# plain_template: t.jinja, which is chatml without {% generation %}.
plain_template() {
    printf '%s' "{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}" > t.jinja
}

@test "encode --chat: a long conversation, whose tokens are written as they are made" {
    local template tok
    seq 200000 | tr '\n' ' ' | head -c 699999 > user
    seq 300000 400000 | tr '\n' ' ' | head -c 599999 > assistant
    jq -cn --rawfile u user --rawfile a assistant '{messages: [{role: "user", content: $u}, {role: "assistant", content: ($a + "é\n\"A")},
        {role: "user", content: "x"}, {role: "assistant", content: "y"}]}' > long.jsonl
    { printf '<|im_start|>user\n'; cat user; printf '<|im_end|>\n<|im_start|>assistant\n'; cat assistant
      printf 'é\n"A<|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\ny<|im_end|>\n'; } > wanted
    plain_template
    jq '.normalizer = {type: "Lowercase"}' tok.json > lower.json # changes the text: its parts are encoded one by one
    for template in chatml t.jinja; do
        for tok in tok lower; do
            llm-tokenize encode -T $tok.json --chat --chat-template $template long.jsonl > $template.$tok
            llm-tokenize decode -T $tok.json $template.$tok | cmp - <(if [[ $tok == tok ]]; then cat wanted; else sed s/A/a/ wanted; fi)
            llm-tokenize encode -T $tok.json --chat --chat-template $template --text long.jsonl |
                llm-tokenize decode -T $tok.json | cmp - <(llm-tokenize decode -T $tok.json $template.$tok)
        done
    done
    cmp chatml.tok t.jinja.tok
    cmp chatml.lower t.jinja.lower
    need_tool python3 # reads the mask
    masked chatml.tok | cmp - <(cat assistant; printf 'é\n"A<|im_end|>y<|im_end|>')
    masked chatml.lower | cmp - <(cat assistant; printf 'é\n"a<|im_end|>y<|im_end|>')
}

@test "encode --chat: a template without {% generation %}, from a file and from the tokenizer's folder, masks the same" {
    plain_template
    llm-tokenize encode -T tok.json --chat --chat-template chatml talk.jsonl > a.tok
    llm-tokenize encode -T tok.json --chat --chat-template t.jinja talk.jsonl > b.tok
    cmp a.tok b.tok
    mkdir model
    cp tok.json model/tokenizer.json
    cp t.jinja model/chat_template.jinja
    llm-tokenize encode -T model/tokenizer.json --chat talk.jsonl > c.tok
    cmp a.tok c.tok
}

@test "encode --chat --add-generation-prompt ends with the assistant's header" {
    llm-tokenize encode -T tok.json --chat --chat-template chatml --add-generation-prompt --text talk.jsonl | llm-tokenize decode -T tok.json > out.txt
    run -0 tail -n 1 out.txt
    assert_output '<|im_start|>assistant'
}

@test "encode --chat: no template, an unknown one, a line that is no conversation, a template that refuses" {
    run -65 --separate-stderr llm-tokenize encode -T tok.json --chat talk.jsonl
    [[ $stderr == "llm-tokenize encode: tok.json: it comes without a chat template: "* ]]
    run -66 --separate-stderr llm-tokenize encode -T tok.json --chat --chat-template nosuch talk.jsonl
    [[ $stderr == *"nosuch: no such file, and no built-in chat template of that name" ]]
    printf '{"messages": 1}\n' > bad.jsonl
    run -65 --separate-stderr llm-tokenize encode -T tok.json --chat --chat-template chatml bad.jsonl
    [[ $stderr == *'bad.jsonl: line 1: expected an object with "messages", an array' ]]
    printf '{%% if true %%}\n{{ raise_exception("roles must alternate") }}{%% endif %%}' > t.jinja
    run -65 --separate-stderr llm-tokenize encode -T tok.json --chat --chat-template t.jinja talk.jsonl
    [[ $stderr == *"talk.jsonl: line 1: template: line 2: roles must alternate" ]]
    run -2 llm-tokenize encode -T tok.json --chat-template chatml talk.jsonl
    run -2 llm-tokenize encode -T tok.json --chat --lines talk.jsonl
}

@test "the chat template of a folder travels in the checkpoint made of it" {
    cp -r "$ROOT/tests/golden/tiny" model
    chmod -R u+w model
    printf '{"chat_template": "{%% for m in messages %%}{{ m.content }}{%% endfor %%}", "eos_token": "</s>",
        "model_max_length": 1000000000000000019884624838656}' > model/tokenizer_config.json
    llm-quantize -q -t bf16 model model.llm
    run -0 --separate-stderr llm-infer -m model.llm --chat --temp 0 -n 2 <<< 'Once upon'
    [[ -n $output ]]
}
