/* The factors of Fourier transforms (cpu/kernels/longconv.h): one table for each size, made when a transform first needs it. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include "cpu/kernels/longconv.h"

static double *table_of(int log)
{
    const size_t n = (size_t)1 << log;
    double *table = malloc(n / 4 * 6 * sizeof *table);
    for (size_t j = 0; table && j < n / 4; j++) {
        for (size_t power = 1; power <= 3; power++) {
            double angle = -6.283185307179586 * (double)(j * power) / (double)n;
            table[6 * j + 2 * power - 2] = cos(angle);
            table[6 * j + 2 * power - 1] = sin(angle);
        }
    }
    return table;
}

const double *const *llm_fft_factors(size_t n)
{
    static const double *tables[LLM_FFT_MAX_LOG + 1];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const int log = __builtin_ctzll(n);
    bool made = log <= LLM_FFT_MAX_LOG;
    pthread_mutex_lock(&lock);
    for (int i = log; i >= 2 && made; i -= 2) { /* two levels at a time */
        if (!tables[i]) tables[i] = table_of(i);
        made = tables[i] != NULL;
    }
    pthread_mutex_unlock(&lock);
    return made ? tables : NULL;
}
