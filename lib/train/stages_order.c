/* The order in which a stage of a pipeline runs the passes of a step (train/share.h).
 *
 * Passes come in rounds, each of which runs through all chunks of layers before the next one begins. A round has at least as many passes as there
 * are stages, unless the step has fewer: so a stage does not wait for a pass that has just left it. Rounds differ by at most one pass; those that
 * have one less have a gap in its place, so that the order repeats and the last stage's forward pass of the last chunk is always followed by its
 * backward pass. */
#include "train/share.h"

static int64_t rounds_of(const struct llm_stage_order *o)
{
    return o->passes < 2 * o->n ? 1 : o->passes / o->n;
}

/* Passes of the first round, and places of each. */
static int64_t places_of(const struct llm_stage_order *o)
{
    const int64_t rounds = rounds_of(o);
    return o->passes / rounds + (o->passes % rounds != 0);
}

/* Forward actions of a stage, gaps included; as many are backward. */
static int64_t half(const struct llm_stage_order *o)
{
    return rounds_of(o) * places_of(o) * o->chunks;
}

int64_t llm_stages_acts(const struct llm_stage_order *o)
{
    return 2 * half(o);
}

/* Forward actions before the first backward one. */
static int64_t ahead_of(const struct llm_stage_order *o)
{
    const int64_t later = o->n - 1 - o->stage, all = half(o);
    const int64_t ahead = o->gpipe && later > 0 ? all : o->chunks == 1 ? later : 2 * later + (o->chunks - 1) * places_of(o);
    return ahead < all ? ahead : all;
}

int64_t llm_stages_flying(const struct llm_stage_order *o)
{
    const int64_t most = ahead_of(o) + 1, all = o->passes * o->chunks;
    return most < all ? most : all;
}

/* Forward action number i of a stage, or backward action number i. */
static struct llm_stage_act nth(const struct llm_stage_order *o, int64_t i, bool forward)
{
    const int64_t n = places_of(o), rounds = rounds_of(o), round = i / (n * o->chunks), at = i % (n * o->chunks);
    const int64_t more = o->passes % rounds, least = o->passes / rounds, own = least + (round < more);
    const int64_t first = round * least + (round < more ? round : more);
    return (struct llm_stage_act){.forward = forward, .chunk = forward ? at / n : o->chunks - 1 - at / n, .pass = at % n < own ? first + at % n : -1};
}

struct llm_stage_act llm_stages_act(const struct llm_stage_order *o, int64_t i)
{
    const int64_t w = ahead_of(o), all = half(o);
    if (i < w) return nth(o, i, true);
    if (i >= 2 * all - w) return nth(o, i - all, false);
    return (i - w) % 2 == 0 ? nth(o, w + (i - w) / 2, true) : nth(o, (i - w) / 2, false);
}
