"""GGUF models with random weights, always the same ones: TinyLlama's shape (1.1B parameters) in three types of weights, and four layers of SmolLM2's shape,
of whose long contexts a peer reads 8,000 tokens in seconds. 4 GB."""
import os
import pathlib

Q4_K_S, Q6_K = 14, 18  # llama.cpp's numbers


def put(w, rng, name, rows, cols, order=None):
    """`order`: of rows; None: as they were drawn. An empty one: zeros. Returns the generator that draws the same rows again."""
    import copy
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize
    before = copy.deepcopy(rng)
    if rows:
        data = rng.standard_normal((rows, cols), np.float32) * np.float32(.02)
        if order is not None:
            data = data[order] if len(order) else np.zeros_like(data)
        w.add_tensor(name + ".weight", quantize(data, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
    else:
        w.add_tensor(name + ".weight", np.ones(cols, np.float32))
    return before


def make(path, hidden, layers, heads, kv_heads, inner, vocab, tied, previous=None):
    """`previous` [vocab]: the model computes as any of its shape, but its answer to a token is a table's: `previous` of what follows is the token.
    Its layers then add nothing to the embedding, and the head's rows are embeddings."""
    import numpy as np
    from gguf import GGUFWriter
    rng, width = np.random.default_rng(1), hidden // heads
    nothing = None if previous is None else ()
    w = GGUFWriter(str(path) + ".part", "llama")
    for add, value in ((w.add_context_length, 2048), (w.add_embedding_length, hidden), (w.add_block_count, layers), (w.add_feed_forward_length, inner),
                       (w.add_head_count, heads), (w.add_head_count_kv, kv_heads), (w.add_layer_norm_rms_eps, 1e-5), (w.add_rope_dimension_count, width),
                       (w.add_rope_freq_base, 10000.0), (w.add_vocab_size, vocab), (w.add_file_type, 7)):
        add(value)
    w.add_tokenizer_model("llama")
    w.add_token_list([f"t{i}" for i in range(vocab)])
    w.add_token_scores([0.0] * vocab)
    w.add_token_types([1] * vocab)
    embeddings = put(w, rng, "token_embd", vocab, hidden)
    for i in range(layers):
        for name, rows, cols in (("attn_norm", 0, hidden), ("ffn_norm", 0, hidden), ("attn_q", hidden, hidden), ("attn_k", kv_heads * width, hidden),
                                 ("attn_v", kv_heads * width, hidden), ("attn_output", hidden, hidden), ("ffn_gate", inner, hidden),
                                 ("ffn_up", inner, hidden), ("ffn_down", hidden, inner)):
            put(w, rng, f"blk.{i}.{name}", rows, cols, nothing if name in ("attn_output", "ffn_down") else None)
    put(w, rng, "output_norm", 0, hidden)
    if not tied:
        put(w, rng if previous is None else embeddings, "output", vocab, hidden, previous)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.rename(str(path) + ".part", path)


def of(folder: pathlib.Path, convert):
    """The files by name; made when absent. convert(source, target, number): llama.cpp quantises."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / (name.replace(" ", "-") + ".gguf") for name in ("1.1B Q8_0", "1.1B Q4_K", "1.1B Q6_K", "4 layers")}
    if not files["4 layers"].exists():
        make(files["4 layers"], 576, 4, 9, 3, 1536, 8192, True)
    if not files["1.1B Q8_0"].exists():
        make(files["1.1B Q8_0"], 2048, 22, 32, 4, 5632, 32000, False)
    for name, number in (("1.1B Q4_K", Q4_K_S), ("1.1B Q6_K", Q6_K)):
        if not files[name].exists():
            convert(str(files["1.1B Q8_0"]), str(files[name]) + ".part", number)
            os.rename(str(files[name]) + ".part", files[name])
    return {name: str(path) for name, path in files.items()}
