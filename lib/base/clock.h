#ifndef LLM_BASE_CLOCK_H
#define LLM_BASE_CLOCK_H

/* Monotonic seconds. */
double llm_now(void);

#endif
