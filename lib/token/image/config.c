/* preprocessor_config.json: keys, and the defaults of each processor. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/buf.h"
#include "io/checkpoint.h"
#include "io/sniff.h"
#include "token/image/processor.h"

#define MAX_CONFIG ((size_t)1 << 20)

#define STANDARD {.5, .5, .5}
#define CLIP_MEAN {.48145466, .4578275, .40821073}
#define CLIP_DEVIATION {.26862954, .26130258, .27577711}
#define COMMON .rescale = true, .normalise = true, .resize = true, .factor = 1 / 255.
#define CLIP                                                                                                                                     \
    COMMON, .shortest = 224, .filter = LLM_BICUBIC, .centre_crop = true, .crop_height = 224, .crop_width = 224, .mean = CLIP_MEAN,                \
    .deviation = CLIP_DEVIATION
#define TILES                                                                                                                                     \
    COMMON, .cut = LLM_IMAGE_TILES, .split = true, .longest = 4 * 364, .tile = 364, .filter = LLM_LANCZOS, .mean = STANDARD, .deviation = STANDARD

/* Names without "ImageProcessor" or "FeatureExtractor" and what may follow; the values of model_type in config.json for which transformers takes the
 * processor where none is named, with spaces around each. */
static const struct {
    const char *name, *models;
    bool one_size_is_square;       /* "size": 224 means 224 x 224, not the shorter side */
    struct llm_image_processor defaults;
} processors[] = {
    {"ViT", " vit ", true, {COMMON, .height = 224, .width = 224, .filter = LLM_BILINEAR, .mean = STANDARD, .deviation = STANDARD}},
    {"DeiT", " deit ", true, {COMMON, .height = 256, .width = 256, .filter = LLM_BICUBIC, .centre_crop = true, .crop_height = 224,
                              .crop_width = 224, .mean = STANDARD, .deviation = STANDARD}},
    {"CLIP", " clip clip_vision_model ", false, {CLIP}},
    {"Bit", " dinov2 dinov2_with_registers ", false, {CLIP}},
    {"Siglip", " siglip siglip_vision_model ", false, {COMMON, .height = 224, .width = 224, .filter = LLM_BICUBIC, .mean = STANDARD,
                                                       .deviation = STANDARD}},
    {"Llava", " llava ", false, {CLIP}},
    {"LlavaNext", " llava_next ", false, {CLIP, .cut = LLM_IMAGE_ANY_RESOLUTION, .n_grids = 5,
                                        .grids = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}}},
    {"Idefics3", " idefics3 ", false, {TILES}},
    {"SmolVLM", " smolvlm ", false, {TILES}},
    {"DINOv3ViT", " dinov3_vit ", true, {COMMON, .planes = true, .height = 224, .width = 224, .filter = LLM_BILINEAR, .mean = {.485, .456, .406},
                                         .deviation = {.229, .224, .225}}},
};

void llm_image_processor_plain(struct llm_image_processor *p)
{
    *p = (struct llm_image_processor){.rescale = true, .factor = 1 / 255., .filter = LLM_BICUBIC};
}

static int find(const char *name, struct llm_err *e)
{
    size_t n = strlen(name);
    const char *end = strstr(name, "ImageProcessor");
    if (!end) end = strstr(name, "FeatureExtractor");
    if (end) n = (size_t)(end - name);
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
        if (strlen(processors[i].name) == n && memcmp(processors[i].name, name, n) == 0) return (int)i;
    }
    struct llm_buf known = {0};
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
        if (llm_buf_printf(&known, e, "%s%s", i ? ", " : "", processors[i].name) < 0) return -1;
    }
    llm_fail(e, EX_DATAERR, "image_processor_type: unknown '%s' (known: %s)", name, known.p);
    llm_buf_release(&known);
    return -1;
}

/* An object of sides, or one number. */
static int sides(const json_t *o, const char *key, bool square, struct llm_image_processor *p, struct llm_err *e)
{
    const json_t *v = json_object_get(o, key);
    int64_t one = 0;
    if (!v || json_is_null(v)) return 0;
    p->shortest = p->longest = p->height = p->width = 0;
    if (json_is_integer(v)) {
        if (llm_json_int(o, key, 1, 1 << 20, &one, e) < 0) return -1;
        if (square) p->height = p->width = one;
        else p->shortest = one;
        return 0;
    }
    if (!json_is_object(v)) return llm_fail(e, EX_DATAERR, "%s: expected a number or an object", key);
    if (llm_json_int(v, "shortest_edge", 1, 1 << 20, &p->shortest, e) < 0 || llm_json_int(v, "longest_edge", 1, 1 << 20, &p->longest, e) < 0 ||
        llm_json_int(v, "height", 1, 1 << 20, &p->height, e) < 0 || llm_json_int(v, "width", 1, 1 << 20, &p->width, e) < 0)
        return llm_in(e, "%s", key);
    if (!p->shortest && !p->longest && !(p->height && p->width))
        return llm_fail(e, EX_DATAERR, "%s: expected height and width, shortest_edge or longest_edge", key);
    return 0;
}

static int crop(const json_t *o, struct llm_image_processor *p, struct llm_err *e)
{
    struct llm_image_processor s = {.height = p->crop_height, .width = p->crop_width};
    if (sides(o, "crop_size", true, &s, e) < 0) return -1;
    if (!s.height || !s.width) return llm_fail(e, EX_DATAERR, "crop_size: expected height and width");
    p->crop_height = s.height;
    p->crop_width = s.width;
    return 0;
}

static int colours(const json_t *o, const char *key, double out[3], struct llm_err *e)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) return 0;
    if (!json_is_array(v) || json_array_size(v) != 3) return llm_fail(e, EX_DATAERR, "%s: expected 3 numbers", key);
    for (size_t i = 0; i < 3; i++) {
        const json_t *x = json_array_get(v, i);
        if (!json_is_number(x)) return llm_fail(e, EX_DATAERR, "%s: expected 3 numbers", key);
        out[i] = json_number_value(x);
    }
    return 0;
}

static int grids(const json_t *o, struct llm_image_processor *p, struct llm_err *e)
{
    const json_t *v = json_object_get(o, "image_grid_pinpoints");
    if (!v || json_is_null(v)) return 0;
    size_t n = json_array_size(v);
    if (n < 1 || n > LLM_IMAGE_MAX_GRIDS)
        return llm_fail(e, EX_DATAERR, "image_grid_pinpoints: expected 1 to %d pairs of numbers", LLM_IMAGE_MAX_GRIDS);
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(v, i);
        for (size_t j = 0; j < 2; j++) {
            int64_t side = json_array_size(pair) == 2 ? json_integer_value(json_array_get(pair, j)) : 0;
            if (side < 1 || side > 1 << 20) return llm_fail(e, EX_DATAERR, "image_grid_pinpoints: %zu: expected height and width", i);
            p->grids[i][j] = side;
        }
    }
    p->n_grids = (int64_t)n;
    return 0;
}

static int tiles(const json_t *o, struct llm_image_processor *p, struct llm_err *e)
{
    const json_t *v = json_object_get(o, "max_image_size");
    if (llm_json_bool(o, "do_image_splitting", &p->split, e) < 0) return -1;
    if (v && !json_is_null(v) && llm_json_int(v, "longest_edge", 1, 1 << 14, &p->tile, e) < 0) return llm_in(e, "max_image_size");
    if (!p->longest && !(p->height && p->width)) return llm_fail(e, EX_DATAERR, "size: expected longest_edge, or height and width");
    return 0;
}

/* What torchvision's processors can say and is not here. */
static int check_planes(const struct llm_image_processor *p, struct llm_err *e)
{
    if (!p->rescale) return llm_fail(e, EX_DATAERR, "do_rescale: expected true");
    if (p->resize && p->filter != LLM_BILINEAR) return llm_fail(e, EX_DATAERR, "resample: expected %d (bilinear), found %d", LLM_BILINEAR, p->filter);
    return 0;
}

int llm_image_processor_parse(const json_t *o, struct llm_image_processor *p, struct llm_err *e)
{
    const char *name = NULL;
    int64_t filter;
    if (!json_is_object(o)) return llm_fail(e, EX_DATAERR, "expected an object");
    if (llm_json_str(o, "image_processor_type", &name, e) < 0 || (!name && llm_json_str(o, "feature_extractor_type", &name, e) < 0)) return -1;
    if (!name) return llm_fail(e, EX_DATAERR, "expected image_processor_type");
    int which = find(name, e);
    if (which < 0) return -1;
    *p = processors[which].defaults;
    filter = p->filter;
    if (llm_json_bool(o, "do_resize", &p->resize, e) < 0 || llm_json_bool(o, "do_center_crop", &p->centre_crop, e) < 0 ||
        llm_json_bool(o, "do_rescale", &p->rescale, e) < 0 || llm_json_bool(o, "do_normalize", &p->normalise, e) < 0 ||
        llm_json_int(o, "resample", 0, LLM_FILTERS - 1, &filter, e) < 0 || llm_json_real(o, "rescale_factor", &p->factor, e) < 0 ||
        sides(o, "size", processors[which].one_size_is_square, p, e) < 0 || colours(o, "image_mean", p->mean, e) < 0 ||
        colours(o, "image_std", p->deviation, e) < 0)
        return -1;
    p->filter = (enum llm_filter)filter;
    if ((p->centre_crop || p->cut == LLM_IMAGE_ANY_RESOLUTION) && crop(o, p, e) < 0) return -1;
    if (strcmp(processors[which].name, "Llava") == 0 && llm_json_bool(o, "do_pad", &p->pad_square, e) < 0) return -1;
    if (p->cut == LLM_IMAGE_ANY_RESOLUTION && grids(o, p, e) < 0) return -1;
    if (p->planes && check_planes(p, e) < 0) return -1;
    if (p->cut == LLM_IMAGE_TILES ? tiles(o, p, e) < 0 : p->resize && !p->shortest && !(p->height && p->width))
        return p->cut == LLM_IMAGE_TILES ? -1 : llm_fail(e, EX_DATAERR, "size: expected height and width, or shortest_edge");
    return 0;
}

static int join(char path[LLM_IMAGE_PROCESSOR_PATH], const char *folder, size_t n, const char *name, struct llm_err *e)
{
    if (snprintf(path, LLM_IMAGE_PROCESSOR_PATH, "%.*s/%s", (int)n, folder, name) < LLM_IMAGE_PROCESSOR_PATH) return 0;
    return llm_fail(e, EX_NOINPUT, "%.*s: the path is too long", (int)n, folder);
}

/* Names the processor of `o` by the model_type of the folder's config.json, as transformers does where preprocessor_config.json names none. */
static int name_by_model(json_t *o, const char *folder, size_t n, struct llm_err *e)
{
    char path[LLM_IMAGE_PROCESSOR_PATH], wanted[64];
    const char *type = NULL;
    struct stat st;
    if (!json_is_object(o) || json_object_get(o, "image_processor_type") || json_object_get(o, "feature_extractor_type")) return 0;
    if (join(path, folder, n, "config.json", e) < 0) return -1;
    if (stat(path, &st) != 0) return 0;
    json_t *config = llm_json_load(path, MAX_CONFIG, e);
    if (!config || llm_json_str(config, "model_type", &type, e) < 0) {
        json_decref(config);
        return config ? llm_in(e, "%s", path) : -1;
    }
    const int length = snprintf(wanted, sizeof wanted, " %s ", type ? type : "");
    const char *name = NULL;
    for (size_t i = 0; i < sizeof processors / sizeof *processors && type && length < (int)sizeof wanted; i++) {
        if (strstr(processors[i].models, wanted)) name = processors[i].name;
    }
    json_decref(config);
    return name && json_object_set_new(o, "image_processor_type", json_string(name)) < 0 ? llm_no_memory(e, "a configuration") : 0;
}

json_t *llm_image_processor_find(const char *folder, size_t n, char path[LLM_IMAGE_PROCESSOR_PATH], struct llm_err *e)
{
    struct stat st;
    json_t *o = NULL;
    if (join(path, folder, n, "processor_config.json", e) < 0) return NULL;
    if (stat(path, &st) == 0) {
        json_t *all = llm_json_load(path, MAX_CONFIG, e);
        if (!all) return NULL;
        o = json_incref(json_object_get(all, "image_processor"));
        json_decref(all);
    }
    if (!o && join(path, folder, n, "preprocessor_config.json", e) < 0) return NULL;
    if (!o) o = llm_json_load(path, MAX_CONFIG, e);
    if (!o || name_by_model(o, folder, n, e) == 0) return o;
    json_decref(o);
    return NULL;
}

/* What a checkpoint of ours keeps of its model's preprocessor_config.json. */
static json_t *of_checkpoint(const char *path, struct llm_err *e)
{
    struct llm_checkpoint *k = llm_checkpoint_open(path, e);
    const char *text = k ? llm_header_meta(llm_checkpoint_header(k), "llm.preprocessor") : NULL;
    json_t *o = text ? llm_json_parse(text, strlen(text), e) : NULL;
    if (k && !text) llm_fail(e, EX_DATAERR, "%s: expected llm.preprocessor, which says how its model wants pictures; found none", path);
    llm_checkpoint_close(k);
    return o;
}

/* Whether a file is a checkpoint rather than JSON. 1, 0 or -1. */
static int is_checkpoint(const char *path, struct llm_err *e)
{
    enum llm_content content = LLM_CONTENT_EMPTY;
    struct llm_file *f = llm_file_open(path, e);
    int bad = f ? llm_sniff(f, &content, e) : -1;
    llm_file_close(f);
    return bad < 0 ? -1 : content == LLM_CONTENT_CHECKPOINT || content == LLM_CONTENT_MESSAGE;
}

int llm_image_processor_load(const char *path, struct llm_image_processor *p, struct llm_err *e)
{
    char found[LLM_IMAGE_PROCESSOR_PATH];
    struct stat s;
    const bool folder = stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    const int checkpoint = folder ? 0 : is_checkpoint(path, e);
    json_t *o = NULL;
    if (checkpoint > 0) o = of_checkpoint(path, e);
    else if (checkpoint == 0) o = folder ? llm_image_processor_find(path, strlen(path), found, e) : llm_json_load(path, MAX_CONFIG, e);
    const int bad = o ? llm_image_processor_parse(o, p, e) : -1;
    if (o && bad < 0) llm_in(e, "%s", folder ? found : path);
    json_decref(o);
    return bad;
}
