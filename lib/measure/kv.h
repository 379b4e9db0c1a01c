/* What a KV cache looks like: sizes of keys and values, where traced queries look, how two caches differ. */
#ifndef LLM_MEASURE_KV_H
#define LLM_MEASURE_KV_H

#include "infer/kvfile.h"

/* One query head and the keys and values that it reads. Norms are Euclidean, over the head's channels, of each token. */
struct llm_kv_head {
    int64_t layer, head, kv_head;
    double k_norm, k_norm_sd, k_norm_first; /* mean and deviation over tokens; of the first token, where sinks show */
    double v_norm, v_norm_sd, v_norm_first;
    /* Of the traced queries, averages (NaN when the cache has none): */
    double entropy;      /* nats, of the attention's distribution over the keys in sight */
    double entropy_most; /* log of their number: the maximum of the entropy */
    double sink;         /* probability of the first token in the cache */
    double largest;      /* probability of the likeliest key */
    double distance;     /* Σ probability × tokens back */
    /* Of the traced queries, by the same tokens (NaN when the cache has none, or if none of them stood in the text before): */
    double previous;     /* probability of the token before the query's */
    double duplicate;    /* of earlier tokens that are the query's own; averages over queries whose token stood in sight before */
    double induction;    /* of the tokens that followed those (Olsson et al., 2022, "In-context learning and induction heads") */
};
/* Rows of all layers that attend to keys, or (layer ≥ 0) of those before it. */
int64_t llm_kv_heads_rows(const struct llm_kv_file *f, int64_t layer);
/* rows [llm_kv_heads_rows(f, -1)], layer by layer. maps: NULL, or [rows, f->n]: where `what` is 'k' or 'v' the norms of each token, 'a' the
 * mean probability over the traced queries. 0, or -1 when memory is short or nothing was traced. */
int llm_kv_heads(const struct llm_kv_file *f, struct llm_kv_head *rows, char what, float *maps, struct llm_err *e) LLM_MUST_CHECK;

/* Where one query looks: the tokens of the two likeliest keys (second -1: it sees one alone; both -1: the probabilities are NaN), their
 * probabilities, and the entropy in nats. */
struct llm_kv_gaze { int64_t best, second; double p, second_p, entropy; };
/* Where the traced queries of a head, or of all heads of a layer on average, look. */
struct llm_kv_map {
    int64_t step_x, step_y;     /* a cell has so many keys, and so many queries; at least 1 */
    float *cells;               /* NULL, or [n_queries / step_y, n / step_x], both rounded up: the largest probability; NaN: nothing in sight */
    struct llm_kv_gaze *gazes;  /* [n_queries] */
};
/* head -1: the mean of all heads. 0, or -1 when memory is short, nothing was traced, or the layer's attention cannot be computed from the cache. */
int llm_kv_attention(const struct llm_kv_file *f, int64_t layer, int64_t head, const struct llm_kv_map *map, struct llm_err *e) LLM_MUST_CHECK;

/* How two caches of one shape differ in a head of keys or values, over the tokens that both hold, or in a part of a layer's state. */
struct llm_kv_difference {
    int64_t layer, kv_head;       /* kv_head -1: a part of the state */
    const char *what;             /* "k" (of latent vectors too), "v", or the part's name */
    double rmse, max_error, relative; /* relative: ‖a - b‖ / ‖a‖ */
    double cosine;
};
int64_t llm_kv_diff_rows(const struct llm_kv_file *f);
/* rows [llm_kv_diff_rows(a)], k before v. maps: NULL, or [rows, common tokens]: root of the mean square of each token; 0 for parts of states. */
int llm_kv_diff(const struct llm_kv_file *a, const struct llm_kv_file *b, struct llm_kv_difference *rows, float *maps,
                struct llm_err *e) LLM_MUST_CHECK;
/* Leading tokens with the same ids and positions. */
int64_t llm_kv_common(const struct llm_kv_file *a, const struct llm_kv_file *b);

#endif
