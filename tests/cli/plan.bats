# --plan: what a run then takes. Other families: tests/slow/plan.bats.
load ../helper
load ../plan

@test "training: a twentieth above or below what the run takes, both precisions, checkpointing" {
    training_takes tiny mamba2 hyena "tiny --precision f32" "moe --checkpoint-every 1 --optimizer muon"
}

@test "inference: a twentieth and 5 MB above or below what a full context takes" {
    inference_takes moe mamba
}
