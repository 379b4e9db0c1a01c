/* Templates by name, for models that come without one. Each marks the assistant's text, end-of-turn token included. */
#include <string.h>
#include "token/chat/chat.h"

/* The system message of formats without such a turn goes before the first user message. */
#define SYSTEM_FIRST                                                                                        \
    "{%- set ns = namespace(system='') -%}"                                                                 \
    "{%- if messages and messages[0].role == 'system' -%}"                                                  \
    "{%- set ns.system = messages[0].content -%}{%- set messages = messages[1:] -%}{%- endif -%}"

static const struct { const char *name, *text; } builtins[] = {
    {"chatml",
     "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' }}"
     "{%- if m.role == 'assistant' -%}{%- generation -%}{{ m.content + '<|im_end|>' }}{%- endgeneration -%}{{ '\\n' }}"
     "{%- else -%}{{ m.content + '<|im_end|>\\n' }}{%- endif -%}{%- endfor -%}"
     "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"},
    {"gemma",
     SYSTEM_FIRST
     "{{ bos_token }}{%- for m in messages -%}"
     "{%- if m.role == 'assistant' -%}{{ '<start_of_turn>model\\n' }}"
     "{%- generation -%}{{ m.content | trim + '<end_of_turn>' }}{%- endgeneration -%}{{ '\\n' }}"
     "{%- else -%}{{ '<start_of_turn>' + m.role + '\\n' }}"
     "{%- if ns.system -%}{{ ns.system | trim + '\\n\\n' }}{%- set ns.system = '' -%}{%- endif -%}"
     "{{ m.content | trim + '<end_of_turn>\\n' }}{%- endif -%}{%- endfor -%}"
     "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"},
    {"llama2",
     SYSTEM_FIRST
     "{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
     "{{ ' ' }}{%- generation -%}{{ m.content | trim + ' ' ~ eos_token }}{%- endgeneration -%}"
     "{%- else -%}{{ bos_token ~ '[INST] ' }}"
     "{%- if ns.system -%}{{ '<<SYS>>\\n' + ns.system + '\\n<</SYS>>\\n\\n' }}{%- set ns.system = '' -%}{%- endif -%}"
     "{{ m.content | trim + ' [/INST]' }}{%- endif -%}{%- endfor -%}"},
    {"llama3",
     "{{ bos_token }}{%- for m in messages -%}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
     "{%- if m.role == 'assistant' -%}{%- generation -%}{{ m.content | trim + '<|eot_id|>' }}{%- endgeneration -%}"
     "{%- else -%}{{ m.content | trim + '<|eot_id|>' }}{%- endif -%}{%- endfor -%}"
     "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}"},
    {"mistral",
     SYSTEM_FIRST
     "{{ bos_token }}{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
     "{{ ' ' }}{%- generation -%}{{ m.content | trim ~ eos_token }}{%- endgeneration -%}"
     "{%- else -%}{{ '[INST] ' }}{%- if ns.system -%}{{ ns.system + '\\n\\n' }}{%- set ns.system = '' -%}{%- endif -%}"
     "{{ m.content + ' [/INST]' }}{%- endif -%}{%- endfor -%}"},
    {"phi3",
     "{%- for m in messages -%}{{ '<|' + m.role + '|>\\n' }}"
     "{%- if m.role == 'assistant' -%}{%- generation -%}{{ m.content + '<|end|>' }}{%- endgeneration -%}{{ '\\n' }}"
     "{%- else -%}{{ m.content + '<|end|>\\n' }}{%- endif -%}{%- endfor -%}"
     "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"},
    {"vicuna",
     "{{ bos_token }}{%- for m in messages -%}{%- if m.role == 'system' -%}{{ m.content + '\\n\\n' }}"
     "{%- elif m.role == 'assistant' -%}{{ 'ASSISTANT: ' }}{%- generation -%}{{ m.content ~ eos_token }}{%- endgeneration -%}{{ '\\n' }}"
     "{%- else -%}{{ 'USER: ' + m.content + '\\n' }}{%- endif -%}{%- endfor -%}"
     "{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%}"},
    {"zephyr",
     "{%- for m in messages -%}{{ '<|' + m.role + '|>\\n' }}"
     "{%- if m.role == 'assistant' -%}{%- generation -%}{{ m.content ~ eos_token }}{%- endgeneration -%}{{ '\\n' }}"
     "{%- else -%}{{ m.content ~ eos_token + '\\n' }}{%- endif -%}{%- endfor -%}"
     "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"},
};

const char *llm_chat_builtin(const char *name)
{
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (strcmp(builtins[i].name, name) == 0) return builtins[i].text;
    return NULL;
}

const char *llm_chat_builtin_word(int i)
{
    enum { N = sizeof builtins / sizeof *builtins };
    return i < N ? builtins[i].name : NULL;
}
