# FP32 on a part of the service, beside the rest.
# shellcheck shell=bash

canary() {
  case ${1-} in
    start) canary_start ;;
    compare) canary_compare ;;
    promote) canary_promote ;;
    abort) canary_abort ;;
    *) unusable "canary ${1-}: accepted: start, compare, promote, abort" ;;
  esac
}
