/* Models in several files: the index of a Hugging Face folder, and the parts of a GGUF file. Whatever the bytes, what is opened are files of the
 * folder, each once, and every tensor lies in one of them.
 * The input: a byte; even: the rest is model.safetensors.index.json beside two files; odd: a length of two bytes, so many bytes of the first part,
 * the rest is the second. */
#include "fuzz.h"
#include "model/config/files.h"

static char folder[40];

static void put(const char *name, const void *data, size_t n)
{
    char path[120];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    MUST(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

static void put_safetensors(const char *name, const char *tensor)
{
    char text[200];
    uint64_t n = (uint64_t)snprintf(text + 8, sizeof text - 8, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
    memcpy(text, &n, 8);
    memset(text + 8 + n, 0, 4);
    put(name, text, 8 + n + 4);
}

static void remove_folder(void)
{
    static const char *const names[] = {"a.safetensors", "b.safetensors", LLM_MODEL_INDEX, "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"};
    char path[120];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_folder(void)
{
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/llm-fuzz-XXXXXX" : "/tmp/llm-fuzz-XXXXXX");
    MUST(mkdtemp(folder) != NULL);
    atexit(remove_folder);
    put_safetensors("a.safetensors", "one");
    put_safetensors("b.safetensors", "two");
}

static void check(struct llm_model_files *f)
{
    struct llm_checkpoint *file;
    for (size_t i = 0; i < f->n; i++) {
        const struct llm_header *h = llm_checkpoint_header(f->v[i]);
        MUST(strncmp(llm_checkpoint_name(f->v[i]), folder, strlen(folder)) == 0);
        for (size_t j = 0; j < i; j++) MUST(strcmp(llm_checkpoint_name(f->v[i]), llm_checkpoint_name(f->v[j])) != 0);
        for (size_t k = 0; k < h->n_entries; k++) MUST(llm_model_files_find(f, h->entries[k].name, &file) != NULL);
    }
    llm_model_files_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_model_files f = {0};
    struct llm_err e = {0};
    char path[120];
    if (!folder[0]) make_folder();
    if (n < 3) return 0;
    if (data[0] % 2 == 0) {
        put(LLM_MODEL_INDEX, data + 1, n - 1);
        snprintf(path, sizeof path, "%s/%s", folder, LLM_MODEL_INDEX);
        if (llm_model_files_open_index(&f, path, &e) == 0) {
            MUST(f.n >= 1 && f.n <= 2);
            check(&f);
            return 0;
        }
    } else {
        size_t first = (size_t)data[1] | (size_t)data[2] << 8;
        if (first > n - 3) first = n - 3;
        put("m-00001-of-00002.gguf", data + 3, first);
        put("m-00002-of-00002.gguf", data + 3 + first, n - 3 - first);
        snprintf(path, sizeof path, "%s/m-00001-of-00002.gguf", folder);
        if (llm_model_files_open(&f, path, &e) == 0 && llm_checkpoint_gguf(f.v[0]) && llm_model_files_open_split(&f, path, &e) == 0) {
            MUST(f.n == 1 || f.n == 2);
            check(&f);
            return 0;
        }
        llm_model_files_close(&f);
    }
    MUST(f.n == 0 && f.v == NULL);
    return 0;
}
