/* How a family names its parameters in files: one stem for each place that a parameter can have, and the family's text for it. */
#ifndef LLM_MODEL_CONFIG_NAMES_H
#define LLM_MODEL_CONFIG_NAMES_H

#include <stdbool.h>

/* Places of parameters in a layer and, from LLM_N_STEMS on, in the model. A family names each (struct llm_names). */
enum llm_stem {
    LLM_STEM_Q, LLM_STEM_K, LLM_STEM_V, LLM_STEM_QKV, LLM_STEM_OUT, LLM_STEM_GATE, LLM_STEM_UP, LLM_STEM_DOWN, LLM_STEM_NORM_1, LLM_STEM_NORM_2,
    LLM_STEM_POST_1, LLM_STEM_POST_2, LLM_STEM_Q_NORM, LLM_STEM_K_NORM, LLM_STEM_GATE_UP,
    LLM_STEM_ROUTER, LLM_STEM_ROUTER_BIAS, LLM_STEM_EXPERTS, LLM_STEM_EXPERT_GATE, LLM_STEM_EXPERT_UP, LLM_STEM_EXPERT_DOWN, /* EXPERTS: then the
                                     * number, then one of the next three; EXPERTS NULL: files have each of the three as one tensor of all experts */
    LLM_STEM_NEXT_TOKEN_NORM, LLM_STEM_NEXT_HIDDEN_NORM, LLM_STEM_NEXT_JOIN, LLM_STEM_NEXT_NORM,
    LLM_STEM_SINKS,
    LLM_STEM_CROSS_Q, LLM_STEM_CROSS_K, LLM_STEM_CROSS_V, LLM_STEM_CROSS_OUT, LLM_STEM_CROSS_NORM, /* an encoder-decoder's cross-attention */
    LLM_STEM_Q_A, LLM_STEM_Q_A_NORM, LLM_STEM_Q_B, LLM_STEM_KV_A, LLM_STEM_KV_A_NORM, LLM_STEM_KV_B,
    LLM_STEM_SHARED_GATE, LLM_STEM_SHARED_UP, LLM_STEM_SHARED_DOWN,
    LLM_STEM_CONV, LLM_STEM_CONV_BIAS, LLM_STEM_STATES, LLM_STEM_TIME, LLM_STEM_TIME_BIAS, LLM_STEM_DECAY, LLM_STEM_SKIP,
    LLM_STEM_GATED_NORM, /* state-space layers: with their suffixes */
    LLM_STEM_FIRST, LLM_STEM_SHARE_K, LLM_STEM_SHARE_V, LLM_STEM_SHARE_R, LLM_STEM_SHARE_UP, LLM_STEM_SHARE_GATE, /* RWKV: the bonus of a new token;
                                     * shares of tokens in projections. Its receptances are Q and GATE, the norm of heads is POST_1 */
    LLM_STEM_OUT_GATE, LLM_STEM_SHARE_OUT_GATE, /* RWKV 5 and 6: the gate of time mixing */
    LLM_STEM_SHARE_MIX, LLM_STEM_MIX_IN, LLM_STEM_MIX_OUT, LLM_STEM_SHARE_DECAY, LLM_STEM_DECAY_IN, LLM_STEM_DECAY_OUT, /* RWKV 6: the factors of
                                     * what tokens add to shares, and to decays */
    LLM_STEM_SHARE_RATE, LLM_STEM_RATE, LLM_STEM_RATE_IN, LLM_STEM_RATE_OUT, LLM_STEM_VALUE, LLM_STEM_VALUE_IN, LLM_STEM_VALUE_OUT,
    LLM_STEM_OUT_GATE_IN, LLM_STEM_KEY_SCALE, LLM_STEM_KEY_MIX, /* RWKV 7: rates of learning in context, shares of the first layer's values, the
                                     * first factor of the gate (OUT_GATE is the second); by what the direction of a key is scaled and mixed */
    LLM_STEM_FILTER, LLM_STEM_FILTER_FREQ, LLM_STEM_FILTER_POSITIONS, LLM_STEM_FILTER_TIME, LLM_STEM_FILTER_DECAY, /* Hyena: the network of a
                                     * filter, of whose layers and sines FILTER names each with its number; the features and times of positions;
                                     * decays of the window */
    LLM_STEM_K_B, LLM_STEM_V_B, /* GGUF's halves of KV_B */
    LLM_STEM_INPUTS, LLM_STEM_STATE, LLM_STEM_INPUTS_BIAS, LLM_STEM_STATE_BIAS, /* RNN and LSTM: what multiplies the inputs, and the state before.
                                     * The layer's number follows these names */
    LLM_N_STEMS,
    LLM_STEM_EMBED = LLM_N_STEMS, LLM_STEM_REGISTERS, LLM_STEM_PATCHES, LLM_STEM_POSITIONS, LLM_STEM_TOKEN_TYPES, LLM_STEM_LATENTS,
    LLM_STEM_EMBED_NORM, LLM_STEM_DISTANCES,
    LLM_STEM_FINAL_NORM, LLM_STEM_POOLER, LLM_STEM_HEAD_DENSE, LLM_STEM_HEAD_NORM, LLM_STEM_HEAD_BIAS, LLM_STEM_HEAD,
    LLM_STEM_CLASSES, LLM_STEM_CLASSES_2,
    LLM_STEM_LOGIT_SCALE, LLM_STEM_LOGIT_BIAS, LLM_STEM_PROJECTION, LLM_STEM_PROJECTOR_1, LLM_STEM_PROJECTOR_2,
    LLM_STEM_NEWLINE,                /* the last of a projector's, which begin with PROJECTOR_1 */
    LLM_STEM_PROBE, LLM_STEM_PROBE_QKV, LLM_STEM_PROBE_QKV_BIAS, LLM_STEM_PROBE_OUT, LLM_STEM_PROBE_NORM, LLM_STEM_PROBE_UP, LLM_STEM_PROBE_DOWN
                                     /* attention pooling */
};
static inline bool llm_stem_projects(enum llm_stem s) { return s >= LLM_STEM_PROJECTOR_1 && s <= LLM_STEM_NEWLINE; }
/* How a family names its parameters; ".weight" and ".bias" are added. */
struct llm_names {
    const char *prefix;             /* "model."; tensors are also found without it */
    const char *embed, *positions, *layer, *final_norm, *head; /* after the prefix; `layer` before the number; head without the prefix */
    const char *patches;                                       /* after the prefix: the projection of patches; NULL: none */
    const char *registers;                                     /* after the prefix: tokens before patches; NULL: none */
    const char *two_classes[2];                                /* without the prefix: matrices of LLM_CLASSES_OF_TWO_TOKENS */
    const char *projection;                                    /* without the prefix: the projection of pooled states; NULL: none */
    const char *probe[7];                                      /* after the prefix: attention pooling, from LLM_STEM_PROBE on; NULL: none */
    const char *projector[2];                                  /* without the prefix: the matrices of LLaVA's projector; NULL: none */
    const char *newline;                                       /* without the prefix: the vector that ends rows of patches; NULL: none */
    const char *latents;                                       /* after the prefix; NULL if the family has none */
    const char *token_types, *embed_norm, *pooler;             /* after the prefix; NULL where the family has none */
    const char *head_dense, *head_norm, *head_bias;            /* a head's transform and bias, without the prefix; NULL */
    const char *rel_bias;                                      /* after the prefix: the table of LLM_POSITION_BUCKETS */
    const struct llm_names *encoder; /* encoder-decoders: names of the encoder's layers, final norm and rel_bias; NULL: there is one stack */
    const struct llm_names *vision; /* models of two towers: names of the vision tower; NULL: there is none */
    const char *stem[LLM_N_STEMS];  /* after the layer's name; NULL where the family has none (QKV and GATE_UP: fused or apart) */
};

#endif
