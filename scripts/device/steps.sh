# One step of the acceptance run: it is run, bounded, recorded once and not repeated. Read by on_device.sh, whose variables it
# uses: report, counting, total, pause, retry_failed, and what belongs to the record, kind, model, route, prompt, repetition.
# shellcheck shell=sh disable=SC2154

# hundredths: sets `now` to the time since boot in 1/100 s, which does not jump when the clock is set; where an app's shell
# may not read it, to the time since this script began, in whole seconds.
script_began=$(date +%s)
hundredths() {
  now=
  { read -r now _ </proc/uptime; } 2>/dev/null
  [ -n "$now" ] || now=$(($(date +%s) - script_began)).00
  now=${now%.*}${now#*.}
  while [ "${now#0}" != "$now" ] && [ ${#now} -gt 1 ]; do now=${now#0}; done # 010 would be read as octal
}

# Text on stdin as the inside of a JSON string.
json_inside() {
  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/[[:cntrl:]]/ /g' | {
    first=1
    while IFS= read -r text || [ -n "$text" ]; do
      [ -n "$first" ] || printf '\\n'
      first=
      printf '%s' "$text"
    done
  }
}
json_string() { printf '"%s"' "$(printf '%s\n' "$1" | json_inside)"; }

# A command that can be pasted into a shell.
command_line() {
  line=
  for word in "$@"; do
    case $word in
      '' | *[!A-Za-z0-9_./:=,+@%-]*) word=\'$(printf '%s\n' "$word" | sed "s/'/'\\\\''/g")\' ;;
    esac
    line=$line${line:+ }$word
  done
}

# Appends one object to report.jsonl.
# record ID OUTCOME EXIT_CODE ATTEMPT STARTED HUNDREDTHS COMMAND_LINE
record() {
  out=$report/steps/$1.out err=$report/steps/$1.err
  result=
  if [ -s "$out" ] && [ "$(wc -c <"$out")" -lt 300000 ]; then
    # kazeia prints one object, on one line or many; in JSON a line break between tokens is as good as a space.
    whole=$(while IFS= read -r text || [ -n "$text" ]; do printf '%s ' "$text"; done <"$out")
    whole=${whole% }
    case $whole in
      '{'*'}') result=$whole ;;
    esac
  fi
  rest=$(($6 % 100))
  [ "$rest" -ge 10 ] || rest=0$rest
  {
    printf '{"step":"%s","kind":"%s","model":%s,"route":"%s","prompt":"%s","repetition":%s,' \
      "$1" "$kind" "$(json_string "$model")" "$route" "$prompt" "$repetition"
    printf '"command":%s,"attempt":%s,"outcome":"%s","exit_code":%s,"started":%s,"seconds":%s.%s' \
      "$(json_string "$7")" "$4" "$2" "$3" "$5" $(($6 / 100)) "$rest"
    if [ -n "$result" ]; then
      printf ',"result":%s' "$result"
    elif [ -s "$out" ]; then
      printf ',"stdout":"%s"' "$(tail -c 4000 "$out" | json_inside)"
    fi
    [ ! -s "$err" ] || printf ',"stderr":"%s"' "$(tail -c 4000 "$err" | json_inside)"
    printf '}\n'
  } >"$report/line.tmp"
  cat "$report/line.tmp" >>"$report/report.jsonl"
  rm -f "$report/line.tmp"
}

# finish ID COMMAND_LINE OUTCOME
finish() {
  printf '%s\n%s\n' "$2" "$3" >"$report/done/$1.tmp"
  mv -f "$report/done/$1.tmp" "$report/done/$1"
  rm -f "$report/tries/$1"
}

# Did this step, with this command, end before? Sets `outcome`.
finished() {
  old='' outcome=''
  { IFS= read -r old && IFS= read -r outcome; } 2>/dev/null <"$report/done/$1"
  [ "$old" = "$2" ] || return 1
  [ "$outcome" = passed ] || [ -z "$retry_failed" ]
}

# Ends the program of the current step: politely, and after 10 s for good. Not 0 if even that did not end it.
end_child() {
  child=
  { read -r child <"$report/child"; } 2>/dev/null
  [ -n "$child" ] || return 0
  kill -TERM "$child" 2>/dev/null
  waited=0
  while kill -0 "$child" 2>/dev/null && [ "$waited" -lt 10 ]; do
    sleep 1
    waited=$((waited + 1))
  done
  kill -KILL "$child" 2>/dev/null || return 0
  sleep 2
  ! kill -0 "$child" 2>/dev/null
}

# execute ID LIMIT COMMAND...: runs it; sets outcome, code, started, took.
execute() {
  id=$1 limit=$2
  shift 2
  started=$(date +%s)
  hundredths
  took=$now
  # In the background, with a look at it every second: so the shell hears Ctrl-C and `stop`. Neither `wait` nor `timeout`:
  # mksh's wait forgets the exit code of a process that was faster, or sleeps for ever, and toybox's timeout invents one.
  code_file=$report/code.$$.$id
  rm -f "$code_file"
  {
    # shellcheck disable=SC2016 # expanded by the inner shell
    sh -c 'echo $$ >"$0" && exec "$@"' "$report/child" "$@" >"$report/steps/$id.out" 2>"$report/steps/$id.err" </dev/null
    code=$?
    hundredths
    printf '%s %s\n' "$code" "$now" >"$code_file"
  } 2>/dev/null &
  overdue='' looks=0
  while [ ! -s "$code_file" ]; do
    looks=$((looks + 1))
    # Short steps should not pay a second each.
    if [ "$looks" -gt 20 ] || ! sleep 0.1 2>/dev/null; then sleep 1; fi
    hundredths
    if [ $(((now - took) / 100)) -ge "$limit" ]; then
      overdue=yes
      # What hangs inside the NPU's driver cannot be killed; it must not hold up the rest.
      end_child && sleep 1
      break
    fi
  done
  hundredths
  code=-1
  { read -r code now <"$code_file"; } 2>/dev/null
  took=$((now - took))
  rm -f "$report/child" "$code_file"
  outcome=failed
  if [ "$code" -eq 0 ]; then
    outcome=passed
  elif [ -n "$overdue" ]; then
    outcome=timeout
  elif [ "$code" -gt 128 ]; then
    outcome=crashed
  fi
}

# step ID LIMIT COMMAND...
step() {
  total=$((total + 1))
  [ -z "$counting" ] || return 0
  id=$1 limit=$2
  shift 2
  command_line "$@"
  if finished "$id" "$line"; then return 0; fi
  tries=0
  { read -r tries <"$report/tries/$id"; } 2>/dev/null
  if [ "$tries" -ge 2 ]; then
    # It began twice and never ended: it takes the device (or this script) down with it.
    record "$id" lost -1 "$tries" "$(date +%s)" 0 "$line"
    finish "$id" "$line" lost
    return 0
  fi
  tries=$((tries + 1))
  printf '%s\n' "$tries" >"$report/tries/$id"
  printf '%s\n' "$id" >"$report/current"
  asked=$line
  execute "$id" "$limit" "$@"
  record "$id" "$outcome" "$code" "$tries" "$started" "$took" "$asked"
  finish "$id" "$asked" "$outcome"
  printf '%s %s %s\n' "$(date +%H:%M:%S)" "$id" "$outcome"
  [ "$pause" -eq 0 ] || sleep "$pause"
}
