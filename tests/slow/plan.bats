# --plan: what a run then takes, of the families that tests/cli/plan.bats leaves out.
load ../helper
load ../plan

@test "training: a twentieth above or below what the run takes" {
    training_takes moe mla mamba rwkv rwkv6 rwkv7 lstm rnn mlp perceiver
}

@test "inference: a twentieth and 5 MB above or below what a full context takes" {
    inference_takes tiny lstm
}
