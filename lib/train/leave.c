/* The beginning and the end of passes that a rank computes together with others (train/trainer_internal.h). */
#include "dist/group.h"
#include "train/trainer_internal.h"

int llm_trainer_say(struct llm_trainer *t, struct llm_err *e)
{
    return llm_group_say(t->group, e) < 0 || llm_group_say(t->experts, e) < 0 ? -1 : llm_group_say(t->sequence.group, e);
}

int llm_trainer_leave(struct llm_trainer *t, int *got, struct llm_err *e)
{
    bool abandoned = false, by;
    struct llm_group *const groups[] = {t->group, t->experts, t->sequence.group};
    if (llm_trainer_say(t, e) < 0) return -1; /* in all groups before the first wait */
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (llm_group_leave(groups[i], &by, e) < 0) return -1;
        abandoned |= by;
    }
    if (abandoned && *got < 0) *got = 0;
    return 0;
}

int llm_trainer_agree_on_pass(struct llm_trainer *t, int got, struct llm_err *e)
{
    if (t->share.zero < 3 && !t->stages && !llm_trainer_joins(t)) return got;
    got = llm_comm_agree(t->comm, got, NULL, e);
    t->eval_agreed = got != 0;
    return got;
}
