/* Places in the forward pass: every place of every family is shown, in training, prefill and decoding. An editor that puts back what it
 * got changes no bit; what is shown is what the model goes on with. */
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
#include "cpu/pool.h"
#include "infer/engine.h"
#include "io/checkpoint.h"
#include "model/forward/watch.h"
#include "tensor/tape.h"
#include "tests/unit/model_of.h"

enum { ROWS = 2, LENGTH = 11, TOKENS = ROWS * LENGTH, ALL = LLM_MAX_STACKS * LLM_N_PLACES, ARENA = 1 << 28 };

/* What observers and editors of all places have seen. */
struct seen {
    int64_t n[LLM_MAX_STACKS][LLM_N_PLACES];
    struct llm_place only;  /* the place whose last value is kept in `x`, `id`, if keep */
    bool keep;
    float x[TOKENS * 256];
    int64_t rows, cols;
    struct llm_row_id id[TOKENS];
};

static int count(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    struct seen *f = arg;
    (void)e;
    f->n[s->place.stack][s->place.kind]++;
    if (!f->keep || s->place.kind != f->only.kind || s->place.stack != f->only.stack || s->place.layer != f->only.layer) return 0;
    f->rows = s->rows;
    f->cols = s->cols;
    assert_true(s->rows * s->cols <= TOKENS * 256);
    for (int64_t r = 0; r < s->rows; r++) {
        f->id[r] = s->who[r];
        memcpy(f->x + r * s->cols, s->x + r * s->stride, (size_t)s->cols * sizeof *f->x);
    }
    return 0;
}

/* Writes other values, then those it got. */
static int put_back(void *arg, const struct llm_sight *s, float *x, struct llm_err *e)
{
    float *copy = malloc((size_t)(s->rows * s->cols + 1) * sizeof *copy);
    (void)arg, (void)e;
    assert_non_null(copy);
    assert_ptr_equal(s->x, x);
    for (int64_t r = 0; r < s->rows; r++) memcpy(copy + r * s->cols, x + r * s->stride, (size_t)s->cols * sizeof *x);
    for (int64_t r = 0; r < s->rows; r++) memset(x + r * s->stride, 0xff, (size_t)s->cols * sizeof *x);
    for (int64_t r = 0; r < s->rows; r++) memcpy(x + r * s->stride, copy + r * s->cols, (size_t)s->cols * sizeof *x);
    free(copy);
    return 0;
}

static int add_one(void *arg, const struct llm_sight *s, float *x, struct llm_err *e)
{
    (void)arg, (void)e;
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t i = 0; i < s->cols; i++) x[r * s->stride + i] += (float)(i % 3);
    }
    return 0;
}

static struct llm_watch watch_all(struct llm_watcher *v, struct seen *f, bool edit)
{
    struct llm_watch w = {.v = v};
    for (int i = 0; i < ALL; i++) {
        enum llm_place_kind kind = (enum llm_place_kind)(i % LLM_N_PLACES);
        bool in = llm_places[kind].in_layer;
        struct llm_place_range at = {kind, i / LLM_N_PLACES, in ? 0 : -1, in ? INT64_MAX : -1};
        v[w.n++] = (struct llm_watcher){.at = at, .observe = count, .arg = f};
        if (edit) v[w.n++] = (struct llm_watcher){.at = at, .edit = put_back};
    }
    return w;
}

/* ---- models ---- */

static struct llm_model *model_made_of(const struct llm_config *c)
{
    struct llm_err e;
    struct llm_config f = *c;
    f.initializer_range = .2;
    struct llm_model *m = llm_model_create(&f, 5, &e);
    if (!m) fail_msg("%s: %s", c->model_type, e.text);
    llm_model_set_dropout(m, .1);
    return m;
}

struct text { int32_t ids[TOKENS], positions[TOKENS], targets[TOKENS], lengths[ROWS]; };

static struct text text_of(const struct llm_config *c)
{
    struct text t;
    for (int32_t i = 0; i < TOKENS; i++) {
        t.ids[i] = (int32_t)((i * 31 + 7) % (c->vocab_size - 1));
        t.targets[i] = (int32_t)((i * 17 + 3) % c->vocab_size);
        t.positions[i] = i % LENGTH;
    }
    for (int r = 0; r < ROWS; r++) t.lengths[r] = LENGTH;
    return t;
}

/* ---- training ---- */

static void clear_gradients(struct llm_model *m)
{
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        if (!p->grad) p->grad = calloc((size_t)llm_param_count(p), sizeof *p->grad);
        assert_non_null(p->grad);
        memset(p->grad, 0, (size_t)llm_param_count(p) * sizeof *p->grad);
    }
}

/* Hidden states or losses, and all gradients, into a new array of *n floats. */
static float *train(struct llm_model *m, int64_t checkpoint_every, enum llm_stored stored, enum llm_compute compute, struct llm_watch *w, size_t *n)
{
    struct llm_ctx c;
    struct llm_err e;
    const struct llm_config *f = &m->config;
    const struct text t = text_of(f);
    size_t total = TOKENS, at = TOKENS;
    clear_gradients(m);
    for (size_t i = 0; i < m->n_params; i++) total += (size_t)llm_param_count(&m->params[i]);
    float *out = calloc(total, sizeof *out);
    assert_non_null(out);
    assert_int_equal(llm_ctx_init(&c, ARENA, ARENA, true, &e), 0);
    c.compute = compute;
    c.training = true;
    c.stored = stored;
    c.n_rows = ROWS;
    c.row_len = LENGTH;
    c.seed = 9;
    c.token_weight = 1.0 / TOKENS;
    c.watch = w;
    const struct llm_batch text = {.ids = t.ids, .positions = t.positions, .n_tokens = TOKENS, .lengths = f->bidirectional ? t.lengths : NULL,
                                   .checkpoint_every = checkpoint_every};
    struct llm_batch source = text, b = text;
    source.lengths = t.lengths;
    if (f->num_encoder_layers > 0) b.source = &source;
    struct llm_tensor *x = llm_model_forward(&c, m, &b);
    bool head = llm_config_has_head(f) && (!f->bidirectional || f->head_transform);
    if (head) {
        x = llm_model_before_head(&c, m, x);
        const struct llm_cross_entropy loss = {.targets = t.targets, .bias = llm_model_head_bias(m), .logit_scale = (float)f->logit_scale,
                                               .logit_softcap = (float)f->final_logit_softcapping, .grad_scale = 1, .token_nll = out,
                                               .logits = llm_model_watched_logits(&c, x->rows)};
        llm_cross_entropy(&c, x, llm_model_head(m), &loss);
    } else {
        float *g = llm_tensor_grad(&c, x);
        for (int64_t i = 0; i < x->rows * x->cols && g; i++) g[i] = (float)(i % 7 - 3);
        for (int64_t i = 0; i < TOKENS && i < x->rows; i++) out[i] = x->data[i * x->stride];
    }
    llm_backward(&c);
    if (llm_ctx_failed(&c)) fail_msg("%s: %s", f->model_type, c.err.text);
    for (size_t i = 0; i < m->n_params; i++) {
        memcpy(out + at, m->params[i].grad, (size_t)llm_param_count(&m->params[i]) * sizeof *out);
        at += (size_t)llm_param_count(&m->params[i]);
    }
    llm_ctx_release(&c);
    *n = total;
    return out;
}

/* Every place that the model has was seen, no other was; inference does not show those of layers that predict further. */
static void check_seen(const struct llm_config *c, const struct seen *f, bool training, int64_t times)
{
    for (int stack = 0; stack < LLM_MAX_STACKS; stack++) {
        for (int k = 0; k < LLM_N_PLACES; k++) {
            struct llm_config own;
            int64_t want = 0;
            bool has = llm_stack_config(c, stack, &own);
            for (int64_t l = llm_places[k].in_layer ? 0 : -1; has && l < (llm_places[k].in_layer ? own.num_hidden_layers : 0); l++) {
                enum llm_place_when not = training ? LLM_PLACE_WITH_CACHE : LLM_PLACE_WITHOUT_CACHE;
                want += llm_places[k].when != not && llm_place_exists(c, (struct llm_place){(enum llm_place_kind)k, stack, l});
            }
            if (k == LLM_PLACE_POOLED || k == LLM_PLACE_CLASSES_INPUT) continue; /* after pooling: elsewhere */
            if ((f->n[stack][k] > 0) != (want > 0) || (training && f->n[stack][k] != want * times)) {
                fail_msg("%s: %s of stack %d: expected %lld visits, found %lld", c->model_type, llm_places[k].name, stack, (long long)want,
                         (long long)f->n[stack][k]);
            }
        }
    }
}

static void check_training(const struct llm_config *c)
{
    static const struct { int64_t every; enum llm_stored stored; enum llm_compute compute; } ways[] = {
        {0, LLM_STORED_F32, LLM_COMPUTE_F32}, {1, LLM_STORED_F32, LLM_COMPUTE_F32}, {0, LLM_STORED_BF16, LLM_COMPUTE_F32},
        {0, LLM_STORED_F32, LLM_COMPUTE_BF16}};
    struct llm_model *m = model_made_of(c);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct llm_watcher v[2 * ALL];
        static struct seen f;
        size_t n, again;
        float *plain = train(m, ways[i].every, ways[i].stored, ways[i].compute, NULL, &n);
        for (int edit = 0; edit < 2; edit++) {
            memset(&f, 0, sizeof f);
            struct llm_watch w = watch_all(v, &f, edit);
            float *watched = train(m, ways[i].every, ways[i].stored, ways[i].compute, &w, &again);
            for (size_t k = 0; k < n; k++) {
                if (memcmp(plain + k, watched + k, sizeof *plain) != 0) {
                    fail_msg("%s, way %zu, %s: number %zu of %zu: %a became %a", c->model_type, i, edit ? "edited" : "observed", k, n,
                             (double)plain[k], (double)watched[k]);
                }
            }
            check_seen(c, &f, true, 1);
            free(watched);
        }
        free(plain);
    }
    llm_model_destroy(m);
}

/* ---- inference ---- */

/* Logits, or an encoder's hidden states, of a prompt and single tokens after it: [LENGTH, width], new. */
static float *infer(struct llm_model *m, enum llm_compute compute, struct llm_watch *w, int64_t *width)
{
    struct llm_engine g = {0};
    struct llm_kv kv;
    struct llm_err e = {0};
    const struct llm_engine_options o = {.compute = compute, .batch = 16};
    const struct text t = text_of(&m->config);
    bool encodes = m->config.bidirectional;
    *width = encodes ? m->config.hidden_size : m->config.vocab_size;
    float *out = calloc((size_t)(TOKENS * *width), sizeof *out);
    assert_non_null(out);
    if (llm_engine_init(&g, m, &o, &e) < 0) fail_msg("%s", e.text);
    g.ctx.watch = w;
    llm_kv_init(&kv, &g.pool);
    if (encodes) {
        const int64_t lengths[] = {LENGTH - 3, 3};
        const struct llm_tensor *hidden = llm_engine_encode(&g, t.ids, NULL, lengths, llm_config_learns_latents(&m->config) ? 1 : 2, &e);
        if (!hidden) fail_msg("%s: %s", m->config.model_type, e.text);
        for (int64_t r = 0; r < hidden->rows && r < TOKENS; r++) {
            memcpy(out + r * *width, hidden->data + r * hidden->stride, (size_t)*width * sizeof *out);
        }
        if (llm_config_has_head(&m->config) && m->config.head_transform) llm_model_logits(&g.ctx, m, (struct llm_tensor *)hidden);
    } else {
        if (m->config.num_encoder_layers > 0 && llm_engine_remember(&g, &kv, t.ids, LENGTH, &e) < 0) fail_msg("%s", e.text);
        for (int64_t at = 0, n; at < LENGTH; at += n) {
            int64_t rows[LENGTH];
            n = at == 0 ? 7 : 1;
            struct llm_feed feed = {&kv, t.ids + at, n, false};
            struct llm_tensor *hidden = llm_engine_run(&g, &feed, 1, &e);
            for (int64_t i = 0; i < n; i++) rows[i] = i;
            const float *logits = hidden ? llm_engine_logits(&g, hidden, rows, n, &e) : NULL;
            if (!logits) fail_msg("%s: %s", m->config.model_type, e.text);
            memcpy(out + at * *width, logits, (size_t)(n * *width) * sizeof *out);
        }
    }
    llm_kv_release(&kv);
    llm_engine_release(&g);
    return out;
}

static void check_inference(const struct llm_config *c)
{
    static const enum llm_compute ways[] = {LLM_COMPUTE_F32, LLM_COMPUTE_BF16};
    struct llm_model *m = model_made_of(c);
    for (int i = 0; i < 2; i++) {
        struct llm_watcher v[2 * ALL];
        static struct seen f;
        int64_t width;
        float *plain = infer(m, ways[i], NULL, &width);
        for (int edit = 0; edit < 2; edit++) {
            memset(&f, 0, sizeof f);
            struct llm_watch w = watch_all(v, &f, edit);
            float *watched = infer(m, ways[i], &w, &width);
            assert_memory_equal(plain, watched, (size_t)(LENGTH * width) * sizeof *plain);
            check_seen(c, &f, false, 0);
            free(watched);
        }
        free(plain);
    }
    llm_model_destroy(m);
}

/* ---- spelling ---- */

static void check_spelling(const struct llm_config *c)
{
    struct llm_err e;
    struct llm_place_range r;
    char text[LLM_PLACE_TEXT];
    for (int i = 0; i < ALL; i++) {
        int k = i % LLM_N_PLACES;
        struct llm_place p = {(enum llm_place_kind)k, i / LLM_N_PLACES, llm_places[k].in_layer ? 1 : -1};
        llm_place_print(p, text, sizeof text);
        bool has = llm_place_exists(c, p);
        if ((llm_place_parse(text, c, &r, &e) == 0) != has) fail_msg("%s: %s: expected %d", c->model_type, text, has);
        if (has && !(llm_place_within(&r, p) && r.first == r.last)) fail_msg("%s: %s is read as another place", c->model_type, text);
    }
}

static void check_family(const struct llm_config *c)
{
    check_spelling(c);
    check_training(c);
    check_inference(c);
}

static void test_families(void **state)
{
    DIR *d = opendir("tests/golden/families");
    int n = 0;
    (void)state;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[400];
        if (!strstr(entry->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "tests/golden/families/%s", entry->d_name);
        print_message("  %s\n", entry->d_name);
        struct llm_config c = golden_config(path);
        check_family(&c);
        n++;
    }
    closedir(d);
    assert_true(n >= 30);
}

static struct llm_config preset(const char *name, const char *const *sets, size_t n)
{
    struct llm_config c;
    struct llm_err e;
    if (llm_config_load(&c, name, sets, n, &e) < 0) fail_msg("%s: %s", name, e.text);
    return c;
}

#define SMALL "vocab_size=97", "hidden_size=64", "num_hidden_layers=3"
static const char *const llama_sets[] = {SMALL, "intermediate_size=96", "num_attention_heads=4", "num_key_value_heads=2", "head_dim=16"};

static void test_families_without_goldens(void **state)
{
    static const char *const sizes[] = {SMALL, "intermediate_size=96"}, *const latents[] = {SMALL, "intermediate_size=96", "num_latents=8"};
    static const char *const learned[] = {SMALL, "intermediate_size=96", "num_latents=8", "latents=learned"};
    static const char *const window[] = {"vocab_size=97"};
    static const char *const chunks[] = {SMALL, "intermediate_size=96", "dual_chunk_size=8", "dual_chunk_local=2"};
    static const char *const one_chunk[] = {SMALL, "intermediate_size=96", "dual_chunk_size=64", "dual_chunk_local=2"};
    const struct llm_config rows[] = {preset("mla", sizes, 4), preset("perceiver", latents, 5), preset("perceiver", learned, 6),
                                      preset("mlp", window, 1), preset("bengio", window, 1), preset("tiny", one_chunk, 6)};
    const struct llm_config several_chunks = preset("tiny", chunks, 6);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_family(&rows[i]);
    check_spelling(&several_chunks);
    check_inference(&several_chunks); /* texts of several chunks are not trained on */
}

static void refused(const char *text, const struct llm_config *c, const char *message)
{
    struct llm_place_range r;
    struct llm_err e = {0};
    assert_int_equal(llm_place_parse(text, c, &r, &e), -1);
    assert_int_equal(e.status, LLM_EX_USAGE);
    if (!strstr(e.text, message)) fail_msg("%s: %s", text, e.text);
}

static void test_spelling(void **state)
{
    struct llm_place_range r;
    struct llm_err e;
    const struct llm_config c = preset("tiny", llama_sets, sizeof llama_sets / sizeof *llama_sets);
    (void)state;
    assert_int_equal(llm_place_parse("layers.*.mlp.hidden", &c, &r, &e), 0);
    assert_true(r.first == 0 && r.last > 2 && r.kind == LLM_PLACE_MLP_HIDDEN && r.stack == LLM_STACK_MAIN);
    assert_int_equal(llm_place_parse("layers.1-2.residual.after", &c, &r, &e), 0);
    assert_true(r.first == 1 && r.last == 2);
    refused("layers.1.mlp.hiden", &c, "did you mean layers.1.mlp.hidden?");
    refused("logit", &c, "did you mean logits?");
    refused("layers.3.mlp.hidden", &c, "expected a layer below 3, found 3");
    refused("layers.2-1.mlp.hidden", &c, "expected layers.N");
    refused("layers.x.mlp.hidden", &c, "expected layers.N");
    refused("layers.99999999999999999999.mlp.hidden", &c, "expected a layer below 3");
    refused("layers.0.mixer.hidden", &c, "expected a place of a llama");
    refused("encoder.layers.0.mlp.hidden", &c, "expected a place of a llama");
    refused("layers.0", &c, "expected layers.N");
    refused("", &c, "expected a place of a llama");
}

/* The manual lists every place, and says of it what the table says. */
static void test_manual(void **state)
{
    FILE *f = fopen("man/llmutils.7", "r");
    static char text[1 << 17];
    (void)state;
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) < sizeof text - 1);
    fclose(f);
    for (char *c = text; *c; c++) *c = *c == '\n' ? ' ' : *c;
    for (int k = 0; k < LLM_N_PLACES; k++) {
        char want[400];
        snprintf(want, sizeof want, ".It Cm %s %c%s. ", llm_places[k].name, llm_places[k].what[0] - 'a' + 'A', llm_places[k].what + 1);
        if (!strstr(text, want)) fail_msg("man/llmutils.7: expected %s", want);
    }
}

/* ---- values ---- */

/* One pass over the text without caches; the value at a place goes to `f`. */
static void look_at(struct llm_model *m, enum llm_compute compute, enum llm_place_kind kind, int64_t layer, struct seen *f)
{
    struct llm_ctx c;
    struct llm_err e;
    const struct text t = text_of(&m->config);
    const struct llm_batch b = {.ids = t.ids, .positions = t.positions, .n_tokens = TOKENS};
    memset(f, 0, sizeof *f);
    f->only = (struct llm_place){kind, LLM_STACK_MAIN, layer};
    f->keep = true;
    const struct llm_watcher v = {.at = {kind, LLM_STACK_MAIN, layer, layer}, .observe = count, .arg = f};
    struct llm_watch w = {.v = &v, .n = 1};
    assert_int_equal(llm_ctx_init(&c, ARENA, 64, false, &e), 0);
    c.compute = compute;
    c.n_rows = ROWS;
    c.row_len = LENGTH;
    c.watch = &w;
    struct llm_tensor *x = llm_model_forward(&c, m, &b);
    if (kind == LLM_PLACE_LOGITS) llm_model_logits(&c, m, x);
    assert_false(llm_ctx_failed(&c));
    llm_ctx_release(&c);
}

/* The observed input of a projection, multiplied by it, is its observed output to the bit, whatever the types of weights and products. */
static void check_real(struct llm_model *m, enum llm_compute compute)
{
    static struct seen in, out;
    struct llm_ctx c;
    struct llm_err e;
    struct llm_param *down = llm_model_find(m, "model.layers.1.mlp.down_proj.weight");
    assert_non_null(down);
    look_at(m, compute, LLM_PLACE_MLP_HIDDEN, 1, &in);
    look_at(m, compute, LLM_PLACE_MLP_OUTPUT, 1, &out);
    assert_int_equal(llm_ctx_init(&c, ARENA, 64, false, &e), 0);
    c.compute = compute;
    struct llm_tensor *x = llm_tensor_create(&c, in.rows, in.cols);
    memcpy(x->data, in.x, (size_t)(in.rows * in.cols) * sizeof(float));
    const struct llm_tensor *y = llm_linear(&c, x, down, NULL);
    assert_false(llm_ctx_failed(&c));
    assert_int_equal(y->rows, out.rows);
    assert_memory_equal(y->data, out.x, (size_t)(out.rows * out.cols) * sizeof(float));
    llm_ctx_release(&c);
    for (int64_t r = 0; r < in.rows; r++) {
        const struct text t = text_of(&m->config);
        assert_int_equal(in.id[r].sequence, r / LENGTH);
        assert_int_equal(in.id[r].position, r % LENGTH);
        assert_int_equal(in.id[r].id, t.ids[r]);
    }
}

static void test_real_values(void **state)
{
    static const enum llm_dtype types[] = {LLM_F32, LLM_BF16, LLM_Q8_0, LLM_Q4_0};
    const struct llm_config c = preset("tiny", llama_sets, sizeof llama_sets / sizeof *llama_sets);
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct llm_model *m = model_made_of(&c);
        struct llm_param *down = llm_model_find(m, "model.layers.1.mlp.down_proj.weight");
        const float *old = down->weight.data;
        void *stored = malloc(llm_dtype_bytes(types[i], (uint64_t)llm_param_count(down)));
        if (types[i] == LLM_F32) memcpy(stored, old, (size_t)llm_param_count(down) * sizeof *old);
        else llm_dtypes[types[i]].encode(old, stored, (size_t)llm_param_count(down));
        free((void *)old);
        down->weight.data = stored;
        down->weight.dtype = types[i];
        check_real(m, LLM_COMPUTE_F32);
        llm_weight_release(&down->weight);
        check_real(m, LLM_COMPUTE_BF16);
        llm_model_destroy(m);
    }
}

/* An editor changes what comes after its place, in training too, and the gradient passes. */
static void test_edits_count(void **state)
{
    const struct llm_config c = preset("tiny", llama_sets, sizeof llama_sets / sizeof *llama_sets);
    struct llm_model *m = model_made_of(&c);
    static const char *const names[] = {"embedding", "layers.1.attention.input", "layers.1.attention.q", "layers.1.mlp.hidden", "layers.2.mlp.output",
                                        "final_norm", "logits"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct llm_err e;
        struct llm_watcher v = {.edit = add_one};
        struct llm_watch w = {.v = &v, .n = 1};
        int64_t width;
        size_t n;
        if (llm_place_parse(names[i], &c, &v.at, &e) < 0) fail_msg("%s", e.text);
        float *plain = infer(m, LLM_COMPUTE_F32, NULL, &width), *edited = infer(m, LLM_COMPUTE_F32, &w, &width);
        assert_memory_not_equal(plain, edited, (size_t)(LENGTH * width) * sizeof *plain);
        free(plain);
        free(edited);
        plain = train(m, 0, LLM_STORED_F32, LLM_COMPUTE_F32, NULL, &n);
        edited = train(m, 0, LLM_STORED_F32, LLM_COMPUTE_F32, &w, &n);
        assert_memory_not_equal(plain, edited, TOKENS * sizeof *plain);
        float *again = train(m, 1, LLM_STORED_F32, LLM_COMPUTE_F32, &w, &n); /* recomputed: edited again */
        assert_memory_equal(edited, again, n * sizeof *edited);
        free(plain);
        free(edited);
        free(again);
    }
    llm_model_destroy(m);
}

static int refuse(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    (void)arg, (void)s;
    return llm_fail(e, EX_IOERR, "the disk is full");
}

static void test_failure(void **state)
{
    const struct llm_config c = preset("tiny", llama_sets, sizeof llama_sets / sizeof *llama_sets);
    const struct llm_watcher v = {.at = {LLM_PLACE_RESIDUAL_AFTER, LLM_STACK_MAIN, 1, 1}, .observe = refuse};
    struct llm_watch w = {.v = &v, .n = 1};
    const struct text t = text_of(&c);
    const struct llm_batch b = {.ids = t.ids, .positions = t.positions, .n_tokens = TOKENS};
    struct llm_model *m = model_made_of(&c);
    struct llm_ctx ctx;
    struct llm_err e;
    (void)state;
    assert_int_equal(llm_ctx_init(&ctx, ARENA, 64, false, &e), 0);
    ctx.watch = &w;
    llm_model_forward(&ctx, m, &b);
    assert_int_equal(ctx.err.status, EX_IOERR);
    assert_string_equal(ctx.err.text, "the disk is full");
    llm_ctx_release(&ctx);
    llm_model_destroy(m);
}

/* ---- embeddings in place of ids ---- */

/* Some tokens, or all, whose embeddings are given: the bits are those of ids. */
static void given(const struct llm_config *c, bool all)
{
    struct llm_model *m = model_made_of(c);
    const struct text t = text_of(c);
    const struct llm_param *table = llm_model_embedding(m);
    struct llm_ctx ctx;
    struct llm_err e;
    int32_t rows[TOKENS], ids[TOKENS];
    float *want;
    assert_int_equal(llm_ctx_init(&ctx, ARENA, 64, false, &e), 0);
    ctx.n_rows = ROWS;
    ctx.row_len = LENGTH;
    struct llm_batch b = {.ids = t.ids, .positions = t.positions, .n_tokens = TOKENS};
    const struct llm_tensor *y = llm_model_forward(&ctx, m, &b);
    size_t bytes = (size_t)(y->rows * y->cols) * sizeof *want;
    want = malloc(bytes);
    memcpy(want, y->data, bytes);
    llm_ctx_reset(&ctx);
    struct llm_tensor *x = llm_tensor_create(&ctx, TOKENS, table->shape[1]);
    for (int64_t i = 0; i < TOKENS; i++) {
        rows[i] = all || i % 3 == 1 ? (int32_t)i : -1;
        ids[i] = rows[i] < 0 ? t.ids[i] : 0; /* any valid id */
        llm_weight_decode(&table->weight, t.ids[i] * table->shape[1], table->shape[1], x->data + i * x->stride);
    }
    b.given = x;
    b.given_row = rows;
    b.ids = all ? NULL : ids;
    y = llm_model_forward(&ctx, m, &b);
    if (llm_ctx_failed(&ctx)) fail_msg("%s", ctx.err.text);
    assert_memory_equal(y->data, want, bytes);
    free(want);
    rows[0] = all ? -1 : TOKENS; /* no embedding for a token without an id; a row that is not there */
    llm_model_forward(&ctx, m, &b);
    assert_true(llm_ctx_failed(&ctx));
    llm_ctx_release(&ctx);
    llm_model_destroy(m);
}

/* The gradients of the table and, with `give`, of embeddings that stand for tokens: added to `sum` [vocab, width] by the tokens' ids. */
static void add_gradients(struct llm_model *m, bool give, bool all, int64_t checkpoint_every, double *sum)
{
    const struct text t = text_of(&m->config);
    const struct llm_param *table = llm_model_embedding(m);
    const int64_t width = table->shape[1];
    struct llm_ctx c;
    struct llm_err e;
    int32_t rows[TOKENS];
    clear_gradients(m);
    assert_int_equal(llm_ctx_init(&c, ARENA, ARENA, true, &e), 0);
    c.n_rows = ROWS;
    c.row_len = LENGTH;
    struct llm_batch b = {.ids = t.ids, .positions = t.positions, .n_tokens = TOKENS, .checkpoint_every = checkpoint_every};
    struct llm_tensor *x = llm_tensor_create(&c, TOKENS, width);
    x->needs_grad = true;
    for (int64_t i = 0; i < TOKENS; i++) {
        rows[i] = all || i % 3 == 1 ? (int32_t)i : -1;
        llm_weight_decode(&table->weight, t.ids[i] * width, width, x->data + i * x->stride);
    }
    if (give) {
        b.given = x;
        b.given_row = rows;
        b.ids = all ? NULL : t.ids;
    }
    struct llm_tensor *y = llm_model_forward(&c, m, &b);
    const struct llm_cross_entropy loss = {.targets = t.targets, .logit_scale = 1, .grad_scale = 1};
    llm_cross_entropy(&c, y, llm_model_head(m), &loss);
    llm_backward(&c);
    if (llm_ctx_failed(&c)) fail_msg("%s: %s", m->config.model_type, c.err.text);
    for (int64_t i = 0; i < llm_param_count(table); i++) sum[i] += (double)table->grad[i];
    for (int64_t i = 0; i < TOKENS && give; i++) {
        for (int64_t k = 0; k < width && rows[i] >= 0; k++) sum[t.ids[i] * width + k] += (double)x->grad[i * x->grad_stride + k];
    }
    llm_ctx_release(&c);
}

/* A gradient passes into given embeddings: with the table's own it is the gradient that the table has when all tokens are looked up. */
static void given_gradients(const struct llm_config *c, bool all, int64_t checkpoint_every)
{
    struct llm_model *m = model_made_of(c);
    size_t n = (size_t)llm_param_count(llm_model_embedding(m));
    double *want = calloc(n, sizeof *want), *found = calloc(n, sizeof *found), error = 0, norm = 0;
    assert_true(want && found);
    add_gradients(m, false, all, checkpoint_every, want);
    add_gradients(m, true, all, checkpoint_every, found);
    for (size_t i = 0; i < n; i++) {
        error += (found[i] - want[i]) * (found[i] - want[i]);
        norm += want[i] * want[i];
    }
    assert_true(norm > 0);
    if (!(error <= 1e-12 * norm)) fail_msg("%s: gradients of given embeddings differ by %g of their norm", c->model_type, sqrt(error / norm));
    free(want);
    free(found);
    llm_model_destroy(m);
}

static void test_given_embeddings(void **state)
{
    struct llm_config llama = preset("tiny", llama_sets, sizeof llama_sets / sizeof *llama_sets);
    struct llm_config gpt2 = golden_config("tests/golden/families/gpt2.safetensors");
    (void)state;
    for (int all = 0; all < 2; all++) {
        given(&llama, all);
        given(&gpt2, all);
        for (int64_t every = 0; every < 2; every++) {
            given_gradients(&llama, all, every);
            given_gradients(&gpt2, all, every);
        }
    }
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spelling), cmocka_unit_test(test_manual), cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_families_without_goldens),
                                       cmocka_unit_test(test_real_values), cmocka_unit_test(test_edits_count), cmocka_unit_test(test_failure),
                                       cmocka_unit_test(test_given_embeddings)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
