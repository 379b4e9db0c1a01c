/* The operations. Each is one file in tensor/op/: forward, backward and its gradient-check row together (tensor/gradcheck.h).
 * x, y: [tokens, width] unless said. All sums over tokens that make parameter gradients fold blocks of 256 tokens within a row, rows in
 * order (llm_matmul_dw says how). Nothing here depends on the number of threads. */
#ifndef LLM_TENSOR_OPS_H
#define LLM_TENSOR_OPS_H

#include "base/rng.h"
#include "cpu/kernels/elementwise.h"
#include "tensor/tensor.h"

/* y[t] = table[ids[t]]; any dtype of table. ids are checked by the caller to be below table->shape[0]. `lookup` gradient goes to grad_lookup when
 * the parameter has one. scale multiplies (1: none; Gemma's sqrt(hidden)). */
struct llm_tensor *llm_embedding(struct llm_ctx *c, const int32_t *ids, int64_t n, struct llm_param *table, float scale);
/* y = x + PE(positions), Vaswani 2017 3.5: sin at even, cos at odd channels, base 10000. */
struct llm_tensor *llm_add_sinusoidal(struct llm_ctx *c, struct llm_tensor *x, const int32_t *positions);
/* y[t] = given[row[t]], or x[t] if row[t] is -1. `row` [tokens] must live until the backward pass. */
struct llm_tensor *llm_replace(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *given, const int32_t *row);
/* y = x·wᵀ + b; b may be NULL. */
struct llm_tensor *llm_linear(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct llm_param *b);
/* y[i] = llm_linear(c, x, w[i], b[i]) for n ≤ LLM_MATMUL_MOST; without a tape in one call of the threads, x converted once. Same bits. */
void llm_linears(struct llm_ctx *c, struct llm_tensor *x, int n, struct llm_param *const *w, struct llm_param *const *b, struct llm_tensor **y);
struct llm_tensor *llm_layernorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, struct llm_param *bias, float eps);
/* The same of each of `groups` runs of channels by itself, gain and bias by channel (op/groupnorm.c). */
struct llm_tensor *llm_groupnorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, struct llm_param *bias, int64_t groups, float eps);
/* The same without biases, where the gain of run k is the parameter gains[k]. `gains` must live until the backward pass. */
struct llm_tensor *llm_groupnorm_each(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *const *gains, int64_t groups, float eps);
/* y = (x - mean) / sqrt(var + eps) ⊙ gain + bias with mean and (biased) variance of each channel over all tokens of the pass when training, else the
 * running ones (op/batchnorm.c). On the way back the pass's mean and unbiased variance are added to the running ones' grad. bias may be NULL. */
struct llm_tensor *llm_batchnorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, struct llm_param *bias, struct llm_param *mean,
                                 struct llm_param *var, float eps);
/* gain_offset: 0, or 1 where the file stores gain - 1 (Gemma). Also over runs of `group` columns (q/k norm: group = head_dim; else cols), which
 * share a gain of [group] or have their own of [cols]. */
struct llm_tensor *llm_rmsnorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, float eps, float gain_offset, int64_t group);

enum llm_rope_pairing { LLM_ROPE_HALVES /* (i, i + d/2): Hugging Face Llama, NeoX */, LLM_ROPE_INTERLEAVED /* (2i, 2i+1): original */ };
struct llm_rope {
    int64_t head_dim, rotary_dim;     /* rotary_dim channels of each head turn, from `first` on */
    enum llm_rope_pairing pairing;
    const float *inv_freq;            /* [rotary_dim / 2], scaling variants already applied (model/config) */
    float magnitude;                  /* YaRN's attention factor; 1 */
    int64_t first;                    /* channels of each head before those that turn */
};
/* Turns each head of x by positions[t]·inv_freq (angles in double, then float). */
struct llm_tensor *llm_rope(struct llm_ctx *c, struct llm_tensor *x, const int32_t *positions, const struct llm_rope *r);

/* Columns [from, from + width) of each of n_heads heads. */
struct llm_tensor *llm_heads_part(struct llm_ctx *c, struct llm_tensor *x, int64_t n_heads, int64_t from, int64_t width);
/* Each head of a with that of b behind it; shared: b is one head, which comes behind all. */
struct llm_tensor *llm_heads_join(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b, int64_t n_heads, bool shared);
/* Each head times its own weight: x [tokens, n_heads·k], w: n_heads of [n, k] → [tokens, n_heads·n]. Not recorded. */
struct llm_tensor *llm_heads_linear(struct llm_ctx *c, struct llm_tensor *x, struct llm_weight *w, int64_t n_heads);

/* enum llm_act is that of cpu/kernels/elementwise.h. "gelu", "gelu_new"/"gelu_pytorch_tanh", "relu", "silu"/"swish", "sigmoid", "tanh"; -1 when
 * unknown. */
int llm_act_find(const char *hf_name);
struct llm_tensor *llm_activation(struct llm_ctx *c, struct llm_tensor *x, enum llm_act act);
/* act(gate) ⊙ up: SwiGLU (silu), GeGLU (gelu). */
struct llm_tensor *llm_gated(struct llm_ctx *c, struct llm_tensor *gate, struct llm_tensor *up, enum llm_act act);
struct llm_tensor *llm_softmax(struct llm_ctx *c, struct llm_tensor *x);
struct llm_tensor *llm_add(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b);
/* The same; nobody else reads b: where its values are spare the sum takes their place. */
struct llm_tensor *llm_add_over(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b);
struct llm_tensor *llm_scale(struct llm_ctx *c, struct llm_tensor *x, float factor);
/* What `e` makes of x: x itself if that is recomputed for the backward pass (llm_ctx.passing), else a copy. The gradient passes to x as it is. */
struct llm_tensor *llm_edit(struct llm_ctx *c, struct llm_tensor *x, const struct llm_inner *e);
/* y[i] = x[rows[i]], rows[n] in any order and number; -1: a row of zeros. `rows` must live until the backward. */
struct llm_tensor *llm_gather(struct llm_ctx *c, struct llm_tensor *x, const int32_t *rows, int64_t n);
/* y[r] = the mean of the first lengths[r] ≥ 1 rows of the r-th of n runs of rows of one length; lengths must live until the backward. */
struct llm_tensor *llm_row_mean(struct llm_ctx *c, struct llm_tensor *x, const int32_t *lengths, int64_t n);
/* y[r] = x[r] / |x[r]|; zeros stay. */
struct llm_tensor *llm_unit(struct llm_ctx *c, struct llm_tensor *x);
/* Zero with probability p, the rest × 1/(1-p), by counter (seed, step, layer, site, global row, position, channel). p = 0 or not training:
 * returns x itself. */
struct llm_tensor *llm_dropout(struct llm_ctx *c, struct llm_tensor *x, float p, enum llm_rng_site site);

/* Row `row` of w as products use it: decoded, with what its adapter adds. k floats. */
void llm_adapter_decode(const struct llm_param *w, int64_t row, float *out);

/* ---- attention (op/attention.c; kernels in cpu/kernels/attention.c) ---- */
enum llm_chunk_part { LLM_CHUNK_OWN, LLM_CHUNK_BEFORE, LLM_CHUNK_EARLIER };
struct llm_attn {
    int64_t n_heads, n_kv_heads, d_k, d_v; /* q [tokens, n_heads·d_k], k [.., n_kv_heads·d_k], v [.., n_kv_heads·d_v] → [tokens, n_heads·d_v] */
    float scale;                /* usually 1/sqrt(d_k) */
    bool causal;
    int64_t window;             /* 0: none; key j is seen by query i when |i - j| < window (and j ≤ i when causal) */
    int64_t prefix;             /* the first `prefix` keys of a document are seen by all its queries (prefix LM); 0 */
    const int32_t *prefixes;    /* [tokens]: the same for each document, read at its first token; NULL: `prefix`. Not of caches, whose seqs say it */
    const int32_t *doc_start;   /* [tokens]: for each token the position in its row where its document begins; NULL: 0. Nothing before is seen. */
    int64_t kv_row_len;         /* cross-attention: rows of k/v have this length; 0: row_len */
    const int32_t *kv_len;      /* [n_rows]: keys beyond are masked; NULL: all */
    int64_t chunk;              /* 0; else query i, in chunk i / chunk, sees of the keys before it those of a part alone (dual chunk attention): */
    enum llm_chunk_part chunk_part; /* of its own chunk, of the one before, of all earlier ones */
    float softcap;              /* s = softcap·tanh(s/softcap); 0: none */
    struct llm_param *sinks;    /* [n_heads]: a logit that takes probability and gives nothing; NULL */
    struct llm_param *rel_bias; /* [n_heads, 2·rel_max - 1] added to scores at clamp(j - i) + rel_max - 1; NULL */
    int64_t rel_max;
    const int32_t *rel_map;     /* NULL, or [2·rel_max - 1]: rel_bias is [rel_buckets, n_heads], and rel_map says which row serves a distance (T5) */
    int64_t rel_buckets;
    int64_t rel_use;            /* whose accumulator of rel_bias takes the gradient: the layer's, where layers share it */
    float dropout;              /* on probabilities */
};
/* Tiled online softmax: 64-key tiles from the document's start, chunks of 1,024 keys merged left to right. Memory linear in row_len.
 * *lse (may be NULL) gets [tokens, n_heads], the log-sum-exp of each query's scores. */
struct llm_tensor *llm_attention(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v, const struct llm_attn *a,
                                 struct llm_tensor **lse);

/* One layer of one sequence's KV cache, as lib/infer keeps it: tiles of 64 keys, tile i holding positions 64i..64i+63 as [n_kv_heads][64][d]. */
#define LLM_KV_TILE 64
struct llm_kv_view {
    void *const *k, *const *v;  /* tiles; enough of them for pos + n tokens. v NULL: a value is the first d_v channels of its key */
    enum llm_dtype dtype;       /* F32, F16, BF16, Q8_0, Q4_0 */
};
/* A run of new tokens of one sequence: rows [first, first + n) of q, k, v stand at positions pos .. pos + n - 1. */
struct llm_kv_seq {
    int64_t first, n, pos;
    struct llm_kv_view view;
    int64_t prefix;             /* the first so many keys are seen by all the new tokens */
    int64_t n_keys;             /* 0, or how many keys are all there are, wherever the tokens stand: cross-attention, with k and v NULL */
    float *queries;             /* NULL, or a ring of n_queries rows [n_heads·d_k]: the query at position p is copied to row p mod n_queries */
    int64_t n_queries;
    float *state;               /* of recurrent layers: what is kept whatever the length, as it stands before the run and, afterwards, behind it */
};
/* Stores k and v of the new tokens in their caches, then attends: the same bits as llm_attention over the whole row when the cache dtype is the
 * compute type's. Not recorded. k and v NULL: another layer has stored them. */
struct llm_tensor *llm_attention_cached(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                        const struct llm_attn *a, const struct llm_kv_seq *seqs, int64_t n_seqs);

/* The same, and the log-sum-exp of each query's scores, [tokens, n_heads]. */
struct llm_tensor *llm_attention_cached_lse(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                            const struct llm_attn *a, const struct llm_kv_seq *seqs, int64_t n_seqs, struct llm_tensor **lse);
/* Dual chunk attention: queries turned for the keys of their own chunk of a->chunk tokens, of the one before, of earlier ones. seqs NULL: k and v are
 * all there is. Not recorded. */
struct llm_tensor *llm_attention_chunks(struct llm_ctx *c, struct llm_tensor *const q[3], struct llm_tensor *k, struct llm_tensor *v,
                                        const struct llm_attn *a, const struct llm_kv_seq *seqs, int64_t n_seqs);

/* ---- mixture of experts (op/route.c, op/mixture.c) ---- */
#define LLM_MOST_EXPERTS 1024
struct llm_route {
    int64_t k;                  /* experts a token */
    bool sigmoid;               /* probabilities of each expert by itself (DeepSeek-V3); else softmax over all */
    bool normalise;             /* weights are shares of what the chosen ones have together */
    double scale;               /* of the weights */
    int64_t n_group, topk_group, group_top; /* n_group > 1: only experts of the topk_group best groups, by the sum of each one's group_top best */
    struct llm_param *bias;     /* [experts] or NULL: added when choosing, not when weighing; its grad counts tokens (llm_param.balances) */
    bool straight_through;      /* weights are 1/k, their gradient that of shares */
    bool gumbel;                /* training: choice and weights from softmax((logits + Gumbel noise) / temperature) */
    double temperature;
    double capacity;            /* training: an expert takes capacity·k·row_len/experts tokens of a row, those that come first; 0: all */
    double balance;             /* coefficient of the loss for an even load (op/route.c), over all routers of a pass, by rows of the batch */
    double z;                   /* coefficient of logsumexp² of a token's logits. Both losses count × llm_ctx.token_weight a token */
};
/* x: logits [tokens, experts] → weights [tokens, k]. *experts: [tokens, k], ascending in a token, on `acts`; negative: no room there, weight 0.
 * The backward adds what it sees to ctx's router report. */
struct llm_tensor *llm_route(struct llm_ctx *c, struct llm_tensor *x, const struct llm_route *o, const int32_t **experts);
/* Gated feed-forwards: gate and up [width, hidden], down [hidden, width], one of each an expert. */
struct llm_experts {
    int64_t n;
    struct llm_param *const *gate, *const *up, *const *down; /* [n] */
    enum llm_act act;
    const struct llm_inner *inner; /* looks at the inputs of `down`, [tokens, k·width], a token's slots side by
                                    * side (0 if no expert had room); NULL */
};
/* y[t] = Σ over slots, experts ascending: weights[t, s] · down(act(gate(x[t])) ⊙ up(x[t])). */
struct llm_tensor *llm_mixture(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *weights, const int32_t *experts,
                               const struct llm_experts *o);

/* Stores alone: rows [first, first + n) of k and v become the keys and values at pos … of each sequence. llm_attention_cached with n_keys and
 * without k and v then has the bits of llm_attention with kv_row_len = n_keys. */
void llm_attention_store(struct llm_ctx *c, struct llm_tensor *k, struct llm_tensor *v, const struct llm_attn *a, const struct llm_kv_seq *seqs,
                         int64_t n_seqs);

/* ---- recurrences over time ---- */
/* A run of tokens that a recurrence goes through in order: rows [first, first + n), n ≥ 1. Runs do not overlap and are independent of each other. */
struct llm_segment {
    int64_t first, n;
    const float *from;          /* the state before the first token; NULL: 0. No gradient goes there */
    float *to;                  /* where the state behind the last token goes; may be `from`; NULL: nowhere */
};
/* op/recurrent.c. x: [tokens, gates·width], what the inputs give to each gate → y = h [tokens, width], gates 1 (tanh) or 4 (LSTM: i, f, g, o).
 * h[t] = cell(x[t] + w·h[t-1] + b); w [gates·width, width], b [gates·width] or NULL. The state of a segment: h, and of an LSTM c behind it.
 * Segments cover all rows; they are copied. */
struct llm_recurrent { bool lstm; const struct llm_segment *segments; int64_t n_segments; };
struct llm_tensor *llm_recurrent(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct llm_param *b, const struct llm_recurrent *o);

/* op/short_conv.c. y[t] = silu(b + Σ_j w[·, j] ⊙ x[t - k + 1 + j]), without `silu` the sum itself, each channel by itself; w [cols, k],
 * b [cols] or NULL. The state of a segment: its last k - 1 inputs, oldest first. Copies segments. */
struct llm_tensor *llm_short_conv(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct llm_param *b, bool silu,
                                  const struct llm_segment *segments, int64_t n_segments);
/* op/window.c. y[t] = x[t - k + 1], …, x[t] side by side, [tokens, k·cols]. The state of a segment as of the convolution. Copies segments. */
struct llm_tensor *llm_window(struct llm_ctx *c, struct llm_tensor *x, int64_t k, const struct llm_segment *segments, int64_t n_segments);
/* op/scan.c. With dt[t] = softplus(dt[t] + dt_bias), limited to [dt_min, dt_max], and a = -e^a_log:
 * h[t] = e^(dt·a)·h[t-1] + dt·x·bᵀ, y = h·c + d ⊙ x. x [tokens, cols], b and c [tokens, groups·states]. Mamba: dt [tokens, cols], a_log
 * [cols, states], d and dt_bias [cols]. Mamba 2 (by_head): dt [tokens, heads], all three [heads]. The state of a segment: h as [states, cols]. */
struct llm_scan {
    bool by_head;
    int64_t heads, groups;      /* channels of a group see its b and c */
    float dt_min, dt_max;
    const struct llm_segment *segments;
    int64_t n_segments;
};
struct llm_tensor *llm_selective_scan(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *dt, struct llm_tensor *b, struct llm_tensor *cc,
                                      struct llm_param *a_log, struct llm_param *d, struct llm_param *dt_bias, const struct llm_scan *o);

/* ---- the loss (op/cross_entropy.c) ---- */
struct llm_loss {               /* what came out */
    double nll;                 /* Σ over counted tokens of -log p(target), nats; folded in canonical order */
    int64_t tokens;             /* how many counted */
};
struct llm_cross_entropy {
    const int32_t *targets;     /* [tokens]; -1: ignored */
    const uint8_t *mask;        /* [tokens] or NULL; 0: ignored */
    struct llm_param *bias;     /* [vocab], added to x·wᵀ; NULL */
    float logit_scale;          /* 1, or 1/sqrt(hidden) */
    float logit_softcap;        /* 0: none */
    double grad_scale;          /* dloss: the gradient is that of grad_scale · nll (1 / tokens of the whole step) */
    float *token_nll;           /* [tokens] or NULL */
    const struct llm_inner *logits; /* looks at the scaled and capped logits, some tokens at a time; NULL */
};
/* Projection, loss and, when recording, its gradients in chunks of tokens: logits of all tokens never exist. With a tape this sets x's gradient and
 * adds to w's at once; llm_backward then goes on from x. */
struct llm_loss llm_cross_entropy(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, const struct llm_cross_entropy *a);

/* ---- pairs (op/contrastive.c) ---- */
struct llm_contrastive {
    double grad_scale;          /* as of a cross-entropy, over all pairs of the pass */
    bool fixed;                 /* the scale has no gradient */
    float *loss;                /* [n]: of each pair, the mean of both directions */
};
/* x [2n, width], n first vectors and then their n partners, of length 1; products × e^logit_scale (at most 100; F32) are the logits. With a tape the
 * gradients are set at once, as by llm_cross_entropy. Not training: counts in the context who finds its partner, in both directions. */
void llm_contrastive(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *logit_scale, const struct llm_contrastive *o);

#endif
