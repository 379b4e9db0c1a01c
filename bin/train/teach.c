/* llm-train --prompts: reinforcement in one process. */
#include <string.h>
#include "bin/train/train.h"

void llm_run_check_teach(const struct llm_cli *cli, const struct args *a, int has_data)
{
    const struct llm_teach_options *o = &a->teach;
    const struct llm_objective *objective = llm_objectives[a->o.objective];
    if (!o->prompts) {
        if (o->judge.command || o->log || o->iterations > 0) llm_usage(cli, "--reward, --rollout-log and --iterations go with --prompts");
        if (o->lag > 0 || o->redraw > 0) llm_usage(cli, "--lag and --redraw go with --prompts");
        return;
    }
    if (!o->judge.command && !objective->unrewarded) llm_usage(cli, "--prompts: expected the command that judges completions, --reward COMMAND");
    if (objective->unrewarded && (o->judge.command || o->lag > 0 || o->redraw > 0)) {
        llm_usage(cli, "--objective %s: expected no --reward, --lag or --redraw: the teacher judges each token", objective->name);
    }
    if (o->iterations == 0) llm_usage(cli, "--prompts: expected how often to sample and learn, --iterations N");
    if (o->lag > 0 && !o->log) llm_usage(cli, "--lag: expected --rollout-log, without which a run that stopped could not go on");
    if (o->lag > 0 && o->redraw > 0) llm_usage(cli, "--lag and --redraw exclude each other: what is drawn again must be judged first");
    if (has_data) llm_usage(cli, "--prompts: expected no other data");
    if (a->val || a->o.stream || a->o.overfit_one || a->o.carry_state || a->ngram_bar) {
        llm_usage(cli, "--prompts does not go with --val, --stream, --overfit-one, --carry-state or --ngram-bar");
    }
    if (a->plan || a->show > 0 || a->gradcheck) {
        llm_usage(cli, "--prompts does not go with --plan, --show or --gradcheck: the data are not there yet");
    }
    if (a->best) llm_usage(cli, "--keep-best: expected validation data, which --prompts has none of");
    if (o->log && strcmp(o->log, "-") == 0) llm_usage(cli, "--rollout-log: expected a file, which is read again when the run goes on");
}
