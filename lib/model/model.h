/* Models, as the layers after this one see them: one definition of each architecture serves training, prefill, decoding, cost accounting and
 * checkpoints. The rooms of this folder include each other's headers in one direction: config, spec, weights, forward (lib/README.md, Layers). */
#ifndef LLM_MODEL_MODEL_H
#define LLM_MODEL_MODEL_H

#include "model/forward/forward.h"
#include "model/spec/cost.h"

#endif
