// Options of ThreadSanitizer that every program of such a build has, also where nobody passes it
// TSAN_OPTIONS. It looks for these functions in the program, not in its libraries.

extern "C" const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1 allocator_may_return_null=1";
}

// Reports that are known not to be races, each with its reason.
extern "C" const char* __tsan_default_suppressions() {
  return
      // System calls and releases of memory by libraries themselves, which are not instrumented.
      // Stacks hold what is instrumented and its caller, so our functions that these libraries call
      // are not meant.
      "race:libgrpc.so.29\n"
      "race:libtorch_cpu.so\n"
      // Its counts of references are atomics in the library.
      "race:libabsl_status.so.20220623\n"
      // Looks by design at handles that gRPC may have closed, and goes by the inode that it finds.
      "race:genesis::ConnectionAcceptor::BelowMost\n";
}
