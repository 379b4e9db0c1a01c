/* Files that hold a chat template: a tokenizer_config.json or a template named by the user, or a model's file that carries one. */
#include "token/chat/find.h"
#include "tokenizer.h"

/* A tokenizer of letters with special tokens, for what ends a turn. */
static const char letters[] =
    "{\"added_tokens\":[{\"id\":2,\"content\":\"<|im_end|>\",\"special\":true},{\"id\":3,\"content\":\"</s>\",\"special\":true}],"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xC4\x8A\":1},\"merges\":[]}}";

static void check(const char *spec, const char *path, const struct llm_tokenizer *t)
{
    struct llm_chat c = {0};
    struct llm_err e = {0};
    int32_t ids[4];
    int got = llm_chat_find(&c, spec, path, t, &e);
    MUST(got == 0 || e.status);
    MUST(got < 0 || (c.template && c.text));
    if (got == 0) MUST(llm_chat_turn_ends(&c, t, ids) <= 4);
    llm_chat_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct llm_tokenizer *t;
    struct llm_err e = {0};
    char path[40];
    if (!t) t = llm_tokenizer_from_json(letters, sizeof letters - 1, "letters", &e);
    MUST(t);
    int fd = fuzz_file(data, n, path);
    check(path, NULL, t);
    check(NULL, path, t);
    close(fd);
    return 0;
}
