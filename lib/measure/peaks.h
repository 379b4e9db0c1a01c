/* What this machine can do with all threads of the pool: the limits that speeds are given as shares of. Measured, not looked up: by loops of
 * independent instructions in registers, by the same with
 * operands read from caches, and by reading memory that no cache holds. Each takes about a tenth of a second; best of several
 * runs, since neighbours only ever slow a run down. */
#ifndef LLM_MEASURE_PEAKS_H
#define LLM_MEASURE_PEAKS_H

#include <stddef.h>
#include "base/err.h"

struct llm_peaks {
    double f32;            /* FMA in FP32: operations a second, a multiply and an add are two */
    double bf16;           /* BF16 dot products; 0 where the instruction set has none (products then run at f32) */
    double int8;           /* int8 dot products */
    double f32_reading, int8_reading; /* f32 and int8 with the reads of operands that a product needs; 0 where there is no such loop */
    double cpu_share;      /* processor time that the loops were given, by that which their threads asked for; below 1: others have the processors */
    double read_bandwidth; /* bytes a second, sequential reads, huge pages where the kernel gives them */
    double barrier;        /* seconds of a job of the pool in which every thread takes part and nothing is done; 0 with one thread */
    int threads;
};

/* 0, or -1 when there is no memory for the bandwidth test. */
int llm_peaks_measure(struct llm_peaks *out, struct llm_err *e) LLM_MUST_CHECK;
/* Bytes a second of one sequential read of `bytes` by all threads, now: to be taken alternately with what is compared to it. */
double llm_peaks_read_once(const void *memory, size_t bytes);
/* Likewise operations a second of `kind` ("bf16", "int8", else or where there is no such loop "f32"); takes about ten milliseconds. */
double llm_peaks_compute_once(const char *kind);

#endif
