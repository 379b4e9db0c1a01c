/* Any bytes through byte-level tokenizers of every known split: decode(encode(x)) = x, and the ids do not depend on how the text was cut. */
#include "fuzz.h"
#include "token/split/split.h"
#include "token/stream.h"
#include "token/train/train.h"

enum { ROWS = 8 };
static struct llm_tokenizer *tokenizers[ROWS];

static struct llm_tokenizer *train(const char *pattern)
{
    static const char text[] = "the cat sat on the mat. It's the cat's mat, they said: 1234 5678  2024\n\n  and THE END\r\nof it!!! "
                               "\xC3\xA9t\xC3\xA9 "
                               "\xE4\xB8\xAD\xE6\x96\x87 the cat sat on the mat. It's the cat's mat, they said: 1234 5678  2024\n\n  and THE END";
    static const char *special = "<|end|>";
    struct llm_strs specials = {.v = &special, .n = 1};
    struct llm_err e = {0};
    struct llm_train_options o = {.vocab_size = 320, .pattern = pattern, .min_frequency = 2, .specials = &specials};
    struct llm_trainer *r = llm_trainer_create(&o, &e);
    MUST(r && llm_trainer_put(r, text, sizeof text - 1, &e) == 0);
    struct llm_tokenizer *t = llm_trainer_finish(r, &e);
    MUST(t);
    llm_trainer_destroy(r);
    return t;
}

struct sum { int32_t ids[8192]; size_t n; };

static int take(void *arg, const int32_t *ids, size_t n, bool ends, struct llm_err *e)
{
    struct sum *s = arg;
    (void)ends;
    (void)e;
    MUST(s->n + n <= sizeof s->ids / sizeof *s->ids);
    if (n) memcpy(s->ids + s->n, ids, n * sizeof *ids);
    s->n += n;
    return 0;
}

/* The same through the parts that threads encode side by side. */
static void check_stream(const struct llm_tokenizer *t, int flags, const char *text, size_t n, size_t step, const int32_t *ids, size_t n_ids)
{
    static struct sum s;
    struct llm_err e = {0};
    struct llm_encode_stream *stream = llm_encode_stream_create(t, flags, take, &s, &e);
    MUST(stream);
    s.n = 0;
    for (size_t at = 0; at < n; at += step) MUST(llm_encode_stream_put(stream, text + at, n - at < step ? n - at : step, &e) == 0);
    MUST(llm_encode_stream_finish(stream, &e) == 0);
    MUST(s.n == n_ids && (n_ids == 0 || memcmp(ids, s.ids, n_ids * sizeof *ids) == 0));
    llm_encode_stream_destroy(stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct llm_encoder *encoders[ROWS][2];
    static int32_t *ids, *fed;
    static size_t room[2];
    struct llm_err e = {0};
    int rows = 0;
    while (llm_split_rows[rows]) rows++;
    MUST(rows <= ROWS);
    if (n < 2 || n > 8000) return 0;
    size_t step = 1 + data[0] % 64, n_ids = 0, n_fed = 0;
    int special = data[1] & 1, flags = special ? LLM_ENCODE_SPECIAL : 0, k = data[1] / 2 % rows;
    const char *text = (const char *)data + 2;
    n -= 2;
    if (!tokenizers[k]) tokenizers[k] = train(llm_split_rows[k]->name);
    struct llm_tokenizer *t = tokenizers[k];
    if (!encoders[k][special]) encoders[k][special] = llm_encoder_create(t, flags, &e);
    struct llm_encoder *en = encoders[k][special];
    struct llm_buf back = {0};
    MUST(en && llm_encoder_feed(en, text, n, true, &ids, &n_ids, &room[0], &e) == 0);
    MUST(llm_decode(t, ids, n_ids, false, &back, &e) == 0 && back.n == n && (n == 0 || memcmp(back.p, text, n) == 0));
    for (size_t at = 0; at < n; at += step) {
        size_t part = n - at < step ? n - at : step;
        MUST(llm_encoder_feed(en, text + at, part, at + part == n, &fed, &n_fed, &room[1], &e) == 0);
    }
    MUST(n_fed == n_ids && (n_ids == 0 || memcmp(ids, fed, n_ids * sizeof *ids) == 0));
    if (data[0] >= 240) check_stream(t, flags, text, n, step, ids, n_ids);
    llm_buf_release(&back);
    return 0;
}
