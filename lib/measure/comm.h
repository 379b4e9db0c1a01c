/* How long messages and collective calls between ranks take, against their size. */
#ifndef LLM_MEASURE_COMM_H
#define LLM_MEASURE_COMM_H

#include "dist/comm.h"
#include "io/table.h"

/* collective, ranks, bytes (of the message, or of a rank's part), seconds (of the slowest rank, median of some rounds), bytes_per_second (that a rank
 * sends). */
extern const char *const llm_comm_time_columns[];
/* collective, ranks, latency_seconds, bytes_per_second: the line latency + bytes / rate nearest to the times, relative to them. */
extern const char *const llm_comm_fit_columns[];

/* Measures sizes up to `largest` bytes: collective. The tables are rank 0's; on the others they stay empty. */
int llm_comm_measure(struct llm_comm *c, size_t largest, struct llm_table *times, struct llm_table *fits, struct llm_err *e) LLM_MUST_CHECK;

/* The line y = a + b·x through n points with the least Σ ((y - a - b·x) / y)². n < 2: b is 0. */
void llm_comm_fit(const double *x, const double *y, size_t n, double *a, double *b);

#endif
