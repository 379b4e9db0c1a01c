/* llm-train: opening the data of a run: token streams, or lines of JSON that the objective reads. */
#include <stdlib.h>
#include <string.h>
#include "bin/train/train.h"
#include "train/lines.h"

/* Where the data of a run is: the command line's paths, else those that the run was saved with. */
struct places { const char *const *paths; size_t n; const char *val, **stored; };

static int find_places(struct places *p, const struct llm_run *r, const struct args *a, const char *const *paths, size_t n, struct llm_err *e)
{
    const char *stored_val = NULL;
    size_t n_stored = 0;
    *p = (struct places){.paths = paths, .n = n, .val = a->val};
    if (a->teach.prompts) return 0; /* completions come during the run */
    if (a->resume && (n == 0 || !p->val) && llm_state_data(r->model, &p->stored, &n_stored, &stored_val, e) < 0) return llm_in(e, "%s", a->resume);
    if (a->resume && n == 0) {
        p->paths = p->stored;
        p->n = n_stored;
    }
    if (a->resume && !p->val) p->val = stored_val;
    if (!a->resume || p->n > 0 || a->o.steps == 0) return 0;
    return llm_fail(e, EX_NOINPUT, "%s: expected data on the command line: the run has had none", a->resume);
}

/* Whether the data are pictures: those of a vision transformer or of two towers are. *c: the configuration of what sees. 1, 0 or -1. */
static int takes_pictures(const struct llm_run *r, const struct args *a, struct llm_config *c, struct llm_err *e)
{
    const struct llm_objective *o = llm_objectives[a->o.objective];
    struct llm_config whole;
    if (!o->pictures && !o->captions) return 0;
    if (r->model) whole = r->model->config;
    else if (llm_config_load(&whole, a->config, a->sets.v, a->sets.n, e) < 0) return -1;
    if (!llm_config_sees(&whole, c) || (llm_config_two_towers(&whole) ? !o->captions : !o->pictures)) return 0;
    return a->o.stream ? llm_fail(e, LLM_EX_USAGE, "--stream: expected data of tokens, found a model of pictures") : 1;
}

static int open_streams(const struct llm_run *r, const struct args *a, const struct llm_tokenizer *tok, const struct places *p,
                        struct llm_train_data *d, struct llm_err *e)
{
    const struct llm_tokenizer *known = tok ? tok : r->model ? r->model->tokenizer : NULL;
    int64_t vocab = known ? llm_tokenizer_vocab_size(known) : r->model ? r->model->config.vocab_size : 0;
    struct llm_config c;
    const int pictures = takes_pictures(r, a, &c, e);
    const bool captions = llm_objectives[a->o.objective]->captions;
    if (pictures > 0 && captions && !known) return llm_fail(e, LLM_EX_USAGE, "expected a tokenizer (-T) for the pictures' texts");
    if (pictures) return pictures < 0 ? -1 : p->n > 0 ? llm_train_data_pictures(d, p->paths, p->n, p->val, &c, captions ? known : NULL, e) : 0;
    if (llm_objectives[a->o.objective]->activations) return p->n > 0 ? llm_train_data_activations(d, p->paths, p->n, p->val, e) : 0;
    int lines = p->n > 0 ? llm_lines_are(&a->o, p->paths[0], e) : 0;
    const struct llm_objective *objective = llm_objectives[a->o.objective];
    if (lines != 0 || p->n == 0) return lines < 0 ? -1 : 0;
    if (objective->takes_lines && objective->takes_lines(&a->o)) {
        return llm_fail(e, LLM_EX_USAGE, "--objective %s: expected --teacher MODEL and no --on-policy with the token stream %s, or JSON Lines",
                        objective->name, p->paths[0]);
    }
    return (a->o.stream ? llm_train_data_stream : llm_train_data_open)(d, p->paths, p->n, p->val, known ? llm_tokenizer_id(known) : NULL, vocab, e);
}

int llm_run_open_data(const struct llm_run *r, const struct args *a, const struct llm_tokenizer *tok, const char *const *paths, size_t n,
                      struct llm_train_data *d, struct llm_err *e)
{
    struct places p;
    int got = find_places(&p, r, a, paths, n, e);
    if (got == 0) got = open_streams(r, a, tok, &p, d, e);
    free(p.stored);
    return got;
}

/* The template that encoded the conversations becomes the model's, which answers with it. */
static int keep_template(struct llm_model *m, const struct llm_lines *l, const struct args *a, struct llm_err *e)
{
    if (!l->chat.text || (m->chat_template && !llm_option_text(&a->o, "chat-template"))) return 0;
    free(m->chat_template);
    m->chat_template = strdup(l->chat.text);
    return m->chat_template ? 0 : llm_no_memory(e, "a chat template");
}

/* Makes what takes the pictures of conversations. 0 or -1. */
static int show_pictures(struct llm_train_data *d, struct llm_lines *l, struct llm_model *m, struct llm_err *e)
{
    d->shown = llm_calloc(1, sizeof *d->shown, "pictures", e);
    if (!d->shown || llm_shown_init(d->shown, m, e) < 0) return -1;
    l->shown = d->shown;
    l->chat.image = d->shown->placeholder;
    return 0;
}

int llm_run_open_lines(struct llm_run *r, const struct args *a, const char *const *paths, size_t n, struct llm_train_data *d, struct llm_err *e)
{
    const char *from = a->resume ? a->resume : a->tokenizer ? a->tokenizer : a->init;
    struct llm_model *m = r->model;
    struct llm_lines lines = {.o = NULL};
    struct places p;
    int got = find_places(&p, r, a, paths, n, e), are = got == 0 && p.n > 0 ? llm_lines_are(&a->o, p.paths[0], e) : 0;
    if (are < 0) got = -1;
    if (got == 0 && are) {
        int64_t context = a->o.context > 0 ? a->o.context : llm_config_default_context(&m->config);
        got = llm_lines_init(&lines, &a->o, m->tokenizer, from, context, e);
        lines.model = m;
        if (got == 0 && lines.objective->shows && llm_config_projects(&m->config)) got = show_pictures(d, &lines, m, e);
        bool own = llm_objective_per_run(lines.objective, &a->o);
        if (got == 0 && own) got = llm_model_fingerprint(m, e);
        if (got == 0) got = llm_train_data_lines(d, &lines, p.paths, p.n, own ? a->val : p.val, e);
        if (got == 0) got = keep_template(m, &lines, a, e);
        llm_lines_release(&lines);
    }
    free(p.stored);
    return got;
}
