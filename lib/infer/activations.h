/* Activations: values at places of a forward pass (model/spec/place.h) that are taken out of it, written as tensor messages (formats/activations.md),
 * read again and put back. */
#ifndef LLM_INFER_ACTIVATIONS_H
#define LLM_INFER_ACTIVATIONS_H

#include "infer/engine.h"
#include "io/message.h"
#include "model/forward/watch.h"

/* ---- taking out ---- */

/* The rows of one place, for tokens at positions [first, first + n) of one sequence. */
struct llm_taken {
    struct llm_place place;
    char name[LLM_PLACE_TEXT];
    int64_t cols;
    float *x;                      /* [room, cols] */
    bool *have;                    /* [room] whether the row was seen */
    size_t floats;                 /* allocated */
};
struct llm_taking {
    struct llm_taken *v;           /* [n] in the order of the pass */
    size_t n, v_room;
    int64_t first, rows, room;     /* rows ≤ room */
    struct llm_place_range *ranges; /* [n_ranges] what is taken */
    size_t n_ranges;
};
/* Begins to record. `places`: spellings, each of one place or of several layers; one that the model does not have is LLM_EX_USAGE. Zero-initialise;
 * release either way. 0 or -1. */
int llm_taking_begin(struct llm_taking *t, const struct llm_config *c, const char *const *places, size_t n, int64_t room, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_taking_release(struct llm_taking *t);
/* Takes from now on the rows at positions [first, first + rows). */
void llm_taking_at(struct llm_taking *t, int64_t first, int64_t rows);
/* The observer of range i (i < n_ranges). */
struct llm_watcher llm_taking_watcher(struct llm_taking *t, size_t i);
/* Whether a place is among those taken. */
bool llm_taking_wants(const struct llm_taking *t, enum llm_place_kind kind);
/* Writes a message of kind "activations" with rows picked[0..n) (counted from `first`) of every place, their ids and positions, which
 * are greater by `moved` than those of the pass: where the text is read in windows. EX_UNAVAILABLE if a place has no row for one of the tokens. */
int llm_taking_write(const struct llm_taking *t, struct llm_writer *w, const json_t *meta, const int32_t *ids, int64_t moved, const int64_t *picked,
                     int64_t n, struct llm_err *e) LLM_MUST_CHECK;

/* ---- reading ---- */

struct llm_activation_rows {
    char name[LLM_PLACE_TEXT];
    int64_t cols, rows;
    float *x;                      /* [rows, cols] */
};
struct llm_activations {
    struct llm_activation_rows *v; /* [n] */
    size_t n, v_room;
    int32_t *ids, *positions;      /* [rows]; of all messages, one after another */
    int64_t rows;
    size_t ids_room, positions_room;
    char fingerprint[17];          /* of the model; "" if the file does not say */
};
/* Reads all messages of a stream. Zero-initialise; release either way. */
int llm_activations_read(struct llm_activations *a, const char *path, struct llm_err *e) LLM_MUST_CHECK;
const struct llm_activation_rows *llm_activations_find(const struct llm_activations *a, const char *place);
void llm_activations_release(struct llm_activations *a);

/* A direction for the residual after some layers: a control vector of llama.cpp (GGUF, tensors "direction.N"). */
struct llm_directions {
    float **v;                     /* [n_layers][hidden_size]; NULL: the layer has none */
    int64_t n_layers, width;
};
/* Reads a GGUF control vector, or activations of one row at places "layers.N.residual.after". EX_DATAERR if the width or a layer is another. */
int llm_directions_read(struct llm_directions *d, const char *path, const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
void llm_directions_release(struct llm_directions *d);
/* Writes GGUF as llama.cpp reads it. It has no direction for layer 0, which is left out. */
int llm_directions_write(const struct llm_directions *d, const char *model_type, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;

/* ---- putting back: editors ---- */

struct llm_editors {
    struct llm_watcher *v;         /* [n] */
    size_t n, room;
    struct llm_editor **own;       /* [n] what they need; owned */
    size_t own_room;
};
void llm_editors_release(struct llm_editors *s);
/* Overwrites the rows at a place whose positions the file has. "FILE@PLACE". */
int llm_editors_patch(struct llm_editors *s, const char *spec, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* Adds STRENGTH times the direction of each layer to the residual after it. "FILE:STRENGTH[@LAYERS]", LAYERS "3" or "2-5". */
int llm_editors_steer(struct llm_editors *s, const char *spec, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* Reads "FILE", "FILE:STRENGTH" or "FILE:STRENGTH@LAYERS" (strength 1 if there is none) for one sequence: strengths [s->n] by the number of the
 * editor. FILE, and LAYERS if given, must be those of an llm_editors_steer. EX_DATAERR if there is none. */
int llm_editors_strengths(const struct llm_editors *s, const char *spec, float *strengths, struct llm_err *e) LLM_MUST_CHECK;
/* Replaces the value at the place that a dictionary (infer/dictionary.h) gives by what the dictionary makes of the pass. */
int llm_editors_splice(struct llm_editors *s, const char *path, struct llm_model *m, enum llm_compute compute, struct llm_err *e) LLM_MUST_CHECK;
/* Sets all columns of a place to 0, or those of one attention head. "PLACE[:HEAD]". */
int llm_editors_ablate(struct llm_editors *s, const char *spec, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;

#endif
