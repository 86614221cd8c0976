# SPDX-License-Identifier: Apache-2.0
# Tests that need more than one program per file.
if(LIGHTC_BUILD_FUZZERS AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/CMakeLists.txt)
  add_subdirectory(fuzz)
endif()
# Train the networks of the benchmarks.
foreach(name IN ITEMS test_laws test_sync test_fuse test_operators)
  target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/bench/models.c)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
endforeach()
# Test programs on a simulated device (src/backends/sim/sim.h), which runs nothing before somebody waits for it.
# The tests are called NAME_...; `variables` are those of the environment. Cases that are about the host, such as those
# of test_laws about threads and fast kernels, skip themselves.
function(lightc_test_on_sim called variables)
  foreach(name IN LISTS ARGN)
    add_dependencies(test_${name} lightc_sim)
    add_test(NAME ${called}_${name} COMMAND test_${name})
    get_test_property(${name} ENVIRONMENT environment)
    set_tests_properties(${called}_${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800 LABELS ${called}
      ENVIRONMENT "${environment};LIGHTC_ACCELERATOR=sim;${variables};LIGHTC_KERNELS=reference;LIGHTC_BACKEND_PATH=${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
  endforeach()
endfunction()
lightc_test_on_sim(sim "LIGHTC_SIM=lazy" engine fuse storage_types laws anomaly missed writes arguments module zeros map halves unscale master_weights optim optim_updates nn ops_cases
  bad_index ops_edges ops_math ops_nn trainer_order stopped_runs steps trainer_optim trainer_resume callbacks checkpoint log_hooks metrics
  hooks log_metric trainer_loggers hook_errors save_errors resume_everything callbacks_resume
  ddp partial_gradients under_way compression collectives gather sync_batch_norm sharded_gradients slices
  data_parallel transform_batch split late_values fabric tuner mixed_run sync deterministic deterministic_windows deterministic_resume)
# No operator has a kernel there: each runs on the host.
lightc_test_on_sim(fallback "LIGHTC_SIM=lazy;LIGHTC_SIM_WITHOUT=all;LIGHTC_HOST_FALLBACK=1" engine anomaly writes optim_updates nn
  ops_cases ops_nn)
# Batches go to it by way of memory of the backend, on its one queue. The backend is of an older version, which has no
# programs.
lightc_test_on_sim(one_queue "LIGHTC_SIM=lazy;LIGHTC_SIM_WITHOUT=host_register,copy_ahead,programs" trainer_optim)
# Some cases of a test program (all of them: "") with oneDNN as on CPUs of older instruction sets. AVX2 has nothing for
# bf16. tests/backends run own kernels of each.
function(lightc_test_on_isa program cases)
  foreach(isa IN LISTS ARGN)
    string(TOLOWER ${program}_${isa} name)
    add_test(NAME ${name} COMMAND test_${program} ${cases})
    get_test_property(${program} ENVIRONMENT environment)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800 ENVIRONMENT "${environment};ONEDNN_MAX_CPU_ISA=${isa}")
  endforeach()
endfunction()
lightc_test_on_isa(onednn_low "" AVX512_CORE AVX512_CORE_BF16)
lightc_test_on_isa(storage_types "" AVX2 AVX512_CORE AVX512_CORE_BF16)
lightc_test_on_isa(ops_low products_and_sums AVX2 AVX512_CORE AVX512_CORE_BF16)
lightc_test_on_isa(laws planned_is_unplanned_in_mixed_precision AVX2 AVX512_CORE AVX512_CORE_BF16)
add_dependencies(test_sim lightc_sim)
# Plug-ins under names that are not theirs.
foreach(name IN ITEMS other_backend no_backend)
  add_library(${name} MODULE device/${name}.c)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE lightc_flags)
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  add_dependencies(test_backend_plugin ${name})
endforeach()
add_dependencies(test_backend_plugin lightc_sim)
# Calls the driver's functions, not those of the plug-in.
target_sources(test_sim_driver PRIVATE ${PROJECT_SOURCE_DIR}/src/backends/driver/queue.c ${PROJECT_SOURCE_DIR}/src/backends/sim/memory.c ${PROJECT_SOURCE_DIR}/src/backends/sim/work.c)
target_link_options(test_sim_driver PRIVATE -Wl,--wrap=free)
add_dependencies(test_sim_fit lightc_sim)
add_dependencies(test_sim_ranks lightc_sim)
add_dependencies(test_sim_trainer lightc_sim)
add_dependencies(test_sim_failures lightc_sim)
add_dependencies(test_backend_check lightc_sim lc_backend_check)
add_dependencies(test_sim_devices lightc_sim)
# What it reads.
add_dependencies(test_symbols lightc)
add_subdirectory(reference)
add_subdirectory(conformance)
add_subdirectory(tools)
# Trains the same networks next to PyTorch (if a Python has it).
target_sources(test_torch_runs PRIVATE ${PROJECT_SOURCE_DIR}/bench/models.c)
target_include_directories(test_torch_runs PRIVATE ${PROJECT_SOURCE_DIR})

# Runs every example as a user would, on data that make_idx and make_pictures make.
add_executable(make_idx programs/make_idx.c)
target_link_libraries(make_idx PRIVATE lightc_flags)
add_executable(make_pictures programs/make_pictures.c)
target_link_libraries(make_pictures PRIVATE ${LIGHTC_INTERNAL} lightc_flags)
if(TARGET mnist_mlp)
  file(GLOB examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
  foreach(path IN LISTS examples)
    get_filename_component(name ${path} NAME_WE)
    add_test(NAME example_${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/examples.sh ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${name})
    set_tests_properties(example_${name} PROPERTIES TIMEOUT 1800 ENVIRONMENT OMP_WAIT_POLICY=passive)
  endforeach()
endif()

# The programs in the guides.
if(TARGET make_idx)
  add_test(NAME guides COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/docs.sh ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY} ${LIGHTC_SANITIZE})
  set_tests_properties(guides PROPERTIES TIMEOUT 1800)
endif()

# Checks that tests/patches apply, and touch the files that CONTRIBUTING.md lists; .ci/long builds them.
find_program(LIGHTC_GIT git)
if(LIGHTC_GIT)
  add_test(NAME patches COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/patches.sh -l)
endif()
# The same for the mutations: each must still change its file.
add_test(NAME mutations COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/mutations.sh -l)

# The programs that test_launch* start, and the supervisor they start them with.
add_executable(rank_program programs/rank_program.c)
target_include_directories(rank_program PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(rank_program PRIVATE ${LIGHTC_INTERNAL} lightc_flags)
foreach(name launch launch_ends launch_hosts)
  add_dependencies(test_${name} rank_program last_calls_program fault_program lightc_program)
endforeach()
add_executable(prints_program programs/prints_program.c)
target_include_directories(prints_program PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(prints_program PRIVATE lightc lightc_flags)
add_dependencies(test_launch_prints prints_program lightc_program)
add_executable(fabric_program programs/fabric_program.c)
target_include_directories(fabric_program PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(fabric_program PRIVATE lightc lightc_flags)
add_dependencies(test_fabric_launch fabric_program)
add_executable(last_calls_program programs/last_calls_program.c)
target_include_directories(last_calls_program PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(last_calls_program PRIVATE lightc lightc_flags)
add_dependencies(test_last_calls last_calls_program lightc_program)

# The program that test_same_bits starts: with the shared library, since MPI is a plug-in.
add_executable(bits_program programs/bits_program.c)
target_include_directories(bits_program PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(bits_program PRIVATE lightc m lightc_flags)
add_dependencies(test_same_bits bits_program lightc_program)

# The program that test_strategies starts.
add_executable(strategy_program programs/strategy_program.c)
target_include_directories(strategy_program PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(strategy_program PRIVATE lightc Threads::Threads lightc_flags)
add_dependencies(test_strategies strategy_program lightc_program lightc_sim)

# Trainings that are disturbed: 20 rounds include each kind once. `faults.sh --rounds 500` is the long version.
add_executable(fault_program programs/fault_program.c)
target_include_directories(fault_program PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(fault_program PRIVATE lightc ${CMAKE_DL_LIBS} lightc_flags)
add_dependencies(test_machines fault_program)
add_dependencies(test_elastic fault_program lightc_program)
add_executable(fault_rounds faults/fault_rounds.c)
target_include_directories(fault_rounds PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(fault_rounds PRIVATE ${LIGHTC_INTERNAL} lightc_flags)
add_test(NAME faults COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/faults/faults.sh --rounds 20)
set_tests_properties(faults PROPERTIES TIMEOUT 1800
                     ENVIRONMENT "LIGHTC_TEST_SLACK=4;LIGHTC_TEST_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")

# Trainings that lose power, on a file system of the test. LIGHTC_POWER_ROUNDS=500 is the long version.
add_executable(power_program programs/power_program.c)
target_include_directories(power_program PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(power_program PRIVATE lightc lightc_flags)
target_sources(test_power_loss PRIVATE faults/power_fs.c)
add_dependencies(test_power_loss power_program)

# Trainings under a private Slurm, if it is installed.
add_test(NAME slurm COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/slurm.sh)
set_tests_properties(slurm PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800
                     ENVIRONMENT "LIGHTC_TEST_SLACK=4;LIGHTC_TEST_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")

# These mount their own /dev/shm, or run as users who cannot read this user's folders.
set_property(TEST machines faults slurm launch_prints APPEND PROPERTY ENVIRONMENT TMPDIR=/tmp)

# Makes allocations of lightc call functions of this test, which let them fail.
foreach(function malloc calloc realloc aligned_alloc strdup strndup)
  target_link_options(test_no_memory PRIVATE -Wl,--wrap=${function})
endforeach()

# Run under mpirun. The second program has a plug-in of its own, which treats small data as large.
if(LIGHTC_HAVE_MPI)
  foreach(name IN ITEMS comm_mpi comm_mpi_large)
    add_executable(test_${name} comm/test_comm_mpi.c)
    target_include_directories(test_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(test_${name} PRIVATE lightc MPI::MPI_C Threads::Threads m lightc_flags)
    add_test(NAME ${name} COMMAND test_${name})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800)
  endforeach()
  target_link_libraries(test_comm_mpi PRIVATE lightc_mpi)
  add_dependencies(test_same_bits lightc_mpi)
  add_dependencies(test_last_calls lightc_mpi)
  target_sources(test_comm_mpi_large PRIVATE ${LIGHTC_MPI_SOURCES})
  target_compile_definitions(test_comm_mpi_large PRIVATE LC_MPI_LARGE=1000 LC_MPI_ROUND=4096)
endif()

# The longest tests start first, since one that starts last would run by itself. The first few mostly wait.
foreach(name IN ITEMS launch launch_ends slurm last_calls faults machines strategies endings resume_everything
                      deterministic deterministic_resume comm sync launch_hosts ddp_sharded elastic control no_memory
                      resume_ranks trainer_alloc comm_mpi comm_mpi_large same_bits ddp_memory winograd exposed optim
                      ddp_checkpoints example_sharded_gpt backend_check random_ranks sim_deterministic sim_laws sim_sync
                      sim_resume_everything sim_failures ddp_callbacks product_low)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST 60)
  endif()
endforeach()

# Runs the rows of the operators with its own check_form.
target_sources(test_ops_low PRIVATE ${PROJECT_SOURCE_DIR}/src/check/math_rows.c ${PROJECT_SOURCE_DIR}/src/check/nn_rows.c)

# Calls functions of the program `lightc`.
target_sources(test_doctor PRIVATE ${PROJECT_SOURCE_DIR}/src/tools/bench_points.c ${PROJECT_SOURCE_DIR}/src/tools/gpus.c
                                   ${PROJECT_SOURCE_DIR}/src/tools/place.c)
