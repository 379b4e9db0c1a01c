/* llm-tokenize: text to token ids and back; trains tokenizers. One file a sub-command in bin/tokenize/. */
#include "base/signals.h"
#include "bin/tokenize/tokenize.h"

static const struct llm_cli *const commands[] = {&tokenize_train_cli, &tokenize_encode_cli, &tokenize_decode_cli, &tokenize_chunk_cli,
                                                &tokenize_image_cli, &tokenize_info_cli, NULL};

static const struct llm_cli cli = {
    .name = "llm-tokenize",
    .summary = "Train tokenizers, turn text into token ids, ids into text, documents into passages, pictures into numbers.",
    .usage = "train|encode|decode|chunk|image|info [OPTION]... [FILE]...",
    .examples = "llm-tokenize train --vocab-size 4096 corpus.txt > tok.json\n"
                "llm-tokenize encode -T tok.json corpus.txt > corpus.tok\n"
                "llm-tokenize decode -T tok.json corpus.tok\n"
                "llm-tokenize chunk -T tok.json --size 200 notes.md > passages.jsonl\n"
                "llm-tokenize image --for clip cat.jpg > cat.images\n"
                "llm-tokenize info -T tok.json",
    .commands = commands,
};

int main(int argc, char **argv)
{
    llm_start();
    const struct llm_cli *c = llm_cli_command(&cli, argc, argv);
    argc--;
    argv++;
    if (c == &tokenize_train_cli)
        return tokenize_train(argc, argv);
    if (c == &tokenize_encode_cli)
        return tokenize_encode(argc, argv);
    if (c == &tokenize_decode_cli)
        return tokenize_decode(argc, argv);
    if (c == &tokenize_chunk_cli)
        return tokenize_chunk(argc, argv);
    if (c == &tokenize_image_cli)
        return tokenize_image(argc, argv);
    return tokenize_info(argc, argv);
}
