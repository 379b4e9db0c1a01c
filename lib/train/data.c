/* What a run learns from (train/trainer.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/hash.h"
#include "infer/activations.h"
#include "train/lines.h"
#include "train/data.h"

/* Keeps what --val names: 1 if it is a file, which is to be opened; 0 if it is NULL or a share of the training data. */
static int take_val(struct llm_train_data *d, const char *val, struct llm_err *e)
{
    double share;
    if (!val) return 0;
    if (!(d->val_path = strdup(val))) return llm_no_memory(e, "a path");
    if (llm_parse_real(val, &share) < 0) return 1;
    if (d->feed) return llm_fail(e, LLM_EX_USAGE, "--val: expected a file with --stream, found the share %s", val);
    if (!(share > 0 && share < 1)) return llm_fail(e, LLM_EX_USAGE, "--val: expected a file or a share between 0 and 1, found '%s'", val);
    d->val_share = share;
    return 0;
}

static int open_val_tokens(struct llm_train_data *d, const char *val, const char *tokenizer_id, int64_t vocab_size, struct llm_err *e)
{
    const int file = take_val(d, val, e);
    if (file <= 0) return file;
    d->val = llm_tokens_open(&val, 1, tokenizer_id, (int32_t)vocab_size, e);
    return d->val ? llm_tokens_fingerprint(d->val, d->val_fingerprint, e) : -1;
}

static int keep_paths(struct llm_train_data *d, const char *const *paths, size_t n_paths, struct llm_err *e)
{
    d->paths = llm_calloc(n_paths + 1, sizeof *d->paths, "paths", e);
    if (!d->paths) return -1;
    for (; d->n_paths < n_paths; d->n_paths++) {
        if (!(d->paths[d->n_paths] = strdup(paths[d->n_paths]))) return llm_no_memory(e, "a path");
    }
    return 0;
}

int llm_train_data_open(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, const char *tokenizer_id,
                        int64_t vocab_size, struct llm_err *e)
{
    if (keep_paths(d, paths, n_paths, e) < 0) return -1;
    d->train = llm_tokens_open(paths, n_paths, tokenizer_id, (int32_t)vocab_size, e);
    if (!d->train || llm_tokens_fingerprint(d->train, d->fingerprint, e) < 0) return -1;
    return open_val_tokens(d, val, tokenizer_id, vocab_size, e);
}

int llm_train_data_stream(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, const char *tokenizer_id,
                          int64_t vocab_size, struct llm_err *e)
{
    if (keep_paths(d, paths, n_paths, e) < 0) return -1;
    d->feed = llm_feed_create(paths, n_paths, tokenizer_id, (int32_t)vocab_size, e);
    if (!d->feed) return -1;
    return open_val_tokens(d, val, tokenizer_id, vocab_size, e);
}

static void print_hash(char hex[17], uint64_t hash)
{
    snprintf(hex, 17, "%016llx", (unsigned long long)hash);
}

/* The fingerprint of records, and of the pictures of their texts. */
static void fingerprint(const struct llm_train_data *d, const struct llm_records *r, char hex[17])
{
    llm_records_fingerprint(r, hex);
    if (d->shown && d->shown->n > 0) print_hash(hex, llm_xxh64(hex, 16, d->shown->hash));
}

int llm_train_data_lines(struct llm_train_data *d, struct llm_lines *lines, const char *const *paths, size_t n_paths, const char *val,
                         struct llm_err *e)
{
    if (keep_paths(d, paths, n_paths, e) < 0 || !(d->records = llm_lines_read(lines, paths, n_paths, e))) return -1;
    fingerprint(d, d->records, d->fingerprint);
    const int file = take_val(d, val, e);
    if (file <= 0) return file;
    if (!(d->val_records = llm_lines_read(lines, &val, 1, e))) return llm_in(e, "--val");
    fingerprint(d, d->val_records, d->val_fingerprint);
    return 0;
}

/* Adds the record of item i: its number, and the tokens of the picture's text (tok NULL: none). */
static int add_item(struct llm_records *r, const struct llm_pictures *pictures, const struct llm_tokenizer *tok, int64_t i, struct llm_err *e)
{
    const char *text = tok ? llm_pictures_text(pictures, i) : NULL;
    int32_t *ids = NULL, *all = NULL;
    size_t n = 0;
    if (tok && !text) {
        return llm_fail(e, EX_DATAERR, "picture %lld: expected a text (llm-tokenize image --jsonl), found none", (long long)i + 1);
    }
    int status = tok ? llm_encode(tok, text, strlen(text), LLM_ENCODE_ADD_SPECIAL, &ids, &n, e) : 0;
    if (status == 0) status = (all = llm_alloc(n + 1, sizeof *all, "a picture's text", e)) ? 0 : -1;
    uint8_t *mask = status == 0 ? llm_alloc(n + 1, 1, "a picture's text", e) : NULL;
    if (mask) {
        all[0] = (int32_t)i;
        if (n > 0) memcpy(all + 1, ids, n * sizeof *ids);
        memset(mask, 1, n + 1);
        status = llm_records_add(r, &(struct llm_record){.ids = all, .mask = mask, .n = (int64_t)n + 1, .second = 1}, e);
    }
    free(ids);
    free(all);
    free(mask);
    return mask ? status : -1;
}

/* Records of the items from `first` on. */
static struct llm_records *numbered(const struct llm_train_data *d, const struct llm_tokenizer *tok, int64_t first, int64_t n, struct llm_err *e)
{
    struct llm_records *r = llm_records_create(NULL, e);
    for (int64_t i = first; i < first + n && r; i++) {
        if (add_item(r, d->pictures, tok, i, e) == 0) continue;
        llm_records_destroy(r);
        r = NULL;
    }
    return r;
}

/* A record for each of n items to learn from and, if they are of a file of their own, of the n_val to validate on, which follow these. */
static int number_items(struct llm_train_data *d, const struct llm_tokenizer *tok, int64_t n, int64_t n_val, bool file, struct llm_err *e)
{
    if (file && !(d->val_records = numbered(d, tok, n, n_val, e))) return llm_in(e, "--val");
    return (d->records = numbered(d, tok, 0, n, e)) ? 0 : llm_in(e, "training data");
}

/* XXH64 of pictures [first, first + n) and of their texts. */
static uint64_t hash_pictures(const struct llm_pictures *p, int64_t first, int64_t n)
{
    uint64_t h = llm_pictures_hash(p, first, n);
    for (int64_t i = first; i < first + n; i++) {
        const char *text = llm_pictures_text(p, i);
        if (text) h = llm_xxh64(text, strlen(text), h);
    }
    return h;
}

/* XXH64 of rows [first, first + n) at all places. */
static uint64_t hash_rows(const struct llm_activations *a, int64_t first, int64_t n)
{
    uint64_t h = 0;
    for (size_t i = 0; i < a->n; i++) h = llm_xxh64(a->v[i].x + first * a->v[i].cols, (size_t)(n * a->v[i].cols) * sizeof(float), h);
    return h;
}

int llm_train_data_activations(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, struct llm_err *e)
{
    d->activations = llm_calloc(1, sizeof *d->activations, "activations", e);
    if (!d->activations || keep_paths(d, paths, n_paths, e) < 0) return -1;
    for (size_t i = 0; i < n_paths; i++) {
        if (llm_activations_read(d->activations, paths[i], e) < 0) return -1;
    }
    const int64_t n = d->activations->rows;
    if (n == 0) return llm_fail(e, EX_DATAERR, "training data: expected activations, found none");
    if (n > INT32_MAX) return llm_fail(e, EX_UNAVAILABLE, "training data: expected at most %d activations, found %lld", INT32_MAX, (long long)n);
    const int file = take_val(d, val, e);
    if (file < 0) return -1;
    if (file && llm_activations_read(d->activations, val, e) < 0) return llm_in(e, "--val");
    const int64_t n_val = d->activations->rows - n;
    if (n + n_val > INT32_MAX) return llm_fail(e, EX_UNAVAILABLE, "--val: expected fewer activations");
    print_hash(d->fingerprint, hash_rows(d->activations, 0, n));
    if (file) print_hash(d->val_fingerprint, hash_rows(d->activations, n, n_val));
    return number_items(d, NULL, n, n_val, file, e);
}

int llm_train_data_pictures(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, const struct llm_config *c,
                            const struct llm_tokenizer *texts, struct llm_err *e)
{
    if (keep_paths(d, paths, n_paths, e) < 0 || !(d->pictures = llm_pictures_open(paths, n_paths, e))) return -1;
    const int64_t n = llm_pictures_count(d->pictures), *shape = llm_pictures_shape(d->pictures);
    if (n == 0) return llm_fail(e, EX_DATAERR, "training data: expected pictures, found none");
    if (shape[0] != c->num_channels || shape[1] != c->image_size || shape[2] != c->image_size) {
        return llm_fail(e, EX_DATAERR, "training data: expected pictures of %lld channels, %lld x %lld pixels (the model's), found %lld, %lld x %lld",
                        (long long)c->num_channels, (long long)c->image_size, (long long)c->image_size, (long long)shape[0], (long long)shape[2],
                        (long long)shape[1]);
    }
    const int file = take_val(d, val, e);
    if (file < 0) return -1;
    if (file && llm_pictures_add(d->pictures, val, e) < 0) return llm_in(e, "--val");
    const int64_t n_val = llm_pictures_count(d->pictures) - n;
    print_hash(d->fingerprint, (texts ? hash_pictures : llm_pictures_hash)(d->pictures, 0, n));
    if (file) print_hash(d->val_fingerprint, (texts ? hash_pictures : llm_pictures_hash)(d->pictures, n, n_val));
    return number_items(d, texts, n, n_val, file, e);
}

int llm_train_data_later(struct llm_train_data *d, struct llm_err *e)
{
    const char *const path = "-";
    return keep_paths(d, &path, 1, e);
}

int64_t llm_train_data_vocab_size(const struct llm_train_data *d)
{
    return d->feed ? llm_feed_vocab_size(d->feed) : d->train ? llm_tokens_vocab_size(d->train) : 0;
}

uint64_t llm_train_data_documents(const struct llm_train_data *d, bool val)
{
    const struct llm_tokens *tokens = val ? d->val : d->train;
    const struct llm_records *records = val ? d->val_records : d->records;
    size_t n = 0;
    if (records) return (uint64_t)llm_records_count(records);
    if (tokens) llm_tokens_doc_ends(tokens, &n);
    return n;
}

void llm_train_data_release(struct llm_train_data *d)
{
    for (size_t i = 0; i < d->n_paths; i++) free(d->paths[i]);
    free(d->paths);
    free(d->val_path);
    if (d->train) llm_tokens_close(d->train);
    llm_feed_destroy(d->feed);
    if (d->val) llm_tokens_close(d->val);
    llm_records_destroy(d->records);
    llm_records_destroy(d->val_records);
    if (d->activations) llm_activations_release(d->activations);
    free(d->activations);
    llm_pictures_close(d->pictures);
    if (d->shown) llm_shown_release(d->shown);
    free(d->shown);
    *d = (struct llm_train_data){0};
}
