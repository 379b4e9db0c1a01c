#include "token/split/split.h"
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

const struct llm_split_row *const llm_split_rows[] = {&llm_split_gpt2, &llm_split_llama3, &llm_split_cl100k, &llm_split_qwen2,
                                                      &llm_split_o200k, NULL};

const char *llm_split_word(int i) { return llm_split_rows[i] ? llm_split_rows[i]->name : NULL; }

static const struct llm_split_row *find(const char *pattern)
{
    for (size_t i = 0; llm_split_rows[i]; i++) {
        const struct llm_split_row *row = llm_split_rows[i];
        if (strcmp(pattern, row->name) == 0)
            return row;
        for (size_t k = 0; k < sizeof row->patterns / sizeof *row->patterns && row->patterns[k]; k++)
            if (strcmp(pattern, row->patterns[k]) == 0)
                return row;
    }
    return NULL;
}

int llm_split_init(struct llm_split *s, const char *pattern, struct llm_err *e)
{
    *s = (struct llm_split){.row = find(pattern)};
    if (s->row)
        pattern = strcmp(pattern, s->row->name) == 0 ? s->row->patterns[0] : pattern;
    s->pattern = strdup(pattern);
    if (!s->pattern)
        return llm_no_memory(e, "a split pattern");
    if (!s->row) {
        s->regex = llm_regex_create(pattern, "split pattern", e);
        if (!s->regex) {
            llm_split_release(s);
            return -1;
        }
    }
    return 0;
}

void llm_split_release(struct llm_split *s)
{
    llm_regex_destroy(s->regex);
    free(s->pattern);
    *s = (struct llm_split){0};
}
