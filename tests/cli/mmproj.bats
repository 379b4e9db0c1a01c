# llama.cpp's mmproj files beside GGUF files of language models (tests/oracle/mmproj.py): the same numbers as the folders that they were made from.
load ../helper

setup() {
    G=$ROOT/tests/golden
    I=$G/image/rgb.png
    N=$G/llava_next/odd.png
}

# same NAME FOLDER ARGUMENT...: the logits of --logits ARGUMENT... with the GGUF files NAME are those with the golden FOLDER
same() {
    llm-infer -m "$G/mmproj/$1.gguf" --mmproj "$G/mmproj/$1-mmproj.gguf" --precision f32 --logits "${@:3}" -o got.logits
    llm-infer -m "$G/$2" --precision f32 --logits "${@:3}" -o want.logits
    elements got.logits logits > got
    elements want.logits logits > want
    near_range got want 1e-6
}

@test "LLaVA 1.5, LLaVA-NeXT and SmolVLM: logits are those of the folders" {
    same llava llava --ids --image "$I" "1 41 5 17 33 2"
    same llava_next llava_next/llama --ids --image "$N" --image "$I" "1 8 41 9 41 30"
    same smolvlm idefics3/smolvlm --image "$N" "what is<image> it"
    same smolvlm idefics3/smolvlm "what is it"
}

@test "--chat, --jsonl, embeddings that were kept, a language model that is quantised" {
    local of=(--mmproj "$G/mmproj/smolvlm-mmproj.gguf" --precision f32 --temp 0 -n 12 --regex '[what isb]{8}')
    ask() { llm-infer -m "$G/mmproj/smolvlm.gguf" "${of[@]}" "$@"; }
    ask --image "$N" "<image>what" > want
    llm-infer -m "$G/idefics3/smolvlm" "${of[@]:2}" --image "$N" "<image>what" | cmp - want
    echo "{\"prompt\": \"<image>what\", \"image\": \"$N\"}" | ask --jsonl - | jq -r .text | cmp - want
    llm-infer -m "$G/mmproj/smolvlm.gguf" --mmproj "$G/mmproj/smolvlm-mmproj.gguf" --precision f32 --embed --image "$N" -o one.emb
    ask --image one.emb "<image>what" | cmp - want
    printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > chat.jinja
    ask --chat --chat-template chat.jinja --image "$N" "what" > got
    llm-infer -m "$G/idefics3/smolvlm" "${of[@]:2}" --chat --chat-template chat.jinja --image "$N" "what" | cmp - got
    llm-quantize -q -t q8_0 "$G/mmproj/smolvlm.gguf" small.gguf
    llm-infer -m small.gguf "${of[@]}" --image "$N" "<image>what" > got
    assert_equal "$(wc -c < got)" 9
}

@test "files that do not belong together: status and one line" {
    local text=$G/mmproj/llava.gguf tower=$G/mmproj/llava-mmproj.gguf
    refused 65 "expected a model, found the vision tower of one" llm-infer -m "$tower" "a"
    refused 65 "general.architecture: expected clip (llama.cpp's mmproj), found llama" llm-infer -m "$text" --mmproj "$text" "a"
    refused 65 "expected the GGUF file of a language model beside --mmproj, found a folder" llm-infer -m "$G/llava" --mmproj "$tower" "a"
    refused 65 "expected the GGUF file of a language model beside --mmproj, found another format" llm-infer -m "$G/llava/model.safetensors" --mmproj "$tower" "a"
    refused 65 "config.json: expected" llm-infer -m "$text" --mmproj "$G/llava/config.json" "a"
    refused 66 "none.gguf: No such file" llm-infer -m "$text" --mmproj none.gguf "a"
    refused 65 "" llm-infer -m "$text" --mmproj <(head -c 5000 "$tower") "a"
    run -2 llm-infer -m - --mmproj - "a" < "$text"
    refused 69 "expected a model that reads pictures" llm-infer -m "$text" --image "$I" "a"
    sed 's/mlp/ldp/' "$tower" > other.gguf
    refused 69 "other.gguf: clip.projector_type: expected mlp or idefics3, found ldp" llm-infer -m "$text" --mmproj other.gguf "a"
    sed 's/clip.vision.block_count/clip.vision.block_coune/' "$tower" > other.gguf
    refused 65 "clip.vision.block_count: expected a number, found none" llm-infer -m "$text" --mmproj other.gguf "a"
    sed 's/mm.2.bias/mm.3.bias/' "$tower" > other.gguf
    refused 65 "tensor 'mm.2.bias': expected" llm-infer -m "$text" --mmproj other.gguf "a"
}
