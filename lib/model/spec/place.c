#include "model/spec/place.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/suggest.h"
#include "model/spec/block.h"

#define LAYERS "layers."
static const char *const stack_prefixes[LLM_MAX_STACKS] = {[LLM_STACK_MAIN] = "", [LLM_STACK_ENCODER] = "encoder.",
                                                           [LLM_STACK_VISION] = "vision."};

const struct llm_place_row llm_places[LLM_N_PLACES] = {
    [LLM_PLACE_EMBEDDING] = {"embedding", false, "embeddings of the tokens, with positions, token types and norm where the model has them"},
    [LLM_PLACE_LATENTS] = {"latents", false, "learned latents, which go through the layers in place of tokens"},
    [LLM_PLACE_NEXT_INPUT] = {"next.input", true,
                              "input of the projection that joins a token and a hidden state, to predict the token after the next"},
    [LLM_PLACE_RESIDUAL_BEFORE] = {"residual.before", true, "input of the layer"},
    [LLM_PLACE_ATTENTION_INPUT] = {"attention.input", true, "input of the projections to queries, keys and values, after the norm"},
    [LLM_PLACE_ATTENTION_Q_LATENT] = {"attention.q_latent", true, "latent vector that queries are projected from"},
    [LLM_PLACE_ATTENTION_Q] = {"attention.q", true, "queries of all heads, after their norm, before rotation"},
    [LLM_PLACE_ATTENTION_K] = {"attention.k", true, "keys of all heads, after their norm, before rotation"},
    [LLM_PLACE_ATTENTION_V] = {"attention.v", true, "values of all heads"},
    [LLM_PLACE_ATTENTION_KV_LATENT] = {"attention.kv_latent", true, "latent vector that keys and values are projected from"},
    [LLM_PLACE_ATTENTION_Q_ROTATED] = {"attention.q_rotated", true, "queries of all heads after rotation"},
    [LLM_PLACE_ATTENTION_Q_PREVIOUS] = {"attention.q_previous", true,
                                        "queries of dual chunk attention, rotated for the keys of the chunk before their own", LLM_PLACE_WITH_CACHE},
    [LLM_PLACE_ATTENTION_Q_EARLIER] = {"attention.q_earlier", true, "queries of dual chunk attention, rotated for the keys of all earlier chunks",
                                       LLM_PLACE_WITH_CACHE},
    [LLM_PLACE_ATTENTION_K_ROTATED] = {"attention.k_rotated", true, "keys after rotation"},
    [LLM_PLACE_ATTENTION_K_HEADS] = {"attention.k_heads", true,
                                     "keys of all heads of latent attention, in training alone: decoding does not compute them",
                                     LLM_PLACE_WITHOUT_CACHE},
    [LLM_PLACE_ATTENTION_V_HEADS] = {"attention.v_heads", true,
                                     "values of all heads of latent attention, in training alone: decoding does not compute them",
                                     LLM_PLACE_WITHOUT_CACHE},
    [LLM_PLACE_ATTENTION_HEADS] = {"attention.heads", true, "output of attention, head after head: input of the output projection"},
    [LLM_PLACE_ATTENTION_OUTPUT] = {"attention.output", true, "what attention adds to the residual"},
    [LLM_PLACE_MIXER_INPUT] = {"mixer.input", true, "input of the layer's first projection"},
    [LLM_PLACE_MIXER_CONV] = {"mixer.conv", true, "output of the short convolution"},
    [LLM_PLACE_MIXER_TIME] = {"mixer.time", true, "input of the projection to time steps"},
    [LLM_PLACE_MIXER_HIDDEN] = {"mixer.hidden", true, "input of the output projection"},
    [LLM_PLACE_MIXER_OUTPUT] = {"mixer.output", true, "what the mixer adds to the residual, or the layer's output if there is no residual"},
    [LLM_PLACE_RESIDUAL_BETWEEN] = {"residual.between", true, "the residual after attention"},
    [LLM_PLACE_CROSS_INPUT] = {"cross.input", true, "input of cross-attention's projection to queries"},
    [LLM_PLACE_CROSS_Q] = {"cross.q", true, "queries of cross-attention"},
    [LLM_PLACE_CROSS_K] = {"cross.k", true, "keys of cross-attention, one row for each token of the source"},
    [LLM_PLACE_CROSS_V] = {"cross.v", true, "values of cross-attention, one row for each token of the source"},
    [LLM_PLACE_CROSS_HEADS] = {"cross.heads", true, "output of cross-attention, head after head: input of the output projection"},
    [LLM_PLACE_CROSS_OUTPUT] = {"cross.output", true, "what cross-attention adds to the residual"},
    [LLM_PLACE_RESIDUAL_CROSS] = {"residual.cross", true, "the residual after cross-attention"},
    [LLM_PLACE_MLP_INPUT] = {"mlp.input", true, "input of the feed-forward part, after the norm"},
    [LLM_PLACE_ROUTER] = {"router", true, "logits of the router, one for each expert"},
    [LLM_PLACE_MLP_GATE] = {"mlp.gate", true, "output of the gate projection, before the activation function"},
    [LLM_PLACE_MLP_UP] = {"mlp.up", true, "output of the up projection"},
    [LLM_PLACE_MLP_HIDDEN] = {"mlp.hidden", true,
                              "input of the down projection; of a mixture, those of the token's experts side by side, lowest expert first"},
    [LLM_PLACE_MLP_SHARED] = {"mlp.shared", true, "input of the down projection of the shared experts"},
    [LLM_PLACE_MLP_OUTPUT] = {"mlp.output", true, "what the feed-forward part adds to the residual"},
    [LLM_PLACE_RESIDUAL_AFTER] = {"residual.after", true, "output of the layer"},
    [LLM_PLACE_FINAL_NORM] = {"final_norm", false, "output of the norm after the last layer"},
    [LLM_PLACE_POOLED] = {"pooled", false, "the vector of each text"},
    [LLM_PLACE_CLASSES_INPUT] = {"classes.input", false, "input of the projection to classes, one row for each text"},
    [LLM_PLACE_HEAD_INPUT] = {"head.input", false, "input of the head, after the transform of a masked-token head"},
    [LLM_PLACE_LOGITS] = {"logits", false, "logits, scaled and capped as the model does"}};

void llm_place_print(struct llm_place p, char *out, size_t n)
{
    if (!llm_places[p.kind].in_layer) snprintf(out, n, "%s%s", stack_prefixes[p.stack], llm_places[p.kind].name);
    else snprintf(out, n, "%s" LAYERS "%" PRId64 ".%s", stack_prefixes[p.stack], p.layer, llm_places[p.kind].name);
}

/* ---- which places a model has ---- */

static bool layer_has(const struct llm_config *c, int stack, enum llm_place_kind kind, int64_t layer)
{
    const struct llm_module_kind *mixer = llm_decoder_mixer(c, layer), *ffn = llm_decoder_ffn(c, layer);
    const struct llm_module_kind *cross = c->num_encoder_layers > 0 ? &llm_module_cross : NULL;
    const struct llm_module_kind *parts[] = {mixer, cross, ffn};
    if (kind == LLM_PLACE_RESIDUAL_BEFORE || kind == LLM_PLACE_RESIDUAL_AFTER) return true;
    if (kind == LLM_PLACE_RESIDUAL_BETWEEN) return cross || ffn;
    if (kind == LLM_PLACE_RESIDUAL_CROSS) return cross && ffn;
    if (kind == LLM_PLACE_NEXT_INPUT) return stack == LLM_STACK_MAIN && layer >= c->num_hidden_layers;
    for (int i = 0; i < 3; i++) {
        if (!parts[i]) continue;
        if (parts[i]->input == kind || parts[i]->output == kind || parts[i]->places(c, layer) >> kind & 1) return true;
    }
    return false;
}

static bool model_has(const struct llm_config *c, int stack, enum llm_place_kind kind)
{
    bool main = stack == LLM_STACK_MAIN, predicts = llm_config_has_head(c) && (!c->bidirectional || c->head_transform);
    switch (kind) {
    case LLM_PLACE_EMBEDDING: return true;
    case LLM_PLACE_LATENTS: return main && llm_config_learns_latents(c);
    case LLM_PLACE_FINAL_NORM: return !c->no_final_norm;
    case LLM_PLACE_POOLED: return main && c->num_encoder_layers == 0 && (c->bidirectional || c->num_labels > 0 || c->contrastive);
    case LLM_PLACE_CLASSES_INPUT: return main && c->num_labels > 0;
    case LLM_PLACE_HEAD_INPUT: return main && c->head_transform && predicts;
    case LLM_PLACE_LOGITS: return main && predicts;
    default: return false;
    }
}

static int64_t layers_of(const struct llm_config *c, int stack)
{
    return c->num_hidden_layers + (stack == LLM_STACK_MAIN ? c->num_nextn_predict_layers : 0);
}

bool llm_place_exists(const struct llm_config *c, struct llm_place p)
{
    struct llm_config own;
    if (!llm_stack_config(c, p.stack, &own)) return false;
    if (!llm_places[p.kind].in_layer) return p.layer < 0 && model_has(&own, p.stack, p.kind);
    return p.layer >= 0 && p.layer < layers_of(&own, p.stack) && layer_has(&own, p.stack, p.kind, p.layer);
}

/* ---- reading a spelling ---- */

/* Reads a number at *at and moves *at past it; -1: there is none. */
static int64_t number(const char **at)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return -1;
    long long n = strtoll(*at, &end, 10);
    *at = end;
    return n > LLM_MAX_LAYERS ? LLM_MAX_LAYERS : n;
}

/* Reads "3.", "2-5." or "*." at *at and moves *at past it. */
static bool read_layers(const char **at, struct llm_place_range *r)
{
    if (**at == '*') {
        ++*at;
        r->first = 0;
        r->last = INT64_MAX;
    } else {
        r->first = r->last = number(at);
        if (**at == '-') {
            ++*at;
            r->last = number(at);
        }
    }
    return *(*at)++ == '.' && r->first >= 0 && r->last >= r->first;
}

static int find_kind(const char *name, bool in_layer)
{
    for (int k = 0; k < LLM_N_PLACES; k++) {
        if (llm_places[k].in_layer == in_layer && strcmp(llm_places[k].name, name) == 0) return k;
    }
    return -1;
}

/* Fills the error for a spelling that is no place of models of `c`, with the most similar place as a suggestion. `layer`: the number written in it.
 * */
static int unknown(const char *text, const struct llm_config *c, int64_t layer, struct llm_err *e)
{
    struct llm_suggest s;
    char known[LLM_MAX_STACKS * LLM_N_PLACES][LLM_PLACE_TEXT];
    size_t n = 0;
    llm_suggest_begin(&s, text);
    for (int stack = 0; stack < LLM_MAX_STACKS; stack++) {
        for (int k = 0; k < LLM_N_PLACES; k++) {
            struct llm_place p = {(enum llm_place_kind)k, stack, llm_places[k].in_layer ? layer : -1};
            if (!llm_place_exists(c, p)) continue;
            llm_place_print(p, known[n], sizeof known[n]);
            llm_suggest_add(&s, known[n], known[n]);
            n++;
        }
    }
    return llm_fail(e, LLM_EX_USAGE, "place '%s': expected a place of a %s (" LAYERS "0.residual.after, logits, ...), found none%s", text,
                    c->model_type, llm_suggest_text(&s, ""));
}

/* Checks that a layer in [r->first, r->last] has the place. */
static int check_range(const char *text, const struct llm_config *c, const struct llm_place_range *r, struct llm_err *e)
{
    struct llm_config own;
    int64_t layers = llm_stack_config(c, r->stack, &own) ? layers_of(&own, r->stack) : 0;
    if (layers > 0 && r->last >= layers && r->last != INT64_MAX) {
        return llm_fail(e, LLM_EX_USAGE, "place '%s': expected a layer below %" PRId64 ", found %" PRId64, text, layers, r->last);
    }
    for (int64_t l = r->first; l <= r->last && (l < layers || l < 0); l++) {
        if (llm_place_exists(c, (struct llm_place){r->kind, r->stack, l})) return 0;
    }
    return unknown(text, c, r->first > 0 ? r->first : 0, e);
}

int llm_place_parse(const char *text, const struct llm_config *c, struct llm_place_range *out, struct llm_err *e)
{
    const char *at = text;
    struct llm_place_range r = {.first = -1, .last = -1};
    for (int s = LLM_MAX_STACKS - 1; s > 0 && r.stack == 0; s--) {
        if (strncmp(text, stack_prefixes[s], strlen(stack_prefixes[s])) == 0) r.stack = s;
    }
    at += strlen(stack_prefixes[r.stack]);
    bool in_layer = strncmp(at, LAYERS, strlen(LAYERS)) == 0;
    if (in_layer) at += strlen(LAYERS);
    if (in_layer && !read_layers(&at, &r)) {
        return llm_fail(e, LLM_EX_USAGE, "place '%s': expected " LAYERS "N, " LAYERS "N-M or " LAYERS "*, then the place in the layer", text);
    }
    int kind = find_kind(at, in_layer);
    if (kind < 0) return unknown(text, c, r.first > 0 ? r.first : 0, e);
    r.kind = (enum llm_place_kind)kind;
    if (check_range(text, c, &r, e) < 0) return -1;
    *out = r;
    return 0;
}
