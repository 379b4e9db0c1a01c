"""RWKV 5.2 and 6 (Peng et al. 2024, "Eagle and Finch", section 4) and 7 (Peng et al. 2025, "Goose", section 4) as plain loops over tokens, for
tests/oracle/families.py. Names and shapes of parameters are those of Rwkv5ForCausalLM and Rwkv6ForCausalLM in RWKV's folders for transformers, and of
flash-linear-attention's RWKV7ForCausalLM."""
import math

import torch
import torch.nn.functional as F
import transformers

NORM_EPS = 1e-5
HEAD_EPS = {5: 1e-5, 6: 64e-5}  # as the programs that run the models have it: those of version 6 divide by 8 before a norm with 1e-5


def before(x):
    """Each token's predecessor; zeros before the first."""
    return torch.cat([torch.zeros_like(x[:1]), x[:-1]])


class Rwkv(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.version = int(config["model_type"][-1])
        self.width, self.size, self.n_layers = config["hidden_size"], config["head_size"], config["num_hidden_layers"]
        self.attention = config.get("attention_hidden_size", self.width)
        self.inner, self.vocab = config["intermediate_size"], config["vocab_size"]
        self.config = transformers.PretrainedConfig(tie_word_embeddings=False)
        self.config.model_type = config["model_type"]
        self.values = {}
        for name, shape in self.shapes(config):
            self.values[name] = torch.zeros(shape)

    def shapes(self, config):
        c, n, heads = self.width, self.attention, (self.attention // self.size, self.size)
        yield "rwkv.embeddings.weight", (self.vocab, c)
        yield "head.weight", (self.vocab, c)
        norms = ["rwkv.ln_out", "rwkv.blocks.0.pre_ln"]
        for i in range(self.n_layers):
            block = f"rwkv.blocks.{i}."
            norms += [block + "ln1", block + "ln2"]
            for part in "key", "value", "receptance", "gate":
                yield f"{block}attention.{part}.weight", (n, c)
            yield block + "attention.output.weight", (c, n)
            yield block + "attention.ln_x.weight", (n,)
            yield block + "attention.ln_x.bias", (n,)
            yield block + "attention.time_faaaa", heads
            yield block + "feed_forward.key.weight", (self.inner, c)
            yield block + "feed_forward.receptance.weight", (c, c)
            yield block + "feed_forward.value.weight", (c, self.inner)
            yield from (self.shapes5 if self.version == 5 else self.shapes6)(block, config, heads)
        for norm in norms:
            yield norm + ".weight", (c,)
            yield norm + ".bias", (c,)

    def shapes5(self, block, config, heads):
        yield block + "attention.time_decay", heads
        for part in "attention.time_mix_key attention.time_mix_value attention.time_mix_receptance attention.time_mix_gate \
                feed_forward.time_mix_key feed_forward.time_mix_receptance".split():
            yield block + part, (1, 1, self.width)

    def shapes6(self, block, config, heads):
        mix, decay = config.get("mix_rank", 32), config.get("decay_rank", 64)
        for part in "xwkvrg":
            yield f"{block}attention.time_maa_{part}", (1, 1, self.width)
        yield block + "attention.time_maa_w1", (self.width, 5 * mix)
        yield block + "attention.time_maa_w2", (5, mix, self.width)
        yield block + "attention.time_decay", (1, 1, self.attention)
        yield block + "attention.time_decay_w1", (self.width, decay)
        yield block + "attention.time_decay_w2", (decay, self.attention)
        for part in "kr":
            yield f"{block}feed_forward.time_maa_{part}", (1, 1, self.width)

    def state_dict(self):
        return self.values

    def norm(self, x, name):
        return F.layer_norm(x, (x.shape[-1],), self.values[name + ".weight"], self.values[name + ".bias"], NORM_EPS)

    def linear(self, x, name):
        return x @ self.values[name + ".weight"].T

    def inputs5(self, x, at):
        def mixed(part):
            share = self.values[f"{at}time_mix_{part}"].flatten()
            return self.linear(share * x + (1 - share) * before(x), at + part)
        decay = torch.exp(-torch.exp(self.values[at + "time_decay"])).flatten().expand(len(x), -1)
        return mixed("receptance"), mixed("key"), mixed("value"), mixed("gate"), decay

    def inputs6(self, x, at):
        delta, low = before(x) - x, {}
        base = torch.tanh((x + delta * self.values[at + "time_maa_x"][0]) @ self.values[at + "time_maa_w1"]).chunk(5, dim=-1)
        for part, h, w in zip("wkvrg", base, self.values[at + "time_maa_w2"]):
            low[part] = x + delta * (self.values[f"{at}time_maa_{part}"][0] + h @ w)
        decay = self.values[at + "time_decay"][0] + torch.tanh(low["w"] @ self.values[at + "time_decay_w1"]) @ self.values[at + "time_decay_w2"]
        made = [self.linear(low[part], at + name) for part, name in zip("rkvg", ("receptance", "key", "value", "gate"))]
        return *made, torch.exp(-torch.exp(decay))

    def time_mixing(self, x, at):
        r, k, v, gate, decay = (self.inputs5 if self.version == 5 else self.inputs6)(x, at)
        bonus, out = self.values[at + "time_faaaa"], torch.zeros_like(v)
        for head in range(self.attention // self.size):
            cut = slice(head * self.size, (head + 1) * self.size)
            state = torch.zeros(self.size, self.size)
            for t in range(len(x)):
                new = torch.outer(k[t, cut], v[t, cut])
                out[t, cut] = r[t, cut] @ (state + bonus[head][:, None] * new)
                state = decay[t, cut][:, None] * state + new
        out = F.group_norm(out, self.attention // self.size, self.values[at + "ln_x.weight"], self.values[at + "ln_x.bias"], HEAD_EPS[self.version])
        return self.linear(out * F.silu(gate), at + "output")

    def channel_mixing(self, x, at):
        def mixed(long, short):
            if self.version == 5:
                share = self.values[at + "time_mix_" + long][0]
                return share * x + (1 - share) * before(x)
            return x + (before(x) - x) * self.values[at + "time_maa_" + short][0]
        key = torch.relu(self.linear(mixed("key", "k"), at + "key")) ** 2
        return torch.sigmoid(self.linear(mixed("receptance", "r"), at + "receptance")) * self.linear(key, at + "value")

    def forward(self, ids):
        x = self.norm(self.values["rwkv.embeddings.weight"][ids[0]], "rwkv.blocks.0.pre_ln")
        for i in range(self.n_layers):
            block = f"rwkv.blocks.{i}."
            x = x + self.time_mixing(self.norm(x, block + "ln1"), block + "attention.")
            x = x + self.channel_mixing(self.norm(x, block + "ln2"), block + "feed_forward.")
        return (self.linear(self.norm(x, "rwkv.ln_out"), "head")[None],)


class Rwkv7(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.size, self.n_layers = config["head_dim"], config["num_hidden_layers"]
        self.config = transformers.PretrainedConfig(tie_word_embeddings=False)
        self.config.model_type = config["model_type"]
        self.values = {name: torch.zeros(shape) for name, shape in self.shapes(config)}

    def shapes(self, config):
        c, vocab, inner = config["hidden_size"], config["vocab_size"], config["intermediate_size"]
        yield "model.embeddings.weight", (vocab, c)
        yield "lm_head.weight", (vocab, c)
        norms = ["model.norm", "model.layers.0.pre_norm"]
        for i in range(self.n_layers):
            layer = f"model.layers.{i}."
            norms += [layer + "attn_norm", layer + "ffn_norm", layer + "attn.g_norm"]
            for part in "rwkvag":
                yield f"{layer}attn.x_{part}", (1, 1, c)
            for part in "rkvo":
                yield f"{layer}attn.{part}_proj.weight", (c, c)
            for part, rank in ("w", "decay"), ("a", "a"), ("v", "v"), ("g", "gate"):
                if part == "v" and i == 0:
                    continue
                rank = config[rank + "_low_rank_dim"]
                yield f"{layer}attn.{part}_lora.lora.0.weight", (rank, c)
                yield f"{layer}attn.{part}_lora.lora.2.weight", (c, rank)
                if part != "g":
                    yield f"{layer}attn.{part}_lora.lora.2.bias", (c,)
            yield layer + "attn.k_k", (c,)
            yield layer + "attn.k_a", (c,)
            yield layer + "attn.r_k", (c // self.size, self.size)
            yield layer + "ffn.x_k", (c,)
            yield layer + "ffn.key.weight", (inner, c)
            yield layer + "ffn.value.weight", (c, inner)
        for norm in norms:
            yield norm + ".weight", (c,)
            yield norm + ".bias", (c,)

    def state_dict(self):
        return self.values

    def norm(self, x, name):
        return F.layer_norm(x, (x.shape[-1],), self.values[name + ".weight"], self.values[name + ".bias"], NORM_EPS)

    def low_rank(self, x, at, act):
        return act(x @ self.values[at + "_lora.lora.0.weight"].T) @ self.values[at + "_lora.lora.2.weight"].T + self.values.get(at + "_lora.lora.2.bias", 0)

    def time_mixing(self, x, at, first):
        delta, same = before(x) - x, lambda y: y
        mixed = {part: x + delta * self.values[f"{at}x_{part}"][0] for part in "rwkvag"}
        r, k, v = (mixed[part] @ self.values[f"{at}{part}_proj.weight"].T for part in "rkv")
        decay = torch.exp(-torch.sigmoid(self.low_rank(mixed["w"], at + "w", torch.tanh)) / math.sqrt(math.e))
        rate = torch.sigmoid(self.low_rank(mixed["a"], at + "a", same))
        gate = self.low_rank(mixed["g"], at + "g", torch.sigmoid)
        if first is None:
            first = v
        else:
            v = v + (first - v) * torch.sigmoid(self.low_rank(mixed["v"], at + "v", same))
        direction, out = k * self.values[at + "k_k"], torch.zeros_like(v)
        k = k * (1 + (rate - 1) * self.values[at + "k_a"])
        heads = x.shape[1] // self.size
        cuts = [slice(head * self.size, (head + 1) * self.size) for head in range(heads)]
        for cut in cuts:
            state = torch.zeros(self.size, self.size)  # values by keys, as in the paper
            for t in range(len(x)):
                unit = direction[t, cut] / torch.linalg.norm(direction[t, cut])
                state = state @ (torch.diag(decay[t, cut]) - torch.outer(unit, rate[t, cut] * unit)) + torch.outer(v[t, cut], k[t, cut])
                out[t, cut] = state @ r[t, cut]
        out = F.group_norm(out, heads, self.values[at + "g_norm.weight"], self.values[at + "g_norm.bias"], self.size * NORM_EPS)
        for cut, bonus in zip(cuts, self.values[at + "r_k"]):
            out[:, cut] += (r[:, cut] * k[:, cut] * bonus).sum(1, keepdim=True) * v[:, cut]
        return (out * gate) @ self.values[at + "o_proj.weight"].T, first

    def channel_mixing(self, x, at):
        key = (x + (before(x) - x) * self.values[at + "x_k"]) @ self.values[at + "key.weight"].T
        return torch.relu(key) ** 2 @ self.values[at + "value.weight"].T

    def forward(self, ids):
        x, first = self.norm(self.values["model.embeddings.weight"][ids[0]], "model.layers.0.pre_norm"), None
        for i in range(self.n_layers):
            layer = f"model.layers.{i}."
            y, first = self.time_mixing(self.norm(x, layer + "attn_norm"), layer + "attn.", first)
            x = x + y
            x = x + self.channel_mixing(self.norm(x, layer + "ffn_norm"), layer + "ffn.")
        return ((self.norm(x, "model.norm") @ self.values["lm_head.weight"].T)[None],)
