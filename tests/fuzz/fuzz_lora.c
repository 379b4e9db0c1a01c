/* Adapters. The first byte chooses: a file (.llm or GGUF), or a folder of PEFT's, whose adapter_config.json ends at a NUL and whose
 * adapter_model.safetensors follows. What is read fits the model and can be walked; its tensors are finite in number and shape. */
#include "fuzz.h"
#include <sys/stat.h>
#include "base/log.h"
#include "cpu/pool.h"
#include "model/weights/lora.h"

static void put(const char *path, const uint8_t *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    MUST(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

/* The model without adapters: one that has one is not used again. */
static struct llm_model *model(bool anew)
{
    static struct llm_model *m;
    struct llm_err e = {0};
    if (!m) llm_verbosity = -1;
    if (m && !anew) return m;
    if (m) llm_model_destroy(m);
    else MUST(llm_pool_start(1, &e) == 0);
    m = llm_model_load("tests/golden/tiny", &e);
    MUST(m);
    return m;
}

static char folder[] = "/tmp/fuzz-lora-XXXXXX"; /* made at first use; its name may end with an X too */
static bool folder_made;

static void remove_folder(void)
{
    char path[100];
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    unlink(path);
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    char path[100];
    int fd = -1;
    if (n == 0) return 0;
    if (data[0] % 2) {
        const uint8_t *end = memchr(data + 1, 0, n - 1);
        size_t config = end ? (size_t)(end - data) - 1 : n - 1, rest = end ? n - config - 2 : 0;
        if (!folder_made) {
            MUST(mkdtemp(folder) && atexit(remove_folder) == 0);
            folder_made = true;
        }
        snprintf(path, sizeof path, "%s/adapter_config.json", folder);
        put(path, data + 1, config);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
        put(path, end ? end + 1 : data, rest);
        snprintf(path, sizeof path, "%s", folder);
    } else {
        fd = fuzz_file(data + 1, n - 1, path);
    }
    struct llm_model *m = model(false);
    int got = llm_lora_load(m, path, 1, &e);
    MUST(got == 0 ? m->lora != NULL : e.status != 0);
    for (const struct llm_lora *l = m->lora; l; l = l->next) {
        MUST(l->n_pairs + l->n_whole > 0);
        for (size_t i = 0; i < l->n_pairs; i++) MUST(l->pairs[i].param && l->pairs[i].param->adapter);
    }
    if (got == 0) model(true);
    if (fd >= 0) close(fd);
    return 0;
}
