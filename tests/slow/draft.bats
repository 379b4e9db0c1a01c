# Drafts: every model with every way of choosing tokens and every source, of which tests/cli/draft.bats has every two together.
load ../helper
load ../draft

@test "drafts of repetitions, of smaller models and of n-grams: the text without, greedily and by chance, one prompt and many" {
    drafted 1
}
