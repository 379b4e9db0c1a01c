/* Parameters know what they are: each has the declaration that its name says, and no other parameter of the model has the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "model/config/arch.h"
#include "tests/unit/model_of.h"

#define SHAPE "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"vocab_size\": 40, \"intermediate_size\": 48"

static const char *const configs[] = {
    "{\"model_type\": \"llama\", " SHAPE "}",
    "{\"model_type\": \"mixtral\", " SHAPE ", \"num_key_value_heads\": 2, \"num_local_experts\": 3, \"num_nextn_predict_layers\": 1}",
    "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 2, \"vocab_size\": 40}",
    "{\"model_type\": \"lstm\", \"hidden_size\": 32, \"num_layers\": 2, \"vocab_size\": 40}",
    "{\"model_type\": \"mamba2\", \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_heads\": 4, \"head_dim\": 16,"
    " \"n_groups\": 1, \"vocab_size\": 40}",
    "{\"model_type\": \"bert\", " SHAPE "}",
    "{\"model_type\": \"t5\", \"d_model\": 32, \"d_kv\": 16, \"d_ff\": 48, \"num_layers\": 2, \"num_heads\": 2, \"vocab_size\": 40}",
    "{\"model_type\": \"clip\", \"text_config\": {\"vocab_size\": 40, \"num_hidden_layers\": 2}, "
    "\"vision_config\": {\"num_hidden_layers\": 3}}",
    "{\"model_type\": \"siglip\", \"text_config\": {\"vocab_size\": 40, \"num_hidden_layers\": 2}, "
    "\"vision_config\": {\"num_hidden_layers\": 3}}",
    "{\"model_type\": \"llava\", \"image_token_index\": 3, \"text_config\": {\"vocab_size\": 40, \"hidden_size\": 32, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 2, \"intermediate_size\": 48}, \"vision_config\": {\"hidden_size\": 24, \"num_attention_heads\": 2,"
    " \"intermediate_size\": 32, \"num_hidden_layers\": 3}}",
    "{\"model_type\": \"llava_next\", \"image_token_index\": 3, \"text_config\": {\"vocab_size\": 40, \"hidden_size\": 32,"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 48}, \"vision_config\": {\"hidden_size\": 24,"
    " \"num_attention_heads\": 2, \"intermediate_size\": 32, \"num_hidden_layers\": 3}}",
    "{\"model_type\": \"idefics3\", \"image_token_id\": 3, \"scale_factor\": 7, \"text_config\": {\"vocab_size\": 40, \"hidden_size\": 32,"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 48}, \"vision_config\": {\"hidden_size\": 24,"
    " \"num_attention_heads\": 2, \"intermediate_size\": 32, \"num_hidden_layers\": 3}}",
    "{\"model_type\": \"deepseek_v3\", " SHAPE ", \"kv_lora_rank\": 16, \"q_lora_rank\": 16, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 8,"
    " \"v_head_dim\": 16, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"n_group\": 1, \"topk_group\": 1, \"moe_intermediate_size\": 16,"
    " \"first_k_dense_replace\": 1}"};

/* The number after `what` in the name; -1: none. */
static int number_after(const char *name, const char *what)
{
    const char *at = strstr(name, what);
    return at ? (int)strtol(at + strlen(what), NULL, 10) : -1;
}

static int layer_in(const struct llm_param *p, const struct llm_config *c)
{
    if (p->spec->stem == LLM_STEM_DISTANCES) return -1; /* of a stack, whatever layer the name says */
    static const char *const words[] = {"layers.", "block.", "layer.", "h.", "h_l"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int n = number_after(p->name, words[i]);
        if (n >= 0) return n + (strstr(p->name, "encoder.block.") || strstr(p->name, "vision_model.") ? (int)c->num_hidden_layers : 0);
    }
    return -1;
}

static void test_facts(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++) {
        struct llm_err e = {0};
        struct llm_config c = config_of(configs[k]);
        struct llm_model *m = llm_model_create(&c, 1, &e);
        if (!m) fail_msg("%s: %s", configs[k], e.text);
        for (size_t i = 0; i < m->n_params; i++) {
            const struct llm_param *p = &m->params[i];
            const struct llm_param_spec *s = p->spec;
            assert_ptr_equal(p->name, s->name);
            if (s->layer != layer_in(p, &c)) fail_msg("%s: expected layer %d, found %d", p->name, layer_in(p, &c), s->layer);
            if (s->expert != number_after(p->name, ".experts.")) fail_msg("%s: found expert %lld", p->name, (long long)s->expert);
            assert_int_equal(s->role, p->role);
            assert_true(s->unit < LLM_UNIT_ENCODER && llm_unit_names[s->unit]);
            const bool encoder = c.num_encoder_layers > 0 && strstr(p->name, "encoder.") == p->name;
            const bool vision = c.vision.patch_size > 0
                && (strstr(p->name, "vision_model.") || strstr(p->name, "visual_projection") || strstr(p->name, "projector")
                    || strstr(p->name, "newline") || strstr(p->name, "connector"));
            assert_int_equal(s->stack, encoder ? LLM_STACK_ENCODER : vision ? LLM_STACK_VISION : LLM_STACK_MAIN);
            if (s->layer >= 0) assert_true(s->stem < LLM_N_STEMS);
            else assert_true(s->stem >= LLM_N_STEMS);
            for (size_t j = 0; j < i; j++) assert_false(llm_param_spec_same(s, m->params[j].spec));
        }
        assert_ptr_equal(llm_model_embedding(m)->spec, &m->specs[0]);
        assert_int_equal(llm_model_embedding(m)->spec->stem, LLM_STEM_EMBED);
        llm_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_facts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
