# bash completion for genesisctl: commands and options from its own help, so that they match the installed version.
# shellcheck shell=bash

_genesisctl_options() {
  genesisctl "$@" --help 2>/dev/null | grep -oE '^ +(-[a-z], )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+'
}

_genesisctl() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' i candidates
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --server | --token-file | --tls-ca | --tls-cert | --tls-key | --output | -o) i=$((i + 1)) ;;
      -*) ;;
      *)
        command=${COMP_WORDS[i]}
        break
        ;;
    esac
  done
  COMPREPLY=()
  case $previous in
    -o | --output) candidates='table json yaml' ;;
    --running) candidates='new-attempts next-step at-once' ;;
    -f | --file | --token-file | --tls-ca | --tls-cert | --tls-key) mapfile -t COMPREPLY < <(compgen -f -- "$word") && return ;;
    *)
      if [[ $word == -* ]]; then
        candidates=$(_genesisctl_options ${command:+"$command"})
      elif [ -z "$command" ]; then
        candidates=$(genesisctl --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\).*/\1/p')
      else
        case $command in
          config) candidates='show reload validate' ;;
          precision) candidates='disable allow' ;;
          token) candidates='viewer submitter admin' ;;
          *) mapfile -t COMPREPLY < <(compgen -f -- "$word") && return ;;
        esac
      fi
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$word")
}
complete -o filenames -F _genesisctl genesisctl
