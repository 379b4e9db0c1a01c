/* The parameters of a configuration, and what its layers keep of a sequence (model/spec/block.h). */
#include "model/spec/block.h"

static int declare(const struct llm_config *c, bool gguf, struct llm_declare *d, struct llm_decoder **layout, struct llm_err *e)
{
    const struct llm_arch *arch = llm_arch_find(c->model_type);
    const struct llm_names *names = !gguf ? &arch->names : arch->gguf_names ? arch->gguf_names : &llm_gguf_names;
    *d = (struct llm_declare){.config = c, .arch = arch, .names = names, .gguf = gguf, .layer = -1, .err = e};
    *layout = llm_calloc(1, sizeof **layout, "model", e);
    if (*layout && arch->declare(d, *layout) == 0) return 0;
    llm_decoder_destroy(*layout, 0);
    llm_declare_release(d);
    *layout = NULL;
    return -1;
}

int llm_model_declare(const struct llm_config *c, struct llm_declare *d, struct llm_decoder **layout, struct llm_err *e)
{
    return declare(c, false, d, layout, e);
}

int llm_model_declare_gguf(const struct llm_config *c, struct llm_declare *d, struct llm_err *e)
{
    struct llm_decoder *layout;
    if (declare(c, true, d, &layout, e) < 0) return -1;
    llm_decoder_destroy(layout, 0); /* only names and shapes are needed: the layout's pointers were never set */
    return 0;
}

struct llm_state_shape llm_model_state(const struct llm_config *c, int64_t layer)
{
    const struct llm_module_kind *mixer = llm_decoder_mixer(c, layer);
    struct llm_state_shape s = {.source = layer};
    if (mixer->state) mixer->state(c, layer, &s);
    return s;
}

int64_t llm_state_floats(const struct llm_state_shape *s)
{
    int64_t n = 0;
    for (int i = 0; i < LLM_STATE_PARTS; i++) n += s->parts[i].name ? s->parts[i].rows * s->parts[i].cols : 0;
    return n;
}

bool llm_model_can_carry(const struct llm_config *c)
{
    return c->mixer != LLM_MIXER_ATTENTION && c->mixer != LLM_MIXER_WINDOW;
}
