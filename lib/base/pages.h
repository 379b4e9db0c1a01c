/* Pages of memory and the operating system: which are released to it, and which it is asked to make huge. This file is the policy; nothing else in
 * the toolkit calls madvise or malloc_trim (lint checks).
 *
 * What is released, and when:
 * - Pages of a mapped weight, once a product has packed them into a form of its own or a row was looked up among them (cpu/pages.h): the file has
 *   them still, and the packed form is what later products read.
 * - Pages of a mapped weight that is quantised or decoded, as pieces of it are written in the other type (llm_quant_job.mapped, llm_param_decode);
 *   those of pruned values, as pieces of them are stored (llm_quant_job.values).
 * - Pages of a mapped weight as frames of it are saved or it is hashed, once it is quantised, factored or read for a calibration: nothing reads it
 *   for a while.
 * - Pages of a mapped, frozen weight after each of its products in training: the others are read before it is again (llm_matmul.release).
 * - Pages of a compressed frame of a file, once it was decoded (io/checkpoint.c).
 * - Pages of a model's files and of the program, after loading and after the passes that pack weights: loading runs through much that is never needed
 *   again (llm_model_load, llm_engine_run).
 * - The rest of an arena after a prompt, and of a chunk of packed weights when it is full: single tokens need less (llm_arena_trim,
 *   llm_form_memory_trim).
 * - Pages of the sums of a calibration that wait in a temporary file, once their matrix is quantised (llm_moments_unload).
 * Released pages of files are read again where they are used; released pages of anonymous memory are zero. So releasing never changes a result. */
#ifndef LLM_BASE_PAGES_H
#define LLM_BASE_PAGES_H

#include <stddef.h>

#define LLM_HUGE_PAGE ((size_t)2 << 20) /* bytes of a huge page of x86-64 and ARM with pages of 4 KiB */

/* Releases the pages from p, the beginning of a page, to the one that holds the last of `bytes` bytes, all of it: the end of a mapping. */
void llm_pages_release(void *p, size_t bytes);
/* Releases the whole units within `bytes` bytes from p; what the range covers in part stays. `unit`: 0 for a page, or a power of 2 that is a multiple
 * of it, so that huge pages are not split. */
void llm_pages_release_within(void *p, size_t bytes, size_t unit);
/* Releases the pages of the program and its libraries that are as in their files: what runs again is mapped again. Nothing happens under a debugger,
 * whose breakpoints would be lost. */
void llm_pages_release_program(void);
/* Releases what malloc keeps of memory that was freed. */
void llm_pages_release_freed(void);
/* Asks for huge pages, or for none, where the range from p (the beginning of a page) has not been touched yet: fewer faults and misses of the TLB,
 * but 2 MiB of memory for a byte. The system may refuse, which costs nothing but speed. */
void llm_pages_huge(void *p, size_t bytes);
void llm_pages_small(void *p, size_t bytes);

#endif
