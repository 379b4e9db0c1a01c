/* Waiting for input and for signals at once. A wait that sleeps through a signal ends by the alarm, which kills the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>
#include "base/signals.h"

static void wait_for_input(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    signal(SIGINT, SIG_DFL); /* what a shell lets run in the background ignores it, and is left so */
    llm_signals_catch();
    alarm(60);

    raise(SIGINT); /* before the wait */
    assert_int_equal(llm_signal_wait_input(ends[0]), -1);
    assert_int_equal(errno, EINTR);
    assert_true(llm_signal_take(SIGINT));

    struct sigaction old, notes; /* while it waits: the alarm's signal is noted as an interrupt is */
    sigaction(SIGINT, NULL, &notes);
    sigaction(SIGALRM, &notes, &old);
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    assert_int_equal(llm_signal_wait_input(ends[0]), -1);
    assert_int_equal(errno, EINTR);
    assert_true(llm_signal_take(SIGALRM));
    sigaction(SIGALRM, &old, NULL);
    alarm(60);

    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(llm_signal_wait_input(ends[0]), 0);
    close(ends[1]);
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(llm_signal_wait_input(ends[0]), 0); /* its end */
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(wait_for_input)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
