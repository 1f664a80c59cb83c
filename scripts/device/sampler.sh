#!/bin/sh
# What the device is like while it works: one JSON object every few seconds, appended to REPORT/samples.jsonl, until the
# process PARENT is gone. Reading sysfs with the shell's own `read` starts no process, so that sampling costs nothing.
#   sh sampler.sh PARENT REPORT SECONDS SYSFS
parent=$1 report=$2 interval=$3 sysfs=$4

# content FILE: sets `value` to its first line, empty if it cannot be read.
content() {
  value=
  { read -r value <"$1"; } 2>/dev/null
}

# add_number NAME: adds "NAME":value to `list` if the value is a whole number.
add_number() {
  case $value in
    '' | - | *[!0-9-]*) ;;
    *) list="$list${list:+,}\"$1\":$value" ;;
  esac
}

battery_of_dumpsys() {
  list=$(dumpsys battery 2>/dev/null | while read -r key text; do
    case $key in
      level: | temperature: | voltage:)
        case $text in
          '' | *[!0-9-]*) ;;
          *) printf '"%s":%s,' "${key%:}" "$text" ;;
        esac
        ;;
    esac
  done)
  list=${list%,}
}

sample() {
  temperatures=
  list=
  for zone in "$sysfs"/class/thermal/thermal_zone*; do
    content "$zone/type"
    type=$value
    content "$zone/temp"
    case $type in
      *[!A-Za-z0-9._-]* | '') type=unnamed ;;
    esac
    add_number "${zone##*thermal_}/$type"
  done
  temperatures=$list
  clocks=
  for file in "$sysfs"/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq; do
    content "$file"
    case $value in
      '' | *[!0-9]*) ;;
      *) clocks=$clocks${clocks:+,}$value ;;
    esac
  done
  memory=0
  while read -r key text _; do
    [ "$key" != MemAvailable: ] || memory=$text
  done </proc/meminfo
  list=
  for name in capacity temp voltage_now current_now; do
    content "$sysfs/class/power_supply/battery/$name"
    add_number "$name"
  done
  # Without root some devices hide the battery in sysfs and tell it through their service.
  if [ -z "$list" ] && command -v dumpsys >/dev/null 2>&1; then battery_of_dumpsys; fi
  battery=$list
  content "$report/current"
  up=
  { read -r up _ </proc/uptime; } 2>/dev/null
  [ -n "$up" ] || up=$(date +%s)
  printf '{"time":%s,"uptime_s":%s,"step":"%s","temperature_mc":{%s},"clock_khz":[%s],"mem_available_kb":%s,"battery":{%s}}\n' \
    "$(date +%s)" "$up" "$value" "$temperatures" "$clocks" "$memory" "$battery" >>"$report/samples.jsonl"
}

while kill -0 "$parent" 2>/dev/null; do
  sample
  sleep "$interval"
done
