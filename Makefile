# llmutils: `make help` lists the targets.
.DEFAULT_GOAL := all
SHELL := /bin/bash
CC ?= gcc
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
BIN ?= bin
OPT ?= -O2 -g
PKGS := libzstd jansson libxxhash libcrypto libpcre2-8 libutf8proc libpng
WARN := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wvla

ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)
ISAS_x86_64 := scalar avx2 avx512 avx512bf16
ISAS_aarch64 := scalar neon
ISAS := $(or $(ISAS_$(ARCH)),scalar)
FLAGS_scalar := -fno-tree-vectorize
FLAGS_avx2 := -mavx2 -mfma -mf16c -mbmi2
FLAGS_avx512 := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd
FLAGS_avx512bf16 := $(FLAGS_avx512) -mavx512bf16 -mavx512vnni
FLAGS_amx := $(FLAGS_avx512bf16) -mamx-tile -mamx-bf16 -mamx-int8
FLAGS_neon := -march=armv8.2-a+dotprod+bf16+fp16

PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS = $(shell pkg-config --libs $(PKGS) 2>/dev/null)
FLAGS = -std=c11 -D_GNU_SOURCE -Ilib $(WARN) -ffp-contract=off -fno-math-errno -fvisibility=hidden \
	-ffile-prefix-map=$(CURDIR)=. -MMD -MP $(PKG_CFLAGS) $(OPT) $(CFLAGS)
LIBS = $(PKG_LIBS) -lm -lpthread

PROGRAMS := $(patsubst bin/%.c,%,$(wildcard bin/llm-*.c))
# A kernel family is one source built once per instruction set; a micro-kernel's file name ends in its own (gemm_amx.c).
KERNELS := $(wildcard lib/cpu/kernels/*.c)
MICRO := $(filter $(patsubst %,lib/cpu/micro/%,$(foreach i,$(ISAS) $(if $(filter x86_64,$(ARCH)),amx),$(notdir $(wildcard lib/cpu/micro/*_$i.c)))),$(wildcard lib/cpu/micro/*.c))
SOURCES := $(filter-out $(KERNELS) lib/cpu/micro/%,$(shell find lib -name '*.c' | LC_ALL=C sort))
OBJ := $(SOURCES:%.c=$(BUILD)/%.o) $(foreach i,$(ISAS),$(KERNELS:%.c=$(BUILD)/%.$i.o)) $(MICRO:%.c=$(BUILD)/%.o)
LIBRARY := $(BUILD)/libllm.a
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(shell find tests/unit -name 'test_*.c' 2>/dev/null | LC_ALL=C sort))

## all         build the programs into bin/
all: $(PROGRAMS:%=$(BIN)/%)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -c -o $@ $<

define isa_rule
$(BUILD)/lib/cpu/kernels/%.$1.o: lib/cpu/kernels/%.c
	@mkdir -p $$(@D)
	$$(CC) $$(FLAGS) -O3 $$(FLAGS_$1) -DLLM_ISA_$1 -DLLM_ISA=$1 -c -o $$@ $$<
$(BUILD)/lib/cpu/micro/%_$1.o: lib/cpu/micro/%_$1.c
	@mkdir -p $$(@D)
	$$(CC) $$(FLAGS) -O3 $$(FLAGS_$1) -DLLM_ISA_$1 -DLLM_ISA=$1 -c -o $$@ $$<
endef
$(foreach i,$(ISAS) amx,$(eval $(call isa_rule,$i)))

$(LIBRARY): $(OBJ)
	@rm -f $@
	@$(AR) rcsD $@ $(OBJ)

# bin/llm-x.c, with the sub-commands that outgrew it in bin/x/*.c
.SECONDEXPANSION:
$(BIN)/llm-%: $(BUILD)/bin/llm-%.o $$(patsubst %.c,$(BUILD)/%.o,$$(wildcard bin/$$*/*.c)) $(LIBRARY)
	@mkdir -p $(@D)
	$(CC) $(OPT) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(LIBRARY)
	$(CC) $(OPT) $(CFLAGS) $(LDFLAGS) -o $@ $< $(LIBRARY) $(LIBS) -lcmocka

## unit        build the unit tests and run them; one: make unit TESTS=tests/unit/base/test_err.c
unit: $(if $(TESTS),$(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(filter %.c,$(TESTS))),$(UNIT))
	@set -e; for t in $^; do echo "== $$t"; $$t; done

## clean       remove what was built
clean:
	rm -rf build $(PROGRAMS:%=bin/%)

## help        this list
help:
	@sed -n 's/^## //p' Makefile

.PHONY: all unit clean help
.SECONDARY:
-include $(OBJ:.o=.d) $(PROGRAMS:%=$(BUILD)/bin/%.d) $(UNIT:=.d)
