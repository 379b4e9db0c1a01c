/* Tasks of well-known data sets, by the names of the members that their files have. */
#include <string.h>
#include "measure/eval/task.h"

static const struct {
    const char *name, *text;
} layouts[] = {
    {"hellaswag",
     "{\"context\": \"{% if ctx_a is defined %}{{ activity_label ~ ': ' ~ ctx_a ~ ' ' ~ (ctx_b | capitalize) }}{% else %}{{ ctx }}{% endif %}\", "
     "\"choices\": \"endings\", \"answer\": \"label\", \"clean\": \"wikihow\"}"},
    {"piqa", "{\"context\": \"Question: {{ goal }}\\nAnswer:\", \"choices\": [\"{{ sol1 }}\", \"{{ sol2 }}\"], \"answer\": \"label\"}"},
    {"arc",
     "{\"context\": \"Question: {{ question.stem if question.stem is defined else question }}\\nAnswer:\", \"choices\": \"choices.text\", "
     "\"answer\": \"answerKey\", \"answer_names\": \"choices.label\"}"},
    {"winogrande",
     "{\"context\": [\"{{ sentence.split('_')[0] ~ option1 }}\", \"{{ sentence.split('_')[0] ~ option2 }}\"], "
     "\"choices\": [\"{{ sentence.split('_', 1)[1].strip() }}\"], \"answer\": \"answer\", \"answer_from\": 1}"},
    {"openbookqa",
     "{\"context\": \"{{ question.stem if question is defined else question_stem }}\", \"choices\": \"choices.text\", "
     "\"answer\": \"answerKey\", \"answer_names\": \"choices.label\"}"},
    {"lambada",
     "{\"context\": \"{{ text.split(' ')[:-1] | join(' ') }}\", \"target\": \"{{ text.split(' ')[-1] }}\"}"},
    {"mmlu",
     "{\"description\": \"The following are multiple choice questions (with answers){% if subject is defined %} about "
     "{{ subject | replace('_', ' ') }}{% endif %}.\\n\\n\", \"context\": \"{{ question.strip() }}\\nA. {{ choices[0] }}\\nB. {{ choices[1] }}\\nC. "
     "{{ choices[2] }}\\nD. {{ choices[3] }}\\nAnswer:\", \"choices\": [\"A\", \"B\", \"C\", \"D\"], \"answer\": \"answer\", "
     "\"answer_names\": [\"A\", \"B\", \"C\", \"D\"], \"shots_pick\": \"first\"}"},
    {"gsm8k",
     "{\"context\": \"Question: {{ question }}\\nAnswer:\", \"target\": \"{{ answer }}\", \"generate\": true, \"shots\": 5, \"max_tokens\": 256, "
     "\"stop\": [\"Question:\", \"</s>\", \"<|im_end|>\"], \"extract\": \"#### (-?[0-9.,]+)\", "
     "\"ignore\": [\",\", \"\\\\$\", \"\\\\.$\"]}"},
    {"truthfulqa-mc1", "{\"context\": \"Q: {{ question }}\\nA:\", \"choices\": \"mc1_targets\"}"},
    {"truthfulqa-mc2", "{\"context\": \"Q: {{ question }}\\nA:\", \"choices\": \"mc2_targets\"}"},
    {"text", "{\"text\": \"{{ text }}\"}"}};

const char *llm_eval_task_word(int i)
{
    return i < (int)(sizeof layouts / sizeof *layouts) ? layouts[i].name : NULL;
}

const char *llm_eval_task_text(const char *name)
{
    for (int i = 0; llm_eval_task_word(i); i++) {
        if (strcmp(name, layouts[i].name) == 0) return layouts[i].text;
    }
    return NULL;
}
