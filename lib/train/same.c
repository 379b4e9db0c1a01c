/* Whether all ranks work on the same run (train/trainer.h). */
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/cli.h"
#include "base/hash.h"
#include "cpu/detect.h"
#include "model/config/config.h"
#include "train/trainer.h"

enum { PROGRAM, ISA, CONFIGURATION, OPTIONS, DATA, VALIDATION, WEIGHTS, N_FACTS, ROOM = 64 };
static const char *const names[] = {"program", "instruction set", "configuration", "options", "training data", "validation data", "weights"};

static int hash_json(json_t *o, char text[ROOM], struct llm_err *e)
{
    struct llm_buf b = {0};
    if (!o) return -1;
    int got = llm_json_dump(o, &b, e);
    if (got == 0) snprintf(text, ROOM, "%016llx", (unsigned long long)llm_xxh64(b.p, b.n, 0));
    llm_buf_release(&b);
    json_decref(o);
    return got;
}

/* dl_iterate_phdr: a hash of the program's build id (the linker's hash of all that it wrote), whose object comes first; 0 without one. */
static int hash_build_id(struct dl_phdr_info *program, size_t size, void *hash)
{
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &program->dlpi_phdr[i];
        const unsigned char *at = (const unsigned char *)program->dlpi_addr + segment->p_vaddr;
        for (size_t left = segment->p_type == PT_NOTE ? segment->p_memsz : 0; left >= sizeof(ElfW(Nhdr));) {
            const ElfW(Nhdr) *note = (const void *)at;
            size_t bytes = sizeof *note + (note->n_namesz + (size_t)3) / 4 * 4 + (note->n_descsz + (size_t)3) / 4 * 4;
            if (bytes > left) break;
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(note + 1, "GNU", 4) == 0) {
                *(uint64_t *)hash = llm_xxh64(at + sizeof *note + 4, note->n_descsz, 0);
            }
            at += bytes;
            left -= bytes;
        }
    }
    return 1;
}

/* The version, and a hash of the running program: of its build id, else of its file where the system shows it, which is read whole. */
static void program_of(char text[ROOM])
{
    uint64_t h = 0;
    dl_iterate_phdr(hash_build_id, &h);
    FILE *f = h ? NULL : fopen("/proc/self/exe", "rbe");
    static char block[1 << 16];
    for (size_t n; f && (n = fread(block, 1, sizeof block, f)) > 0;) h = llm_xxh64(block, n, h);
    if (f) fclose(f);
    snprintf(text, ROOM, "%s %016llx", LLM_VERSION, (unsigned long long)h);
}

static int facts_of(const struct llm_trainer *t, char facts[N_FACTS][ROOM], struct llm_err *e)
{
    program_of(facts[PROGRAM]);
    snprintf(facts[ISA], ROOM, "%s", llm_isa_name());
    snprintf(facts[DATA], ROOM, "%s", t->data.fingerprint);
    snprintf(facts[VALIDATION], ROOM, "%s", t->data.val_fingerprint);
    snprintf(facts[WEIGHTS], ROOM, "%016llx after step %lld", (unsigned long long)llm_trainer_hash(t), (long long)t->step);
    if (hash_json(llm_config_to_json(&t->model->config, e), facts[CONFIGURATION], e) < 0) return -1;
    return hash_json(llm_train_options_to_json(&t->o, e), facts[OPTIONS], e);
}

int llm_trainer_same(struct llm_trainer *t, struct llm_err *e)
{
    if (t->outer.replicas && llm_trainer_update_hash(t, e) < 0) return -1; /* with the replicas of other ranks */
    if (!t->comm) return 0;
    char (*all)[N_FACTS][ROOM] = llm_calloc((size_t)t->share.n, sizeof *all, "the ranks' facts", e);
    int got = all ? facts_of(t, all[t->share.rank], e) : -1;
    if ((got = llm_comm_agree(t->comm, got, NULL, e)) == 0) got = llm_comm_gather_even(t->comm, all, sizeof *all, e);
    for (int q = 1; got == 0 && q < t->share.n; q++) {
        for (int i = 0; got == 0 && i < N_FACTS; i++) {
            all[q][i][ROOM - 1] = all[0][i][ROOM - 1] = 0;
            if (strcmp(all[q][i], all[0][i]) == 0) continue;
            got = llm_fail(e, LLM_EX_FAILURE, "rank %d (%s): %s: expected that of rank 0 (%s), %s, found %s", q, llm_comm_host(t->comm, q), names[i],
                           llm_comm_host(t->comm, 0), all[0][i], all[q][i]);
        }
    }
    free(all);
    if (!llm_share_divides_masters(&t->share) && !t->outer.replicas) { /* from now on weights are hashed in their places */
        free(t->hashes);
        t->hashes = NULL;
    }
    return got;
}
