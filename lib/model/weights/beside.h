/* Parameters that are learned beside a model, which stays as it is stored: a tuned lens, a dictionary. They have files of their own, which name the
 * model (formats/beside.md). */
#ifndef LLM_MODEL_WEIGHTS_BESIDE_H
#define LLM_MODEL_WEIGHTS_BESIDE_H

#include "model/weights/model.h"

#define LLM_META_BASE "llm.base" /* the path of the model, as it was given */

/* Makes `p` a parameter in F32 that owns its data, all 0. `shape`: n_dims numbers; 2 dimensions: a matrix that decays. `name` is borrowed. */
int llm_param_make(struct llm_param *p, const char *name, int n_dims, const int64_t *shape, enum llm_role role, struct llm_err *e) LLM_MUST_CHECK;
/* Frees the data, gradient and packed forms. A zeroed parameter is accepted. */
void llm_param_release(struct llm_param *p);

/* The kind of the file ("lens", "dictionary"), in static memory; NULL: it holds something else or cannot be read. */
const char *llm_beside_kind(const char *path);
/* Opens the file of this kind. If `m` is not NULL, the file must be of that model, whose fingerprint becomes known. The caller closes it. */
struct llm_checkpoint *llm_beside_open(const char *path, const char *kind, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* Reads the parameters by name. A tensor that is absent or of another shape, or a tensor that none of them is, is EX_DATAERR. */
int llm_beside_read(struct llm_checkpoint *f, struct llm_param *const *params, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* What the file stores but for training state: metadata and tensors, which borrow the parameters' data. */
int llm_beside_describe(struct llm_model *m, const char *base, const struct llm_param *params, size_t n, json_t *meta,
                        struct llm_tensor_list *tensors, struct llm_err *e) LLM_MUST_CHECK;
/* The model that the run saved in `path` is beside: that of `base`, or NULL: of the path that the file has. m->training is the run's, and m->run_file
 * the file. NULL: see `e`. */
struct llm_model *llm_beside_load(const char *path, const char *base, struct llm_err *e) LLM_MUST_CHECK;

#endif
