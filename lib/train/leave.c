/* The end of passes that a rank computes together with others (train/trainer_internal.h). */
#include "dist/group.h"
#include "train/trainer_internal.h"

int llm_trainer_say(struct llm_trainer *t, struct llm_err *e)
{
    return llm_group_say(t->group, e) < 0 ? -1 : llm_group_say(t->experts, e);
}

int llm_trainer_leave(struct llm_trainer *t, int *got, struct llm_err *e)
{
    bool abandoned, by_experts;
    if (llm_trainer_say(t, e) < 0) return -1; /* in all groups before the first wait */
    if (llm_group_leave(t->group, &abandoned, e) < 0 || llm_group_leave(t->experts, &by_experts, e) < 0) return -1;
    if ((abandoned || by_experts) && *got < 0) *got = 0;
    return 0;
}
