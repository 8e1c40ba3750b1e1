# Steps with their elapsed time, commands printed before they run, and the confirmation word.
# shellcheck shell=bash

milliseconds() {
  local now=$EPOCHREALTIME
  say $((${now/[.,]/} / 1000))
}

# elapsed SINCE: seconds with one decimal.
elapsed() { awk -v ms=$(($(milliseconds) - $1)) 'BEGIN { printf "%.1f s", ms / 1000 }'; }

# begin_procedure NAME STEPS
begin_procedure() {
  PROCEDURE_BEGIN=$(milliseconds)
  STEP=0
  STEPS=$2
  STEP_TIMES=
  say "$1 on $TARGET: $(target_name)${DRY_RUN:+ (dry run: nothing is changed)}"
}

# step TEXT: ends the previous step.
step() {
  end_step
  STEP=$((STEP + 1))
  STEP_TEXT=$1
  STEP_BEGIN=$(milliseconds)
  printf '[%7s] %d/%d %s\n' "$(elapsed "$PROCEDURE_BEGIN")" "$STEP" "$STEPS" "$1"
}

end_step() {
  if [ -z "${STEP_TEXT-}" ]; then return; fi
  local took
  took=$(elapsed "$STEP_BEGIN")
  printf '            done in %s\n' "$took"
  STEP_TIMES+="$took"$'\t'"$STEP_TEXT"$'\n'
  STEP_TEXT=
}

note() { printf '            %s\n' "$*"; }

# typed COMMAND...: prints the command as a user would type it, without the functions of these
# scripts.
typed() {
  case $1 in
    ctl) set -- genesisctl "${@:2}" ;;
    compose) set -- docker-compose "${@:2}" ;;
    append_to_environment) say "echo '$2' >> $ENVIRONMENT_FILE" && return ;;
  esac
  printf '%q ' "$@"
}

# run COMMAND...: prints the command, and runs it unless this is a dry run. Its output is indented.
run() {
  printf '            + %s\n' "$(typed "$@")"
  if [ -n "$DRY_RUN" ]; then return; fi
  local output code=0
  output=$("$@" 2>&1) || code=$?
  if [ -n "$output" ]; then printf '              %s\n' "${output//$'\n'/$'\n'              }"; fi
  return "$code"
}

# confirm WORD TEXT: returns immediately with --yes; otherwise the word must be typed.
confirm() {
  local word=$1 typed
  shift
  if [ -n "$DRY_RUN$YES" ]; then return; fi
  say "$*"
  [ -t 0 ] || fail "nobody is at a terminal to confirm it; give --yes, or --dry-run to see what would be done"
  printf 'Type %s to go on: ' "$word"
  read -r typed
  [ "$typed" = "$word" ] || fail "\"$typed\" is not $word; nothing was changed"
}
