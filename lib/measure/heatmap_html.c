#include "measure/heatmap_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "measure/draw/colour.h"

enum { BINS = 1024, NO_VALUE = 255, LARGEST = 254 };

static int64_t step_of(int64_t n) { return (n + BINS - 1) / BINS; }

/* The largest number of a bin; NaN if none is finite. */
static float largest_of(const struct llm_heatmap *h, int64_t row, int64_t col)
{
    int64_t down = step_of(h->y.n), along = step_of(h->x.n);
    float max = (float)NAN;
    for (int64_t r = row * down; r < (row + 1) * down && r < h->y.n; r++) {
        for (int64_t c = col * along; c < (col + 1) * along && c < h->x.n; c++) {
            float v = h->v[r * h->x.n + c];
            if (isfinite(v) && !(v <= max)) max = v;
        }
    }
    return max;
}

static int put_base64(struct llm_buf *b, const unsigned char *p, size_t n, struct llm_err *e)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned v = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0);
        const char out[4] = {digits[v >> 18], digits[v >> 12 & 63], left > 1 ? digits[v >> 6 & 63] : '=', left > 2 ? digits[v & 63] : '='};
        if (llm_buf_put(b, out, 4, e) < 0) return -1;
    }
    return 0;
}

/* A text within HTML, or within a script's string: no character of it ends either. */
static int put_escaped(struct llm_buf *b, const char *s, struct llm_err *e)
{
    for (; *s; s++) {
        int bad = *s == '<' ? llm_buf_printf(b, e, "&lt;") : *s == '&' ? llm_buf_printf(b, e, "&amp;") : llm_buf_put(b, s, 1, e);
        if (bad < 0) return -1;
    }
    return 0;
}

static int put_names(struct llm_buf *b, const char *variable, const struct llm_heatmap_axis *a, struct llm_err *e)
{
    int bad = llm_buf_printf(b, e, "const %s=[", variable);
    for (int64_t i = 0; i < a->n && bad >= 0; i++) {
        struct llm_buf text = {0};
        bad = llm_buf_printf(&text, e, "%" PRId64 "%s%s", a->numbers ? a->numbers[i] : i, a->labels ? " " : "", a->labels ? a->labels[i] : "");
        if (bad >= 0 && i > 0) bad = llm_buf_put(b, ",", 1, e);
        size_t from = b->n;
        if (bad >= 0) bad = llm_json_quote(b, text.p, text.n, e);
        for (size_t k = from; k < b->n && bad >= 0; k++) {
            if (b->p[k] == '<') b->p[k] = '('; /* "</script>" must not stand in a script */
        }
        llm_buf_release(&text);
    }
    return bad < 0 ? -1 : llm_buf_printf(b, e, "];\n");
}

static const char style[] =
    "body{font:14px sans-serif;margin:16px;color:#222;background:#fff}p{margin:4px 0;color:#666}"
    "canvas{image-rendering:pixelated;border:1px solid #999;cursor:crosshair}#say{min-height:3em;font-family:monospace;white-space:pre;color:#222}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}p{color:#aaa}#say{color:#ddd}}";

static const char script[] =
    "const raw=atob(data),canvas=document.getElementById('map'),say=document.getElementById('say');\n"
    "canvas.width=cols;canvas.height=rows;const size=Math.max(1,Math.floor(900/Math.max(rows,cols)));\n"
    "canvas.style.width=cols*size+'px';canvas.style.height=rows*size+'px';\n"
    "const pen=canvas.getContext('2d'),image=pen.createImageData(cols,rows);\n"
    "for(let i=0;i<rows*cols;i++){const c=colours[raw.charCodeAt(i)];"
    "image.data[4*i]=c>>16;image.data[4*i+1]=c>>8&255;image.data[4*i+2]=c&255;image.data[4*i+3]=255}\n"
    "pen.putImageData(image,0,0);\n"
    "function span(names,i,step){const last=Math.min(names.length,(i+1)*step)-1;return names[i*step]+(step>1?' \\u2026 '+names[last]:'')}\n"
    "canvas.onmousemove=function(event){const box=canvas.getBoundingClientRect();\n"
    " const c=Math.min(cols-1,Math.floor((event.clientX-box.left)*cols/box.width)),"
    "r=Math.min(rows-1,Math.floor((event.clientY-box.top)*rows/box.height));\n"
    " if(c<0||r<0)return;const v=raw.charCodeAt(r*cols+c);\n"
    " say.textContent=yname+' '+span(ynames,r,ystep)+'\\n'+xname+' '+span(xnames,c,xstep)+'\\n'+value+' '"
    "+(v==255?'-':(largest*(v/254)*(v/254)).toPrecision(3))};\n"
    "canvas.onmouseleave=function(){say.textContent=''};\n";

static int put_page(struct llm_buf *b, const struct llm_heatmap *h, const unsigned char *cells, int64_t rows, int64_t cols,
                    double largest, struct llm_err *e)
{
    int64_t down = step_of(h->y.n), along = step_of(h->x.n);
    int bad = llm_buf_printf(b, e, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>") < 0 || put_escaped(b, h->title, e) < 0
              || llm_buf_printf(b, e, "</title>\n<style>%s</style></head>\n<body><h3>", style) < 0 || put_escaped(b, h->title, e) < 0
              || llm_buf_printf(b, e, "</h3>\n<p>") < 0 || (h->subtitle && put_escaped(b, h->subtitle, e) < 0)
              || llm_buf_printf(b, e, "; rows: %s, columns: %s</p>\n", h->y.name, h->x.name) < 0;
    if (!bad && (down > 1 || along > 1)) {
        bad = llm_buf_printf(b, e, "<p>A cell shows the largest among up to %" PRId64 " \xc3\x97 %" PRId64 " neighbours.</p>\n", along, down) < 0;
    }
    bad = bad || llm_buf_printf(b, e, "<p id=\"say\"></p><canvas id=\"map\"></canvas>\n<script>\n") < 0
          || llm_buf_printf(b, e, "const rows=%" PRId64 ",cols=%" PRId64 ",ystep=%" PRId64 ",xstep=%" PRId64 ",largest=%.9g,", rows, cols, down,
                            along, largest) < 0
          || llm_buf_printf(b, e, "yname='%s',xname='%s',value='%s';\n", h->y.name, h->x.name, h->value) < 0
          || put_names(b, "ynames", &h->y, e) < 0 || put_names(b, "xnames", &h->x, e) < 0 || llm_buf_printf(b, e, "const colours=[") < 0;
    for (int i = 0; i <= NO_VALUE && !bad; i++) {
        struct llm_rgb c = i == NO_VALUE ? llm_no_value : llm_colour_sequence(i / (double)LARGEST);
        bad = llm_buf_printf(b, e, "%s%d", i ? "," : "", c.r << 16 | c.g << 8 | c.b) < 0;
    }
    bad = bad || llm_buf_printf(b, e, "],data='") < 0 || put_base64(b, cells, (size_t)(rows * cols), e) < 0
          || llm_buf_printf(b, e, "';\n%s</script></body></html>\n", script) < 0;
    return bad ? -1 : 0;
}

int llm_heatmap_html(struct llm_output *o, const struct llm_heatmap *h, struct llm_err *e)
{
    if (h->x.n < 1 || h->y.n < 1) return llm_fail(e, EX_DATAERR, "picture: expected numbers to draw, found none");
    int64_t rows = (h->y.n + step_of(h->y.n) - 1) / step_of(h->y.n), cols = (h->x.n + step_of(h->x.n) - 1) / step_of(h->x.n);
    float *v = llm_alloc((size_t)rows, (size_t)cols * sizeof *v, "a page", e);
    unsigned char *cells = llm_alloc((size_t)rows, (size_t)cols, "a page", e);
    struct llm_buf b = {0};
    double largest = 0;
    int status = v && cells ? 0 : -1;
    for (int64_t i = 0; i < rows * cols && status == 0; i++) {
        v[i] = largest_of(h, i / cols, i % cols);
        if (v[i] > largest) largest = (double)v[i];
        if (v[i] < 0) status = llm_fail(e, EX_DATAERR, "page: expected numbers that are not negative, found %g", (double)v[i]);
    }
    for (int64_t i = 0; i < rows * cols && status == 0; i++) {
        cells[i] = !isfinite(v[i]) ? NO_VALUE : largest > 0 ? (unsigned char)lrint(LARGEST * sqrt((double)v[i] / largest)) : 0;
    }
    if (status == 0) status = put_page(&b, h, cells, rows, cols, largest, e);
    if (status == 0) status = llm_output_write(o, b.p, b.n, e);
    llm_buf_release(&b);
    free(cells);
    free(v);
    return status;
}
