#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "bin/kvinspect/kvinspect.h"

int table_open(struct table *t, const char *path, int json, const char *const *columns, struct llm_err *e)
{
    *t = (struct table){.columns = columns, .json = json, .e = e};
    t->o = llm_output_open(path, false, e);
    if (!t->o) return -1;
    for (int i = 0; columns[i] && !json && !t->failed; i++) {
        t->failed = llm_output_printf(t->o, e, "%s%s", columns[i], columns[i + 1] ? "\t" : "\n") < 0;
    }
    return 0;
}

static void put(struct table *t, const char *v)
{
    bool first = t->column == 0, last = !t->columns[t->column + 1];
    const char *name = t->columns[t->column];
    if (t->failed) return;
    if (t->json) t->failed = llm_output_printf(t->o, t->e, "%s\"%s\":%s%s", first ? "{" : ",", name, v, last ? "}\n" : "") < 0;
    else t->failed = llm_output_printf(t->o, t->e, "%s%s", v, last ? "\n" : "\t") < 0;
    t->column = last ? 0 : t->column + 1;
}

void table_text(struct table *t, const char *v)
{
    struct llm_buf b = {0};
    if (!t->json) {
        put(t, v);
        return;
    }
    if (llm_json_quote(&b, v, strlen(v), t->e) < 0) t->failed = 1;
    else put(t, b.p);
    llm_buf_release(&b);
}

void table_integer(struct table *t, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, v);
    put(t, text);
}

void table_number(struct table *t, double v)
{
    char text[40];
    if (isfinite(v)) snprintf(text, sizeof text, "%.6g", v);
    else snprintf(text, sizeof text, "%s", t->json ? "null" : isnan(v) ? "-" : v > 0 ? "inf" : "-inf");
    put(t, text);
}

int table_close(struct table *t, int status)
{
    if (t->failed || status < 0) {
        llm_output_abandon(t->o);
        return -1;
    }
    return llm_output_commit(t->o, t->e) < 0 ? -1 : status;
}

const char *one_operand(const struct llm_cli *cli, int rest, int argc, char **argv)
{
    if (rest + 1 < argc) llm_usage(cli, "expected one file, found another operand '%s'", argv[rest + 1]);
    return rest < argc ? argv[rest] : "-";
}
