/* The files that a command line names. No output may be a file that is also read, or that is also written as another output: such a run would lose
 * data. llm_cli_parse adds every path of the option table and compares all pairs before anything is opened; lib/io compares what is read or written
 * under other names (files of a model folder, data that a checkpoint names, parts of a set).
 *
 * Two paths are the same file if they lead to one device and inode, or, as long as a file does not exist, to one name in one folder (its device and
 * inode); symbolic links are followed. Standard input and output ("-") count if they are regular files. Character devices (/dev/null, terminals)
 * and sockets are never the same: nothing stored is lost there. */
#ifndef LLM_BASE_PATHS_H
#define LLM_BASE_PATHS_H

#include <limits.h>
#include <stdbool.h>
#include "base/err.h"

enum llm_path_role {
    LLM_PATH_INPUT,    /* is read */
    LLM_PATH_REPLACED, /* is read, and the LLM_PATH_REPLACING output may take its place when that is whole */
    LLM_PATH_OUTPUT,
    LLM_PATH_REPLACING,
    LLM_PATH_STDOUT    /* standard output without being named: compared with inputs alone */
};

/* Removes all paths. */
void llm_paths_clear(void);
/* Adds a path; `label` ("--log", "operand") and `path` are borrowed for as long as the process lives. A path of NULL is ignored. */
void llm_paths_add(enum llm_path_role role, const char *label, const char *path);
/* Compares all pairs. -1 and status LLM_EX_USAGE: "--log: expected a file other than operand d.tok, found ./d.tok". */
int llm_paths_check(struct llm_err *e) LLM_MUST_CHECK;
/* Before a file is read: if the command line does not name it, it must be none of the outputs. */
int llm_paths_check_input(const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Before a file is written: if the command line does not name it as an output, it must be none of the files that the command line names. */
int llm_paths_check_output(const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Before a file is written whose name is derived from that of an output (a part of a set): it must be none of the files that the command line names,
 * even if a path there is the same. */
int llm_paths_check_part(const char *path, struct llm_err *e) LLM_MUST_CHECK;

/* Where the path leads: links followed, also one whose end does not exist yet. -1: see errno. */
int llm_path_resolve(const char *path, char out[PATH_MAX]) LLM_MUST_CHECK;

#endif
