/* The memory of the program itself. */
#ifndef LLM_BASE_PROGRAM_H
#define LLM_BASE_PROGRAM_H

/* Gives back the pages of the program and its libraries that are as in their files: what runs again is mapped again. Loading a model runs through
 * much that is never needed later, and 16 pages come with each that is touched. Nothing happens under a debugger, whose breakpoints would go with
 * them. */
void llm_program_release_pages(void);

#endif
