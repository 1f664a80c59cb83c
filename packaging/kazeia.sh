#!/bin/sh
# Starts this package's kazeia from any folder: `sh kazeia.sh run MODEL -p 'Hello'`. POSIX sh, for Android's shell too.
# KAZEIA_UNDER: a program to run it under, with its options (an emulator, a profiler, taskset).

self=$0
# A link to this script is as good as the script.
while [ -L "$self" ]; do
  target=$(readlink "$self")
  case $target in
    /*) self=$target ;;
    *) self=$(dirname -- "$self")/$target ;;
  esac
done
here=$(CDPATH='' cd -- "$(dirname -- "$self")" && pwd -P) || exit 1

# Where the NPU's loader looks for libggml-htp-v*.so: here, and nowhere else first. Its list is separated by ';'.
ADSP_LIBRARY_PATH=$here/lib${ADSP_LIBRARY_PATH:+;$ADSP_LIBRARY_PATH}
export ADSP_LIBRARY_PATH

# With /vendor/lib64 on it, Android's loader takes the vendor's copies of libraries and NPU sessions do not open.
if [ -n "$LD_LIBRARY_PATH" ]; then
  kept=
  rest=$LD_LIBRARY_PATH:
  while [ -n "$rest" ]; do
    entry=${rest%%:*}
    rest=${rest#*:}
    case $entry in
      '' | /vendor/lib64 | /vendor/lib64/) ;;
      *) kept=$kept${kept:+:}$entry ;;
    esac
  done
  if [ -n "$kept" ]; then
    LD_LIBRARY_PATH=$kept
    export LD_LIBRARY_PATH
  else
    unset LD_LIBRARY_PATH
  fi
fi

# What the program remembers of the NPU is kept here where the user has no folder of his own: adb's shell has none.
if [ -z "${XDG_STATE_HOME:-}" ] && { [ -z "${HOME:-}" ] || [ "$HOME" = / ] || [ ! -w "$HOME" ]; }; then
  XDG_STATE_HOME=$here/state
  export XDG_STATE_HOME
fi

# shellcheck disable=SC2086 # several words: a program and its options
exec ${KAZEIA_UNDER:-} "$here/bin/kazeia" "$@"
