#include "measure/heatmap_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/base64.h"
#include "base/json.h"
#include "io/png.h"
#include "measure/draw/colour.h"

enum { NO_VALUE = 255, LARGEST = 254 };

/* The cells of a page: those of each panel after those of the one before. */
struct cells {
    const struct llm_heatmap *h;
    int64_t panels, across;     /* how many, and how many beside each other */
    int64_t down, along;        /* rows and columns of a cell */
    int64_t rows, cols;         /* cells of a panel */
    unsigned char *v;           /* [panels, rows, cols] */
    double largest;
};

/* The largest number of a bin; NaN if none is finite. */
static float largest_of(const struct cells *p, int64_t panel, int64_t row, int64_t col)
{
    const struct llm_heatmap *h = p->h;
    int64_t down = h->y.step > 1 ? 1 : p->down, along = h->x.step > 1 ? 1 : p->along; /* 1: `v` is binned already */
    int64_t rows = h->y.step > 1 ? p->rows : h->y.n, cols = h->x.step > 1 ? p->cols : h->x.n;
    float max = (float)NAN;
    for (int64_t r = row * down; r < (row + 1) * down && r < rows; r++) {
        for (int64_t c = col * along; c < (col + 1) * along && c < cols; c++) {
            float v = h->v[(panel * rows + r) * cols + c];
            if (isfinite(v) && !(v <= max)) max = v;
        }
    }
    return max;
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
    "canvas{image-rendering:pixelated;display:block}figure{display:inline-block;margin:8px 24px 56px 96px;position:relative}"
    "figcaption{font-weight:bold}.map{border:1px solid #999;cursor:crosshair}.x,.y{position:absolute;font-size:11px;color:#666;white-space:pre}"
    ".x{top:100%;transform:rotate(35deg);transform-origin:0 0;margin-top:4px}.y{right:100%;margin-right:4px}"
    "#say{min-height:3.6em;font-family:monospace;white-space:pre;color:#222;position:sticky;top:0;background:#fff}#bar{width:254px;height:12px}"
    "#bars{width:254px;display:flex;justify-content:space-between;font-size:11px;color:#666}"
    "@media(prefers-color-scheme:dark){body,#say{background:#181818;color:#ddd}p,.x,.y,#bars{color:#aaa}}";

static const char script[] =
    "const maps=document.getElementById('maps'),say=document.getElementById('say');\n"
    "const size=Math.max(1,Math.min(24,Math.floor(1024/across/Math.max(rows,cols))));\n"
    "function paint(canvas,width,height,alpha,at){canvas.width=width;canvas.height=height;const pen=canvas.getContext('2d'),"
    "image=pen.createImageData(width,height);\n"
    " for(let i=0;i<width*height;i++){const c=colours[at(i)];"
    "image.data[4*i]=c>>16;image.data[4*i+1]=c>>8&255;image.data[4*i+2]=c&255;image.data[4*i+3]=alpha}pen.putImageData(image,0,0)}\n"
    "function span(names,i,step){const last=Math.min(names.length,(i+1)*step)-1;return names[i*step]+(step>1?' \\u2026 '+names[last]:'')}\n"
    "function ticks(figure,top,names,n,step,kind){const every=Math.max(1,Math.ceil(18/size),Math.ceil(n/12));\n"
    " for(let i=0;i<n;i+=every){const t=document.createElement('span'),text=Array.from(names[i*step]);t.className=kind;"
    "t.textContent=text.length>14?text.slice(0,13).join('')+'\\u2026':text.join('');\n"
    "  if(kind=='x')t.style.left=i*size+size/2+'px';else t.style.top=top+i*size+size/2-8+'px';figure.append(t)}}\n"
    "data.forEach(function(text,panel){const raw=atob(text),figure=document.createElement('figure'),canvas=document.createElement('canvas');\n"
    " if(panels[panel]){const caption=document.createElement('figcaption');caption.textContent=panels[panel];figure.append(caption)}\n"
    " canvas.className='map';paint(canvas,cols,rows,under?128:255,function(i){return raw.charCodeAt(i)});"
    "if(under){canvas.style.backgroundImage='url('+under+')';canvas.style.backgroundSize='100% 100%'}"
    "canvas.style.width=cols*size+'px';canvas.style.height=rows*size+'px';figure.append(canvas);maps.append(figure);\n"
    " ticks(figure,canvas.offsetTop,ynames,rows,ystep,'y');ticks(figure,0,xnames,cols,xstep,'x');\n"
    " canvas.onmousemove=function(event){const box=canvas.getBoundingClientRect();\n"
    "  const c=Math.min(cols-1,Math.floor((event.clientX-box.left)*cols/box.width)),"
    "r=Math.min(rows-1,Math.floor((event.clientY-box.top)*rows/box.height));\n"
    "  if(c<0||r<0)return;const v=raw.charCodeAt(r*cols+c);\n"
    "  say.textContent=(panels[panel]?panels[panel]+'\\n':'')+yname+' '+span(ynames,r,ystep)+'\\n'+xname+' '+span(xnames,c,xstep)+'\\n'+value+' '"
    "+(v==255?'-':(largest*(v/254)*(v/254)).toPrecision(3))};\n"
    " canvas.onmouseleave=function(){say.textContent=''}});\n"
    "paint(document.getElementById('bar'),255,1,255,function(i){return i});\n"
    "[0,largest/4,largest].forEach(function(v){const t=document.createElement('span');t.textContent=Number(v.toPrecision(3));"
    "document.getElementById('bars').append(t)});\n";

static int put_panels(struct llm_buf *b, const struct cells *p, struct llm_err *e)
{
    int bad = llm_buf_printf(b, e, "const panels=[");
    for (int64_t i = 0; i < p->panels && bad >= 0; i++) {
        const char *name = p->h->panels ? p->h->panels[i] : "";
        bad = i > 0 ? llm_buf_put(b, ",", 1, e) : 0;
        if (bad >= 0) bad = llm_json_quote(b, name, strlen(name), e);
    }
    if (bad >= 0) bad = llm_buf_printf(b, e, "],data=[");
    for (int64_t i = 0; i < p->panels && bad >= 0; i++) {
        size_t n = (size_t)(p->rows * p->cols);
        bad = llm_buf_printf(b, e, "%s'", i > 0 ? "," : "");
        if (bad >= 0) bad = llm_base64_put(b, p->v + (size_t)i * n, n, e);
        if (bad >= 0) bad = llm_buf_put(b, "'", 1, e);
    }
    return bad < 0 ? -1 : llm_buf_printf(b, e, "];\n");
}

/* The picture below the maps as an address that holds it, empty if there is none. */
static int put_under(struct llm_buf *b, const struct llm_image *under, struct llm_err *e)
{
    struct llm_buf png = {0};
    int bad = llm_buf_printf(b, e, "const under='%s", under ? "data:image/png;base64," : "") < 0;
    if (under) bad = bad || llm_png_put(&png, under->rgb, under->width, under->height, e) < 0 || llm_base64_put(b, png.p, png.n, e) < 0;
    llm_buf_release(&png);
    return bad ? -1 : llm_buf_printf(b, e, "';\n");
}

static int put_page(struct llm_buf *b, const struct cells *p, struct llm_err *e)
{
    const struct llm_heatmap *h = p->h;
    int bad = llm_buf_printf(b, e, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>") < 0 || put_escaped(b, h->title, e) < 0
              || llm_buf_printf(b, e, "</title>\n<style>%s</style></head>\n<body><h3>", style) < 0 || put_escaped(b, h->title, e) < 0
              || llm_buf_printf(b, e, "</h3>\n<p>") < 0 || (h->subtitle && put_escaped(b, h->subtitle, e) < 0)
              || llm_buf_printf(b, e, "; rows: %s, columns: %s; colours: %s</p>\n", h->y.name, h->x.name, h->value) < 0;
    if (!bad && (p->down > 1 || p->along > 1)) {
        bad = llm_buf_printf(b, e, "<p>A cell shows the largest among up to %" PRId64 " \xc3\x97 %" PRId64 " neighbours.</p>\n", p->along,
                             p->down) < 0;
    }
    bad = bad || llm_buf_printf(b, e, "<canvas id=\"bar\"></canvas><div id=\"bars\"></div><p id=\"say\"></p><div id=\"maps\"></div>\n<script>\n") < 0
          || llm_buf_printf(b, e, "const rows=%" PRId64 ",cols=%" PRId64 ",ystep=%" PRId64 ",xstep=%" PRId64 ",across=%" PRId64 ",largest=%.9g,",
                            p->rows, p->cols, p->down, p->along, p->across, p->largest) < 0
          || llm_buf_printf(b, e, "yname='%s',xname='%s',value='%s';\n", h->y.name, h->x.name, h->value) < 0
          || put_names(b, "ynames", &h->y, e) < 0 || put_names(b, "xnames", &h->x, e) < 0 || put_under(b, h->under, e) < 0
          || llm_buf_printf(b, e, "const colours=[") < 0;
    for (int i = 0; i <= NO_VALUE && !bad; i++) {
        struct llm_rgb c = i == NO_VALUE ? llm_no_value : llm_colour_sequence(i / (double)LARGEST);
        bad = llm_buf_printf(b, e, "%s%d", i ? "," : "", c.r << 16 | c.g << 8 | c.b) < 0;
    }
    bad = bad || llm_buf_printf(b, e, "];\n") < 0 || put_panels(b, p, e) < 0 || llm_buf_printf(b, e, "%s</script></body></html>\n", script) < 0;
    return bad ? -1 : 0;
}

int llm_heatmap_html(struct llm_output *o, const struct llm_heatmap *h, struct llm_err *e)
{
    if (h->x.n < 1 || h->y.n < 1) return llm_fail(e, EX_DATAERR, "picture: expected numbers to draw, found none");
    struct cells p = {.h = h, .panels = h->n_panels > 1 ? h->n_panels : 1};
    p.across = llm_heatmap_across(p.panels, h->x.n, h->y.n);
    p.along = h->x.step > 1 ? h->x.step : llm_heatmap_step(h->x.n, p.across);
    p.down = h->y.step > 1 ? h->y.step : llm_heatmap_step(h->y.n, (p.panels + p.across - 1) / p.across);
    p.rows = (h->y.n + p.down - 1) / p.down;
    p.cols = (h->x.n + p.along - 1) / p.along;
    int64_t each = p.rows * p.cols, n = p.panels * each;
    float *v = llm_alloc((size_t)n, sizeof *v, "a page", e);
    p.v = llm_alloc((size_t)n, sizeof *p.v, "a page", e);
    struct llm_buf b = {0};
    int status = v && p.v ? 0 : -1;
    for (int64_t i = 0; i < n && status == 0; i++) {
        v[i] = largest_of(&p, i / each, i % each / p.cols, i % p.cols);
        if (v[i] > p.largest) p.largest = (double)v[i];
        if (v[i] < 0) status = llm_fail(e, EX_DATAERR, "page: expected numbers that are not negative, found %g", (double)v[i]);
    }
    for (int64_t i = 0; i < n && status == 0; i++) {
        p.v[i] = !isfinite(v[i]) ? NO_VALUE : p.largest > 0 ? (unsigned char)lrint(LARGEST * sqrt((double)v[i] / p.largest)) : 0;
    }
    if (status == 0) status = put_page(&b, &p, e);
    if (status == 0) status = llm_output_write(o, b.p, b.n, e);
    llm_buf_release(&b);
    free(p.v);
    free(v);
    return status;
}
