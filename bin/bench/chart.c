#include "bin/bench/chart.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum bench_form bench_form_of(const char *path, int form)
{
    const char *dot = path ? strrchr(path, '.') : NULL;
    if (form != BENCH_AUTO) return (enum bench_form)form;
    if (!dot) return BENCH_TEXT;
    return strcmp(dot, ".png") == 0 ? BENCH_PNG : strcmp(dot, ".svg") == 0 ? BENCH_SVG : BENCH_TEXT;
}

static int write_text(const struct llm_plot *p, bool sized, struct llm_output *o, struct llm_err *e)
{
    struct llm_buf text = {0};
    struct winsize window = {0};
    int cols = sized ? p->width : 80, rows = sized ? p->height : 24;
    if (!sized && isatty(1) && ioctl(1, TIOCGWINSZ, &window) == 0 && window.ws_col > 20) {
        cols = window.ws_col;
        rows = window.ws_row > 40 ? 39 : window.ws_row - 1;
    }
    int status = llm_plot_text(p, cols, rows, &text, e);
    if (status == 0) status = llm_output_text(o, text.p, text.n, e);
    llm_buf_release(&text);
    return status;
}

int bench_chart(const struct llm_plot *p, const char *path, enum bench_form form, bool sized, struct llm_err *e)
{
    struct llm_drawing *d = form == BENCH_TEXT ? NULL : llm_plot_draw(p, e);
    if (form != BENCH_TEXT && !d) return -1;
    struct llm_output *o = llm_output_open(path, form == BENCH_PNG, e);
    int status = o ? 0 : -1;
    if (status == 0 && form == BENCH_TEXT) status = write_text(p, sized, o, e);
    else if (status == 0) status = (form == BENCH_PNG ? llm_drawing_png : llm_drawing_svg)(d, o, e);
    llm_drawing_destroy(d);
    if (status == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}
