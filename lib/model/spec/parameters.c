/* The parameters of a configuration, and what its layers keep of a sequence (model/spec/block.h). */
#include "model/spec/block.h"

enum names { OWN, OF_GGUF, OF_RWKV_CPP };

static int declare(const struct llm_config *c, enum names of, struct llm_declare *d, struct llm_decoder **layout, struct llm_err *e)
{
    const struct llm_arch *arch = llm_arch_find(c->model_type);
    const struct llm_names *gguf = arch->gguf_names ? arch->gguf_names : &llm_gguf_names;
    *d = (struct llm_declare){.config = c, .arch = arch, .names = of == OWN ? &arch->names : of == OF_GGUF ? gguf : arch->rwkv_cpp_names,
                              .gguf = of == OF_GGUF, .rwkv_cpp = of == OF_RWKV_CPP, .layer = -1, .err = e};
    *layout = llm_calloc(1, sizeof **layout, "model", e);
    if (*layout && arch->declare(d, *layout) == 0) return 0;
    llm_decoder_destroy(*layout, 0);
    llm_declare_release(d);
    *layout = NULL;
    return -1;
}

int llm_model_declare(const struct llm_config *c, struct llm_declare *d, struct llm_decoder **layout, struct llm_err *e)
{
    return declare(c, OWN, d, layout, e);
}

/* Only names and shapes are needed: the layout's pointers were never set. */
static int declare_names(const struct llm_config *c, enum names of, struct llm_declare *d, struct llm_err *e)
{
    struct llm_decoder *layout;
    if (declare(c, of, d, &layout, e) < 0) return -1;
    llm_decoder_destroy(layout, 0);
    return 0;
}

int llm_model_declare_gguf(const struct llm_config *c, struct llm_declare *d, struct llm_err *e)
{
    return declare_names(c, OF_GGUF, d, e);
}

int llm_model_declare_rwkv_cpp(const struct llm_config *c, struct llm_declare *d, struct llm_err *e)
{
    return declare_names(c, OF_RWKV_CPP, d, e);
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
    return c->mixer != LLM_MIXER_ATTENTION && c->mixer != LLM_MIXER_WINDOW && c->mixer != LLM_MIXER_HYENA; /* whose states grow */
}
