#!/usr/bin/env python3
"""Values inside of models, as transformers computes them in FP32 (hidden states and hooks), beside those of `llm-infer --export`.

Usage: tests/oracle/inside.py golden                 (from the checkout: makes tests/golden/inside/expected.json of tests/golden/tiny)
       tests/oracle/inside.py lens                   (makes tests/golden/inside/lens.json by lens.safetensors, a lens of tests/golden/tiny: llm-train)
       tests/oracle/inside.py compare LLM_INFER      (five families with random weights: largest distance / range at every place that they have, from
                                                     the checkout; status 1 above 5e-6)
Needs torch, transformers."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

IDS = [17, 42, 5, 99, 120, 7, 64, 33, 250, 11, 12, 13]


def places_of(model, ids):
    """{place: [tokens, width]} by hooks, in the spelling of lib/model/spec/place.c."""
    out = {}
    kind = model.config.model_type
    base = model.transformer if kind == "gpt2" else model.gpt_neox if kind == "gpt_neox" else model.model
    layers = base.h if kind == "gpt2" else base.layers

    def put(name, value):
        out[name] = value.detach().float().reshape(-1, value.shape[-1])

    def after(name):
        return lambda module, args, result: put(name, result[0] if isinstance(result, tuple) else result)

    def before(name):
        return lambda module, args, kwargs: put(name, args[0] if args else kwargs["hidden_states"])

    def split(at, groups):
        """A product that gives queries, keys and values: of all heads, one after another (1 group), or head by head."""
        def hook(module, args, result):
            parts = result.reshape(len(ids), groups, 3, -1).unbind(2)
            for letter, part in zip("qkv", parts):
                put(f"{at}attention.{letter}", part.reshape(len(ids), -1))
        return hook

    # rotation is a function of the family's module, called once a layer
    family = sys.modules[type(model).__module__]
    rotate, calls = getattr(family, "apply_rotary_pos_emb", None), []

    def rotated(q, k, *args, **kwargs):
        pair = rotate(q, k, *args, **kwargs)
        calls.append(pair)
        return pair
    if rotate:
        family.apply_rotary_pos_emb = rotated
    handles = []
    for i, layer in enumerate(layers):
        at = f"layers.{i}."
        attention = layer.attn if kind == "gpt2" else layer.attention if kind == "gpt_neox" else layer.self_attn
        project = attention.c_proj if kind == "gpt2" else attention.dense if kind == "gpt_neox" else attention.o_proj
        down = layer.mlp.c_proj if kind == "gpt2" else layer.mlp.dense_4h_to_h if kind == "gpt_neox" else layer.mlp.down_proj
        first = layer.mlp.c_fc if kind == "gpt2" else layer.mlp.dense_h_to_4h if kind == "gpt_neox" else layer.mlp.gate_proj
        handles += [layer.register_forward_pre_hook(before(at + "residual.before"), with_kwargs=True),
                    layer.register_forward_hook(after(at + "residual.after")),
                    attention.register_forward_pre_hook(before(at + "attention.input"), with_kwargs=True),
                    project.register_forward_pre_hook(before(at + "attention.heads"), with_kwargs=True),
                    first.register_forward_pre_hook(before(at + "mlp.input"), with_kwargs=True),
                    down.register_forward_pre_hook(before(at + "mlp.hidden"), with_kwargs=True)]
        if kind not in ("gemma2",):  # there a norm follows before the residual
            handles += [project.register_forward_hook(after(at + "attention.output")), down.register_forward_hook(after(at + "mlp.output"))]
        else:
            handles += [layer.post_attention_layernorm.register_forward_hook(after(at + "attention.output")),
                        layer.post_feedforward_layernorm.register_forward_hook(after(at + "mlp.output"))]
        if kind in ("llama", "qwen2", "gemma2"):
            handles += [layer.mlp.gate_proj.register_forward_hook(after(at + "mlp.gate")),
                        layer.mlp.up_proj.register_forward_hook(after(at + "mlp.up"))]
        else:
            handles.append(first.register_forward_hook(after(at + "mlp.up")))
        if kind in ("llama", "qwen2", "gemma2"):
            handles += [attention.q_proj.register_forward_hook(after(at + "attention.q")),
                        attention.k_proj.register_forward_hook(after(at + "attention.k")),
                        attention.v_proj.register_forward_hook(after(at + "attention.v"))]
        else:
            joined = attention.c_attn if kind == "gpt2" else attention.query_key_value
            handles.append(joined.register_forward_hook(split(at, model.config.num_attention_heads if kind == "gpt_neox" else 1)))
        norm = {"gpt2": "ln_2", "gemma2": "pre_feedforward_layernorm", "gpt_neox": None}.get(kind, "post_attention_layernorm")
        if norm:
            handles.append(getattr(layer, norm).register_forward_pre_hook(before(at + "residual.between"), with_kwargs=True))
    norm = base.ln_f if kind == "gpt2" else base.final_layer_norm if kind == "gpt_neox" else base.norm
    handles.append(norm.register_forward_hook(after("final_norm")))
    with torch.no_grad():
        result = model(torch.tensor([ids]), output_hidden_states=True)
    for h in handles:
        h.remove()
    if rotate:
        family.apply_rotary_pos_emb = rotate
        for i, pair in enumerate(calls):
            for letter, x in zip("qk", pair):  # [1, heads, tokens, width]
                put(f"layers.{i}.attention.{letter}_rotated", x[0].transpose(0, 1).reshape(len(ids), -1))
    if kind == "gpt_neox":  # attention and MLP read one residual; attention is added first
        for i in range(len(layers)):
            put(f"layers.{i}.residual.between", out[f"layers.{i}.residual.before"] + out[f"layers.{i}.attention.output"])
    put("embedding", result.hidden_states[0])
    put("logits", result.logits)
    assert torch.equal(result.hidden_states[1].reshape(len(ids), -1), out["layers.0.residual.after"])
    return out


def exported(program, folder, places):
    arguments = [x for p in places for x in ("--export", p)]
    data = subprocess.run([program, "-q", "-m", folder, "--precision", "f32", "--ids", *arguments, " ".join(map(str, IDS))], check=True,
                          stdout=subprocess.PIPE).stdout
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    out = {}
    for name, t in header.items():
        if name != "__metadata__" and t["dtype"] == "F32":
            begin, end = t["data_offsets"]
            out[name] = torch.frombuffer(bytearray(data[8 + n + begin:8 + n + end]), dtype=torch.float32).reshape(t["shape"])
    return out


def places_named(program, folder):
    """The places of llmutils(7) that the program exports of the model, of layer 1 and outside of layers."""
    page = pathlib.Path("man/llmutils.7").read_text().split(".Sh PLACES IN A MODEL")[1].split(".Sh")[0]
    names = re.findall(r"^\.It Cm (\S+)$", page, re.M)
    ask = [program, "-q", "-m", folder, "--ids", "--export"]
    found = [p for n in names for p in (n, "layers.1." + n)
             if subprocess.run([*ask, p, "1 2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0]
    assert len(found) > 10
    return set(found)


def families():
    from transformers import Gemma2Config, GPT2Config, GPTNeoXConfig, LlamaConfig, Qwen2Config
    common = dict(vocab_size=300, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=128,
                  bos_token_id=None, eos_token_id=0, initializer_range=0.2)
    yield LlamaConfig(**common, num_key_value_heads=2)
    yield Qwen2Config(**common, num_key_value_heads=2)
    yield GPTNeoXConfig(**common, rotary_pct=0.5)
    yield Gemma2Config(**common, num_key_value_heads=2, head_dim=16, sliding_window=8)
    yield GPT2Config(vocab_size=300, n_embd=64, n_layer=3, n_head=4, n_positions=128, bos_token_id=None, eos_token_id=0, initializer_range=0.2)


def compare(program):
    worst = 0
    for config in families():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        with torch.no_grad():
            for p in model.parameters():
                if p.dim() == 1:
                    p.add_(0.3 * torch.randn_like(p))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            want = places_of(model, IDS)
            assert places_named(program, folder) <= set(want), places_named(program, folder) - set(want)
            have = exported(program, folder, sorted(want))
        assert set(have) == set(want), set(want) ^ set(have)
        for name in sorted(want):
            far = ((have[name] - want[name]).abs().max() / (want[name].max() - want[name].min())).item()
            worst = max(worst, far)
            if far > 5e-6:
                print(f"{config.model_type} {name}: {far:.3g}")
        print(f"{config.model_type}: {len(want)} places, {worst:.3g} so far")
    return worst <= 5e-6


def lens():
    """KL(last layer || tuned lens), nats, of each token after each layer, in FP64."""
    from safetensors.torch import load_file
    maps = load_file("tests/golden/inside/lens.safetensors")
    model = AutoModelForCausalLM.from_pretrained("tests/golden/tiny", dtype=torch.float64, attn_implementation="eager").eval()
    with torch.no_grad():
        result = model(torch.tensor([IDS]), output_hidden_states=True)
        last = torch.log_softmax(result.logits[0], -1)
        out = []
        for n in range(model.config.num_hidden_layers - 1):
            h = result.hidden_states[n + 1][0]
            h = h + h @ maps[f"layers.{n}.lens.weight"].double().T + maps[f"layers.{n}.lens.bias"].double()
            ours = torch.log_softmax(model.lm_head(model.model.norm(h)), -1)
            out.append([round(x, 8) for x in (last.exp() * (last - ours)).sum(-1).tolist()])
    pathlib.Path("tests/golden/inside/lens.json").write_text(json.dumps({"ids": IDS, "kl": out}) + "\n")


if sys.argv[1] == "compare":
    sys.exit(0 if compare(sys.argv[2]) else 1)
if sys.argv[1] == "lens":
    lens()
    sys.exit()
model = AutoModelForCausalLM.from_pretrained("tests/golden/tiny", dtype=torch.float32, attn_implementation="eager").eval()
out = pathlib.Path("tests/golden/inside")
out.mkdir(exist_ok=True)
rows = [0, 5, len(IDS) - 1]
values = {name: [[float(f"{x:.8g}") for x in v[r].tolist()] for r in rows] for name, v in places_of(model, IDS).items()}
(out / "expected.json").write_text(json.dumps({"ids": IDS, "rows": rows, "places": values}) + "\n")
