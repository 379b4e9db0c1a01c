# llmutils: `make help` lists the targets.
.DEFAULT_GOAL := all
SHELL := /bin/bash
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
BIN ?= bin
OPT ?= -O2 -g
comma := ,
FUZZ_SECONDS ?= 10
FUZZ_SLOW_SECONDS ?= 600
VERSION := $(shell sed -n 's/^\#define LLM_VERSION "\(.*\)"/\1/p' lib/base/cli.h)
PKGS := libzstd jansson libxxhash nettle libpcre2-8 libutf8proc libpng libjpeg
WARN := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wvla \
    -Wno-missing-field-initializers

ARCH := $(shell $(CC) -dumpmachine 2> /dev/null | cut -d- -f1)
ISAS_x86_64 := scalar avx2 avxvnni avx512 avx512vnni avx512bf16
ISAS_aarch64 := scalar neon
ISAS := $(or $(ISAS_$(ARCH)),scalar)
FLAGS_scalar := -fno-tree-vectorize
FLAGS_avx2 := -mavx2 -mfma -mf16c -mbmi2
FLAGS_avx512 := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd
FLAGS_avxvnni := $(FLAGS_avx2) -mavxvnni
FLAGS_avx512vnni := $(FLAGS_avx512) -mavx512vnni
FLAGS_avx512bf16 := $(FLAGS_avx512vnni) -mavx512bf16
FLAGS_amx := $(FLAGS_avx512bf16) -mamx-tile -mamx-bf16 -mamx-int8
FLAGS_neon := -march=armv8.2-a+dotprod+bf16+fp16
FLAGS_i8mm := $(FLAGS_neon)+i8mm
# Instruction sets of matrix products, whose kernels for the rest are those of a weaker one.
MATRIX_x86_64 := amx
MATRIX_aarch64 := i8mm

# A missing library is one clear line, said when something is about to be compiled.
MISSING := $(if $(PKGS),$(shell for p in $(PKGS); do pkg-config --exists $$p || echo $$p; done 2>&1))
PKG_CFLAGS = $(if $(MISSING),$(error missing: $(MISSING); `make deps` installs what is needed))$(PKG_CFLAGS_FOUND)
PKG_CFLAGS_FOUND := $(if $(PKGS),$(shell pkg-config --cflags $(PKGS) 2>/dev/null))
PKG_LIBS := $(if $(PKGS),$(shell pkg-config --libs $(PKGS) 2>/dev/null))
# Line editing in chats: built in where libedit is found, not with `make LIBEDIT=no`.
LIBEDIT ?= $(shell pkg-config --exists libedit 2> /dev/null && echo yes || echo no)
LIBEDIT_CFLAGS := $(if $(filter yes,$(LIBEDIT)),-DLLM_LIBEDIT $(shell pkg-config --cflags libedit))
LIBEDIT_LIBS := $(if $(filter yes,$(LIBEDIT)),$(shell pkg-config --libs libedit))
# Many machines: built in where mpicc is found, not with `make MPI=no`. Its own -show says what it would add to a command.
MPICC ?= mpicc
MPI ?= $(shell command -v $(MPICC) > /dev/null && echo yes || echo no)
MPI_WORDS := $(if $(filter yes,$(MPI)),$(wordlist 2,999,$(shell $(MPICC) -show 2> /dev/null)))
MPI_CFLAGS := $(if $(MPI_WORDS),-DLLM_MPI $(patsubst -I%,-isystem %,$(filter -I%,$(MPI_WORDS))))
MPI_LIBS := $(filter -L% -l% -Wl$(comma)%,$(MPI_WORDS))
FLAGS = -std=c11 -D_GNU_SOURCE -Ilib -I. $(WARN) -ffp-contract=off -fno-math-errno -fvisibility=hidden \
	-ffile-prefix-map=$(CURDIR)=. -MMD -MP $(PKG_CFLAGS) $(OPT) $(CFLAGS)
# Libraries that a program does not call are not loaded by it.
LINK = $(CC) $(OPT) $(CFLAGS) $(if $(filter Linux,$(shell uname)),-Wl$(comma)--as-needed) $(LDFLAGS)
LIBS = $(PKG_LIBS) $(MPI_LIBS) -lm -lpthread $(if $(filter Linux,$(shell uname)),-lrt)

# Commands are shown short; whole with V=1.
quiet = $(if $(V),,@$(if $(findstring s,$(firstword -$(MAKEFLAGS))),,printf '  %-3s %s\n' '$1' '$@';) )
# All CPUs unless -j says how many.
PARALLEL = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN))

PROGRAMS := $(patsubst bin/%.c,%,$(wildcard bin/llm-*.c))
# A kernel family is one source built once per instruction set; a micro-kernel's file name ends in its own (gemm_amx.c).
KERNELS := $(wildcard lib/cpu/kernels/*.c)
# VNNI is dot products of bytes: it changes the quantised products and nothing else. BF16 is dot products of pairs of BF16: it changes their products and
# attention. What an instruction set has none of is that of the next weaker one (lib/cpu/kernels.c).
QUANTISED := $(filter lib/cpu/kernels/gemm_quantised%,$(KERNELS))
VECTORS_avxvnni := avx2
VECTORS_avx512vnni := avx512
KERNELS_avxvnni := $(QUANTISED)
KERNELS_avx512vnni := $(QUANTISED)
KERNELS_avx512bf16 := lib/cpu/kernels/attention.c lib/cpu/kernels/gemm_fours.c
# Another build may have them already: all (smpi), or those of vectors (asan-ubsan). BOUND: those whose code depends on what they are linked into, a
# program or a shared library, by thread-local data.
KERNELS_IN ?= $(BUILD)
VECTORS_IN ?= $(KERNELS_IN)
BOUND ?= lib/cpu/kernels/gemm_quantised.c
KERNEL_OBJ := $(foreach i,$(ISAS),$(foreach k,$(or $(KERNELS_$i),$(KERNELS)),\
	$(if $(filter $(BOUND),$k),$(BUILD),$(if $(filter scalar,$i),$(KERNELS_IN),$(VECTORS_IN)))/$(k:.c=.$i.o)))
MICRO := $(foreach i,$(ISAS) $(MATRIX_$(ARCH)),$(wildcard lib/cpu/micro/*_$i.c))
SOURCES ?= $(filter-out $(KERNELS) lib/cpu/micro/%,$(shell find lib -name '*.c' | LC_ALL=C sort))
OBJ := $(SOURCES:%.c=$(BUILD)/%.o) $(KERNEL_OBJ) $(MICRO:%.c=$(KERNELS_IN)/%.o)
LIBRARY := $(BUILD)/libllm.a
UNIT_SOURCES ?= $(shell find tests/unit -name 'test_*.c' 2>/dev/null | LC_ALL=C sort)
BATS := $(sort $(wildcard tests/pipe/*.bats)) $(sort $(wildcard tests/cli/*.bats)) $(sort $(wildcard tests/fault/*.bats))
LINT := $(sort $(wildcard tests/lint/*.bats))

# TESTS: unit tests by their source, bats files, or folders of either.
CHOSEN := $(foreach t,$(TESTS),$(if $(filter %.c %.bats,$t),$t,$(shell find $t -name 'test_*.c' -o -name '*.bats')))
CHOSEN_UNIT := $(filter %.c,$(if $(TESTS),$(CHOSEN),$(UNIT_SOURCES)))
CHOSEN_BATS := $(filter %.bats,$(if $(TESTS),$(CHOSEN),$(BATS) $(if $(SANITIZER),,$(LINT))))
UNIT := $(CHOSEN_UNIT:%.c=$(BUILD)/%)
# The fuzzers without libFuzzer: their seeds, and a few changes of them.
FUZZ := $(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_PARTS := $(BUILD)/bin/tokenize/input.o
REPLAYS := $(if $(TESTS),,$(FUZZ:%=$(BUILD)/tests/fuzz/replay_%))

## all         build the programs into bin/
all: $(PROGRAMS:%=$(BIN)/%)

# Changes when the compiler or its flags do, and then everything is built again.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(FLAGS)' | cmp -s - $@ || echo '$(CC) $(FLAGS)' > $@
$(BUILD)/libedit-flags: FORCE
	@mkdir -p $(@D)
	@echo '$(LIBEDIT_CFLAGS)' | cmp -s - $@ || echo '$(LIBEDIT_CFLAGS)' > $@
$(BUILD)/bin/infer/edit.o: $(BUILD)/libedit-flags
$(BIN)/llm-infer: LIBS += $(LIBEDIT_LIBS)
$(BUILD)/mpi-flags: FORCE
	@mkdir -p $(@D)
	@echo '$(MPI_CFLAGS)' | cmp -s - $@ || echo '$(MPI_CFLAGS)' > $@
$(BUILD)/lib/dist/transport.o: $(BUILD)/mpi-flags

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call quiet,cc)$(CC) $(FLAGS) $(if $(filter bin/infer/edit,$*),$(LIBEDIT_CFLAGS)) $(if $(filter lib/dist/transport,$*),$(MPI_CFLAGS)) -c -o $@ $<

# Without what libFuzzer asks for: no parser is in there, and clang takes minutes over it.
KERNEL_FLAGS = $(filter-out -fsanitize=fuzzer%,$(FLAGS))
# Line tables alone: other debugging information of kernels, whose functions are inlined many times, would be most of the library's bytes and a third
# of the time of their compilation.
KERNEL_OPT ?= -O3 -g1
define isa_rule
$(BUILD)/lib/cpu/kernels/%.$1.o: lib/cpu/kernels/%.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(call quiet,cc)$$(CC) $$(KERNEL_FLAGS) $$(KERNEL_OPT) $$(FLAGS_$1) -DLLM_ISA_$(or $(VECTORS_$1),$1) -DLLM_ISA=$1 -c -o $$@ $$<
$(BUILD)/lib/cpu/micro/%_$1.o: lib/cpu/micro/%_$1.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(call quiet,cc)$$(CC) $$(KERNEL_FLAGS) $$(KERNEL_OPT) $$(MICRO_OPT) $$(FLAGS_$1) -DLLM_ISA_$1 -DLLM_ISA=$1 -c -o $$@ $$<
endef
$(foreach i,$(ISAS) $(MATRIX_$(ARCH)),$(eval $(call isa_rule,$i)))

$(LIBRARY): $(OBJ)
	@rm -f $@
	@$(AR) rcsD $@ $(OBJ)

# bin/llm-x.c, with the sub-commands that outgrew it in bin/x/*.c
.SECONDEXPANSION:
$(BIN)/llm-%: $(BUILD)/bin/llm-%.o $$(addprefix $(BUILD)/,$$(addsuffix .o,$$(basename $$(sort $$(wildcard bin/$$*/*.c))))) $(LIBRARY)
	@mkdir -p $(@D)
	$(call quiet,ld)$(LINK) -o $@ $^ $(LIBS)

$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/tests/unit/filter.o $(LIBRARY)
	$(call quiet,ld)$(LINK) -o $@ $^ $(LIBS) $(or $(CMOCKA),-lcmocka)

## unit        build the unit tests and run them; one: make unit TESTS=tests/unit/base/test_cli.c
unit: $(UNIT)
	@$(if $(TESTS),set -e; for t in $^; do echo "== $$t"; TEST_FILTER='$(FILTER:%=*%*)' $$t; done,tests/run $^)

## check       what a push needs; some: make check TESTS=tests/cli/x.bats FILTER='full disk'
check: deps
	@$(MAKE) --no-print-directory $(PARALLEL) check-built
check-built: all $(UNIT) $(REPLAYS)
	@BIN=$(abspath $(BIN)) OBJECTS=$(abspath $(BUILD)) FILTER='$(FILTER)' tests/run -o $(BUILD)/check $(CHOSEN_BATS) $(UNIT) $(if $(FILTER),,$(REPLAYS))
$(BUILD)/tests/fuzz/replay_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/replay.o $(FUZZ_PARTS) $(LIBRARY)
	$(call quiet,ld)$(LINK) -o $@ $^ $(LIBS)

## check-slow  train to known losses; the kernels for ARM under qemu; ten minutes of each fuzzer; each sanitizer alone: hours in all
check-slow: deps
	@$(MAKE) --no-print-directory $(PARALLEL) all
	@status=0; BIN=$(abspath $(BIN)) LIMIT=50000 JOBS=1 tests/run $(sort $(wildcard tests/slow/*.bats)) || status=1; \
	tests/cross/run || status=1; for t in fuzz-slow asan ubsan; do $(MAKE) --no-print-directory $$t || status=1; done; exit $$status

## asan        unit tests and bats files under AddressSanitizer, in build/asan; in the same way:
## ubsan       under UndefinedBehaviorSanitizer
## tsan        under ThreadSanitizer
## asan-ubsan  under the first two at once
SANITIZE_asan := address
SANITIZE_ubsan := undefined
SANITIZE_tsan := thread
# Undefined behaviour ends the program by a trap, which AddressSanitizer reports with its line: the messages of `make ubsan` are ten megabytes of
# data a program, in which every run looks for leaked pointers.
SANITIZE_asan-ubsan := address,undefined -fsanitize-undefined-trap-on-error
export ASAN_OPTIONS ?= allocator_may_return_null=1:detect_leaks=1:handle_sigill=1:exitcode=99
export UBSAN_OPTIONS ?= print_stacktrace=1:halt_on_error=1:exitcode=99
export TSAN_OPTIONS ?= exitcode=99:suppressions=$(CURDIR)/tests/tsan.supp
# A program at fixed addresses has nothing to relocate when it starts, which is half of the time of most of these tests' programs.
FIXED_ADDRESSES := -fno-pie -no-pie
# AddressSanitizer sees what these would find in kernels. Micro-kernels, in which half of the time would be spent, are optimised and left to
# `make ubsan`; both together leave kernels of vectors to `make asan` and `make ubsan` and take those of the programs: the scalar ones are of the same
# sources, and with AVX2 alone tests of training and decoding took ten times as long.
KERNEL_UNCHECKED := -fno-sanitize=null,alignment,object-size,bounds
MICRO_UNCHECKED := -O2 -fno-sanitize=undefined
asan ubsan tsan asan-ubsan: deps
	@$(MAKE) --no-print-directory $(PARALLEL) all # for what tests only prepare (helper.bash, without_sanitizer)
	@SANITIZER=$@ LIMIT=$(or $(LIMIT),600) $(MAKE) --no-print-directory $(PARALLEL) BUILD=build/$@ BIN=build/$@/bin OPT='-O1 -g1' \
		KERNEL_OPT='-O1 $(if $(filter asan%,$@),$(KERNEL_UNCHECKED))' MICRO_OPT='$(if $(filter asan%,$@),$(MICRO_UNCHECKED))' \
		$(if $(filter asan-ubsan,$@),VECTORS_IN=$(BUILD) BOUND=) SANITIZER=$@ check-built \
		CFLAGS='-fsanitize=$(SANITIZE_$@) -fno-sanitize-recover=all -fno-omit-frame-pointer $(if $(filter tsan,$@),,$(FIXED_ADDRESSES)) $(CFLAGS)'

## fuzz        each parser under libFuzzer for FUZZ_SECONDS (10), from the seeds in tests/fuzz/seeds
fuzz: deps
	@$(MAKE) --no-print-directory $(PARALLEL) CC=clang BUILD=build/fuzz OPT='-O1 -g1' KERNEL_OPT=-O1 \
		CFLAGS='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all $(CFLAGS)' fuzz-built
## fuzz-slow   the same for FUZZ_SLOW_SECONDS (600), as a part of check-slow
fuzz-slow:
	@if command -v clang > /dev/null; then $(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(FUZZ_SLOW_SECONDS); \
	else echo 'tests/fuzz: skipped: no clang'; fi
FUZZERS := $(FUZZ:%=$(BUILD)/tests/fuzz/fuzz_%)
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(FUZZ_PARTS) $(LIBRARY)
	$(call quiet,ld)$(LINK) -fsanitize=fuzzer -o $@ $^ $(LIBS)
fuzz-built: $(FUZZERS)
	@tests/fuzz/run $(FUZZ_SECONDS) $^

## smpi        llm-train for SimGrid's simulated machines (smpirun), in build/smpi: tests/smpi/run
# A shared library, which every rank loads a copy of. Kernels have neither data nor calls of other libraries, so that those of the program serve.
SMPI_SOURCES := $(filter-out lib/dist/launcher.c,$(SOURCES)) tests/smpi/launcher.c
build/smpi/bin/llm-train.o: private FLAGS += -fvisibility=default # for main
smpi: deps
	@command -v smpicc > /dev/null || { echo 'smpicc is missing: it is in libsimgrid-dev of Debian' >&2; exit 1; }
	@$(MAKE) --no-print-directory $(PARALLEL) all
	@$(MAKE) --no-print-directory $(PARALLEL) BUILD=build/smpi BIN=build/smpi KERNELS_IN=$(BUILD) MPICC=smpicc SOURCES='$(SMPI_SOURCES)' \
		CFLAGS='-fPIC -DSMPI_NO_OVERRIDE_MALLOC -Dsched_yield=llm_yield_rank -include smpi/smpi_helpers.h $(CFLAGS)' LDFLAGS="-shared -s" build/smpi/llm-train

## bench       this machine's peaks, and the toolkit's speed against them
bench: deps
	@$(MAKE) --no-print-directory $(PARALLEL) all
	@BIN=$(abspath $(BIN)) tests/bench/run

## demo        stories: tokenize, train, infer, quantize, measure, inspect; other text: make demo TEXT=my.txt
demo: deps
	@$(MAKE) --no-print-directory $(PARALLEL) all $(BUILD)/stories
	@BIN=$(abspath $(BIN)) STORIES=$(abspath $(BUILD)/stories) FOLDER=$(abspath $(BUILD)/demo) tests/demo/run '$(TEXT)'
## demo-teach  sums that a small model gets wrong, and right after rewards for right ones
demo-teach: deps
	@$(MAKE) --no-print-directory $(PARALLEL) all
	@BIN=$(abspath $(BIN)) FOLDER=$(abspath $(BUILD)/demo-teach) tests/demo/teach
## demo-style  a style learned from pairs of replies, and measured by a classifier that is trained for it
demo-style: deps
	@$(MAKE) --no-print-directory $(PARALLEL) all
	@BIN=$(abspath $(BIN)) FOLDER=$(abspath $(BUILD)/demo-style) tests/demo/style
$(BUILD)/stories: tests/demo/stories.c
	@mkdir -p $(@D)
	$(call quiet,cc)$(CC) -std=c11 $(WARN) $(OPT) $(CFLAGS) $(LDFLAGS) -o $@ $<

## lint        layers, circles, banned functions, options against manual pages, mandoc, scripts; warnings of gcc and clang
lint: all
	@BIN=$(abspath $(BIN)) OBJECTS=$(abspath $(BUILD)) tests/run $(LINT)
	@tests/lint/warnings

## format      clang-format on every source
format:
	clang-format -i $(shell find bin lib tests -name '*.[ch]')

## man         check the manual pages and render them as text into build/man
man:
	@mkdir -p $(BUILD)/man
	@for m in $(wildcard man/*.[17]); do \
		mandoc -Tlint -Wwarning $$m && mandoc -Tutf8 $$m > $(BUILD)/man/$${m##*/}.txt || exit 1; done

# Every path that `install` makes, so that `uninstall` removes just those.
MAN1 := $(wildcard man/*.1)
MAN7 := $(wildcard man/*.7)
SHARE := $(DESTDIR)$(PREFIX)/share
COMPLETIONS := $(SHARE)/bash-completion/completions
INSTALLED = $(PROGRAMS:%=$(DESTDIR)$(PREFIX)/bin/%) $(MAN1:man/%=$(SHARE)/man/man1/%) $(MAN7:man/%=$(SHARE)/man/man7/%) \
	$(PROGRAMS:%=$(COMPLETIONS)/%) $(patsubst %,$(SHARE)/doc/llmutils/%,README.md LICENSE $(wildcard formats/*))

## install     programs, manual pages, bash completion, format pages under PREFIX (/usr/local); DESTDIR is put before
install: all
	install -d $(sort $(dir $(INSTALLED)))
	install -m 755 $(PROGRAMS:%=$(BIN)/%) $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(MAN1) $(SHARE)/man/man1/
	install -m 644 $(MAN7) $(SHARE)/man/man7/
	for p in $(PROGRAMS); do install -m 644 man/completion.bash $(COMPLETIONS)/$$p || exit 1; done
	install -m 644 README.md LICENSE $(SHARE)/doc/llmutils/
	install -m 644 $(wildcard formats/*) $(SHARE)/doc/llmutils/formats/

## uninstall   remove what install put there
uninstall:
	rm -f $(INSTALLED)
	-rmdir $(SHARE)/doc/llmutils/formats $(SHARE)/doc/llmutils 2>/dev/null

## deps        install what is missing (apt, dnf, apk, pacman, brew); DEPS=no only reports
deps:
	@.ci/deps $(DEPS)

## dist        dist/llmutils-VERSION.tar.gz of the committed tree, the same bytes every time
dist:
	@mkdir -p dist
	git archive --format=tar --prefix=llmutils-$(VERSION)/ HEAD | gzip -9n > dist/llmutils-$(VERSION).tar.gz

## clean       remove what was built
clean:
	rm -rf build dist $(PROGRAMS:%=bin/%)

## help        this list
help:
	@sed -n 's/^## //p' Makefile

FORCE:
.PHONY: FORCE all unit check check-built check-slow asan ubsan tsan asan-ubsan fuzz fuzz-slow fuzz-built smpi bench demo demo-teach demo-style lint format man \
	install uninstall deps dist clean help
.SECONDARY:
.DELETE_ON_ERROR:
ifneq ($(filter-out help clean,$(or $(MAKECMDGOALS),all)),) # these compile nothing, and thousands of files take seconds to read
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
endif
