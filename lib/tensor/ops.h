/* The operations. Each is one file in tensor/op/: forward, backward and its gradient-check row together (tensor/gradcheck.h).
 * x, y: [tokens, width] unless said. All sums over tokens that make parameter gradients fold blocks of 256 tokens within a row, rows in
 * order (llm_matmul_dw says how). Nothing here depends on the number of threads. */
#ifndef LLM_TENSOR_OPS_H
#define LLM_TENSOR_OPS_H

#include "base/rng.h"
#include "cpu/kernels/elementwise.h"
#include "cpu/kernels/wkv.h"
#include "tensor/divergence.h"
#include "tensor/tensor.h"

/* y[t] = scale · table[ids[t]], for any dtype of table. The caller has checked that ids are below table->shape[0]. The table's gradient goes to
 * grad_lookup if the parameter has one. scale: 1, or sqrt(hidden) (Gemma). */
struct llm_tensor *llm_embedding(struct llm_ctx *c, const int32_t *ids, int64_t n, struct llm_param *table, float scale);
/* y = x + PE(positions), Vaswani 2017 3.5: sin at even, cos at odd channels, base 10000. */
struct llm_tensor *llm_add_sinusoidal(struct llm_ctx *c, struct llm_tensor *x, const int32_t *positions);
/* y[t] = given[row[t]], or x[t] if row[t] is -1. `row` [tokens] must live until the backward pass. */
struct llm_tensor *llm_replace(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *given, const int32_t *row);
/* y = x·wᵀ + b; b may be NULL. */
struct llm_tensor *llm_linear(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct llm_param *b);
/* y[i] = llm_linear(c, x, w[i], b[i]) for i < n ≤ LLM_MATMUL_MAX, with the same bits. Without a tape all products run in one call of the threads,
 * and x is converted once. */
void llm_linears(struct llm_ctx *c, struct llm_tensor *x, int n, struct llm_param *const *w, struct llm_param *const *b, struct llm_tensor **y);
/* Lets the next norm, activation or attention write panels (llm_ctx.to_panels) if its output is read by the n products llm_linear with w alone, all
 * of them take panels, and nobody watches the pass. The bits are the same. The caller resets c->to_panels after the op. */
void llm_panels_for(struct llm_ctx *c, int n, struct llm_param *const *w);
/* y = (x - mean) / sqrt(var + eps) ⊙ gain + bias, mean and var over the channels of a token. gain, bias: [width]; bias may be NULL. */
struct llm_tensor *llm_layernorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, struct llm_param *bias, float eps);
/* GroupNorm: LayerNorm of each of `groups` equal runs of channels, with mean and var of that run. gain, bias: [width] (op/groupnorm.c). */
struct llm_tensor *llm_groupnorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, struct llm_param *bias, int64_t groups, float eps);
/* GroupNorm without biases, where the gain of run k is the parameter gains[k] [width / groups]. `gains` must live until the backward pass. */
struct llm_tensor *llm_groupnorm_each(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *const *gains, int64_t groups, float eps);
/* y = (x - mean) / sqrt(var + eps) ⊙ gain + bias. In training, mean and (biased) variance are those of each channel over all tokens of the pass; else
 * they are the running statistics in the parameters `mean` and `var` (op/batchnorm.c). The backward pass adds the pass's mean and unbiased variance
 * to the `grad` of these two. All are [width]; bias may be NULL. */
struct llm_tensor *llm_batchnorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, struct llm_param *bias, struct llm_param *mean,
                                 struct llm_param *var, float eps);
/* y = x / sqrt(mean(x²) + eps) ⊙ (gain + gain_offset), over runs of `group` columns: head_dim for norms of queries and keys, else all columns. The
 * runs share a gain of [group], or the gain has [cols] elements. gain_offset: 0, or 1 if files store gain - 1 (Gemma). */
struct llm_tensor *llm_rmsnorm(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain, float eps, float gain_offset, int64_t group);

enum llm_rope_pairing { LLM_ROPE_HALVES /* (i, i + d/2): Hugging Face Llama, NeoX */, LLM_ROPE_INTERLEAVED /* (2i, 2i+1): original */ };
struct llm_rope {
    int64_t head_dim, rotary_dim;     /* of the head_dim channels of each head, rotary_dim are rotated, from `first` on */
    enum llm_rope_pairing pairing;
    const float *inv_freq;            /* [rotary_dim / 2], scaling variants already applied (model/config) */
    float magnitude;                  /* YaRN's attention factor; 1 */
    int64_t first;                    /* the first rotated channel of each head */
    /* Two dimensions, of pictures: positions from grid_first on are the places of a grid of `grid` columns and rows, row by row. The first half of
     * the pairs is rotated by the place's row y, the other by its column x, as coordinate 2·(y + .5)/grid - 1 times 2π·inv_freq. Earlier positions
     * are not rotated. grid 0: one dimension. */
    int64_t grid, grid_first;
};
/* Rotary position embedding: rotates channel pair i of each head of token t by the angle positions[t]·inv_freq[i]. Angles are computed in double,
 * their cosines and sines are float. */
struct llm_tensor *llm_rope(struct llm_ctx *c, struct llm_tensor *x, const int32_t *positions, const struct llm_rope *r);

/* Columns [from, from + width) of each of the n_heads heads of x, side by side: [tokens, n_heads·width]. */
struct llm_tensor *llm_heads_part(struct llm_ctx *c, struct llm_tensor *x, int64_t n_heads, int64_t from, int64_t width);
/* Concatenates by head: head h of the result is head h of a followed by head h of b. `shared`: b is one head, which follows every head of a. */
struct llm_tensor *llm_heads_join(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b, int64_t n_heads, bool shared);
/* Each of the n_heads heads of x so many times, side by side: [tokens, n_heads·times·width]. */
struct llm_tensor *llm_heads_repeat(struct llm_ctx *c, struct llm_tensor *x, int64_t n_heads, int64_t times);
/* Multiplies each head by its own weight: x [tokens, n_heads·k], w[n_heads] each [n, k] → [tokens, n_heads·n]. Has no backward pass. */
struct llm_tensor *llm_heads_linear(struct llm_ctx *c, struct llm_tensor *x, struct llm_weight *w, int64_t n_heads);

/* The enum llm_act (cpu/kernels/elementwise.h) of one of transformers' names of an activation function: of several for one, as "gelu_new" and
 * "gelu_pytorch_tanh", "silu" and "swish". -1 if the name is unknown. */
int llm_act_find(const char *hf_name);
struct llm_tensor *llm_activation(struct llm_ctx *c, struct llm_tensor *x, enum llm_act act);
/* act(gate) ⊙ up: SwiGLU (silu), GeGLU (gelu). */
struct llm_tensor *llm_gated(struct llm_ctx *c, struct llm_tensor *gate, struct llm_tensor *up, enum llm_act act);
/* Softmax over each row. */
struct llm_tensor *llm_softmax(struct llm_ctx *c, struct llm_tensor *x);
struct llm_tensor *llm_add(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b);
/* a + b, written over b if the op that made b does not need b's values in its backward pass (llm_tensor.spare). No other op may read b. */
struct llm_tensor *llm_add_over(struct llm_ctx *c, struct llm_tensor *a, struct llm_tensor *b);
/* x ⊙ gain: channel i of each row times gain[i]. */
struct llm_tensor *llm_gain(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *gain);
struct llm_tensor *llm_scale(struct llm_ctx *c, struct llm_tensor *x, float factor);
/* What `e` makes of x: x itself if that is recomputed for the backward pass (llm_ctx.recompute), else a copy. The gradient passes to x as it is. */
struct llm_tensor *llm_edit(struct llm_ctx *c, struct llm_tensor *x, const struct llm_inner *e);
/* y[i] = x[rows[i]] for i < n; a row may occur any number of times, and -1 gives a row of zeros. `rows` must live until the backward pass. */
struct llm_tensor *llm_gather(struct llm_ctx *c, struct llm_tensor *x, const int32_t *rows, int64_t n);
/* The same with `abreast` rows of x side by side in each of the n: y[i] = x[rows[i * abreast]], x[rows[i * abreast + 1]] ... */
struct llm_tensor *llm_gather_abreast(struct llm_ctx *c, struct llm_tensor *x, const int32_t *rows, int64_t n, int64_t abreast);
/* Mean pooling: x is n runs of x->rows / n rows; y[r] is the mean of the first lengths[r] ≥ 1 rows of run r. `lengths` must live until the backward
 * pass. */
struct llm_tensor *llm_row_mean(struct llm_ctx *c, struct llm_tensor *x, const int32_t *lengths, int64_t n);
/* y[r] = x[r] / |x[r]|; a row of zeros gives zeros. */
struct llm_tensor *llm_unit(struct llm_ctx *c, struct llm_tensor *x);
/* Dropout: an element is 0 with probability p, else multiplied by 1/(1 - p). The random number is a function of (seed, step, layer, site, row of the
 * step, position, channel). If p is 0 or the context is not training: returns x itself. */
struct llm_tensor *llm_dropout(struct llm_ctx *c, struct llm_tensor *x, float p, enum llm_rng_site site);

/* Row `row` of w as products use it: decoded, with what its adapters add. k floats. */
void llm_adapter_decode(const struct llm_param *w, int64_t row, float *out);
/* By what row `row` of w itself is multiplied: 1 plus what adapters with magnitudes (DoRA) add. */
float llm_adapter_keeps(const struct llm_param *w, int64_t row);
/* magnitude / norm of a row; 1 without magnitudes, or if the norm is 0. */
float llm_adapter_gain(const struct llm_adapter *o, int64_t row);
/* norm [n] = the lengths of the rows of w + scale·b·a. */
void llm_adapter_norms(const struct llm_param *w, const struct llm_adapter *o, float scale, float *norm);

/* ---- attention (op/attention.c; kernels in cpu/kernels/attention.c) ---- */
/* Ranks that have the same heads of all tokens, and divide the work (tensor/sequence.h): the output, and the gradients of q, k and v, are made by the
 * member that owns the token. What a member has of the others' is undefined, the gradients are zeros. */
struct llm_attn_members {
    const uint8_t *owner;       /* [tokens]: the same for each 64 tokens of a document, counted from its start */
    int n, member;              /* how many members; which of them this rank is */
    int first;                  /* the first of them in the group */
    struct llm_group *group;    /* borrowed */
};
enum llm_chunk_part { LLM_CHUNK_OWN, LLM_CHUNK_BEFORE, LLM_CHUNK_EARLIER };
struct llm_attn {
    int64_t n_heads, n_kv_heads, d_k, d_v; /* q [tokens, n_heads·d_k], k [.., n_kv_heads·d_k], v [.., n_kv_heads·d_v] → [tokens, n_heads·d_v] */
    float scale;                /* usually 1/sqrt(d_k) */
    bool causal;
    int64_t window;             /* 0: none; key j is seen by query i when |i - j| < window (and j ≤ i when causal) */
    int64_t prefix;             /* prefix LM: all queries of a document see its first `prefix` keys; 0: none */
    const int32_t *prefixes;    /* [tokens]: the prefix of each document, at its first token; NULL: `prefix`. With a cache: llm_kv_seq.prefix
                                 * instead */
    const int32_t *doc_start;   /* [tokens]: the position in its row at which the token's document begins; earlier keys are masked. NULL: 0 */
    int64_t kv_row_len;         /* cross-attention: length of the rows of k and v; 0: row_len */
    const int32_t *kv_len;      /* [n_rows]: keys from this index on are masked; NULL: none */
    int64_t chunk;              /* dual chunk attention: tokens per chunk. Query i, in chunk i / chunk, then sees the keys of one part only; 0: off */
    enum llm_chunk_part chunk_part; /* that part: the query's own chunk, the chunk before it, or all earlier chunks */
    float softcap;              /* s = softcap·tanh(s/softcap); 0: none */
    struct llm_param *sinks;    /* attention sinks [n_heads]: one more logit in each softmax, which has no value; NULL: none */
    struct llm_param *rel_bias; /* relative position bias [n_heads, 2·rel_max - 1]: entry clamp(j - i) + rel_max - 1 is added to the score; NULL */
    int64_t rel_max;
    const int32_t *rel_map;     /* T5's buckets [2·rel_max - 1]: rel_bias is then [rel_buckets, n_heads], and this is its row for a distance; NULL */
    int64_t rel_buckets;
    int64_t rel_use;            /* rel_bias shared by layers: the index of this layer's gradient accumulator (llm_param.grad_use) */
    float dropout;              /* on probabilities */
    int64_t first_head;         /* of dropout's random numbers: the number of the first head in the model */
    const struct llm_attn_members *members; /* borrowed, until the backward pass; NULL: this rank makes all. Only of self-attention without a cache,
                                 * sinks and rel_bias */
};
/* softmax(scale · q·kᵀ + masks) · v with a tiled online softmax: tiles of 64 keys, counted from the document's start, and chunks of 1,024 keys,
 * merged from left to right. Memory is linear in row_len. If lse is not NULL, *lse is the log-sum-exp of each query's scores, [tokens, n_heads]. */
struct llm_tensor *llm_attention(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v, const struct llm_attn *a,
                                 struct llm_tensor **lse);

/* One layer of one sequence's KV cache, as lib/infer keeps it: tiles of 64 keys, tile i holding positions 64i..64i+63 as [n_kv_heads][64][d]. */
#define LLM_KV_TILE 64
struct llm_kv_view {
    void *const *k, *const *v;  /* tiles, at least (pos + n) / 64 rounded up. v NULL: a value is the first d_v channels of its key (MLA) */
    enum llm_dtype k_type, v_type; /* each F32, F16, BF16, Q8_0 or Q4_0; keys Q8_0_ROT or Q4_0_ROT, too */
};
/* A run of new tokens of one sequence: rows [first, first + n) of q, k, v stand at positions pos .. pos + n - 1 of the cache, which are those in the
 * text unless keys before them were evicted (infer/kv.h). */
struct llm_kv_seq {
    int64_t first, n, pos;
    struct llm_kv_view view;
    int64_t prefix;             /* all the new tokens see the first `prefix` keys */
    int64_t n_keys;             /* cross-attention (k and v NULL): the number of keys, whatever the positions of the tokens; else 0 */
    float *queries;             /* NULL, or a ring of n_queries rows [n_heads·d_k]: the query at position p is copied to row p mod n_queries */
    int64_t n_queries;
    float *state;               /* recurrent layers: the state, of a fixed size; in: before the run, out: after it */
};
/* Stores k and v of the new tokens in their caches, then attends. The bits are those of llm_attention over the whole row if the cache types are the
 * compute type's. Has no backward pass. k and v NULL: another layer has stored them. */
struct llm_tensor *llm_attention_cached(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                        const struct llm_attn *a, const struct llm_kv_seq *seqs, int64_t n_seqs);

/* llm_attention_cached, which also returns in *lse the log-sum-exp of each query's scores, [tokens, n_heads]. */
struct llm_tensor *llm_attention_cached_lse(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                            const struct llm_attn *a, const struct llm_kv_seq *seqs, int64_t n_seqs, struct llm_tensor **lse);
/* Dual chunk attention. q: the queries rotated for the keys of their own chunk of a->chunk tokens, of the chunk before it, and of all earlier chunks.
 * seqs NULL: there is no cache, k and v hold all keys. Has no backward pass. */
struct llm_tensor *llm_attention_chunks(struct llm_ctx *c, struct llm_tensor *const q[3], struct llm_tensor *k, struct llm_tensor *v,
                                        const struct llm_attn *a, const struct llm_kv_seq *seqs, int64_t n_seqs);

/* ---- mixture of experts (op/route.c, op/mixture.c) ---- */
#define LLM_MAX_EXPERTS 1024
/* Statistics of routers, added up by their backward passes: sums over tokens and layers. Divided by `tokens` they are means. */
struct llm_router_report {
    double balance;             /* experts · Σ load · probability; 1: an even load */
    double z;                   /* logsumexp² of the logits */
    double peak;                /* the load of the busiest expert divided by the mean load, times the tokens of the pass */
    int64_t tokens, dropped;    /* dropped: choices for which the expert had no capacity left */
};
struct llm_route {
    int64_t k;                  /* experts per token */
    bool sigmoid;               /* probabilities are sigmoids (DeepSeek-V3); else a softmax over all experts */
    bool normalise;             /* the weights of a token's chosen experts are divided by their sum */
    double scale;               /* multiplies the weights */
    int64_t n_group, topk_group, group_top; /* n_group > 1: experts are chosen within the topk_group best groups; a group's score is the sum of its
                                 * group_top best experts */
    struct llm_param *bias;     /* [experts] or NULL: added to the probabilities for the choice, not for the weights; its grad counts tokens
                                 * (llm_param.balances) */
    bool straight_through;      /* weights are 1/k in the forward pass; their gradient is that of normalised weights */
    bool gumbel;                /* training: choice and weights come from softmax((logits + Gumbel noise) / temperature) */
    double temperature;
    double capacity;            /* training: an expert takes the first capacity·k·row_len/experts tokens of a row that choose it; 0: all */
    double balance;             /* coefficient of the balance loss (op/route.c), which is computed per row of the batch over all routers of a pass */
    double z;                   /* coefficient of logsumexp² of a token's logits. Both losses are multiplied by llm_ctx.token_weight */
    struct llm_router_report *report; /* the backward pass adds its statistics to it; borrowed until then. NULL: none are kept */
};
/* x: logits [tokens, experts] → weights [tokens, k]. *experts: the chosen experts [tokens, k], ascending within a token, on `acts`; negative: the
 * expert has no capacity left, and the weight is 0. */
struct llm_tensor *llm_route(struct llm_ctx *c, struct llm_tensor *x, const struct llm_route *o, const int32_t **experts);
/* The weights of n gated feed-forward experts: gate[i] and up[i] [width, hidden], down[i] [hidden, width]. */
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

/* Stores keys and values without attending: rows [first, first + n) of k and v become those at positions pos … pos + n - 1 of each sequence. Then
 * llm_attention_cached with n_keys, k and v NULL has the bits of llm_attention with kv_row_len = n_keys. */
void llm_attention_store(struct llm_ctx *c, struct llm_tensor *k, struct llm_tensor *v, const struct llm_attn *a, const struct llm_kv_seq *seqs,
                         int64_t n_seqs);

/* ---- recurrences over time ---- */
/* A run of tokens that a recurrence processes in order: rows [first, first + n), n ≥ 1. Segments do not overlap and are independent of each other. */
struct llm_segment {
    int64_t first, n;
    const float *from;          /* the state before the first token, which takes no gradient; NULL: zeros */
    float *to;                  /* the state after the last token is written here; may be `from`; NULL: it is discarded */
    /* Where ranks divide rows (tensor/sequence.h), which all of these operations but llm_long_conv know: */
    bool enters;                /* the state before the first token is that of the rank before */
    int64_t follows;            /* tokens of the same text that later ranks have */
};
/* op/recurrent.c. x: the inputs' part of each gate [tokens, gates·width] → y = h [tokens, width]; gates is 1 (tanh) or 4 (LSTM: i, f, g, o).
 * h[t] = cell(x[t] + w·h[t-1] + b); w [gates·width, width], b [gates·width] or NULL. The state of a segment is h, for an LSTM h followed by c.
 * Segments cover all rows; they are copied. */
struct llm_recurrent { bool lstm; const struct llm_segment *segments; int64_t n_segments; };
struct llm_tensor *llm_recurrent(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct llm_param *b, const struct llm_recurrent *o);

/* op/short_conv.c. A causal depthwise convolution: y[t] = silu(b + Σ_j w[·, j] ⊙ x[t - k + 1 + j]), without `silu` the sum itself; w [cols, k],
 * b [cols] or NULL. The state of a segment is its last k - 1 inputs, oldest first. Segments are copied. */
struct llm_tensor *llm_short_conv(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct llm_param *b, bool silu,
                                  const struct llm_segment *segments, int64_t n_segments);
/* op/window.c. y[t] is the concatenation of x[t - k + 1], …, x[t]: [tokens, k·cols]. The state of a segment is its last k - 1 inputs, oldest first.
 * Segments are copied. */
struct llm_tensor *llm_window(struct llm_ctx *c, struct llm_tensor *x, int64_t k, const struct llm_segment *segments, int64_t n_segments);
/* op/scan.c. The selective scan of Mamba. With dt[t] = softplus(dt[t] + dt_bias), clamped to [dt_min, dt_max], and a = -e^a_log:
 * h[t] = e^(dt·a)·h[t-1] + dt·x·bᵀ, y = h·c + d ⊙ x. x [tokens, cols], b and c [tokens, groups·states]. Mamba: dt [tokens, cols], a_log
 * [cols, states], d and dt_bias [cols]. Mamba 2 (by_head): dt [tokens, heads]; a_log, d and dt_bias [heads]. A segment's state is h as [states,
 * cols]. Segments are copied. */
struct llm_scan {
    bool by_head;
    int64_t heads, groups;      /* the channels are divided into groups, each with its own b and c */
    float dt_min, dt_max;
    const struct llm_segment *segments;
    int64_t n_segments;
};
struct llm_tensor *llm_selective_scan(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *dt, struct llm_tensor *b, struct llm_tensor *cc,
                                      struct llm_param *a_log, struct llm_param *d, struct llm_param *dt_bias, const struct llm_scan *o);
/* op/token_shift.c. d[t] = x[t - 1] - x[t]. The state of a segment is its last input. Segments are copied. */
struct llm_tensor *llm_token_shift(struct llm_ctx *c, struct llm_tensor *x, const struct llm_segment *segments, int64_t n_segments);
/* y = x + d ⊙ share, with d from llm_token_shift: the share of the token before in each channel; share [cols]. `keeps`: the parameter is the share of
 * the token itself, 1 - share. */
struct llm_tensor *llm_token_mix(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *d, struct llm_param *share, bool keeps);
/* op/token_mix_rank.c. The mixtures of RWKV 6: y[t] = x[t] + d[t] ⊙ (share + h[t]·w'), where w' is the rows of w from `first` on, one for each column
 * of h [tokens, rank]; w [.., cols]. */
struct llm_tensor *llm_token_mix_rank(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *d, struct llm_tensor *h, struct llm_param *share,
                                      struct llm_param *w, int64_t first);
/* op/wkv4.c. The recurrence of RWKV 4 (Peng et al. 2023): y[t] is the mean of v[i], i ≤ t, with weights e^(k[i] - (t - 1 - i)·e^decay) for i < t,
 * e^(k[t] + first) for i = t. k, v [tokens, cols]; decay, first [cols]. The state of a segment is [3, cols]: numerator and denominator, both divided
 * by e^maximum, and the maximum. Segments are copied. */
struct llm_tensor *llm_wkv4(struct llm_ctx *c, struct llm_tensor *k, struct llm_tensor *v, struct llm_param *decay, struct llm_param *first,
                            const struct llm_segment *segments, int64_t n_segments);
/* op/wkv.c. The recurrences of RWKV 5 to 7, whose formulas cpu/kernels/wkv.h has; all of r, k, v, w, a, b are [tokens, heads·size]. Version 5:
 * `first` and `decay` [heads·size] are parameters, w, a and b are NULL. Version 6: w instead of decay. Version 7: w, a and b, no parameters. The
 * state of a segment is [heads, size, size], keys by values. Segments are copied. */
struct llm_wkv {
    struct llm_tensor *r, *k, *v, *w, *a, *b;
    struct llm_param *decay, *first;
    int64_t heads;
    const struct llm_segment *segments;
    int64_t n_segments;
};
struct llm_tensor *llm_wkv(struct llm_ctx *c, const struct llm_wkv *o);
/* What multiplies states, from x (enum llm_wkv_decay). */
struct llm_tensor *llm_wkv_decay(struct llm_ctx *c, struct llm_tensor *x, enum llm_wkv_decay kind);

/* op/rwkv7.c, which has the formulas. What RWKV 7 computes around its recurrence: k, rate, x, r, v and gate [tokens, cols], scale, mix and bonus
 * [cols], by `heads` heads. */
struct llm_tensor *llm_rwkv7_direction(struct llm_ctx *c, struct llm_tensor *k, struct llm_param *scale, int64_t heads);
struct llm_tensor *llm_rwkv7_key(struct llm_ctx *c, struct llm_tensor *k, struct llm_tensor *rate, struct llm_param *mix);
struct llm_tensor *llm_rwkv7_output(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *r, struct llm_tensor *k, struct llm_tensor *v,
                                    struct llm_tensor *gate, struct llm_param *bonus, int64_t heads);

/* ---- Hyena (Poli et al. 2023) ---- */
/* op/long_conv.c. A causal convolution as long as the sequence, of gated inputs: y[t] = Σ over s ≤ t of filter[t - s] ⊙ u[s], plus skip ⊙ u[t], where
 * u = x ⊙ gate; x, gate [tokens, cols]. `filter` [copies·length, cols] has the filter once, or once for each row of the batch: copies with the same
 * values, each of which takes the gradient of its row, so that sums do not depend on how rows are grouped into passes. A segment reads the filter
 * from its beginning, and has at most `length` tokens. If the context computes in BF16, u is rounded to it, as caches keep it. Elements
 * [at, at + cols) of the parameter `skip` are this convolution's. Segments cover all rows and are copied; their states are not used. */
struct llm_long_conv {
    int64_t length;             /* of one copy of the filter */
    int64_t at;
    const struct llm_segment *segments;
    int64_t n_segments;
};
struct llm_tensor *llm_long_conv(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *gate, struct llm_tensor *filter, struct llm_param *skip,
                                 const struct llm_long_conv *o);
/* The same for new tokens of sequences, whose earlier u are in their caches: head `head` of the keys. filter [as many as the longest sequence has
 * tokens, cols], rows ld apart. Few new tokens take direct sums, tokens · cols products each; more take transforms. u is what the cache's type keeps
 * of it, for all tokens, so that results do not depend on how a text is divided. Has no backward pass. */
struct llm_tensor *llm_long_conv_cached(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *gate, const float *filter, int64_t ld,
                                        struct llm_param *skip, int64_t at, int64_t head, const struct llm_kv_seq *seqs, int64_t n_seqs);
/* op/hyena_filter.c. y = sin(freq ⊙ x), freq [cols]. `use`: freq is used several times, and its gradient has an accumulator for each
 * (llm_param.grad_use). */
struct llm_tensor *llm_sine(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *freq, int64_t use);
/* y[t] = x[t] ⊙ (e^(-time[positions[t]]·|decay|) + shift); decay [cols]. `positions` must live until the backward pass. time and decay take no
 * gradient. */
struct llm_tensor *llm_decay_window(struct llm_ctx *c, struct llm_tensor *x, const int32_t *positions, const struct llm_param *time,
                                    const struct llm_param *decay, float shift);

/* ---- the loss (op/cross_entropy.c) ---- */
struct llm_loss {
    double nll;                 /* Σ over counted tokens of weight · -log p(target), in nats, folded in canonical order */
    int64_t tokens;             /* counted tokens */
};
/* A teacher whose distributions are learned instead of targets: its head, and its hidden states of the same tokens; or what is known of the
 * distributions themselves. */
struct llm_teacher {
    struct llm_divergence how;
    const struct llm_tensor *hidden; /* [tokens, width of the teacher] */
    struct llm_param *head, *bias;   /* [vocab, width]; [vocab] or NULL */
    float logit_scale, logit_softcap;
    /* Without a model (hidden NULL): its most likely tokens, which were computed before; [tokens, n_top] each, tail [tokens]. */
    const float *top_ids, *top_log_probs, *tail;
    int64_t n_top;
};
struct llm_cross_entropy {
    const int32_t *targets;     /* [tokens]; a token with -1 is not counted */
    const uint8_t *mask;        /* [tokens] or NULL; a token with 0 is not counted */
    struct llm_param *bias;     /* [vocab], added to x·wᵀ; NULL */
    float logit_scale;          /* 1, or 1/sqrt(hidden) */
    float logit_softcap;        /* 0: none */
    double grad_scale;          /* the gradient is that of grad_scale · nll; usually 1 / (sum of the weights of the step's counted tokens) */
    float *token_nll;           /* out: -log p(target) of each token [tokens], not multiplied by its weight; NULL: not wanted */
    const struct llm_inner *logits; /* looks at the scaled and capped logits, some tokens at a time; NULL */
    const float *weights;       /* [tokens]: the weight of each counted token, of any sign; NULL: 1 */
    bool no_gradient;           /* only token_nll is wanted: no gradient is set although there is a tape */
    const struct llm_teacher *teacher; /* the loss of a counted token is the divergence from the teacher (tensor/divergence.h), not -log p(target);
                                 * NULL: there is no teacher */
    const float *entropy;       /* [tokens]: the gradient is also that of -entropy[t] · the entropy of the token's distribution, times grad_scale;
                                 * NULL: 0. Not with a teacher or c->z_loss */
};
/* Projection x·wᵀ and loss, in chunks of tokens, so that the logits of all tokens never exist at once. With a tape it also sets x's gradient and adds
 * to w's, and llm_backward continues from x. */
struct llm_loss llm_cross_entropy(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, const struct llm_cross_entropy *a);

/* ---- pairs (op/contrastive.c) ---- */
struct llm_contrastive {
    double grad_scale;          /* the gradient is that of grad_scale · (Σ of `loss`) */
    bool fixed;                 /* logit_scale takes no gradient */
    struct llm_param *bias;     /* one F32 value: the sigmoid loss with this bias of the logits; NULL: InfoNCE */
    float *loss;                /* out: [n], the loss of each pair: the mean of both directions, or the sum over all second vectors */
    int64_t *found;             /* out: how many of the 2n vectors have their partner as the nearest one; NULL: not computed */
};
/* Symmetric InfoNCE (CLIP), or the sigmoid loss (SigLIP, Zhai et al. 2023): -log sigmoid(±logit) of each two vectors, + for partners. x [2n, width]:
 * n vectors, then their n partners, all of length 1. The logits are the dot products times e^logit_scale, of InfoNCE a factor of at most 100;
 * logit_scale is one F32 value. With a tape the gradients are set at once, as llm_cross_entropy does. */
void llm_contrastive(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *logit_scale, const struct llm_contrastive *o);

/* ---- vectors that are given (op/match.c) ---- */
struct llm_match {
    bool cosine;                /* the loss of a row is 1 - cosine(x, target); else the mean over columns of (x - target)² */
    double grad_scale;          /* the gradient is that of grad_scale · (Σ of `loss`) */
    const struct llm_tensor *target; /* [rows, cols], as x; takes no gradient */
    const int32_t *counts;      /* [rows]: below 0: the row has no loss */
    float *loss, *cosines;      /* out: [rows]; 0 where there is no loss */
};
/* The distance of x [rows, cols] from vectors that are given. With a tape x's gradient is set at once, as llm_cross_entropy does. */
void llm_match(struct llm_ctx *c, struct llm_tensor *x, const struct llm_match *o);

#endif
