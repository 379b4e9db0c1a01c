#include "infer/rollout.h"

#include <math.h>
#include <stdio.h>
#include "cpu/detect.h"
#include "cpu/matmul.h"

int llm_rollouts_open(struct llm_rollouts *r, struct llm_engine *g, int64_t step, int64_t groups, struct llm_err *e)
{
    struct llm_model *m = g->model;
    if (m->config.num_encoder_layers > 0 || !llm_predictor_of(m)->has_states) {
        return llm_fail(e, EX_UNAVAILABLE, "expected a network that continues texts, found %s (%s)", llm_predictor_of(m)->name,
                        m->config.model_type);
    }
    if (llm_model_fingerprint(m, e) < 0) return -1;
    r->step = step;
    r->groups = groups;
    r->common = json_pack("{s:s,s:I,s:s,s:s,s:s}", "model", m->fingerprint, "policy_step", (json_int_t)step, "precision",
                          llm_compute_word((int)g->ctx.compute), "cache_type", g->pool.types, "isa", llm_isa_name());
    return r->common ? 0 : llm_no_memory(e, "rollouts");
}

void llm_rollouts_release(struct llm_rollouts *r)
{
    json_decref(r->common);
    *r = (struct llm_rollouts){0};
}

static json_t *ids_of(const int32_t *ids, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) {
        if (json_array_append_new(list, json_integer(ids[i])) < 0) return json_decref(list), NULL;
    }
    return list;
}

/* As doubles, whose text reads back as the same float. JSON has no infinities: an impossible token's logarithm is null. */
static json_t *reals_of(const float *x, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) {
        if (json_array_append_new(list, isfinite(x[i]) ? json_real((double)x[i]) : json_null()) < 0) return json_decref(list), NULL;
    }
    return list;
}

static json_t *biases_of(const struct llm_sampling *p)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->n_bias; i++) {
        char text[40];
        snprintf(text, sizeof text, "%d%+.9g", p->bias[i].id, (double)p->bias[i].bias);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

/* Adds an option that differs from its default, unless it is there. */
static void add_option(json_t *o, const char *name, double value, double standard)
{
    char key[40];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof key; n++) key[n] = name[n] == '-' ? '_' : name[n];
    key[n] = 0;
    if (value != standard && !json_object_get(o, key)) json_object_set_new(o, key, json_real(value));
}
#define ADD_OPTION(type, member, field, standard, name, ...) add_option(o, name, (double)x->field, standard);

/* The options by which the tokens were drawn, under the names that a line of the input gives them. */
static json_t *sampling_of(const struct llm_prompt *p)
{
    const struct llm_sampling *x = &p->sampling;
    json_t *o = json_pack("{s:f,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:b,s:I}", "temp", x->temperature, "top_k", (json_int_t)x->top_k, "top_p",
                          x->top_p, "min_p", x->min_p, "typical", x->typical, "repeat_penalty", x->repeat_penalty, "presence_penalty",
                          x->presence_penalty, "frequency_penalty", x->frequency_penalty, "repeat_last_n", (json_int_t)x->repeat_last_n, "tokens",
                          (json_int_t)p->max_tokens, "ignore_eos", (int)p->ignore_eos, "seed", (json_int_t)x->seed);
    LLM_SAMPLE_TABLE(LLM_SAMPLE_NO_STEP, ADD_OPTION, ADD_OPTION, , )
    if (x->n_bias > 0) json_object_set_new(o, "logit_bias", biases_of(x));
    return o;
}

int llm_rollouts_put(const struct llm_rollouts *r, const struct llm_completion *c, int64_t group, json_t *o, struct llm_err *e)
{
    const struct llm_prompt *p = &c->prompt;
    bool plain = llm_sampling_is_plain(&p->sampling, INT32_MAX) && !p->ignore_eos;
    int bad = json_object_set_new(o, "group", json_integer(group)) | json_object_set_new(o, "groups", json_integer(r->groups));
    bad |= json_object_set_new(o, "sample", json_integer(c->sample)) | json_object_set_new(o, "samples", json_integer(p->samples));
    bad |= json_object_set_new(o, "prompt_ids", ids_of(p->ids, p->n)) | json_object_set_new(o, "ids", ids_of(c->ids, c->n));
    bad |= json_object_set_new(o, "logprobs", reals_of(c->log_probs, c->n));
    if (!plain) bad |= json_object_set_new(o, "sampled_logprobs", reals_of(c->drawn_log_probs, c->n));
    bad |= json_object_set_new(o, "text", llm_json_text(c->text.bytes.p ? c->text.bytes.p : "", c->text.bytes.n));
    bad |= json_object_set_new(o, "finish_reason", json_string(llm_finish_names[c->finish]));
    bad |= json_object_update(o, r->common) | json_object_set_new(o, "sampling", sampling_of(p));
    return bad ? llm_no_memory(e, "a line of output") : 0;
}
