#!/bin/sh
# The device's side of the acceptance run. It works alone and detached, so that a lost adb connection costs nothing;
# scripts/device/acceptance only starts it, watches it and fetches its folder. POSIX sh with 32-bit arithmetic
# (Android's mksh) and toybox's commands; no root.
#
#   sh acceptance/on_device.sh start|run|status|stop|check [options] MODEL.gguf...
#     start   in the background; returns at once if it is running already
#     run     in the foreground
#     status  one line: state=running|finished|stopped done=N total=N failed=N step=NAME
#     stop    ends it; the next start goes on with the interrupted step
#     check   whether the options are right, on the device or on a PC; needs no model and changes nothing
#
#   --report DIR       where everything is written (default: `report` beside the package)
#   --routes 'LIST'    default 'cpu npu-prefill npu-only'
#   --prompts 'LIST'   prompt lengths in tokens, default '128 512 2048'
#   --repeat N         of each route and prompt, default 3
#   --decode N         tokens to generate, default 64
#   --context N        for these, default 4096
#   --long N           prompt of the long-context steps, default 6144; 0 = none
#   --long-context N   context of those, default 8192
#   --soak TIME        default 0s = none; 90s, 30m and 2h are times
#   --soak-route R     default npu-prefill
#   --soak-prompt N    default 512;  --soak-decode N  default 128
#   --timeout TIME     after which a step is ended and recorded as hanging, default 15m
#   --pause TIME       between two steps, so that one does not pay for the heat of another, default 5s
#   --sample TIME      between two samples of temperature, clocks, memory and battery, default 10s
#   --new[=NAME]       starts a new report; the old one is kept under another name. With a name, once: repeating
#                      the command goes on with the report of that name
#   --retry-failed     repeats the steps that did not pass; without it only missing ones are run
#
# The report folder: report.jsonl (one object a step), samples.jsonl, steps/ (each step's output as it was; the soak's are in
# report.jsonl only), run.log.
# A step is known by its name and command; it counts as finished once it is recorded, however it ended.

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P) || exit 1
package=${here%/*}
# The tests put a folder of their own here.
sysfs=${KAZEIA_SYSFS:-/sys}

# shellcheck source=scripts/device/steps.sh
. "$here/steps.sh"

die() {
  printf 'on_device: %s\n' "$1" >&2
  exit 2
}

# seconds TEXT: sets `value` from 90, 90s, 30m or 2h.
seconds() {
  value=${1%[smh]}
  case $value in
    '' | *[!0-9]*) die "not a time: '$1' (90s, 30m or 2h)" ;;
  esac
  case $1 in
    *m) value=$((value * 60)) ;;
    *h) value=$((value * 3600)) ;;
  esac
}

boot_id() {
  boot=unknown
  { read -r boot <"/proc/sys/kernel/random/boot_id"; } 2>/dev/null
}

# Is a run at work on this report? Sets `runner`.
running() {
  runner='' old_boot=''
  { read -r runner old_boot <"$report/pid"; } 2>/dev/null
  [ -n "$runner" ] || return 1
  boot_id
  [ "$old_boot" = "$boot" ] && kill -0 "$runner" 2>/dev/null && grep -q on_device "/proc/$runner/cmdline" 2>/dev/null
}

# The program of a run that was killed is still at work, unless the device has been restarted since. After running().
end_orphan() {
  if [ "$old_boot" = "$boot" ]; then end_child; fi
  rm -f "$report/child" "$report"/code.*
}

# ---- the steps -----------------------------------------------------------------------------------------------------

# with_run CONTEXT DECODE COMMAND...: COMMAND with the words of the program's run behind its own.
with_run() {
  run_context=$1 run_decode=$2
  shift 2
  "$@" sh "$package/kazeia.sh" run "$model" --route "$route" --json --raw \
    -f "$package/acceptance/prompts/$prompt.txt" --max-tokens "$run_decode" --temp 0 --context "$run_context"
}

# What the device is. Nothing that names its owner: no serial number, no accounts.
device_facts() {
  for name in model:ro.product.model maker:ro.product.manufacturer soc:ro.soc.model android:ro.build.version.release \
    build:ro.build.id; do
    fact=$(getprop "${name#*:}" 2>/dev/null)
    [ -z "$fact" ] || printf '"%s":%s,' "${name%%:*}" "$(json_string "$fact")"
  done
  while IFS='=' read -r key text; do
    [ -z "$key" ] || printf '"package_%s":%s,' "$key" "$(json_string "$text")"
  done <"$package/PACKAGE"
  memory=0
  while read -r key text _; do
    [ "$key" != MemTotal: ] || memory=$text
  done </proc/meminfo
  clocks=
  for file in "$sysfs"/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq; do
    text=
    { read -r text <"$file"; } 2>/dev/null
    case $text in
      '' | *[!0-9]*) ;;
      *) clocks=$clocks${clocks:+,}$text ;;
    esac
  done
  printf '"kernel":%s,"memory_total_kb":%s,"max_clock_khz":[%s]' "$(json_string "$(uname -sr)")" "$memory" "$clocks"
}

facts_step() {
  total=$((total + 1))
  [ -z "$counting" ] || return 0
  kind=device model='' route='' prompt='' repetition=0
  if finished device "facts $package_id"; then return 0; fi
  printf '{%s}\n' "$(device_facts)" >"$report/steps/device.out"
  : >"$report/steps/device.err"
  record device passed 0 1 "$(date +%s)" 0 "facts $package_id"
  finish device "facts $package_id" passed
}

soak_steps() {
  [ "$soak" -gt 0 ] || return 0
  total=$((total + 1))
  [ -z "$counting" ] || return 0
  kind=soak route=$soak_route prompt=$soak_prompt
  command_line soak "$soak" "$model" "$route" "$prompt" "$soak_decode"
  soak_line=$line
  if finished soak "$soak_line"; then return 0; fi
  # The time that earlier parts of this soak took, and their number, outlive an interruption.
  spent=0 count=0
  { read -r spent count <"$report/soak.state"; } 2>/dev/null
  in_a_row=0 ended=passed
  while [ $((spent / 100)) -lt "$soak" ]; do
    count=$((count + 1)) repetition=$count
    printf 'soak.%s\n' "$count" >"$report/current"
    hundredths
    began=$now
    with_run "$context" "$soak_decode" command_line
    asked=$line
    with_run "$context" "$soak_decode" execute "soak.$count" "$timeout"
    record "soak.$count" "$outcome" "$code" 1 "$started" "$took" "$asked"
    rm -f "$report/steps/soak.$count.out" "$report/steps/soak.$count.err"
    hundredths
    spent=$((spent + now - began))
    printf '%s %s\n' "$spent" "$count" >"$report/soak.state"
    if [ "$outcome" = passed ]; then
      in_a_row=0
    else
      in_a_row=$((in_a_row + 1))
      ended=failed
      # A route that does not exist would fail thousands of times.
      [ "$in_a_row" -lt 3 ] || break
    fi
  done
  finish soak "$soak_line" "$ended"
  printf '%s soak %s after %s s\n' "$(date +%H:%M:%S)" "$ended" $((spent / 100))
}

plan() {
  total=0
  facts_step
  kind=doctor model='' route='' prompt='' repetition=0
  step doctor "$timeout" sh "$package/kazeia.sh" doctor --npu --json
  number=0
  for model in "$@"; do
    number=$((number + 1))
    route='' prompt='' repetition=0
    kind='file'
    step "m$number.file" "$timeout" sha256sum "$model"
    kind=inspect
    step "m$number.inspect" "$timeout" sh "$package/kazeia.sh" inspect "$model" --json
    kind=doctor
    step "m$number.doctor" "$timeout" sh "$package/kazeia.sh" doctor --npu --json --model "$model"
    # Route after route inside a repetition: what changes with time (heat) meets all of them alike.
    repetition=1 kind=run
    while [ "$repetition" -le "$repeat" ]; do
      for prompt in $prompts; do
        for route in $routes; do
          with_run "$context" "$decode" step "m$number.$route.p$prompt.r$repetition" "$timeout"
        done
      done
      repetition=$((repetition + 1))
    done
    if [ "$long" -gt 0 ]; then
      kind=long prompt=$long repetition=1
      for route in $routes; do
        with_run "$long_context" "$decode" step "m$number.$route.long" "$timeout"
      done
    fi
  done
  model=$1
  soak_steps
}

# ---- verbs ---------------------------------------------------------------------------------------------------------

set_up_report() {
  package_id=$(sha256sum "$package/SHA256SUMS") || die "no SHA256SUMS in $package: this is not a complete package"
  package_id=${package_id%% *}
  old_id=
  { read -r old_id <"$report/package.id"; } 2>/dev/null
  # Figures of two programs do not belong in one report.
  if [ -e "$report" ] && { [ -n "$new" ] || { [ -n "$old_id" ] && [ "$old_id" != "$package_id" ]; }; }; then
    n=1
    while [ -e "$report.$n" ]; do n=$((n + 1)); done
    mv "$report" "$report.$n" || die "cannot set the old report aside"
    printf 'on_device: the old report is now %s\n' "$report.$n"
  fi
  mkdir -p "$report/steps" "$report/done" "$report/tries" || die "cannot write to $report"
  printf '%s\n' "$package_id" >"$report/package.id" || die "cannot write to $report"
  [ -z "$new" ] || printf '%s\n' "$new" >"$report/name"
  new=
}

# Has this report been started by the same command? Then there is nothing to set aside.
known_name() {
  old_name=
  { IFS= read -r old_name <"$report/name"; } 2>/dev/null
  [ "$new" = "$old_name" ] && [ "$new" != unnamed ]
}

# The end of a run that was told to stop: not an attempt that failed.
stopped() {
  trap '' TERM INT HUP
  end_child
  kill "$sampler" 2>/dev/null
  rm -f "$report/tries/$id" "$report/pid" "$report/child" "$code_file"
  exit 130
}

run() {
  set_up_report
  if running && [ "$runner" != $$ ]; then die "a run is at work on $report already (process $runner)"; fi
  boot_id
  end_orphan
  printf '%s %s\n' $$ "$boot" >"$report/pid"
  rm -f "$report/finished"
  : >"$report/begun"
  # What the program remembers of the NPU belongs to this report and to nothing else on the device.
  XDG_STATE_HOME=$report/state
  export XDG_STATE_HOME
  mkdir -p "$XDG_STATE_HOME"
  # What an interruption left of a line must not swallow the next one.
  if [ -s "$report/report.jsonl" ] && [ -n "$(tail -c 1 "$report/report.jsonl")" ]; then echo >>"$report/report.jsonl"; fi

  counting=yes
  plan "$@"
  printf '%s\n' "$total" >"$report/total"
  counting=

  sh "$here/sampler.sh" $$ "$report" "$sample" "$sysfs" &
  sampler=$!
  # A deliberate stop is not an attempt that failed.
  trap 'stopped' TERM INT
  trap '' HUP
  plan "$@"
  kill "$sampler" 2>/dev/null
  date +%s >"$report/finished"
  rm -f "$report/current" "$report/pid"
}

start() {
  if running; then
    [ -z "$new" ] || die "a run is at work on $report; stop it first"
    printf 'on_device: running already\n'
    return 0
  fi
  set_up_report
  detached=setsid
  command -v setsid >/dev/null 2>&1 || detached=
  rm -f "$report/finished" "$report/begun"
  # shellcheck disable=SC2086 # no word at all where there is no setsid
  KAZEIA_KEEP_REPORT=1 nohup $detached sh "$here/on_device.sh" run "$@" >>"$report/run.log" 2>&1 </dev/null &
  waited=0
  until [ -e "$report/begun" ]; do
    waited=$((waited + 1))
    if [ "$waited" -gt 10 ]; then
      tail -n 3 "$report/run.log"
      die "it did not start; $report/run.log says why"
    fi
    sleep 1
  done
  printf 'on_device: started\n'
}

status() {
  state=stopped
  if running; then state=running; fi
  [ ! -e "$report/finished" ] || state=finished
  total=0 name=- ended=0 failed=0
  { read -r total <"$report/total"; } 2>/dev/null
  { read -r name <"$report/current"; } 2>/dev/null
  for file in "$report"/done/*; do
    case $file in
      *.tmp | *'*') continue ;;
    esac
    ended=$((ended + 1))
    { IFS= read -r old && IFS= read -r outcome; } <"$file"
    [ "$outcome" = passed ] || failed=$((failed + 1))
  done
  printf 'state=%s done=%s total=%s failed=%s step=%s\n' "$state" "$ended" "$total" "$failed" "$name"
}

check() {
  for prompt in $prompts $soak_prompt; do
    [ -r "$here/prompts/$prompt.txt" ] || die "no prompt of $prompt tokens; there are: $(cd "$here/prompts" && echo *)"
  done
}

stop() {
  if running; then
    kill -TERM "$runner"
    waited=0
    while kill -0 "$runner" 2>/dev/null && [ "$waited" -lt 20 ]; do
      sleep 1
      waited=$((waited + 1))
    done
  else
    boot_id
    end_orphan
  fi
  status
}

[ $# -gt 0 ] || die "start, run, status, stop or check? The head of this script explains them"
verb=$1
shift
case $verb in
  start | run | status | stop | check) ;;
  *) die "start, run, status, stop or check, not '$verb'" ;;
esac

report=${package%/*}/report
routes='cpu npu-prefill npu-only' prompts='128 512 2048' repeat=3 decode=64 context=4096
long=6144 long_context=8192
soak=0 soak_route=npu-prefill soak_prompt=512 soak_decode=128
timeout=900 pause=5 sample=10
new='' retry_failed='' counting=''

whole_number() { # OPTION TEXT
  case $2 in
    '' | *[!0-9]*) die "$1 needs a whole number, not '$2'" ;;
  esac
}

# The words as they came, for the process that `start` makes.
command_line "$@"
original=$line option=
for word in "$@"; do
  # Walks through the words once; those that stay behind "$@" are the models.
  shift
  if [ -n "$option" ]; then
    # Where a value was forgotten, the next option or a model must not be taken for it.
    case $word in
      --*) die "$option needs a value, not '$word'" ;;
      *.gguf | */*) [ "$option" = --report ] || die "$option needs a value, not the file '$word'" ;;
    esac
    case $option in
      --report) report=$word ;;
      --routes) routes=$word ;;
      --prompts) prompts=$word ;;
      --soak-route) soak_route=$word ;;
      --repeat | --decode | --context | --long | --long-context | --soak-prompt | --soak-decode)
        whole_number "$option" "$word"
        eval "$(printf '%s' "${option#--}" | sed 's/-/_/g')=\$word"
        ;;
      --soak | --timeout | --pause | --sample)
        seconds "$word"
        eval "${option#--}=\$value"
        ;;
    esac
    option=
    continue
  fi
  case $word in
    --report | --routes | --prompts | --soak-route | --repeat | --decode | --context | --long | --long-context | \
      --soak-prompt | --soak-decode | --soak | --timeout | --pause | --sample) option=$word ;;
    --new) new=unnamed ;;
    --new=?*) new=${word#--new=} ;;
    --retry-failed) retry_failed=yes ;;
    -*) die "unknown option '$word'" ;;
    /*) set -- "$@" "$word" ;;
    *) set -- "$@" "$PWD/$word" ;;
  esac
done
[ -z "$option" ] || die "$option needs a value"
if [ -n "$KAZEIA_KEEP_REPORT" ] || known_name; then new=; fi

case $verb in
  status | stop | check) "$verb" ;;
  *)
    [ $# -gt 0 ] || die "which models? Name their .gguf files"
    for file in "$@"; do
      [ -r "$file" ] || die "cannot read the model '$file' on the device"
    done
    check
    if [ "$verb" = start ]; then
      eval "start $original"
    else
      run "$@"
    fi
    ;;
esac
