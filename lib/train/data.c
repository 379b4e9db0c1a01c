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

static int open_val(struct llm_train_data *d, const char *val, const char *tokenizer_id, int64_t vocab_size, struct llm_err *e)
{
    double share;
    if (!(d->val_path = strdup(val))) return llm_no_memory(e, "a path");
    if (llm_parse_real(val, &share) == 0) {
        if (d->feed) return llm_fail(e, LLM_EX_USAGE, "--val: expected a file with --stream, found the share %s", val);
        if (!(share > 0 && share < 1)) return llm_fail(e, LLM_EX_USAGE, "--val: expected a file or a share between 0 and 1, found '%s'", val);
        d->val_share = share;
        return 0;
    }
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
    return val ? open_val(d, val, tokenizer_id, vocab_size, e) : 0;
}

int llm_train_data_stream(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, const char *tokenizer_id,
                          int64_t vocab_size, struct llm_err *e)
{
    if (keep_paths(d, paths, n_paths, e) < 0) return -1;
    d->feed = llm_feed_create(paths, n_paths, tokenizer_id, (int32_t)vocab_size, e);
    if (!d->feed) return -1;
    return val ? open_val(d, val, tokenizer_id, vocab_size, e) : 0;
}

/* The validation file is another path, or a share of the training data. */
int llm_train_data_lines(struct llm_train_data *d, struct llm_lines *lines, const char *const *paths, size_t n_paths, const char *val,
                         struct llm_err *e)
{
    double share;
    if (keep_paths(d, paths, n_paths, e) < 0 || !(d->records = llm_lines_read(lines, paths, n_paths, e))) return -1;
    llm_records_fingerprint(d->records, d->fingerprint);
    if (val && llm_parse_real(val, &share) == 0) return open_val(d, val, NULL, 0, e);
    if (!val) return 0;
    if (!(d->val_path = strdup(val))) return llm_no_memory(e, "a path");
    if (!(d->val_records = llm_lines_read(lines, &val, 1, e))) return llm_in(e, "--val");
    llm_records_fingerprint(d->val_records, d->val_fingerprint);
    return 0;
}

/* Records of one token each: the numbers from `first` on. */
static struct llm_records *numbered(int64_t first, int64_t n, struct llm_err *e)
{
    const uint8_t mask = 1;
    struct llm_records *r = llm_records_create(NULL, e);
    for (int64_t i = first; i < first + n && r; i++) {
        const int32_t id = (int32_t)i;
        if (llm_records_add(r, &(struct llm_record){.ids = &id, .mask = &mask, .n = 1, .second = 1}, e) == 0) continue;
        llm_records_destroy(r);
        r = NULL;
    }
    return r;
}

/* XXH64 of rows [first, first + n) at all places. */
static void hash_rows(const struct llm_activations *a, int64_t first, int64_t n, char hex[17])
{
    uint64_t h = 0;
    for (size_t i = 0; i < a->n; i++) h = llm_xxh64(a->v[i].x + first * a->v[i].cols, (size_t)(n * a->v[i].cols) * sizeof(float), h);
    snprintf(hex, 17, "%016llx", (unsigned long long)h);
}

int llm_train_data_activations(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, struct llm_err *e)
{
    double share;
    bool file = val && llm_parse_real(val, &share) < 0;
    d->activations = llm_calloc(1, sizeof *d->activations, "activations", e);
    if (!d->activations || keep_paths(d, paths, n_paths, e) < 0) return -1;
    for (size_t i = 0; i < n_paths; i++) {
        if (llm_activations_read(d->activations, paths[i], e) < 0) return -1;
    }
    int64_t n = d->activations->rows;
    hash_rows(d->activations, 0, n, d->fingerprint);
    if (n == 0) return llm_fail(e, EX_DATAERR, "training data: expected activations, found none");
    if (n > INT32_MAX) return llm_fail(e, EX_UNAVAILABLE, "training data: expected at most %d activations, found %lld", INT32_MAX, (long long)n);
    if (val && !file && open_val(d, val, NULL, 0, e) < 0) return -1;
    if (file) {
        if (!(d->val_path = strdup(val))) return llm_no_memory(e, "a path");
        if (llm_activations_read(d->activations, val, e) < 0) return llm_in(e, "--val");
        int64_t n_val = d->activations->rows - n;
        if (d->activations->rows > INT32_MAX) return llm_fail(e, EX_UNAVAILABLE, "--val: expected fewer activations");
        hash_rows(d->activations, n, n_val, d->val_fingerprint);
        if (!(d->val_records = numbered(n, n_val, e))) return -1;
    }
    return (d->records = numbered(0, n, e)) ? 0 : -1;
}

int llm_train_data_pictures(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, const struct llm_config *c,
                            struct llm_err *e)
{
    double share;
    const bool file = val && llm_parse_real(val, &share) < 0;
    if (keep_paths(d, paths, n_paths, e) < 0 || !(d->pictures = llm_pictures_open(paths, n_paths, e))) return -1;
    const int64_t n = llm_pictures_count(d->pictures), *shape = llm_pictures_shape(d->pictures);
    if (n == 0) return llm_fail(e, EX_DATAERR, "training data: expected pictures, found none");
    if (shape[0] != c->num_channels || shape[1] != c->image_size || shape[2] != c->image_size) {
        return llm_fail(e, EX_DATAERR, "training data: expected pictures of %lld channels, %lld x %lld pixels (the model's), found %lld, %lld x %lld",
                        (long long)c->num_channels, (long long)c->image_size, (long long)c->image_size, (long long)shape[0], (long long)shape[2],
                        (long long)shape[1]);
    }
    snprintf(d->fingerprint, sizeof d->fingerprint, "%016llx", (unsigned long long)llm_pictures_hash(d->pictures, 0, n));
    if (val && !file && open_val(d, val, NULL, 0, e) < 0) return -1;
    if (file) {
        if (!(d->val_path = strdup(val))) return llm_no_memory(e, "a path");
        if (llm_pictures_add(d->pictures, val, e) < 0) return llm_in(e, "--val");
        const int64_t n_val = llm_pictures_count(d->pictures) - n;
        snprintf(d->val_fingerprint, sizeof d->val_fingerprint, "%016llx", (unsigned long long)llm_pictures_hash(d->pictures, n, n_val));
        if (!(d->val_records = numbered(n, n_val, e))) return -1;
    }
    return (d->records = numbered(0, n, e)) ? 0 : -1;
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
    *d = (struct llm_train_data){0};
}
