"""Hyena (Poli et al. 2023, definition 3.1 and section 3.3) as plain sums over tokens, for tests/oracle/families.py. Names and shapes of parameters are
those of HyenaDNA's HyenaDNAForCausalLM."""
import torch
import torch.nn.functional as F
import transformers

NORM_EPS, SHIFT = 1e-5, .05


class Hyena(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.order, self.n_layers = config.get("hyena_order", 2), config["n_layer"]
        self.inner, self.width = config.get("num_inner_mlps", 2), config["d_model"]
        self.config = transformers.PretrainedConfig(tie_word_embeddings=False)
        self.config.model_type = config["model_type"]
        self.values = {name: torch.zeros(shape) for name, shape in self.shapes(config)}

    def shapes(self, config):
        d, length, filters, features = self.width, config["max_seq_len"], config["filter_order"], config.get("emb_dim", 3)
        multiple, wide, inner = config.get("pad_vocab_size_multiple", 8), (self.order + 1) * d, config.get("d_inner", 4 * d)
        vocab = -(-config["vocab_size"] // multiple) * multiple
        yield "hyena.backbone.embeddings.word_embeddings.weight", (vocab, d)
        yield "lm_head.weight", (vocab, d)
        norms = ["hyena.backbone.ln_f"]
        linears = []
        for i in range(self.n_layers):
            layer = f"hyena.backbone.layers.{i}."
            norms += [layer + "norm1", layer + "norm2"]
            linears += [(layer + "mixer.in_proj", wide, d), (layer + "mixer.out_proj", d, d), (layer + "mlp.fc1", inner, d), (layer + "mlp.fc2", d, inner)]
            yield layer + "mixer.short_filter.weight", (wide, 1, 3)
            yield layer + "mixer.short_filter.bias", (wide,)
            at = layer + "mixer.filter_fn."
            yield at + "bias", (d * (self.order - 1),)
            yield at + "pos_emb.z", (1, length, features)
            yield at + "pos_emb.t", (1, length, 1)
            yield at + "modulation.deltas", (1, 1, d * (self.order - 1))
            yield at + "implicit_filter.1.freq", (1, filters)
            linears += [(at + "implicit_filter.0", filters, features)]
            linears += [(f"{at}implicit_filter.{2 * j}", filters, filters) for j in range(1, self.inner + 1)]
            yield f"{at}implicit_filter.{2 * self.inner + 2}.weight", (d * (self.order - 1), filters)
        for name, rows, cols in linears:
            yield name + ".weight", (rows, cols)
            yield name + ".bias", (rows,)
        for norm in norms:
            yield norm + ".weight", (d,)
            yield norm + ".bias", (d,)

    def state_dict(self):
        return self.values

    def norm(self, x, name):
        return F.layer_norm(x, (x.shape[-1],), self.values[name + ".weight"], self.values[name + ".bias"], NORM_EPS)

    def linear(self, x, name):
        return x @ self.values[name + ".weight"].T + self.values.get(name + ".bias", 0)

    def filters(self, n, at):
        h, freq = self.values[at + "pos_emb.z"][0, :n], self.values[at + "implicit_filter.1.freq"]
        for j in range(self.inner + 1):
            h = torch.sin(freq * self.linear(h, f"{at}implicit_filter.{2 * j}"))
        h = self.linear(h, f"{at}implicit_filter.{2 * self.inner + 2}")
        return h * (torch.exp(-self.values[at + "pos_emb.t"][0, :n] * self.values[at + "modulation.deltas"][0].abs()) + SHIFT)

    def mixer(self, x, at):
        n, d, taps = len(x), self.width, self.values[at + "short_filter.weight"][:, 0]
        u = self.linear(x, at + "in_proj")
        before = torch.cat([torch.zeros(2, u.shape[1]), u])
        u = before[:-2] * taps[:, 0] + before[1:-1] * taps[:, 1] + u * taps[:, 2] + self.values[at + "short_filter.bias"]
        filters, skip, v = self.filters(n, at + "filter_fn."), self.values[at + "filter_fn.bias"], u[:, self.order * d:]
        for i in range(1, self.order):
            cut, gate = slice((i - 1) * d, i * d), u[:, (self.order - i) * d:(self.order - i + 1) * d]
            v = v * gate
            v = torch.stack([(filters[:t + 1, cut].flip(0) * v[:t + 1]).sum(0) for t in range(n)]) + skip[cut] * v
        return self.linear(v * u[:, :d], at + "out_proj")

    def forward(self, ids):
        x = self.values["hyena.backbone.embeddings.word_embeddings.weight"][ids[0]]
        for i in range(self.n_layers):
            layer = f"hyena.backbone.layers.{i}."
            x = x + self.mixer(self.norm(x, layer + "norm1"), layer + "mixer.")
            x = x + self.linear(F.gelu(self.linear(self.norm(x, layer + "norm2"), layer + "mlp.fc1"), approximate="tanh"), layer + "mlp.fc2")
        return ((self.norm(x, "hyena.backbone.ln_f") @ self.values["lm_head.weight"].T)[None],)
