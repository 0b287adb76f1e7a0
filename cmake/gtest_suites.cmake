# Read by ctest, not by the build: asks ${program} for its gtest suites and declares one test for each.
# Labels: ${label}; ${runs}, which is `sanitize` or `released` (cmake/targets.cmake); `slow` or `gpu` where the suite's name says so; `tsan`:
# suites in which threads meet, for the preset of that name.
set(slow_suites "Slow|Stress|Speed")
set(gpu_suites "Gpu")
set(threaded_suites "^(Call|CallTest|Threads|ThreadPool|Tiles|InOrder|Moments|BatchSizes|KernelsOnDisk|RuntimeFailure|Finish|Products)$")

set(suites "")
if(EXISTS ${program})
  execute_process(COMMAND ${program} --gtest_list_tests OUTPUT_VARIABLE listing RESULT_VARIABLE status)
  if(status EQUAL 0)
    # Suites stand at the start of a line and end in a dot; their tests are indented.
    string(REGEX MATCHALL "(^|\n)[^ \n][^\n]*\\." suites "${listing}")
  endif()
endif()

if(suites STREQUAL "" AND NOT optional)
  # Without this, a program that was not built or does not start would pass unnoticed.
  add_test(${label}.missing sh -c "echo ${program} was not built, does not start, or has no tests; exit 1")
  set_tests_properties(${label}.missing PROPERTIES LABELS "${label};${runs}")
endif()
# The longest first, so that no core waits for one that began late: forty seconds or more on one core. ctest orders the others by what they took
# before, which a clean clone does not know.
set(long_suites "/AuditTest$|/ComposedProgramTest$|/LoopsOfPlaces$|^Files/KernelGoldenTest$|OfManyKernels$|^Ops/LoweredCode$|^Ops/RecomputeTest$|^AheadGpu$|^Part/DerivativesOfAuditOps$")
set(limit 900)  # seconds
if("$ENV{XHAT_TEST_LONG}")
  set(limit 43200)
else()
  # The sanitizer's search for uses of stack memory after return takes half of the time, and freed memory that it keeps longer than the
  # processor's cache does a fifth.
  string(REPLACE "use_after_return=1" "use_after_return=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=64" environment "${environment}")
endif()
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "^\n" "" suite "${suite}")
  string(REGEX REPLACE "\\..*$" "" suite "${suite}")
  if(suite MATCHES "^DISABLED_|^Running main")
    continue()
  endif()
  set(labels "${label};${runs}")
  if(suite MATCHES "${slow_suites}")
    list(APPEND labels slow)
  elseif(suite MATCHES "${gpu_suites}")
    list(APPEND labels gpu)
  endif()
  if(suite MATCHES "${threaded_suites}")
    list(APPEND labels tsan)
  endif()
  add_test(${label}.${suite} ${program} "--gtest_filter=${suite}.*" --gtest_brief=1)
  if(suite MATCHES "${long_suites}")
    set_tests_properties(${label}.${suite} PROPERTIES COST 100)
  endif()
  set_tests_properties(${label}.${suite} PROPERTIES
    LABELS "${labels}" TIMEOUT ${limit} WORKING_DIRECTORY ${source_dir} ENVIRONMENT "${environment}")
endforeach()
