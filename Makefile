# Kazeia-Engine. `make run` answers a question; `make test` proves the rest. `make help` lists everything.
.DEFAULT_GOAL := help
.PHONY: help setup build run test test-aarch64 package-aarch64 test-device npu-demo npu-matrix quality bench-kernels asan tsan fuzz bench speed versus lint format clean

MODEL ?= models/kazeia-mini-qwen35-q4_0.gguf
PROMPT ?= What is the capital of France?
# With it the default question is long enough for the NPU; shorter pieces run on the CPU.
NPU_SYSTEM ?= Answer in English.
SECONDS ?= 60
# Rounded up: libFuzzer takes 0 for no limit.
HALF = $(shell echo $$(( ($(SECONDS) + 1) / 2 )))
# Build against another llama.cpp checkout: make run LLAMA_CPP_DIR=<folder>
LLAMA_CPP_DIR ?=
PROGRAM := build/release/kazeia
SPEED_MODEL := build/speed/qwen3-0.6b.gguf
SPEED_RECORD := build/speed/record.jsonl

export MODEL PROMPT
export KAZEIA_LLAMA_CPP_DIR := $(LLAMA_CPP_DIR)
CONFIGURE := $(if $(LLAMA_CPP_DIR),-DKAZEIA_LLAMA_CPP_DIR="$(abspath $(LLAMA_CPP_DIR))",)

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1|/' | column -t -s '|'

setup: ## install what is missing (Debian packages, pinned upstream sources)
	@scripts/setup

build: setup ## configure and build build/release/kazeia
	@scripts/build release kazeia -- $(CONFIGURE)

run: build ## one answer: make run [MODEL=file.gguf] [PROMPT='text'] [FLAGS='--no-think']
	@$(PROGRAM) run "$$MODEL" -p "$$PROMPT" $(FLAGS)

test: ## every test, ending with ctest's summary
	@scripts/setup tests aarch64
	@scripts/build release all -- $(CONFIGURE)
	@scripts/test-aarch64 build
	@ctest --test-dir build/release --output-on-failure -j 2

test-aarch64: build ## the program and the tile kernels cross-built for 64-bit ARM, under qemu
	@scripts/test-aarch64

package-aarch64: ## the folder for a device: make package-aarch64 [PRESET=android-arm64] (with the NDK in $$ANDROID_NDK_HOME)
	@scripts/package-aarch64 $(PRESET)

test-device: ## the acceptance run against a stand-in adb, with a fake program and with the real package under qemu
	@scripts/setup tests aarch64
	@cd tests/device && python3 -B -m unittest start_script_test acceptance_test package_test

npu-demo: setup ## the mini model with its prefill on an emulated NPU, with the counters
	@scripts/build release kazeia kazeia_emulated_dsp -- $(CONFIGURE)
	@LD_LIBRARY_PATH=build/release/emulated_dsp $(PROGRAM) run "$$MODEL" --system "$(NPU_SYSTEM)" -p "$$PROMPT" --no-think \
	  --route npu-prefill --profile build/npu-demo-profile.json $(FLAGS)

npu-matrix: setup ## every fault of the device at every moment, as a table
	@scripts/build release engine_npu_test -- $(CONFIGURE)
	@scripts/npu-matrix

quality: build ## 1,000 dialogues per mini model, right or wrong
	@for model in models/kazeia-mini-*.gguf; do \
	  case $$model in *-qwen35-*) least=1000 ;; *) least=997 ;; esac; \
	  $(PROGRAM) quality $$model --dialogues tests/vectors/dialogues.jsonl --at-least $$least || exit 1; done

bench-kernels: ## speed of the tile kernels and of plain reads: make bench-kernels [FLAGS='--benchmark_filter=gemv']
	@scripts/setup bench
	@scripts/build release kazeia_tiles_perftest -- $(CONFIGURE)
	@build/release/kazeia_tiles_perftest $(FLAGS)

asan: ## the same tests under the address and undefined-behaviour sanitizers
	@scripts/setup tests
	@scripts/build asan all -- $(CONFIGURE)
	@ctest --test-dir build/asan --output-on-failure -j 2

tsan: ## the tiles and the engine on them under the thread sanitizer (compiles llama.cpp once more, about 6 minutes)
	@scripts/setup tests
	@scripts/build tsan tiles_test tiles_upstream_test tile_backend_test engine_model_test -- $(CONFIGURE)
	@KAZEIA_TEST_SCALE=0.05 ctest --test-dir build/tsan/src/tiles --output-on-failure -L unit
	@ctest --test-dir build/tsan/src/engine --output-on-failure -R 'TwoThreads|BothPlacements|TileCacheOfAModel'

fuzz: ## fuzz the GGUF reader and the state file reader, half the time each: make fuzz SECONDS=60
	@scripts/setup fuzz
	@scripts/build fuzz gguf_reader_fuzz state_file_fuzz --
	@mkdir -p build/fuzz/corpus build/fuzz/state_corpus
	@build/fuzz/gguf_reader_fuzz -max_total_time=$(HALF) -max_len=16384 -timeout=10 -rss_limit_mb=1024 \
	  -dict=fuzz/gguf_reader.dict -artifact_prefix=build/fuzz/ build/fuzz/corpus build/fuzz/gguf_reader_seeds
	@build/fuzz/state_file_fuzz -max_total_time=$(HALF) -max_len=16384 -timeout=10 -rss_limit_mb=1024 \
	  -artifact_prefix=build/fuzz/ build/fuzz/state_corpus build/fuzz/state_file_seeds

bench: setup ## what a user feels, as a record: make bench MODEL=file.gguf [FLAGS='--quick --baseline upstream --add']
	@scripts/build release kazeia $(if $(findstring baseline,$(FLAGS)),kazeia-upstream-peer) -- $(CONFIGURE)
	@$(PROGRAM) bench "$$MODEL" $(FLAGS)

# Weights are random numbers, always the same; speed does not depend on them.
$(SPEED_MODEL):
	@mkdir -p $(@D)
	@$(PROGRAM) synth qwen3-0.6b $@

speed: build ## is it slower than the last accepted record of this machine? 3 minutes; keep the new one with kazeia ledger add
	@$(MAKE) --no-print-directory $(SPEED_MODEL)
	@rm -f $(SPEED_RECORD)
	@$(PROGRAM) bench $(SPEED_MODEL) --quick --record $(SPEED_RECORD) $(FLAGS)
	@$(PROGRAM) ledger check $(SPEED_RECORD)

versus: ## speed and memory against llama.cpp's default: make versus MODEL=file.gguf [FLAGS=--quick]
	@scripts/setup
	@scripts/build release kazeia kazeia-upstream-peer -- $(CONFIGURE)
	@$(PROGRAM) versus "$$MODEL" $(FLAGS)

lint: ## clang-format (check) and clang-tidy
	@scripts/setup lint tests
	@scripts/lint

format: ## rewrite the sources with clang-format
	@git ls-files '*.cpp' '*.h' | xargs clang-format -i

clean: ## remove every build tree (the fetched sources stay)
	@rm -rf build
