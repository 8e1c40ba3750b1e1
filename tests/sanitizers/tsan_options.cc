// Options for every program in a build with ThreadSanitizer, even without TSAN_OPTIONS. It looks up
// these functions in the program, not in its libraries.

extern "C" const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1 allocator_may_return_null=1";
}

// Suppressions of known false reports, each with its reason.
extern "C" const char* __tsan_default_suppressions() {
  return
      // System calls and memory releases of uninstrumented libraries. Reports contain the
      // instrumented function and its caller, so functions of the daemon that these libraries call
      // are not suppressed.
      "race:libgrpc.so.29\n"
      "race:libtorch_cpu.so\n"
      // The reference counts of absl::Status are atomics in an uninstrumented library.
      "race:libabsl_status.so.20220623\n"
      // BelowMost intentionally checks handles that gRPC may have closed, and compares the inode.
      "race:genesis::ConnectionAcceptor::BelowMost\n";
}
