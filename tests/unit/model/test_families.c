/* Tiny models of every family, made hard, against transformers in double (tests/oracle/families.py): each is written out as a Hugging Face folder,
 * loaded, its logits compared within 5e-6 of their range; then its tensors must come out of a save as they went in, and the configuration that a
 * save writes must give the same logits, and so must a GGUF file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "io/checkpoint.h"
#include "model/config/arch.h"
#include "model/model.h"
#include "tests/unit/near.h"

enum { SEED = 23, VOCAB = 61, EVERY = 5, MAX_TENSORS = 128, ARENA = 1 << 28 };

struct golden {
    struct llm_checkpoint *file;
    json_t *config, *tensors; /* [[name, shape], …] */
    float *logits;
    int64_t rows, vocab, length;
    const char *model_type;
};

static char folder[] = "/tmp/llm-families-XXXXXX";

static void load_golden(struct golden *g, const char *path)
{
    struct llm_err e;
    g->file = llm_checkpoint_open(path, &e);
    if (!g->file) fail_msg("%s", e.text);
    const struct llm_header *h = llm_checkpoint_header(g->file);
    const char *config = llm_header_meta(h, "config"), *tensors = llm_header_meta(h, "tensors");
    g->config = llm_json_parse(config, strlen(config), &e);
    g->tensors = llm_json_parse(tensors, strlen(tensors), &e);
    assert_non_null(g->config);
    assert_non_null(g->tensors);
    const struct llm_entry *t = llm_header_find(h, "logits");
    assert_non_null(t);
    g->rows = t->shape[0];
    g->vocab = t->shape[1];
    g->length = strtol(llm_header_meta(h, "context"), NULL, 10);
    g->logits = malloc((size_t)t->bytes);
    assert_int_equal(llm_checkpoint_read(g->file, t, g->logits, &e), 0);
    g->model_type = json_string_value(json_object_get(g->config, "model_type"));
}

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* What families.py adds to and multiplies the numbers of parameter `name` with. */
static void hardness(const struct golden *g, const char *name, bool vector, int64_t rows, int64_t cols, float *factor, float *plus)
{
    static const char *const strong[] = {"q_proj", "k_proj", "v_proj", "qkv", "c_attn", "query_key_value", "self.query", "self.key", "self.value"};
    static const char *const tables[] = {"embed", "wte", "wpe", "lm_head"};
    *plus = 0;
    if (vector) {
        bool gain = (has(name, "norm") || has(name, ".ln_") || has(name, "LayerNorm"))
                    && (strcmp(name + strlen(name) - 6, "weight") == 0 || strcmp(name + strlen(name) - 5, "gamma") == 0);
        *factor = .3f;
        *plus = (float)(gain && !has(g->model_type, "gemma")) + (float)(has(name, "q_norm") || has(name, "k_norm"));
        return;
    }
    if (has(name, "pos_emb") || has(name, "deltas") || has(name, ".freq")) {
        *factor = 1; /* of Hyena's filters */
        return;
    }
    double scale = 1 / sqrt((double)(strcmp(g->model_type, "gpt2") == 0 ? rows : cols));
    for (size_t i = 0; i < sizeof strong / sizeof *strong; i++) {
        if (has(name, strong[i])) {
            scale *= 1.7;
            break;
        }
    }
    *factor = (float)scale;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (has(name, tables[i])) *factor = .5f;
    }
}

static struct llm_tensor_out make_tensor(const struct golden *g, size_t i)
{
    const json_t *row = json_array_get(g->tensors, i), *shape = json_array_get(row, 1);
    struct llm_tensor_out t = {.name = json_string_value(json_array_get(row, 0)), .dtype = LLM_F32, .n_dims = (int)json_array_size(shape)};
    float factor, plus;
    for (int d = 0; d < t.n_dims; d++) t.shape[d] = json_integer_value(json_array_get(shape, (size_t)d));
    int64_t rows = t.shape[0], cols = 1;
    for (int d = 1; d < t.n_dims; d++) cols *= t.shape[d];
    hardness(g, t.name, t.n_dims == 1, rows, cols, &factor, &plus);
    float *data = malloc((size_t)(rows * cols) * sizeof *data);
    for (int64_t r = 0; r < rows; r++) {
        struct llm_rng rng = llm_rng_at(SEED, 0, LLM_RNG_TEST, (uint32_t)i, (uint32_t)r, 0);
        for (int64_t c = 0; c < cols; c++) data[r * cols + c] = llm_rng_normal(&rng, (uint32_t)c) * factor + plus;
    }
    t.data = data;
    return t;
}

static void write_folder(const json_t *config, const struct llm_tensor_out *t, size_t n)
{
    char path[128];
    struct llm_err e;
    const struct llm_checkpoint_options plain = {.plain = true};
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    struct llm_output *o = llm_output_open(path, true, &e);
    assert_non_null(o);
    json_t *meta = json_pack("{s:s}", "format", "pt");
    if (llm_checkpoint_write(o, meta, t, n, &plain, &e) < 0 || llm_output_commit(o, &e) < 0) fail_msg("%s", e.text);
    json_decref(meta);
}

/* The model's logits at the golden's positions. */
static void compute(const struct golden *g, struct llm_model *m, float *out)
{
    struct llm_err e;
    struct llm_ctx c;
    int32_t ids[64], answer[64], positions[64];
    struct llm_rng rng = llm_rng_at(SEED, 0, LLM_RNG_TEST, 0, 0, 0);
    for (int32_t i = 0; i < g->length; i++) {
        ids[i] = (int32_t)llm_rng_below(&rng, (uint32_t)i, VOCAB);
        positions[i] = i;
        answer[g->length - 1 - i] = ids[i];
    }
    assert_int_equal(llm_model_set_context(m, g->length, &e), 0);
    assert_int_equal(llm_ctx_init(&c, ARENA, 64, false, &e), 0);
    c.compute = LLM_COMPUTE_F32;
    c.n_rows = 1;
    c.row_len = g->length;
    const struct llm_batch text = {.ids = ids, .positions = positions, .n_tokens = g->length};
    struct llm_batch b = text;
    if (m->config.num_encoder_layers > 0) { /* answers the text with the same backwards */
        b.ids = answer;
        b.source = &text;
    }
    struct llm_tensor *logits = llm_model_forward(&c, m, &b);
    if (g->vocab == m->config.vocab_size) logits = llm_model_logits(&c, m, logits);
    if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
    for (int64_t r = 0; r < g->rows; r++) memcpy(out + r * g->vocab, logits->data + r * EVERY * logits->stride, (size_t)g->vocab * sizeof *out);
    llm_ctx_release(&c);
}

static void check_logits(const struct golden *g, struct llm_model *m, const char *name)
{
    float low = INFINITY, high = -INFINITY, *found = malloc((size_t)(g->rows * g->vocab) * sizeof *found);
    double worst = 0;
    assert_non_null(found);
    compute(g, m, found);
    for (int64_t i = 0; i < g->rows * g->vocab; i++) {
        low = fminf(low, g->logits[i]);
        high = fmaxf(high, g->logits[i]);
        worst = worse(worst, fabs((double)found[i] - (double)g->logits[i]));
    }
    free(found);
    print_message("  %-36s worst difference %.1e of the range\n", name, worst / (double)(high - low));
    if (!(worst <= 5e-6 * (double)(high - low))) fail_msg("%s: logits differ by %g of their range", name, worst / (double)(high - low));
}

/* Whether a file's name is ours, also without the prefix and with a norm's gain and bias as of old. */
static bool same_name(const struct llm_model *m, const char *ours, const char *theirs)
{
    char name[128];
    const size_t prefix = strlen(m->arch->names.prefix);
    if (strcmp(ours, theirs) == 0) return true;
    if (strncmp(ours, m->arch->names.prefix, prefix) == 0) ours += prefix;
    snprintf(name, sizeof name, "%s", ours);
    const size_t n = strlen(name);
    if (strcmp(name, theirs) == 0) return true;
    if (n > 16 && strcmp(name + n - 16, "LayerNorm.weight") == 0) strcpy(name + n - 6, "gamma");
    else if (n > 14 && strcmp(name + n - 14, "LayerNorm.bias") == 0) strcpy(name + n - 4, "beta");
    return strcmp(name, theirs) == 0;
}

static void check_save(struct llm_model *m, const struct llm_tensor_out *t, size_t n, const char *name)
{
    struct llm_err e;
    struct llm_tensor_list l = {0};
    json_t *meta = json_object();
    assert_int_equal(llm_model_describe(m, meta, &l, &e), 0);
    assert_int_equal(l.n, n);
    for (size_t i = 0; i < l.n; i++) {
        size_t j = 0;
        while (j < n && !same_name(m, l.v[i].name, t[j].name)) j++;
        if (j == n) fail_msg("%s: %s was not there", name, l.v[i].name);
        assert_int_equal(l.v[i].n_dims, t[j].n_dims);
        assert_memory_equal(l.v[i].shape, t[j].shape, (size_t)t[j].n_dims * sizeof *t[j].shape);
        int64_t count = 1;
        for (int d = 0; d < t[j].n_dims; d++) count *= t[j].shape[d];
        float *given = l.v[i].data ? NULL : calloc((size_t)count, sizeof *given);
        if (given) llm_model_give(m, l.v[i].name, 0, (size_t)count * sizeof *given, given);
        const void *data = given ? given : l.v[i].data;
        if (memcmp(data, t[j].data, (size_t)count * sizeof(float)) != 0) fail_msg("%s: %s does not come back", name, t[j].name);
        free(given);
    }
    free(l.v);
    json_decref(meta);
}

/* Golden configurations are made hard in ways that files do not have: the nearest that GGUF can say. */
static void soften(struct llm_config *c)
{
    int64_t every = strcmp(c->model_type, "gemma3_text") == 0 ? 6 : strcmp(c->model_type, "gemma2") == 0 ? 2 : 0;
    if (every > 0) c->query_pre_attn_scalar = (double)c->head_dim;
    c->rope_scaling.mscale = c->rope_scaling.mscale_all_dim;
    for (int64_t l = 0; l < c->num_hidden_layers && strcmp(c->model_type, "smollm3") == 0; l++) {
        uint64_t bit = (uint64_t)1 << l % 64, *set = &c->no_rope_layers[l / 64];
        *set = (l + 1) % 4 == 0 ? *set | bit : *set & ~bit;
    }
    if (every == 0) return;
    memset(c->local_layers, 0, sizeof c->local_layers);
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        if ((l + 1) % every != 0) c->local_layers[l / 64] |= (uint64_t)1 << l % 64;
    }
}

/* Written as GGUF and read again: the same logits, though pairs of channels, gains and biases lie otherwise in the file. */
static void check_gguf(struct golden *g, struct llm_model *m, const char *name)
{
    static const struct { const char *name, *key; } unsaid[] = {{"dynamic", "rope_scaling"}, {"qwen2-window", "sliding_window"},
        {"bert-model", "hidden_act"}, {"moe-plain", "norm_topk_prob"},
        {"gemma3-bidirectional", "use_bidirectional_attention"}, {"gpt2-inverse-layer", "scale_attn_by_inverse_layer_idx"},
        {"gpt2-unscaled", "the scale of attention scores"}, {"qwen3_moe-window", "sliding_window"}, {"smollm3-", "sliding_window"},
        {"qwen3_moe-dense", "decoder_sparse_step"},
        {"t5", "relative_attention_max_distance"}, {"mamba-bias", "use_bias"}, {"mamba2", "use_bias"},
        {"mamba-act", "hidden_act"}, {"mamba2-act", "hidden_act"},
        {"rwkv", "a model of type 'rwkv"}, {"rnn", "a model of type 'rnn'"}, {"lstm", "a model of type 'lstm'"},
        {"hyena", "a model of type 'hyenadna'"}};
    const char *key = NULL;
    char path[128];
    struct llm_err e;
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    struct llm_output *o = llm_output_open(path, true, &e);
    assert_non_null(o);
    soften(&m->config);
    int r = llm_model_save_gguf(m, o, &e);
    for (size_t i = 0; i < sizeof unsaid / sizeof *unsaid; i++) key = strstr(name, unsaid[i].name) ? unsaid[i].key : key;
    if (key) {
        assert_int_equal(r, -1);
        assert_int_equal(e.status, EX_UNAVAILABLE);
        if (!strstr(e.text, key)) fail_msg("%s: GGUF: %s", name, e.text);
        llm_output_abandon(o);
        return;
    }
    if (r < 0 || llm_output_commit(o, &e) < 0) fail_msg("%s: GGUF: %s", name, e.text);
    struct llm_model *again = llm_model_load(path, &e);
    if (!again) fail_msg("%s: GGUF: %s", name, e.text);
    struct golden ours = *g;
    if (m->config.bidirectional) ours.vocab = m->config.hidden_size; /* files have no head for masked tokens */
    ours.logits = malloc((size_t)(ours.rows * ours.vocab) * sizeof *ours.logits);
    assert_non_null(ours.logits);
    compute(&ours, m, ours.logits);
    check_logits(&ours, again, name);
    free(ours.logits);
    llm_model_destroy(again);
    unlink(path);
}

static void check_golden(const char *path)
{
    struct golden g;
    struct llm_err e;
    struct llm_tensor_out t[MAX_TENSORS];
    load_golden(&g, path);
    size_t n = json_array_size(g.tensors);
    assert_true(n <= MAX_TENSORS);
    for (size_t i = 0; i < n; i++) t[i] = make_tensor(&g, i);
    json_t *config = json_incref(g.config);
    for (int again = 0; again < 2; again++) { /* with the configuration of transformers, with ours */
        write_folder(config, t, n);
        json_decref(config);
        struct llm_model *m = llm_model_load(folder, &e);
        if (!m) fail_msg("%s: %s", path, e.text);
        check_logits(&g, m, path + strlen("tests/golden/families/"));
        if (!again) check_save(m, t, n, path);
        config = llm_config_to_json(&m->config, &e);
        assert_non_null(config);
        if (!again) check_gguf(&g, m, path + strlen("tests/golden/families/"));
        llm_model_destroy(m);
    }
    json_decref(config);
    for (size_t i = 0; i < n; i++) free((void *)t[i].data);
    free(g.logits);
    json_decref(g.config);
    json_decref(g.tensors);
    llm_checkpoint_close(g.file);
}

static int by_text(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void test_families(void **state)
{
    struct dirent **names;
    char path[400];
    int n = scandir("tests/golden/families", &names, NULL, by_text), seen = 0;
    (void)state;
    assert_true(n > 0);
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < n; i++) {
        if (strstr(names[i]->d_name, ".safetensors")) {
            snprintf(path, sizeof path, "tests/golden/families/%s", names[i]->d_name);
            check_golden(path);
            seen++;
        }
        free(names[i]);
    }
    free(names);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    rmdir(folder);
    assert_true(seen >= 20);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
