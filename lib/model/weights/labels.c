/* The names of a classifier's classes: read from "id2label" of a configuration, and written to it. */
#include <stdio.h>
#include <string.h>
#include "model/weights/model.h"

int llm_model_read_labels(struct llm_model *m, const json_t *config, struct llm_err *e)
{
    const json_t *names = json_object_get(config, "id2label");
    for (int64_t i = 0; i < m->config.num_labels; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        const char *name = json_string_value(json_object_get(names, number));
        char usual[40];
        snprintf(usual, sizeof usual, "LABEL_%s", number); /* as transformers calls those without a name */
        int64_t at = llm_labels_add(&m->labels, name ? name : usual, e);
        if (at < 0) return -1;
        if (at != i) return llm_fail(e, EX_DATAERR, "id2label: expected a name for each class, found '%s' twice", name ? name : usual);
    }
    return 0;
}

int llm_model_write_labels(const struct llm_model *m, json_t *config)
{
    int64_t n = m->config.num_labels;
    json_t *names = json_object(), *numbers = json_object();
    const char *causal = strstr(m->arch->architecture, "For");
    int failed = !names || !numbers;
    char text[96];
    for (int64_t i = 0; i < n && !failed && llm_labels_count(&m->labels) == n; i++) {
        snprintf(text, sizeof text, "%lld", (long long)i);
        failed = json_object_set(names, text, json_array_get(m->labels.names, (size_t)i))
            || json_object_set_new(numbers, llm_labels_name(&m->labels, i), json_integer(i));
    }
    if (m->config.contrastive && causal && !failed) {
        snprintf(text, sizeof text, "%.*sModel", (int)(causal ? causal - m->arch->architecture : 0), m->arch->architecture);
        failed = json_object_set_new(config, "architectures", json_pack("[s]", text));
    }
    if (n > 0 && !failed) {
        const char *what = m->config.patch_size == 0 ? "ForSequenceClassification"
                           : m->config.class_vector == LLM_CLASSES_OF_TWO_TOKENS ? "ForImageClassificationWithTeacher" : "ForImageClassification";
        const char *end = causal ? causal : m->config.patch_size > 0 ? strstr(m->arch->architecture, "Model") : NULL;
        snprintf(text, sizeof text, "%.*s%s", (int)(end ? end - m->arch->architecture : 0), m->arch->architecture, what);
        failed = json_object_set_new(config, "architectures", json_pack("[s]", text));
        if (json_object_size(names) > 0) failed |= json_object_set(config, "id2label", names) | json_object_set(config, "label2id", numbers);
    }
    json_decref(names);
    json_decref(numbers);
    return failed ? -1 : 0;
}
