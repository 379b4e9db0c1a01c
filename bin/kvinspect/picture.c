/* The pictures of llm-kvinspect: what heat maps of all its sub-commands share. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/kvinspect/kvinspect.h"
#include "token/label.h"

void check_picture(const struct llm_cli *cli, const struct llm_common *common, const struct picture_args *a)
{
    int owners = !common->output || strcmp(common->output, "-") == 0;
    owners += (a->png && strcmp(a->png, "-") == 0) + (a->svg && strcmp(a->svg, "-") == 0);
    if (!wants_picture(a) && (a->tokenizer || a->scale)) llm_usage(cli, "--%s needs --png or --svg", a->tokenizer ? "tokenizer" : "scale");
    if (owners > 1) llm_usage(cli, "standard output has one owner: write the table (-o) or the picture (--%s) to a file", a->png ? "png" : "svg");
}

bool wants_picture(const struct picture_args *a)
{
    return a->png || a->svg;
}

const char **token_labels(const char *path, const struct llm_kv_file *f, int64_t n, struct llm_buf *text, struct llm_err *e)
{
    struct llm_tokenizer *t = llm_tokenizer_load(path, NULL, e);
    size_t *starts = t ? llm_alloc((size_t)n, sizeof *starts, "labels", e) : NULL;
    const char **labels = starts ? llm_alloc((size_t)n, sizeof *labels, "labels", e) : NULL;
    int bad = labels ? 0 : -1;
    if (labels && f->tokenizer[0] && strcmp(f->tokenizer, llm_tokenizer_id(t)) != 0) {
        bad = llm_fail(e, EX_DATAERR, "%s: expected the tokenizer of the cache (identity %s), found %s", path, f->tokenizer, llm_tokenizer_id(t));
    }
    for (int64_t i = 0; i < n && !bad; i++) {
        starts[i] = text->n;
        bad = llm_token_label(t, f->ids[i], text, e) < 0 || llm_buf_put(text, "", 1, e) < 0;
    }
    for (int64_t i = 0; i < n && !bad; i++) labels[i] = text->p + starts[i];
    llm_tokenizer_destroy(t);
    free(starts);
    if (!bad) return labels;
    free(labels);
    return NULL;
}

int write_picture(const char *path, const struct llm_heatmap *h, write_heatmap *write, bool binary, struct llm_err *e)
{
    struct llm_output *o = llm_output_open(path, binary, e);
    if (!o) return -1;
    if (write(o, h, e) == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}

int write_pictures(const struct picture_args *a, const struct llm_heatmap *h, struct llm_err *e)
{
    if (a->png && write_picture(a->png, h, llm_heatmap_write, true, e) < 0) return -1;
    return a->svg ? write_picture(a->svg, h, llm_heatmap_svg, false, e) : 0;
}

int draw_picture(const struct picture_args *a, const struct llm_kv_file *f, struct llm_heatmap *h, struct llm_err *e)
{
    static const enum llm_scaling scales[] = {LLM_SCALE_AUTO, LLM_SCALE_LINEAR, LLM_SCALE_LOG};
    struct llm_buf text = {0};
    char subtitle[200];
    const char **labels = NULL;
    int bad = 0;
    if (a->tokenizer) {
        labels = token_labels(a->tokenizer, f, h->x.n, &text, e);
        bad = labels ? 0 : -1;
    }
    char *types = llm_kv_file_types(f, e);
    if (!types) bad = -1;
    snprintf(subtitle, sizeof subtitle, "%s, %" PRId64 " layers; %" PRId64 " tokens in %.100s", f->config.model_type, f->n_layers, f->n,
             types ? types : "");
    free(types);
    h->subtitle = subtitle;
    h->scale = scales[a->scale];
    h->x.name = "token";
    h->x.numbers = f->positions;
    h->x.labels = labels;
    h->x.numbered = labels != NULL;
    if (!bad) bad = write_pictures(a, h, e);
    free(labels);
    llm_buf_release(&text);
    return bad;
}
