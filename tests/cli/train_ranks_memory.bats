# What --plan says that a rank takes is what the rank that takes most then takes. Other layouts: tests/slow/train_ranks_memory.bats.
load ../helper
load ../mpi
load ../ranks_memory

@test "tensors cut, weights, gradients and moments divided: the memory of the rank that takes most, while it saves" {
    wide 2 tp=2 --tensor-parts 2
    wide 2 dp=2,zero=3
}
