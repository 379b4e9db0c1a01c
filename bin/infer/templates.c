/* The templates of --labels in the order of the command line, with those that a name stands for: the prompts that CLIP's authors published for
 * ImageNet. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/infer/infer.h"

/* '%' is an article: each of these stands for two templates, with "a" and "the". */
static const char *const imagenet_80[] = {
    "a bad photo of % {}.", "a good photo of % {}.", "a photo of % {}.", "a low resolution photo of % {}.", "a cropped photo of % {}.",
    "a close-up photo of % {}.", "a bright photo of % {}.", "a dark photo of % {}.", "a black and white photo of % {}.", "a pixelated photo of % {}.",
    "a blurry photo of % {}.", "a jpeg corrupted photo of % {}.", "a sculpture of % {}.", "a rendering of % {}.", "a rendition of % {}.",
    "a drawing of % {}.", "a painting of % {}.", "a sketch of % {}.", "a doodle of % {}.", "a tattoo of % {}.", "graffiti of % {}.", "art of % {}.",
    "itap of % {}.", "a photo of % hard to see {}.", "a photo of % clean {}.", "a photo of % dirty {}.", "a photo of % cool {}.",
    "a photo of % nice {}.", "a photo of % weird {}.", "a photo of % small {}.", "a photo of % large {}.", "% embroidered {}.", "% plastic {}.",
    "% origami {}.", "% toy {}.", "% cartoon {}.", "% plushie {}.", "% {} in a video game.", "a photo of many {}.", "a photo of one {}.",
    "a photo of my {}.", "itap of my {}."};
/* The seven of them that the authors' search found to do about as well. */
static const char *const imagenet_7[] = {"itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.",
                                         "a {} in a video game.", "art of the {}.", "a photo of the small {}."};

static const struct ensemble {
    const char *name;
    const char *const *patterns;
    size_t n;
} ensembles[] = {{"imagenet-80", imagenet_80, sizeof imagenet_80 / sizeof *imagenet_80},
                 {"imagenet-7", imagenet_7, sizeof imagenet_7 / sizeof *imagenet_7}};

static const struct ensemble *find(const char *name)
{
    for (size_t i = 0; i < sizeof ensembles / sizeof *ensembles; i++) {
        if (strcmp(ensembles[i].name, name) == 0) return &ensembles[i];
    }
    return NULL;
}

bool template_fits(const char *text)
{
    return strstr(text, "{}") || find(text);
}

/* Appends a copy of the pattern with the article in place of '%'. */
static int add(struct templates *t, const char *pattern, const char *article, struct llm_err *e)
{
    struct llm_buf text = {0};
    const char *at = article ? strchr(pattern, '%') : NULL;
    int status = llm_grow((void **)&t->v, &t->room, t->n + 1, sizeof *t->v, e);
    if (status == 0 && at) status = llm_buf_printf(&text, e, "%.*s%s%s", (int)(at - pattern), pattern, article, at + 1);
    if (status == 0 && !at) status = llm_buf_printf(&text, e, "%s", pattern);
    if (status == 0) t->v[t->n++] = text.p;
    else llm_buf_release(&text);
    return status;
}

int templates_expand(struct templates *t, const struct llm_strs *given, struct llm_err *e)
{
    int status = 0;
    for (size_t i = 0; i < given->n && status == 0; i++) {
        const struct ensemble *of = find(given->v[i]);
        if (!of) status = add(t, given->v[i], NULL, e);
        for (size_t k = 0; of && k < of->n && status == 0; k++) {
            status = add(t, of->patterns[k], "a", e);
            if (status == 0 && strchr(of->patterns[k], '%')) status = add(t, of->patterns[k], "the", e);
        }
    }
    return status;
}

void templates_release(struct templates *t)
{
    for (size_t i = 0; i < t->n; i++) free(t->v[i]);
    free(t->v);
}
